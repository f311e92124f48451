//! The one replicated state of a cell. It is read freely and changed only by [`apply`](crate::apply).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::acme::Acme;
use crate::audit::{AuditRing, Author};
use crate::cell_files::CellFiles;
use crate::command::Refusal;
use crate::fleet::{FleetMembership, FleetState};
use crate::ids::{CellId, DeploymentName, NodeId, ReplicaId, ServiceKey, ServiceName, Slot};
use crate::level::Level;
use crate::machines::Machines;
use crate::node::{Availability, Node, Roles};
use crate::preemption::{PreemptedBy, Preemptions};
use crate::reason::Unplaced;
use crate::registries::{RegistryHost, RegistryLogin};
use crate::replica::{Assignment, Replica};
use crate::reschedule::{RescheduleSettings, SettingAuthor};
use crate::review::MoveReviews;
use crate::rollout::Rollout;
use crate::schedule::ScheduleRow;
use crate::spec::{RouteSpec, ServiceSpec, SpecHash};
use crate::units::{Bytes, Generation, MilliCpus, Resources, Revision, Timestamp};
use crate::volumes::Volumes;

pub mod load;
mod names;
mod quiescence;

use load::{Loads, NodeLoad};
pub(crate) use names::Prefixes;
pub use quiescence::Quiescence;

/// How many revisions of a deployment are kept to roll back to; the oldest go first.
pub const MAX_REVISIONS: usize = 20;

/// The most bytes one revision may have, as JSON: configs and secrets are in it, and every server holds it in memory.
pub const MAX_REVISION_BYTES: u64 = 8 << 20;

/// The most bytes all kept revisions of a deployment may have; the oldest go first, and two always fit.
pub const MAX_HISTORY_BYTES: u64 = 2 * MAX_REVISION_BYTES;

/// The most bytes all deployments may have together, with what is kept of their past. A snapshot is as large.
pub const MAX_CELL_BYTES: u64 = 256 << 20;

/// How many failures of a service on a node are remembered: as many as the filter counts.
pub const MAX_FAILURES: usize = 5;

/// The most replicas one service may ask for: a slip of the keyboard must not fill the log.
pub const MAX_REPLICAS: u32 = 100_000;

/// The most assignments one node may hold; together with [`MAX_REQUEST`] it keeps every sum far from overflow.
pub const MAX_TENANTS: usize = 10_000;

/// The most one replica may reserve: a million cores, 16 TiB, 4096 devices.
pub const MAX_REQUEST: Resources =
    Resources { cpu: MilliCpus(1_000_000_000), memory: Bytes(1 << 44), gpus: 4_096, all_gpus: 0 };

/// The most one node may offer; beyond it is a slip, and sums stay far from overflow.
pub const MAX_CAPACITY: Resources =
    Resources { cpu: MilliCpus(1_000_000_000), memory: Bytes(1 << 50), gpus: 1 << 20, all_gpus: 0 };

/// How many deployments and services the counters remember. A name costs some fifty bytes for ever, because the
/// promise that none comes twice has no end; at the bound new names are refused.
pub const MAX_NAMES: usize = 1_000_000;

/// The most services one deployment may have.
pub const MAX_SERVICES: usize = 1_000;

/// The most routes one deployment may have.
pub const MAX_ROUTES: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredState")]
pub struct State {
    /// What every server can read. It comes first, so that also one that cannot read the rest can tell.
    pub(crate) level: Level,
    pub(crate) cell_id: CellId,
    pub(crate) next_generation: Generation,
    pub(crate) access: Access,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) deployments: BTreeMap<DeploymentName, Deployment>,
    pub(crate) services: BTreeMap<ServiceKey, Service>,
    pub(crate) counters: Counters,
    pub(crate) audit: AuditRing,
    pub(crate) volumes: BTreeMap<DeploymentName, Volumes>,
    pub(crate) files: CellFiles,
    pub(crate) acme: Acme,
    pub(crate) registries: BTreeMap<RegistryHost, RegistryLogin>,
    pub(crate) rescheduling: RescheduleSettings,
    pub(crate) rescheduling_set: Option<SettingAuthor>,
    pub(crate) reviews: MoveReviews,
    pub(crate) preemptions: Preemptions,
    pub(crate) machines: Machines,
    /// What a coordinator must not forget; none in a cell that runs deployments.
    pub(crate) fleet: Option<FleetState>,
    /// The fleet that this cell is a shard of.
    pub(crate) fleet_membership: Option<FleetMembership>,
    /// Derived: what each node holds, and which services lack a replica.
    #[serde(skip)]
    pub(crate) loads: Loads,
    #[serde(skip)]
    pub(crate) unplaced: BTreeSet<ServiceKey>,
    /// Derived: the replicas that have a successor.
    #[serde(skip)]
    pub(crate) moving: BTreeSet<ReplicaId>,
    /// Derived: the nodes that give away what they run.
    #[serde(skip)]
    pub(crate) draining: BTreeSet<NodeId>,
    /// Derived: what the ids of each service's replicas start with, as people read them.
    #[serde(skip)]
    pub(crate) prefixes: Prefixes,
}

