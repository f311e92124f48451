//! What one scheduler pass decides on a case: what is placed, moved, retired and left alone, and what finds no place.

use plimsoll_api::view::Plan;
use serde::Serialize;

use crate::decided::Decided;

/// The plan, and of which cell it is.
#[derive(Debug, Serialize)]
pub struct PlanReport {
    pub cell: String,
    #[serde(flatten)]
    pub plan: Plan,
}

impl PlanReport {
    pub fn of(decided: &Decided) -> Self {
        Self { cell: decided.after.cell_id().to_string(), plan: Plan::from(&decided.plan) }
    }
}
