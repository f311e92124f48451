//! What would come of something, by the leader's own passes and loops over a copy of the state. Nothing is written, and nothing
//! of it is remembered.

use std::time::{Duration, Instant};

use plimsoll_api::view::{self, Problem, WhatIf};
use plimsoll_api::what_if::supposition;
use plimsoll_kernel::rebalance::Rebalancer;
use plimsoll_kernel::what_if::{KnownCell, Supposition, forecast};
use plimsoll_kernel::{Leader, Policy};
use plimsoll_model::State;

use super::{Error, check, current, files, images, refused};
use crate::context::{NodeContext, WriteError, now};
use crate::measurements::Measurements;

/// How long it may take: less than whoever passed the request on waits for the answer. What was found by then is told.
const LONGEST: Duration = Duration::from_secs(5);

/// What would come of it, as far as it could be followed in time.
pub async fn what_if(cell: &NodeContext, asked: WhatIf) -> Result<view::Forecast, Problem> {
    // On what was written before it was asked, or not at all.
    cell.engine.catch_up().await.map_err(|error| Problem::from(&Error::Write(error.into())))?;
    let cell = cell.clone();
    let looking = tokio::task::spawn_blocking(move || foretell(&cell, &asked));
    looking.await.unwrap_or_else(|_| Err((&Error::Unforeseen).into()))
}

fn foretell(cell: &NodeContext, asked: &WhatIf) -> Result<view::Forecast, Problem> {
    let begun = Instant::now();
    // A copy: to look ahead takes longer than others should wait for the state.
    let state = cell.engine.machine().read(State::clone);
    let measured = cell.measurements.lock().clone();
    let (policy, now) = (&cell.policy, now());
    let signals = measured.signals(policy, now);
    let rebalancer = rebalancer(cell.leader.lock().as_ref(), &state, policy, &measured);
    let supposed = checked(&state, supposition(&state, asked)?);
    let supposed = supposed.map_err(|error| Problem::from(&error))?;
    let known = KnownCell { state: &state, signals: &signals, policy, rebalancer, now };
    let forecast = forecast(known, &supposed, &mut || begun.elapsed() > LONGEST);
    let forecast =
        forecast.map_err(|rejection| Problem::from(&refused(WriteError::Refused(rejection))))?;
    Ok(view::Forecast::of(asked, policy.rebalance.trigger, &forecast))
}

/// A file as it would be written: with the secrets and configs that it refers to, and images as they were deployed. What whoever
/// asks may not apply is foretold all the same: nothing comes of it.
fn checked(state: &State, supposed: Supposition) -> Result<Supposition, Error> {
    let Supposition::Deploy { deployment, services, routes } = supposed else {
        return Ok(supposed);
    };
    let specs = services.into_iter().map(|(name, spec)| (name, (*spec).clone())).collect();
    let services = files::resolve(state, check::services(&deployment, specs)?)?;
    check::fields(&services)?;
    let before = current(state, &deployment);
    let before = before.as_ref().map(|(_, content)| &content.services);
    let services = images::as_deployed(before, services);
    Ok(Supposition::Deploy { deployment, services, routes })
}

/// What the leader's rebalancer knows by now. One that does not lead has nothing to remember.
pub fn rebalancer(
    leader: Option<&Leader>,
    state: &State,
    policy: &Policy,
    measured: &Measurements,
) -> Rebalancer {
    let mut rebalancer = leader.map(|leader| leader.rebalancer().clone()).unwrap_or_default();
    for (node, measured) in &measured.nodes {
        rebalancer.sample(node, measured.sample());
    }
    rebalancer.usage(state, policy, measured.usages());
    rebalancer
}
