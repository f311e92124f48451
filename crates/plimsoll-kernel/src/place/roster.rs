//! The nodes of a cell as placement sees them, in ring order, with what they hold.
//!
//! A roster is derived from state and signals alone, and kept true by following the events of each command, so
//! that a pass over one service does not walk the cell. Nodes alike in zone, labels, platform and role form a class and
//! stand next to each other in the ring; a constraint is judged once a class, not once a node.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plimsoll_model::node::{Availability, Node, NodeFacts, NodeStatus};
use plimsoll_model::preemption::Preemption;
use plimsoll_model::spec::HostPort;
use plimsoll_model::state::MAX_TENANTS;
use plimsoll_model::{
    ContainerSpec, Event, Lookup, NodeId, NodePressure, NodeRole, Pressure, ReplicaId, Resources,
    Roles, RuntimeFacts, ServiceKey, State, Zone,
};

use super::tree::{Burden, LINES, Need, Room, SlotRoom, Tree};
use crate::policy::Policy;
use crate::signals::Signals;

/// Nodes alike in all that constraints look at, but for their names.
#[derive(Debug, Clone)]
pub(crate) struct NodeClass {
    /// One node's facts stand for all; only its capacity is its own.
    pub(crate) facts: NodeFacts,
    pub(crate) role: NodeRole,
    pub(crate) zone: u32,
    pub(crate) range: Range<usize>,
    pub(crate) open: u32,
}

/// What bars a node from anything new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schedulability {
    Schedulable,
    NotReady,
    Cordoned,
    Draining,
    RuntimeUnavailable,
}

impl Schedulability {
    /// Whether also what is behind it may have to leave.
    fn may_evict(self) -> bool {
        match self {
            Self::Schedulable | Self::Cordoned => false,
            Self::NotReady | Self::Draining | Self::RuntimeUnavailable => true,
        }
    }
}

/// A node and what it holds, also what the pass under way has put there.
#[derive(Debug, Clone)]
pub(crate) struct NodeSlot {
    pub(crate) id: NodeId,
    /// Its number as a server, by which roles are given.
    server: Option<u64>,
    pub(crate) class: u32,
    pub(crate) schedulability: Schedulability,
    pub(crate) capacity: Resources,
    pub(crate) reserved: Resources,
    /// Measured, not declared; none where there is no fresh sample.
    pub(crate) pressure: Option<NodePressure>,
    pub(crate) replicas: u32,
    /// All that have an assignment here, those leaving included.
    tenants: u32,
    pub(crate) ports: Vec<(HostPort, ReplicaId)>,
    /// What is set aside for a replica that others make way for, as far as it counts against whoever is placed.
    held: Resources,
    pub(crate) held_ports: Vec<(HostPort, ReplicaId)>,
}

#[derive(Debug, Clone)]
pub struct Roster {
    pub(crate) slots: Vec<NodeSlot>,
    pub(crate) classes: Vec<NodeClass>,
    pub(crate) zones: u32,
    pub(super) tree: Tree,
    places: Lookup<NodeId, u32>,
    lines: [Pressure; 2],
    /// Nodes that may not keep what they hold: down, draining, or gone while replicas still name them.
    troubled: BTreeSet<NodeId>,
    /// What nodes say of their runtimes; there are few that differ.
    runtimes: BTreeSet<RuntimeFacts>,
    /// Slots that the running pass has written on.
    pub(super) touched: Vec<u32>,
}

/// What classes, and so the ring, are ordered by; within a class nodes stand by name.
type ClassKey<'a> =
    (&'a Option<Zone>, &'a BTreeMap<String, String>, &'a str, &'a str, &'a RuntimeFacts, NodeRole);

fn class_key(facts: &NodeFacts, role: NodeRole) -> ClassKey<'_> {
    (&facts.zone, &facts.labels, &facts.os, &facts.arch, &facts.runtime, role)
}

fn key(node: &Node, roles: Roles) -> ClassKey<'_> {
    class_key(&node.facts, roles.role(node))
}

