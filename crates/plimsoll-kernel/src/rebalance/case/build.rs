//! Case to state: every entry becomes the command that would have brought it about, so that a case can never be a cell that
//! could not exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_model::spec::{Mount, MountSource, Port, PortMode};
use plimsoll_model::{
    Author, Availability, Change, ClusterId, Command, ContainerSpec, DeploymentName, Mode,
    MoveCause, NodeFacts, NodeId, NodeStatus, Observation, ObservedState, Refusal, ReplicaId,
    Resources, ServiceKey, ServiceName, ServiceSpec, SpecHash, State, Term, Timestamp, Writer,
};

use super::{Amounts, Case, NodeEntry, ReplicaEntry, ServiceEntry};

/// When nodes joined and services were asked for: all that counts of it is that it was before.
const LONG_AGO: Timestamp = Timestamp(0);

/// The deployment of what stands in for what a case only tells the size of.
const REST: &str = "case-rest";

impl Case {
    /// The cell as it was before the first cycle.
    pub fn build(&self) -> Result<State, Refusal> {
        let cluster = ClusterId::new("case").expect("a valid name");
        let mut builder = Builder(State::new(cluster));
        for (node, entry) in &self.nodes {
            let mut facts = NodeFacts::new(entry.capacity.into());
            (facts.zone, facts.labels) = (entry.zone.clone(), entry.labels.clone());
            builder.apply(
                LONG_AGO,
                Writer::Operator,
                Change::PutNode { node: node.clone(), facts },
            )?;
        }
        builder.deploy(&self.services)?;
        for (id, entry) in &self.replicas {
            builder.replica(id, entry)?;
        }
        builder.rest(&self.nodes)?;
        for (node, entry) in &self.nodes {
            builder.condition(node, entry)?;
        }
        Ok(builder.0)
    }
}

struct Builder(State);

impl Builder {
    fn deploy(&mut self, services: &BTreeMap<ServiceKey, ServiceEntry>) -> Result<(), Refusal> {
        let mut deployments: BTreeMap<DeploymentName, BTreeMap<ServiceName, Arc<ServiceSpec>>> =
            BTreeMap::new();
        for (key, entry) in services {
            let deployment = deployments.entry(key.deployment.clone()).or_default();
            deployment.insert(key.service.clone(), Arc::new(spec(entry)));
        }
        for (deployment, services) in deployments {
            let routes = Vec::new();
            self.apply(
                LONG_AGO,
                Writer::Operator,
                Change::Deploy { deployment, services, routes },
            )?;
        }
        Ok(())
    }

    fn replica(&mut self, id: &ReplicaId, entry: &ReplicaEntry) -> Result<(), Refusal> {
        let service = self.0.service(&id.service).and_then(|service| service.row.desired);
        let spec = service.unwrap_or(UNNAMED);
        let (node, at) = (entry.node.clone(), entry.at);
        self.apply(at, Writer::Scheduler, Change::Place { replica: id.clone(), node, spec })?;
        self.observe(id, at, entry.state)?;
        let Some(next) = &entry.successor else { return Ok(()) };
        let (replica, node, cause) = (id.clone(), next.node.clone(), next.cause);
        let change = Change::Succeed { replica, node, spec, cause };
        self.apply(next.at, Writer::Scheduler, change)
    }

    /// Reports the same of all that is held of the replica.
    fn observe(
        &mut self,
        id: &ReplicaId,
        at: Timestamp,
        state: ObservedState,
    ) -> Result<(), Refusal> {
        let row = self.0.replica(id).into_iter();
        let held: Vec<_> = row.flat_map(|row| row.holds().map(|it| it.generation)).collect();
        for generation in held {
            let observation = Observation { state, code: None, at };
            let replica = id.clone();
            let change = Change::Observe { replica, generation, observation };
            self.apply(at, Writer::Agent, change)?;
        }
        Ok(())
    }

