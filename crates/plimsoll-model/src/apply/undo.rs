//! Rows are written through these setters alone. Each keeps the derived tables true and remembers what stood there
//! before, so that a refused batch is taken back row by row, without a copy of the state.

use std::collections::BTreeMap;
use std::mem;

use super::Txn;
use super::machines::MachinesUndo;
use crate::access::Access;
use crate::acme::{Acme, HostCertificate};
use crate::cell_files::{CellFile, CellFileKind};
use crate::command::Event;
use crate::fleet::{FleetMembership, FleetState};
use crate::ids::{DeploymentName, FileName, NodeId, RegistryHost, ReplicaId, ServiceKey};
use crate::level::Level;
use crate::node::{Availability, Node};
use crate::preemption::{Preemption, PreemptionCounts};
use crate::registries::RegistryLogin;
use crate::replica::Replica;
use crate::reschedule::{RescheduleSettings, SettingAuthor};
use crate::review::{LoopRecord, MovingLoop, PendingReview};
use crate::state::{Deployment, Quiescence, Service, ServiceRow, State};
use crate::units::{Generation, Revision, Timestamp};
use crate::volumes::Volumes;

/// What a row was before it was written.
#[derive(Debug)]
pub(super) enum Undo {
    NextGeneration(Generation),
    Level(Level),
    Rescheduling(RescheduleSettings, Option<SettingAuthor>),
    PendingReview(ReplicaId, Option<Box<PendingReview>>),
    LoopRecord(MovingLoop, Box<LoopRecord>),
    Preemption(NodeId, Option<Box<Preemption>>),
    PreemptionCounts(PreemptionCounts),
    // Rows are boxed: a batch that places a whole cell replaces none, and need not carry room for them.
    Access(Box<Access>),
    Node(NodeId, Option<Box<Node>>),
    Received(NodeId, Option<Timestamp>),
    Deployment(DeploymentName, Option<Box<Deployment>>),
    Revision(DeploymentName, Option<Revision>),
    NextIndex(ServiceKey, Option<u32>),
    Service(ServiceKey, Option<Box<ServiceRow>>),
    Replica(ReplicaId, Option<Box<Replica>>),
    Volumes(DeploymentName, Option<Box<Volumes>>),
    File(CellFileKind, FileName, Option<Box<CellFile>>),
    Acme(Box<Acme>),
    HostCertificate(String, Option<Box<HostCertificate>>),
    Registry(RegistryHost, Option<Box<RegistryLogin>>),
    Machines(MachinesUndo),
    Fleet(Option<Box<FleetState>>),
    FleetMembership(Option<Box<FleetMembership>>),
}