/// The state as it is written: all of it but what is derived.
#[derive(Deserialize)]
struct StoredState {
    level: Level,
    cell_id: CellId,
    next_generation: Generation,
    access: Access,
    nodes: BTreeMap<NodeId, Node>,
    deployments: BTreeMap<DeploymentName, Deployment>,
    services: BTreeMap<ServiceKey, Service>,
    counters: Counters,
    audit: AuditRing,
    volumes: BTreeMap<DeploymentName, Volumes>,
    files: CellFiles,
    acme: Acme,
    registries: BTreeMap<RegistryHost, RegistryLogin>,
    #[serde(default)]
    rescheduling: RescheduleSettings,
    #[serde(default)]
    rescheduling_set: Option<SettingAuthor>,
    #[serde(default)]
    reviews: MoveReviews,
    #[serde(default)]
    preemptions: Preemptions,
    #[serde(default)]
    machines: Machines,
    #[serde(default)]
    fleet: Option<FleetState>,
    #[serde(default)]
    fleet_membership: Option<FleetMembership>,
}

impl TryFrom<StoredState> for State {
    type Error = Refusal;
    fn try_from(written: StoredState) -> Result<Self, Refusal> {
        if !written.level.is_readable() {
            return Err(Refusal::Newer { level: written.level });
        }
        let mut state = Self {
            level: written.level,
            cell_id: written.cell_id,
            next_generation: written.next_generation,
            access: written.access,
            nodes: written.nodes,
            deployments: written.deployments,
            services: written.services,
            counters: written.counters,
            audit: written.audit,
            volumes: written.volumes,
            files: written.files,
            acme: written.acme,
            registries: written.registries,
            rescheduling: written.rescheduling,
            rescheduling_set: written.rescheduling_set,
            reviews: written.reviews,
            preemptions: written.preemptions,
            machines: written.machines,
            fleet: written.fleet,
            fleet_membership: written.fleet_membership,
            loads: Loads::default(),
            unplaced: BTreeSet::new(),
            moving: BTreeSet::new(),
            draining: BTreeSet::new(),
            prefixes: Prefixes::default(),
        };
        state.draining = state.derive_draining();
        for service in state.services.values_mut() {
            service.quiescence = service.derive_quiescence();
        }
        (state.loads, state.unplaced, state.moving, state.prefixes) = state.derive();
        Ok(state)
    }
}

/// One applied compose file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    pub revision: Revision,
    pub history: BTreeMap<Revision, RevisionRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionRecord {
    pub at: Timestamp,
    pub by: Author,
    pub services: BTreeMap<ServiceName, Arc<ServiceSpec>>,
    pub routes: Vec<RouteSpec>,
    /// What its services and routes take, as JSON.
    pub bytes: u64,
}

impl Deployment {
    /// What all its revisions take.
    pub fn bytes(&self) -> u64 {
        self.history.values().map(|record| record.bytes).sum()
    }

    /// What its current revision asks for.
    pub fn current(&self) -> Option<&RevisionRecord> {
        self.history.get(&self.revision)
    }
}

/// Numbers that outlive what they number: they go on after a delete, so that no name comes twice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// The last revision of every deployment there ever was.
    pub(crate) revision: BTreeMap<DeploymentName, Revision>,
    /// The next replica index of every service there ever was.
    pub(crate) next_index: BTreeMap<ServiceKey, u32>,
}

/// A service and its replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub row: ServiceRow,
    pub replicas: BTreeMap<Slot, Replica>,
    /// Derived: how many of the replicas are settled.
    #[serde(skip)]
    pub(crate) quiescence: Quiescence,
}

/// A service without its replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRow {
    /// The spec that should run. None: the service is retired and goes when its last replica has.
    pub desired: Option<SpecHash>,
    pub revision: Revision,
    /// The desired spec and every older one that an assignment may still name.
    pub specs: BTreeMap<SpecHash, Arc<ServiceSpec>>,
    pub unplaced: Option<Unplaced>,
    /// When replicas of this service last failed on each node, oldest first.
    pub failures: BTreeMap<NodeId, Vec<Timestamp>>,
    /// The latest change of spec; none while there has been only one.
    pub rollout: Option<Rollout>,
    /// For whom it last lost a replica that it has not got back.
    #[serde(default)]
    pub preempted: Option<Box<PreemptedBy>>,
    /// What is known of its runs, where it is on a schedule.
    #[serde(default)]
    pub schedule: Option<Box<ScheduleRow>>,
}

