//! The one trait between a node and whatever runs its containers.
//!
//! Everything is asked for by [`Tag`]: a runtime knows replicas only by what it can write on a container and read back
//! after the daemon was killed. Calls are idempotent, so an agent that lost its memory repeats them without harm.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_model::registries::RegistryAuth;
use plimsoll_model::spec::{Healthcheck, Protocol, PullPolicy};
use plimsoll_model::{
    Capability, CellId, ContainerSpec, DeploymentName, Generation, ReplicaId, Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::attach::{AttachRequest, AttachStreams};
use crate::error::{PullError, Reason, Result};
use crate::logs::{LogQuery, Logs};
use crate::process::table::ProcessIdentity;
use crate::usage::Usage;

/// A future behind a pointer, so that a node holds one `Arc<dyn Runtime>` whatever it runs on.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub use plimsoll_model::spec::DEFAULT_STOP_GRACE;

/// Events that may wait for a slow listener. Beyond it the listener is told [`RuntimeEvent::Missed`] and lists again.
const EVENTS_KEPT: usize = 1_024;

/// What a node needs of whatever runs its containers, for one replica generation at a time.
///
/// A runtime serves one cell: it lists, stops and removes what carries that cell's name and nothing else. Who drops
/// a future gives up waiting; whether the work is done all the same, [`Runtime::list`] shows.
pub trait Runtime: Any + Send + Sync + fmt::Debug {
    /// Who this is, in words for people. Also the way to ask whether the runtime answers at all.
    fn describe(&self) -> BoxFuture<'_, Result<Description>>;

    /// What no container gets here. The node says so to its cell, which keeps away what needs it.
    fn lacks(&self) -> BTreeSet<Capability> {
        BTreeSet::new()
    }

    /// Why this spec cannot run here; empty when it can. Cheap: nothing is started or pulled.
    fn refuses(&self, spec: &ContainerSpec) -> Vec<Reason>;

    /// Has the image here when it returns.
    fn pull<'a>(&'a self, pull: &'a Pull) -> BoxFuture<'a, Result<(), PullError>>;

    /// Which image its tag stands for now. Nothing is pulled.
    fn resolve<'a>(&'a self, pull: &'a Pull) -> BoxFuture<'a, Result<ImageResolution, PullError>> {
        let _ = pull;
        Box::pin(async { Ok(ImageResolution::NoImages) })
    }

    /// The check an image brings along, for specs that name none of their own.
    fn image_check<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<Healthcheck>>> {
        let _ = image;
        Box::pin(async { Ok(None) })
    }

    /// Where an image that is here declares volumes.
    fn declared_volumes<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<BTreeSet<String>>> {
        let _ = image;
        Box::pin(async { Ok(BTreeSet::new()) })
    }

    /// Creates and starts. What runs already under the tag is left alone; what exited starts again.
    fn start<'a>(&'a self, order: &'a StartRequest) -> BoxFuture<'a, Result<()>>;

    /// Asks it to stop with its spec's own signal, and kills it after its spec's own grace. Returns once nothing of it
    /// runs. What does not run, or is not here, has stopped already. The spec is the runtime's to remember: of an
    /// orphan nobody else knows it.
    fn stop<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<()>>;

    /// Clears away what does not run, with its logs and its nameless volumes.
    fn remove<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<()>>;

    /// Everything of this cell that is here, running or not, sorted by tag.
    fn list(&self) -> BoxFuture<'_, Result<Vec<ContainerInfo>>>;

    /// What happens from now on.
    fn events(&self) -> Events;

    /// What everything that runs has used. One call for all: a runtime reads its counters in one sweep.
    fn usage(&self) -> BoxFuture<'_, Result<BTreeMap<Tag, Usage>>>;

    fn logs<'a>(&'a self, tag: &'a Tag, query: LogQuery) -> BoxFuture<'a, Result<Logs>>;

    /// Runs a command beside the service: same environment, user, directory and limits.
    fn exec<'a>(&'a self, tag: &'a Tag, exec: &'a ExecRequest)
    -> BoxFuture<'a, Result<ExecOutput>>;

    /// Runs a command beside the service as [`exec`](Self::exec) does, with what is sent to it and what it prints passed on
    /// as they come. It is killed when it takes too long, and when nobody is at the other end any more.
    fn attach<'a>(
        &'a self,
        tag: &'a Tag,
        request: &'a AttachRequest,
        streams: AttachStreams,
    ) -> BoxFuture<'a, Result<ExecOutcome>>;

    /// Deletes the deployment's named volumes and says which. Never done unless a person asked for it.
    fn remove_volumes<'a>(
        &'a self,
        deployment: &'a DeploymentName,
    ) -> BoxFuture<'a, Result<Vec<String>>>;

    /// The directory on this host with what is in the volume; none where there is no such volume. Of volumes that are no
    /// directory of this host there is no content to read.
    fn volume_dir<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<Option<PathBuf>>>;

    /// Makes an empty volume, as a container that mounts it would find it, and says where it is. There must be none.
    fn create_volume<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<PathBuf>>;

    /// Deletes one volume with what is in it. What is not there is gone already. Refused while a container has it mounted.
    fn remove_volume<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<()>>;
}

/// A named volume of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VolumeRef {
    pub deployment: DeploymentName,
    /// As an engine has it.
    pub name: String,
}

impl VolumeRef {
    pub fn new(deployment: &DeploymentName, name: &str) -> Self {
        Self { deployment: deployment.clone(), name: name.to_owned() }
    }

