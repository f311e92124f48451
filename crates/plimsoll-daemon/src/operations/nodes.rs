//! What people ask of nodes: cordon, drain, remove.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_kernel::plan::{self, ReplicaFate};
use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::{
    Availability, Change, Millis, NodeId, Rejection, ReplicaId, ServiceKey, State, Timestamp,
    Writer,
};

use super::{Caller, Error};
use crate::context::{NodeContext, now};
use plimsoll_api::suggest;
use plimsoll_api::view::{self, DrainPlan, NodeChanged};

/// What a start takes that nobody has measured.
const UNKNOWN_START: Millis = Millis::seconds(5);

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
    let (starts, graces) = (starts(&state, node), graces(&state, node));
    let tenants = state.load(node).into_iter().flat_map(|load| &load.tenants);
    let services: BTreeSet<ServiceKey> = tenants.map(|id| id.service.clone()).collect();
    let changes = (Writer::Operator, vec![change]);
    let (plan, _) = plan::what_if(state, signals, policy, changes, now)?;
    let plan = plan.about(&services);
    let estimate_ms = estimate(&starts, &plan).0;
    let stop_grace_ms = stopping(&graces, &plan).0;
    let plan = (&plan).into();
    let (node, volume_moves) = (node.to_string(), Vec::new());
    Ok(DrainPlan { node, plan, estimate_ms, stop_grace_ms, volume_moves, index: None })
}

/// How long each replica took to start, as far as is known.
type Starts = BTreeMap<ReplicaId, Millis>;

fn starts(state: &State, node: &NodeId) -> Starts {
    let tenants = state.load(node).into_iter().flat_map(|load| &load.tenants);
    tenants.filter_map(|id| Some((id.clone(), start_of(state, id)?))).collect()
}

/// How long each replica on the node may take to stop.
fn graces(state: &State, node: &NodeId) -> BTreeMap<ReplicaId, Millis> {
    let tenants = state.load(node).into_iter().flat_map(|load| &load.tenants);
    let grace = |id: &ReplicaId| {
        let service = state.service(&id.service)?;
        let assignment = service.replicas.get(&id.slot)?.assignment.as_ref()?;
        Some((id.clone(), service.spec_of(assignment)?.container.effective_stop_grace()))
    };
    tenants.filter_map(grace).collect()
}

/// How long stopping may take on top of it: what makes way first holds up its round, of the others the slowest counts once.
fn stopping(graces: &BTreeMap<ReplicaId, Millis>, plan: &plan::Plan) -> Millis {
    let (mut rounds, mut last): (BTreeMap<u32, Millis>, Millis) = (BTreeMap::new(), Millis(0));
    for outcome in &plan.outcomes {
        let ReplicaFate::Moved { round, is_stop_first, .. } = outcome.fate else { continue };
        let grace = graces.get(&outcome.id).copied().unwrap_or_default();
        if is_stop_first {
            let slowest = rounds.entry(round).or_default();
            *slowest = (*slowest).max(grace);
        } else {
            last = last.max(grace);
        }
    }
    Millis(rounds.values().map(|round| round.0).sum::<u64>() + last.0)
}

/// Rounds follow one another; in each, the slowest counts.
fn estimate(starts: &Starts, plan: &plan::Plan) -> Millis {
    let mut rounds: BTreeMap<u32, Millis> = BTreeMap::new();
    for outcome in &plan.outcomes {
        let ReplicaFate::Moved { round, .. } = outcome.fate else { continue };
        let slowest = rounds.entry(round).or_default();
        *slowest = (*slowest).max(starts.get(&outcome.id).copied().unwrap_or(UNKNOWN_START));
    }
    Millis(rounds.values().map(|round| round.0).sum())
}

/// How long the replica took from its assignment until it ran, as far as is known.
fn start_of(state: &State, id: &ReplicaId) -> Option<Millis> {
    let replica = state.replica(id)?;
    let assignment = replica.assignment.as_ref()?;
    let seen = replica.observation(assignment).filter(|_| replica.is_running())?;
    let took: Millis = seen.at.since(Timestamp(assignment.at.0));
    // One that failed and came back later says nothing of how long a start takes.
    (took <= Policy::default().step_timeout).then_some(took)
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
