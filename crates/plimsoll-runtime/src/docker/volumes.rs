//! Named volumes of a deployment: made where missing, and deleted only when a person asked for it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bollard::Docker;
use bollard::models::{Volume, VolumeCreateRequest, VolumeScopeEnum};
use bollard::query_parameters::{ListVolumesOptions, RemoveVolumeOptions};
use plimsoll_model::spec::{MountSource, VolumeScope, VolumeSpec};
use plimsoll_model::{CellId, DeploymentName};

use super::engine_error::EngineError;
use super::labels;
use crate::runtime::{StartRequest, Tag, VolumeRef};

/// What the volumes of a container are called on the engine.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By what the file calls them.
    pub(super) named: BTreeMap<String, String>,
    /// By the path at which the image declares them.
    pub(super) declared: BTreeMap<String, String>,
}

/// Has every volume of the order there, and says under which name. One that exists is used as it is, whoever made it, but for
/// another cell: data stays.
pub(super) async fn ensure(docker: &Docker, order: &StartRequest) -> Result<Names, EngineError> {
    let (tag, spec) = (&order.tag, &*order.spec);
    let mut names = Names::default();
    for mount in &spec.mounts {
        let MountSource::Volume { name: key, .. } = &mount.source else { continue };
        let declared = spec.volumes.get(key).cloned().unwrap_or_default();
        let name = ensure_one(docker, tag, key, &declared).await?;
        if declared.scope == Some(VolumeScope::Global) {
            check_global(docker, &name).await?;
        }
        if spec.asked_by.is_some() {
            check_plain(docker, &name).await?;
        }
        names.named.insert(key.clone(), name);
    }
    for (path, key) in &order.declared {
        // It has a name, for one without would go with the container, and the data with it. What the image has there is
        // copied into it while it is empty, as into any other.
        let name = ensure_one(docker, tag, key, &VolumeSpec::default()).await?;
        names.declared.insert(path.clone(), name);
    }
    Ok(names)
}

async fn ensure_one(
    docker: &Docker,
    tag: &Tag,
    key: &str,
    spec: &VolumeSpec,
) -> Result<String, EngineError> {
    let name = spec.name_on_engine(tag.deployment(), key);
    let scoped = (spec.name.is_none() && !spec.external).then(|| labels::scoped(&name, tag));
    // Once there is one with the cell's own name the data is there, whatever became of the other.
    if let Some(scoped) = &scoped
        && find(docker, scoped).await?.is_some()
    {
        return Ok(scoped.clone());
    }
    let found = match find(docker, &name).await? {
        Some(found) => found,
        None if spec.external => return Err(EngineError::NoVolume { name }),
        None => make(docker, tag, key, spec, &name).await?,
    };
    // Also one that was made a moment ago may have been made by another cell first.
    match scoped {
        Some(scoped) if labels::is_of_another(tag, Some(&found.labels)) => {
            make(docker, tag, key, spec, &scoped).await?;
            Ok(scoped)
        }
        _ => Ok(name),
    }
}

