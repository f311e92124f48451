//! Named volumes of a deployment: made where missing, and deleted only when a person asked for it.

use bollard::Docker;
use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::{ListVolumesOptions, RemoveVolumeOptions};
use plimsoll_model::spec::{MountSource, VolumeSpec};
use plimsoll_model::{ClusterId, ContainerSpec, DeploymentName};

use super::fault::Fault;
use super::{labels, mounts};
use crate::runtime::Tag;

/// Has every named volume of the spec there. One that exists is used as it is, whoever made it: data stays.
pub(super) async fn ensure(docker: &Docker, tag: &Tag, spec: &ContainerSpec) -> Result<(), Fault> {
    for mount in &spec.mounts {
        let MountSource::Volume { name, .. } = &mount.source else { continue };
        let declared = spec.volumes.get(name).cloned().unwrap_or_default();
        ensure_one(docker, tag, name, &declared).await?;
    }
    Ok(())
}

async fn ensure_one(docker: &Docker, tag: &Tag, key: &str, spec: &VolumeSpec) -> Result<(), Fault> {
    let name = mounts::volume_name(tag.deployment(), key, Some(spec));
    match docker.inspect_volume(&name).await.map_err(Fault::from) {
        Ok(_) => return Ok(()),
        Err(fault) if !fault.is_absent() => return Err(fault),
        Err(_) if spec.external => return Err(Fault::NoVolume { name }),
        Err(_) => {}
    }
    let mut labels = spec.labels.clone();
    labels.extend(labels::shared(&tag.cluster, tag.deployment()));
    labels.insert("com.docker.compose.volume".to_owned(), key.to_owned());
    let request = VolumeCreateRequest {
        name: Some(name),
        driver: spec.driver.clone(),
        driver_opts: Some(spec.driver_opts.clone().into_iter().collect()),
        labels: Some(labels.into_iter().collect()),
        ..VolumeCreateRequest::default()
    };
    // To create what another created meanwhile is no error on any engine.
    docker.create_volume(request).await?;
    Ok(())
}

/// Deletes the volumes that we made for the deployment, and says which.
pub(super) async fn remove(
    docker: &Docker,
    cluster: &ClusterId,
    deployment: &DeploymentName,
) -> Result<Vec<String>, Fault> {
    let filters = Some(labels::filter(cluster, Some(deployment)));
    let found = docker.list_volumes(Some(ListVolumesOptions { filters })).await?;
    let mut names: Vec<String> =
        found.volumes.unwrap_or_default().into_iter().map(|volume| volume.name).collect();
    names.sort_unstable();
    for name in &names {
        match docker.remove_volume(name, None::<RemoveVolumeOptions>).await.map_err(Fault::from) {
            Err(fault) if !fault.is_absent() => return Err(fault),
            _ => {}
        }
    }
    Ok(names)
}
