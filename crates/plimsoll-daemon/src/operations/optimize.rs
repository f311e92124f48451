//! A better layout: searched for on a copy of the state, and carried out by the leader once an admin says so.

use std::time::{Duration, Instant};

use plimsoll_api::view::{self, ApplyOptimize, Optimize, OptimizeStarted, Problem};
use plimsoll_kernel::optimize::{check, optimize as search};
use plimsoll_kernel::what_if::KnownCell;
use plimsoll_model::optimize::OptimizeStep;
use plimsoll_model::{AuditEntry, Change, State};

use super::{Caller, Error, rebalancer};
use crate::context::{NodeContext, now};

/// The best plan that is found in the time that was given.
pub async fn optimize(cell: &NodeContext, asked: Optimize) -> Result<view::OptimizePlan, Problem> {
    let limits = asked.limits()?;
    caught_up(cell).await?;
    let cell = cell.clone();
    let searching = tokio::task::spawn_blocking(move || {
        let (begun, longest) = (Instant::now(), Duration::from_millis(asked.time_ms));
        with_known(&cell, |known| {
            let plan = search(known, limits, &mut |_| begun.elapsed() > longest);
            view::OptimizePlan::of(known.state, &plan)
        })
    });
    searching.await.map_err(|_| (&Error::Unforeseen).into())
}

/// The leader begins the moves of the plan in their order, if all of it still holds.
pub async fn apply_optimize(
    cell: &NodeContext,
    caller: &Caller,
    asked: ApplyOptimize,
) -> Result<OptimizeStarted, Problem> {
    caught_up(cell).await?;
    if asked.moves.is_empty() {
        return Ok(OptimizeStarted { moves: 0, gain: 0 });
    }
    let looked_at = cell.clone();
    let checking = tokio::task::spawn_blocking(move || {
        with_known(&looked_at, |known| {
            let moves = asked.moves(known.state)?;
            check(known, &moves).map_err(|why| view::plan_refused(&why))
        })
    });
    let moves = checking.await.map_err(|_| Problem::from(&Error::Unforeseen))??;
    let gain = moves.iter().map(|moved| moved.gain).sum();
    let started = OptimizeStarted { moves: u32::try_from(moves.len()).unwrap_or(u32::MAX), gain };
    let step = OptimizeStep::Started { moves: started.moves, gain };
    let entry = AuditEntry::Optimize(step);
    caller
        .write(cell, vec![Change::Record { entry }.free()])
        .await
        .map_err(|error| Problem::from(&Error::from(error)))?;
    // Whoever leads by now, if it is not this node any more, knows nothing of it: then nothing is done.
    match cell.leader.lock().as_mut() {
        Some(leader) => leader.pursue(moves, now()),
        None => return Err((&Error::Unforeseen).into()),
    }
    Ok(started)
}

/// On what was written before it was asked, or not at all.
async fn caught_up(cell: &NodeContext) -> Result<(), Problem> {
    cell.engine.catch_up().await.map_err(|error| Problem::from(&Error::Write(error.into())))?;
    Ok(())
}

fn with_known<T>(cell: &NodeContext, with: impl FnOnce(&KnownCell<'_>) -> T) -> T {
    // A copy: a search takes longer than others should wait for the state.
    let state = cell.engine.machine().read(State::clone);
    let measured = cell.measurements.lock().clone();
    let (policy, now) = (&cell.policy, now());
    let signals = measured.signals(policy, now);
    let rebalancer = rebalancer(cell.leader.lock().as_ref(), &state, policy, &measured);
    with(&KnownCell { state: &state, signals: &signals, policy, rebalancer, now })
}
