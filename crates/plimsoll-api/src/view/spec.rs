//! The form of a service as [`Apply`](super::Apply) takes it and a revision shows it: what `plimsoll_model::spec` reads and
//! writes, said for those who read the description of the API. The model itself depends on nothing that could say it; a test
//! keeps the two alike.
//!
//! A revision is shown without what might be a secret: `null` stands for such a value. Applied as it is, with its `revision`,
//! the values come from that revision.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// A compose file as its client read it, or a revision as it was read here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyRequest {
    /// By name.
    pub services: BTreeMap<String, ServiceSpec>,
    #[serde(default)]
    pub routes: Vec<RouteSpec>,
    /// Refuse unless the deployment is at this revision; 0: does not exist. Left out: whatever it is at.
    pub expect: Option<u64>,
    /// The revision of the deployment that has the values for which `null` stands.
    pub revision: Option<u64>,
    /// Not used: a revision can be applied as it was read.
    pub at: Option<Time>,
    /// Likewise.
    pub by: Option<String>,
    /// Likewise.
    pub is_current: Option<bool>,
}

/// A service of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
    pub container: ContainerSpec,
    /// 64 hexadecimal digits; computed by the server whatever is said here.
    pub hash: String,
    pub placement: PlacementSpec,
    pub update: UpdateSpec,
    /// Services that start before this one.
    pub depends_on: BTreeMap<String, DependencySpec>,
    /// Who yields when room is short: the higher stays.
    pub priority: i32,
    /// What a stop of this service costs, from 0 (nothing) to 100.
    pub interruption_penalty: u8,
    pub reschedule: RescheduleSpec,
    /// Whether an unanswered safe HTTP request at a TCP port is replayed on another replica.
    #[serde(default)]
    pub replay: ReplaySpec,
    /// Written by the cell: why the image is used by its tag, where its digest was looked up in vain.
    #[serde(default)]
    pub unpinned: Option<UnpinnedSpec>,
    /// Not used: the cell learns it from nodes that pulled the image.
    #[serde(default)]
    pub declared: DeclaredVolumesSpec,
    /// Of the service; those of its containers are in `container`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What the end of a replica means.
    #[serde(default)]
    pub lifecycle: LifecycleSpec,
    /// When it runs: as a job, at these times.
    #[serde(default)]
    pub schedule: Option<ScheduleSpec>,
}

/// When a service runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Five fields or a name, as cron has it.
    pub cron: String,
    /// A name such as `Europe/Berlin`; left out: UTC.
    pub zone: Option<String>,
    /// Not used: a run has as many copies as `placement` says.
    #[serde(default)]
    pub copies: Option<u32>,
}

/// What the end of a replica means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleSpec {
    /// It runs until it is stopped: any other end is a failure.
    #[default]
    Service,
    /// It serves, and is moved and updated as such; an end with status 0 completes it.
    Finite(RetriesSpec),
    /// It runs to its end, once a revision of its spec, one copy at a time.
    Job(RetriesSpec),
}

/// How often what ended with a status other than 0 is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetriesSpec {
    /// `null`: as often as any container that fails.
    pub limit: Option<u32>,
    /// Milliseconds after a failure; `null`: a wait that doubles.
    pub delay: Option<u64>,
}

/// Where an image declares volumes that the service does not mount.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclaredVolumesSpec {
    pub paths: BTreeSet<String>,
    /// A node has said so of this very service, and it is not only assumed.
    pub is_told: bool,
}

/// Why an image is used by its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnpinnedSpec {
    Local,
    Unreachable,
    Denied,
    NotFound,
    NoEngine,
    Failed,
}

/// Where replicas of a service may run, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementSpec {
    pub mode: ModeSpec,
    pub constraints: Vec<ConstraintSpec>,
    pub preferences: Vec<PreferenceSpec>,
    /// The most copies one node may hold; none means any number.
    pub max_per_node: Option<u32>,
}

