//! The only way state changes: [`State::apply`] takes one command and makes all of its changes or none.
//!
//! It is total: any command, however wrong, ends in events or in a [`Rejection`], never in a panic. It reads no
//! clock and draws nothing at random, so equal histories give equal states, byte for byte.

use crate::access::BackupKeyStep;
use crate::audit::{AuditKind, Author};
use crate::command::{
    AuditEntry, Change, Command, Event, Guarded, MAX_BATCH, Refusal, Rejection, Require,
};
use crate::level::Level;
use crate::rebalance::RepeatCount;
use crate::reschedule::{RescheduleSettings, SettingAuthor};
use crate::review::PendingReview;
use crate::state::State;
use crate::units::{Generation, Term, Timestamp};

mod access;
mod acme;
mod declared;
mod deployments;
mod files;
mod fleet;
mod machines;
mod nodes;
mod ports;
mod preemptions;
mod quota;
mod registries;
mod replicas;
mod reviews;
mod rollouts;
mod rotation;
mod schedules;
mod undo;
mod volume_holds;
mod volume_moves;
mod volumes;

#[cfg(test)]
mod tests;

use undo::Undo;

impl State {
    /// Makes every change of the command, in order, or none of them.
    pub fn apply(&mut self, command: &Command) -> Result<Vec<Event>, Rejection> {
        let refuse = |reason| Rejection { position: 0, reason };
        if command.level > self.level {
            return Err(refuse(Refusal::Level { needed: command.level, cell: self.level }));
        }
        if command.batch.len() > MAX_BATCH {
            let (what, found) = ("changes".to_owned(), command.batch.len());
            return Err(refuse(Refusal::TooMany { what, found, max: MAX_BATCH }));
        }

        let mut txn = Txn::new(self, command);
        for (position, guarded) in command.batch.iter().enumerate() {
            if let Err(reason) = txn.make(guarded) {
                txn.roll_back();
                return Err(Rejection { position, reason });
            }
        }
        Ok(txn.commit())
    }
}

/// A command under way: the state as changed so far, and how to take it all back.
struct Txn<'s> {
    state: &'s mut State,
    at: Timestamp,
    term: Term,
    by: &'s Author,
    undo: Vec<Undo>,
    events: Vec<Event>,
    // Kept apart until the end, because the ring forgets its oldest on every push and cannot give them back.
    audit: Vec<AuditKind>,
}

