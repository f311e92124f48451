//! What a person asked for: a service as the compose file describes it, resolved and checked.
//!
//! [`ContainerSpec`] is what a container is made from and is what the spec hash covers. Everything else in
//! [`ServiceSpec`] steers plimsoll and may change without touching a running container.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::Role;
use crate::hex::{self, Hex};
use crate::ids::{DeploymentName, FileName, NodeId, ServiceName};
use crate::schedule::Schedule;
use crate::units::{Bytes, MilliCpus, Millis, Resources};

mod data;
mod declared;
mod hash;
mod image;
mod lifecycle;
mod networks;
mod pins;
mod routes;

pub use data::{MountedVolume, VolumeGroup};
pub use declared::{DeclaredVolumes, MAX_DECLARED, MAX_DECLARED_PATH, declared_key, declared_name};
pub use image::{ImageReference, UnpinnedImage, is_digest};
pub use lifecycle::{Lifecycle, Retries, awaited_jobs};
pub use networks::NetworkAttachment;
pub use pins::DataPin;
pub use routes::{RouteSpec, Tls, bare_name};

/// SHA-256 over the canonical JSON of a [`ContainerSpec`]; made by [`SpecHash::of`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpecHash(#[serde(with = "hex")] pub [u8; 32]);

impl fmt::Display for SpecHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl SpecHash {
    /// The first twelve digits: enough for people, as with image ids.
    pub fn short(&self) -> String {
        self.to_string()[..hex::SHORT].to_owned()
    }

    pub fn parse(text: &str) -> Option<Self> {
        hex::parse(text).map(Self)
    }
}

impl fmt::Debug for SpecHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.short())
    }
}

/// A service of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpec {
    pub container: ContainerSpec,
    pub hash: SpecHash,
    pub placement: Placement,
    pub update: UpdatePolicy,
    /// Services that start before this one.
    pub depends_on: BTreeMap<ServiceName, Dependency>,
    /// Who yields when room is short: the higher stays.
    pub priority: i32,
    /// What a stop of this service costs, from 0 (nothing) to 100; the fleet compares it before it preempts.
    pub interruption_penalty: u8,
    pub reschedule: Reschedule,
    #[serde(default)]
    pub replay: Replay,
    /// Why its image is used by its tag, where it was looked up and has no digest. Written where a spec is applied, whatever
    /// it says itself.
    #[serde(default)]
    pub unpinned: Option<UnpinnedImage>,
    /// Where its image declares volumes that the file does not mount. Known of what services run, and never part of a
    /// revision.
    #[serde(default)]
    pub declared: DeclaredVolumes,
    /// Of the service, for people and programs that look for it; those of its containers are theirs.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What the end of a replica means.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// When it runs; none: at once, and as its lifecycle says.
    #[serde(default)]
    pub schedule: Option<Schedule>,
}

impl ServiceSpec {
    /// A service with nothing said beyond its container and its layout.
    pub fn new(container: ContainerSpec, hash: SpecHash, mode: Mode) -> Self {
        let placement = Placement {
            mode,
            constraints: BTreeSet::new(),
            preferences: Vec::new(),
            max_per_node: None,
        };
        Self {
            container,
            hash,
            placement,
            update: UpdatePolicy::default(),
            depends_on: BTreeMap::new(),
            priority: 0,
            interruption_penalty: 0,
            reschedule: Reschedule::default(),
            replay: Replay::default(),
            unpinned: None,
            declared: DeclaredVolumes::default(),
            labels: BTreeMap::new(),
            lifecycle: Lifecycle::default(),
            schedule: None,
        }
    }

    /// Whether it matters to the service who holds the log.
    pub fn looks_at_roles(&self) -> bool {
        let preferred = self.placement.preferences.iter().map(|it| &it.constraint);
        self.placement.constraints.iter().chain(preferred).any(|it| it.on == Attribute::Role)
    }

    /// What each replica sets aside on its node. What a spec does not declare counts as zero.
    pub fn request(&self) -> Resources {
        let wants_all = self.container.gpu_requests.iter().any(GpuRequest::wants_all);
        let (gpus, all_gpus) = if wants_all { (0, 1) } else { (self.container.gpus, 0) };
        Resources { gpus, all_gpus, ..self.container.reservations }
    }