impl Roster {
    pub fn new(state: &State, signals: &Signals, policy: &Policy) -> Self {
        let roles = Roles::of(state.nodes());
        let mut ring: Vec<(&NodeId, &Node)> = state.nodes().iter().collect();
        // Stable, and nodes come sorted by name: so each class is.
        ring.sort_by(|(_, a), (_, b)| key(a, roles).cmp(&key(b, roles)));

        let mut classes: Vec<NodeClass> = Vec::new();
        let mut slots = Vec::with_capacity(ring.len());
        for (at, (id, node)) in ring.into_iter().enumerate() {
            let last = classes.last();
            if last.is_none_or(|class| class_key(&class.facts, class.role) != key(node, roles)) {
                let zone = last
                    .map_or(0, |class| class.zone + u32::from(class.facts.zone != node.facts.zone));
                let (facts, role) = (node.facts.clone(), roles.role(node));
                classes.push(NodeClass { facts, role, zone, range: at..at, open: 0 });
            }
            let class = classes.len() - 1;
            classes[class].range.end = at + 1;
            let class = u32::try_from(class).unwrap_or(u32::MAX);
            slots.push(NodeSlot {
                id: id.clone(),
                server: node.server,
                class,
                schedulability: Schedulability::NotReady,
                capacity: Resources::NONE,
                reserved: Resources::NONE,
                pressure: signals.pressure(id),
                replicas: 0,
                tenants: 0,
                ports: Vec::new(),
                held: Resources::NONE,
                held_ports: Vec::new(),
            });
        }
        let mut troubled = BTreeSet::new();
        for slot in &mut slots {
            slot.read(state);
            classes[slot.class as usize].open +=
                u32::from(slot.schedulability == Schedulability::Schedulable);
            if slot.schedulability.may_evict() {
                troubled.insert(slot.id.clone());
            }
        }
        troubled.extend(state.loads().keys().filter(|id| state.node(id).is_none()).cloned());
        let places = (0_u32..).zip(&slots).map(|(at, slot)| (slot.id.clone(), at)).collect();
        let tree = Tree::new(slots.iter().map(|slot| slot.offer(policy.lines)));
        let zones = classes.last().map_or(0, |class| class.zone + 1);
        let (lines, touched) = (policy.lines, Vec::new());
        let runtimes = classes.iter().map(|class| class.facts.runtime.clone()).collect();
        Self { slots, classes, zones, tree, places, lines, troubled, runtimes, touched }
    }

    /// Takes in what a command changed. A node that came, went or changed class makes the ring anew; anything else
    /// costs a logarithm.
    pub fn follow(&mut self, state: &State, signals: &Signals, policy: &Policy, events: &[Event]) {
        for event in events {
            let (Event::Node(id) | Event::Load(id)) = event else { continue };
            let known = self.place_of(id);
            let moved = match (known, state.node(id)) {
                (None, None) => {
                    self.note_trouble(id, state.load(id).is_some());
                    continue;
                }
                (Some(at), Some(node)) => {
                    // Another number may change the roles of all.
                    let role = self.class_of(at).role;
                    node.server != self.slots[at].server
                        || class_key(&self.class_of(at).facts, role) != class_key(&node.facts, role)
                }
                (None, Some(_)) | (Some(_), None) => true,
            };
            if moved {
                *self = Self::new(state, signals, policy);
                return;
            }
            self.refresh(state, known.expect("a node that is nowhere was skipped"));
        }
    }

