//! What a leader keeps from cycle to cycle: the means of each node, for how long it has been hot, and what was on its way
//! when it last looked. None of it is replicated: a new leader begins anew, and waits for two cycles like any other.

use std::collections::BTreeMap;
use std::iter::Peekable;

use plimsoll_model::{Node, NodeId, NodePressure, NodeStatus, Pressure, ReplicaId};

use super::ewma::{Decay, SmoothedPressure};
use super::gates::RebalanceLimits;
use super::view::CycleInputs;

/// It holds a row of 88 bytes for each node, sorted as the state sorts them, and shares the names with the state: a cycle
/// walks both side by side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RebalanceMemory {
    nodes: Vec<NodeTrend>,
    moving: BTreeMap<ReplicaId, MoveInFlight>,
}

/// How a node has been of late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTrend {
    pub node: NodeId,
    pub mean: SmoothedPressure,
    /// What the mean has reached; it fades.
    pub peak: SmoothedPressure,
    /// In how many cycles on end it has been hot.
    pub hot: u32,
    /// It spoke since the cycle before.
    is_news: bool,
}

impl NodeTrend {
    pub fn new(node: NodeId, mean: SmoothedPressure, peak: SmoothedPressure, hot: u32) -> Self {
        Self { node, mean, peak, hot, is_news: false }
    }
}

/// How busy a node is, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLevels<'m> {
    pub node: &'m NodeId,
    pub smoothed: NodePressure,
    /// With every move under way counted as if it were done.
    pub predicted: NodePressure,
}

/// A node once all that is under way is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PredictedPressure {
    /// What a source is judged by.
    pub(super) mean: NodePressure,
    /// What a destination is judged by.
    pub(super) peak: NodePressure,
}

impl PredictedPressure {
    fn of(trend: &NodeTrend) -> Self {
        Self { mean: trend.mean.value(), peak: trend.peak.value() }
    }

    fn give(&mut self, off: NodePressure) {
        self.mean = self.mean.minus(off);
    }

    fn take(&mut self, on: NodePressure) {
        (self.mean, self.peak) = (self.mean.plus(on), self.peak.plus(on));
    }
}

/// A move under way, or decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveInFlight {
    pub src: NodeId,
    pub dst: NodeId,
    /// What it takes from the one and brings to the other.
    pub off: NodePressure,
    pub on: NodePressure,
}

impl RebalanceMemory {
    /// A memory as it was when someone wrote it down.
    pub fn recall(mut nodes: Vec<NodeTrend>, moving: BTreeMap<ReplicaId, MoveInFlight>) -> Self {
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        nodes.dedup_by(|one, other| one.node == other.node);
        Self { nodes, moving }
    }

    /// By name.
    pub fn nodes(&self) -> &[NodeTrend] {
        &self.nodes
    }

    pub fn moving(&self) -> &BTreeMap<ReplicaId, MoveInFlight> {
        &self.moving
    }

    /// Takes in what was measured. A node that is silent, down or gone is forgotten: when it speaks again it begins anew.
    pub(super) fn feed(&mut self, view: &CycleInputs<'_>) {
        let mut decay = Decay::new(view.limits.window);
        let mut peak_decay = Decay::new(view.limits.peak_window);
        let mut known = std::mem::take(&mut self.nodes).into_iter().peekable();
        let mut rows = view.state.nodes().iter().peekable();
        self.nodes.reserve_exact(view.readings.nodes.len());
        for (node, sample) in &view.readings.nodes {
            let row = meet(&mut rows, node, |(id, _)| id);
            let trend = meet(&mut known, node, |trend| &trend.node);
            // Without its container runtime it neither takes anything nor can stop what it gave away.
            let takes_part = |row: &Node| row.status == NodeStatus::Ready && row.outage.is_none();
            let Some((id, _)) = row.filter(|(_, row)| takes_part(row)) else { continue };
            if !sample.is_fresh(view.policy, view.now) {
                continue;
            }
            // Nothing is more than full: what a sample has beyond that, it owes to when its counters were read.
            let pressure = sample.pressure.map(|it| it.min(Pressure::FULL));
            let Some(mut trend) = trend else {
                let mean = SmoothedPressure::seed(sample.at, pressure);
                let (node, peak, hot) = (id.clone(), mean, 0);
                self.nodes.push(NodeTrend { node, mean, peak, hot, is_news: true });
                continue;
            };
            trend.is_news = sample.at > trend.mean.at();
            trend.mean.take_in(sample.at, pressure, &mut decay);
            trend.peak.peak_of(&trend.mean, &mut peak_decay);
            self.nodes.push(trend);
        }
    }

