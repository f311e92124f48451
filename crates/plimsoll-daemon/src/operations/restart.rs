//! Restart: replicas start anew, one after another, as carefully as with a new spec.

use std::collections::BTreeSet;

use plimsoll_model::{Change, Guarded, ReplicaId, ServiceKey, State};

use super::{Caller, Error, current, find_deployment, find_replica, find_service};
use crate::context::NodeContext;
use plimsoll_api::view::{Restart, Restarted};

/// Asks for a fresh start of every replica that is meant.
pub async fn restart(
    cell: &NodeContext,
    caller: &Caller,
    name: &str,
    restart: &Restart,
) -> Result<Restarted, Error> {
    let (meant, scheduled) = cell.engine.machine().read(|state| {
        let meant = meant(state, name, restart)?;
        let scheduled = scheduled(state, name, restart)?;
        Ok::<_, Error>((meant, scheduled))
    })?;
    let replicas = meant.iter().map(ToString::to_string).collect();
    let runs = scheduled.iter().map(ToString::to_string).collect();
    let renewed = meant.into_iter().map(|replica| Change::Renew { replica }.free());
    let started =
        scheduled.into_iter().map(|service| Change::StartRun { service, slot: None }.free());
    let batch: Vec<Guarded> = renewed.chain(started).collect();
    let index = if batch.is_empty() { None } else { Some(caller.write(cell, batch).await?) };
    Ok(Restarted { replicas, runs, index })
}

/// The services that are meant and run on a schedule. One whose run is not over goes on with it, unless it alone is meant: then
/// whoever asks is told.
fn scheduled(state: &State, name: &str, restart: &Restart) -> Result<BTreeSet<ServiceKey>, Error> {
    let deployment = find_deployment(state, name)?;
    let services = current(state, &deployment).unwrap_or_default().1.services;
    let replica = restart.replica.as_deref().map(|text| find_replica(state, text)).transpose()?;
    let service = restart.service.as_deref();
    let service = service.map(|name| find_service(&deployment, &services, name)).transpose()?;
    let only = service.or(replica.map(|id| id.service.service));
    let is_meant = |key: &&ServiceKey| {
        let row = state.service(key);
        let is_scheduled = row.is_some_and(|row| row.row.schedule.is_some());
        let is_idle = row.is_some_and(|row| row.open_run().is_none());
        is_scheduled && only.as_ref().map_or(is_idle, |only| key.service == *only)
    };
    Ok(state.services_of(&deployment).filter(is_meant).cloned().collect())
}

fn meant(state: &State, name: &str, restart: &Restart) -> Result<Vec<ReplicaId>, Error> {
    let deployment = find_deployment(state, name)?;
    let services = current(state, &deployment).unwrap_or_default().1.services;
    let service = restart.service.as_deref();
    let service = service.map(|name| find_service(&deployment, &services, name)).transpose()?;
    let own = |id: &ReplicaId| {
        id.service.deployment == deployment
            && service.as_ref().is_none_or(|service| id.service.service == *service)
    };
    if let Some(text) = &restart.replica {
        let id = find_replica(state, text)?;
        if !own(&id) {
            let of = service.map_or_else(
                || deployment.to_string(),
                |service| format!("{deployment}/{service}"),
            );
            return Err(Error::NotOf { replica: id, of });
        }
        if state.replica(&id).is_none_or(|replica| replica.assignment.is_none()) {
            return Err(Error::NotAssigned { replica: id });
        }
        return Ok(Some(id).into_iter().filter(|id| !is_of_run(state, id)).collect());
    }
    let live = state.replicas().filter(|(_, replica)| replica.assignment.is_some());
    let live = live.filter(|(id, _)| !is_of_run(state, id));
    Ok(live.map(|(id, _)| id).filter(own).collect())
}

/// What runs on a schedule runs once more instead: a run that is under way goes on, and what is left of others stays.
fn is_of_run(state: &State, id: &ReplicaId) -> bool {
    state.replica(id).is_some_and(|replica| replica.run.is_some())
}