    /// Takes in a new measurement of a node, or its silence.
    pub fn feel(&mut self, node: &NodeId, pressure: Option<NodePressure>) {
        let Some(at) = self.place_of(node) else { return };
        if self.slots[at].pressure != pressure {
            self.slots[at].pressure = pressure;
            self.show(at);
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn place_of(&self, node: &NodeId) -> Option<usize> {
        self.places.get(node).map(|at| at as usize)
    }

    /// The node's zone and its place in the ring; nodes that are gone share one place beyond all others.
    pub(crate) fn zone_and_place(&self, node: &NodeId) -> (usize, usize) {
        match self.place_of(node) {
            Some(at) => (self.class_of(at).zone as usize, at),
            None => (usize::MAX, usize::MAX),
        }
    }

    pub(crate) fn id_at(&self, at: usize) -> &NodeId {
        &self.slots[at].id
    }

    pub(crate) fn is_up(&self, at: usize) -> bool {
        self.slots[at].schedulability != Schedulability::NotReady
    }

    /// Whether no runtime in the cell lacks anything that the container needs.
    pub(crate) fn all_runtimes_can_run(&self, container: &ContainerSpec) -> bool {
        self.runtimes.iter().all(|runtime| container.lacking(runtime).is_none())
    }

    pub(crate) fn class_of(&self, at: usize) -> &NodeClass {
        &self.classes[self.slots[at].class as usize]
    }

    /// Writes a replica onto a slot until [`forget_pass`](Self::forget_pass).
    pub(crate) fn take(
        &mut self,
        at: usize,
        request: Resources,
        ports: &[HostPort],
        replica: &ReplicaId,
    ) {
        self.touched.push(u32::try_from(at).unwrap_or(u32::MAX));
        let slot = &mut self.slots[at];
        slot.reserved = slot.reserved.plus(request);
        slot.replicas += 1;
        slot.tenants += 1;
        slot.ports.extend(ports.iter().map(|port| (*port, replica.clone())));
    }

    /// A replica's new copy takes the place of its old one until [`forget_pass`](Self::forget_pass): only what it asks for
    /// more than that counts.
    pub(crate) fn renew(
        &mut self,
        at: usize,
        raised: Resources,
        ports: &[HostPort],
        replica: &ReplicaId,
    ) {
        self.touched.push(u32::try_from(at).unwrap_or(u32::MAX));
        let slot = &mut self.slots[at];
        slot.reserved = slot.reserved.plus(raised);
        slot.ports.extend(ports.iter().map(|port| (*port, replica.clone())));
    }

    /// Takes a replica off a slot until [`forget_pass`](Self::forget_pass).
    pub(crate) fn give_up(&mut self, at: usize, request: Resources, replica: &ReplicaId) {
        self.touched.push(u32::try_from(at).unwrap_or(u32::MAX));
        let slot = &mut self.slots[at];
        slot.reserved = slot.reserved.minus(request);
        slot.replicas = slot.replicas.saturating_sub(1);
        slot.ports.retain(|(_, holder)| holder != replica);
    }

    /// One replica fewer runs there, though what it set aside stays until it has stopped.
    pub(crate) fn end_one(&mut self, node: &NodeId) {
        let Some(at) = self.place_of(node) else { return };
        self.touched.push(u32::try_from(at).unwrap_or(u32::MAX));
        self.slots[at].replicas = self.slots[at].replicas.saturating_sub(1);
        self.show(at);
    }

    /// What is held on the node from now on, until [`forget_pass`](Self::forget_pass).
    pub(crate) fn hold(&mut self, at: usize, preemption: Option<&Preemption>) {
        self.touched.push(u32::try_from(at).unwrap_or(u32::MAX));
        self.slots[at].hold(preemption);
        self.show(at);
    }

    /// What would be found with these replicas gone from the node. All is as before afterwards.
    pub(crate) fn without<T>(
        &mut self,
        at: usize,
        gone: &[(Resources, ReplicaId)],
        find: impl FnOnce(&Self) -> T,
    ) -> T {
        let before = self.slots[at].clone();
        let slot = &mut self.slots[at];
        for (request, replica) in gone {
            slot.reserved = slot.reserved.minus(*request);
            slot.ports.retain(|(_, holder)| holder != replica);
        }
        let found = find(self);
        self.slots[at] = before;
        found
    }

    pub(crate) fn reserved_at(&self, at: usize) -> Resources {
        self.slots[at].reserved
    }

    pub(crate) fn capacity_at(&self, at: usize) -> Resources {
        self.slots[at].capacity
    }

    /// Takes back what the pass wrote: what it decided becomes true only once the command is applied.
    pub(crate) fn forget_pass(&mut self, state: &State) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for at in touched.drain(..) {
            self.refresh(state, at as usize);
        }
        self.touched = touched;
    }

    fn refresh(&mut self, state: &State, at: usize) {
        let before = self.slots[at].schedulability;
        self.slots[at].read(state);
        let schedulability = self.slots[at].schedulability;
        if before.may_evict() != schedulability.may_evict() {
            let id = self.slots[at].id.clone();
            self.note_trouble(&id, schedulability.may_evict());
        }
        let (was_open, is_open) =
            (before == Schedulability::Schedulable, schedulability == Schedulability::Schedulable);
        let class = &mut self.classes[self.slots[at].class as usize];
        class.open = class.open + u32::from(is_open) - u32::from(was_open);
        self.show(at);
    }

    fn note_trouble(&mut self, id: &NodeId, is_troubled: bool) {
        if is_troubled {
            self.troubled.insert(id.clone());
        } else {
            self.troubled.remove(id);
        }
    }

    /// The services of which something is on a node that may not keep it.
    pub(crate) fn disturbed<'s>(&self, state: &'s State) -> BTreeSet<&'s ServiceKey> {
        let loads = self.troubled.iter().filter_map(|node| state.load(node));
        loads.flat_map(|load| &load.tenants).map(|replica| &replica.service).collect()
    }

    /// The node takes nothing new, as far as this roster goes.
    pub(crate) fn close_to_new(&mut self, at: usize) {
        if self.slots[at].schedulability == Schedulability::Schedulable {
            self.slots[at].schedulability = Schedulability::Cordoned;
            self.classes[self.slots[at].class as usize].open -= 1;
            self.show(at);
        }
    }

    /// The same nodes by other measurements, and with another first line of headroom.
    pub(crate) fn seen_by(
        &self,
        pressure: impl Fn(&NodeId) -> Option<NodePressure>,
        first_line: Option<Pressure>,
    ) -> Self {
        let mut roster = self.clone();
        for slot in &mut roster.slots {
            slot.pressure = pressure(&slot.id);
        }
        if let Some(first) = first_line {
            roster.lines = [first, first.max(roster.lines[1])];
        }
        let tree = Tree::new(roster.slots.iter().map(|slot| slot.offer(roster.lines)));
        roster.tree = tree;
        roster
    }

    pub(crate) fn show(&mut self, at: usize) {
        self.tree.set(at, self.slots[at].offer(self.lines));
    }

    pub(super) fn hide(&mut self, at: usize) {
        let offer = self.tree.get(at).masked();
        self.tree.set(at, offer);
    }

    /// Which headroom line the node stays below with the need added: 0, 1, or 2 for neither.
    pub(super) fn band(&self, at: usize, need: &Need) -> u16 {
        band(&self.slots[at].rooms(self.lines), need)
    }

    /// The same of a node that has so much set aside, and nothing added.
    pub(crate) fn band_with(&self, at: usize, reserved: Resources) -> u16 {
        let rooms = self.slots[at].rooms_with(self.lines, reserved);
        band(&rooms, &Need::NONE)
    }
}

