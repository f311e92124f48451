//! Watches the run step by step: what runs where, what the cell decided, and why. The story is told from this.

use std::collections::BTreeMap;

use plimsoll_model::{Happening, Millis, NodeId, NodeStatus, ReplicaId, ServiceKey, State};
use plimsoll_sim::Scenario;
use plimsoll_sim::invariants::{self, settled};
use plimsoll_sim::machine::Link;
use plimsoll_sim::world::{EPOCH, World};

use super::why;
use crate::trouble::Trouble;

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When every replica ran for the first time, and where.
    pub(super) complete_at: Millis,
    pub(super) homes: BTreeMap<ReplicaId, NodeId>,
    /// What happened since.
    pub(super) lines: Vec<(Millis, Told)>,
    /// The fewest replicas of each service that ran at once since.
    pub(super) fewest: BTreeMap<ServiceKey, usize>,
    pub(super) moves: usize,
    pub(super) steps: usize,
    pub(super) invariants: usize,
    running: BTreeMap<ReplicaId, NodeId>,
    next_seq: u64,
}

#[derive(Debug)]
pub(super) enum Told {
    Ends(ReplicaId),
    Runs(ReplicaId, NodeId),
    Down,
    Ready,
    Moves { replica: ReplicaId, dst: NodeId, why: String },
    Waits { replica: ReplicaId, why: String },
}

impl Watch {
    /// Every step until the end, with every promise checked.
    pub(super) fn whole(scenario: &Scenario, seed: u64) -> Result<Self, Trouble> {
        let mut world = World::new(scenario, seed);
        let watch = Self::steps(&mut world, |_| false)?;
        settled::check(&world).map_err(|broken| Trouble::failed(broken.to_string()))?;
        Ok(watch)
    }

    pub(super) fn until_complete(scenario: &Scenario, seed: u64) -> Result<Self, Trouble> {
        Self::steps(&mut World::new(scenario, seed), |watch| !watch.homes.is_empty())
    }

    fn steps(world: &mut World<'_>, is_over: impl Fn(&Self) -> bool) -> Result<Self, Trouble> {
        let mut promises = invariants::all();
        let mut watch = Self { invariants: promises.len(), ..Self::default() };
        let end = EPOCH.plus(world.scenario.length);
        loop {
            let before = world.state.clone();
            if is_over(&watch) || !world.step(end) {
                return Ok(watch);
            }
            invariants::check(&mut promises, world)
                .map_err(|broken| Trouble::failed(broken.to_string()))?;
            watch.note(world, &before);
        }
    }

    fn note(&mut self, world: &World<'_>, before: &State) {
        self.steps += 1;
        let now = running(world);
        if self.homes.is_empty() {
            let replicas = world.state.replicas().count();
            // Before the first pass there is nothing, and nothing is complete.
            if replicas > 0 && now.len() == replicas {
                (self.complete_at, self.homes) = (world.elapsed(), now.clone());
            }
        } else {
            self.compare(world.elapsed(), &now);
        }
        self.running = now;
        let ring = world.state.audit();
        for event in ring.since(self.next_seq) {
            let told = match &event.what {
                Happening::NodeStatus { status: NodeStatus::Down, .. } => Told::Down,
                Happening::NodeStatus { status: NodeStatus::Ready, .. } => Told::Ready,
                Happening::MoveStarted { replica, dst, .. } => {
                    self.moves += 1;
                    let why = why::chosen(world, before, replica, dst);
                    Told::Moves { replica: replica.clone(), dst: dst.clone(), why }
                }
                Happening::Waiting { replica, why } => {
                    Told::Waits { replica: replica.clone(), why: why.to_string() }
                }
                _ => continue,
            };
            self.lines.push((world.elapsed(), told));
        }
        self.next_seq = ring.next_seq();
    }

    fn compare(&mut self, at: Millis, now: &BTreeMap<ReplicaId, NodeId>) {
        let ended = self.running.keys().filter(|replica| !now.contains_key(*replica));
        let ended = ended.map(|replica| (at, Told::Ends(replica.clone())));
        let begun = now.iter().filter(|(replica, _)| !self.running.contains_key(*replica));
        let begun = begun.map(|(replica, node)| (at, Told::Runs(replica.clone(), node.clone())));
        self.lines.extend(ended.chain(begun));
        for service in self.homes.keys().map(|replica| &replica.service) {
            let runs = now.keys().filter(|replica| replica.service == *service).count();
            let fewest = self.fewest.entry(service.clone()).or_insert(runs);
            *fewest = runs.min(*fewest);
        }
    }
}

/// What runs, and where: healthy, on a machine that is heard.
fn running(world: &World<'_>) -> BTreeMap<ReplicaId, NodeId> {
    let runs = |(id, replica): (ReplicaId, &plimsoll_model::Replica)| {
        let assignment = replica.assignment.as_ref()?;
        let machine = world.machines.get(&assignment.node)?;
        let container = machine.container(&id, assignment.generation)?;
        let is_heard = machine.link == Link::Up;
        (is_heard && container.is_healthy).then(|| (id, assignment.node.clone()))
    };
    world.state.replicas().filter_map(runs).collect()
}
