//! What the routers of a cell go by, read off the state: which ports are published, which routes there are, and which
//! containers stand behind each. It is the same for every node, so a leader tells it to those that do not hold the log, and then what changes.
//! What one node makes of it is settled in [`wanted`](super::wanted).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::spec::{Port, PortMode, Protocol, RouteSpec};
use plimsoll_model::state::{Deployment, Service};
use plimsoll_model::{
    Assignment, ContainerSpec, DeploymentName, Event, Generation, Millis, NodeId, Replica,
    ReplicaId, ServiceKey, State,
};
use plimsoll_runtime::DEFAULT_STOP_GRACE;
use serde::{Deserialize, Serialize};

use super::ruling::Ruling;

/// See the module's own words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chart {
    /// Those that something leads to, or of whom a container is still led to.
    pub services: BTreeMap<ServiceKey, Arc<Listing>>,
    /// Where nodes are reached by others.
    pub nodes: BTreeMap<NodeId, String>,
    pub routes: BTreeMap<DeploymentName, Arc<Vec<RouteSpec>>>,
}

/// A service as routers know it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Listing {
    /// Where it is listened for, and to which port of its containers that leads.
    pub published: BTreeMap<Place, u16>,
    pub containers: Vec<Container>,
    /// The networks on which others find it, by what engines call them, and what it is called there besides its name.
    /// Those that somebody else made are not among them: nobody answers for names there but their engines.
    pub networks: BTreeMap<String, BTreeSet<String>>,
    /// Ports at which it says that it takes datagrams.
    pub datagrams: BTreeSet<u16>,
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
    /// Those that something leads to, or has led to since it is there: what is under way may end.
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
    pub routes: BTreeMap<DeploymentName, Option<Arc<Vec<RouteSpec>>>>,
}

impl Chart {
    /// As the state has it. What is as it was shares its listing with the chart before.
    pub fn of(state: &State, before: Option<&Self>) -> Self {
        let nothing = Self::default();
        let before = before.unwrap_or(&nothing);
        let mut chart = Self::default();
        for (key, service) in state.services() {
            chart.services.extend(before.redrawn(state, key, service));
        }
        for (name, deployment) in state.deployments() {
            chart.routes.extend(before.rerouted(name, deployment));
        }
        for id in state.nodes().keys() {
            chart.nodes.extend(addressed(state, id));
        }
        chart
    }

    /// The chart as of a state that differs from this one's by what these events say. Only what they name is looked at.
    pub fn after<'a>(&self, state: &State, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut touched = Touched::default();
        events.into_iter().for_each(|event| touched.note(state, event));
        let mut chart = self.clone();
        for key in touched.services {
            let service = state.services().get(&key);
            let drawn = service.and_then(|service| self.redrawn(state, &key, service));
            put_one(&mut chart.services, key, drawn.map(|(_, listing)| listing));
        }
        for name in touched.deployments {
            let deployment = state.deployments().get(&name);
            let drawn = deployment.and_then(|deployment| self.rerouted(&name, deployment));
            put_one(&mut chart.routes, name, drawn.map(|(_, routes)| routes));
        }
        for id in touched.nodes {
            let address = addressed(state, &id).map(|(_, address)| address);
            put_one(&mut chart.nodes, id, address);
        }
        chart
    }

    fn redrawn(
        &self,
        state: &State,
        key: &ServiceKey,
        service: &Service,
    ) -> Option<(ServiceKey, Arc<Listing>)> {
        let known = self.services.get(key);
        let listing = listing(state, key, service, known.map(Arc::as_ref))?;
        let known = known.filter(|known| ***known == listing).cloned();
        Some((key.clone(), known.unwrap_or_else(|| Arc::new(listing))))
    }

    fn rerouted(
        &self,
        name: &DeploymentName,
        deployment: &Deployment,
    ) -> Option<(DeploymentName, Arc<Vec<RouteSpec>>)> {
        let record = deployment.current().filter(|record| !record.routes.is_empty())?;
        let known = self.routes.get(name).filter(|known| ***known == record.routes).cloned();
        Some((name.clone(), known.unwrap_or_else(|| Arc::new(record.routes.clone()))))
    }

    /// What to tell who knows that much; everything to who knows nothing.
    pub fn since(&self, known: Option<&Self>) -> Correction {
        let nothing = Self::default();
        let before = known.unwrap_or(&nothing);
        Correction {
            is_whole: known.is_none(),
            services: changes(&before.services, &self.services),
            nodes: changes(&before.nodes, &self.nodes),
            routes: changes(&before.routes, &self.routes),
        }
    }

    pub fn corrected(&self, correction: Correction) -> Self {
        let mut chart = if correction.is_whole { Self::default() } else { self.clone() };
        put(&mut chart.services, correction.services);
        put(&mut chart.nodes, correction.nodes);
        put(&mut chart.routes, correction.routes);
        chart
    }
}

