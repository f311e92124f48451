//! Delete: a deployment ends, and its named volumes with it only if that was asked for.

use std::collections::BTreeSet;

use plimsoll_model::spec::MountSource;
use plimsoll_model::{Change, DeploymentName, Refusal, State};

use super::volumes::Volumes;
use super::{Caller, Error, MAX_RETRIES, Services, current, find_deployment};
use crate::cell::{Cell, WriteError};
use crate::view::Deleted;

/// Ends the deployment. `volumes` is where it is noted that its volumes are to go; none: they are kept.
pub async fn delete(
    cell: &Cell,
    caller: &Caller,
    name: &str,
    volumes: Option<&Volumes>,
) -> Result<Deleted, Error> {
    for _ in 0..MAX_RETRIES {
        let (name, revision, deleted) = cell.engine.machine().read(|state| {
            let name = find_deployment(state, name)?;
            let (revision, services) = current(state, &name).unwrap_or_default();
            let deleted = told(state, &name, &services, volumes.is_some());
            Ok::<_, Error>((name, plimsoll_model::Revision(revision), deleted))
        })?;
        // Noted first: a promise that is lost with the process would leave volumes that nobody remembers. A note without
        // a delete does no harm, since the deployment still exists.
        if let Some(volumes) = volumes.filter(|_| !deleted.volumes_removed.is_empty()) {
            volumes.promise(&name)?;
        }
        let change = Change::Undeploy { deployment: name.clone() };
        match caller.write(cell, vec![change.at_revision(Some(revision))]).await {
            Ok(_) => {
                if let Some(volumes) = volumes {
                    volumes.wake();
                }
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
    let volumes = volumes_of(services);
    let (volumes_kept, volumes_removed) =
        if remove { (Vec::new(), volumes) } else { (volumes, Vec::new()) };
    Deleted {
        deployment: name.to_string(),
        replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
        volumes_kept,
        volumes_removed,
    }
}

/// The named volumes that are the deployment's own, as its file names them.
fn volumes_of(services: &Services) -> Vec<String> {
    let mut names = BTreeSet::new();
    for spec in services.values() {
        for mount in &spec.container.mounts {
            let MountSource::Volume { name, .. } = &mount.source else { continue };
            let declared = spec.container.volumes.get(name);
            if !declared.is_some_and(|volume| volume.external) {
                names.insert(name.clone());
            }
        }
    }
    names.into_iter().collect()
}