impl Txn<'_> {
    pub(super) fn set_node(&mut self, id: &NodeId, node: Option<Node>) {
        let node = node.map(|node| node.after(self.state.nodes.get(id), self.at));
        let old = self.state.put_node(id, node);
        self.undo.push(Undo::Node(id.clone(), old.map(Box::new)));
        self.emit(Event::Node(id.clone()));
    }

    /// A replica is sent to the node from another. No event says so: nothing waits for it, and who looks at it looks by
    /// itself.
    pub(super) fn set_received(&mut self, id: &NodeId) {
        let Some(node) = self.state.nodes.get_mut(id) else { return };
        let old = node.received_at.replace(self.at);
        self.undo.push(Undo::Received(id.clone(), old));
    }

    pub(super) fn set_rescheduling(&mut self, settings: RescheduleSettings, set: SettingAuthor) {
        let old = mem::replace(&mut self.state.rescheduling, settings);
        let before = self.state.rescheduling_set.replace(set);
        self.undo.push(Undo::Rescheduling(old, before));
    }

    /// No event says so: the leader looks by itself.
    pub(super) fn set_pending_review(&mut self, id: &ReplicaId, pending: Option<PendingReview>) {
        let old = put(&mut self.state.reviews.pending, id, pending);
        self.undo.push(Undo::PendingReview(id.clone(), old.map(Box::new)));
    }

    pub(super) fn set_loop_record(&mut self, by: MovingLoop, record: LoopRecord) {
        let old = mem::replace(self.state.reviews.of_mut(by), record);
        self.undo.push(Undo::LoopRecord(by, Box::new(old)));
    }

    /// Returns what stood there. Whoever writes it says whom it concerns.
    pub(super) fn put_preemption(
        &mut self,
        node: &NodeId,
        preemption: Option<Preemption>,
    ) -> Option<Preemption> {
        let old = put(&mut self.state.preemptions.in_flight, node, preemption);
        self.undo.push(Undo::Preemption(node.clone(), old.clone().map(Box::new)));
        old
    }

    /// No event says so: only what is shown depends on it.
    pub(super) fn set_preemption_counts(&mut self, counts: PreemptionCounts) {
        let old = mem::replace(&mut self.state.preemptions.counts, counts);
        self.undo.push(Undo::PreemptionCounts(old));
    }

    pub(super) fn set_access(&mut self, access: Access) {
        let old = mem::replace(&mut self.state.access, access);
        self.undo.push(Undo::Access(Box::new(old)));
        self.emit(Event::Access);
    }

    pub(super) fn set_deployment(&mut self, name: &DeploymentName, deployment: Option<Deployment>) {
        let old = put(&mut self.state.deployments, name, deployment);
        self.undo.push(Undo::Deployment(name.clone(), old.map(Box::new)));
        self.emit(Event::Deployment(name.clone()));
    }

    pub(super) fn set_revision_counter(&mut self, name: &DeploymentName, revision: Revision) {
        let old = put(&mut self.state.counters.revision, name, Some(revision));
        self.undo.push(Undo::Revision(name.clone(), old));
    }

    pub(super) fn set_next_index(&mut self, key: &ServiceKey, next: u32) {
        let old = put(&mut self.state.counters.next_index, key, Some(next));
        self.undo.push(Undo::NextIndex(key.clone(), old));
    }

    pub(super) fn set_service(&mut self, key: &ServiceKey, row: Option<ServiceRow>) {
        let old = self.state.put_service(key, row);
        self.undo.push(Undo::Service(key.clone(), old.map(Box::new)));
        self.emit(Event::Service(key.clone()));
    }

    pub(super) fn set_replica(&mut self, id: &ReplicaId, replica: Option<Replica>) {
        let events = &mut self.events;
        let old = self.state.put_replica(id, replica, &mut |node, is_freed| {
            events.push(Event::Load(node.clone()));
            if is_freed {
                events.push(Event::Freed(node.clone()));
            }
        });
        self.undo.push(Undo::Replica(id.clone(), old.map(Box::new)));
        self.emit(Event::Replica(id.clone()));
    }

    pub(super) fn set_volumes(&mut self, name: &DeploymentName, volumes: Option<Volumes>) {
        let old = put(&mut self.state.volumes, name, volumes);
        self.undo.push(Undo::Volumes(name.clone(), old.map(Box::new)));
        self.emit(Event::Volumes(name.clone()));
    }

    /// No event says so: nodes hear of it with the specs that refer to it.
    pub(super) fn set_file(&mut self, kind: CellFileKind, name: &FileName, file: Option<CellFile>) {
        let old = put(self.state.files.of_mut(kind), name, file);
        self.undo.push(Undo::File(kind, name.clone(), old.map(Box::new)));
    }

    pub(super) fn set_registry(&mut self, registry: &RegistryHost, login: Option<RegistryLogin>) {
        let old = put(&mut self.state.registries, registry, login);
        self.undo.push(Undo::Registry(registry.clone(), old.map(Box::new)));
        self.emit(Event::Registry(registry.clone()));
    }

    pub(super) fn roll_back(self) {
        let state = self.state;
        for step in self.undo.into_iter().rev() {
            match step {
                Undo::NextGeneration(generation) => state.next_generation = generation,
                Undo::Level(level) => state.level = level,
                Undo::Rescheduling(settings, set) => {
                    (state.rescheduling, state.rescheduling_set) = (settings, set);
                }
                Undo::PendingReview(id, row) => {
                    drop(put(&mut state.reviews.pending, &id, row.map(|row| *row)));
                }
                Undo::LoopRecord(by, record) => *state.reviews.of_mut(by) = *record,
                Undo::Preemption(node, row) => {
                    drop(put(&mut state.preemptions.in_flight, &node, row.map(|row| *row)));
                }
                Undo::PreemptionCounts(counts) => state.preemptions.counts = counts,
                Undo::Access(access) => state.access = *access,
                Undo::Acme(acme) => state.acme = *acme,
                Undo::Fleet(fleet) => state.fleet = fleet.map(|fleet| *fleet),
                Undo::FleetMembership(row) => state.fleet_membership = row.map(|row| *row),
                Undo::HostCertificate(host, row) => {
                    drop(put(&mut state.acme.hosts, &host, row.map(|row| *row)));
                }
                Undo::Node(id, row) => drop(state.put_node(&id, row.map(|row| *row))),
                Undo::Received(id, at) => {
                    if let Some(node) = state.nodes.get_mut(&id) {
                        node.received_at = at;
                    }
                }
                Undo::Deployment(name, row) => {
                    drop(put(&mut state.deployments, &name, row.map(|row| *row)));
                }
                Undo::Volumes(name, row) => {
                    drop(put(&mut state.volumes, &name, row.map(|row| *row)));
                }
                Undo::File(kind, name, row) => {
                    drop(put(state.files.of_mut(kind), &name, row.map(|row| *row)));
                }
                Undo::Registry(registry, row) => {
                    drop(put(&mut state.registries, &registry, row.map(|row| *row)));
                }
                Undo::Machines(undo) => undo.take_back(&mut state.machines),
                Undo::Revision(name, last) => drop(put(&mut state.counters.revision, &name, last)),
                Undo::NextIndex(key, next) => drop(put(&mut state.counters.next_index, &key, next)),
                Undo::Service(key, row) => drop(state.put_service(&key, row.map(|row| *row))),
                Undo::Replica(id, row) => {
                    drop(state.put_replica(&id, row.map(|row| *row), &mut |_, _| {}));
                }
            }
        }
    }
}

