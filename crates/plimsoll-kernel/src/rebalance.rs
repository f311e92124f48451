//! Relieves nodes that stay hot while others are cool, one replica at a time for the whole cell. It is always on, has no
//! knobs, and is biased to do nothing: a node must be hot in two cycles on end, others must be much cooler, and a move must
//! pass every gate.
//!
//! What must outlive a leader, it reads off the state: when a replica was moved or placed, when a node was last given one,
//! what is on its way. What it smooths is its own, and a new leader begins anew with two cycles.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_model::review::MovingLoop;
use plimsoll_model::{
    Availability, Bytes, Guarded, MilliCpus, NodeId, NodePressure, Pressure, ReplicaId, Resources,
    State, Timestamp,
};
use serde::Serialize;

use crate::place::Roster;
use crate::policy::Policy;
pub use crate::signals::PressureSample;

pub mod ewma;
pub mod gates;
mod memory;
mod rebalancer;
mod record;
mod replay;
mod score;
mod smoothed_usage;
mod view;

#[cfg(test)]
mod tests;

pub use ewma::{Decay, Ewma, SmoothedPressure};
pub use gates::{GateResult, GateValue, RebalanceLimits};
use memory::PredictedPressure;
pub use memory::{MoveInFlight, NodeLevels, NodeTrend, RebalanceMemory};
pub use plimsoll_model::rebalance::{Dimension, Relief, Skip, Skipped};
pub use rebalancer::Rebalancer;
pub use replay::{MeasuredCycle, ReplayedCycle, replay};
pub use score::CandidateEvaluation;
use score::{BestMove, MoveSearch};
pub use smoothed_usage::SmoothedUsage;
use view::CycleInputs;

/// What a replica uses: a sample, or as a [`SmoothedUsage`]. A cycle wants the latter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaUsage {
    pub cpu: MilliCpus,
    pub memory: Bytes,
}

impl ReplicaUsage {
    pub const NOTHING: Self = Self { cpu: MilliCpus(0), memory: Bytes(0) };

    /// The shares of a node that has so much.
    pub fn share_of(self, capacity: Resources) -> NodePressure {
        NodePressure {
            cpu: Pressure::of(self.cpu.0, capacity.cpu.0),
            memory: Pressure::of(self.memory.0, capacity.memory.0),
        }
    }
}

/// What was measured for one cycle. A node or replica that is missing said nothing of late.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    pub nodes: BTreeMap<NodeId, PressureSample>,
    pub replicas: BTreeMap<ReplicaId, ReplicaUsage>,
}

/// What came of a cycle, with the numbers that decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CycleOutcome {
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
    readings: &Readings,
    memory: &mut RebalanceMemory,
    now: Timestamp,
) -> CycleOutcome {
    let view = CycleInputs::new(state, roster, policy, readings, now);
    let limits = view.limits;
    let predicted = look(&view, memory);
    let Some(src) = hottest(&view, &predicted, memory.nodes()) else { return CycleOutcome::Calm };
    let coolest = predicted.iter().map(|it| it.mean.top()).min().unwrap_or_default();
    let here = predicted[src].mean.top();
    if here.millionths() - coolest.millionths() < limits.imbalance.millionths() {
        return CycleOutcome::Calm;
    }
    let record = state.reviews().of(MovingLoop::Rebalancer);
    let found = if record.waits(policy.sample_interval, now).is_some() {
        BestMove::Nothing(Skip::SlowedDown, None, Vec::new())
    } else {
        MoveSearch::new(&view, memory.nodes(), &predicted, src).best()
    };
    match found {
        BestMove::Best { change, relief, moving } => {
            memory.expect(relief.replica.clone(), moving);
            CycleOutcome::Moved { change, relief }
        }
        BestMove::Nothing(why, nearest, refused) => {
            let (src, dominant) =
                (memory.nodes()[src].node.clone(), predicted[src].mean.dominant());
            let pressure = here;
            let skipped = Skipped { src, dominant, pressure, why, nearest, refused };
            CycleOutcome::Skipped(Box::new(skipped))
        }
    }
}

/// Takes in what was measured since the last cycle; what nodes will be stands in their order.
fn look(view: &CycleInputs<'_>, memory: &mut RebalanceMemory) -> Vec<PredictedPressure> {
    memory.settle(view);
    memory.feed(view);
    let predicted = memory.predicted();
    memory.count(&predicted, view.limits);
    predicted
}

/// What the gates say to moving anything off a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeEvaluation {
    pub node: NodeId,
    pub dominant: Dimension,
    /// Of the node: how hot, for how long, and how much hotter than the coolest.
    pub gates: Vec<GateResult>,
    /// Of each replica that could leave it.
    pub candidates: Vec<CandidateEvaluation>,
}

/// What the gates would say now, by what the last cycle left behind; none where nothing is known of the node.
pub fn weigh(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    readings: &Readings,
    memory: &RebalanceMemory,
    node: &NodeId,
    now: Timestamp,
) -> Option<NodeEvaluation> {
    let view = CycleInputs::new(state, roster, policy, readings, now);
    let at = memory.nodes().iter().position(|trend| trend.node == *node)?;
    Some(weigh_at(&view, memory, &memory.predicted(), at))
}

fn weigh_at(
    view: &CycleInputs<'_>,
    memory: &RebalanceMemory,
    predicted: &[PredictedPressure],
    at: usize,
) -> NodeEvaluation {
    let (limits, node) = (view.limits, &memory.nodes()[at]);
    let here = predicted[at].mean.top();
    let coolest = predicted.iter().map(|it| it.mean.top()).min().unwrap_or_default();
    let gap = Pressure::from_millionths(here.millionths() - coolest.millionths());
    let gate = |gate, found, limit, passes| GateResult { gate, found, limit, passes };
    let (share, count) = (GateValue::Share, GateValue::Count);
    let (cycles, needed) = (node.hot, limits.trigger_cycles);
    let mut gates = vec![
        gate("trigger", share(here), share(limits.trigger), here >= limits.trigger),
        gate("trigger_cycles", count(cycles), count(needed), cycles >= needed),
        gate("imbalance", share(gap), share(limits.imbalance), gap >= limits.imbalance),
    ];
    // Only of a rebalancer that is slowed down.
    let record = view.state.reviews().of(MovingLoop::Rebalancer);
    if record.doublings(view.now) > 0 {
        let interval = record.interval(view.policy.sample_interval, view.now);
        let rested = record.moved_at.map_or(interval, |at| view.now.since(at));
        let (found, limit) = (GateValue::Span(rested), GateValue::Span(interval));
        gates.push(gate(Skip::SlowedDown.word(), found, limit, rested >= interval));
    }
    NodeEvaluation {
        node: node.node.clone(),
        dominant: predicted[at].mean.dominant(),
        gates,
        candidates: MoveSearch::new(view, memory.nodes(), predicted, at).weigh(),
    }
}

/// The hottest node that has been hot for long enough; of equals, by name. A drain relieves its node by itself.
fn hottest(
    view: &CycleInputs<'_>,
    predicted: &[PredictedPressure],
    nodes: &[NodeTrend],
) -> Option<usize> {
    let is_drained = |node: &NodeId| {
        let node = view.state.node(node);
        node.is_some_and(|node| node.availability == Availability::Draining)
    };
    let is_hot = |node: &NodeTrend| node.hot >= view.limits.trigger_cycles;
    let hot = (0..nodes.len()).filter(|at| is_hot(&nodes[*at]) && !is_drained(&nodes[*at].node));
    hot.max_by_key(|at| (predicted[*at].mean.top(), Reverse(*at)))
}
