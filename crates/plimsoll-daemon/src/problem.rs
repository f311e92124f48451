//! What the state, the log or the runtime said no with, as the API words it. Every `match` on a reason is exhaustive: a new one
//! does not compile until it has a code.

use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_model::cell_files::CellFileKind;
use plimsoll_model::fleet::FleetRefusal;
use plimsoll_model::level::remedy;
use plimsoll_model::{NodeId, Refusal, Rejection};
use plimsoll_runtime::chain;
use plimsoll_store::embedded::ROOM;

use crate::context::WriteError;

/// Why something was not written.
pub fn written(error: &WriteError) -> Problem {
    match error {
        WriteError::Refused(rejection) => refused(rejection),
        WriteError::Store(error) => stored(error),
    }
}

/// What a server is told whose cell goes on without it.
pub fn superseded() -> Problem {
    let message = "the cell was recovered without this server, which is no longer part of it";
    Problem::new(ProblemCode::Superseded, message)
}

/// That a node is not of the cell, or that its name is another's by now.
pub fn no_member(node: &NodeId) -> Problem {
    let message = format!("{node} is not part of this cell, or another key is enrolled for it");
    Problem::new(ProblemCode::Removed, message)
}

fn refused(rejection: &Rejection) -> Problem {
    // Which change of its batch it was is nothing to whoever asked for one thing.
    refusal(&rejection.reason)
}

/// Why the state would not take a change.
pub fn refusal(reason: &Refusal) -> Problem {
    let problem = Problem::new(code(reason), reason.to_string());
    match reason {
        Refusal::NodeInUse { node, .. } => {
            problem.hint(format!("`plimsoll node drain {node}` moves them away"))
        }
        Refusal::FileExists { kind, name } => {
            problem.hint(format!("`plimsoll {kind} rotate {name} FILE` gives it other content"))
        }
        _ => problem,
    }
}

/// That this node was away while the cell's authority was rotated.
pub fn left_behind(node: &NodeId) -> Problem {
    let message = "the cell's authority was rotated while this node was away, and its certificate is not accepted any more";
    Problem::new(ProblemCode::AuthorityChanged, message).hint(format!(
        "join again: empty its data directory and start it with `plimsoll up --join TOKEN@ADDRESS`, with a token of `plimsoll \
         token create-join`; where {node} is still ready, `plimsoll node remove {node} --force` first"
    ))
}

fn code(refusal: &Refusal) -> ProblemCode {
    match refusal {
        Refusal::Newer { .. } => ProblemCode::Outdated,
        Refusal::Level { .. } => ProblemCode::UpgradeUnfinished,
        Refusal::TooMany { .. } => ProblemCode::TooMany,
        Refusal::TooMuch { .. } => ProblemCode::TooMuch,
        Refusal::Quota { .. } => ProblemCode::Quota,
        Refusal::Generation { .. } | Refusal::Revision { .. } | Refusal::FileRotated { .. } => {
            ProblemCode::ChangedMeanwhile
        }
        Refusal::NoSuchNode { .. } => ProblemCode::NoSuchNode,
        Refusal::NodeInUse { .. } => ProblemCode::NodeInUse,
        Refusal::TokenUnknown => ProblemCode::TokenUnknown,
        Refusal::TokenUsed { .. } => ProblemCode::TokenUsed,
        Refusal::TokenExpired { .. } => ProblemCode::TokenExpired,
        Refusal::TokenRevoked => ProblemCode::TokenRevoked,
        Refusal::JoinTokenExists { .. } => ProblemCode::JoinTokenExists,
        Refusal::NoSuchJoinToken { .. } => ProblemCode::NoSuchJoinToken,
        Refusal::NameTaken { .. } => ProblemCode::NameTaken,
        Refusal::KeyRevoked { .. } => ProblemCode::KeyRevoked,
        Refusal::OperatorExists { .. } => ProblemCode::OperatorExists,
        Refusal::NoSuchOperator { .. } => ProblemCode::NoSuchOperator,
        Refusal::NoSuchDeployment { .. } => ProblemCode::NoSuchDeployment,
        Refusal::NoSuchService { .. } => ProblemCode::NoSuchService,
        Refusal::NoSuchReplica { .. } => ProblemCode::NoSuchReplica,
        Refusal::NoRollout { .. } => ProblemCode::NoRollout,
        Refusal::NothingBefore { .. } => ProblemCode::NothingBefore,
        Refusal::RunOpen { .. } => ProblemCode::RunOpen,
        Refusal::GlobalSchedule { .. } => ProblemCode::BadSpec,
        Refusal::PortTaken { .. } => ProblemCode::PortTaken,
        Refusal::RouteNowhere { .. } => ProblemCode::RouteNowhere,
        Refusal::RouteTaken { .. } => ProblemCode::RouteTaken,
        Refusal::NoAuthority => ProblemCode::NoAuthority,
        Refusal::Rotating => ProblemCode::Rotating,
        Refusal::NotRotating => ProblemCode::NotRotating,
        Refusal::NodeReady { .. } => ProblemCode::NodeReady,
        Refusal::NoSuchFile { kind: CellFileKind::Secret, .. } => ProblemCode::NoSuchSecret,
        Refusal::NoSuchFile { kind: CellFileKind::Config, .. } => ProblemCode::NoSuchConfig,
        Refusal::FileExists { .. } => ProblemCode::FileExists,
        Refusal::FileInUse { .. } => ProblemCode::FileInUse,
        Refusal::NoSuchRegistry { .. } => ProblemCode::NoSuchRegistry,
        Refusal::EmptyCredential { .. } => ProblemCode::EmptyCredential,
        Refusal::NoSuchVolume { .. } | Refusal::VolumeNotThere { .. } => ProblemCode::NoSuchVolume,
        Refusal::VolumeInUse { .. } => ProblemCode::VolumeInUse,
        Refusal::VolumeExternal { .. }
        | Refusal::VolumeShared { .. }
        | Refusal::VolumeDeclared { .. } => ProblemCode::VolumeFixed,
        Refusal::VolumesMoving { .. }
        | Refusal::VolumeHeld { .. }
        | Refusal::VolumeGoing { .. } => ProblemCode::VolumeBusy,
        Refusal::VolumeNotHeld { .. } => ProblemCode::VolumeNotHeld,
        Refusal::VolumeThere { .. } => ProblemCode::VolumeThere,
        Refusal::VolumeSplit { .. } => ProblemCode::VolumeOnSeveralNodes,
        Refusal::VolumeNodeReady { .. } => ProblemCode::VolumeNodeReady,
        Refusal::VolumeNodeDown { .. } => ProblemCode::VolumeNodeDown,
        Refusal::Coordinator => ProblemCode::IsCoordinator,
        Refusal::NotCoordinator => ProblemCode::NotCoordinator,
        Refusal::FleetJoined { .. } => ProblemCode::FleetJoined,
        Refusal::NoFleet => ProblemCode::NoFleet,
        Refusal::Fleet { refusal } => fleet_code(refusal),
        // Of these nobody who asks the API is to blame.
        Refusal::ForeignPrecondition
        | Refusal::NotScheduled { .. }
        | Refusal::SlotDecided { .. }
        | Refusal::CellInUse { .. }
        | Refusal::NotOrdered { .. }
        | Refusal::OrderOpen { .. }
        | Refusal::BadChallenge { .. }
        | Refusal::OtherDirectory { .. }
        | Refusal::AccountExists
        | Refusal::Founded
        | Refusal::Awaited { .. }
        | Refusal::ReplicaExists { .. }
        | Refusal::IdTaken { .. }
        | Refusal::IndexReused { .. }
        | Refusal::SlotMismatch { .. }
        | Refusal::StaleSpec { .. }
        | Refusal::AlreadyMoving { .. }
        | Refusal::AlreadyPreempting { .. }
        | Refusal::NotPreempting { .. }
        | Refusal::NotPreempted { .. }
        | Refusal::NotMoving { .. }
        | Refusal::Transition { .. }
        | Refusal::StillDeployed { .. }
        | Refusal::Machine(_) => ProblemCode::Refused,
    }
}

