//! The scheduler pass: given the state, the one batch of changes that brings it nearer to what was asked for.
//!
//! Replicas on nodes that may hold them stay where they are; only what is missing is placed, only what must move
//! moves. Where things go is settled in [`place`](crate::place), how a move under way goes on in
//! [`moves`](crate::moves).

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::preemption::PreemptedBy;
use plimsoll_model::reason::WaitReason;
use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, Change, Guarded, Mode, Node, NodeId, NodeStatus, Replica, ReplicaId, ServiceKey,
    ServiceSpec, State, Timestamp,
};

use crate::condition::{NodeCondition, PlacementCondition, placement};
use crate::data::{Promised, VolumeBinding};
use crate::drain;
use crate::place::filter::{PlacementRequest, misplaced};
use crate::place::{Roster, Score};
use crate::policy::Policy;

mod global;
mod preempting;
mod replicated;
mod rolling;
mod scale_down;
pub(crate) mod scheduled;
mod unplaced;

#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod tests;

use preempting::Preempting;
use unplaced::UnplacedService;

/// What a pass looks at.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    All,
    AllBut(&'a BTreeSet<ServiceKey>),
    Services(&'a BTreeSet<ServiceKey>),
}

/// What a pass decided: one batch, to be committed whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub batch: Vec<Guarded>,
    /// For each change of the batch that chose a node, its position and the score of the choice.
    pub scores: Vec<(usize, Score)>,
    /// When to look again if nothing happens before: a grace runs out then.
    pub wake: Option<Timestamp>,
    /// When the next slot of a schedule is due. Apart from the rest, because nothing waits for it.
    pub next_slot: Option<Timestamp>,
}

/// Decides one pass. The roster must be true to the state, and is so again afterwards: what is decided here becomes
/// true only once it is applied.
pub fn reconcile(
    state: &State,
    roster: &mut Roster,
    policy: &Policy,
    scope: Scope<'_>,
    now: Timestamp,
) -> Decision {
    let mut pass = Pass {
        state,
        policy,
        now,
        decision: Decision::default(),
        brake: OnceCell::new(),
        disturbed: match scope {
            Scope::All | Scope::AllBut(_) => Some(roster.disturbed(state)),
            Scope::Services(_) => None,
        },
        unplaced: Vec::new(),
        promised: Promised::new(),
        preempting: Preempting::new(state),
        evicted: BTreeMap::new(),
    };
    pass.judge_preemptions(roster);
    for (key, service) in in_order(state, scope) {
        pass.service(roster, key, service);
    }
    pass.explain_unplaced(roster);
    pass.drains();
    pass.volume_moves();
    roster.forget_pass(state);
    pass.decision
}

/// Services that matter more choose first; of equals, by name.
fn in_order<'s>(state: &'s State, scope: Scope<'_>) -> Vec<(&'s ServiceKey, &'s Service)> {
    let mut services: Vec<(&ServiceKey, &Service)> = match scope {
        Scope::All => state.services().iter().collect(),
        Scope::AllBut(without) => {
            state.services().iter().filter(|(key, _)| !without.contains(*key)).collect()
        }
        Scope::Services(keys) => {
            keys.iter().filter_map(|key| state.services().get_key_value(key)).collect()
        }
    };
    services.sort_by_key(|(_, service)| Reverse(service.desired().map_or(0, |spec| spec.priority)));
    services
}

/// A pass under way.
pub(crate) struct Pass<'s> {
    pub(crate) state: &'s State,
    policy: &'s Policy,
    pub(crate) now: Timestamp,
    pub(crate) decision: Decision,
    /// Whether so many nodes are down that nothing is replaced; counted when first asked.
    brake: OnceCell<Option<WaitReason>>,
    /// The services of which something is on a node that may not keep it. None in a pass over a few services, which looks
    /// at their replicas instead: the trouble of a whole cell may be more than those.
    disturbed: Option<BTreeSet<&'s ServiceKey>>,
    /// Services that found no room for something, to be told why once the pass has placed all it can.
    unplaced: Vec<UnplacedService<'s>>,
    /// Where volumes will be that this pass gives a place to.
    promised: Promised,
    preempting: Preempting,
    /// Services that lose a replica in this pass to one of higher priority.
    evicted: BTreeMap<ServiceKey, Box<PreemptedBy>>,
}