impl NodeSlot {
    /// How finely [`room_left`](Self::room_left) tells nodes apart.
    const PARTS: u8 = 5;
    /// What a node has left that runs nothing.
    pub(super) const EMPTY: u8 = Self::PARTS + 1;

    fn read(&mut self, state: &State) {
        let (schedulability, capacity) = match state.node(&self.id) {
            None => (Schedulability::NotReady, Resources::NONE),
            Some(node) => (schedulability(node), node.facts.capacity),
        };
        (self.schedulability, self.capacity) = (schedulability, capacity);
        self.ports.clear();
        (self.reserved, self.replicas, self.tenants) = match state.load(&self.id) {
            None => (Resources::NONE, 0, 0),
            Some(load) => {
                self.ports.extend(load.ports.iter().cloned());
                let tenants = u32::try_from(load.tenants.len()).unwrap_or(u32::MAX);
                (load.reserved, load.replicas, tenants)
            }
        };
        self.hold(state.preemptions().in_flight().get(&self.id));
    }

    fn hold(&mut self, preemption: Option<&Preemption>) {
        self.held = preemption.map_or(Resources::NONE, |it| it.request);
        self.held_ports.clear();
        if let Some(it) = preemption {
            self.held_ports.extend(it.ports.iter().map(|port| (*port, it.by.clone())));
        }
    }

    /// What nobody else can have: what is reserved, and as much of the rest as is held. Holding never makes a node fuller than
    /// full, or it would turn away even those that ask for nothing.
    pub(super) fn taken(&self) -> Resources {
        if self.held == Resources::NONE {
            return self.reserved;
        }
        let (capacity, reserved) = (self.capacity, self.reserved.on(self.capacity));
        let wished = reserved.plus(self.held.on(capacity));
        Resources {
            cpu: wished.cpu.min(capacity.cpu).max(reserved.cpu),
            memory: wished.memory.min(capacity.memory).max(reserved.memory),
            gpus: wished.gpus.min(capacity.gpus).max(reserved.gpus),
            all_gpus: 0,
        }
    }

    fn rooms(&self, lines: [Pressure; 2]) -> [Room; LINES] {
        self.rooms_with(lines, self.taken())
    }

