//! The cell and its machines, one step of the clock at a time. The leader's part is in [`leader`], the machines' in
//! [`hosts`]; both call the kernel as the daemon does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use plimsoll_kernel::rebalance::ReplicaUsage;
use plimsoll_kernel::{Leader, orders};
use plimsoll_model::volumes::VolumeChange;
use plimsoll_model::{
    Author, CellId, Change, Command, DeploymentName, Event, Generation, Guarded, Millis, NodeId,
    NodePressure, ObservedCode, ObservedState, Rejection, Replica, ReplicaId, Revision, ServiceKey,
    SpecHash, State, Term, Timestamp, Writer,
};

pub(crate) use declared::declared_by;

use crate::chaos::alphabet;
use crate::clock::SimClock;
use crate::machine::Machine;
use crate::rng::SimRng;
use crate::scenario::{Action, Scenario};

mod actions;
mod certificates;
mod declared;
mod engine;
mod hosts;
mod leader;
mod operations;
mod provider;
mod trust;
mod volume_holds;
mod volumes;

#[cfg(test)]
mod tests;

/// Something due at a time.
#[derive(Debug)]
enum Due {
    /// The cell begins: its nodes and what was asked of it.
    Found,
    Cycle,
    /// The leader of this term takes its turn.
    Turn(Term),
    /// A time has come that the leader of this term set itself.
    Wake(Term),
    /// What a step of a turn decided is committed; the steps after it follow.
    Commit {
        term: Term,
        /// Which step of the turn.
        nth: usize,
        decided_on: u64,
        /// What is left of it, cut into entries.
        pieces: VecDeque<Vec<Guarded>>,
    },
    Elected,
    /// A node was lost or came back: see who is heard.
    Listen,
    /// Orders about a replica reach a node.
    Orders {
        node: NodeId,
        replica: ReplicaId,
    },
    /// A node's word about a container reaches the leader.
    Report {
        node: NodeId,
        replica: ReplicaId,
        generation: Generation,
        state: ObservedState,
        code: Option<ObservedCode>,
    },
    /// A node's word that it has removed the volumes of a deployment.
    Cleared {
        node: NodeId,
        deployment: DeploymentName,
        revision: Revision,
    },
    /// A node's word on where the image of a spec declares volumes.
    Declared {
        node: NodeId,
        service: ServiceKey,
        spec: SpecHash,
        paths: BTreeSet<String>,
    },
    /// A node's word on a single volume.
    Volume(VolumeChange),
    /// A node has had the time that copying volumes takes.
    Copied {
        deployment: DeploymentName,
        order: Generation,
        boot: u64,
    },
    /// A client looks after the volume that it backs up or restores.
    Client {
        deployment: DeploymentName,
        order: Generation,
    },
    /// A container goes into its next phase.
    Done {
        node: NodeId,
        boot: u64,
        replica: ReplicaId,
        generation: Generation,
        what: Done,
    },
    /// Which authorities there are reaches a node.
    Authorities(NodeId),
    /// A node gets a certificate, if it needs one, and says that it has done its part.
    Certificate(NodeId),
    /// The provider of machines does something that it is to do.
    Provider,
    Act(Box<Action>),
}

#[derive(Debug, Clone, Copy)]
enum Done {
    Pulled,
    Started,
    Healthy,
    Ended,
    Stopped,
}

/// The present leader: gone when another takes over.
#[derive(Debug)]
struct Leading {
    since: Timestamp,
    /// What it keeps and decides, as in a daemon.
    leader: Leader,
    is_turn_due: bool,
    /// A turn is under way: one of its batches is being committed.
    is_committing: bool,
    /// When it is woken though nothing happens.
    wake_at: Option<Timestamp>,
    inbox: Vec<Guarded>,
}

/// A command that was applied in the last step.
#[derive(Debug)]
pub struct Applied {
    pub writer: Writer,
    pub events: Vec<Event>,
}

/// A batch that was refused for what it says of a poisoned service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoisonRefusal {
    pub service: ServiceKey,
    /// The leader leaves the service alone from now on.
    pub waits: bool,
}