    /// What is set aside on nodes beyond what the replicas of the case account for, and when nodes were last given something.
    fn rest(&mut self, nodes: &BTreeMap<NodeId, NodeEntry>) -> Result<(), Refusal> {
        let service = |nth: usize| {
            let deployment = DeploymentName::new(REST).expect("a valid name");
            let service = ServiceName::new(format!("n{nth}")).expect("a valid name");
            ServiceKey::new(deployment, service)
        };
        let rests = nodes.iter().enumerate().map(|(nth, (node, entry))| {
            let held = self.0.load(node).map(|load| load.reserved).unwrap_or_default();
            let rest = Resources::from(entry.reserved).minus(held);
            (service(nth), node.clone(), rest, entry.received_at)
        });
        let rests: Vec<_> =
            rests.filter(|(.., rest, at)| *rest != Resources::NONE || at.is_some()).collect();
        let services = rests.iter().map(|(key, _, rest, _)| (key.clone(), stays(*rest)));
        self.deploy(&services.collect())?;
        for (key, node, rest, received_at) in rests {
            if let Some(at) = received_at {
                self.give(&ReplicaId::indexed(&key, 1), &node, at)?;
            }
            if rest != Resources::NONE {
                let (replica, spec) = (ReplicaId::indexed(&key, 2), UNNAMED);
                self.apply(LONG_AGO, Writer::Scheduler, Change::Place { replica, node, spec })?;
            }
        }
        Ok(())
    }

    /// Something was sent to the node for relief, and is gone again.
    fn give(&mut self, id: &ReplicaId, node: &NodeId, at: Timestamp) -> Result<(), Refusal> {
        let (replica, node, spec) = (id.clone(), node.clone(), UNNAMED);
        let place = Change::Place { replica: replica.clone(), node: node.clone(), spec };
        self.apply(LONG_AGO, Writer::Scheduler, place)?;
        let cause = MoveCause::Pressure;
        let succeed = Change::Succeed { replica: replica.clone(), node, spec, cause };
        self.apply(at, Writer::Scheduler, succeed)?;
        self.apply(at, Writer::Scheduler, Change::Retire { replica })?;
        self.observe(id, at, ObservedState::Stopped)
    }

    fn condition(&mut self, node: &NodeId, entry: &NodeEntry) -> Result<(), Refusal> {
        if entry.availability != Availability::Active {
            let availability = entry.availability;
            let change = Change::SetAvailability { node: node.clone(), availability };
            self.apply(LONG_AGO, Writer::Operator, change)?;
        }
        if entry.status == NodeStatus::Down {
            let change = Change::SetStatus { node: node.clone(), status: NodeStatus::Down };
            self.apply(LONG_AGO, Writer::Liveness, change)?;
        }
        Ok(())
    }

    fn apply(&mut self, at: Timestamp, writer: Writer, change: Change) -> Result<(), Refusal> {
        let command = Command::new(at, Term(1), Author::new(writer, "case"), vec![change.free()]);
        self.0.apply(&command).map(drop).map_err(|rejection| rejection.reason)
    }
}

/// The spec of what stands in.
const UNNAMED: SpecHash = SpecHash([0; 32]);

fn spec(entry: &ServiceEntry) -> ServiceSpec {
    let reserves = Resources::from(entry.reserves);
    let mut container = ContainerSpec {
        image: "case".to_owned(),
        reservations: Resources { gpus: 0, ..reserves },
        gpus: reserves.gpus,
        limits: entry.limits.into(),
        ..ContainerSpec::default()
    };
    container.ports.extend(entry.host_ports.iter().map(|port| Port {
        target: port.number,
        published: Some(port.number),
        host_ip: None,
        protocol: port.protocol,
        mode: PortMode::Host,
    }));
    if entry.is_stateful {
        let (name, target) = ("data".to_owned(), "/data".to_owned());
        let source = MountSource::Volume { name, subpath: None, nocopy: false };
        container.mounts.push(Mount { source, target, read_only: false, consistency: None });
    }
    let mut spec = ServiceSpec::new(container, entry.spec, entry.mode.clone());
    spec.placement.constraints.clone_from(&entry.constraints);
    spec.placement.max_per_node = entry.max_per_node;
    spec
}

/// What holds its room and is never moved.
fn stays(rest: Resources) -> ServiceEntry {
    ServiceEntry {
        spec: UNNAMED,
        mode: Mode::Pack { replicas: 1 },
        constraints: std::collections::BTreeSet::new(),
        max_per_node: None,
        reserves: rest.into(),
        limits: Amounts::default(),
        host_ports: Vec::new(),
        is_stateful: true,
    }
}
