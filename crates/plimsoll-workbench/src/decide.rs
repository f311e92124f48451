//! What plimsoll decides on a case, as values: a pass of the scheduler, and cycles of the rebalancer.

mod place;
mod rebalance;

pub use place::PlanReport;
pub use rebalance::{AuditedEvent, CycleReport, NodeTrendRow, replay};