#[derive(Debug)]
pub struct World<'s> {
    pub scenario: &'s Scenario,
    pub state: State,
    pub machines: BTreeMap<NodeId, Machine>,
    /// Services for which nothing is decided that the state takes.
    pub poisoned: BTreeSet<ServiceKey>,
    /// Whether the last step refused a batch for what it says of one of those.
    pub poison_refusal: Option<PoisonRefusal>,
    /// Images that fail when started.
    pub broken: BTreeSet<String>,
    /// Images that cannot be pulled.
    pub withdrawn: BTreeSet<String>,
    /// What the last step applied, for the invariants.
    pub applied: Vec<Applied>,
    /// What went wrong in the last step: plans that lint refuses, reports the model refuses.
    pub complaints: Vec<String>,
    /// What was started for the first time in the last step.
    pub first_starts: Vec<(NodeId, ReplicaId, Generation)>,
    /// Whether the last step was a full cycle.
    pub is_cycle: bool,
    /// Whether a machine has learnt of authorities, or got a certificate, in the last step.
    pub has_trust_changed: bool,
    /// What each node measured of itself in the last full cycle, by name; none where it is not heard.
    pub measured: Vec<(NodeId, Option<NodePressure>)>,
    /// What each container used then, where its node is heard.
    usages: Vec<(ReplicaId, Generation, ReplicaUsage)>,
    /// Batches that were refused because something had changed since they were decided.
    pub refused: u64,
    /// The kinds of changes that were made so far.
    pub made: BTreeSet<&'static str>,
    /// How many commands changed the state so far.
    commands: u64,
    /// By so many milliseconds the leader's clock is off.
    skew: i64,
    /// By how much a clock may have gained on another at most.
    pub gained: Millis,
    /// Given to each life of a machine, and to each secret.
    numbers: u64,
    /// Copies of volumes that were begun, each by a life of a machine.
    copying: BTreeSet<(Generation, u64)>,
    /// The holds of volumes whose clients have begun.
    clients: BTreeSet<Generation>,
    term: Term,
    leading: Option<Leading>,
    clock: SimClock<Due>,
    rng: SimRng,
    begun: Timestamp,
}

/// Virtual time starts here: an arbitrary instant well away from zero.
pub const EPOCH: Timestamp = Timestamp(1_700_000_000_000);

impl<'s> World<'s> {
    pub fn new(scenario: &'s Scenario, seed: u64) -> Self {
        let cell_id = CellId::new("sim").expect("a valid name");
        let mut world = Self {
            scenario,
            state: State::new(cell_id),
            machines: BTreeMap::new(),
            poisoned: BTreeSet::new(),
            poison_refusal: None,
            broken: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            applied: Vec::new(),
            complaints: Vec::new(),
            first_starts: Vec::new(),
            is_cycle: false,
            has_trust_changed: false,
            measured: Vec::new(),
            usages: Vec::new(),
            refused: 0,
            made: BTreeSet::new(),
            commands: 0,
            skew: 0,
            gained: Millis(0),
            numbers: 0,
            copying: BTreeSet::new(),
            clients: BTreeSet::new(),
            term: Term(1),
            leading: None,
            clock: SimClock::new(EPOCH),
            rng: SimRng::new(seed),
            begun: EPOCH,
        };
        world.clock.at(EPOCH, Due::Found);
        world.clock.at(EPOCH, Due::Elected);
        for (at, action) in &scenario.script {
            world.clock.at(EPOCH.plus(*at), Due::Act(Box::new(action.clone())));
        }
        world.clock.after(scenario.policy.sample_interval, Due::Cycle);
        world
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now
    }

