//! What the routers of a cell go by, read off the state: which ports are published, and which containers stand behind
//! each. It is the same for every node, so a leader tells it to those that do not hold the log, and then what changes.
//! What one node makes of it is settled in [`wanted`](super::wanted).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::spec::{Port, PortMode, Protocol};
use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, ContainerSpec, Generation, Millis, NodeId, NodeStatus, Replica, ReplicaId,
    ServiceKey, ServiceSpec, State,
};
use plimsoll_runtime::DEFAULT_STOP_GRACE;
use serde::{Deserialize, Serialize};

/// See the module's own words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chart {
    /// Those that publish something, or of whom a container still does.
    pub services: BTreeMap<ServiceKey, Arc<Listing>>,
    /// Where nodes are reached by others.
    pub nodes: BTreeMap<NodeId, String>,
}

/// A service as routers know it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Listing {
    /// Where it is listened for, and to which port of its containers that leads.
    pub published: BTreeMap<Place, u16>,
    pub containers: Vec<Container>,
}

/// Where every node listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub address: SocketAddr,
    pub protocol: Protocol,
}

/// One container behind a service's ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub replica: ReplicaId,
    pub generation: Generation,
    pub node: NodeId,
    pub turn: Turn,
    /// Those of its own that something leads to.
    pub ports: BTreeSet<u16>,
}

/// Whether requests are sent to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Turn {
    Takes,
    /// Known, so that its node takes what others send there who knew of its health before it did, and so that a node that
    /// was not heard for a moment loses no connection.
    Waits,
    /// What is under way may take so long to end.
    Leaves {
        grace: Millis,
    },
}

/// What makes one chart of another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Correction {
    /// It says everything: what was known before is forgotten.
    pub is_whole: bool,
    pub services: BTreeMap<ServiceKey, Option<Arc<Listing>>>,
    pub nodes: BTreeMap<NodeId, Option<String>>,
}

impl Chart {
    /// As the state has it. What is as it was shares its listing with the chart before.
    pub fn of(state: &State, before: Option<&Self>) -> Self {
        let mut services = BTreeMap::new();
        for (key, service) in state.services() {
            let Some(listing) = listing(state, key, service) else { continue };
            let known = before.and_then(|chart| chart.services.get(key));
            let known = known.filter(|known| ***known == listing).cloned();
            services.insert(key.clone(), known.unwrap_or_else(|| Arc::new(listing)));
        }
        let addressed = state.nodes().iter().filter_map(|(id, node)| {
            let address = node.facts.address.clone()?;
            Some((id.clone(), address))
        });
        Self { services, nodes: addressed.collect() }
    }

    /// What to tell who knows that much; everything to who knows nothing.
    pub fn since(&self, known: Option<&Self>) -> Correction {
        let nothing = Self::default();
        let before = known.unwrap_or(&nothing);
        Correction {
            is_whole: known.is_none(),
            services: changes(&before.services, &self.services),
            nodes: changes(&before.nodes, &self.nodes),
        }
    }

    pub fn corrected(&self, correction: Correction) -> Self {
        let mut chart = if correction.is_whole { Self::default() } else { self.clone() };
        put(&mut chart.services, correction.services);
        put(&mut chart.nodes, correction.nodes);
        chart
    }
}

fn changes<K: Ord + Clone, V: PartialEq + Clone>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let gone = before.keys().filter(|key| !after.contains_key(key));
    let new = after.iter().filter(|(key, value)| before.get(key) != Some(value));
    let new = new.map(|(key, value)| (key.clone(), Some(value.clone())));
    gone.map(|key| (key.clone(), None)).chain(new).collect()
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, changes: BTreeMap<K, Option<V>>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(map.insert(key, value)),
            None => drop(map.remove(&key)),
        }
    }
}

/// How long what is under way to a container may take to end once it leaves.
pub fn grace(container: &ContainerSpec) -> Duration {
    Duration::from_millis(stop_grace(container).0)
}

fn stop_grace(container: &ContainerSpec) -> Millis {
    container.stop_grace.unwrap_or(DEFAULT_STOP_GRACE)
}

/// The published ports of a container that lead to any of its kind.
fn published(container: &ContainerSpec) -> impl Iterator<Item = (Place, &Port)> {
    let routed = container.ports.iter().filter(|port| port.mode == PortMode::Routed);
    routed.filter_map(|port| Some((place(port)?, port)))
}

/// Where a port is listened on; none where nobody says which, or for what routers do not carry.
fn place(port: &Port) -> Option<Place> {
    let host = port.host_ip.as_ref().and_then(|ip| ip.parse().ok());
    let address = SocketAddr::new(host.unwrap_or(ANY), port.published?);
    match port.protocol {
        Protocol::Tcp | Protocol::Udp => Some(Place { address, protocol: port.protocol }),
        Protocol::Sctp => None,
    }
}

/// Both kinds of address, where the host has both.
const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// A container stands behind the ports of its own spec, which may be older than the one that is desired.
fn listing(state: &State, key: &ServiceKey, service: &Service) -> Option<Listing> {
    let routes = |spec: &Arc<ServiceSpec>| published(&spec.container).next().is_some();
    // Most services publish nothing, and need not be looked at further.
    if !service.row.specs.values().any(routes) {
        return None;
    }
    let mut containers = Vec::new();
    for (slot, replica) in &service.replicas {
        for held in replica.holds() {
            let Some(spec) = service.spec_of(held) else { continue };
            let ports = published(&spec.container).map(|(_, port)| port.target).collect();
            containers.push(Container {
                replica: ReplicaId::new(key.clone(), slot.clone()),
                generation: held.generation,
                node: held.node.clone(),
                turn: turn(state, replica, held, &spec.container),
                ports,
            });
        }
    }
    let desired = service.desired().into_iter().flat_map(|spec| published(&spec.container));
    let lead = |(at, port): (Place, &Port)| (at, lead(service, &containers, at, port.target));
    let published = desired.map(lead).collect();
    Some(Listing { published, containers })
}

fn turn(state: &State, replica: &Replica, held: &Assignment, container: &ContainerSpec) -> Turn {
    let is = |other: &Assignment| other.generation == held.generation;
    if replica.leaving.iter().any(is) {
        Turn::Leaves { grace: stop_grace(container) }
    } else if serving(state, replica).is_some_and(is) {
        Turn::Takes
    } else {
        Turn::Waits
    }
}

/// The one generation of a replica that requests are sent to: the current one, and while that is not well the one that
/// takes its place, if it is.
fn serving<'r>(state: &State, replica: &'r Replica) -> Option<&'r Assignment> {
    let next = replica.successor.as_ref().map(|successor| &successor.assignment);
    let is_well = |assignment: &&Assignment| {
        let node = state.node(&assignment.node);
        replica.runs(assignment) && node.is_some_and(|node| node.status == NodeStatus::Ready)
    };
    replica.assignment.iter().chain(next).find(is_well)
}

/// Which port of the service's containers a published one leads to: that of the desired spec, as soon as one of it takes
/// requests, and until then that of an older one, which may be another.
fn lead(service: &Service, containers: &[Container], at: Place, desired: u16) -> u16 {
    let takes = |target: &u16| {
        let mut takers = containers.iter().filter(|one| one.turn == Turn::Takes);
        takers.any(|one| one.ports.contains(target))
    };
    let older = service.row.specs.values().flat_map(|spec| published(&spec.container));
    let older = older.filter(|(other, _)| *other == at).map(|(_, port)| port.target);
    std::iter::once(desired).chain(older).find(takes).unwrap_or(desired)
}
