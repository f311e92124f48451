//! Who is routed: which ports are published, which routes there are, and which replicas stand behind each, read off the
//! state. It is the same on every node, so a leader sends it to nodes that do not hold the log, and then what changes. Whether
//! a replica is sent requests is settled in [`eligibility`]; what one node's router makes of it is left to the edges.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use plimsoll_model::access::Digest;
use plimsoll_model::spec::{Port, PortMode, Protocol, Replay, RouteSpec};
use plimsoll_model::state::{Deployment, Service};
use plimsoll_model::{
    Assignment, ContainerSpec, DeploymentName, Event, Generation, Millis, NodeId, Replica,
    ReplicaId, ServiceKey, State,
};
use serde::{Deserialize, Serialize};

mod eligibility;

#[cfg(test)]
mod tests;

pub use eligibility::EndpointEligibility;

/// The endpoints of a whole cell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Endpoints {
    /// Those that are published or routed to, or still have connections open.
    pub services: BTreeMap<ServiceKey, Arc<ServiceEndpoints>>,
    /// The peer address of each node.
    pub nodes: BTreeMap<NodeId, String>,
    /// The key each node is known by, for nodes that cannot read it off the log: who sends clients their way must have it.
    pub keys: BTreeMap<NodeId, Digest>,
    pub routes: BTreeMap<DeploymentName, Arc<Vec<RouteSpec>>>,
}

/// A service as routers see it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServiceEndpoints {
    /// Where nodes listen for it, and to which port of its replicas that leads.
    pub published: BTreeMap<ListenAddress, u16>,
    pub replicas: Vec<ReplicaEndpoint>,
    /// The networks on which others find it, by what engines call them, and what it is called there besides its name.
    /// Those that somebody else made are not among them: nobody answers for names there but their engines.
    pub networks: BTreeMap<String, BTreeSet<String>>,
    /// Ports at which it says that it takes datagrams.
    pub datagrams: BTreeSet<u16>,
    /// Whether unanswered requests at its TCP ports are replayed.
    pub replay: Replay,
}

/// Where every node listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListenAddress {
    pub address: SocketAddr,
    pub protocol: Protocol,
}

/// One generation of a replica behind the ports of its service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaEndpoint {
    pub replica: ReplicaId,
    pub generation: Generation,
    pub node: NodeId,
    pub state: EndpointState,
    /// The ports that are routed to, or have been since it started: open requests may finish.
    pub ports: BTreeSet<u16>,
    /// Its ports at which connections begin with the address of their client, as its own spec has it: while a rollout
    /// switches that, some replicas expect it and some do not.
    pub proxied: BTreeSet<u16>,
}

/// Whether requests are sent to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndpointState {
    Ready,
    /// Known, so that its node accepts what is sent there by nodes that learned of its health earlier, and so that a node
    /// without a heartbeat for a moment loses no connection.
    NotReady,
    /// Open requests have this long to finish.
    Draining {
        grace: Millis,
    },
}

/// What changed between two states of the endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EndpointsUpdate {
    /// It holds everything: what was known before is forgotten.
    pub is_whole: bool,
    pub services: BTreeMap<ServiceKey, Option<Arc<ServiceEndpoints>>>,
    pub nodes: BTreeMap<NodeId, Option<String>>,
    pub keys: BTreeMap<NodeId, Option<Digest>>,
    pub routes: BTreeMap<DeploymentName, Option<Arc<Vec<RouteSpec>>>>,
}

impl Endpoints {
    /// As the state has them. A service that did not change shares its value with the endpoints before.
    pub fn of(state: &State, before: Option<&Self>) -> Self {
        let nothing = Self::default();
        let before = before.unwrap_or(&nothing);
        let mut endpoints = Self::default();
        for (key, service) in state.services() {
            endpoints.services.extend(before.service(state, key, service));
        }
        for (name, deployment) in state.deployments() {
            endpoints.routes.extend(before.routes_of(name, deployment));
        }
        for id in state.nodes().keys() {
            endpoints.nodes.extend(addressed(state, id));
            endpoints.keys.extend(enrolled(state, id).map(|key| (id.clone(), key)));
        }
        endpoints
    }

