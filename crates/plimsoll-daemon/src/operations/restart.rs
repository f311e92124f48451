//! Restart: replicas start anew, one after another, as carefully as with a new spec.

use plimsoll_model::{Change, Guarded, ReplicaId, State};

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
    let meant = cell.engine.machine().read(|state| meant(state, name, restart))?;
    let replicas = meant.iter().map(ToString::to_string).collect();
    let batch: Vec<Guarded> =
        meant.into_iter().map(|replica| Change::Renew { replica }.free()).collect();
    let index = if batch.is_empty() { None } else { Some(caller.write(cell, batch).await?) };
    Ok(Restarted { replicas, index })
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
        return Ok(vec![id]);
    }
    let live = state.replicas().filter(|(_, replica)| replica.assignment.is_some());
    Ok(live.map(|(id, _)| id).filter(own).collect())
}
