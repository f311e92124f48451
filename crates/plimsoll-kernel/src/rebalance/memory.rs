//! What a leader keeps from cycle to cycle: the means of each node, for how long it has been hot, and what was on its way
//! when it last looked. None of it is replicated: a new leader begins anew, and waits for two cycles like any other.

use std::collections::BTreeMap;
use std::iter::Peekable;

use plimsoll_model::{NodeId, NodeStatus, Pressure, ReplicaId};
use serde::{Deserialize, Serialize};

use super::ewma::{Ewma, Fade};
use super::gates::Limits;
use super::view::{View, less, more, top};

/// It holds a row of 88 bytes for each node, sorted as the state sorts them, and shares the names with the state: a cycle
/// walks both side by side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    nodes: Vec<Felt>,
    moving: BTreeMap<ReplicaId, Moving>,
}

/// How a node has been of late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Felt {
    pub node: NodeId,
    /// Of cpu and memory.
    pub means: [Ewma; 2],
    /// What the means have reached; it fades.
    pub crests: [Ewma; 2],
    /// In how many cycles on end it has been hot.
    pub hot: u32,
    /// It spoke since the cycle before.
    is_news: bool,
}

impl Felt {
    pub fn new(node: NodeId, means: [Ewma; 2], crests: [Ewma; 2], hot: u32) -> Self {
        Self { node, means, crests, hot, is_news: false }
    }
}

/// A node once all that is under way is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outlook {
    /// What a source is judged by.
    pub(super) mean: [Pressure; 2],
    /// What a destination is judged by.
    pub(super) crest: [Pressure; 2],
}

impl Outlook {
    fn of(felt: &Felt) -> Self {
        let value = |all: &[Ewma; 2]| all.map(|it| it.value());
        Self { mean: value(&felt.means), crest: value(&felt.crests) }
    }

    fn give(&mut self, off: [Pressure; 2]) {
        self.mean = less(self.mean, off);
    }

    fn take(&mut self, on: [Pressure; 2]) {
        (self.mean, self.crest) = (more(self.mean, on), more(self.crest, on));
    }
}

/// A move under way, or decided on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moving {
    pub src: NodeId,
    pub dst: NodeId,
    /// What it takes from the one, of cpu and memory, and brings to the other.
    pub off: [Pressure; 2],
    pub on: [Pressure; 2],
}

impl Memory {
    /// A memory as it was when someone wrote it down.
    pub fn recall(mut nodes: Vec<Felt>, moving: BTreeMap<ReplicaId, Moving>) -> Self {
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        nodes.dedup_by(|one, other| one.node == other.node);
        Self { nodes, moving }
    }

    /// By name.
    pub fn nodes(&self) -> &[Felt] {
        &self.nodes
    }

    pub fn moving(&self) -> &BTreeMap<ReplicaId, Moving> {
        &self.moving
    }

    /// Takes in what was measured. A node that is silent, down or gone is forgotten: when it speaks again it begins anew.
    pub(super) fn feed(&mut self, view: &View<'_>) {
        let mut fade = Fade::new(view.limits.window);
        let mut fade_crest = Fade::new(view.limits.crest_window);
        let mut known = std::mem::take(&mut self.nodes).into_iter().peekable();
        let mut rows = view.state.nodes().iter().peekable();
        self.nodes.reserve_exact(view.readings.nodes.len());
        for (node, sample) in &view.readings.nodes {
            let row = meet(&mut rows, node, |(id, _)| id);
            let felt = meet(&mut known, node, |felt| &felt.node);
            let Some((id, _)) = row.filter(|(_, row)| row.status == NodeStatus::Ready) else {
                continue;
            };
            if view.now.since(sample.at) > view.limits.stale_after {
                continue;
            }
            // Nothing is more than full: what a sample has beyond that, it owes to when its counters were read.
            let pressure = sample.pressure.map(|it| it.min(Pressure::FULL));
            let Some(mut felt) = felt else {
                let means = pressure.map(|it| Ewma::seed(sample.at, it));
                let (node, crests, hot) = (id.clone(), means, 0);
                self.nodes.push(Felt { node, means, crests, hot, is_news: true });
                continue;
            };
            felt.is_news = sample.at > felt.means[0].at();
            for (mean, it) in felt.means.iter_mut().zip(pressure) {
                mean.take_in(sample.at, it, &mut fade);
            }
            for (crest, mean) in felt.crests.iter_mut().zip(&felt.means) {
                crest.crest_of(mean, &mut fade_crest);
            }
            self.nodes.push(felt);
        }
    }

    /// Moves that ended since the last cycle are taken into the means: these lag, and would order the same move again.
    pub(super) fn settle(&mut self, view: &View<'_>) {
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
    pub(super) fn expect(&mut self, replica: ReplicaId, moving: Moving) {
        self.moving.insert(replica, moving);
    }

    /// What the node has reached stays: that it gave something away makes it no destination. One that was asked for more than
    /// it has can give a lot and still be full.
    fn give(&mut self, node: &NodeId, off: [Pressure; 2]) {
        if let Some(at) = self.place_of(node) {
            shift(&mut self.nodes[at].means, off, -1);
        }
    }

    fn take(&mut self, node: &NodeId, on: [Pressure; 2]) {
        if let Some(at) = self.place_of(node) {
            shift(&mut self.nodes[at].means, on, 1);
            shift(&mut self.nodes[at].crests, on, 1);
        }
    }

    /// In the order of the nodes, with every move under way counted at both ends as if it were done.
    pub(super) fn predicted(&self) -> Vec<Outlook> {
        let mut felt: Vec<Outlook> = self.nodes.iter().map(Outlook::of).collect();
        for moving in self.moving.values() {
            if let Some(at) = self.place_of(&moving.src) {
                felt[at].give(moving.off);
            }
            if let Some(at) = self.place_of(&moving.dst) {
                felt[at].take(moving.on);
            }
        }
        felt
    }

    /// One hot cycle is a spike; several on end are a trend. A sample that was counted before says nothing new.
    pub(super) fn count(&mut self, felt: &[Outlook], limits: &Limits) {
        for (kept, felt) in self.nodes.iter_mut().zip(felt) {
            if top(felt.mean) < limits.trigger {
                kept.hot = 0;
            } else if kept.is_news {
                kept.hot = kept.hot.saturating_add(1);
            }
        }
    }

    fn place_of(&self, node: &NodeId) -> Option<usize> {
        self.nodes.binary_search_by(|felt| felt.node.cmp(node)).ok()
    }
}

fn shift(all: &mut [Ewma; 2], by: [Pressure; 2], sign: i64) {
    for (it, by) in all.iter_mut().zip(by) {
        it.shift(sign * i64::from(by.millionths()));
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
