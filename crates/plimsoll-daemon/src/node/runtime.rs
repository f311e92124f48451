//! Which runtime a node has.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_dns::ServiceDns;
use plimsoll_model::{CellId, NodeId, RuntimeFacts};
use plimsoll_runtime::docker::{self, AddressPool, DockerRuntime, Naming};
use plimsoll_runtime::process::{self, ProcessRuntime};
use plimsoll_runtime::{Block, FakeRuntime, Runtime};
use rustix::process::geteuid;

use super::node_file::NodeFile;
use super::{Error, NodeOptions, RuntimeKind};

/// How long an engine may take to say that it is there before a node does without.
const DETECT: Duration = Duration::from_secs(3);

/// How long a start waits for the engine's version. Nothing else depends on it.
const INTRODUCE: Duration = Duration::from_secs(1);

/// What runs this node's containers.
pub(super) struct OpenRuntime {
    pub(super) runtime: Arc<dyn Runtime>,
    /// Who answers for names of services among them; none where the runtime does, or nobody.
    pub(super) names: Option<ServiceDns>,
}

/// The runtime that was asked for, else the one this node had last time, else Docker if it answers, else processes. A daemon
/// of root is told to run processes, or does not: they would have this host, where a container has its own files.
pub(super) async fn choose(
    options: &NodeOptions,
    memory: Option<&NodeFile>,
) -> Result<RuntimeKind, Error> {
    let before = memory.and_then(|memory| memory.runtime);
    match (before == Some(RuntimeKind::None), options.coordinator.is_some()) {
        (true, false) => return Err(Error::OfCoordinator),
        (false, true) if before.is_some() => return Err(Error::OfCell),
        _ => {}
    }
    match options.runtime.or(before) {
        Some(kind) => return Ok(kind),
        None if options.docker_socket.is_some() => return Ok(RuntimeKind::Docker),
        None => {}
    }
    if let Some(socket) = docker::detect()
        && answers(&socket, &options.data_dir).await
    {
        return Ok(RuntimeKind::Docker);
    }
    if geteuid().is_root() { Err(Error::RootWithoutEngine) } else { Ok(RuntimeKind::Process) }
}

pub(super) async fn open(
    options: &NodeOptions,
    kind: RuntimeKind,
    cell_id: CellId,
    node: &NodeId,
) -> Result<OpenRuntime, Error> {
    let mut names = None;
    let runtime: Arc<dyn Runtime> = match kind {
        RuntimeKind::Docker => {
            let socket = options.docker_socket.clone().or_else(docker::detect);
            let socket = socket.ok_or(Error::NoEngine)?;
            names = answering(&options.data_dir, &cell_id, node).await;
            let block = options.address_pool.unwrap_or(Block::new(docker::POOL.0, docker::POOL.1));
            let pool = AddressPool { block, is_given: options.address_pool.is_some() };
            let naming = names.clone().map(|names| Naming { names: Arc::new(names), pool });
            let settings = docker::Settings::new(cell_id, socket, options.data_dir.join("docker"));
            Arc::new(DockerRuntime::open(docker::Settings { naming, ..settings }))
        }
        RuntimeKind::Process => {
            let settings = process::Settings::new(cell_id, options.data_dir.join("process"));
            Arc::new(ProcessRuntime::open(settings).await?)
        }
        // A coordinator is asked to run nothing: its state takes no deployment.
        RuntimeKind::Fake | RuntimeKind::None => Arc::new(FakeRuntime::new(cell_id)),
    };
    Ok(OpenRuntime { runtime, names })
}

/// What the node says of its runtime. An engine that does not answer at once is taken for one that lacks nothing more: it
/// refuses itself what it cannot do.
pub(super) async fn facts(
    options: &NodeOptions,
    kind: RuntimeKind,
    runtime: &dyn Runtime,
) -> RuntimeFacts {
    if kind == RuntimeKind::Docker {
        // Which version of the API it speaks is known once it was asked for anything.
        let _ = tokio::time::timeout(INTRODUCE, runtime.describe()).await;
    }
    RuntimeFacts {
        name: kind.word().to_owned(),
        lacks: runtime.lacks(),
        bind_roots: options.bind_roots.clone(),
        root_is_host: kind == RuntimeKind::Process && process::is_root(),
    }
}

/// Who answers for names. Where that cannot be, engines do, each for its own containers.
async fn answering(data_dir: &Path, cell_id: &CellId, node: &NodeId) -> Option<ServiceDns> {
    let opened = ServiceDns::new(&data_dir.join("names.json"), &format!("{cell_id}/{node}")).await;
    let told = |why| tracing::warn!(why, "containers cannot resolve services on other nodes");
    opened.map_err(told).ok()
}

/// Only its version is asked for, which is the same to every cell.
async fn answers(socket: &Path, data_dir: &Path) -> bool {
    let Ok(cell_id) = CellId::new("none") else { return false };
    let settings = docker::Settings::new(cell_id, socket, data_dir.join("docker"));
    let engine = DockerRuntime::open(settings);
    tokio::time::timeout(DETECT, engine.describe()).await.is_ok_and(|said| said.is_ok())
}
