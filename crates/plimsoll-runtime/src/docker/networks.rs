//! The networks of a deployment: made when the first container needs them, removed with the last.
//!
//! On a network its services find each other by name: through [`Names`] where somebody answers for them, else as the
//! engine has it, which knows its own containers only. Networks of others are used where a spec names them as external,
//! and are never made, changed or removed.

use std::collections::BTreeSet;
use std::path::Path;

use bollard::Docker;
use bollard::models::{EndpointIpamConfig, EndpointSettings, Network, NetworkCreateRequest};
use bollard::query_parameters::{ListContainersOptions, ListNetworksOptions};
use plimsoll_model::spec::NetworkAttachment;
use plimsoll_model::{CellId, ContainerSpec, DeploymentName};

use super::engine_error::EngineError;
use super::list::containers;
use super::{AddressPool, image, labels, subnets};
use crate::bridge::Bridge;
use crate::runtime::Tag;

/// How often another place is looked for when somebody takes the one that was found.
const PLACES: u32 = 5;

/// What engines call the host's side of a network.
const BRIDGE_NAME: &str = "com.docker.network.bridge.name";

/// A network to be in, and how.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NetworkEndpoint {
    /// Its name on the engine.
    pub(super) network: String,
    /// What specs call it.
    name: String,
    /// The name it has where another cell has that one; none where the file says what it is called.
    pub(super) scoped: Option<String>,
    pub(super) is_external: bool,
    pub(super) is_internal: bool,
    pub(super) settings: EndpointSettings,
}

/// Where the container is to be, the default network first. Empty for one that shares or forgoes a network.
pub(super) fn endpoints(tag: &Tag, spec: &ContainerSpec) -> Vec<NetworkEndpoint> {
    let joined = spec.joins(tag.deployment()).into_iter();
    joined.map(|(name, attachment)| endpoint(tag, name, &attachment)).collect()
}

fn endpoint(tag: &Tag, network: String, attachment: &NetworkAttachment) -> NetworkEndpoint {
    let service = tag.replica.service.service.to_string();
    let aliases = std::iter::once(service).chain(attachment.aliases.iter().cloned()).collect();
    let (ipv4_address, ipv6_address) = (&attachment.ipv4_address, &attachment.ipv6_address);
    let has_address = ipv4_address.is_some() || ipv6_address.is_some();
    let ipam_config = has_address.then(|| EndpointIpamConfig {
        ipv4_address: ipv4_address.clone(),
        ipv6_address: ipv6_address.clone(),
        ..EndpointIpamConfig::default()
    });
    let is_ours = attachment.name.is_none() && !attachment.external;
    NetworkEndpoint {
        scoped: is_ours.then(|| labels::scoped(&network, tag)),
        name: network.clone(),
        network,
        is_external: attachment.external,
        is_internal: attachment.internal,
        settings: EndpointSettings {
            aliases: Some(aliases),
            ipam_config,
            ..EndpointSettings::default()
        },
    }
}

/// Has the network there when it returns. The caller lets one in at a time; another daemon may still be at it. With a
/// `pool` to take addresses from, names can be answered on what is made here.
pub(super) async fn ensure(
    docker: &Docker,
    tag: &Tag,
    endpoint: &mut NetworkEndpoint,
    pool: Option<AddressPool>,
) -> Result<(), EngineError> {
    choose(docker, tag, endpoint).await?;
    make(docker, tag, endpoint, pool).await?;
    // Another cell may have made it in the same moment.
    let chosen = endpoint.network.clone();
    choose(docker, tag, endpoint).await?;
    if endpoint.network == chosen { Ok(()) } else { make(docker, tag, endpoint, pool).await }
}

/// The network on the engine as those know it who answer for names; none for one that was not made for that.
pub(super) async fn bridge(
    docker: &Docker,
    endpoint: &NetworkEndpoint,
) -> Result<Option<Bridge>, EngineError> {
    Ok(find(docker, &endpoint.network).await?.first().and_then(subnets::bridge))
}

/// All of the cell's that names can be answered on.
pub(super) async fn bridges(docker: &Docker, cell_id: &CellId) -> Result<Vec<Bridge>, EngineError> {
    let filters = Some(labels::filter(cell_id, None));
    let found = docker.list_networks(Some(ListNetworksOptions { filters })).await?;
    Ok(found.iter().filter_map(subnets::bridge).collect())
}

impl NetworkEndpoint {
    /// Leaves its names to somebody else than the engine, who would know of containers on this node alone.
    pub(super) fn leave_names(&mut self) {
        self.settings.aliases = None;
    }
}

/// Takes the cell's own name for it where another cell has the shorter one. Once there is a network of that name it is
/// kept to, so that all containers of a deployment are in one.
pub(super) async fn choose(
    docker: &Docker,
    tag: &Tag,
    endpoint: &mut NetworkEndpoint,
) -> Result<(), EngineError> {
    let Some(scoped) = endpoint.scoped.clone() else { return Ok(()) };
    let is_taken = async || -> Result<bool, EngineError> {
        let found = find(docker, &endpoint.network).await?;
        Ok(found.first().is_some_and(|it| labels::is_of_another(tag, it.labels.as_ref())))
    };
    if !find(docker, &scoped).await?.is_empty() || is_taken().await? {
        endpoint.network = scoped;
    }
    Ok(())
}