    /// The endpoints as of a state that differs from this one's by what these events say. Only what they name is looked at.
    pub fn after<'a>(&self, state: &State, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut touched = Touched::default();
        events.into_iter().for_each(|event| touched.note(state, event));
        let mut endpoints = self.clone();
        for key in touched.services {
            let service = state.services().get(&key);
            let found = service.and_then(|service| self.service(state, &key, service));
            put_one(&mut endpoints.services, key, found.map(|(_, endpoints)| endpoints));
        }
        for name in touched.deployments {
            let deployment = state.deployments().get(&name);
            let found = deployment.and_then(|deployment| self.routes_of(&name, deployment));
            put_one(&mut endpoints.routes, name, found.map(|(_, routes)| routes));
        }
        for id in touched.nodes {
            let address = addressed(state, &id).map(|(_, address)| address);
            put_one(&mut endpoints.nodes, id.clone(), address);
            put_one(&mut endpoints.keys, id.clone(), enrolled(state, &id));
        }
        endpoints
    }

    fn service(
        &self,
        state: &State,
        key: &ServiceKey,
        service: &Service,
    ) -> Option<(ServiceKey, Arc<ServiceEndpoints>)> {
        let known = self.services.get(key);
        let endpoints = service_endpoints(state, key, service, known.map(Arc::as_ref))?;
        let known = known.filter(|known| ***known == endpoints).cloned();
        Some((key.clone(), known.unwrap_or_else(|| Arc::new(endpoints))))
    }

    fn routes_of(
        &self,
        name: &DeploymentName,
        deployment: &Deployment,
    ) -> Option<(DeploymentName, Arc<Vec<RouteSpec>>)> {
        let record = deployment.current().filter(|record| !record.routes.is_empty())?;
        let known = self.routes.get(name).filter(|known| ***known == record.routes).cloned();
        Some((name.clone(), known.unwrap_or_else(|| Arc::new(record.routes.clone()))))
    }

    /// The update for a reader that knows this much; everything for one that knows nothing.
    pub fn since(&self, known: Option<&Self>) -> EndpointsUpdate {
        let nothing = Self::default();
        let before = known.unwrap_or(&nothing);
        EndpointsUpdate {
            is_whole: known.is_none(),
            services: changes(&before.services, &self.services),
            nodes: changes(&before.nodes, &self.nodes),
            keys: changes(&before.keys, &self.keys),
            routes: changes(&before.routes, &self.routes),
        }
    }

    pub fn updated(&self, update: EndpointsUpdate) -> Self {
        let mut endpoints = if update.is_whole { Self::default() } else { self.clone() };
        put(&mut endpoints.services, update.services);
        put(&mut endpoints.nodes, update.nodes);
        put(&mut endpoints.keys, update.keys);
        put(&mut endpoints.routes, update.routes);
        endpoints
    }
}

fn addressed(state: &State, id: &NodeId) -> Option<(NodeId, String)> {
    Some((id.clone(), state.node(id)?.facts.address.clone()?))
}

