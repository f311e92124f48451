//! Cells in a few words, so that a test reads like the sentence it checks:
//! `cell().node("ash", cpus(4)).deploy("shop", [("web", spread(3))])`.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHasher;

use crate::access::Digest;
use crate::audit::Author;
use crate::command::{Change, Command, Event, Guarded, Rejection};
use crate::ids::{
    CellId, DeploymentName, FileName, NodeId, ReplicaId, ServiceKey, ServiceName, Zone,
};
use crate::node::{Availability, NodeFacts, NodeStatus};
use crate::replica::{Observation, ObservedCode, ObservedState};
use crate::spec::{
    Attribute, Constraint, ContainerSpec, FileContent, FileMount, GpuRequest, Mode, Mount,
    MountSource, Port, PortMode, Preference, Protocol, ProxyProtocol, RouteSpec, ServiceSpec,
    SpecHash, VolumeSpec,
};
use crate::state::State;
use crate::transition::Writer;
use crate::units::{Bytes, Generation, MilliCpus, Millis, Resources, Term, Timestamp};

/// A state under construction, with a clock that the test moves.
#[derive(Debug, Clone)]
pub struct Cell {
    pub state: State,
    pub now: Timestamp,
    /// All that has happened.
    pub events: Vec<Event>,
}

pub fn cell() -> Cell {
    let cell_id = CellId::new("test").expect("a valid name");
    Cell { state: State::new(cell_id), now: Timestamp(1_000_000), events: Vec::new() }
}

pub fn node_id(name: &str) -> NodeId {
    NodeId::new(name).expect("a test names its nodes well")
}

/// `shop/web`
pub fn service_key(text: &str) -> ServiceKey {
    text.parse().expect("a test writes deployment/service")
}

/// `shop/web/1`
pub fn replica_id(text: &str) -> ReplicaId {
    text.parse().expect("a test writes deployment/service/slot")
}

pub fn cpus(cpus: u64) -> NodeFacts {
    let memory = Bytes(cpus * (4 << 30));
    NodeFacts::new(Resources { cpu: MilliCpus(cpus * 1_000), memory, ..Resources::NONE })
}

impl NodeFacts {
    pub fn zone(mut self, zone: &str) -> Self {
        self.zone = Some(Zone::new(zone).expect("a test names its zones well"));
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn gpus(mut self, gpus: u32) -> Self {
        self.capacity.gpus = gpus;
        self
    }

    /// With a runtime that lacks something.
    pub fn lacks(mut self, capability: crate::Capability) -> Self {
        "process".clone_into(&mut self.runtime.name);
        self.runtime.lacks.insert(capability);
        self
    }
}

pub fn spread(replicas: u32) -> ServiceSpec {
    service(Mode::Spread { replicas })
}

pub fn binpack(replicas: u32) -> ServiceSpec {
    service(Mode::Binpack { replicas })
}

pub fn pack(replicas: u32) -> ServiceSpec {
    service(Mode::Pack { replicas })
}

pub fn hosts<const N: usize>(replicas: u32, hosts: [&str; N]) -> ServiceSpec {
    service(Mode::Hosts { replicas, hosts: hosts.into_iter().map(node_id).collect() })
}

pub fn global() -> ServiceSpec {
    service(Mode::Global)
}

fn service(mode: Mode) -> ServiceSpec {
    let container = ContainerSpec { image: "app:1".to_owned(), ..ContainerSpec::default() };
    ServiceSpec::new(container, SpecHash([0; 32]), mode).hashed()
}

impl ServiceSpec {
    /// Not the hash that compose files get, but as good in a test: another container has another one.
    #[must_use]
    fn hashed(mut self) -> Self {
        let text = format!("{:?}", self.container);
        for (seed, chunk) in self.hash.0.chunks_mut(8).enumerate() {
            let mut hasher = FxHasher::default();
            (seed, &text).hash(&mut hasher);
            chunk.copy_from_slice(&hasher.finish().to_be_bytes());
        }
        self
    }

    pub fn command(mut self, command: &str) -> Self {
        self.container.command = Some(vec![command.to_owned()]);
        self.hashed()
    }

    pub fn image(mut self, image: &str) -> Self {
        image.clone_into(&mut self.container.image);
        self.hashed()
    }

    pub fn reserve(mut self, milli_cpus: u64, mib: u64) -> Self {
        self.container.reservations =
            Resources { cpu: MilliCpus(milli_cpus), memory: Bytes(mib << 20), ..Resources::NONE };
        self.hashed()
    }

    pub fn gpus(mut self, gpus: u32) -> Self {
        self.container.gpus = gpus;
        self.hashed()
    }