    /// Moves that ended since the last cycle are taken into the means: these lag, and would order the same move again.
    pub(super) fn settle(&mut self, view: &CycleInputs<'_>) {
        let now_moving = view.moving();
        for (replica, moved) in std::mem::take(&mut self.moving) {
            let row = view.state.replica(&replica).filter(|row| row.successor.is_none());
            let at = row.and_then(|row| row.assignment.as_ref());
            if at.is_some_and(|at| at.node == moved.dst) {
                self.give(&moved.src, moved.off);
                self.take(&moved.dst, moved.on);
            }
        }
        self.moving = now_moving;
    }

    /// A move may begin and end before the next cycle looks.
    pub(super) fn expect(&mut self, replica: ReplicaId, moving: MoveInFlight) {
        self.moving.insert(replica, moving);
    }

    /// What the node has reached stays: that it gave something away makes it no destination. One that was asked for more than
    /// it has can give a lot and still be full.
    fn give(&mut self, node: &NodeId, off: NodePressure) {
        if let Some(at) = self.place_of(node) {
            self.nodes[at].mean.give(off);
        }
    }

    fn take(&mut self, node: &NodeId, on: NodePressure) {
        if let Some(at) = self.place_of(node) {
            self.nodes[at].mean.take(on);
            self.nodes[at].peak.take(on);
        }
    }

    /// How busy each node is, smoothed, and how busy it will be once all that is under way is done.
    pub(super) fn levels(&self) -> impl Iterator<Item = NodeLevels<'_>> {
        self.nodes.iter().zip(self.predicted()).map(|(trend, predicted)| NodeLevels {
            node: &trend.node,
            smoothed: trend.mean.value(),
            predicted: predicted.mean,
        })
    }

    /// In the order of the nodes, with every move under way counted at both ends as if it were done.
    pub(super) fn predicted(&self) -> Vec<PredictedPressure> {
        let mut predicted: Vec<PredictedPressure> =
            self.nodes.iter().map(PredictedPressure::of).collect();
        for moving in self.moving.values() {
            if let Some(at) = self.place_of(&moving.src) {
                predicted[at].give(moving.off);
            }
            if let Some(at) = self.place_of(&moving.dst) {
                predicted[at].take(moving.on);
            }
        }
        predicted
    }

    /// One hot cycle is a spike; several on end are a trend. A sample that was counted before says nothing new.
    pub(super) fn count(&mut self, predicted: &[PredictedPressure], limits: &RebalanceLimits) {
        for (kept, now) in self.nodes.iter_mut().zip(predicted) {
            if now.mean.top() < limits.trigger {
                kept.hot = 0;
            } else if kept.is_news {
                kept.hot = kept.hot.saturating_add(1);
            }
        }
    }

    pub(super) fn trend(&self, node: &NodeId) -> Option<&NodeTrend> {
        self.place_of(node).map(|at| &self.nodes[at])
    }

    fn place_of(&self, node: &NodeId) -> Option<usize> {
        self.nodes.binary_search_by(|trend| trend.node.cmp(node)).ok()
    }
}

/// Goes on to the node in a list that is sorted by node.
pub(super) fn meet<T>(
    list: &mut Peekable<impl Iterator<Item = T>>,
    node: &NodeId,
    name: impl Fn(&T) -> &NodeId,
) -> Option<T> {
    while list.next_if(|it| name(it) < node).is_some() {}
    list.next_if(|it| name(it) == node)
}