    /// Ports that only one replica a node can hold.
    pub fn host_ports(&self) -> impl Iterator<Item = HostPort> + '_ {
        self.container.ports.iter().filter_map(|port| match port.mode {
            PortMode::Host => {
                port.published.map(|number| HostPort { number, protocol: port.protocol })
            }
            PortMode::Routed => None,
        })
    }
}

/// Where replicas of a service may run, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub mode: Mode,
    pub constraints: BTreeSet<Constraint>,
    pub preferences: Vec<Preference>,
    /// The most copies one node may hold; none means any number.
    pub max_per_node: Option<u32>,
}

/// How a service is laid out over the cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Evenly, over zones and then over nodes.
    Spread { replicas: u32 },
    /// Onto the nodes that run the fewest replicas of any service.
    Pack { replicas: u32 },
    /// Onto these nodes only.
    Hosts { replicas: u32, hosts: BTreeSet<NodeId> },
    /// One on every ready node.
    Global,
    /// Onto the fullest node that still has room, by what is reserved on it.
    Binpack { replicas: u32 },
}

impl Mode {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Spread { .. } => "spread",
            Self::Pack { .. } => "pack",
            Self::Hosts { .. } => "hosts",
            Self::Global => "global",
            Self::Binpack { .. } => "binpack",
        }
    }

    /// The same with another count; none for `global`, which has none.
    #[must_use]
    pub fn scaled(&self, replicas: u32) -> Option<Self> {
        match self {
            Self::Spread { .. } => Some(Self::Spread { replicas }),
            Self::Pack { .. } => Some(Self::Pack { replicas }),
            Self::Hosts { hosts, .. } => Some(Self::Hosts { replicas, hosts: hosts.clone() }),
            Self::Binpack { .. } => Some(Self::Binpack { replicas }),
            Self::Global => None,
        }
    }

    /// How many copies are wanted; `global` wants as many as there are nodes for it.
    pub fn replicas(&self) -> Option<u32> {
        match self {
            Self::Spread { replicas }
            | Self::Pack { replicas }
            | Self::Binpack { replicas }
            | Self::Hosts { replicas, .. } => Some(*replicas),
            Self::Global => None,
        }
    }

    /// Whether it asks for evenness over zones and nodes.
    pub fn is_even(&self) -> bool {
        match self {
            Self::Spread { .. } | Self::Hosts { .. } | Self::Global => true,
            Self::Pack { .. } | Self::Binpack { .. } => false,
        }
    }
}

/// `node.labels.disk == ssd`, as in a Swarm stack file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Constraint {
    pub on: Attribute,
    pub equal: bool,
    pub value: String,
}

/// What a constraint looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
    /// `node.hostname` and `node.id`: a node goes by one name here.
    Name,
    Zone,
    Label(String),
    Os,
    Arch,
    /// `manager` or `worker`: see [`Roles`](crate::node::Roles).
    Role,
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("node.hostname"),
            Self::Zone => f.write_str("node.zone"),
            Self::Label(label) => write!(f, "node.labels.{label}"),
            Self::Os => f.write_str("node.platform.os"),
            Self::Arch => f.write_str("node.platform.arch"),
            Self::Role => f.write_str("node.role"),
        }
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.on, if self.equal { "==" } else { "!=" }, self.value)
    }
}

/// A constraint a node should meet rather than must; the weights of a service's preferences are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preference {
    pub constraint: Constraint,
    pub weight: u16,
}

/// How a change reaches the replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatePolicy {
    /// How many replicas change at once.
    pub parallelism: u32,
    pub delay: Millis,
    pub order: UpdateOrder,
    pub on_failure: OnFailure,
    /// How long a new replica is watched before the step counts.
    pub monitor: Millis,
    /// The share of replicas that may fail, in millionths.
    pub max_failure_millionths: u32,
}

impl Default for UpdatePolicy {
    fn default() -> Self {
        Self {
            parallelism: 1,
            delay: Millis(0),
            order: UpdateOrder::StartFirst,
            on_failure: OnFailure::Rollback,
            monitor: Millis::seconds(5),
            max_failure_millionths: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrder {
    StartFirst,
    StopFirst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    Rollback,
    Pause,
    Continue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dependency {
    Started,
    Healthy,
    Completed,
}

/// As it follows the name of the service that is waited for.
impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "has started",
            Self::Healthy => "is healthy",
            Self::Completed => "has completed",
        })
    }
}

