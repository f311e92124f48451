//! A better layout of a described cell, as `plimsoll optimize --input` shows it.

use plimsoll_api::view::OptimizePlan;
use plimsoll_kernel::optimize::{OptimizeLimits, optimize};
use plimsoll_kernel::rebalance::Rebalancer;
use plimsoll_kernel::what_if::KnownCell;

use crate::case::{Case, CellSnapshot};

/// The best plan found until `is_late`, which is told how many steps were taken, says that the time is up.
pub fn plan(
    case: &Case,
    limits: OptimizeLimits,
    is_late: &mut dyn FnMut(u64) -> bool,
) -> OptimizePlan {
    let CellSnapshot { state, signals, policy, .. } = &case.cell;
    let (rebalancer, now) = remembered(case);
    let known = KnownCell { state, signals, policy, rebalancer, now };
    OptimizePlan::of(state, &optimize(&known, limits, is_late))
}

/// What the rebalancer of a described cell knows, and what time it is there.
pub(crate) fn remembered(case: &Case) -> (Rebalancer, plimsoll_model::Timestamp) {
    let CellSnapshot { state, now, .. } = &case.cell;
    let last = case.measured.as_ref().and_then(|it| Some((it.memory.clone(), it.cycles.last()?)));
    match last {
        Some((memory, cycle)) => (Rebalancer::recalled(state, memory, cycle), cycle.at.max(*now)),
        None => (Rebalancer::default(), *now),
    }
}