fn enrolled(state: &State, id: &NodeId) -> Option<Digest> {
    state.node(id)?.key
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
                // Whether its node is ready decides for every replica on it.
                let held = state
                    .load(id)
                    .into_iter()
                    .flat_map(plimsoll_model::state::load::NodeLoad::everyone);
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
            | Event::Volumes(_)
            | Event::Certificates
            | Event::Registry(_)
            | Event::Machines
            | Event::Fleet => {}
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

/// The published ports of a container that lead to any of its kind.
fn published(container: &ContainerSpec) -> impl Iterator<Item = (ListenAddress, &Port)> {
    let routed = container.ports.iter().filter(|port| port.mode == PortMode::Routed);
    routed.filter_map(|port| Some((listen_address(port)?, port)))
}

/// Where a port is listened on; none where nobody says which, or for what routers do not carry.
fn listen_address(port: &Port) -> Option<ListenAddress> {
    let host = port.host_ip.as_ref().and_then(|ip| ip.parse().ok());
    let address = SocketAddr::new(host.unwrap_or(ANY), port.published?);
    match port.protocol {
        Protocol::Tcp | Protocol::Udp => Some(ListenAddress { address, protocol: port.protocol }),
        Protocol::Sctp => None,
    }
}

/// Both kinds of address, where the host has both.
const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// A replica stands behind the ports that its own spec publishes, which may be older than the desired one, and behind those
/// that routes lead to.
fn service_endpoints(
    state: &State,
    key: &ServiceKey,
    service: &Service,
    before: Option<&ServiceEndpoints>,
) -> Option<ServiceEndpoints> {
    let routed = routed(state, key);
    let desired = || service.desired().map(|spec| &spec.container);
    let networks = desired().map(|container| networks(key, container)).unwrap_or_default();
    let datagrams = desired().map(datagrams).unwrap_or_default();
    let known = before.map(ServiceEndpoints::ports).unwrap_or_default();
    let mut replicas = Vec::new();
    for (slot, replica) in &service.replicas {
        let id = ReplicaId::new(key.clone(), slot.clone());
        for held in replica.holds() {
            let Some(spec) = service.spec_of(held) else { continue };
            let own = published(&spec.container).map(|(_, port)| port.target);
            let mut ports: BTreeSet<u16> = own.chain(routed.iter().copied()).collect();
            ports.extend(&datagrams);
            ports.extend(known.get(&(&id, held.generation)).copied().into_iter().flatten());
            replicas.push(ReplicaEndpoint {
                replica: id.clone(),
                generation: held.generation,
                node: held.node.clone(),
                state: endpoint_state(state, replica, held, &spec.container),
                ports,
                proxied: spec.container.proxied_ports(),
            });
        }
    }
    let listened = desired().into_iter().flat_map(published);
    let lead = |(at, port): (ListenAddress, &Port)| (at, lead(service, &replicas, at, port.target));
    let published = listened.map(lead).collect();
    let replay = service.desired().map(|spec| spec.replay).unwrap_or_default();
    let endpoints = ServiceEndpoints { published, replicas, networks, datagrams, replay };
    Some(endpoints).filter(|endpoints| *endpoints != ServiceEndpoints::default())
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

impl ServiceEndpoints {
    /// The ports of each endpoint.
    fn ports(&self) -> BTreeMap<(&ReplicaId, Generation), &BTreeSet<u16>> {
        self.replicas.iter().map(|one| ((&one.replica, one.generation), &one.ports)).collect()
    }
}

fn endpoint_state(
    state: &State,
    replica: &Replica,
    held: &Assignment,
    container: &ContainerSpec,
) -> EndpointState {
    use EndpointEligibility as Eligibility;
    match Eligibility::of(state, replica, held) {
        Eligibility::Eligible => EndpointState::Ready,
        Eligibility::Draining => {
            EndpointState::Draining { grace: container.effective_stop_grace() }
        }
        Eligibility::NotReported
        | Eligibility::Unhealthy { .. }
        | Eligibility::NodeDown { .. }
        | Eligibility::Standby { .. } => EndpointState::NotReady,
    }
}

/// Which port of the service's replicas a published one leads to: that of the desired spec, as soon as one of it takes
/// requests, and until then that of an older one, which may be another.
fn lead(service: &Service, replicas: &[ReplicaEndpoint], at: ListenAddress, desired: u16) -> u16 {
    let takes = |target: &u16| {
        let mut takers = replicas.iter().filter(|one| one.state == EndpointState::Ready);
        takers.any(|one| one.ports.contains(target))
    };
    let older = service.row.specs.values().flat_map(|spec| published(&spec.container));
    let older = older.filter(|(other, _)| *other == at).map(|(_, port)| port.target);
    std::iter::once(desired).chain(older).find(takes).unwrap_or(desired)
}
