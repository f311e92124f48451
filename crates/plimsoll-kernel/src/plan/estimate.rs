//! How long a plan takes, by how long its replicas took when they last started.

use std::collections::BTreeMap;

use plimsoll_model::{Millis, ReplicaId, State, Timestamp};

use super::{Plan, ReplicaFate};
use crate::policy::Policy;

/// What a start takes that nobody has measured.
const UNKNOWN_START: Millis = Millis::seconds(5);

/// How long replicas take to start and may take to stop, as far as is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaTimes {
    starts: BTreeMap<ReplicaId, Millis>,
    graces: BTreeMap<ReplicaId, Millis>,
}

/// About how long a plan takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanEstimate {
    /// Rounds follow one another; in each, the slowest start counts.
    pub takes: Millis,
    /// How much longer where replicas use their whole stop grace.
    pub stop_grace: Millis,
}

impl ReplicaTimes {
    /// Of a replica that is not there yet, what others of its service took.
    pub fn of<'a>(state: &State, replicas: impl IntoIterator<Item = &'a ReplicaId>) -> Self {
        let mut times = Self::default();
        for id in replicas {
            let start = start_of(state, id).or_else(|| {
                let service = state.service(&id.service)?;
                let others = service.replicas.keys().take(LIKE_IT);
                let others = others.map(|slot| ReplicaId::new(id.service.clone(), slot.clone()));
                others.filter_map(|other| start_of(state, &other)).max()
            });
            times.starts.extend(start.map(|start| (id.clone(), start)));
            times.graces.extend(grace_of(state, id).map(|grace| (id.clone(), grace)));
        }
        times
    }

    pub fn estimate(&self, plan: &Plan) -> PlanEstimate {
        let mut starts: BTreeMap<u32, Millis> = BTreeMap::new();
        // What makes way first holds up its round; of the others the slowest counts once.
        let (mut stops, mut last): (BTreeMap<u32, Millis>, Millis) = (BTreeMap::new(), Millis(0));
        for outcome in &plan.outcomes {
            let (round, is_stop_first) = match outcome.fate {
                ReplicaFate::Moved { round, is_stop_first, .. } => (round, Some(is_stop_first)),
                ReplicaFate::Placed { round, .. } => (round, None),
                ReplicaFate::Retired { .. }
                | ReplicaFate::Preempted { .. }
                | ReplicaFate::Stays { .. } => continue,
            };
            let slowest = starts.entry(round).or_default();
            let start = self.starts.get(&outcome.id).copied().unwrap_or(UNKNOWN_START);
            *slowest = (*slowest).max(start);
            let grace = self.graces.get(&outcome.id).copied().unwrap_or_default();
            match is_stop_first {
                Some(true) => {
                    let slowest = stops.entry(round).or_default();
                    *slowest = (*slowest).max(grace);
                }
                Some(false) => last = last.max(grace),
                None => {}
            }
        }
        let sum = |rounds: &BTreeMap<u32, Millis>| rounds.values().map(|it| it.0).sum::<u64>();
        PlanEstimate { takes: Millis(sum(&starts)), stop_grace: Millis(sum(&stops) + last.0) }
    }
}

/// How many others of a service are asked.
const LIKE_IT: usize = 16;

fn grace_of(state: &State, id: &ReplicaId) -> Option<Millis> {
    let service = state.service(&id.service)?;
    let assignment = service.replicas.get(&id.slot)?.assignment.as_ref()?;
    Some(service.spec_of(assignment)?.container.effective_stop_grace())
}

/// How long the replica took from its assignment until it ran, as far as is known.
fn start_of(state: &State, id: &ReplicaId) -> Option<Millis> {
    let replica = state.replica(id)?;
    let assignment = replica.assignment.as_ref()?;
    let seen = replica.observation(assignment).filter(|_| replica.is_running())?;
    let took: Millis = seen.at.since(Timestamp(assignment.at.0));
    // One that failed and came back later says nothing of how long a start takes.
    (took <= Policy::default().step_timeout).then_some(took)
}
