//! What plimsoll decides on a case, as values: a pass of the scheduler, cycles of the rebalancer, and a pass of
//! a coordinator.

mod coordinate;
mod place;
mod rebalance;

pub use coordinate::{BegunTransfer, FleetPassReport, UnservedShortfall, coordinate_case};
pub use place::PlanReport;
pub use rebalance::{AuditedEvent, CycleReport, NodeTrendRow, replay};
