//! What every node will hold once all that is under way is done, and which nodes may be sent something now.
//!
//! A roster counts a replica that moves at both ends, which is right for room and wrong for shares.

use plimsoll_model::{
    Mode, NodePressure, Pressure, Replica, Resources, ServiceSpec, State, Timestamp,
};

use crate::place::Roster;
use crate::policy::Policy;
use crate::rebalance::Rebalancer;

#[derive(Debug)]
pub(super) struct NodeShares {
    /// In the order of the roster.
    nodes: Vec<NodeShare>,
    target: Option<Pressure>,
    /// When the newest node opened that may be sent something.
    newest: Option<Timestamp>,
    /// The least that such nodes hold: reserved, and in replicas.
    least: (Pressure, u32),
    /// The nodes that take anything new at all.
    pub(super) open: usize,
}

#[derive(Debug, Clone, Copy)]
struct NodeShare {
    capacity: Resources,
    reserved: Resources,
    replicas: u32,
    /// Since when it is open, of a node that may be sent something.
    open_since: Option<Timestamp>,
    /// How many more it may be sent now; none while it rests.
    room: u32,
}

impl NodeShare {
    fn top(&self, reserved: Resources) -> Pressure {
        let share = NodePressure {
            cpu: Pressure::of(reserved.cpu.0, self.capacity.cpu.0),
            memory: Pressure::of(reserved.memory.0, self.capacity.memory.0),
        };
        share.top()
    }
}

impl NodeShares {
    /// Closes every node of the roster that is not to be considered: it came back a moment ago, or is busy. One that was
    /// just sent something stays the best there is, and is waited for: the second best would be a move too many.
    pub(super) fn new(
        state: &State,
        roster: &mut Roster,
        policy: &Policy,
        measured: &Rebalancer,
        now: Timestamp,
    ) -> Self {
        let nodes = roster.slots.iter().map(|slot| NodeShare {
            capacity: slot.capacity,
            reserved: Resources::NONE,
            replicas: 0,
            open_since: None,
            room: 0,
        });
        let least = (Pressure::from_millionths(u32::MAX), u32::MAX);
        let target = state.rescheduling().target;
        let mut shares = Self { nodes: nodes.collect(), target, newest: None, least, open: 0 };
        shares.count(state, roster);
        let total: u32 = shares.nodes.iter().map(|node| node.replicas).sum();
        shares.open = state.nodes().values().filter(|node| node.is_open()).count();
        let fair = total.div_ceil(u32::try_from(shares.open.max(1)).unwrap_or(u32::MAX));
        let room = policy.reschedule.at_a_time(fair);
        for at in 0..roster.len() {
            let id = roster.id_at(at);
            let may_receive = state.node(id).filter(|node| {
                node.is_open()
                    && policy.reschedule.distrust(node, now).0 == 0
                    && measured.stays_cool(policy, id, NodePressure::default())
            });
            let Some(node) = may_receive else {
                roster.close_to_new(at);
                continue;
            };
            let since = node.open_since;
            let rests = |at: Timestamp| now.since(at) < policy.rebalance.cooldown_node;
            shares.nodes[at].open_since = Some(since);
            if node.received_at.is_some_and(rests) {
                continue;
            }
            shares.nodes[at].room = room;
            shares.newest = shares.newest.max(Some(since));
            let share = &shares.nodes[at];
            let (reserved, replicas) = (share.top(share.reserved), share.replicas);
            shares.least = (shares.least.0.min(reserved), shares.least.1.min(replicas));
        }
        shares
    }

    /// Where each replica is, or will be once its move ends.
    fn count(&mut self, state: &State, roster: &Roster) {
        for service in state.services().values() {
            for heading in service.replicas.values().filter_map(Replica::heading) {
                let Some(at) = roster.place_of(&heading.node) else { continue };
                let request = service.spec_of(heading).map_or(Resources::NONE, |it| it.request());
                let share = &mut self.nodes[at];
                share.reserved = share.reserved.plus(request);
                share.replicas += 1;
            }
        }
    }

    /// Whether the node holds more than it has.
    pub(super) fn is_overfull(&self, at: usize) -> bool {
        !self.nodes[at].reserved.fits_in(self.nodes[at].capacity)
    }

    /// The share of the node that is reserved.
    pub(super) fn reserved(&self, at: usize) -> Pressure {
        self.nodes[at].top(self.nodes[at].reserved)
    }

    /// How many replicas the node has.
    pub(super) fn replicas(&self, at: usize) -> u32 {
        self.nodes[at].replicas
    }

    /// The same with one replica fewer, and with one more.
    pub(super) fn without(&self, at: usize, spec: &ServiceSpec) -> Pressure {
        self.nodes[at].top(self.nodes[at].reserved.minus(spec.request()))
    }

    pub(super) fn with(&self, at: usize, spec: &ServiceSpec) -> Pressure {
        self.nodes[at].top(self.nodes[at].reserved.plus(spec.request()))
    }

    /// Whether some node that opened after the replica was placed could be worth filling with it, at a quick look.
    pub(super) fn may_fill(&self, src: usize, spec: &ServiceSpec, placed: Timestamp) -> bool {
        // What is packed stays packed: a node is not filled with it.
        let is_packed = matches!(spec.placement.mode, Mode::Binpack { .. });
        if is_packed || self.newest.is_none_or(|newest| newest <= placed) {
            return false;
        }
        match (asks_for_something(spec), self.target) {
            (false, _) => self.nodes[src].replicas >= self.least.1.saturating_add(2),
            (true, None) => self.without(src, spec) > self.least.0,
            (true, Some(target)) => self.reserved(src) > target,
        }
    }

    /// Whether the node opened after the replica was placed, and gets no more than its share with it: no more than what
    /// the source has left, or than the target.
    pub(super) fn fills(
        &self,
        src: usize,
        dst: usize,
        spec: &ServiceSpec,
        placed: Timestamp,
    ) -> bool {
        if self.nodes[dst].open_since.is_none_or(|since| since <= placed) {
            return false;
        }
        match (asks_for_something(spec), self.target) {
            (false, _) => self.nodes[src].replicas >= self.nodes[dst].replicas.saturating_add(2),
            (true, None) => self.with(dst, spec) <= self.without(src, spec),
            (true, Some(target)) => self.reserved(src) > target && self.with(dst, spec) <= target,
        }
    }

    /// Whether the node may be sent something now.
    pub(super) fn may_receive(&self, at: usize) -> bool {
        self.nodes[at].room > 0
    }

    /// A replica goes from one to the other.
    pub(super) fn pass_on(&mut self, src: usize, dst: usize, spec: &ServiceSpec) {
        let request = spec.request();
        let from = &mut self.nodes[src];
        from.reserved = from.reserved.minus(request);
        from.replicas = from.replicas.saturating_sub(1);
        let to = &mut self.nodes[dst];
        to.reserved = to.reserved.plus(request);
        to.replicas += 1;
        to.room = to.room.saturating_sub(1);
    }
}

fn asks_for_something(spec: &ServiceSpec) -> bool {
    let request = spec.request();
    request.cpu.0 > 0 || request.memory.0 > 0
}
