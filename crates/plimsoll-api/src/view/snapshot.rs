//! The running cell in the format of a case, whose words `docs/reference/case-format.md` lists. It has no images, commands,
//! variables or secrets: of services only what decides where they run. Who reads a case is the workbench.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_kernel::rebalance::{MeasuredCycle, MoveInFlight, NodeTrend, RebalanceMemory};
use plimsoll_model::spec::{UpdateOrder, UpdatePolicy};
use plimsoll_model::{
    Availability, Bytes, Capability, Generation, MilliCpus, Mode, MoveCause, Node, NodeId,
    NodePressure, NodeStatus, ObservedState, Pressure, Replica, ReplicaId, Resources, ServiceKey,
    ServiceSpec, Slot, SpecHash, State, Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All that the next pass and the next cycle decide on, so that they decide the same elsewhere. Times are milliseconds on the
/// leader's clock, sizes bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    pub cell: String,
    pub nodes: Vec<SnapshotNode>,
    pub deployments: Vec<SnapshotDeployment>,
    pub replicas: Vec<SnapshotReplica>,
    /// Which index the next replica of a service gets, where that is not the one after the last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next_index: BTreeMap<String, u32>,
    /// What the leader's rebalancer remembers.
    pub memory: SnapshotMemory,
    pub cycles: Vec<SnapshotCycle>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotNode {
    pub name: String,
    #[serde(flatten)]
    pub capacity: SnapshotAmounts,
    /// All that is set aside there.
    pub reserved: SnapshotAmounts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub os: String,
    pub arch: String,
    /// What its runtime cannot do.
    #[schema(value_type = Vec<String>)]
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub lacks: BTreeSet<Capability>,
    #[schema(value_type = String)]
    #[serde(default = "ready", skip_serializing_if = "is_ready")]
    pub status: NodeStatus,
    /// As `1500ms`; none while it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_for: Option<String>,
    /// As `1500ms`; none while its container runtime answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_down_for: Option<String>,
    #[schema(value_type = String)]
    #[serde(default = "active", skip_serializing_if = "is_active")]
    pub availability: Availability,
    /// When it was last sent a replica for relief.
    #[schema(value_type = Option<u64>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotAmounts {
    /// Cores.
    pub cpus: f64,
    pub memory: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpus: u32,
    /// Every GPU of the node it goes to.
    #[serde(default, skip_serializing_if = "is_false")]
    pub all_gpus: bool,
}

/// Shares of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotShares {
    pub cpu: f64,
    pub memory: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotDeployment {
    pub name: String,
    pub services: BTreeMap<String, SnapshotService>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotService {
    /// `spread`, `pack`, `hosts` or `global`.
    pub placement: String,
    /// None for `global`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<SnapshotAmounts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<SnapshotAmounts>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_node: Option<u32>,
    /// `80/tcp`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<String>,
    /// One that stands for all, where its data lives on its node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub interruption_penalty: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<SnapshotUpdate>,
    /// What it needs of a runtime, where some node lacks something.
    #[schema(value_type = Option<Vec<String>>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<BTreeSet<Capability>>,
    /// The hash of what it runs.
    #[schema(value_type = String)]
    pub spec: SpecHash,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotUpdate {
    /// `start-first` or `stop-first`.
    pub order: String,
    /// 0: all at once.
    pub parallelism: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotReplica {
    /// `shop/web`
    pub service: String,
    /// None of a `global` service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    pub node: String,
    #[schema(value_type = String)]
    #[serde(default = "running", skip_serializing_if = "is_running")]
    pub state: ObservedState,
    /// When it was placed or moved there.
    #[schema(value_type = u64)]
    pub at: Timestamp,
    #[schema(value_type = u64)]
    pub generation: Generation,
    /// What it was started from, where that is not what the service has now.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<SpecHash>,
    /// Where it is going.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<SnapshotSuccessor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotSuccessor {
    pub node: String,
    #[schema(value_type = String)]
    pub cause: MoveCause,
    /// None where its node has reported nothing yet.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ObservedState>,
    #[schema(value_type = u64)]
    pub at: Timestamp,
    #[schema(value_type = u64)]
    pub generation: Generation,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotMemory {
    pub nodes: BTreeMap<String, SnapshotTrend>,
    /// By replica: `shop/web/1`.
    #[schema(value_type = BTreeMap<String, SnapshotMove>)]
    pub moving: BTreeMap<ReplicaId, SnapshotMove>,
}

/// Means and what they reached, with all the digits there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotTrend {
    /// Of the last sample.
    #[schema(value_type = u64)]
    pub at: Timestamp,
    pub mean: SnapshotShares,
    pub peak: SnapshotShares,
    /// In how many cycles on end it was hot.
    pub hot: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotMove {
    pub src: String,
    pub dst: String,
    /// What it takes from the one and brings to the other.
    pub off: SnapshotShares,
    pub on: SnapshotShares,
}

/// What one cycle was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotCycle {
    #[schema(value_type = u64)]
    pub at: Timestamp,
    pub nodes: BTreeMap<String, SnapshotSample>,
    /// What replicas use, smoothed.
    #[schema(value_type = BTreeMap<String, SnapshotUsage>)]
    pub replicas: BTreeMap<ReplicaId, SnapshotUsage>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotSample {
    #[schema(value_type = u64)]
    pub at: Timestamp,
    #[serde(flatten)]
    pub shares: SnapshotShares,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotUsage {
    pub cpus: f64,
    pub memory: u64,
}

impl Snapshot {
    /// The cell as it is, and what its next cycle would be told.
    pub fn of(state: &State, memory: &RebalanceMemory, cycle: &MeasuredCycle) -> Self {
        let rows = state.replicas().filter_map(|(id, it)| Some((replica(state, &id, it)?, id)));
        let (replicas, ids): (Vec<SnapshotReplica>, BTreeSet<ReplicaId>) = rows.unzip();
        let nodes = state.nodes().iter();
        Self {
            cell: state.cell_id().to_string(),
            nodes: nodes.map(|(id, it)| node(state, id, it, cycle.at)).collect(),
            deployments: deployments(state),
            next_index: next_index(state, &ids),
            memory: SnapshotMemory::of(state, memory, &ids),
            cycles: vec![SnapshotCycle::of(state, cycle, &ids)],
            replicas,
        }
    }
}

fn node(state: &State, id: &NodeId, node: &Node, now: Timestamp) -> SnapshotNode {
    let is_down = node.status == NodeStatus::Down;
    let reserved = state.load(id).map(|load| load.reserved).unwrap_or_default();
    SnapshotNode {
        name: id.to_string(),
        capacity: node.facts.capacity.into(),
        reserved: reserved.on(node.facts.capacity).into(),
        zone: node.facts.zone.as_ref().map(ToString::to_string),
        labels: node.facts.labels.clone(),
        os: node.facts.os.clone(),
        arch: node.facts.arch.clone(),
        lacks: node.facts.runtime.lacks.clone(),
        status: node.status,
        down_for: is_down.then(|| format!("{}ms", now.since(node.status_since).0)),
        runtime_down_for: node.outage.as_ref().map(|it| format!("{}ms", now.since(it.since).0)),
        availability: node.availability,
        received_at: node.received_at,
    }
}

fn deployments(state: &State) -> Vec<SnapshotDeployment> {
    let mut deployments: BTreeMap<&str, BTreeMap<String, SnapshotService>> = BTreeMap::new();
    let lacking = state.nodes().values().flat_map(|node| node.facts.runtime.lacks.iter().copied());
    let lacking: BTreeSet<Capability> = lacking.collect();
    for (key, service) in state.services() {
        let Some(spec) = service.desired() else { continue };
        let services = deployments.entry(key.deployment.as_str()).or_default();
        services.insert(key.service.to_string(), SnapshotService::of(spec, &lacking));
    }
    let named = deployments.into_iter();
    named.map(|(name, services)| SnapshotDeployment { name: name.to_owned(), services }).collect()
}

/// None of what only stops, or is left from when its service was laid out in another way.
fn replica(state: &State, id: &ReplicaId, replica: &Replica) -> Option<SnapshotReplica> {
    let at = replica.assignment.as_ref()?;
    let spec = state.service(&id.service)?.desired()?;
    let is_global = spec.placement.mode == Mode::Global;
    let index = match id.slot {
        Slot::Index(index) if !is_global => Some(index),
        Slot::Node(_) if is_global => None,
        Slot::Index(_) | Slot::Node(_) => return None,
    };
    Some(SnapshotReplica {
        service: id.service.to_string(),
        index,
        node: at.node.to_string(),
        state: replica.observation(at).map_or(ObservedState::Pending, |seen| seen.state),
        at: at.at,
        generation: at.generation,
        spec: Some(at.spec).filter(|it| *it != spec.hash),
        successor: replica.successor.as_ref().map(|next| SnapshotSuccessor {
            node: next.assignment.node.to_string(),
            cause: next.cause,
            state: replica.observation(&next.assignment).map(|seen| seen.state),
            at: next.assignment.at,
            generation: next.assignment.generation,
        }),
    })
}

/// The names of replicas that ended are not given again.
fn next_index(state: &State, ids: &BTreeSet<ReplicaId>) -> BTreeMap<String, u32> {
    let mut last: BTreeMap<&ServiceKey, u32> = BTreeMap::new();
    for id in ids {
        if let Slot::Index(index) = id.slot {
            let last = last.entry(&id.service).or_default();
            *last = index.max(*last);
        }
    }
    let indexed = state.services().iter().filter(|(_, service)| {
        service.desired().is_some_and(|spec| spec.placement.mode != Mode::Global)
    });
    let next = indexed.map(|(key, _)| (key, state.next_index(key)));
    let is_told = |(key, next): &(&ServiceKey, u32)| *next > last.get(key).map_or(1, |it| it + 1);
    next.filter(is_told).map(|(key, next)| (key.to_string(), next)).collect()
}

impl SnapshotService {
    fn of(spec: &ServiceSpec, lacking: &BTreeSet<Capability>) -> Self {
        let needs = lacking.iter().copied().filter(|need| spec.container.needs(*need)).collect();
        let mode = &spec.placement.mode;
        let hosts = match mode {
            Mode::Hosts { hosts, .. } => hosts.iter().map(ToString::to_string).collect(),
            Mode::Spread { .. } | Mode::Pack { .. } | Mode::Binpack { .. } | Mode::Global => {
                Vec::new()
            }
        };
        let amounts = |amounts: Resources| {
            (amounts != Resources::NONE).then(|| SnapshotAmounts::from(amounts))
        };
        Self {
            placement: mode.word().to_owned(),
            replicas: mode.replicas(),
            hosts,
            reserve: amounts(spec.request()),
            limits: amounts(spec.container.limits),
            constraints: spec.placement.constraints.iter().map(ToString::to_string).collect(),
            max_per_node: spec.placement.max_per_node,
            host_ports: spec.host_ports().map(|port| port.to_string()).collect(),
            volumes: spec.is_stateful().then(|| "data".to_owned()).into_iter().collect(),
            priority: spec.priority,
            interruption_penalty: spec.interruption_penalty,
            update: SnapshotUpdate::of(&spec.update),
            needs: (!lacking.is_empty()).then_some(needs),
            spec: spec.hash,
        }
    }
}

impl SnapshotUpdate {
    fn of(update: &UpdatePolicy) -> Option<Self> {
        let UpdatePolicy { order, parallelism, .. } = UpdatePolicy::default();
        let order_of = |order| match order {
            UpdateOrder::StartFirst => "start-first".to_owned(),
            UpdateOrder::StopFirst => "stop-first".to_owned(),
        };
        let is_usual = (update.order, update.parallelism) == (order, parallelism);
        // In files, all of them at once is 0.
        let parallelism = if update.parallelism == u32::MAX { 0 } else { update.parallelism };
        (!is_usual).then(|| Self { order: order_of(update.order), parallelism })
    }
}

impl SnapshotMemory {
    fn of(state: &State, memory: &RebalanceMemory, ids: &BTreeSet<ReplicaId>) -> Self {
        let trend = |it: &NodeTrend| SnapshotTrend {
            at: it.mean.at(),
            mean: fine(it.mean.cpu.fine(), it.mean.memory.fine()),
            peak: fine(it.peak.cpu.fine(), it.peak.memory.fine()),
            hot: it.hot,
        };
        let moving = |it: &MoveInFlight| SnapshotMove {
            src: it.src.to_string(),
            dst: it.dst.to_string(),
            off: it.off.into(),
            on: it.on.into(),
        };
        let nodes = memory.nodes().iter().filter(|it| state.node(&it.node).is_some());
        let is_known =
            |it: &MoveInFlight| [&it.src, &it.dst].iter().all(|it| state.node(it).is_some());
        let moves = memory.moving().iter().filter(|(id, it)| ids.contains(id) && is_known(it));
        Self {
            nodes: nodes.map(|it| (it.node.to_string(), trend(it))).collect(),
            moving: moves.map(|(id, it)| (id.clone(), moving(it))).collect(),
        }
    }
}

impl SnapshotCycle {
    fn of(state: &State, cycle: &MeasuredCycle, ids: &BTreeSet<ReplicaId>) -> Self {
        let MeasuredCycle { at, readings } = cycle;
        let nodes = readings.nodes.iter().filter(|(id, _)| state.node(id).is_some());
        let samples = nodes.map(|(id, it)| {
            (id.to_string(), SnapshotSample { at: it.at, shares: it.pressure.into() })
        });
        let used = readings.replicas.iter().filter(|(id, _)| ids.contains(id));
        let usages = used.map(|(id, it)| {
            (id.clone(), SnapshotUsage { cpus: cores(it.cpu), memory: it.memory.0 })
        });
        Self { at: *at, nodes: samples.collect(), replicas: usages.collect() }
    }
}

impl From<Resources> for SnapshotAmounts {
    fn from(Resources { cpu, memory: Bytes(memory), gpus, all_gpus }: Resources) -> Self {
        Self { cpus: cores(cpu), memory, gpus, all_gpus: all_gpus > 0 }
    }
}

impl From<NodePressure> for SnapshotShares {
    fn from(NodePressure { cpu, memory }: NodePressure) -> Self {
        let share = |share: Pressure| f64::from(share.millionths()) / 1e6;
        Self { cpu: share(cpu), memory: share(memory) }
    }
}

// All numbers below have fewer digits than a float keeps, so the text it is written as is exact.

#[expect(clippy::cast_precision_loss, reason = "no node has 2^53 thousandths of a core")]
fn cores(MilliCpus(thousandths): MilliCpus) -> f64 {
    thousandths as f64 / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "no node is 9 000 times as busy as it can be")]
fn fine(cpu: u64, memory: u64) -> SnapshotShares {
    SnapshotShares { cpu: cpu as f64 / 1e12, memory: memory as f64 / 1e12 }
}

fn ready() -> NodeStatus {
    NodeStatus::Ready
}

fn active() -> Availability {
    Availability::Active
}

fn running() -> ObservedState {
    ObservedState::Running
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_ready(status: &NodeStatus) -> bool {
    *status == ready()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_active(availability: &Availability) -> bool {
    *availability == active()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_running(state: &ObservedState) -> bool {
    *state == running()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
