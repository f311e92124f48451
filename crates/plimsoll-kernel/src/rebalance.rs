//! Relieves nodes that stay hot while others are cool, one replica at a time for the whole cell. It is always on, has no
//! knobs, and is biased to do nothing: a node must be hot in two cycles on end, others must be much cooler, and a move must
//! pass every gate.
//!
//! What must outlive a leader, it reads off the state: when a replica was moved or placed, when a node was last given one,
//! what is on its way. What it smooths is its own, and a new leader begins anew with two cycles.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_model::{Bytes, Guarded, MilliCpus, NodeId, Pressure, ReplicaId, State, Timestamp};

use crate::place::Roster;
use crate::policy::Policy;

pub mod ewma;
mod explain;
pub mod gates;
mod habit;
mod memory;
mod record;
mod score;
mod view;

#[cfg(test)]
mod tests;

pub use ewma::{Ewma, Fade};
pub use explain::{Account, Weighed, account};
pub use gates::{Gate, Limits};
pub use habit::Habit;
use memory::Outlook;
pub use memory::{Felt, Memory, Moving};
pub use plimsoll_model::rebalance::{Dimension, Skip};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    Skipped {
        src: NodeId,
        dominant: Dimension,
        pressure: Pressure,
        why: Skip,
        /// The best move that was weighed, though a gate said no to it.
        nearest: Option<Box<Relief>>,
    },
    Moved(Box<Relief>),
}

/// A move and what it brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relief {
    pub change: Guarded,
    pub replica: ReplicaId,
    pub src: NodeId,
    pub dst: NodeId,
    pub dominant: Dimension,
    pub relief: Pressure,
    /// Relief less the cost of a move, in millionths.
    pub score: i64,
    pub src_before: Pressure,
    pub src_after: Pressure,
    pub dst_before: Pressure,
    pub dst_after: Pressure,
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
    memory.settle(&view);
    memory.feed(&view);
    let felt = memory.predicted();
    memory.count(&felt, limits);
    let Some(src) = hottest(&felt, memory.nodes(), limits) else { return Outcome::Calm };
    let coolest = felt.iter().map(|it| top(it.mean)).min().unwrap_or_default();
    let here = top(felt[src].mean);
    if here.millionths() - coolest.millionths() < limits.imbalance.millionths() {
        return Outcome::Calm;
    }
    let found = Search::new(&view, memory.nodes(), &felt, src).best();
    match found {
        Found::Best(relief, moving) => {
            memory.expect(relief.replica.clone(), moving);
            Outcome::Moved(relief)
        }
        Found::Nothing(why, nearest) => {
            let (node, dominant) = (memory.nodes()[src].node.clone(), dominant(felt[src].mean));
            Outcome::Skipped { src: node, dominant, pressure: here, why, nearest }
        }
    }
}

/// The hottest node that has been hot for long enough; of equals, by name.
fn hottest(felt: &[Outlook], nodes: &[Felt], limits: &Limits) -> Option<usize> {
    let trends = (0..nodes.len()).filter(|at| nodes[*at].hot >= limits.trigger_cycles);
    trends.max_by_key(|at| (top(felt[*at].mean), Reverse(*at)))
}
