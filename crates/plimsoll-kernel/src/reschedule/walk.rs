//! Which services a cycle looks at, and in what order: another order in every round, drawn from the cell's name and the
//! clock. Nothing is remembered, so a new leader goes on where the last one was.

use plimsoll_model::{ReplicaId, ServiceKey, Slot, State, Timestamp};

use crate::place::ring;
use crate::policy::Policy;

/// One part of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Walk {
    seed: u64,
    part: u64,
    parts: u64,
}

impl Walk {
    /// Services are walked whole: one at most moves of each, and what is counted for one replica counts for all.
    pub(super) fn new(state: &State, policy: &Policy, now: Timestamp) -> Self {
        let replicas: usize = state.services().values().map(|it| it.replicas.len()).sum();
        let parts = replicas.div_ceil(policy.reschedule.replicas_per_cycle.max(1)).max(1) as u64;
        let cycle = now.0 / policy.sample_interval.0.max(1);
        let name = state.cell_id().as_str().bytes();
        let name = name.fold(0, |hash, byte| ring::mix(hash ^ u64::from(byte)));
        Self { seed: ring::mix(name ^ (cycle / parts)), part: cycle % parts, parts }
    }

    pub(super) fn includes(&self, service: &ServiceKey) -> bool {
        let drawn = u128::from(self.turn(service));
        (drawn * u128::from(self.parts)) >> 64 == u128::from(self.part)
    }

    /// Where the service stands among all.
    pub(super) fn turn(&self, service: &ServiceKey) -> u64 {
        ring::shuffled(service, u64::MAX, self.seed)
    }

    /// Where the replica stands among its equals.
    pub(super) fn order(&self, replica: &ReplicaId) -> u64 {
        match &replica.slot {
            Slot::Index(index) => ring::shuffled(&replica.service, (*index).into(), self.seed),
            Slot::Node(_) => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plimsoll_model::testkit::{cell, cpus, spread};

    use super::*;
    use crate::reschedule::RescheduleLimits;
    use crate::testkit::Passes;

    #[test]
    fn a_round_looks_at_every_service_once_and_the_next_in_another_order() {
        let names: Vec<String> = (0..40).map(|nth| format!("s{nth}")).collect();
        let services = names.iter().map(|name| (name.as_str(), spread(1)));
        let services: [_; 40] = services.collect::<Vec<_>>().try_into().expect("forty");
        let cell = cell().node("ash", cpus(8)).deploy("d", services).settle();
        let reschedule = RescheduleLimits { replicas_per_cycle: 9, ..RescheduleLimits::default() };
        let policy = Policy { reschedule, ..Policy::default() };
        let round = |first: u64| {
            let mut seen = Vec::new();
            for part in 0..5 {
                let now = Timestamp((first + part) * policy.sample_interval.0);
                let walk = Walk::new(&cell.state, &policy, now);
                let part = cell.state.services().keys().filter(|key| walk.includes(key));
                seen.extend(part.map(ToString::to_string));
            }
            seen
        };
        let (one, other) = (round(5), round(10));
        assert_eq!((one.len(), one.iter().collect::<BTreeSet<_>>().len()), (40, 40));
        assert_eq!(other.len(), 40);
        assert_ne!(one, other);
        assert_eq!(one, round(5), "equal inputs, equal walks");
    }
}
