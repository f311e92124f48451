//! The cell and its machines, one step of the clock at a time. The leader's part is in [`leader`], the machines' in
//! [`hosts`]; both call the kernel as the daemon does.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_kernel::Signals;
use plimsoll_kernel::dirty::Dirty;
use plimsoll_kernel::liveness::Heard;
use plimsoll_kernel::place::Roster;
use plimsoll_model::{
    Author, Change, ClusterId, Command, Event, Generation, Guarded, Millis, NodeId, ObservedState,
    Pressure, Rejection, ReplicaId, State, Term, Timestamp, Writer,
};

use crate::chance::Chance;
use crate::clock::Clock;
use crate::machine::{Link, Machine};
use crate::scenario::{Action, Scenario};

mod actions;
mod hosts;
mod leader;

#[cfg(test)]
mod tests;

/// How often a node says that it is alive: three may be missed before it is down.
const HEARTBEAT: Millis = Millis::seconds(5);

/// Something due at a time.
#[derive(Debug)]
enum Due {
    /// The cell begins: its nodes and what was asked of it.
    Found,
    Cycle,
    /// The leader of this term looks at what is dirty.
    Pass(Term),
    /// The leader of this term looks at everything: a grace has run out.
    Wake(Term),
    Commit {
        term: Term,
        decided_on: u64,
        batch: Vec<Guarded>,
    },
    Elected,
    /// A node was lost or came back: see who is heard.
    Listen,
    /// Orders about a replica reach a node.
    Orders {
        node: NodeId,
        replica: ReplicaId,
    },
    /// A node's word reaches the leader.
    Report {
        node: NodeId,
        replica: ReplicaId,
        generation: Generation,
        state: ObservedState,
    },
    /// A container goes into its next phase.
    Done {
        node: NodeId,
        boots: u64,
        replica: ReplicaId,
        generation: Generation,
        what: Done,
    },
    Act(Box<Action>),
}

#[derive(Debug, Clone, Copy)]
enum Done {
    Pulled,
    Started,
    Healthy,
    Stopped,
}

/// The leader's soft state: gone when another takes over.
#[derive(Debug)]
struct Leader {
    since: Timestamp,
    roster: Roster,
    signals: Signals,
    dirty: Dirty,
    /// The next pass looks at everything.
    is_full_due: bool,
    is_pass_due: bool,
    is_committing: bool,
    inbox: Vec<Guarded>,
}

/// A command that was applied in the last step.
#[derive(Debug)]
pub struct Applied {
    pub writer: Writer,
    pub events: Vec<Event>,
}

#[derive(Debug)]
pub struct World<'s> {
    pub scenario: &'s Scenario,
    pub state: State,
    pub machines: BTreeMap<NodeId, Machine>,
    /// Images that fail when started.
    pub broken: BTreeSet<String>,
    /// What the last step applied, for the invariants.
    pub applied: Vec<Applied>,
    /// What went wrong in the last step: plans that lint refuses, reports the model refuses.
    pub complaints: Vec<String>,
    /// Whether the last step was a full cycle.
    pub is_cycle: bool,
    /// What each node measured of itself in the last full cycle, by name: cpu and memory; none where it is not heard.
    pub measured: Vec<(NodeId, Option<[Pressure; 2]>)>,
    /// Batches that were refused because something had changed since they were decided.
    pub refused: u64,
    /// How many commands changed the state so far.
    commands: u64,
    term: Term,
    leader: Option<Leader>,
    clock: Clock<Due>,
    chance: Chance,
    begun: Timestamp,
}

/// Virtual time starts here: an arbitrary instant well away from zero.
pub const EPOCH: Timestamp = Timestamp(1_700_000_000_000);