impl<'s> Pass<'s> {
    fn service(&mut self, roster: &mut Roster, key: &'s ServiceKey, service: &'s Service) {
        let Some(spec) = service.desired() else {
            self.retire_all(roster, key, service);
            return;
        };
        if let Some(schedule) = &spec.schedule
            && self.slots(key, service, schedule)
        {
            return;
        }
        self.show_held(roster, key, spec.priority);
        let from = self.decision.batch.len();
        let is_decided = self.is_paused_for_volumes(roster, key, service, spec)
            || match spec.placement.mode {
                Mode::Global => self.global(roster, key, service, spec),
                Mode::Spread { .. }
                | Mode::Pack { .. }
                | Mode::Binpack { .. }
                | Mode::Hosts { .. } => self.replicated(roster, key, service, spec),
            };
        if is_decided {
            self.settle_needs(roster, (key, service), from);
        }
    }

    /// What its volumes ask of where the service runs, as far as this pass has come.
    fn binding(&self, key: &ServiceKey, spec: &ServiceSpec) -> Option<VolumeBinding<'s>> {
        VolumeBinding::new(self.state, key, spec, &self.promised)
    }

    /// A replica of the service gets there, and so do its volumes.
    fn promise(&mut self, key: &ServiceKey, spec: &ServiceSpec, node: &NodeId) {
        for volume in spec.container.local_volumes(&key.deployment) {
            self.promised.entry(volume).or_default().insert(node.clone());
        }
    }

    /// A drain that nothing comes of is given up; what is still there runs on.
    fn drains(&mut self) {
        let (overdue, look_again) = drain::judge(self.state, self.now);
        self.decision.batch.extend(overdue);
        if let Some(at) = look_again {
            self.wake_at(at);
        }
    }

    fn retire_all(&mut self, roster: &mut Roster, key: &ServiceKey, service: &Service) {
        self.retire_those(roster, key, service, |_| true);
    }

    pub(crate) fn retire_those(
        &mut self,
        roster: &mut Roster,
        key: &ServiceKey,
        service: &Service,
        are_meant: impl Fn(&Replica) -> bool,
    ) {
        for (slot, replica) in service.replicas.iter().filter(|(_, it)| are_meant(it)) {
            if let Some(heading) = replica.heading() {
                roster.end_one(&heading.node);
                self.retire(&ReplicaId::new(key.clone(), slot.clone()));
            }
        }
    }

    /// The condition of a replica where it is, from what the roster knows of its node.
    fn condition(
        &mut self,
        roster: &Roster,
        ask: &PlacementRequest<'_>,
        id: &ReplicaId,
        (replica, assignment): (&Replica, &Assignment),
    ) -> PlacementCondition {
        let down_since = || self.state.node(&assignment.node).map(|node| node.status_since);
        let node = match roster.place_of(&assignment.node) {
            None => NodeCondition::Gone,
            Some(at) if !roster.is_up(at) => {
                down_since().map_or(NodeCondition::Gone, |since| NodeCondition::Down { since })
            }
            Some(at) => {
                let may_keep = misplaced(ask, roster, at).is_none();
                let node = self.state.node(&assignment.node);
                node.map_or(NodeCondition::Gone, |it| NodeCondition::up(it, may_keep, self.policy))
            }
        };
        let condition = placement(replica, assignment, ask.spec.hash, node, self.policy, self.now);
        self.or_preempted(id, replica, condition)
    }

    fn retire(&mut self, id: &ReplicaId) {
        self.about(id, Change::Retire { replica: id.clone() });
    }

    /// Adds a change that holds only while the replica's assignment is the one it was decided on.
    fn about(&mut self, id: &ReplicaId, change: Change) {
        let assignment = self.state.replica(id).and_then(|replica| replica.assignment.as_ref());
        let guarded = change.at_generation(assignment.map(|assignment| assignment.generation));
        self.decision.batch.push(guarded);
    }

    fn scored(&mut self, score: Score) {
        self.decision.scores.push((self.decision.batch.len() - 1, score));
    }

    pub(crate) fn wake_at(&mut self, at: Timestamp) {
        self.decision.wake = Some(self.decision.wake.map_or(at, |wake| wake.min(at)));
    }

    /// When more than half of the nodes are down, or their runtimes are, it is more likely us: nothing is replaced.
    fn brake(&self) -> Option<WaitReason> {
        let state = self.state;
        self.brake
            .get_or_init(|| {
                let nodes = state.nodes().len();
                let is_lost =
                    |node: &&Node| node.status == NodeStatus::Down || node.outage.is_some();
                let down = state.nodes().values().filter(is_lost).count();
                let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                (2 * down > nodes)
                    .then_some(WaitReason::MassLoss { down: count(down), nodes: count(nodes) })
            })
            .clone()
    }
}
