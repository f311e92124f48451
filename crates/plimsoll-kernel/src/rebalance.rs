//! Relieves nodes that stay hot while others are cool, one replica at a time for the whole cell. It is always on, has no
//! knobs, and is biased to do nothing: a node must be hot in two cycles on end, others must be much cooler, and a move must
//! pass every gate.
//!
//! What must outlive a leader, it reads off the state: when a replica was moved or placed, when a node was last given one,
//! what is on its way. What it smooths is its own, and a new leader begins anew with two cycles.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_model::{Bytes, Guarded, MilliCpus, NodeId, Pressure, ReplicaId, State, Timestamp};
use serde::{Deserialize, Serialize};

use crate::place::Roster;
use crate::policy::Policy;

pub mod case;
pub mod ewma;
pub mod gates;
mod habit;
mod memory;
mod record;
mod score;
mod view;

#[cfg(test)]
mod tests;

pub use ewma::{Ewma, Fade};
pub use gates::{Figure, Gate, Limits};
pub use habit::Habit;
use memory::Outlook;
pub use memory::{Felt, Memory, Moving};
pub use plimsoll_model::rebalance::{Dimension, Relief, Skip, Skipped};
pub use score::Weighed;
use score::{Found, Search};
use view::{View, dominant, top};

/// What a node measured of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub at: Timestamp,
    /// Cpu and memory.
    pub pressure: [Pressure; 2],
}

/// What a replica uses: a sample, or as a [`Habit`]. A cycle wants the latter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    pub cpu: MilliCpus,
    pub memory: Bytes,
}

impl Usage {
    pub const NOTHING: Self = Self { cpu: MilliCpus(0), memory: Bytes(0) };
}

/// What was measured for one cycle. A node or replica that is missing said nothing of late.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    pub nodes: BTreeMap<NodeId, Sample>,
    pub replicas: BTreeMap<ReplicaId, Usage>,
}

/// What came of a cycle, with the numbers that decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No node is hot for long enough, or all are about as busy.
    Calm,
    Skipped(Box<Skipped>),
    Moved {
        change: Box<Guarded>,
        relief: Box<Relief>,
    },
}

/// One cycle.
pub fn cycle(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    limits: &Limits,
    readings: &Readings,
    memory: &mut Memory,
    now: Timestamp,
) -> Outcome {
    let view = View { state, roster, policy, limits, readings, now };
    let felt = look(&view, memory);
    let Some(src) = hottest(&felt, memory.nodes(), limits) else { return Outcome::Calm };
    let coolest = felt.iter().map(|it| top(it.mean)).min().unwrap_or_default();
    let here = top(felt[src].mean);
    if here.millionths() - coolest.millionths() < limits.imbalance.millionths() {
        return Outcome::Calm;
    }
    let found = Search::new(&view, memory.nodes(), &felt, src).best();
    match found {
        Found::Best { change, relief, moving } => {
            memory.expect(relief.replica.clone(), moving);
            Outcome::Moved { change, relief }
        }
        Found::Nothing(why, nearest) => {
            let (src, dominant) = (memory.nodes()[src].node.clone(), dominant(felt[src].mean));
            Outcome::Skipped(Box::new(Skipped { src, dominant, pressure: here, why, nearest }))
        }
    }
}

/// Takes in what was measured since the last cycle; what nodes will be stands in their order.
fn look(view: &View<'_>, memory: &mut Memory) -> Vec<Outlook> {
    memory.settle(view);
    memory.feed(view);
    let felt = memory.predicted();
    memory.count(&felt, view.limits);
    felt
}

/// What the gates say to moving anything off a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Weighing {
    pub node: NodeId,
    pub dominant: Dimension,
    /// Of the node: how hot, for how long, and how much hotter than the coolest.
    pub gates: Vec<Gate>,
    /// Of each replica that could leave it.
    pub candidates: Vec<Weighed>,
}

/// What the gates would say now, by what the last cycle left behind; none where nothing is known of the node.
#[expect(clippy::too_many_arguments, reason = "all that a cycle looks at")]
pub fn weigh(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    limits: &Limits,
    readings: &Readings,
    memory: &Memory,
    node: &NodeId,
    now: Timestamp,
) -> Option<Weighing> {
    let view = View { state, roster, policy, limits, readings, now };
    let at = memory.nodes().iter().position(|felt| felt.node == *node)?;
    Some(weigh_at(&view, memory, &memory.predicted(), at))
}

fn weigh_at(view: &View<'_>, memory: &Memory, felt: &[Outlook], at: usize) -> Weighing {
    let (limits, node) = (view.limits, &memory.nodes()[at]);
    let here = top(felt[at].mean);
    let coolest = felt.iter().map(|it| top(it.mean)).min().unwrap_or_default();
    let gap = Pressure::from_millionths(here.millionths() - coolest.millionths());
    let gate = |gate, found, limit, passes| Gate { gate, found, limit, passes };
    let (share, count) = (Figure::Share, Figure::Count);
    let (cycles, needed) = (node.hot, limits.trigger_cycles);
    Weighing {
        node: node.node.clone(),
        dominant: dominant(felt[at].mean),
        gates: vec![
            gate("trigger", share(here), share(limits.trigger), here >= limits.trigger),
            gate("trigger_cycles", count(cycles), count(needed), cycles >= needed),
            gate("imbalance", share(gap), share(limits.imbalance), gap >= limits.imbalance),
        ],
        candidates: Search::new(view, memory.nodes(), felt, at).weigh(),
    }
}

/// The hottest node that has been hot for long enough; of equals, by name.
fn hottest(felt: &[Outlook], nodes: &[Felt], limits: &Limits) -> Option<usize> {
    let trends = (0..nodes.len()).filter(|at| nodes[*at].hot >= limits.trigger_cycles);
    trends.max_by_key(|at| (top(felt[*at].mean), Reverse(*at)))
}
