//! Case to cell: every entry becomes the command that would have brought it about, and is refused as that would be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::{
    Author, Availability, Change, ClusterId, Command, DeploymentName, Millis, Mode, NodeId,
    NodeStatus, Observation, Refusal, ReplicaId, ServiceKey, ServiceSpec, Slot, State, Term,
    Timestamp, Writer,
};

use super::Cell;
use super::entries::{Case, ReplicaEntry};
use crate::entries::deployment::{self, Services};
use crate::entries::node::{Names, NodeEntry};
use crate::near;
use crate::snippet::{Mistake, Page};
use crate::trouble::Trouble;

/// When the case is looked at. A case has no clock: only how long ago things happened matters, so any moment will do
/// that lies well after the first.
const NOW: Timestamp = Timestamp(1_000_000_000_000);

/// When nodes joined and replicas were placed.
const LONG_AGO: Timestamp = Timestamp(0);

/// How long a node has been down where the case does not say: beyond any grace.
const DOWN_FOR: Millis = Millis::minutes(10);

pub(super) fn build(case: Case, page: &Page, directory: &Path) -> Result<Cell, Trouble> {
    let cluster = case.cluster.unwrap_or_else(|| ClusterId::new("case").expect("a valid name"));
    let mut builder = Builder {
        state: State::new(cluster),
        signals: Signals::default(),
        names: Names::default(),
    };
    for node in &case.nodes {
        builder.node(node).map_err(|mistake| mistake.on(page))?;
    }
    let mut deployments = BTreeMap::new();
    for entry in &case.deployments {
        let (name, services) = deployment::load(entry, page, directory)?;
        builder.deploy(&name, &services).map_err(|refusal| {
            let message = format!("deployment {name} is refused: {refusal}");
            Mistake::new(entry.referenced, message).on(page)
        })?;
        if deployments.insert(name.clone(), services).is_some() {
            let mistake =
                Mistake::new(entry.referenced, format!("deployment {name} is there twice"));
            return Err(mistake.hint("give one of them another `name`").on(page));
        }
    }
    let replicas = builder
        .replicas(&case.replicas, &mut deployments)
        .and_then(|()| builder.conditions(&case.nodes));
    replicas.map_err(|mistake| mistake.on(page))?;
    let Builder { state, signals, .. } = builder;
    Ok(Cell { state, signals, policy: Policy::default(), now: NOW })
}

/// A cell under construction.
struct Builder {
    state: State,
    signals: Signals,
    names: Names,
}

impl Builder {
    fn node(&mut self, entry: &NodeEntry) -> Result<(), Mistake> {
        let at = entry.name.referenced;
        let pressure = entry.pressure.as_ref().map(|p| [p.value.cpu.0, p.value.memory.0]);
        for (name, facts) in entry.nodes()? {
            self.names.add(&name, at)?;
            let change = Change::PutNode { node: name.clone(), facts };
            self.apply(LONG_AGO, Writer::Operator, change)
                .map_err(|refusal| Mistake::new(at, refusal.to_string()))?;
            self.signals.set(&name, pressure);
        }
        Ok(())
    }

    /// What is the matter with nodes comes last: it befell them with their replicas on them.
    fn conditions(&mut self, nodes: &[NodeEntry]) -> Result<(), Mistake> {
        for entry in nodes {
            for (node, _) in entry.nodes()? {
                self.condition(entry, node)?;
            }
        }
        Ok(())
    }

    fn condition(&mut self, entry: &NodeEntry, node: NodeId) -> Result<(), Mistake> {
        let refused = |refusal| Mistake::new(entry.name.referenced, format!("{refusal}"));
        let availability = entry.availability.as_ref().map_or(Availability::Active, |a| a.value);
        if availability != Availability::Active {
            // A drain has its time from now on.
            let change = Change::SetAvailability { node: node.clone(), availability };
            self.apply(NOW, Writer::Operator, change).map_err(refused)?;
        }
        let status = entry.status.as_ref().map_or(NodeStatus::Ready, |status| status.value);
        match (status, &entry.down_for) {
            (NodeStatus::Ready, Some(down_for)) => {
                let message = format!("node {node} is ready, so it is not down for any time");
                Err(Mistake::new(down_for.referenced, message)
                    .hint("add `status: down`, or remove `down_for`"))
            }
            (NodeStatus::Ready, None) => Ok(()),
            (NodeStatus::Down, down_for) => {
                let span = down_for.as_ref().map_or(DOWN_FOR, |span| span.value.0);
                let since = Timestamp(NOW.since(Timestamp(span.0)).0);
                let change = Change::SetStatus { node, status: NodeStatus::Down };
                self.apply(since, Writer::Liveness, change).map_err(refused)
            }
        }
    }

