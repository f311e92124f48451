//! What chaos can draw, how often, and which changes come of it. The alphabet is closed: a change that the model learns
//! does not compile until [`cause`] says what in a simulation makes it.

use plimsoll_model::Change;
use plimsoll_model::machines::MachineChange;
use plimsoll_model::volumes::VolumeChange;

/// A letter of the alphabet: a kind of thing that chaos does to a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Draw {
    /// A node loses power for a while.
    Crash,
    /// A node is cut off for a while.
    Cut,
    /// A node loses its disks, and joins again with nothing.
    Wipe,
    /// A container ends by itself.
    Kill,
    /// A container turns unhealthy.
    Sicken,
    /// The container engine of a node is down for a while, with its containers.
    StopEngine,
    /// The container engine of a node is down for a while, and its containers run on.
    LoseEngine,
    /// A service fails on every start for a while, until its tries are exhausted.
    Fail,
    /// An image cannot be pulled for a while.
    Withdraw,
    /// A node has no addresses for new networks for a while.
    ExhaustSubnets,
    NewLeader,
    /// A leader with another clock.
    Skew,
    /// The decisions of one service are wrong for a while.
    Poison,

    Cordon,
    Drain,
    DrainByForce,
    /// A node is drained, removed, and joins again later.
    Remove,
    /// A lost node is removed, and joins again later.
    RemoveLost,
    Join,
    /// A node changes its capacity, zone or labels.
    Describe,
    /// The cell is recovered from one server, without another node.
    Recover,

    /// A service of a deployment is changed, in any field that an operator can change.
    Apply,
    /// The same file again.
    ApplyAgain,
    Delete,
    DeleteWithVolumes,
    /// A volume moves to another node, with all it is tied to.
    MoveVolume,
    /// A node is to remove its copy of a volume, or the cell forgets it.
    RemoveVolume,
    /// A client backs up a volume.
    BackUpVolume,
    /// A client replaces what is in a volume.
    RestoreVolume,
    Scale,
    Rollback,
    Restart,
    PauseRollout,
    ResumeRollout,
    AbortRollout,

    CreateJoinToken,
    RevokeJoinToken,
    AddOperator,
    RevokeOperator,
    Exec,
    Backup,
    /// The authority is rotated, and later not any longer held up by nodes that are down.
    RotateAuthority,
    /// It is rotated, and then that is taken back.
    AbortRotation,
    /// Backups are encrypted with another key.
    RotateBackupKey,
    /// The rescheduler is paused for a while, or gets another target.
    Reschedule,
    /// A better layout is asked for and carried out.
    Optimize,
    Raise,
    /// The provider has one more machine, or one less.
    OfferMachine,
    /// Machines are paused for a while.
    PauseMachines,
    /// The coordinator of a fleet says something.
    Instruct,

    CreateSecret,
    /// A secret of the cell gets another value, and the services that use it a rollout each.
    RotateSecret,
    RemoveSecret,
    /// Certificates that are due are asked for, and the authority answers as it does.
    Certify,
    /// The cell is given credentials for a registry, or others than it had.
    LoginRegistry,
    LogoutRegistry,
    /// The cell joins a fleet, and leaves it later.
    JoinFleet,
    /// Somebody takes the cell for a coordinator, which it is not.
    MistakeForCoordinator,
}

