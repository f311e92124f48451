//! What would come of something in a described cell: the leader's own passes and loops, as `plimsoll what-if` shows them.

use plimsoll_api::view::{Forecast, Problem, ProblemCode, WhatIf};
use plimsoll_api::what_if::supposition;
use plimsoll_kernel::what_if::{self, KnownCell};

use crate::case::{Case, CellSnapshot};
use crate::error::Result;
use crate::optimize::remembered;

/// What would come of it, or of as much of it as was followed before `is_late`.
pub fn forecast(
    case: &Case,
    asked: &WhatIf,
    is_late: &mut dyn FnMut() -> bool,
) -> Result<Forecast> {
    let CellSnapshot { state, signals, policy, .. } = &case.cell;
    let supposed = supposition(state, asked).map_err(Box::new)?;
    let (rebalancer, now) = remembered(case);
    let known = KnownCell { state, signals, policy, rebalancer, now };
    let forecast = what_if::forecast(known, &supposed, is_late).map_err(|rejection| {
        Box::new(Problem::new(ProblemCode::Refused, rejection.reason.to_string()))
    })?;
    Ok(Forecast::of(asked, policy.rebalance.trigger, &forecast))
}