    /// Every GPU of whatever node it goes to.
    pub fn all_gpus(mut self) -> Self {
        self.container.gpu_requests.push(GpuRequest {
            driver: None,
            count: None,
            device_ids: Vec::new(),
            capabilities: ["gpu".to_owned()].into(),
            options: BTreeMap::new(),
        });
        self.hashed()
    }

    pub fn host_port(mut self, number: u16) -> Self {
        self.container.ports.push(Port {
            target: number,
            published: Some(number),
            host_ip: None,
            protocol: Protocol::Tcp,
            mode: PortMode::Host,
            proxy_protocol: None,
        });
        self.hashed()
    }

    /// A port that every node listens on, and the container's own that it leads to.
    pub fn published(mut self, number: u16, target: u16) -> Self {
        self.container.ports.push(Port {
            target,
            published: Some(number),
            host_ip: None,
            protocol: Protocol::Tcp,
            mode: PortMode::Routed,
            proxy_protocol: None,
        });
        self.hashed()
    }

    /// The ports it publishes tell it who its clients are.
    pub fn proxied(mut self) -> Self {
        for port in &mut self.container.ports {
            port.proxy_protocol = Some(ProxyProtocol::V2);
        }
        self.hashed()
    }

    pub fn volume(mut self, name: &str) -> Self {
        let source = MountSource::Volume { name: name.to_owned(), subpath: None, nocopy: false };
        let target = "/data".to_owned();
        self.container.mounts.push(Mount { source, target, read_only: false, consistency: None });
        self.container.volumes.insert(name.to_owned(), VolumeSpec::default());
        self.hashed()
    }

    /// With a secret of the cell, in this version.
    pub fn secret(mut self, name: &str, version: u32) -> Self {
        let kept = FileName::new(name).expect("a test names its secrets well");
        self.container.secrets.push(FileMount {
            name: name.to_owned(),
            target: format!("/run/secrets/{name}"),
            content: FileContent::Kept { name: kept, version },
            uid: None,
            gid: None,
            mode: None,
        });
        self.hash = SpecHash::of(&self.container);
        self
    }

    pub fn wants_label(mut self, key: &str, value: &str) -> Self {
        let (on, value) = (Attribute::Label(key.to_owned()), value.to_owned());
        self.placement.constraints.insert(Constraint { on, equal: true, value });
        self
    }

    pub fn wants_role(mut self, role: &str) -> Self {
        let (on, value) = (Attribute::Role, role.to_owned());
        self.placement.constraints.insert(Constraint { on, equal: true, value });
        self
    }

    pub fn prefers_label(mut self, key: &str, value: &str) -> Self {
        let (on, value) = (Attribute::Label(key.to_owned()), value.to_owned());
        let constraint = Constraint { on, equal: true, value };
        self.placement.preferences.push(Preference { constraint, weight: 1 });
        self
    }

    pub fn max_per_node(mut self, max: u32) -> Self {
        self.placement.max_per_node = Some(max);
        self
    }
}

impl Cell {
    pub fn node(mut self, name: &str, facts: NodeFacts) -> Self {
        self.change(Writer::Operator, Change::PutNode { node: node_id(name), facts });
        self
    }

    /// A node that is there has shown a certificate, and has a number as a server from now on.
    pub fn enrolled(mut self, name: &str) -> Self {
        let node = node_id(name);
        let facts =
            self.state.node(&node).expect("a test enrols nodes that are there").facts.clone();
        let serial = u8::try_from(self.state.access().next_server).expect("a test has few nodes");
        let key = Digest([serial; 32]);
        self.change(Writer::Operator, Change::Enrol { node, facts, key });
        self
    }

    pub fn down(mut self, name: &str) -> Self {
        let change = Change::SetStatus { node: node_id(name), status: NodeStatus::Down };
        self.change(Writer::Liveness, change);
        self
    }

    pub fn up(mut self, name: &str) -> Self {
        let change = Change::SetStatus { node: node_id(name), status: NodeStatus::Ready };
        self.change(Writer::Liveness, change);
        self
    }

    /// The container runtime of the node does not answer from now on.
    pub fn runtime_down(mut self, name: &str) -> Self {
        let outage = Some("no socket".to_owned());
        self.change(Writer::Liveness, Change::SetRuntime { node: node_id(name), outage });
        self
    }

    pub fn runtime_up(mut self, name: &str) -> Self {
        self.change(Writer::Liveness, Change::SetRuntime { node: node_id(name), outage: None });
        self
    }