/// How a service is laid out over the cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ModeSpec {
    Spread { replicas: u32 },
    Pack { replicas: u32 },
    Hosts { replicas: u32, hosts: BTreeSet<String> },
    Global,
    Binpack { replicas: u32 },
}

/// `node.labels.disk == ssd`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstraintSpec {
    pub on: AttributeSpec,
    pub equal: bool,
    pub value: String,
}

/// What a constraint looks at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttributeSpec {
    Name,
    Zone,
    Label(String),
    Os,
    Arch,
    /// `manager` or `worker`.
    Role,
}

/// A constraint that a node should meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreferenceSpec {
    pub constraint: ConstraintSpec,
    pub weight: u16,
}

/// How a change reaches the replicas; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSpec {
    pub parallelism: u32,
    pub delay: u64,
    pub order: UpdateOrderSpec,
    pub on_failure: OnFailureSpec,
    pub monitor: u64,
    pub max_failure_millionths: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrderSpec {
    StartFirst,
    StopFirst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailureSpec {
    Rollback,
    Pause,
    Continue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DependencySpec {
    Started,
    Healthy,
    Completed,
}

/// Whether the rebalancer may move replicas: as ever, never, or only for a gain in score above this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RescheduleSpec {
    Default,
    Never,
    Above(u16),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplaySpec {
    #[default]
    On,
    Off,
}

/// What a container is made from; times in milliseconds, memory in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainerSpec {
    pub image: String,
    pub pull: Option<PullSpec>,
    pub platform: Option<String>,
    /// Left out: the image's own. Empty: none.
    pub entrypoint: Option<Vec<String>>,
    pub command: Option<Vec<String>>,
    /// `null`: as in `revision`.
    pub environment: BTreeMap<String, Option<String>>,
    pub working_dir: Option<String>,
    pub user: Option<String>,
    pub group_add: Vec<String>,
    pub hostname: Option<String>,
    pub domainname: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub ports: Vec<PortSpec>,
    pub expose: BTreeSet<String>,
    pub mounts: Vec<MountSpec>,
    /// Named volumes that the deployment declares.
    pub volumes: BTreeMap<String, VolumeSpec>,
    pub configs: Vec<FileSpec>,
    pub secrets: Vec<FileSpec>,
    pub networks: BTreeMap<String, NetworkSpec>,
    pub network_mode: Option<String>,
    pub healthcheck: Option<HealthcheckSpec>,
    pub reservations: ResourcesSpec,
    /// Zero is no limit.
    pub limits: ResourcesSpec,
    pub pids_limit: Option<i64>,
    pub gpus: u32,
    pub gpu_requests: Vec<GpuSpec>,
    pub stop_signal: Option<String>,
    pub stop_grace: Option<u64>,
    pub init: Option<bool>,
    pub read_only: Option<bool>,
    pub privileged: Option<bool>,
    pub tty: Option<bool>,
    pub stdin_open: Option<bool>,
    pub cap_add: BTreeSet<String>,
    pub cap_drop: BTreeSet<String>,
    pub security_opt: Vec<String>,
    pub devices: Vec<DeviceSpec>,
    pub device_cgroup_rules: Vec<String>,
    pub ulimits: BTreeMap<String, UlimitSpec>,
    pub sysctls: BTreeMap<String, String>,
    pub shm_size: Option<u64>,
    pub oom_score_adj: Option<i32>,
    pub oom_kill_disable: Option<bool>,
    pub memory_swap: Option<i64>,
    pub memory_swappiness: Option<u8>,
    pub cpu_shares: Option<u64>,
    pub cpuset: Option<String>,
    pub dns: Vec<String>,
    pub dns_opt: Vec<String>,
    pub dns_search: Vec<String>,
    pub extra_hosts: BTreeMap<String, Vec<String>>,
    pub ipc: Option<String>,
    pub pid: Option<String>,
    pub uts: Option<String>,
    pub userns_mode: Option<String>,
    pub cgroup: Option<String>,
    pub cgroup_parent: Option<String>,
    pub storage_opt: BTreeMap<String, String>,
    pub runtime: Option<String>,
    pub logging: Option<LoggingSpec>,
    pub annotations: BTreeMap<String, String>,
    /// Written by the cell: the role of who asked for it where that is less than admin.
    #[serde(default)]
    pub asked_by: Option<String>,
    /// Written by the cell: what the tag of the image stood for when the spec was applied.
    #[serde(default)]
    pub digest: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PullSpec {
    Always,
    Missing,
    Never,
}

/// A published port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortSpec {
    pub target: u16,
    pub published: Option<u16>,
    pub host_ip: Option<String>,
    pub protocol: ProtocolSpec,
    pub mode: PortModeSpec,
    /// Connections to the port begin with the address of their client.
    #[serde(default)]
    pub proxy_protocol: Option<ProxyProtocolSpec>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProtocolSpec {
    V2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProtocolSpec {
    Tcp,
    Udp,
    Sctp,
}

/// Whether every node listens, or the replica's own alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortModeSpec {
    Routed,
    Host,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountSpec {
    pub source: MountSourceSpec,
    pub target: String,
    pub read_only: bool,
    pub consistency: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MountSourceSpec {
    Bind {
        path: String,
        propagation: Option<String>,
        create_host_path: bool,
        selinux: Option<String>,
    },
    Volume {
        name: String,
        subpath: Option<String>,
        nocopy: bool,
    },
    Anonymous,
    Tmpfs {
        size: Option<u64>,
        mode: Option<u32>,
        options: BTreeSet<String>,
    },
}

/// A named volume of the deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    pub name: Option<String>,
    pub external: bool,
    pub driver: Option<String>,
    /// `null`: as in `revision`.
    pub driver_opts: BTreeMap<String, Option<String>>,
    pub labels: BTreeMap<String, String>,
    /// `global`: its driver has it for every node alike.
    #[serde(default)]
    pub scope: Option<VolumeScopeSpec>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeScopeSpec {
    Global,
}

/// A config or secret with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    pub name: String,
    pub target: String,
    /// `null`: as in `revision`.
    pub content: Option<FileContentSpec>,
    pub uid: Option<String>,
    pub gid: Option<String>,
    pub mode: Option<u32>,
}

/// Its bytes, or the name under which the engine keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileContentSpec {
    Inline(Vec<u16>),
    External(String),
}

/// How a service is in a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    pub name: Option<String>,
    pub external: bool,
    pub internal: bool,
    pub aliases: BTreeSet<String>,
    pub ipv4_address: Option<String>,
    pub ipv6_address: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthcheckSpec {
    pub test: HealthTestSpec,
    pub interval: Option<u64>,
    pub timeout: Option<u64>,
    pub start_period: Option<u64>,
    pub start_interval: Option<u64>,
    pub retries: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthTestSpec {
    Image,
    Disabled,
    Command(Vec<String>),
    Shell(String),
}

/// Thousandths of a cpu, bytes of memory, and GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourcesSpec {
    pub cpu: u64,
    pub memory: u64,
    pub gpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuSpec {
    pub driver: Option<String>,
    /// Left out: all of them.
    pub count: Option<u32>,
    pub device_ids: Vec<String>,
    pub capabilities: BTreeSet<String>,
    pub options: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    pub source: String,
    pub target: String,
    pub permissions: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UlimitSpec {
    pub soft: i64,
    pub hard: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoggingSpec {
    pub driver: Option<String>,
    /// `null`: as in `revision`.
    pub options: BTreeMap<String, Option<String>>,
}

/// HTTP requests for a host and path, and the service that answers them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// Left out: every host.
    pub host: Option<String>,
    /// A prefix, beginning with `/`.
    pub path: String,
    /// Whether the service sees the request without the prefix.
    pub strip_path: bool,
    pub service: String,
    pub port: u16,
    pub tls: TlsSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TlsSpec {
    Off,
    Internal,
    Files,
}

#[cfg(test)]
mod tests;
