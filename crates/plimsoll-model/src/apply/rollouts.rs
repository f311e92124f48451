//! Changes to the rollout of a service: what begins, stops and ends it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Txn;
use super::deployments::specs_in_use;
use crate::audit::Happening;
use crate::command::Refusal;
use crate::ids::{ReplicaId, ServiceKey};
use crate::replica::{Assignment, Observation, Replica};
use crate::rollout::{Halt, Phase, Previous, Rollout, StepFailure};
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
        let from = last_good(service).filter(|previous| previous.spec.hash != spec.hash);
        self.happened(Happening::RolloutStarted { service: key.clone(), revision });
        Some(Rollout {
            to: spec.hash,
            revision,
            from,
            since: self.at,
            phase: Phase::Rolling,
            why: None,
            failed: BTreeMap::new(),
        })
    }

    pub(super) fn pause_rollout(&mut self, key: &ServiceKey, why: Halt) -> Result<(), Refusal> {
        let rollout = self.rollout(key)?;
        if rollout.phase == Phase::Paused {
            return Ok(());
        }
        if rollout.phase != Phase::Rolling {
            return Err(no_rollout(key));
        }
        let rollout = Rollout { phase: Phase::Paused, why: Some(why), ..rollout.clone() };
        self.set_rollout(key, rollout);
        self.happened(Happening::RolloutPaused { service: key.clone(), why });
        Ok(())
    }

    /// Goes on, with another try of what failed.
    pub(super) fn resume_rollout(&mut self, key: &ServiceKey) -> Result<(), Refusal> {
        let rollout = self.rollout(key)?;
        if rollout.phase == Phase::Rolling && rollout.failed.is_empty() {
            return Ok(());
        }
        if !matches!(rollout.phase, Phase::Rolling | Phase::Paused) {
            return Err(no_rollout(key));
        }
        let (phase, failed) = (Phase::Rolling, BTreeMap::new());
        let rollout = Rollout { phase, why: None, failed, ..rollout.clone() };
        self.set_rollout(key, rollout);
        self.happened(Happening::RolloutResumed { service: key.clone() });
        Ok(())
    }

    /// The service goes back to what it ran before, all of it: container, count and placement.
    pub(super) fn abort_rollout(&mut self, key: &ServiceKey, why: Halt) -> Result<(), Refusal> {
        let rollout = self.rollout(key)?;
        if rollout.phase == Phase::Undoing {
            return Ok(());
        }
        if rollout.is_over() {
            return Err(no_rollout(key));
        }
        let Some(Previous { spec, revision }) = rollout.from.clone() else {
            return Err(Refusal::NothingBefore { service: key.clone() });
        };
        let rollout = Rollout { phase: Phase::Undoing, why: Some(why), ..rollout.clone() };
        let service = self.service(key)?;
        let mut specs = specs_in_use(service);
        let desired = Some(spec.hash);
        specs.insert(spec.hash, spec);
        let (unplaced, failures) = (None, BTreeMap::new());
        let rollout = Some(rollout);
        self.set_service(
            key,
            Some(ServiceRow { desired, revision, specs, unplaced, failures, rollout }),
        );
        self.happened(Happening::RolloutAborted { service: key.clone(), why });
        Ok(())
    }

    /// Nothing is left to do of it.
    pub(super) fn end_rollout(&mut self, key: &ServiceKey) -> Result<(), Refusal> {
        let rollout = self.rollout(key)?;
        let (phase, what) = match rollout.phase {
            Phase::Rolling => (Phase::Done, Happening::RolloutDone { service: key.clone() }),
            Phase::Undoing => (Phase::Undone, Happening::RolloutUndone { service: key.clone() }),
            Phase::Done | Phase::Undone => return Ok(()),
            Phase::Paused => return Err(no_rollout(key)),
        };
        let rollout = Rollout { phase, ..rollout.clone() };
        self.set_rollout(key, rollout);
        self.happened(what);
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
        let counts = matches!(rollout.phase, Phase::Rolling | Phase::Paused);
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
    rollout.phase == Phase::Rolling && rollout.failed.is_empty() && live.all(is_whole)
}

/// What the service ran when last all was well. What never got through is nothing to return to.
fn last_good(service: &Service) -> Option<Previous> {
    match &service.row.rollout {
        Some(rollout) if !rollout.is_over() && !is_everywhere(service, rollout) => {
            rollout.from.clone()
        }
        _ => {
            let spec = service.desired()?.clone();
            Some(Previous { spec, revision: service.row.revision })
        }
    }
}