impl Service {
    /// The spec that should run, if the service is not retired.
    pub fn desired(&self) -> Option<&Arc<ServiceSpec>> {
        self.row.desired.as_ref().and_then(|hash| self.row.specs.get(hash))
    }

    pub fn spec_of(&self, assignment: &Assignment) -> Option<&Arc<ServiceSpec>> {
        self.row.specs.get(&assignment.spec)
    }

    /// The numbers that its live replicas have among those with data of their image's volumes.
    pub fn data_in_use(&self) -> BTreeSet<u32> {
        let live = self.replicas.values().filter(|replica| replica.assignment.is_some());
        live.filter_map(|replica| replica.data).collect()
    }

    /// How many of its replicas are settled.
    pub fn quiescence(&self) -> Quiescence {
        self.quiescence
    }

    pub(crate) fn derive_quiescence(&self) -> Quiescence {
        Quiescence::of(self.row.desired, &self.replicas)
    }
}

impl State {
    pub fn new(cell_id: CellId) -> Self {
        Self {
            level: Level::FIRST,
            cell_id,
            next_generation: Generation(1),
            access: Access::default(),
            nodes: BTreeMap::new(),
            deployments: BTreeMap::new(),
            services: BTreeMap::new(),
            counters: Counters::default(),
            audit: AuditRing::default(),
            volumes: BTreeMap::new(),
            files: CellFiles::default(),
            acme: Acme::default(),
            registries: BTreeMap::new(),
            rescheduling: RescheduleSettings::default(),
            rescheduling_set: None,
            reviews: MoveReviews::default(),
            preemptions: Preemptions::default(),
            machines: Machines::default(),
            fleet: None,
            fleet_membership: None,
            loads: Loads::default(),
            unplaced: BTreeSet::new(),
            moving: BTreeSet::new(),
            draining: BTreeSet::new(),
            prefixes: Prefixes::default(),
        }
    }

    /// What every server can read, and so what may be written.
    pub fn level(&self) -> Level {
        self.level
    }

    /// How the background rescheduler is set.
    pub fn rescheduling(&self) -> RescheduleSettings {
        self.rescheduling
    }

    /// Who set it so, and when; none where nobody ever did.
    pub fn rescheduling_set(&self) -> Option<&SettingAuthor> {
        self.rescheduling_set.as_ref()
    }

    /// What is known of whether automatic moves were worth it.
    pub fn reviews(&self) -> &MoveReviews {
        &self.reviews
    }

    /// Room that is being freed for replicas of higher priority.
    pub fn preemptions(&self) -> &Preemptions {
        &self.preemptions
    }

    /// The machines that the cell owns, and what it keeps about them.
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// The fleet that this cell coordinates, if it does.
    pub fn fleet(&self) -> Option<&FleetState> {
        self.fleet.as_ref()
    }

    /// The fleet that this cell is a shard of, if it is of one.
    pub fn fleet_membership(&self) -> Option<&FleetMembership> {
        self.fleet_membership.as_ref()
    }

    pub fn cell_id(&self) -> &CellId {
        &self.cell_id
    }

    pub fn access(&self) -> &Access {
        &self.access
    }

    pub fn nodes(&self) -> &BTreeMap<NodeId, Node> {
        &self.nodes
    }

    pub fn node(&self, node: &NodeId) -> Option<&Node> {
        self.nodes.get(node)
    }

    /// The roles that matter to a service. Most look at none, and then all nodes are alike to them.
    pub fn roles_for(&self, spec: &ServiceSpec) -> Roles {
        if spec.looks_at_roles() { Roles::of(&self.nodes) } else { Roles::ALIKE }
    }

    pub fn deployments(&self) -> &BTreeMap<DeploymentName, Deployment> {
        &self.deployments
    }

    /// Every route that requests may take, with the deployment that asks for it.
    pub fn routes(&self) -> impl Iterator<Item = (&DeploymentName, &RouteSpec)> {
        let current = self.deployments.iter().filter_map(|(name, it)| Some((name, it.current()?)));
        current.flat_map(|(name, record)| record.routes.iter().map(move |route| (name, route)))
    }

    /// Where named volumes lie, also of deployments that are gone.
    pub fn volumes(&self) -> &BTreeMap<DeploymentName, Volumes> {
        &self.volumes
    }

