//! What people ask of nodes: cordon, drain, remove.

use std::collections::BTreeSet;

use plimsoll_kernel::plan;
use plimsoll_kernel::plan::estimate::{PlanEstimate, ReplicaTimes};
use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::{
    Availability, Change, Millis, NodeId, Rejection, ServiceKey, State, Timestamp, Writer,
};

use super::{Caller, Error};
use crate::context::{NodeContext, now};
use plimsoll_api::suggest;
use plimsoll_api::view::{self, DrainPlan, NodeChanged};

/// Takes nothing new, or takes replicas again.
pub async fn set_availability(
    cell: &NodeContext,
    caller: &Caller,
    name: &str,
    availability: Availability,
) -> Result<NodeChanged, Error> {
    let machine = cell.engine.machine();
    let (node, is_so) = machine.read(|state| {
        let node = find_node(state, name)?;
        let is_so = state.node(&node).is_some_and(|it| it.availability == availability);
        Ok::<_, Error>((node, is_so))
    })?;
    let change = Change::SetAvailability { node: node.clone(), availability };
    let index = if is_so { None } else { Some(caller.write(cell, vec![change.free()]).await?) };
    let availability = word(availability).to_owned();
    Ok(NodeChanged { node: node.to_string(), availability, index })
}

/// The node leaves the cell. It must hold nothing, or be down.
pub async fn remove(cell: &NodeContext, caller: &Caller, name: &str) -> Result<NodeChanged, Error> {
    let node = cell.engine.machine().read(|state| {
        let node = find_node(state, name)?;
        let others = state.nodes().keys().filter(|other| **other != node).count();
        if others == 0 { Err(Error::LastNode { node }) } else { Ok(node) }
    })?;
    let index = caller.write(cell, vec![Change::RemoveNode { node: node.clone() }.free()]).await?;
    let availability = "removed".to_owned();
    Ok(NodeChanged { node: node.to_string(), availability, index: Some(index) })
}

/// Has the node give away what it runs. Says beforehand what will come of it; `is_plan`: and does no more than that.
pub async fn drain(
    cell: &NodeContext,
    caller: &Caller,
    name: &str,
    asked: &view::Drain,
    is_plan: bool,
) -> Result<DrainPlan, Error> {
    let timeout = asked.timeout_ms.map_or(DRAIN_TIMEOUT, Millis);
    let force = asked.force;
    let policy = cell.policy;
    let signals = cell.measurements.lock().signals(&cell.policy, now());
    // A copy: to look ahead takes longer than others should wait for the state.
    let state = cell.engine.machine().read(State::clone);
    let node = find_node(&state, name)?;
    check(&state, &node, force, is_plan)?;
    let change = Change::Drain { node: node.clone(), timeout, force };
    let (moves, volume_moves) = if asked.move_volumes {
        super::volumes::moves_off(&state, &signals, &policy, &node, now())
    } else {
        (Vec::new(), Vec::new())
    };
    let first = change.clone();
    let planned =
        tokio::task::spawn_blocking(move || planned(state, &signals, &policy, &node, first, now()));
    let planned = planned.await.map_err(|_| Error::Unforeseen)?;
    let mut plan = planned.map_err(|rejection| Error::Write(rejection.into()))?;
    plan.volume_moves = volume_moves;
    if !is_plan {
        // Data goes first: what uses it would be said to stay otherwise.
        let batch = moves.into_iter().chain([change.free()]).collect();
        plan.index = Some(caller.write(cell, batch).await?);
    }
    Ok(plan)
}

fn check(state: &State, node: &NodeId, force: bool, is_plan: bool) -> Result<(), Error> {
    let Some(row) = state.node(node) else { return Ok(()) };
    let is_draining = row.availability == Availability::Draining;
    let is_forced = row.drain.is_some_and(|drain| drain.is_forced);
    if is_draining && (is_forced || !force) && !is_plan {
        return Err(Error::AlreadyDraining { node: node.clone() });
    }
    let is_other = |id: &NodeId| id != node;
    let others = state.nodes().iter().filter(|(id, it)| is_other(id) && it.is_open()).count();
    if others == 0 && !force {
        return Err(Error::LastNode { node: node.clone() });
    }
    Ok(())
}

/// What becomes of the services that have replicas on the node.
fn planned(
    state: State,
    signals: &Signals,
    policy: &Policy,
    node: &NodeId,
    change: Change,
    now: Timestamp,
) -> Result<DrainPlan, Rejection> {
    let tenants = || state.load(node).into_iter().flat_map(|load| &load.tenants);
    let times = ReplicaTimes::of(&state, tenants());
    let services: BTreeSet<ServiceKey> = tenants().map(|id| id.service.clone()).collect();
    let changes = (Writer::Operator, vec![change]);
    let (plan, _) = plan::what_if(state, signals, policy, changes, now)?;
    let plan = plan.about(&services);
    let PlanEstimate { takes, stop_grace } = times.estimate(&plan);
    Ok(DrainPlan {
        node: node.to_string(),
        plan: (&plan).into(),
        estimate_ms: takes.0,
        stop_grace_ms: stop_grace.0,
        volume_moves: Vec::new(),
        index: None,
    })
}

/// A node by the name a person gave.
pub fn find_node(state: &State, name: &str) -> Result<NodeId, Error> {
    let found = state.nodes().get_key_value(name).map(|(name, _)| name.clone());
    found.ok_or_else(|| {
        let hint = suggest::hint(name, "node", state.nodes().keys().map(NodeId::as_str));
        Error::NoSuchNode { name: name.to_owned(), hint }
    })
}

fn word(availability: Availability) -> &'static str {
    match availability {
        Availability::Active => "active",
        Availability::Cordoned => "cordoned",
        Availability::Draining => "draining",
    }
}