pub(super) fn put<K: Ord + Clone, V>(
    map: &mut BTreeMap<K, V>,
    key: &K,
    value: Option<V>,
) -> Option<V> {
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    }
}

impl State {
    fn put_node(&mut self, id: &NodeId, node: Option<Node>) -> Option<Node> {
        if node.as_ref().is_some_and(|node| node.availability == Availability::Draining) {
            self.draining.insert(id.clone());
        } else {
            self.draining.remove(id);
        }
        put(&mut self.nodes, id, node)
    }

    /// A service's row goes only once its last replica has; its replicas are rows of their own.
    fn put_service(&mut self, key: &ServiceKey, row: Option<ServiceRow>) -> Option<ServiceRow> {
        if row.as_ref().is_some_and(|row| row.unplaced.is_some()) {
            self.unplaced.insert(key.clone());
        } else {
            self.unplaced.remove(key);
        }
        match (self.services.get_mut(key), row) {
            (Some(service), Some(row)) => {
                let old = mem::replace(&mut service.row, row);
                if old.desired != service.row.desired {
                    service.quiescence = service.derive_quiescence();
                }
                Some(old)
            }
            (None, Some(row)) => {
                self.prefixes.add(key);
                let (replicas, quiescence) = (BTreeMap::new(), Quiescence::default());
                self.services.insert(key.clone(), Service { row, replicas, quiescence });
                None
            }
            (_, None) => {
                let service = self.services.remove(key)?;
                self.prefixes.remove(key);
                Some(service.row)
            }
        }
    }

    fn put_replica(
        &mut self,
        id: &ReplicaId,
        new: Option<Replica>,
        touched: &mut dyn FnMut(&NodeId, bool),
    ) -> Option<Replica> {
        let service = self.services.get_mut(&id.service)?;
        let old = service.replicas.get(&id.slot);
        self.loads.exchange(&service.row.specs, id, old, new.as_ref(), touched);
        service.quiescence.exchange(service.row.desired, &id.slot, old, new.as_ref());
        let moves = |replica: Option<&Replica>| replica.is_some_and(|it| it.successor.is_some());
        match (moves(old), moves(new.as_ref())) {
            (false, true) => {
                self.moving.insert(id.clone());
            }
            (true, false) => {
                self.moving.remove(id);
            }
            (true, true) | (false, false) => {}
        }
        put(&mut service.replicas, &id.slot, new)
    }
}