    /// Places what runs now, each service's replicas in the order of their indices, since those only ever grow.
    fn replicas(
        &mut self,
        entries: &[ReplicaEntry],
        deployments: &mut BTreeMap<DeploymentName, Services>,
    ) -> Result<(), Mistake> {
        let desired = deployments.clone();
        let index = |entry: &ReplicaEntry| entry.index.as_ref().map_or(u32::MAX, |i| i.value);
        let mut sorted: Vec<&ReplicaEntry> = entries.iter().collect();
        sorted.sort_by_key(|entry| (entry.service.value.0.clone(), index(entry)));
        for entry in sorted {
            let key = &entry.service.value.0;
            let spec = desired.get(&key.deployment).and_then(|all| all.get(&key.service));
            let Some(spec) = spec else { return Err(self.no_such_service(entry)) };
            let spec = older(spec, entry);
            let services = deployments.get_mut(&key.deployment).expect("looked up just above");
            if services.get(&key.service) != Some(&spec) {
                services.insert(key.service.clone(), spec.clone());
                let services = services.clone();
                self.deploy(&key.deployment, &services).map_err(|refusal| {
                    Mistake::new(entry.service.referenced, format!("{refusal}"))
                })?;
            }
            self.replica(entry, &spec)?;
        }
        for (name, services) in &desired {
            if deployments.get(name) != Some(services) {
                self.deploy(name, services).expect("it was deployed before");
            }
        }
        Ok(())
    }

    fn replica(&mut self, entry: &ReplicaEntry, spec: &ServiceSpec) -> Result<(), Mistake> {
        let (key, node) = (&entry.service.value.0, &entry.node.value);
        if self.state.node(node).is_none() {
            let names: Vec<&str> = self.state.nodes().keys().map(NodeId::as_str).collect();
            let hint = near::hint(node.as_str(), "node", names.iter().copied());
            let message = format!("there is no node {node}");
            return Err(Mistake::new(entry.node.referenced, message).hint(hint));
        }
        let slot = match (&entry.index, &spec.placement.mode) {
            (Some(index), Mode::Global) => {
                let message = format!("{key} is global: its replicas are named after their nodes");
                return Err(Mistake::new(index.referenced, message).hint("remove `index`"));
            }
            (None, Mode::Global) => Slot::Node(node.clone()),
            (Some(index), _) => Slot::Index(index.value),
            (None, _) => Slot::Index(self.state.next_index(key)),
        };
        let id = ReplicaId::new(key.clone(), slot);
        let at = entry.index.as_ref().map_or(entry.service.referenced, |index| index.referenced);
        let refused = |refusal: Refusal| {
            let mistake = Mistake::new(at, refusal.to_string());
            match refusal {
                Refusal::ReplicaExists { .. } => mistake.hint("give one of them another `index`"),
                _ => mistake,
            }
        };
        // No node could have started it: the port was bound.
        let load = self.state.load(node);
        let holder = |port| Some((port, load?.port_holder(port)?));
        if let Some((port, by)) = spec.host_ports().find_map(holder) {
            let message = format!("{id} cannot run on {node}: {by} holds {port}");
            return Err(Mistake::new(entry.node.referenced, message)
                .hint("put one of them on another node"));
        }
        let place = Change::Place { replica: id.clone(), node: node.clone(), spec: spec.hash };
        self.apply(LONG_AGO, Writer::Scheduler, place).map_err(refused)?;
        let assignment = self.state.replica(&id).and_then(|replica| replica.assignment.as_ref());
        let generation = assignment.expect("placed just above").generation;
        let observation = Observation { state: entry.state.into(), code: None, at: LONG_AGO };
        let report = Change::Observe { replica: id.clone(), generation, observation };
        self.apply(LONG_AGO, Writer::Agent, report).map_err(refused)
    }

    fn no_such_service(&self, entry: &ReplicaEntry) -> Mistake {
        let key = &entry.service.value.0;
        let names: BTreeSet<String> =
            self.state.services().keys().map(ServiceKey::to_string).collect();
        let hint = near::hint(&key.to_string(), "service", names.iter().map(String::as_str));
        Mistake::new(entry.service.referenced, format!("there is no service {key}")).hint(hint)
    }

    fn deploy(&mut self, name: &DeploymentName, services: &Services) -> Result<(), Refusal> {
        let (deployment, services) = (name.clone(), services.clone());
        let change = Change::Deploy { deployment, services, routes: Vec::new() };
        self.apply(LONG_AGO, Writer::Operator, change)
    }

    fn apply(&mut self, at: Timestamp, writer: Writer, change: Change) -> Result<(), Refusal> {
        let author = Author::new(writer, "case");
        let command = Command::new(at, Term(1), author, vec![change.free()]);
        self.state.apply(&command).map(drop).map_err(|rejection| rejection.reason)
    }
}

/// The spec a replica was started from, where it is not the one the service has now.
fn older(spec: &Arc<ServiceSpec>, entry: &ReplicaEntry) -> Arc<ServiceSpec> {
    let Some(image) = entry.image.as_ref().filter(|image| **image != spec.container.image) else {
        return spec.clone();
    };
    let mut older = ServiceSpec::clone(spec);
    older.container.image.clone_from(image);
    older.hash = plimsoll_compose::spec_hash(&older.container);
    Arc::new(older)
}