    pub fn cordon(mut self, name: &str) -> Self {
        let change =
            Change::SetAvailability { node: node_id(name), availability: Availability::Cordoned };
        self.change(Writer::Operator, change);
        self
    }

    pub fn drain(mut self, name: &str) -> Self {
        let change =
            Change::SetAvailability { node: node_id(name), availability: Availability::Draining };
        self.change(Writer::Operator, change);
        self
    }

    pub fn deploy<S: AsRef<str>>(
        self,
        name: &str,
        services: impl IntoIterator<Item = (S, ServiceSpec)>,
    ) -> Self {
        self.deploy_routed(name, services, Vec::new())
    }

    pub fn deploy_routed<S: AsRef<str>>(
        mut self,
        name: &str,
        services: impl IntoIterator<Item = (S, ServiceSpec)>,
        routes: Vec<RouteSpec>,
    ) -> Self {
        let services: BTreeMap<ServiceName, Arc<ServiceSpec>> = services
            .into_iter()
            .map(|(name, spec)| {
                (ServiceName::new(name.as_ref()).expect("a valid name"), Arc::new(spec))
            })
            .collect();
        let deployment = DeploymentName::new(name).expect("a valid name");
        self.change(Writer::Operator, Change::Deploy { deployment, services, routes });
        self
    }

    pub fn undeploy(mut self, name: &str) -> Self {
        let deployment = DeploymentName::new(name).expect("a valid name");
        self.change(Writer::Operator, Change::Undeploy { deployment });
        self
    }

    pub fn later(mut self, span: Millis) -> Self {
        self.now = self.now.plus(span);
        self
    }

    /// What runs on the node is gone, and its runtime does not say so: only its processes did.
    pub fn unknown_on(mut self, name: &str) -> Self {
        let held = self.state.replicas().filter_map(|(id, replica)| {
            let held = replica.assignment.as_ref().filter(|held| held.node == node_id(name))?;
            Some((id, held.generation))
        });
        let held: Vec<_> = held.collect();
        for (id, generation) in held {
            let code = Some(ObservedCode::RuntimeUnavailable);
            self.report(&id, generation, ObservedState::Unknown, code);
        }
        self
    }

    /// Every node that is ready does at once as it was told: what should run runs, what leaves has stopped.
    pub fn obey(mut self) -> Self {
        let ready = |state: &State, node: &NodeId| {
            let node = state.node(node);
            node.is_some_and(|node| node.status == NodeStatus::Ready && node.outage.is_none())
        };
        let mut reports = Vec::new();
        for (id, replica) in self.state.replicas() {
            for held in replica.holds().filter(|held| ready(&self.state, &held.node)) {
                let leaves = replica.leaving.iter().any(|l| l.generation == held.generation);
                let state = if leaves { ObservedState::Stopped } else { ObservedState::Running };
                reports.push((id.clone(), held.generation, state));
            }
        }
        for (replica, generation, state) in reports {
            self.report(&replica, generation, state, None);
        }
        self
    }

    pub fn report(
        &mut self,
        replica: &ReplicaId,
        generation: Generation,
        state: ObservedState,
        code: Option<ObservedCode>,
    ) {
        let observation = Observation { state, code, at: self.now };
        let change = Change::Observe { replica: replica.clone(), generation, observation };
        self.change(Writer::Agent, change);
    }

    pub fn change(&mut self, writer: Writer, change: Change) -> Vec<Event> {
        self.apply(writer, vec![change.free()]).expect("a test makes changes that can be made")
    }

    pub fn apply(&mut self, writer: Writer, batch: Vec<Guarded>) -> Result<Vec<Event>, Rejection> {
        let command = Command::new(self.now, Term(1), Author::new(writer, "test"), batch);
        let outcome = self.state.apply(&command);
        self.events.extend(outcome.iter().flatten().cloned());
        outcome
    }

    /// Where each replica of the service is, or is going: `["1@ash", "2@birch"]`.
    pub fn placed(&self, service: &str) -> Vec<String> {
        let Some(service) = self.state.service(&service_key(service)) else { return Vec::new() };
        let places = service.replicas.iter();
        places
            .filter_map(|(slot, replica)| Some(format!("{slot}@{}", replica.heading()?.node)))
            .collect()
    }

    /// The distinct nodes the service is on or going to.
    pub fn nodes_of(&self, service: &str) -> BTreeSet<NodeId> {
        let Some(service) = self.state.service(&service_key(service)) else {
            return BTreeSet::new();
        };
        service
            .replicas
            .values()
            .filter_map(|replica| Some(replica.heading()?.node.clone()))
            .collect()
    }
}
