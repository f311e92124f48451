//! Changes to the rollout of a service: what begins, stops and ends it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Txn;
use super::deployments::specs_in_use;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{ReplicaId, ServiceKey};
use crate::replica::{Assignment, Observation, Replica};
use crate::rollout::{PreviousSpec, Rollout, RolloutHalt, RolloutPhase, StepFailure};
use crate::spec::ServiceSpec;
use crate::state::{Service, ServiceRow};
use crate::units::Revision;

impl Txn<'_> {
    /// The rollout that takes the service to a spec it does not run; none for a service that is new.
    pub(super) fn begin_rollout(
        &mut self,
        key: &ServiceKey,
        spec: &Arc<ServiceSpec>,
        revision: Revision,
    ) -> Option<Rollout> {
        let service = self.state.services.get(key)?;
        // The way back would run the job of before a second time.
        if spec.is_job() {
            return None;
        }
        let from = last_good(service).filter(|previous| previous.spec.hash != spec.hash);
        self.audit(AuditKind::RolloutStarted { service: key.clone(), revision });
        Some(Rollout {
            to: spec.hash,
            revision,
            from,
            since: self.at,
            phase: RolloutPhase::Rolling,
            why: None,
            failed: BTreeMap::new(),
        })
    }

    pub(super) fn pause_rollout(
        &mut self,
        key: &ServiceKey,
        why: RolloutHalt,
    ) -> Result<(), Refusal> {
        let rollout = self.rollout(key)?;
        if rollout.phase == RolloutPhase::Paused {
            return Ok(());
        }
        if rollout.phase != RolloutPhase::Rolling {
            return Err(no_rollout(key));
        }
        let rollout = Rollout { phase: RolloutPhase::Paused, why: Some(why), ..rollout.clone() };
        self.set_rollout(key, rollout);
        self.audit(AuditKind::RolloutPaused { service: key.clone(), why });
        Ok(())
    }

    /// Goes on, with another try of what failed.
    pub(super) fn resume_rollout(&mut self, key: &ServiceKey) -> Result<(), Refusal> {
        let rollout = self.rollout(key)?;
        if rollout.phase == RolloutPhase::Rolling && rollout.failed.is_empty() {
            return Ok(());
        }
        if !matches!(rollout.phase, RolloutPhase::Rolling | RolloutPhase::Paused) {
            return Err(no_rollout(key));
        }
        let (phase, failed) = (RolloutPhase::Rolling, BTreeMap::new());
        let rollout = Rollout { phase, why: None, failed, ..rollout.clone() };
        self.set_rollout(key, rollout);
        self.audit(AuditKind::RolloutResumed { service: key.clone() });
        Ok(())
    }

    /// The service goes back to what it ran before, all of it: container, count and placement.
    pub(super) fn abort_rollout(
        &mut self,
        key: &ServiceKey,
        why: RolloutHalt,
    ) -> Result<(), Refusal> {
        let rollout = self.rollout(key)?;
        if rollout.phase == RolloutPhase::Undoing {
            return Ok(());
        }
        if rollout.is_over() {
            return Err(no_rollout(key));
        }
        let Some(PreviousSpec { spec, revision }) = rollout.from.clone() else {
            return Err(Refusal::NothingBefore { service: key.clone() });
        };
        let rollout = Rollout { phase: RolloutPhase::Undoing, why: Some(why), ..rollout.clone() };
        let (spec, schedule) = self.with_schedule(key, &spec);
        let service = self.service(key)?;
        let mut specs = specs_in_use(service);
        let desired = Some(spec.hash);
        specs.insert(spec.hash, spec);
        let (unplaced, failures) = (None, BTreeMap::new());
        let rollout = Some(rollout);
        self.set_service(
            key,
            Some(ServiceRow {
                desired,
                revision,
                specs,
                unplaced,
                failures,
                rollout,
                preempted: None,
                schedule,
            }),
        );
        self.sort_into_runs(key);
        self.audit(AuditKind::RolloutAborted { service: key.clone(), why });
        Ok(())
    }

    /// Nothing is left to do of it.
    pub(super) fn end_rollout(&mut self, key: &ServiceKey) -> Result<(), Refusal> {
        let rollout = self.rollout(key)?;
        let (phase, what) = match rollout.phase {
            RolloutPhase::Rolling => {
                (RolloutPhase::Done, AuditKind::RolloutDone { service: key.clone() })
            }
            RolloutPhase::Undoing => {
                (RolloutPhase::Undone, AuditKind::RolloutUndone { service: key.clone() })
            }
            RolloutPhase::Done | RolloutPhase::Undone => return Ok(()),
            RolloutPhase::Paused => return Err(no_rollout(key)),
        };
        let rollout = Rollout { phase, ..rollout.clone() };
        let from = rollout.from.as_ref().map(|from| Arc::clone(&from.spec));
        self.set_rollout(key, rollout);
        self.audit(what);
        if let Some(from) = from {
            self.forget_versions_of(&from);
        }
        Ok(())
    }

    /// The replica did not get healthy with the new spec in time.
    pub(super) fn step_late(&mut self, id: &ReplicaId) -> Result<(), Refusal> {
        let rollout = self.rollout(&id.service)?;
        let to = rollout.to;
        let replica = self.replica(id)?;
        let tried = replica.holds().filter(|assignment| assignment.spec == to).last();
        let Some(tried) = tried.cloned() else { return Ok(()) };
        let code = replica.observation(&tried).and_then(|seen| seen.code.clone());
        self.note_failure(
            id,
            &tried,
            StepFailure { node: tried.node.clone(), at: self.at, code, is_late: true },
        );
        Ok(())
    }

    /// A node says that an assignment failed: if that is the new spec of a rollout, the step has.
    pub(super) fn step_failed(&mut self, id: &ReplicaId, of: &Assignment, seen: &Observation) {
        let (node, code) = (of.node.clone(), seen.code.clone());
        self.note_failure(id, of, StepFailure { node, at: self.at, code, is_late: false });
    }

    /// The first failure of a replica is the one that is kept.
    fn note_failure(&mut self, id: &ReplicaId, of: &Assignment, failure: StepFailure) {
        let service = self.state.services.get(&id.service);
        let Some(rollout) = service.and_then(|service| service.row.rollout.as_ref()) else {
            return;
        };
        let counts = matches!(rollout.phase, RolloutPhase::Rolling | RolloutPhase::Paused);
        if !counts || of.spec != rollout.to || rollout.failed.contains_key(&id.slot) {
            return;
        }
        let mut rollout = rollout.clone();
        rollout.failed.insert(id.slot.clone(), failure);
        self.set_rollout(&id.service, rollout);
    }

    fn set_rollout(&mut self, key: &ServiceKey, rollout: Rollout) {
        let Some(service) = self.state.services.get(key) else { return };
        let row = ServiceRow { rollout: Some(rollout), ..service.row.clone() };
        self.set_service(key, Some(row));
    }

    fn rollout(&self, key: &ServiceKey) -> Result<&Rollout, Refusal> {
        self.service(key)?.row.rollout.as_ref().ok_or_else(|| no_rollout(key))
    }
}

fn no_rollout(key: &ServiceKey) -> Refusal {
    Refusal::NoRollout { service: key.clone() }
}

/// Whether it has reached every replica and all of them run, so that it was only watched still.
fn is_everywhere(service: &Service, rollout: &Rollout) -> bool {
    let mut live = service.replicas.values().filter_map(|it| Some((it, it.assignment.as_ref()?)));
    let is_whole = |(replica, at): (&Replica, &Assignment)| {
        at.spec == rollout.to && replica.is_running() && replica.successor.is_none()
    };
    rollout.phase == RolloutPhase::Rolling && rollout.failed.is_empty() && live.all(is_whole)
}

/// What the service ran when last all was well. What never got through is nothing to return to.
fn last_good(service: &Service) -> Option<PreviousSpec> {
    match &service.row.rollout {
        Some(rollout) if !rollout.is_over() && !is_everywhere(service, rollout) => {
            rollout.from.clone()
        }
        _ => {
            let spec = service.desired()?.clone();
            Some(PreviousSpec { spec, revision: service.row.revision })
        }
    }
}