    fn rooms_with(&self, lines: [Pressure; 2], reserved: Resources) -> [Room; LINES] {
        let [below_first, below_second] = lines.map(|line| Room {
            cpu: room(
                line,
                self.capacity.cpu.0,
                reserved.cpu.0,
                self.pressure.map(|measured| measured.cpu),
            ),
            memory: room(
                line,
                self.capacity.memory.0,
                reserved.memory.0,
                self.pressure.map(|measured| measured.memory),
            ),
        });
        // The last line is the capacity filter: declared reservations alone.
        let whole = Room {
            cpu: signed(self.capacity.cpu.0) - signed(reserved.cpu.0),
            memory: signed(self.capacity.memory.0) - signed(reserved.memory.0),
        };
        // Below a line one also has to fit in the whole.
        let within = |room: Room| Room {
            cpu: room.cpu.min(whole.cpu),
            memory: room.memory.min(whole.memory),
        };
        [within(below_first), within(below_second), whole]
    }

    /// What is not set aside.
    pub(super) fn free(&self) -> Resources {
        self.capacity.minus(self.taken().on(self.capacity))
    }

    /// How many assignments it holds, where that is as many as a node may.
    pub(super) fn full_of_replicas(&self) -> Option<u32> {
        (self.tenants as usize >= MAX_TENANTS).then_some(self.tenants)
    }

    /// What it is compared by with nodes that are otherwise equal.
    pub(super) fn burden(&self) -> Burden {
        // Who says nothing comes last: silence is not idleness.
        let pressure = self.pressure.map_or(u32::MAX, |pressure| pressure.top().millionths());
        Burden { replicas: self.replicas, pressure }
    }

    fn offer(&self, lines: [Pressure; 2]) -> SlotRoom {
        if self.schedulability != Schedulability::Schedulable {
            return SlotRoom::NONE;
        }
        let reserved_gpus = self.taken().on(self.capacity).gpus;
        let offer = SlotRoom {
            rooms: self.rooms(lines),
            gpus: i64::from(self.capacity.gpus) - i64::from(reserved_gpus),
            has_all_gpus: self.capacity.gpus > 0 && reserved_gpus == 0,
            open: 1,
            burden: self.burden(),
            room_left: self.room_left(),
        };
        if self.full_of_replicas().is_some() { offer.masked() } else { offer }
    }

    /// How much of the node is left, by what is reserved: the least that is free of any dimension, in parts of the whole. What
    /// runs nothing at all has more than any that does. In coarse steps, so that within one the first by name is filled before
    /// the next: what is fullest by a hair changes with every replica that ends, and new ones would go everywhere.
    pub(crate) fn room_left(&self) -> u8 {
        if self.replicas == 0 {
            return Self::EMPTY;
        }
        let reserved = self.reserved.on(self.capacity);
        let dimensions = [
            (reserved.cpu.0, self.capacity.cpu.0),
            (reserved.memory.0, self.capacity.memory.0),
            (reserved.gpus.into(), self.capacity.gpus.into()),
        ];
        let parts = dimensions.into_iter().filter(|(_, capacity)| *capacity > 0);
        let left = parts.map(|(reserved, capacity)| {
            let free = u128::from(capacity.saturating_sub(reserved));
            free * u128::from(Self::PARTS) / u128::from(capacity)
        });
        left.min().map_or(Self::PARTS, |left| u8::try_from(left).unwrap_or(Self::PARTS))
    }
}

fn band(rooms: &[Room; LINES], need: &Need) -> u16 {
    match rooms.iter().position(|room| room.holds(need)) {
        Some(0) => 0,
        Some(1) => 1,
        _ => 2,
    }
}

/// How much can be added so that reserved and measured use both stay strictly below the line.
fn room(line: Pressure, capacity: u64, reserved: u64, measured: Option<Pressure>) -> i64 {
    let amount = |part: Pressure| u128::from(capacity) * u128::from(part.millionths());
    let amount = |part: Pressure| amount(part).div_ceil(1_000_000);
    let (line, used) = (amount(line), measured.map_or(0, amount));
    let taken = used.max(reserved.into());
    i64::try_from(line).unwrap_or(i64::MAX) - i64::try_from(taken).unwrap_or(i64::MAX) - 1
}

fn schedulability(node: &Node) -> Schedulability {
    match (node.status, node.availability) {
        (NodeStatus::Down, _) => Schedulability::NotReady,
        (NodeStatus::Ready, Availability::Draining) => Schedulability::Draining,
        (NodeStatus::Ready, _) if node.outage.is_some() => Schedulability::RuntimeUnavailable,
        (NodeStatus::Ready, Availability::Active) => Schedulability::Schedulable,
        (NodeStatus::Ready, Availability::Cordoned) => Schedulability::Cordoned,
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