    /// As the deployment's file names it, where the name is the deployment's own.
    pub fn key(&self) -> Option<&str> {
        self.name.strip_prefix(self.deployment.as_str())?.strip_prefix('_')
    }
}

impl fmt::Display for VolumeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What a container carries, so that its owner knows it again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tag {
    pub cell_id: CellId,
    pub replica: ReplicaId,
    pub generation: Generation,
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.replica, self.generation))
    }
}

impl Tag {
    pub fn deployment(&self) -> &DeploymentName {
        &self.replica.service.deployment
    }
}

/// What to start.
#[derive(Debug, Clone)]
pub struct StartRequest {
    pub tag: Tag,
    pub spec: Arc<ContainerSpec>,
    /// Where the spec's ports are bound on this node, as the node chose.
    pub bindings: Vec<Binding>,
    /// Where its image declares volumes that outlive the container, each path with the key of its volume in the deployment.
    pub declared: BTreeMap<String, String>,
}

impl StartRequest {
    pub fn new(tag: Tag, spec: Arc<ContainerSpec>) -> Self {
        Self { tag, spec, bindings: Vec::new(), declared: BTreeMap::new() }
    }
}

/// A port of the service and the port of the node that leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub target: u16,
    pub protocol: Protocol,
    pub address: IpAddr,
    pub port: u16,
}

/// An image to have here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pull {
    pub image: String,
    pub policy: PullPolicy,
    pub platform: Option<String>,
    /// What the cell shows the registry; none for what this node has by itself.
    pub auth: Option<Arc<RegistryAuth>>,
}

impl Pull {
    pub fn of(spec: &ContainerSpec) -> Self {
        Self {
            image: spec.pinned_image().into_owned(),
            policy: spec.pull.unwrap_or(PullPolicy::Missing),
            platform: spec.platform.clone(),
            auth: None,
        }
    }

    #[must_use]
    pub fn with_auth(mut self, auth: Option<Arc<RegistryAuth>>) -> Self {
        self.auth = auth;
        self
    }
}

/// Which image a tag stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageResolution {
    /// This runtime has nothing to do with images.
    NoImages,
    /// By the word of its registry.
    Registry { digest: String },
    /// By what this node pulled earlier, since the registry gave no answer.
    Node { digest: String, error: PullError },
    /// It is on this node and came from no registry: nothing says which image another node has under that name.
    Local,
}

/// A runtime in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Description {
    pub name: &'static str,
    pub version: String,
    /// What it does not isolate or does not hold a service to, a sentence each.
    pub limits: Vec<String>,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)?;
        self.limits.iter().try_for_each(|limit| write!(f, "\n  {limit}"))
    }
}

/// Something of this cell that a runtime has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerInfo {
    pub tag: Tag,
    pub status: ContainerStatus,
    /// Where this node reaches its ports, while it runs.
    pub address: Option<IpAddr>,
    /// Its first process, while it runs and this host sees it: by that it is known to run on while the runtime does not answer.
    pub process: Option<ProcessIdentity>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerStatus {
    /// Made, or half made, and not running.
    Created,
    Running {
        since: Timestamp,
    },
    /// `since` and `at` tell one run of a tag from the next, so that a failure seen twice counts once.
    Exited {
        since: Timestamp,
        at: Timestamp,
        exit: Exit,
    },
}

impl ContainerStatus {
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// As a shell counts: 128 and the signal's number for a kill. None when nobody was left to see it, as after a
    /// loss of power.
    pub status: Option<i32>,
    /// The kernel killed something of it for want of memory.
    pub oom: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeEvent {
    Started {
        tag: Tag,
    },
    Exited {
        tag: Tag,
        exit: Exit,
    },
    Removed {
        tag: Tag,
    },
    /// Some events are lost; only a list shows how things are.
    Missed,
}

/// A listener. Several may listen; each hears everything from the moment it began.
#[derive(Debug)]
pub struct Events(broadcast::Receiver<RuntimeEvent>);

impl Events {
    /// The next event; none once the runtime is gone.
    pub async fn next(&mut self) -> Option<RuntimeEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(RuntimeEvent::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where a runtime tells its events.
#[derive(Debug, Clone)]
pub(crate) struct Bus(broadcast::Sender<RuntimeEvent>);

impl Bus {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(EVENTS_KEPT))
    }

    pub(crate) fn tell(&self, event: RuntimeEvent) {
        // Without a listener there is nobody to tell, which is as it should be.
        let _ = self.0.send(event);
    }

    pub(crate) fn listen(&self) -> Events {
        Events(self.0.subscribe())
    }
}

/// A command to run beside a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    pub command: Vec<String>,
    /// It is killed when it takes longer.
    pub timeout: Option<Duration>,
    /// The most that is kept of each of its two outputs; the rest is read and dropped.
    pub max_output: usize,
}

impl ExecRequest {
    /// Enough for a person's look around; what prints more belongs into a file.
    pub const MAX_OUTPUT: usize = 1 << 20;

    pub fn new<I: Into<String>>(command: impl IntoIterator<Item = I>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self { command, timeout: None, max_output: Self::MAX_OUTPUT }
    }

    pub fn shell(line: &str) -> Self {
        Self::new(["/bin/sh", "-c", line])
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    pub outcome: ExecOutcome,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Something of the outputs was dropped.
    pub is_cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecOutcome {
    /// As a shell counts: 126 and 127 for what could not be run at all.
    Done {
        status: i32,
    },
    TimedOut,
}

/// This node's clock, for what people read. Decisions use the leader's.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