fn addressed(state: &State, id: &NodeId) -> Option<(NodeId, String)> {
    Some((id.clone(), state.node(id)?.facts.address.clone()?))
}

/// What is to be looked at again after some events.
#[derive(Debug, Default)]
struct Touched {
    services: BTreeSet<ServiceKey>,
    deployments: BTreeSet<DeploymentName>,
    nodes: BTreeSet<NodeId>,
}

impl Touched {
    fn note(&mut self, state: &State, event: &Event) {
        match event {
            Event::Service(key) => drop(self.services.insert(key.clone())),
            Event::Replica(id) => drop(self.services.insert(id.service.clone())),
            Event::Node(id) => {
                // Whether it is heard decides for all that it holds.
                let held = state.load(id).into_iter().flat_map(|load| &load.tenants);
                self.services.extend(held.map(|replica| replica.service.clone()));
                self.nodes.insert(id.clone());
            }
            Event::Deployment(name) => {
                // Routes lead to ports that services themselves do not name.
                self.services.extend(state.services_of(name).cloned());
                self.deployments.insert(name.clone());
            }
            Event::Access
            | Event::Load(_)
            | Event::Freed(_)
            | Event::Audit(_)
            | Event::Volumes(_) => {}
        }
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
        put_one(map, key, value);
    }
}

fn put_one<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
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

/// A container stands behind the ports that its own spec publishes, which may be older than the one that is desired, and
/// behind those that routes lead to.
fn listing(
    state: &State,
    key: &ServiceKey,
    service: &Service,
    before: Option<&Listing>,
) -> Option<Listing> {
    let routed = routed(state, key);
    let desired = || service.desired().map(|spec| &spec.container);
    let networks = desired().map(|container| networks(key, container)).unwrap_or_default();
    let datagrams = desired().map(datagrams).unwrap_or_default();
    let known = before.map(Listing::ports).unwrap_or_default();
    let mut containers = Vec::new();
    for (slot, replica) in &service.replicas {
        let id = ReplicaId::new(key.clone(), slot.clone());
        for held in replica.holds() {
            let Some(spec) = service.spec_of(held) else { continue };
            let own = published(&spec.container).map(|(_, port)| port.target);
            let mut ports: BTreeSet<u16> = own.chain(routed.iter().copied()).collect();
            ports.extend(&datagrams);
            ports.extend(known.get(&(&id, held.generation)).copied().into_iter().flatten());
            containers.push(Container {
                replica: id.clone(),
                generation: held.generation,
                node: held.node.clone(),
                turn: turn(state, replica, held, &spec.container),
                ports,
            });
        }
    }
    let places = desired().into_iter().flat_map(published);
    let lead = |(at, port): (Place, &Port)| (at, lead(service, &containers, at, port.target));
    let listing =
        Listing { published: places.map(lead).collect(), containers, networks, datagrams };
    Some(listing).filter(|listing| *listing != Listing::default())
}

fn networks(key: &ServiceKey, container: &ContainerSpec) -> BTreeMap<String, BTreeSet<String>> {
    let joined = container.joins(&key.deployment).into_iter();
    joined.filter(|(_, how)| !how.external).map(|(name, how)| (name, how.aliases)).collect()
}

/// The ports of a container that its spec says take datagrams, published or not.
fn datagrams(container: &ContainerSpec) -> BTreeSet<u16> {
    let published = container.ports.iter().filter(|port| port.protocol == Protocol::Udp);
    let exposed =
        container.expose.iter().filter_map(|text| text.strip_suffix("/udp")?.parse().ok());
    published.map(|port| port.target).chain(exposed).collect()
}

/// The ports of the service that routes lead to.
fn routed(state: &State, key: &ServiceKey) -> BTreeSet<u16> {
    let deployment = state.deployments().get(&key.deployment);
    let routes = deployment.and_then(Deployment::current).into_iter().flat_map(|it| &it.routes);
    routes.filter(|route| route.service == key.service).map(|route| route.port).collect()
}

impl Listing {
    /// The ports of each container.
    fn ports(&self) -> BTreeMap<(&ReplicaId, Generation), &BTreeSet<u16>> {
        self.containers.iter().map(|one| ((&one.replica, one.generation), &one.ports)).collect()
    }
}

fn turn(state: &State, replica: &Replica, held: &Assignment, container: &ContainerSpec) -> Turn {
    match Ruling::of(state, replica, held) {
        Ruling::Takes => Turn::Takes,
        Ruling::Leaves => Turn::Leaves { grace: stop_grace(container) },
        Ruling::Unseen | Ruling::Unwell { .. } | Ruling::Away { .. } | Ruling::Succeeds { .. } => {
            Turn::Waits
        }
    }
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