/// Whether the background rescheduler may move replicas of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reschedule {
    #[default]
    Default,
    Never,
    /// Only for a gain in score above this.
    Above(u16),
}

/// Whether an unanswered safe HTTP request at a TCP port of a service is replayed on another replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    #[default]
    On,
    Off,
}

/// How long a container may take to stop when its spec does not say; Docker's own default.
pub const DEFAULT_STOP_GRACE: Millis = Millis::seconds(10);

/// What a container is made from. Optional fields and collections only grow: the canonical form leaves out what
/// is empty, so a new field does not change the hash of a spec that does not use it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub image: String,
    pub pull: Option<PullPolicy>,
    pub platform: Option<String>,
    /// `None` keeps the image's own, `Some([])` clears it.
    pub entrypoint: Option<Vec<String>>,
    pub command: Option<Vec<String>>,
    pub environment: BTreeMap<String, String>,
    pub working_dir: Option<String>,
    pub user: Option<String>,
    pub group_add: Vec<String>,
    pub hostname: Option<String>,
    pub domainname: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub ports: Vec<Port>,
    pub expose: BTreeSet<String>,
    pub mounts: Vec<Mount>,
    /// Named volumes this service uses that the deployment declares.
    pub volumes: BTreeMap<String, VolumeSpec>,
    pub configs: Vec<FileMount>,
    pub secrets: Vec<FileMount>,
    pub networks: BTreeMap<String, NetworkAttachment>,
    pub network_mode: Option<String>,
    pub healthcheck: Option<Healthcheck>,
    pub reservations: Resources,
    pub limits: Resources,
    pub pids_limit: Option<i64>,
    pub gpus: u32,
    pub gpu_requests: Vec<GpuRequest>,
    pub stop_signal: Option<String>,
    pub stop_grace: Option<Millis>,
    pub init: Option<bool>,
    pub read_only: Option<bool>,
    pub privileged: Option<bool>,
    pub tty: Option<bool>,
    pub stdin_open: Option<bool>,
    pub cap_add: BTreeSet<String>,
    pub cap_drop: BTreeSet<String>,
    pub security_opt: Vec<String>,
    pub devices: Vec<Device>,
    pub device_cgroup_rules: Vec<String>,
    pub ulimits: BTreeMap<String, Ulimit>,
    pub sysctls: BTreeMap<String, String>,
    pub shm_size: Option<Bytes>,
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
    pub logging: Option<Logging>,
    pub annotations: BTreeMap<String, String>,
    /// The role of who asked for it where that is less than admin: its node holds it to what that role may have. Written
    /// where a spec is applied, whatever it says itself.
    #[serde(default)]
    pub asked_by: Option<Role>,
    /// What the tag of the image stood for when the spec was applied: nodes use this and no other. Written where a spec is
    /// applied, whatever it says itself.
    #[serde(default)]
    pub digest: Option<String>,
}

impl ContainerSpec {
    /// How long it may take to stop.
    pub fn effective_stop_grace(&self) -> Millis {
        self.stop_grace.unwrap_or(DEFAULT_STOP_GRACE)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullPolicy {
    Always,
    Missing,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

impl ContainerSpec {
    /// The container's ports at which every connection begins with the address of its client.
    pub fn proxied_ports(&self) -> BTreeSet<u16> {
        let asked = self.ports.iter().filter(|port| port.proxy_protocol.is_some());
        let carried = asked.filter(|port| port.mode == PortMode::Routed);
        carried.filter(|port| port.protocol == Protocol::Tcp).map(|port| port.target).collect()
    }
}

/// A published port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    pub target: u16,
    /// `None` lets plimsoll choose one.
    pub published: Option<u16>,
    pub host_ip: Option<String>,
    pub protocol: Protocol,
    pub mode: PortMode,
    /// Whether every connection that is carried to the port begins with the address of its client.
    #[serde(default)]
    pub proxy_protocol: Option<ProxyProtocol>,
}

/// How a server is told who its client is, before the client's own bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProtocol {
    V2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortMode {
    /// Every node listens and forwards to a healthy replica (Compose: `ingress`, and the default).
    Routed,
    /// Bound on the node the replica runs on, so one replica a node.
    Host,
}

/// A port of a node, which one replica can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    pub number: u16,
    pub protocol: Protocol,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.protocol)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mount {
    pub source: MountSource,
    pub target: String,
    pub read_only: bool,
    pub consistency: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountSource {
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
    /// A volume without a name: it lives and dies with the container.
    Anonymous,
    Tmpfs {
        size: Option<Bytes>,
        mode: Option<u32>,
        /// Other options of the mount, such as `noexec` and `uid=1000`.
        options: BTreeSet<String>,
    },
}

/// A named volume of the deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumeSpec {
    /// The name on the engine where the file sets one; otherwise it is scoped by the deployment's name.
    pub name: Option<String>,
    pub external: bool,
    pub driver: Option<String>,
    pub driver_opts: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    /// Where its data is, if the file says so; none: as far as we know, on the node that made it.
    #[serde(default)]
    pub scope: Option<VolumeScope>,
}

/// Where the data of a volume is, in the words of engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeScope {
    /// The driver has it for every node alike.
    Global,
}