impl<'s> Txn<'s> {
    fn new(state: &'s mut State, command: &'s Command) -> Self {
        Self {
            undo: vec![Undo::NextGeneration(state.next_generation)],
            state,
            at: command.at,
            term: command.term,
            by: &command.by,
            events: Vec::new(),
            audit: Vec::new(),
        }
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each change")]
    fn make(&mut self, guarded: &Guarded) -> Result<(), Refusal> {
        self.check(guarded)?;
        match &guarded.change {
            Change::PutNode { node, facts } => self.put_node(node, facts),
            Change::SetStatus { node, status } => self.set_status(node, *status),
            Change::SetRuntime { node, outage } => self.set_runtime(node, outage.as_deref()),
            Change::SetAvailability { node, availability } => {
                self.set_availability(node, *availability)
            }
            Change::Drain { node, timeout, force } => self.drain(node, *timeout, *force),
            Change::GiveUpDrain { node } => self.give_up_drain(node),
            Change::RemoveNode { node } => self.remove_node(node),
            Change::Found { authority, node, key } => self.found(authority, node, *key),
            Change::CreateJoinToken { name, token, expires_at } => {
                self.create_join_token(name, *token, *expires_at)
            }
            Change::RevokeJoinToken { name } => self.revoke_join_token(name),
            Change::Join { token, node, facts, key } => self.join(token, node, facts, *key),
            Change::PutOperator { name, token, role, scope, expires_at } => {
                self.put_operator(name, *token, *role, scope, *expires_at)
            }
            Change::RevokeOperator { name } => self.revoke_operator(name),
            Change::Deploy { deployment, services, routes } => {
                self.deploy(deployment, services, routes)
            }
            Change::Undeploy { deployment } => self.undeploy(deployment),
            Change::Place { replica, node, spec } => self.place(replica, node, *spec),
            Change::Succeed { replica, node, spec, cause } => {
                self.succeed(replica, node, *spec, *cause)
            }
            Change::Promote { replica } => self.promote(replica),
            Change::Abandon { replica, why } => self.abandon(replica, why),
            Change::Renew { replica } => self.renew(replica),
            Change::Retire { replica } => self.retire(replica),
            Change::Preempt { node, preemption } => self.preempt(node, preemption),
            Change::Evict { replica } => self.evict(replica),
            Change::WithdrawPreemption { node, why } => self.withdraw_preemption(node, why),
            Change::Observe { replica, generation, observation } => {
                self.observe(replica, *generation, observation)
            }
            Change::SetUnplaced { service, unplaced } => {
                self.set_unplaced(service, unplaced.as_ref())
            }
            Change::SetWaiting { replica, waiting } => self.set_waiting(replica, waiting.as_ref()),
            Change::PauseRollout { service, why } => self.pause_rollout(service, *why),
            Change::ResumeRollout { service } => self.resume_rollout(service),
            Change::AbortRollout { service, why } => self.abort_rollout(service, *why),
            Change::EndRollout { service } => self.end_rollout(service),
            Change::StepLate { replica } => self.step_late(replica),
            Change::StartRun { service, slot } => self.start_run(service, *slot),
            Change::MissSlots { service, missed } => self.miss_slots(service, missed),
            Change::Record { entry } => {
                self.record(entry);
                Ok(())
            }
            Change::RemoveVolumes { deployment } => self.remove_volumes(deployment),
            Change::VolumesRemoved { deployment, node, revision } => {
                self.volumes_removed(deployment, node, *revision);
                Ok(())
            }
            Change::Volume { change } => self.volume(change),
            Change::Survive { node, server, lost } => self.survive(node, *server, lost),
            Change::Enrol { node, facts, key } => self.take_in(node, facts, *key),
            Change::RotateAuthority { next, without } => self.rotate_authority(next, without),
            Change::RotateWithout { nodes } => self.rotate_without(nodes),
            Change::ConfirmAuthority { node, epoch } => {
                self.confirm_authority(node, *epoch);
                Ok(())
            }
            Change::SwitchAuthority => self.switch_authority(),
            Change::RetireAuthority => self.retire_authority(),
            Change::AbortRotation => self.abort_rotation(),
            Change::CreateFile { kind, name, content } => self.create_file(*kind, name, content),
            Change::RotateFile { kind, name, content } => self.rotate_file(*kind, name, content),
            Change::RemoveFile { kind, name } => self.remove_file(*kind, name),
            Change::Acme { change } => self.acme(change),
            Change::LoginRegistry { registry, user, password } => {
                self.login_registry(registry, user, password)
            }
            Change::LogoutRegistry { registry } => self.logout_registry(registry),
            Change::DeclareVolumes { service, spec, node, paths } => {
                self.declare_volumes(service, *spec, node, paths);
                Ok(())
            }
            Change::SetRescheduling { settings } => {
                self.reschedule(*settings);
                Ok(())
            }
            Change::ReviewMove { review } => {
                self.review_move(review);
                Ok(())
            }
            Change::CreateBackupKey { secret } => {
                self.create_backup_key(*secret);
                Ok(())
            }
            Change::RotateBackupKey { secret } => {
                self.rotate_backup_key(*secret);
                Ok(())
            }
            Change::Machines { change } => self.machines(change),
            Change::Fleet { change } => self.fleet(change),
            Change::FleetMembership { change } => self.fleet_membership(change),
            Change::Raise { level } => {
                self.raise(*level);
                Ok(())
            }
        }
    }

    fn check(&self, guarded: &Guarded) -> Result<(), Refusal> {
        match guarded.require {
            Require::Nothing => Ok(()),
            Require::Generation(decided) => {
                let replica = guarded.change.replica().ok_or(Refusal::ForeignPrecondition)?;
                let assignment = self.state.replica(replica).and_then(|r| r.assignment.as_ref());
                let found = assignment.map(|a| a.generation);
                if found == decided {
                    return Ok(());
                }
                Err(Refusal::Generation { replica: replica.clone(), decided, found })
            }
            Require::Revision(decided) => {
                let deployment = guarded.change.deployment().ok_or(Refusal::ForeignPrecondition)?;
                let found = self.state.deployments.get(deployment).map(|d| d.revision);
                if found == decided {
                    return Ok(());
                }
                Err(Refusal::Revision { deployment: deployment.clone(), decided, found })
            }
        }
    }

    fn record(&mut self, entry: &AuditEntry) {
        match entry {
            AuditEntry::Relieve(moved) => {
                self.expect_review(&moved.replica, PendingReview::of_relief(moved, self.at));
            }
            AuditEntry::Reschedule(moved) => {
                self.expect_review(&moved.replica, PendingReview::of_rescheduled(moved, self.at));
            }
            _ => {}
        }
        self.audit(match entry {
            AuditEntry::Exec { replica } => AuditKind::CommandRun { replica: replica.clone() },
            AuditEntry::Backup => AuditKind::BackupTaken,
            AuditEntry::ShowBackupKey => AuditKind::BackupKey { step: BackupKeyStep::Shown },
            AuditEntry::Relieve(relief) => AuditKind::RebalanceMoved { relief: relief.clone() },
            AuditEntry::Skip(skipped) => {
                let times = RepeatCount { count: 1, last_at: self.at };
                AuditKind::RebalanceSkipped { skipped: skipped.clone(), times }
            }
            AuditEntry::Reschedule(moved) => AuditKind::Rescheduled { moved: moved.clone() },
            AuditEntry::Optimize(step) => AuditKind::Optimize { step: step.clone() },
            AuditEntry::Serve { replica, asked_by, through } => AuditKind::CommandServed {
                replica: replica.clone(),
                asked_by: asked_by.clone(),
                through: through.clone(),
            },
            #[cfg(feature = "next-level")]
            AuditEntry::NextBackup => AuditKind::BackupTaken,
        });
    }

    fn reschedule(&mut self, settings: RescheduleSettings) {
        if settings != self.state.rescheduling {
            let set = SettingAuthor { at: self.at, by: self.by.clone() };
            self.set_rescheduling(settings, set);
            self.audit(AuditKind::RescheduleSet { settings });
        }
    }

    /// It never sinks: what was written at a level stays written.
    fn raise(&mut self, level: Level) {
        let before = self.state.level;
        if level > before {
            self.undo.push(Undo::Level(before));
            self.state.level = level;
            self.audit(AuditKind::LevelRaised { level });
        }
    }

    fn take_generation(&mut self) -> Generation {
        let generation = self.state.next_generation;
        self.state.next_generation = Generation(generation.0 + 1);
        generation
    }

    fn audit(&mut self, what: AuditKind) {
        self.audit.push(what);
    }

    fn emit(&mut self, event: Event) {
        // A batch often touches one thing many times in a row; watchers need to hear of it once.
        if self.events.last() != Some(&event) {
            self.events.push(event);
        }
    }

    fn commit(mut self) -> Vec<Event> {
        if !self.audit.is_empty() {
            let last = self.state.audit.extend(self.at, self.by, self.audit);
            self.events.push(Event::Audit(last));
        }
        self.events
    }
}
