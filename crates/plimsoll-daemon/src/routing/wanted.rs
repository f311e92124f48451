//! What this node's router is to do, by the chart. Where a container of this node is reached is an argument; one of
//! another node is reached through that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::spec::{Protocol, RouteSpec, Tls};
use plimsoll_model::{DeploymentName, Generation, NodeId, ReplicaId, ServiceKey};
use plimsoll_router::{self as router, Member, PoolKey, Published, Target, UpstreamKey};
use plimsoll_runtime::Block;

use super::chart::{Chart, Container, Listing, Place, Turn};

/// Where the containers of this node are reached.
pub type Addresses = BTreeMap<(ReplicaId, Generation), IpAddr>;

/// Networks of this node on which names are answered, and their addresses that stand for services.
pub type Open = BTreeMap<String, Block>;

/// What a router is asked for, and for whom.
#[derive(Debug, Default)]
pub struct Asked {
    pub wanted: router::Wanted,
    /// Whose each published port is.
    pub owners: BTreeMap<Published, ServiceKey>,
}

/// What the router of this node is to do, on which names are answered on the `open` networks. A port is one service's.
pub fn wanted(chart: &Chart, node: &NodeId, addresses: &Addresses, open: &Open) -> Asked {
    let mut asked = Asked::default();
    for (key, listing) in &chart.services {
        let name = key.to_string();
        for (place, target) in &listing.published {
            let Some(at) = at(*place) else { continue };
            asked.owners.insert(at, key.clone());
            asked.wanted.published.insert(at, PoolKey::new(&name, *target));
        }
        let here = Here { node, addresses };
        for (port, members) in pools(listing, &here) {
            asked.wanted.pools.insert(PoolKey::new(&name, port), members.into());
        }
        let is_neighbour = listing.networks.keys().any(|network| open.contains_key(network));
        if is_neighbour || listing.containers.iter().any(|one| one.node == *node) {
            let any = PoolKey::any(&name);
            let members = all_ports(listing, &here, any.port);
            asked.wanted.pools.insert(any, members.collect());
        }
    }
    let routes = chart.routes.iter().flat_map(|(name, all)| all.iter().map(move |it| (name, it)));
    asked.wanted.routes = routes.map(|(deployment, it)| route(deployment, it)).collect();
    asked
}

fn route(deployment: &DeploymentName, route: &RouteSpec) -> router::RouteSpec {
    let service = ServiceKey::new(deployment.clone(), route.service.clone());
    router::RouteSpec {
        host: route.host.clone(),
        path: route.prefix().to_owned(),
        strip_path: route.strip_path,
        pool: PoolKey::new(&service.to_string(), route.port),
        tls: match route.tls {
            Tls::Off => router::Tls::Off,
            Tls::Internal => router::Tls::Internal,
            Tls::Files => router::Tls::Files,
        },
    }
}

/// What the router of a node is to do that has no chart yet: lead to those of its containers that others have asked for.
/// Which of them take requests is settled by those who ask.
pub fn wanted_by_others(others: &BTreeSet<UpstreamKey>, addresses: &Addresses) -> Asked {
    let mut asked = Asked::default();
    for ((id, generation), address) in addresses {
        let name: Arc<str> = id.to_string().into();
        let own = others.iter().filter(|key| key.replica == name && key.generation == generation.0);
        for key in own {
            let (replica, target) = (Arc::clone(&name), Target::Local((*address, key.port).into()));
            let (generation, state) = (generation.0, router::State::Joining);
            let member = Member { replica, generation, target, state };
            // Each by itself: two generations of a replica are no rivals here.
            let pool = PoolKey::new(&format!("{name} of {generation}"), key.port);
            asked.wanted.pools.insert(pool, [member].into());
        }
    }
    asked
}

fn at(place: Place) -> Option<Published> {
    let protocol = match place.protocol {
        Protocol::Tcp => router::Protocol::Tcp,
        Protocol::Udp => router::Protocol::Udp,
        Protocol::Sctp => return None,
    };
    Some(Published { address: place.address, protocol })
}

struct Here<'a> {
    node: &'a NodeId,
    addresses: &'a Addresses,
}

/// Who stands behind each port of the service that something leads to.
fn pools(listing: &Listing, here: &Here<'_>) -> BTreeMap<u16, Vec<Member>> {
    let mut pools: BTreeMap<u16, Vec<Member>> = BTreeMap::new();
    for container in &listing.containers {
        let Some(way) = here.way(container) else { continue };
        for port in &container.ports {
            pools.entry(*port).or_default().push(member(container, &way, *port));
        }
    }
    pools
}

/// Who is reached at any port.
fn all_ports(listing: &Listing, here: &Here<'_>, any: u16) -> impl Iterator<Item = Member> {
    let containers = listing.containers.iter();
    containers.filter_map(move |container| Some(member(container, &here.way(container)?, any)))
}

fn member(container: &Container, way: &Way, port: u16) -> Member {
    let (generation, state) = (container.generation.0, state(container.turn));
    Member {
        replica: container.replica.to_string().into(),
        generation,
        target: way.to(port),
        state,
    }
}

fn state(turn: Turn) -> router::State {
    match turn {
        Turn::Takes => router::State::In,
        Turn::Waits => router::State::Joining,
        Turn::Leaves { grace } => router::State::Draining { grace: Duration::from_millis(grace.0) },
    }
}

/// How a container is reached.
enum Way {
    Here(IpAddr),
    Through(Arc<str>),
}

impl Way {
    fn to(&self, port: u16) -> Target {
        match self {
            Self::Here(address) => Target::Local((*address, port).into()),
            Self::Through(node) => Target::Via { node: Arc::clone(node) },
        }
    }
}

impl Here<'_> {
    fn way(&self, container: &Container) -> Option<Way> {
        if container.node != *self.node {
            return Some(Way::Through(container.node.as_str().into()));
        }
        let key = (container.replica.clone(), container.generation);
        self.addresses.get(&key).map(|address| Way::Here(*address))
    }
}
