//! What the rebalancer makes of one cycle after another, with the numbers it decided on.

use plimsoll_api::view;
use plimsoll_kernel::rebalance::{self, CycleOutcome, NodeEvaluation, NodeTrend, ReplayedCycle};
use plimsoll_model::{Millis, NodeId, Pressure};
use serde::Serialize;

use crate::case::{Case, Measured};
use crate::error::{PlanError, Result};

/// Replays the cycles of a case.
pub fn replay(case: &Case) -> Result<Vec<CycleReport>> {
    let Measured { memory, cycles, moves_take } = case.measured()?;
    let (state, policy) = (case.cell.state.clone(), &case.cell.policy);
    let steps = rebalance::replay(state, memory.clone(), cycles, *moves_take, policy)
        .map_err(|rejection| PlanError::Rejected(Box::new(rejection)))?;
    Ok(steps.iter().map(|step| CycleReport::of(step, &steps[0])).collect())
}

/// One cycle, as it is told. Shares are in millionths.
#[derive(Debug, Serialize)]
pub struct CycleReport {
    pub at: u64,
    /// Since the first cycle.
    #[serde(skip)]
    pub since: Millis,
    pub nodes: Vec<NodeTrendRow>,
    /// What the gates say of the hottest node.
    pub hottest: Option<NodeEvaluation>,
    pub decision: &'static str,
    /// What goes into the audit; a calm cycle says nothing.
    pub event: Option<AuditedEvent>,
}

#[derive(Debug, Serialize)]
pub struct NodeTrendRow {
    pub node: NodeId,
    pub cpu: Pressure,
    pub memory: Pressure,
    pub cpu_reached: Pressure,
    pub memory_reached: Pressure,
    pub hot_cycles: u32,
}

/// As the audit of a cell has it.
#[derive(Debug, Serialize)]
pub struct AuditedEvent {
    pub what: &'static str,
    pub text: String,
    pub relief: Option<view::Relief>,
}

impl AuditedEvent {
    fn of(step: &ReplayedCycle) -> Option<Self> {
        let what = step.outcome.audit_kind(step.at)?;
        let relief = view::Relief::of(&what);
        Some(Self { what: what.word(), text: what.to_string(), relief })
    }
}

impl CycleReport {
    fn of(step: &ReplayedCycle, first: &ReplayedCycle) -> Self {
        let node = |trend: &NodeTrend| {
            let (mean, reached) = (trend.mean.value(), trend.peak.value());
            NodeTrendRow {
                node: trend.node.clone(),
                cpu: mean.cpu,
                memory: mean.memory,
                cpu_reached: reached.cpu,
                memory_reached: reached.memory,
                hot_cycles: trend.hot,
            }
        };
        Self {
            at: step.at.0,
            since: step.at.since(first.at),
            nodes: step.trends.iter().map(node).collect(),
            hottest: step.weighing.clone(),
            decision: match &step.outcome {
                CycleOutcome::Calm => "calm",
                CycleOutcome::Skipped(_) => "skipped",
                CycleOutcome::Moved { .. } => "moved",
            },
            event: AuditedEvent::of(step),
        }
    }

    pub fn is_move(&self) -> bool {
        self.decision == "moved"
    }
}
