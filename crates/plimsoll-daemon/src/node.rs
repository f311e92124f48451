//! A node from its first to its last moment: opens its data directory, starts the log, the runtime, the loops and the
//! API, in this order, and ends them in the other. Replicas outlive it.
//!
//! ```text
//! store/     the replicated log, and the lock on all of this
//! term       the newest term whose orders it has taken
//! node.json  who this node is and what runs its containers
//! process/   what the process runtime keeps
//! docker/    configs and secrets that containers have mounted
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_kernel::Policy;
use plimsoll_model::{Change, ClusterId, NodeId, Writer, Zone};
use plimsoll_runtime::docker::{self, DockerRuntime};
use plimsoll_runtime::pressure::Host;
use plimsoll_runtime::process::{self, ProcessRuntime};
use plimsoll_runtime::{BoxFuture, Description, Runtime, chain};
use plimsoll_store::embedded::{Config, OpenError};
use plimsoll_store::{Embedded, Engine};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::agent::Agent;
use crate::api::{self, Listen, Server};
use crate::cell::{Cell, WriteError};
use crate::link::Fence;
use crate::orders::Dispatch;
use crate::soft::Soft;
use crate::{leader, link, publish, sampler};

/// How long an engine may take to say that it is there before the node runs processes instead.
const DETECT: Duration = Duration::from_secs(3);

/// How long the loops may take to end.
const STOP: Duration = Duration::from_secs(5);

/// How a node is started. What is left out, it finds out or remembers from the last time.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub data_dir: PathBuf,
    pub name: Option<NodeId>,
    pub cluster: Option<ClusterId>,
    pub runtime: Option<Kind>,
    pub docker_socket: Option<PathBuf>,
    pub socket: PathBuf,
    pub listen: Option<SocketAddr>,
    pub zone: Option<Zone>,
    pub labels: BTreeMap<String, String>,
}

/// What runs this node's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Docker,
    Process,
}

/// What a node remembers of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Memory {
    name: NodeId,
    runtime: Kind,
}

