//! Delete: a deployment ends, and its named volumes with it only if that was asked for.

use std::collections::BTreeSet;

use plimsoll_model::volumes::Volumes;
use plimsoll_model::{Change, DeploymentName, Refusal, State};

use super::{Caller, Error, MAX_RETRIES, Services, current, find_deployment};
use crate::context::{NodeContext, WriteError};
use plimsoll_api::view::Deleted;

/// Ends the deployment. With `volumes`, every node that has some of its named volumes removes them once its containers
/// are gone from it.
pub async fn delete(
    cell: &NodeContext,
    caller: &Caller,
    name: &str,
    volumes: bool,
) -> Result<Deleted, Error> {
    for _ in 0..MAX_RETRIES {
        let (name, revision, mut deleted) = cell.engine.machine().read(|state| {
            let name = find_deployment(state, name)?;
            let (revision, content) = current(state, &name).unwrap_or_default();
            let deleted = told(state, &name, &content.services, volumes);
            Ok::<_, Error>((name, plimsoll_model::Revision(revision), deleted))
        })?;
        let end = Change::Undeploy { deployment: name.clone() }.at_revision(Some(revision));
        let remove = Change::RemoveVolumes { deployment: name.clone() }.free();
        let batch = std::iter::once(end).chain(volumes.then_some(remove)).collect();
        match caller.write(cell, batch).await {
            Ok(index) => {
                deleted.index = Some(index);
                return Ok(deleted);
            }
            Err(WriteError::Refused(rejection))
                if matches!(rejection.reason, Refusal::Revision { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Contended { deployment: DeploymentName::new(name)? })
}

fn told(state: &State, name: &DeploymentName, services: &Services, remove: bool) -> Deleted {
    let replicas = state
        .services()
        .iter()
        .filter(|(key, _)| key.deployment == *name)
        .flat_map(|(_, service)| service.replicas.values())
        .filter(|replica| replica.assignment.is_some())
        .count();
    let mut volumes = volumes_of(services);
    volumes.extend(declared_of(state, name));
    let (volumes_kept, volumes_removed) =
        if remove { (Vec::new(), volumes) } else { (volumes, Vec::new()) };
    let held = state.volumes().get(name).map(Volumes::nodes).unwrap_or_default();
    let volumes_on = held.iter().map(ToString::to_string);
    Deleted {
        deployment: name.to_string(),
        replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
        volumes_kept,
        volumes_removed,
        volumes_on: volumes_on.collect(),
        index: None,
    }
}

/// The volumes that images of its services declared, as `service:path`.
fn declared_of(state: &State, name: &DeploymentName) -> BTreeSet<String> {
    let held = state.volumes().get(name).map(|volumes| volumes.held.values());
    let declared = held.into_iter().flatten().filter_map(|holders| holders.declared.as_ref());
    declared.map(|declared| format!("{}:{}", declared.service, declared.path)).collect()
}

/// The named volumes that are the deployment's own, as its file names them.
fn volumes_of(services: &Services) -> Vec<String> {
    let names: BTreeSet<&str> =
        services.values().flat_map(|spec| spec.container.own_volumes()).collect();
    names.into_iter().map(str::to_owned).collect()
}