async fn make(
    docker: &Docker,
    tag: &Tag,
    endpoint: &NetworkEndpoint,
    pool: Option<AddressPool>,
) -> Result<(), EngineError> {
    let name = &endpoint.network;
    if is_there(docker, tag, name).await? {
        return Ok(());
    }
    if endpoint.is_external {
        return Err(EngineError::NoNetwork { name: name.clone() });
    }
    let mut request = NetworkCreateRequest {
        name: name.clone(),
        driver: Some("bridge".to_owned()),
        internal: Some(endpoint.is_internal),
        attachable: Some(true),
        labels: Some(labels::shared(&tag.cell_id, tag.deployment())),
        ..NetworkCreateRequest::default()
    };
    let mut places = PLACES;
    loop {
        let has_place = match pool {
            Some(pool) => place(docker, endpoint, pool, &mut request).await?,
            None => false,
        };
        places -= 1;
        match docker.create_network(request.clone()).await.map_err(EngineError::from) {
            Ok(_) => break,
            Err(fault) if fault.status() == Some(409) => break,
            // Somebody took the place in the meantime.
            Err(fault) if has_place && places > 0 && fault.status() == Some(403) => {}
            Err(fault) => return Err(fault),
        }
    }
    is_there(docker, tag, name).await.map(drop)
}

/// Gives the network addresses with room for names. Where our own pool has none left the engine chooses, and names are
/// left to it; where an operator gave the pool, other addresses are not for us to take.
async fn place(
    docker: &Docker,
    endpoint: &NetworkEndpoint,
    AddressPool { block: pool, is_given }: AddressPool,
    request: &mut NetworkCreateRequest,
) -> Result<bool, EngineError> {
    let mut taken = subnets::of(&docker.list_networks(None).await?);
    taken.extend(subnets::routed(Path::new("/")));
    let free = subnets::free(pool, &taken);
    let Some((network, services)) = free.and_then(|it| Some((it, subnets::virtual_block(it)?)))
    else {
        if is_given {
            let network = endpoint.name.clone();
            return Err(EngineError::PoolExhausted { pool, network });
        }
        tracing::warn!(%pool, network = endpoint.name, "address pool exhausted: services on other nodes do not resolve on this network");
        return Ok(false);
    };
    request.ipam = Some(subnets::ipam(network));
    request.labels.get_or_insert_default().extend([
        (subnets::VIRTUAL.to_owned(), services.to_string()),
        (subnets::NETWORK_NAME.to_owned(), endpoint.name.clone()),
    ]);
    if image::is_podman(docker).await?
        && let Some(interface) = subnets::interface(network)
    {
        request.options.get_or_insert_default().insert(BRIDGE_NAME.to_owned(), interface.clone());
        let labels = request.labels.get_or_insert_default();
        labels.insert(subnets::INTERFACE.to_owned(), interface);
    }
    Ok(true)
}

/// Older engines let two networks have one name, and then know neither by it. Two daemons that made one at the same
/// moment agree on the elder, and take the younger one back.
async fn is_there(docker: &Docker, tag: &Tag, name: &str) -> Result<bool, EngineError> {
    let found = find(docker, name).await?;
    let is_ours = |network: &Network| {
        let cell_id = network.labels.as_ref().and_then(|labels| labels.get(labels::CELL));
        cell_id.is_some_and(|cell_id| cell_id == tag.cell_id.as_str())
    };
    let younger = found.iter().skip(1).filter(|network| is_ours(network));
    for id in younger.filter_map(|network| network.id.as_deref()) {
        let _ = docker.remove_network(id).await;
    }
    Ok(!found.is_empty())
}

/// All networks of the name, the eldest first.
async fn find(docker: &Docker, name: &str) -> Result<Vec<Network>, EngineError> {
    let filters = [("name".to_owned(), vec![name.to_owned()])].into();
    let options = ListNetworksOptions { filters: Some(filters) };
    let mut found = docker.list_networks(Some(options)).await?;
    found.retain(|network| network.name.as_deref() == Some(name));
    found.sort_by_key(|network| (network.created.clone(), network.id.clone()));
    Ok(found)
}

/// The deployments of the cell that have networks here.
pub(super) async fn deployments(
    docker: &Docker,
    cell_id: &CellId,
) -> Result<BTreeSet<DeploymentName>, EngineError> {
    let filters = Some(labels::filter(cell_id, None));
    let found = docker.list_networks(Some(ListNetworksOptions { filters })).await?;
    let names = found.into_iter().filter_map(|network| network.labels?.remove(labels::DEPLOYMENT));
    Ok(names.filter_map(|name| DeploymentName::new(name).ok()).collect())
}

/// Removes the deployment's networks if nothing of it is here any more, and says which had names. Best effort: a network that stays in use, or an
/// engine that went away, leaves them for the next time.
pub(super) async fn clear(
    docker: &Docker,
    cell_id: &CellId,
    deployment: &DeploymentName,
) -> Result<Vec<Bridge>, EngineError> {
    let filters = Some(labels::filter(cell_id, Some(deployment)));
    let options =
        ListContainersOptions { all: true, filters: filters.clone(), ..Default::default() };
    if !containers(docker, options).await?.is_empty() {
        return Ok(Vec::new());
    }
    let mut gone = Vec::new();
    for network in docker.list_networks(Some(ListNetworksOptions { filters })).await? {
        let Some(id) = &network.id else { continue };
        if docker.remove_network(id).await.is_ok() {
            gone.extend(subnets::bridge(&network));
        }
    }
    Ok(gone)
}
