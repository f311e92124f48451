//! What this node's router is to do, by the endpoints. Where a container of this node is reached is an argument; one of
//! another node is reached through that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::spec::{Protocol, Replay, RouteSpec, Tls};
use plimsoll_model::{DeploymentName, Generation, NodeId, ReplicaId, ServiceKey};
use plimsoll_router::{
    self as router, PoolKey, PoolMember, PublishedPort, UpstreamKey, UpstreamTarget,
};
use plimsoll_runtime::Block;

use plimsoll_kernel::endpoints::{
    EndpointState, Endpoints, ListenAddress, ReplicaEndpoint, ServiceEndpoints,
};

/// Where the containers of this node are reached.
pub type Addresses = BTreeMap<(ReplicaId, Generation), IpAddr>;

/// Networks of this node on which names are answered, and their addresses that stand for services.
pub type Open = BTreeMap<String, Block>;

/// What a router is asked for, and for whom.
#[derive(Debug, Default)]
pub struct NodeRouterConfig {
    pub wanted: router::RouterConfig,
    /// Whose each published port is.
    pub owners: BTreeMap<PublishedPort, ServiceKey>,
}

/// What the router of this node is to do, on which names are answered on the `open` networks. A port is one service's.
pub fn wanted(
    endpoints: &Endpoints,
    node: &NodeId,
    addresses: &Addresses,
    open: &Open,
) -> NodeRouterConfig {
    let mut asked = NodeRouterConfig::default();
    for (key, listing) in &endpoints.services {
        let name = key.to_string();
        if listing.replay == Replay::Off {
            asked.wanted.without_replay.insert(name.as_str().into());
        }
        for (place, target) in &listing.published {
            let Some(at) = at(*place) else { continue };
            asked.owners.insert(at, key.clone());
            asked.wanted.published.insert(at, PoolKey::new(&name, *target));
        }
        let here = LocalNode { node, addresses };
        for (port, members) in pools(listing, &here) {
            asked.wanted.pools.insert(PoolKey::new(&name, port), members.into());
        }
        let is_neighbour = listing.networks.keys().any(|network| open.contains_key(network));
        if is_neighbour || listing.replicas.iter().any(|one| one.node == *node) {
            let any = PoolKey::any(&name);
            let members = all_ports(listing, &here, any.port);
            asked.wanted.pools.insert(any, members.collect());
        }
    }
    let routes =
        endpoints.routes.iter().flat_map(|(name, all)| all.iter().map(move |it| (name, it)));
    asked.wanted.routes = routes.map(|(deployment, it)| route(deployment, it)).collect();
    asked
}

fn route(deployment: &DeploymentName, route: &RouteSpec) -> router::RouteConfig {
    let service = ServiceKey::new(deployment.clone(), route.service.clone());
    router::RouteConfig {
        host: route.host.clone(),
        path: route.prefix().to_owned(),
        strip_path: route.strip_path,
        pool: PoolKey::new(&service.to_string(), route.port),
        tls: match route.tls {
            Tls::Off => router::RouteTls::Off,
            Tls::Internal => router::RouteTls::Internal,
            Tls::Files => router::RouteTls::Files,
            Tls::Auto => router::RouteTls::Auto,
        },
    }
}

/// What the router of a node is to do that has no endpoints yet: lead to those of its containers that others have asked for.
/// Which of them take requests is settled by those who ask.
pub fn wanted_by_others(others: &BTreeSet<UpstreamKey>, addresses: &Addresses) -> NodeRouterConfig {
    let mut asked = NodeRouterConfig::default();
    for ((id, generation), address) in addresses {
        let name: Arc<str> = id.to_string().into();
        let own = others.iter().filter(|key| key.replica == name && key.generation == generation.0);
        for key in own {
            let (replica, target) =
                (Arc::clone(&name), UpstreamTarget::Local((*address, key.port).into()));
            let (generation, state) = (generation.0, router::MemberState::Joining);
            // Whoever asks has written what comes before the client's bytes.
            let proxied = Arc::default();
            let member = PoolMember { replica, generation, target, state, proxied };
            // Each by itself: two generations of a replica are no rivals here.
            let pool = PoolKey::new(&format!("{name} of {generation}"), key.port);
            asked.wanted.pools.insert(pool, [member].into());
        }
    }
    asked
}

fn at(place: ListenAddress) -> Option<PublishedPort> {
    let protocol = match place.protocol {
        Protocol::Tcp => router::Protocol::Tcp,
        Protocol::Udp => router::Protocol::Udp,
        Protocol::Sctp => return None,
    };
    Some(PublishedPort { address: place.address, protocol })
}

struct LocalNode<'a> {
    node: &'a NodeId,
    addresses: &'a Addresses,
}

/// Who stands behind each port of the service that something leads to.
fn pools(listing: &ServiceEndpoints, here: &LocalNode<'_>) -> BTreeMap<u16, Vec<PoolMember>> {
    let mut pools: BTreeMap<u16, Vec<PoolMember>> = BTreeMap::new();
    for container in &listing.replicas {
        let Some(way) = here.way(container) else { continue };
        for port in &container.ports {
            pools.entry(*port).or_default().push(member(container, &way, *port));
        }
    }
    pools
}

/// Who is reached at any port.
fn all_ports(
    listing: &ServiceEndpoints,
    here: &LocalNode<'_>,
    any: u16,
) -> impl Iterator<Item = PoolMember> {
    let containers = listing.replicas.iter();
    containers.filter_map(move |container| Some(member(container, &here.way(container)?, any)))
}

fn member(container: &ReplicaEndpoint, way: &Way, port: u16) -> PoolMember {
    let (generation, state) = (container.generation.0, router_state(container.state));
    PoolMember {
        replica: container.replica.to_string().into(),
        generation,
        target: way.to(port),
        state,
        proxied: container.proxied.iter().copied().collect(),
    }
}

fn router_state(state: EndpointState) -> router::MemberState {
    match state {
        EndpointState::Ready => router::MemberState::Ready,
        EndpointState::NotReady => router::MemberState::Joining,
        EndpointState::Draining { grace } => {
            router::MemberState::Draining { grace: Duration::from_millis(grace.0) }
        }
    }
}

/// How a container is reached.
enum Way {
    Local(IpAddr),
    Through(Arc<str>),
}

impl Way {
    fn to(&self, port: u16) -> UpstreamTarget {
        match self {
            Self::Local(address) => UpstreamTarget::Local((*address, port).into()),
            Self::Through(node) => UpstreamTarget::Via { node: Arc::clone(node) },
        }
    }
}

impl LocalNode<'_> {
    fn way(&self, container: &ReplicaEndpoint) -> Option<Way> {
        if container.node != *self.node {
            return Some(Way::Through(container.node.as_str().into()));
        }
        let key = (container.replica.clone(), container.generation);
        self.addresses.get(&key).map(|address| Way::Local(*address))
    }
}