/// Why a node does not start. Nothing was changed, and nothing that runs was touched.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is damaged: {why}", path.display())]
    Memory { path: PathBuf, why: String },
    #[error("{} belongs to node {found}, not to {wanted}; leave out --name, or choose another --data-dir", dir.display())]
    OtherNode { dir: PathBuf, found: NodeId, wanted: NodeId },
    #[error("{hostname:?} cannot be the name of a node ({why}); choose one with --name")]
    Name { hostname: String, why: String },
    #[error("cannot read this host's processors and memory from /proc")]
    Host,
    #[error(
        "no Docker Engine was found; start it, name its socket with --docker-socket, or use --runtime process"
    )]
    NoEngine,
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("{}", chain(.0))]
    Runtime(#[from] plimsoll_runtime::Error),
    #[error("this node cannot write to its own log")]
    Write(#[from] WriteError),
    #[error(transparent)]
    Api(#[from] api::BindError),
}

/// A node that runs.
#[derive(Debug)]
pub struct Node {
    cell: Cell,
    kind: Kind,
    description: Option<Description>,
    address: Option<SocketAddr>,
    token: Option<PathBuf>,
    shutdown: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// Where the log of a data directory lies.
pub fn store_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

impl Node {
    pub async fn start(options: Options) -> Result<Self, Error> {
        let dir = &options.data_dir;
        prepare(dir)?;
        let cluster =
            match (plimsoll_store::embedded::cluster_of(&store_dir(dir))?, &options.cluster) {
                (Some(found), None) => found,
                (_, Some(wanted)) => wanted.clone(),
                (None, None) => new_cluster()?,
            };
        let host = Host::read(Path::new("/")).ok_or(Error::Host)?;
        let memory = Memory::read(dir)?;
        let name = name(&options, memory.as_ref(), host.hostname.as_deref())?;

        // Its lock is on the whole directory: from here on no other plimsoll uses it.
        let engine = Embedded::start(Config::alone(store_dir(dir), cluster.clone())).await?;
        if let Some(cut) = engine.cut() {
            tracing::warn!(?cut, "a crash had left a torn write, which is cut off");
        }
        let (kind, runtime) = open_runtime(&options, memory.as_ref(), cluster).await?;
        Memory { name: name.clone(), runtime: kind }.write(dir)?;

        let engine: Arc<dyn Engine> = engine;
        let cell = Cell { engine, runtime, node: name.clone(), soft: Arc::new(Soft::default()) };
        let mut facts = host.facts;
        (facts.zone, facts.labels) = (options.zone.clone(), options.labels.clone());
        let join = Change::PutNode { node: name.clone(), facts };
        cell.write(Writer::Agent, name.as_str(), vec![join.free()]).await?;

        let description = cell.runtime.describe().await.ok();
        let path = options.data_dir.join("term");
        let fence = Fence::open(path.clone());
        let fence = fence.map_err(|source| Error::Io { action: "read", path, source })?;
        let (shutdown, stopping) = watch::channel(false);
        let mut node = Self {
            cell,
            kind,
            description,
            address: None,
            token: None,
            shutdown,
            tasks: JoinSet::new(),
        };
        node.listen(&options, &stopping).await?;
        node.begin(fence, &stopping);
        Ok(node)
    }

    async fn listen(
        &mut self,
        options: &Options,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let listen = Listen {
            socket: options.socket.clone(),
            tcp: options.listen,
            data_dir: options.data_dir.clone(),
        };
        let server = Server::bind(self.cell.clone(), &listen).await?;
        self.address = server.tcp_address();
        self.token = self.address.map(|_| api::token_file(&options.data_dir));
        self.tasks.spawn(server.run(stopped(stop.clone())));
        Ok(())
    }

    fn begin(&mut self, fence: Fence, stop: &watch::Receiver<bool>) {
        let (cell, policy) = (&self.cell, Policy::default());
        let dispatch = Dispatch::start(Arc::clone(cell.engine.machine()));
        let (reports, seen) = mpsc::unbounded_channel();
        let (orders, told) = mpsc::channel(1);
        let ends = link::Ends { orders, reports: seen };
        let link =
            link::run(cell.clone(), dispatch, Arc::new(link::Nobody), fence, ends, stop.clone());
        self.tasks.spawn(link);
        self.tasks.spawn(Agent::new(cell, policy, reports).run(told, stop.clone()));
        self.tasks.spawn(sampler::run(cell.clone(), PathBuf::from("/"), stop.clone()));
        self.tasks.spawn(leader::run(cell.clone(), policy, stop.clone()));
        // A process binds its own ports, so there is nothing to stand before.
        if self.kind == Kind::Docker {
            self.tasks.spawn(publish::run(cell.clone(), stop.clone()));
        }
    }

    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// What its runtime said of itself; none while it does not answer.
    pub fn runtime(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// Where the API listens on TCP, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The file with the token that the API asks for over TCP; none where it does not listen there.
    pub fn token_file(&self) -> Option<&Path> {
        self.token.as_deref()
    }

    /// Ends the daemon. Replicas run on.
    pub async fn stop(mut self) {
        // Nobody may be listening any more, which is what is asked for.
        let _ = self.shutdown.send(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP, ended).await.is_err() {
            tracing::warn!("something of this daemon does not end; leaving it");
        }
        if let Err(error) = self.cell.engine.shutdown().await {
            tracing::warn!(%error, "the log did not close well; the next start repairs it");
        }
    }
}

/// A sender that is gone has stopped as well. Boxed, since the compiler cannot follow its lifetimes otherwise.
fn stopped(mut stop: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let _ = stop.wait_for(|stop| *stop).await;
    })
}

/// Services may run as other users, who have to pass through.
fn prepare(dir: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let result = std::fs::DirBuilder::new().recursive(true).mode(0o711).create(dir);
    result.map_err(|source| Error::Io { action: "create", path: dir.to_owned(), source })
}

/// Random, so that two cells on one engine never take each other's containers for their own.
fn new_cluster() -> Result<ClusterId, Error> {
    use std::io::Read;
    let path = PathBuf::from("/dev/urandom");
    let mut bytes = [0_u8; 4];
    let read = std::fs::File::open(&path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|source| Error::Io { action: "read", path, source })?;
    let name = format!("cell-{:08x}", u32::from_be_bytes(bytes));
    Ok(ClusterId::new(&name).expect("letters, digits and a dash are a name"))
}

fn name(
    options: &Options,
    memory: Option<&Memory>,
    hostname: Option<&str>,
) -> Result<NodeId, Error> {
    match (memory, &options.name) {
        (Some(memory), Some(wanted)) if memory.name != *wanted => {
            let (dir, found) = (options.data_dir.clone(), memory.name.clone());
            Err(Error::OtherNode { dir, found, wanted: wanted.clone() })
        }
        (Some(memory), _) => Ok(memory.name.clone()),
        (None, Some(wanted)) => Ok(wanted.clone()),
        (None, None) => {
            // A host is known by the first part of its name, in small letters.
            let hostname = hostname.unwrap_or("node").to_ascii_lowercase();
            let first = hostname.split('.').next().unwrap_or_default();
            NodeId::new(first)
                .map_err(|why| Error::Name { hostname: first.to_owned(), why: why.to_string() })
        }
    }
}

/// The runtime that was asked for, else the one this node had last time, else Docker if it answers, else processes.
async fn open_runtime(
    options: &Options,
    memory: Option<&Memory>,
    cluster: ClusterId,
) -> Result<(Kind, Arc<dyn Runtime>), Error> {
    let socket = options.docker_socket.clone().or_else(docker::detect);
    let kind = match options.runtime.or(memory.map(|memory| memory.runtime)) {
        Some(kind) => kind,
        None if options.docker_socket.is_some() => Kind::Docker,
        None => match &socket {
            Some(socket) if answers(&cluster, socket, &options.data_dir).await => Kind::Docker,
            _ => Kind::Process,
        },
    };
    let runtime: Arc<dyn Runtime> = match kind {
        Kind::Docker => {
            let socket = socket.ok_or(Error::NoEngine)?;
            let settings = docker::Settings::new(cluster, socket, options.data_dir.join("docker"));
            Arc::new(DockerRuntime::open(settings))
        }
        Kind::Process => {
            let settings = process::Settings::new(cluster, options.data_dir.join("process"));
            Arc::new(ProcessRuntime::open(settings).await?)
        }
    };
    Ok((kind, runtime))
}

async fn answers(cluster: &ClusterId, socket: &Path, data_dir: &Path) -> bool {
    let settings = docker::Settings::new(cluster.clone(), socket, data_dir.join("docker"));
    let engine = DockerRuntime::open(settings);
    tokio::time::timeout(DETECT, engine.describe()).await.is_ok_and(|said| said.is_ok())
}

impl Memory {
    fn path(dir: &Path) -> PathBuf {
        dir.join("node.json")
    }

    fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let path = Self::path(dir);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| Error::Memory { path, why: error.to_string() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { action: "read", path, source }),
        }
    }

    /// Beside it and then in its place, so that a crash leaves the old one or the new one.
    fn write(&self, dir: &Path) -> Result<(), Error> {
        let (path, beside) = (Self::path(dir), dir.join("node.json.new"));
        let text = serde_json::to_vec_pretty(self).expect("a name and a word can be written");
        let written = std::fs::write(&beside, text)
            .and_then(|()| std::fs::File::open(&beside)?.sync_all())
            .and_then(|()| std::fs::rename(&beside, &path));
        written.map_err(|source| Error::Io { action: "write", path, source })
    }
}
