//! What this node's router is to do, read off the state: which ports are published, and which containers stand behind
//! each. Where a container of this node is reached is an argument; one of another node is reached through that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::spec::{self, Port, PortMode};
use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, ContainerSpec, Generation, NodeId, NodeStatus, Replica, ReplicaId, ServiceKey,
    State,
};
use plimsoll_router::{self as router, Member, PoolKey, Published, Target, UpstreamKey};
use plimsoll_runtime::DEFAULT_STOP_GRACE;

/// Where the containers of this node are reached.
pub type Addresses = BTreeMap<(ReplicaId, Generation), IpAddr>;

/// What a router is asked for, and for whom.
#[derive(Debug, Default)]
pub struct Asked {
    pub wanted: router::Wanted,
    /// Whose each published port is.
    pub owners: BTreeMap<Published, ServiceKey>,
    /// Services that ask for a port that another has, and which that is.
    pub late: BTreeMap<(ServiceKey, Published), ServiceKey>,
}

/// What the router of this node is to do. Of two services that ask for one port, the first by name has it.
pub fn wanted(state: &State, node: &NodeId, addresses: &Addresses) -> Asked {
    let mut asked = Asked::default();
    for (key, service) in state.services() {
        let pools = pools(state, key, service, &Here { node, addresses });
        let desired = service.desired();
        for (at, port) in desired.into_iter().flat_map(|spec| published(&spec.container)) {
            let owner = asked.owners.entry(at).or_insert_with(|| key.clone());
            if owner == key {
                let pool = PoolKey::new(&key.to_string(), lead(service, &pools, at, port.target));
                asked.wanted.published.insert(at, pool);
            } else {
                asked.late.insert((key.clone(), at), owner.clone());
            }
        }
        for (target, members) in pools {
            asked.wanted.pools.insert(PoolKey::new(&key.to_string(), target), members.into());
        }
    }
    asked
}

/// What the router of a node without the log is to do: lead to those of its containers that others have asked for. Which
/// of them take requests is settled by those who ask.
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

/// How long what is under way to a container may take to end once it leaves.
pub fn grace(container: &ContainerSpec) -> Duration {
    Duration::from_millis(container.stop_grace.unwrap_or(DEFAULT_STOP_GRACE).0)
}

/// The published ports of a container that lead to any of its kind.
pub fn published(container: &ContainerSpec) -> impl Iterator<Item = (Published, &Port)> {
    let routed = container.ports.iter().filter(|port| port.mode == PortMode::Routed);
    routed.filter_map(|port| Some((place(port)?, port)))
}

/// Where a port is listened on; none where nobody says which, or for what the router does not carry.
fn place(port: &Port) -> Option<Published> {
    let host = port.host_ip.as_ref().and_then(|ip| ip.parse().ok());
    let address = SocketAddr::new(host.unwrap_or(ANY), port.published?);
    let protocol = match port.protocol {
        spec::Protocol::Tcp => router::Protocol::Tcp,
        spec::Protocol::Udp => router::Protocol::Udp,
        spec::Protocol::Sctp => return None,
    };
    Some(Published { address, protocol })
}

/// Both kinds of address, where the host has both.
const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

struct Here<'a> {
    node: &'a NodeId,
    addresses: &'a Addresses,
}

type Pools = BTreeMap<u16, Vec<Member>>;

/// Who stands behind each port of the service that is published. A container stands behind those of its own spec, which
/// may be older than the one that is desired.
fn pools(state: &State, key: &ServiceKey, service: &Service, here: &Here<'_>) -> Pools {
    let mut pools = Pools::new();
    let routes = |spec: &Arc<plimsoll_model::ServiceSpec>| {
        spec.container.ports.iter().any(|port| port.mode == PortMode::Routed)
    };
    // Most services publish nothing, and need not be looked at further.
    if !service.row.specs.values().any(routes) {
        return pools;
    }
    for (slot, replica) in &service.replicas {
        let id = ReplicaId::new(key.clone(), slot.clone());
        let name: Arc<str> = id.to_string().into();
        for assignment in replica.holds() {
            let Some(spec) = service.spec_of(assignment) else { continue };
            let Some(way) = here.way(&id, assignment) else { continue };
            let state = standing(state, replica, assignment, &spec.container);
            let targets: BTreeSet<u16> =
                published(&spec.container).map(|(_, port)| port.target).collect();
            for port in targets {
                let (replica, generation) = (Arc::clone(&name), assignment.generation.0);
                let target = way.to(port);
                let member = Member { replica, generation, target, state };
                pools.entry(port).or_default().push(member);
            }
        }
    }
    pools
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
    fn way(&self, id: &ReplicaId, assignment: &Assignment) -> Option<Way> {
        if assignment.node == *self.node {
            let address = self.addresses.get(&(id.clone(), assignment.generation))?;
            Some(Way::Here(*address))
        } else {
            Some(Way::Through(assignment.node.as_str().into()))
        }
    }
}

fn standing(
    state: &State,
    replica: &Replica,
    assignment: &Assignment,
    container: &ContainerSpec,
) -> router::State {
    let is = |other: &Assignment| other.generation == assignment.generation;
    if replica.leaving.iter().any(is) {
        router::State::Draining { grace: grace(container) }
    } else if serving(state, replica).is_some_and(is) {
        router::State::In
    } else {
        // Known, so that its node takes what others send there who knew of its health before it did, and so that a node
        // that was not heard for a moment loses no connection.
        router::State::Joining
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
fn lead(service: &Service, pools: &Pools, at: Published, desired: u16) -> u16 {
    let takes = |target: &u16| {
        let mut members = pools.get(target).into_iter().flatten();
        members.any(|member| member.state == router::State::In)
    };
    let older = service.row.specs.values().flat_map(|spec| published(&spec.container));
    let older = older.filter(|(other, _)| *other == at).map(|(_, port)| port.target);
    std::iter::once(desired).chain(older).find(takes).unwrap_or(desired)
}