fn fleet_code(refusal: &FleetRefusal) -> ProblemCode {
    match refusal {
        FleetRefusal::UnknownShard { .. } => ProblemCode::NoSuchShard,
        FleetRefusal::TokenUnknown => ProblemCode::TokenUnknown,
        FleetRefusal::TokenUsed { .. } => ProblemCode::TokenUsed,
        FleetRefusal::TokenExpired { .. } => ProblemCode::TokenExpired,
        FleetRefusal::Full { .. } | FleetRefusal::TooMany { .. } => ProblemCode::TooMany,
        FleetRefusal::SameShard { .. }
        | FleetRefusal::Nothing
        | FleetRefusal::Quota { .. }
        | FleetRefusal::TokenForAnother { .. }
        | FleetRefusal::KeyTaken { .. }
        | FleetRefusal::NoTransfer { .. }
        | FleetRefusal::NotExpired { .. }
        | FleetRefusal::Cooldown { .. } => ProblemCode::Refused,
    }
}

/// Why the log does not take it.
pub fn stored(error: &plimsoll_store::Error) -> Problem {
    use plimsoll_store::Error;
    let problem = |code| Problem::new(code, error.to_string());
    match error {
        Error::NotLeader { .. } => problem(ProblemCode::NotLeader),
        Error::NoLeader => problem(ProblemCode::NoLeader),
        Error::QuorumLost => problem(ProblemCode::QuorumLost),
        Error::Superseded => superseded(),
        Error::Outgrown { .. } => problem(ProblemCode::Outdated).hint(remedy(None)),
        Error::Early { .. } => problem(ProblemCode::UpgradeUnfinished),
        Error::Unsettled => problem(ProblemCode::Unsettled),
        Error::Stopped => problem(ProblemCode::Stopped),
        Error::Panicked => problem(ProblemCode::Bug).hint(
            "the daemon starts its control plane over by itself, and routes meanwhile; please report what its log says",
        ),
        Error::TooLarge { .. } => problem(ProblemCode::TooLarge),
        Error::NotTaken(_) => problem(ProblemCode::NotTaken),
        Error::LogLost(_) => problem(ProblemCode::LogLost),
        Error::StoreFull(_) => problem(ProblemCode::StoreFull),
        Error::Servers(_) => problem(ProblemCode::Servers),
        Error::DiskFull { dir } => problem(ProblemCode::DiskFull).hint(format!(
            "free {} MB where {} is; the daemon resumes by itself",
            ROOM >> 20,
            dir.display()
        )),
        Error::Disk(_) => problem(ProblemCode::Disk),
    }
}

/// What the runtime said no with.
pub fn runtime(error: &plimsoll_runtime::Error) -> Problem {
    use plimsoll_runtime::Error;
    match error {
        Error::Absent { .. } => Problem::new(ProblemCode::NotHere, error.to_string()),
        Error::NotRunning { .. } => Problem::new(ProblemCode::NotRunning, error.to_string()),
        Error::Unavailable { .. } => Problem::new(ProblemCode::RuntimeUnavailable, chain(error)),
        // Who asks the API starts, stops and removes nothing itself.
        Error::Failed { .. }
        | Error::Refused { .. }
        | Error::SubnetPoolExhausted { .. }
        | Error::StillRunning { .. }
        | Error::Foreign { .. } => Problem::new(ProblemCode::RuntimeFailed, chain(error)),
    }
}