impl<'s> World<'s> {
    pub fn new(scenario: &'s Scenario, seed: u64) -> Self {
        let cluster = ClusterId::new("sim").expect("a valid name");
        let mut world = Self {
            scenario,
            state: State::new(cluster),
            machines: BTreeMap::new(),
            broken: BTreeSet::new(),
            applied: Vec::new(),
            complaints: Vec::new(),
            is_cycle: false,
            measured: Vec::new(),
            refused: 0,
            commands: 0,
            term: Term(1),
            leader: None,
            clock: Clock::new(EPOCH),
            chance: Chance::new(seed),
            begun: EPOCH,
        };
        world.clock.at(EPOCH, Due::Found);
        world.clock.at(EPOCH, Due::Elected);
        for (at, action) in &scenario.script {
            world.clock.at(EPOCH.plus(*at), Due::Act(Box::new(action.clone())));
        }
        world.clock.after(scenario.cycle, Due::Cycle);
        world
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Millis {
        self.clock.now.since(self.begun)
    }

    pub fn has_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// How long the present leader has led.
    pub fn led_for(&self) -> Millis {
        self.leader.as_ref().map_or(Millis(0), |leader| self.clock.now.since(leader.since))
    }

    /// Lets the next thing happen. False when nothing is left until the end.
    pub fn step(&mut self, end: Timestamp) -> bool {
        self.applied.clear();
        self.complaints.clear();
        self.is_cycle = false;
        let Some(due) = self.clock.next(end) else { return false };
        match due {
            Due::Found => self.found(),
            Due::Cycle => self.cycle(),
            Due::Pass(term) if term == self.term => self.pass(),
            Due::Wake(term) if term == self.term => self.look_at_everything(),
            Due::Commit { term, decided_on, batch } if term == self.term => {
                self.commit(decided_on, batch);
            }
            // What an earlier leader had under way is lost with it.
            Due::Pass(_) | Due::Wake(_) | Due::Commit { .. } => {}
            Due::Elected => self.elected(),
            Due::Listen => self.listen(),
            Due::Orders { node, replica } => self.sync(&node, &replica),
            Due::Report { node, replica, generation, state } => {
                self.hear(&node, replica, generation, state);
            }
            Due::Done { node, boots, replica, generation, what } => {
                self.done(&node, boots, &replica, generation, what);
            }
            Due::Act(action) => self.act(*action),
        }
        true
    }

    /// Commits a command: applies it, and tells everyone whom it concerns.
    fn apply(&mut self, writer: Writer, batch: Vec<Guarded>) -> Result<(), Rejection> {
        let by = Author::new(writer, "sim");
        let command = Command::new(self.clock.now, self.term, by, batch);
        let events = self.state.apply(&command)?;
        if let Some(leader) = &mut self.leader {
            leader.roster.follow(&self.state, &leader.signals, &self.scenario.policy, &events);
            leader.dirty.note(&self.state, &events);
            if !leader.dirty.is_empty() {
                self.want_pass();
            }
        }
        self.send_orders(&events);
        if !events.is_empty() {
            self.commands += 1;
            self.applied.push(Applied { writer, events });
        }
        Ok(())
    }

    /// An event of load names the node, the event of the replica that follows says whose.
    fn send_orders(&mut self, events: &[Event]) {
        let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
        for event in events {
            match event {
                Event::Load(node) => drop(nodes.insert(node.clone())),
                Event::Replica(replica) => {
                    nodes.extend(self.held_back(replica));
                    self.order(std::mem::take(&mut nodes), replica);
                }
                Event::Node(node) => {
                    let tenants = self.state.load(node).map(|load| load.tenants.clone());
                    for replica in tenants.unwrap_or_default() {
                        self.order(self.held_back(&replica), &replica);
                    }
                }
                _ => {}
            }
        }
    }

    fn order(&mut self, nodes: BTreeSet<NodeId>, replica: &ReplicaId) {
        for node in nodes {
            let latency = self.chance.between(self.scenario.dwell.network);
            self.clock.after(latency, Due::Orders { node, replica: replica.clone() });
        }
    }

    /// The nodes that may have waited for what happened to the replica elsewhere, or to its node.
    fn held_back(&self, id: &ReplicaId) -> BTreeSet<NodeId> {
        let Some(replica) = self.state.replica(id) else { return BTreeSet::new() };
        let spec = self.state.service(&id.service).and_then(|service| service.desired());
        let may_be = replica.waiting.is_some() || spec.is_some_and(|spec| !spec.can_run_twice());
        replica.holds().filter(|_| may_be).map(|held| held.node.clone()).collect()
    }

    fn operate(&mut self, change: Change) {
        // An operator's mistake, such as draining a node twice, is the operator's: the cell refuses it and goes on.
        if self.apply(Writer::Operator, vec![change.free()]).is_err() {
            self.refused += 1;
        }
    }

    fn heard(&self) -> Option<Heard> {
        let leader = self.leader.as_ref()?;
        let mut heard = Heard::from(leader.since);
        for (node, machine) in &self.machines {
            let last = match machine.link {
                Link::Up => self.clock.now,
                Link::Cut | Link::Off => {
                    let beats = machine.since.since(self.begun).0 / HEARTBEAT.0;
                    self.begun.plus(Millis(beats * HEARTBEAT.0))
                }
            };
            if last >= leader.since || machine.link == Link::Up {
                heard.note(node, last);
            }
        }
        Some(heard)
    }
}