/// How often each is drawn, relative to the others. One line switches a letter off: a weight of zero.
pub const WEIGHTS: &[(Draw, u64)] = &[
    (Draw::Crash, 12),
    (Draw::Cut, 9),
    (Draw::Wipe, 3),
    (Draw::Kill, 8),
    (Draw::Sicken, 3),
    (Draw::StopEngine, 4),
    (Draw::LoseEngine, 3),
    (Draw::Fail, 3),
    (Draw::Withdraw, 2),
    (Draw::ExhaustSubnets, 4),
    (Draw::NewLeader, 9),
    (Draw::Skew, 2),
    (Draw::Poison, 2),
    (Draw::Cordon, 4),
    (Draw::Drain, 5),
    (Draw::DrainByForce, 2),
    (Draw::Remove, 2),
    (Draw::RemoveLost, 2),
    (Draw::Join, 2),
    (Draw::Describe, 4),
    (Draw::Recover, 1),
    (Draw::Apply, 24),
    (Draw::ApplyAgain, 2),
    (Draw::Delete, 2),
    (Draw::DeleteWithVolumes, 2),
    (Draw::MoveVolume, 8),
    (Draw::RemoveVolume, 4),
    (Draw::BackUpVolume, 4),
    (Draw::RestoreVolume, 4),
    (Draw::Scale, 6),
    (Draw::Rollback, 4),
    (Draw::Restart, 3),
    (Draw::PauseRollout, 3),
    (Draw::ResumeRollout, 2),
    (Draw::AbortRollout, 3),
    (Draw::CreateJoinToken, 1),
    (Draw::RevokeJoinToken, 1),
    (Draw::AddOperator, 1),
    (Draw::RevokeOperator, 1),
    (Draw::Exec, 1),
    (Draw::Backup, 1),
    (Draw::RotateAuthority, 3),
    (Draw::AbortRotation, 2),
    (Draw::RotateBackupKey, 1),
    (Draw::Reschedule, 2),
    (Draw::Optimize, 4),
    (Draw::Raise, 1),
    (Draw::OfferMachine, 10),
    (Draw::PauseMachines, 2),
    (Draw::Instruct, 8),
    (Draw::CreateSecret, 3),
    (Draw::RotateSecret, 4),
    (Draw::RemoveSecret, 1),
    (Draw::Certify, 6),
    (Draw::LoginRegistry, 2),
    (Draw::LogoutRegistry, 1),
    (Draw::JoinFleet, 2),
    (Draw::MistakeForCoordinator, 1),
];

/// Who makes a change in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The script begins with it.
    Beginning,
    /// Chaos draws it.
    Drawn(Draw),
    /// The leader decides it.
    Leader,
    /// A node reports it.
    Agent,
    /// A coordinator's leader decides it, or a shard reports it: in the simulation of [fleets](crate::fleet).
    Fleet,
}