/// A config or secret, its content read on the client and carried in the spec.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMount {
    pub name: String,
    pub target: String,
    pub content: FileContent,
    pub uid: Option<String>,
    pub gid: Option<String>,
    pub mode: Option<u32>,
}

/// Content stays out of every log and debug print: it may be a secret.
impl fmt::Debug for FileMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMount")
            .field("name", &self.name)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileContent {
    Inline(Vec<u8>),
    /// Kept by the cell under this name: as a file refers to it.
    External(String),
    /// The same as it is written, with the version that was current then.
    Kept {
        name: FileName,
        version: u32,
    },
}

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::External(name) => write!(f, "External({name:?})"),
            Self::Kept { name, version } => write!(f, "Kept({name:?}, {version})"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healthcheck {
    pub test: HealthTest,
    pub interval: Option<Millis>,
    pub timeout: Option<Millis>,
    pub start_period: Option<Millis>,
    pub start_interval: Option<Millis>,
    pub retries: Option<u32>,
}

/// What a check that does not say otherwise has, as with Docker.
impl Healthcheck {
    pub const INTERVAL: Millis = Millis::seconds(30);
    pub const TIMEOUT: Millis = Millis::seconds(30);
    pub const RETRIES: u32 = 3;

    /// How long it may take to call a container healthy or unhealthy. Zero is "not said".
    pub fn time_to_decide(&self) -> Millis {
        if self.test == HealthTest::Disabled {
            return Millis(0);
        }
        let said = |value: Option<Millis>| value.filter(|span| span.0 > 0);
        let probe = said(self.interval).unwrap_or(Self::INTERVAL).0
            + said(self.timeout).unwrap_or(Self::TIMEOUT).0;
        let retries = self.retries.filter(|retries| *retries > 0).unwrap_or(Self::RETRIES);
        let grace = self.start_period.unwrap_or(Millis(0)).0;
        Millis(grace.saturating_add(probe.saturating_mul(retries.into())))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthTest {
    /// The image's own check, with the timing given here.
    Image,
    /// No check, not even the image's own.
    Disabled,
    Command(Vec<String>),
    Shell(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRequest {
    pub driver: Option<String>,
    /// `None` asks for all of them.
    pub count: Option<u32>,
    pub device_ids: Vec<String>,
    pub capabilities: BTreeSet<String>,
    pub options: BTreeMap<String, String>,
}

impl GpuRequest {
    /// Whether it takes every GPU of the node: it gives neither a number nor names.
    pub fn wants_all(&self) -> bool {
        self.count.is_none() && self.device_ids.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Device {
    pub source: String,
    pub target: String,
    pub permissions: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ulimit {
    pub soft: i64,
    pub hard: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Logging {
    pub driver: Option<String>,
    pub options: BTreeMap<String, String>,
}

/// What a service may use before it is stopped from using more; zero is no limit.
impl ContainerSpec {
    pub fn cpu_limit(&self) -> Option<MilliCpus> {
        (self.limits.cpu.0 > 0).then_some(self.limits.cpu)
    }

    pub fn memory_limit(&self) -> Option<Bytes> {
        (self.limits.memory.0 > 0).then_some(self.limits.memory)
    }
}

/// One compose file, resolved and checked: what `apply` is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentSpec {
    pub name: DeploymentName,
    pub services: BTreeMap<ServiceName, ServiceSpec>,
    pub routes: Vec<RouteSpec>,
}
