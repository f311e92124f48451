//! Checks any plan against every constraint, by brute force and without the code that made it. Tests run it on what
//! they decide, and the simulator on every batch.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use plimsoll_model::preemption::Preemption;
use plimsoll_model::{
    Change, Guarded, MoveCause, Node, NodeId, NodeRole, Replica, ReplicaId, Resources, ServiceKey,
    ServiceSpec, Slot, State,
};

mod capacity;
mod count;
mod eligible;
mod even;
mod ports;
mod preemption;
mod sticky;
mod volumes;

#[cfg(test)]
mod tests;

/// A rule that a plan breaks, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Every rule that the batch would break if it were applied to the state.
pub fn plan(state: &State, batch: &[Guarded]) -> Vec<Violation> {
    let plan = BatchPlan::read(state, batch);
    let rules: [(&'static str, LintRule); 8] = [
        ("eligible", eligible::check),
        ("capacity", capacity::check),
        ("ports", ports::check),
        ("count", count::check),
        ("even", even::check),
        ("sticky", sticky::check),
        ("volumes", volumes::check),
        ("preemption", preemption::check),
    ];
    let broken = rules.into_iter().flat_map(|(rule, check)| {
        check(&plan).into_iter().map(move |what| Violation { rule, what })
    });
    broken.collect()
}

/// Says what a plan breaks of one rule.
type LintRule = fn(&BatchPlan<'_>) -> Vec<String>;

/// An assignment that the batch gives out.
struct New<'a> {
    replica: &'a ReplicaId,
    node: &'a NodeId,
    spec: &'a Arc<ServiceSpec>,
    /// None for a new replica.
    cause: Option<MoveCause>,
    /// The old copy makes way at once, in the same place.
    is_in_place: bool,
}

/// A batch, sorted by what it does.
struct BatchPlan<'a> {
    state: &'a State,
    new: Vec<New<'a>>,
    /// Positions in `new`.
    by_service: BTreeMap<&'a ServiceKey, Vec<usize>>,
    moved: BTreeSet<&'a ReplicaId>,
    retired: BTreeSet<&'a ReplicaId>,
    abandoned: BTreeSet<&'a ReplicaId>,
    /// Those whose move ends in this batch, one way or the other.
    stepped: BTreeSet<&'a ReplicaId>,
    /// Services that return to what they ran before: what they should have from then on is decided by the next pass.
    aborted: BTreeSet<&'a ServiceKey>,
    /// Preemptions that it begins, and nodes where it gives one up.
    preempted: BTreeMap<&'a NodeId, &'a Preemption>,
    withdrawn: BTreeSet<&'a NodeId>,
    evicted: BTreeSet<&'a ReplicaId>,
    /// What the new assignments add to each node. What is replaced in its own place makes way for its successor, which
    /// adds what it asks for more.
    added: BTreeMap<&'a NodeId, Resources>,
}

impl<'a> BatchPlan<'a> {
    fn read(state: &'a State, batch: &'a [Guarded]) -> Self {
        let mut plan = Self {
            state,
            new: Vec::new(),
            by_service: BTreeMap::new(),
            moved: BTreeSet::new(),
            retired: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            stepped: BTreeSet::new(),
            aborted: BTreeSet::new(),
            preempted: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            evicted: BTreeSet::new(),
            added: BTreeMap::new(),
        };
        for guarded in batch {
            if let Some(replica) = guarded.change.replica() {
                plan.by_service.entry(&replica.service).or_default();
            }
            match &guarded.change {
                Change::Place { replica, node, .. } => plan.add(replica, node, None),
                Change::Succeed { replica, node, cause, .. } => {
                    plan.add(replica, node, Some(*cause))
                }
                Change::Promote { replica } => {
                    // A successor that this very batch gave out has not run yet: the old copy makes way for it.
                    if let Some(last) = plan.new.last_mut().filter(|last| last.replica == replica) {
                        let before = state.replica(replica).and_then(|it| it.assignment.as_ref());
                        last.is_in_place = before.is_some_and(|before| before.node == *last.node);
                    } else {
                        plan.stepped.insert(replica);
                    }
                }
                Change::Retire { replica } => drop(plan.retired.insert(replica)),
                Change::Evict { replica } => {
                    plan.retired.insert(replica);
                    plan.evicted.insert(replica);
                }
                Change::Preempt { node, preemption } => {
                    plan.preempted.insert(node, preemption);
                }
                Change::WithdrawPreemption { node, .. } => drop(plan.withdrawn.insert(node)),
                Change::AbortRollout { service, .. } => drop(plan.aborted.insert(service)),
                Change::Abandon { replica, .. } => {
                    plan.abandoned.insert(replica);
                    plan.stepped.insert(replica);
                }
                _ => {}
            }
        }
        for new in &plan.new {
            let capacity = plan.capacity(new.node);
            let asks = new.spec.request().on(capacity).minus(plan.freed(new).on(capacity));
            let added = plan.added.entry(new.node).or_insert(Resources::NONE);
            *added = added.plus(asks);
        }
        plan
    }