    /// The time by the leader's clock: what it writes and decides on.
    pub fn leader_time(&self) -> Timestamp {
        Timestamp(self.clock.now.0.saturating_add_signed(self.skew))
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Millis {
        self.clock.now.since(self.begun)
    }

    pub fn has_leader(&self) -> bool {
        self.leading.is_some()
    }

    /// What the present leader knows.
    pub fn leader(&self) -> Option<&Leader> {
        self.leading.as_ref().map(|leading| &leading.leader)
    }

    /// How long the present leader has led.
    pub fn led_for(&self) -> Millis {
        self.leading.as_ref().map_or(Millis(0), |leading| self.clock.now.since(leading.since))
    }

    /// Lets the next thing happen. False when nothing is left until the end.
    pub fn step(&mut self, end: Timestamp) -> bool {
        self.applied.clear();
        self.complaints.clear();
        self.first_starts.clear();
        self.poison_refusal = None;
        self.is_cycle = false;
        self.has_trust_changed = false;
        let Some(due) = self.clock.next(end) else { return false };
        match due {
            Due::Found => self.found(),
            Due::Cycle => self.cycle(),
            Due::Turn(term) if term == self.term => self.turn(),
            Due::Wake(term) if term == self.term => self.wake(),
            Due::Commit { term, nth, decided_on, pieces } if term == self.term => {
                self.commit(nth, decided_on, pieces);
            }
            // What an earlier leader had under way is lost with it.
            Due::Turn(_) | Due::Wake(_) | Due::Commit { .. } => {}
            Due::Elected => self.elected(),
            Due::Listen => self.want_turn(),
            Due::Orders { node, replica } => self.sync(&node, &replica),
            Due::Report { node, replica, generation, state, code } => {
                self.hear(&node, replica, generation, state, code);
            }
            Due::Cleared { node, deployment, revision } => {
                self.hear_cleared(node, deployment, revision);
            }
            Due::Declared { node, service, spec, paths } => {
                if self.is_linked(&node) {
                    self.take(Change::DeclareVolumes { service, spec, node, paths });
                }
            }
            Due::Volume(change) => self.hear_volume(change),
            Due::Copied { deployment, order, boot } => self.copied(deployment, order, boot),
            Due::Client { deployment, order } => self.look_after_hold(deployment, order),
            Due::Done { node, boot, replica, generation, what } => {
                self.done(&node, boot, &replica, generation, what);
            }
            Due::Authorities(node) => {
                self.has_trust_changed = true;
                self.learn_authorities(&node);
            }
            Due::Certificate(node) => {
                self.has_trust_changed = true;
                self.renew_certificate(&node);
            }
            Due::Provider => self.provide(),
            Due::Act(action) => self.act(*action),
        }
        true
    }

    /// Commits a command: applies it, and tells everyone whom it concerns.
    fn apply(&mut self, writer: Writer, batch: Vec<Guarded>) -> Result<(), Rejection> {
        let by = Author::new(writer, "sim");
        let command = Command::new(self.leader_time(), self.term, by, batch);
        let events = self.state.apply(&command)?;
        self.made.extend(command.batch.iter().map(|guarded| alphabet::word(&guarded.change)));
        if let Some(leading) = &mut self.leading {
            leading.leader.follow(&self.state, &events);
            if leading.leader.is_dirty() {
                self.want_turn();
            }
        }
        self.send_orders(&events);
        let is_about_machines = |event: &Event| match event {
            Event::Machines => true,
            Event::Node(_) => !self.state.machines().all().is_empty(),
            _ => false,
        };
        if events.iter().any(is_about_machines) {
            self.call_provider();
        }
        if !events.is_empty() {
            self.commands += 1;
            self.applied.push(Applied { writer, events });
        }
        Ok(())
    }

    /// Tells every node whose orders may have changed, as the daemon does. An event of load names the node, the event of the
    /// replica that follows says whose.
    fn send_orders(&mut self, events: &[Event]) {
        let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
        let mut holders: BTreeMap<&ReplicaId, BTreeSet<NodeId>> = BTreeMap::new();
        for event in events {
            match event {
                Event::Load(node) => drop(nodes.insert(node.clone())),
                Event::Replica(replica) => {
                    holders.entry(replica).or_default().append(&mut nodes);
                }
                Event::Volumes(_) => {
                    self.clear_volumes();
                    self.follow_volume_orders();
                }
                _ => {}
            }
        }
        for replica in orders::touched(&self.state, events.iter()) {
            let mut nodes = holders.remove(&replica).unwrap_or_default();
            let row = self.state.replica(&replica);
            nodes.extend(row.into_iter().flat_map(Replica::holds).map(|held| held.node.clone()));
            self.order(nodes, &replica);
        }
        if events.contains(&Event::Access) {
            let nodes = self.machines.keys().cloned().collect();
            self.tell_authorities(nodes);
        }
    }

    fn order(&mut self, nodes: BTreeSet<NodeId>, replica: &ReplicaId) {
        for node in nodes {
            let latency = self.rng.between(self.scenario.dwell.network);
            self.clock.after(latency, Due::Orders { node, replica: replica.clone() });
        }
    }

    /// A number that was not given before.
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// An operator's mistake, such as draining a node twice, is the operator's: the cell refuses it and goes on.
    fn operate(&mut self, batch: Vec<Guarded>) -> bool {
        let is_taken = !batch.is_empty() && self.apply(Writer::Operator, batch).is_ok();
        if !is_taken {
            self.refused += 1;
        }
        is_taken
    }
}