/// A volume stays as it was made, also by an admin, who may have made it a directory of the node.
async fn check_plain(docker: &Docker, name: &str) -> Result<(), EngineError> {
    match find(docker, name).await? {
        Some(volume) if !is_plain(&volume) => {
            Err(EngineError::DrivenVolume { name: name.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The cell places by what the file says. Were it wrong, every node would have a volume of its own.
async fn check_global(docker: &Docker, name: &str) -> Result<(), EngineError> {
    match find(docker, name).await? {
        Some(volume) if volume.scope != Some(VolumeScopeEnum::GLOBAL) => {
            Err(EngineError::LocalVolume { name: name.to_owned(), driver: volume.driver })
        }
        _ => Ok(()),
    }
}

async fn find(docker: &Docker, name: &str) -> Result<Option<Volume>, EngineError> {
    match docker.inspect_volume(name).await.map_err(EngineError::from) {
        Ok(found) => Ok(Some(found)),
        Err(fault) if fault.is_absent() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The volume that goes by the name then: to create what another created meanwhile is no error on any engine.
async fn make(
    docker: &Docker,
    tag: &Tag,
    key: &str,
    spec: &VolumeSpec,
    name: &str,
) -> Result<Volume, EngineError> {
    let mut labels = spec.labels.clone();
    labels.extend(labels::shared(&tag.cell_id, tag.deployment()));
    labels.insert("com.docker.compose.volume".to_owned(), key.to_owned());
    let request = VolumeCreateRequest {
        name: Some(name.to_owned()),
        driver: spec.driver.clone(),
        driver_opts: Some(spec.driver_opts.clone().into_iter().collect()),
        labels: Some(labels.into_iter().collect()),
        ..VolumeCreateRequest::default()
    };
    Ok(docker.create_volume(request).await?)
}

/// The directory of a volume on this host. Only of plain ones: what another driver or an option makes of a volume, its
/// directory does not tell.
pub(super) async fn dir(
    docker: &Docker,
    cell_id: &CellId,
    volume: &VolumeRef,
) -> Result<Option<PathBuf>, EngineError> {
    match own(docker, cell_id, volume).await? {
        None => Ok(None),
        Some(found) if is_plain(&found) => Ok(Some(PathBuf::from(found.mountpoint))),
        Some(found) => Err(EngineError::DrivenVolume { name: found.name }),
    }
}

/// An empty volume of the deployment's own.
pub(super) async fn create(
    docker: &Docker,
    cell_id: &CellId,
    volume: &VolumeRef,
) -> Result<PathBuf, EngineError> {
    let mut labels = labels::shared(cell_id, &volume.deployment);
    let key = volume.key().unwrap_or(&volume.name).to_owned();
    labels.insert("com.docker.compose.volume".to_owned(), key);
    // Where another cell has the name, it is made under the cell's own, as a container that mounts it would.
    let is_taken = find(docker, &volume.name).await?.is_some();
    let name = if is_taken { scoped(cell_id, volume) } else { volume.name.clone() };
    let request = VolumeCreateRequest {
        name: Some(name),
        labels: Some(labels),
        ..VolumeCreateRequest::default()
    };
    Ok(PathBuf::from(docker.create_volume(request).await?.mountpoint))
}

pub(super) async fn remove_one(
    docker: &Docker,
    cell_id: &CellId,
    volume: &VolumeRef,
) -> Result<(), EngineError> {
    let Some(found) = own(docker, cell_id, volume).await? else { return Ok(()) };
    let removed = docker.remove_volume(&found.name, None::<RemoveVolumeOptions>).await;
    match removed.map_err(EngineError::from) {
        Err(fault) if !fault.is_absent() => Err(fault),
        _ => Ok(()),
    }
}

/// The volume that containers of the deployment have under the name.
async fn own(
    docker: &Docker,
    cell_id: &CellId,
    volume: &VolumeRef,
) -> Result<Option<Volume>, EngineError> {
    if let Some(found) = find(docker, &scoped(cell_id, volume)).await? {
        return Ok(Some(found));
    }
    let found = find(docker, &volume.name).await?;
    Ok(found
        .filter(|found| found.labels.get(labels::CELL).is_none_or(|cell| cell == cell_id.as_str())))
}

fn scoped(cell_id: &CellId, volume: &VolumeRef) -> String {
    format!("{}.{cell_id}", volume.name)
}

fn is_plain(volume: &Volume) -> bool {
    volume.driver == "local" && volume.options.is_empty()
}

/// Deletes the volumes that we made for the deployment, and says which.
pub(super) async fn remove(
    docker: &Docker,
    cell_id: &CellId,
    deployment: &DeploymentName,
) -> Result<Vec<String>, EngineError> {
    let filters = Some(labels::filter(cell_id, Some(deployment)));
    let found = docker.list_volumes(Some(ListVolumesOptions { filters })).await?;
    let mut names: Vec<String> =
        found.volumes.unwrap_or_default().into_iter().map(|volume| volume.name).collect();
    names.sort_unstable();
    for name in &names {
        match docker
            .remove_volume(name, None::<RemoveVolumeOptions>)
            .await
            .map_err(EngineError::from)
        {
            Err(fault) if !fault.is_absent() => return Err(fault),
            _ => {}
        }
    }
    Ok(names)
}