    /// A manager is one of the seven that came first; where there are no more, and where nobody was counted, each is both.
    fn role(&self, node: &NodeId) -> NodeRole {
        let nodes = self.state.nodes();
        let number = |id: &NodeId| nodes.get(id).and_then(|node| node.server);
        let came_before = |other: &&Node| match (other.server, number(node)) {
            (Some(other), Some(own)) => other < own,
            _ => false,
        };
        if nodes.len() <= 7 || nodes.values().all(|node| node.server.is_none()) {
            NodeRole::Either
        } else if number(node).is_some() && nodes.values().filter(came_before).count() < 7 {
            NodeRole::Manager
        } else {
            NodeRole::Worker
        }
    }

    fn add(&mut self, replica: &'a ReplicaId, node: &'a NodeId, cause: Option<MoveCause>) {
        let service = self.state.service(&replica.service);
        let Some(spec) = service.and_then(|service| service.desired()) else { return };
        self.by_service.entry(&replica.service).or_default().push(self.new.len());
        if cause.is_some() {
            self.moved.insert(replica);
        }
        self.new.push(New { replica, node, spec, cause, is_in_place: false });
    }

    /// The preemptions there are with the batch.
    fn preemptions(&self) -> impl Iterator<Item = (&'a NodeId, &'a Preemption)> {
        let before = self.state.preemptions().in_flight().iter();
        let stay = before.filter(|(node, _)| !self.withdrawn.contains(node));
        stay.chain(self.preempted.iter().map(|(node, it)| (*node, *it)))
    }

    /// The new assignments of one service.
    fn new_of(&self, key: &ServiceKey) -> impl Iterator<Item = &New<'a>> {
        self.by_service.get(key).into_iter().flatten().map(|at| &self.new[*at])
    }

    /// What the old copy makes free for it.
    fn freed(&self, new: &New<'_>) -> Resources {
        let service = self.state.service(&new.replica.service).filter(|_| new.is_in_place);
        let old = service.and_then(|service| {
            let replica = service.replicas.get(&new.replica.slot)?;
            let old = replica.assignment.as_ref()?;
            // What has completed had set nothing aside any more.
            service.spec_of(old).filter(|_| !replica.has_vacated(old))
        });
        old.map_or(Resources::NONE, |old| old.request())
    }

    fn node(&self, new: &New<'_>) -> Option<&'a Node> {
        self.state.node(new.node)
    }

    fn capacity(&self, node: &NodeId) -> Resources {
        self.state.node(node).map_or(Resources::NONE, |node| node.facts.capacity)
    }

    /// What the node will have set aside, by the plan.
    fn reserved(&self, node: &NodeId) -> Resources {
        let before = self.state.load(node).map_or(Resources::NONE, |load| load.reserved);
        before
            .on(self.capacity(node))
            .plus(self.added.get(node).copied().unwrap_or(Resources::NONE))
    }

    /// How many replicas of the service each node has, once the plan is carried out. Those named after nodes are left from
    /// when the service was `global`, and end once the others run.
    fn counts(&self, key: &ServiceKey) -> BTreeMap<&'a NodeId, u32> {
        let mut counts: BTreeMap<&NodeId, u32> = BTreeMap::new();
        let service = self.state.service(key);
        for (slot, replica) in service.into_iter().flat_map(|service| &service.replicas) {
            let id = ReplicaId::new(key.clone(), slot.clone());
            if matches!(slot, Slot::Index(_))
                && !self.moved.contains(&id)
                && !self.retired.contains(&id)
                && let Some(at) = self.heading(&id, replica)
            {
                *counts.entry(at).or_default() += 1;
            }
        }
        for new in self.new_of(key) {
            *counts.entry(new.node).or_default() += 1;
        }
        counts
    }

    fn heading(&self, id: &ReplicaId, replica: &'a Replica) -> Option<&'a NodeId> {
        let heading = if self.abandoned.contains(id) {
            replica.assignment.as_ref()
        } else {
            replica.heading()
        };
        heading.map(|assignment| &assignment.node)
    }
}