/// What makes the change, and its name.
pub fn cause(change: &Change) -> (&'static str, Cause) {
    match change {
        Change::PutNode { .. } => ("put_node", Cause::Beginning),
        Change::SetStatus { .. } => ("set_status", Cause::Leader),
        Change::SetRuntime { .. } => ("set_runtime", Cause::Drawn(Draw::StopEngine)),
        Change::SetAvailability { .. } => ("set_availability", Cause::Drawn(Draw::Cordon)),
        Change::Drain { .. } => ("drain", Cause::Drawn(Draw::Drain)),
        Change::GiveUpDrain { .. } => ("give_up_drain", Cause::Leader),
        Change::RemoveNode { .. } => ("remove_node", Cause::Drawn(Draw::Remove)),
        Change::Found { .. } => ("found", Cause::Beginning),
        Change::CreateJoinToken { .. } => {
            ("create_join_token", Cause::Drawn(Draw::CreateJoinToken))
        }
        Change::RevokeJoinToken { .. } => {
            ("revoke_join_token", Cause::Drawn(Draw::RevokeJoinToken))
        }
        Change::Join { .. } => ("join", Cause::Drawn(Draw::Join)),
        Change::PutOperator { .. } => ("put_operator", Cause::Drawn(Draw::AddOperator)),
        Change::RevokeOperator { .. } => ("revoke_operator", Cause::Drawn(Draw::RevokeOperator)),
        Change::Deploy { .. } => ("deploy", Cause::Drawn(Draw::Apply)),
        Change::Undeploy { .. } => ("undeploy", Cause::Drawn(Draw::Delete)),
        Change::Place { .. } => ("place", Cause::Leader),
        Change::Succeed { .. } => ("succeed", Cause::Leader),
        Change::Promote { .. } => ("promote", Cause::Leader),
        Change::Abandon { .. } => ("abandon", Cause::Leader),
        Change::Renew { .. } => ("renew", Cause::Drawn(Draw::Restart)),
        Change::Retire { .. } => ("retire", Cause::Leader),
        Change::Preempt { .. } => ("preempt", Cause::Leader),
        Change::Evict { .. } => ("evict", Cause::Leader),
        Change::WithdrawPreemption { .. } => ("withdraw_preemption", Cause::Leader),
        Change::Observe { .. } => ("observe", Cause::Agent),
        Change::SetUnplaced { .. } => ("set_unplaced", Cause::Leader),
        Change::SetWaiting { .. } => ("set_waiting", Cause::Leader),
        Change::PauseRollout { .. } => ("pause_rollout", Cause::Drawn(Draw::PauseRollout)),
        Change::ResumeRollout { .. } => ("resume_rollout", Cause::Drawn(Draw::ResumeRollout)),
        Change::AbortRollout { .. } => ("abort_rollout", Cause::Drawn(Draw::AbortRollout)),
        Change::EndRollout { .. } => ("end_rollout", Cause::Leader),
        Change::StepLate { .. } => ("step_late", Cause::Leader),
        Change::StartRun { .. } => ("start_run", Cause::Leader),
        Change::MissSlots { .. } => ("miss_slots", Cause::Leader),
        Change::RemoveVolumes { .. } => ("remove_volumes", Cause::Drawn(Draw::DeleteWithVolumes)),
        Change::VolumesRemoved { .. } => ("volumes_removed", Cause::Agent),
        Change::Volume { change } => {
            let draw = match change {
                VolumeChange::Remove { .. }
                | VolumeChange::Forget { .. }
                | VolumeChange::Removed { .. } => Draw::RemoveVolume,
                VolumeChange::Move { .. }
                | VolumeChange::Copy { .. }
                | VolumeChange::Copied { .. }
                | VolumeChange::GiveUp { .. } => Draw::MoveVolume,
                VolumeChange::Hold { .. }
                | VolumeChange::OpenHold { .. }
                | VolumeChange::RenewHold { .. }
                | VolumeChange::EndHold { .. } => Draw::BackUpVolume,
            };
            (change.word(), Cause::Drawn(draw))
        }
        Change::Survive { .. } => ("survive", Cause::Drawn(Draw::Recover)),
        Change::Record { .. } => ("record", Cause::Drawn(Draw::Backup)),
        Change::Raise { .. } => ("raise", Cause::Drawn(Draw::Raise)),
        Change::RotateAuthority { .. } => ("rotate_authority", Cause::Drawn(Draw::RotateAuthority)),
        Change::RotateWithout { .. } => ("rotate_without", Cause::Drawn(Draw::RotateAuthority)),
        Change::ConfirmAuthority { .. } => ("confirm_authority", Cause::Agent),
        Change::SwitchAuthority => ("switch_authority", Cause::Leader),
        Change::RetireAuthority => ("retire_authority", Cause::Leader),
        Change::AbortRotation => ("abort_rotation", Cause::Drawn(Draw::AbortRotation)),
        Change::CreateBackupKey { .. } => ("create_backup_key", Cause::Beginning),
        Change::RotateBackupKey { .. } => {
            ("rotate_backup_key", Cause::Drawn(Draw::RotateBackupKey))
        }
        Change::ReviewMove { .. } => ("review_move", Cause::Leader),
        Change::Machines { change } => {
            let cause = match **change {
                MachineChange::Put { .. } | MachineChange::Drop { .. } => {
                    Cause::Drawn(Draw::OfferMachine)
                }
                MachineChange::Pause { .. } => Cause::Drawn(Draw::PauseMachines),
                MachineChange::Obey { .. }
                | MachineChange::Heard { .. }
                | MachineChange::Adopted { .. } => Cause::Drawn(Draw::Instruct),
                MachineChange::Step { .. }
                | MachineChange::Reserve { .. }
                | MachineChange::Unreserve { .. }
                | MachineChange::CloseCycle { .. }
                | MachineChange::Finish { .. } => Cause::Leader,
            };
            (change.word(), cause)
        }
        Change::SetRescheduling { .. } => ("set_rescheduling", Cause::Drawn(Draw::Reschedule)),
        Change::Acme { change } => (change.word(), Cause::Drawn(Draw::Certify)),
        Change::Enrol { .. } => ("enrol", Cause::Drawn(Draw::Describe)),
        Change::CreateFile { .. } => ("create_file", Cause::Drawn(Draw::CreateSecret)),
        Change::RotateFile { .. } => ("rotate_file", Cause::Drawn(Draw::RotateSecret)),
        Change::RemoveFile { .. } => ("remove_file", Cause::Drawn(Draw::RemoveSecret)),
        Change::DeclareVolumes { .. } => ("declare_volumes", Cause::Agent),
        Change::LoginRegistry { .. } => ("login_registry", Cause::Drawn(Draw::LoginRegistry)),
        Change::LogoutRegistry { .. } => ("logout_registry", Cause::Drawn(Draw::LogoutRegistry)),
        Change::Fleet { change } => (change.word(), Cause::Fleet),
        Change::FleetMembership { change } => (change.word(), Cause::Drawn(Draw::JoinFleet)),
    }
}

pub(crate) fn word(change: &Change) -> &'static str {
    cause(change).0
}