    /// The nodes that have the volume of this name, which the deployment mounts. One whose name is not the deployment's own may
    /// be mounted by others too.
    pub fn nodes_with_volume(
        &self,
        deployment: &DeploymentName,
        volume: &str,
    ) -> impl Iterator<Item = &NodeId> {
        let rest = volume.strip_prefix(deployment.as_str());
        let is_own = rest.is_some_and(|rest| rest.starts_with('_'));
        let own = self.volumes.get(deployment);
        let others = self.volumes.values().filter(move |_| !is_own);
        own.into_iter().filter(move |_| is_own).chain(others).flat_map(move |it| {
            let holders = it.held.get(volume);
            holders.into_iter().flat_map(|holders| &holders.nodes)
        })
    }

    /// Certificates that an ACME authority issues, and whom the cell asks for them.
    pub fn acme(&self) -> &Acme {
        &self.acme
    }

    /// Every service, also those that are retired and still stopping.
    pub fn services(&self) -> &BTreeMap<ServiceKey, Service> {
        &self.services
    }

    /// The services of a deployment, without a look at others.
    pub fn services_of(&self, name: &DeploymentName) -> impl Iterator<Item = &ServiceKey> {
        // No service name sorts before "0": it is the least letter or digit, and names start with one.
        let least = ServiceName::new("0").expect("a digit is a name");
        let rows = self.services.range(ServiceKey::new(name.clone(), least)..);
        rows.map(|(key, _)| key).take_while(move |key| key.deployment == *name)
    }

    pub fn service(&self, service: &ServiceKey) -> Option<&Service> {
        self.services.get(service)
    }

    pub fn replica(&self, replica: &ReplicaId) -> Option<&Replica> {
        self.services.get(&replica.service)?.replicas.get(&replica.slot)
    }

    pub fn replicas(&self) -> impl Iterator<Item = (ReplicaId, &Replica)> {
        self.services.iter().flat_map(|(key, service)| {
            service
                .replicas
                .iter()
                .map(|(slot, replica)| (ReplicaId::new(key.clone(), slot.clone()), replica))
        })
    }

    /// The services that lack a place for some replica.
    pub fn unplaced(&self) -> &BTreeSet<ServiceKey> {
        &self.unplaced
    }

    /// The replicas that are on their way to another assignment.
    pub fn moving(&self) -> &BTreeSet<ReplicaId> {
        &self.moving
    }

    /// The nodes that give away what they run.
    pub fn draining(&self) -> &BTreeSet<NodeId> {
        &self.draining
    }

    /// What the node holds: also a node that is gone while replicas still name it.
    pub fn load(&self, node: &NodeId) -> Option<&NodeLoad> {
        self.loads.get(node)
    }

    /// What every node holds that holds anything, by name.
    pub fn loads(&self) -> &BTreeMap<NodeId, NodeLoad> {
        self.loads.all()
    }

    /// The next replica index of a service, also of one that does not exist now.
    pub fn next_index(&self, service: &ServiceKey) -> u32 {
        self.counters.next_index.get(service).copied().unwrap_or(1)
    }

    pub fn audit(&self) -> &AuditRing {
        &self.audit
    }

    /// The replica that people call by this text.
    pub fn find_replica(&self, text: &str) -> Option<ReplicaId> {
        names::readings(text).find(|id| self.replica(id).is_some())
    }

    /// Whether another replica goes by the text this id would print as.
    pub fn is_name_taken(&self, id: &ReplicaId) -> bool {
        // Slots that name nodes sort last: one look tells whether the service has any.
        let last = self.services.get(&id.service).and_then(|s| s.replicas.last_key_value());
        let beside_nodes = matches!(last, Some((Slot::Node(_), _)));
        (beside_nodes || self.prefixes.may_clash(id))
            && names::readings(&id.to_string())
                .any(|other| other != *id && self.replica(&other).is_some())
    }

    pub(crate) fn derive_draining(&self) -> BTreeSet<NodeId> {
        let draining = |(_, node): &(&NodeId, &Node)| node.availability == Availability::Draining;
        self.nodes.iter().filter(draining).map(|(id, _)| id.clone()).collect()
    }

    /// What is derived, computed afresh from what is written.
    pub(crate) fn derive(&self) -> (Loads, BTreeSet<ServiceKey>, BTreeSet<ReplicaId>, Prefixes) {
        let mut loads = Loads::default();
        let mut unplaced = BTreeSet::new();
        let mut moving = BTreeSet::new();
        let mut prefixes = Prefixes::default();
        for (key, service) in &self.services {
            prefixes.add(key);
            if service.row.unplaced.is_some() {
                unplaced.insert(key.clone());
            }
            for (slot, replica) in &service.replicas {
                let id = ReplicaId::new(key.clone(), slot.clone());
                loads.exchange(&service.row.specs, &id, None, Some(replica), &mut |_, _| {});
                if replica.successor.is_some() {
                    moving.insert(id);
                }
            }
        }
        (loads, unplaced, moving, prefixes)
    }
}
