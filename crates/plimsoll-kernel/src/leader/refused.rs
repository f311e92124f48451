//! Services whose decisions the state refuses. One bad service stops nobody: the same change is tried twice, and then its
//! service waits, loudly, while the rest of the cell is decided without it.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reason::{Unplaced, UnplacedReason};
use plimsoll_model::{Change, Guarded, Millis, Rejection, Revision, ServiceKey, State, Timestamp};

/// How long such a service waits the first time, and at most. Whatever was wrong may pass, and each try costs two entries.
const FIRST_WAIT: Millis = Millis::seconds(30);
const LONGEST_WAIT: Millis = Millis::minutes(10);

#[derive(Debug, Clone, Default)]
pub(super) struct RefusedServices {
    /// What was refused last: the same once more is no coincidence.
    last: Option<Guarded>,
    services: BTreeMap<ServiceKey, RefusedService>,
}

#[derive(Debug, Clone)]
struct RefusedService {
    why: String,
    since: Timestamp,
    until: Timestamp,
    /// Another one is another decision.
    revision: Option<Revision>,
    times: u32,
}

impl RefusedServices {
    /// Takes note of a refused batch. True if its service waits from now on.
    pub(super) fn note(
        &mut self,
        state: &State,
        batch: &[Guarded],
        rejection: &Rejection,
        now: Timestamp,
    ) -> bool {
        let Some(refused) = batch.get(rejection.position) else { return false };
        if self.last.as_ref() != Some(refused) {
            self.last = Some(refused.clone());
            return false;
        }
        self.last = None;
        let Some(key) = service_of(&refused.change) else { return false };
        let before = self.services.get(&key);
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        let doubled = FIRST_WAIT.0.saturating_mul(1 << (times - 1).min(16));
        let wait = Millis(doubled.min(LONGEST_WAIT.0));
        let service = RefusedService {
            why: rejection.reason.to_string(),
            since: before.map_or(now, |before| before.since),
            until: now.plus(wait),
            revision: revision(state, &key),
            times,
        };
        self.services.insert(key, service);
        true
    }

    /// The services that a pass leaves out, and when to look at the first of them again.
    pub(super) fn waiting(
        &mut self,
        state: &State,
        now: Timestamp,
    ) -> (BTreeSet<ServiceKey>, Option<Timestamp>) {
        self.services.retain(|key, service| {
            state.service(key).is_some() && service.revision == revision(state, key)
        });
        // A time further ahead than is ever set was set by a clock that has been put back since.
        let is_waiting = |service: &RefusedService| {
            now < service.until && service.until <= now.plus(LONGEST_WAIT)
        };
        let waiting = self.services.iter().filter(|(_, service)| is_waiting(service));
        let until = waiting.clone().map(|(_, service)| service.until).min();
        (waiting.map(|(key, _)| key.clone()).collect(), until)
    }

    /// What says so in the state, where it does not yet.
    pub(super) fn alarms(&self, state: &State, waiting: &BTreeSet<ServiceKey>) -> Vec<Guarded> {
        let told = waiting.iter().filter_map(|key| {
            let refused = self.services.get(key)?;
            let why = UnplacedReason::DecisionRefused { why: refused.why.clone() };
            let unplaced = Some(Unplaced { missing: 0, why, since: refused.since });
            let is_told = state.service(key)?.row.unplaced == unplaced;
            (!is_told).then(|| Change::SetUnplaced { service: key.clone(), unplaced }.free())
        });
        told.collect()
    }
}

fn revision(state: &State, key: &ServiceKey) -> Option<Revision> {
    state.deployments().get(&key.deployment).map(|deployment| deployment.revision)
}

/// Whose decision it is.
fn service_of(change: &Change) -> Option<ServiceKey> {
    match change {
        Change::SetUnplaced { service, .. }
        | Change::PauseRollout { service, .. }
        | Change::ResumeRollout { service }
        | Change::AbortRollout { service, .. }
        | Change::EndRollout { service } => Some(service.clone()),
        Change::Preempt { preemption, .. } => Some(preemption.by.service.clone()),
        change => change.replica().map(|replica| replica.service.clone()),
    }
}
