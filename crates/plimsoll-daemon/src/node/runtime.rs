//! Which runtime a node has.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::{ClusterId, NodeId};
use plimsoll_names::Answering;
use plimsoll_runtime::docker::{self, DockerRuntime, Naming};
use plimsoll_runtime::process::{self, ProcessRuntime};
use plimsoll_runtime::{Block, FakeRuntime, Runtime};

use super::memory::Memory;
use super::{Error, Kind, Options};

/// How long an engine may take to say that it is there before the node runs processes instead.
const DETECT: Duration = Duration::from_secs(3);

/// What runs this node's containers.
pub(super) struct Opened {
    pub(super) kind: Kind,
    pub(super) runtime: Arc<dyn Runtime>,
    /// Who answers for names of services among them; none where the runtime does, or nobody.
    pub(super) names: Option<Answering>,
}

/// The runtime that was asked for, else the one this node had last time, else Docker if it answers, else processes.
pub(super) async fn open(
    options: &Options,
    memory: Option<&Memory>,
    cluster: ClusterId,
    node: &NodeId,
) -> Result<Opened, Error> {
    let socket = options.docker_socket.clone().or_else(docker::detect);
    let kind = match options.runtime.or(memory.and_then(|memory| memory.runtime)) {
        Some(kind) => kind,
        None if options.docker_socket.is_some() => Kind::Docker,
        None => match &socket {
            Some(socket) if answers(&cluster, socket, &options.data_dir).await => Kind::Docker,
            _ => Kind::Process,
        },
    };
    let mut names = None;
    let runtime: Arc<dyn Runtime> = match kind {
        Kind::Docker => {
            let socket = socket.ok_or(Error::NoEngine)?;
            names = answering(&options.data_dir, &cluster, node).await;
            let pool = options.address_pool.unwrap_or(Block::new(docker::POOL.0, docker::POOL.1));
            let naming = names.clone().map(|names| Naming { names: Arc::new(names), pool });
            let settings = docker::Settings::new(cluster, socket, options.data_dir.join("docker"));
            Arc::new(DockerRuntime::open(docker::Settings { naming, ..settings }))
        }
        Kind::Process => {
            let settings = process::Settings::new(cluster, options.data_dir.join("process"));
            Arc::new(ProcessRuntime::open(settings).await?)
        }
        Kind::Fake => Arc::new(FakeRuntime::new(cluster)),
    };
    Ok(Opened { kind, runtime, names })
}

/// Who answers for names. Where that cannot be, engines do, each for its own containers.
async fn answering(data_dir: &Path, cluster: &ClusterId, node: &NodeId) -> Option<Answering> {
    let opened = Answering::new(&data_dir.join("names.json"), &format!("{cluster}/{node}")).await;
    let told = |why| tracing::warn!(why, "containers do not find services of other nodes by name");
    opened.map_err(told).ok()
}

async fn answers(cluster: &ClusterId, socket: &Path, data_dir: &Path) -> bool {
    let settings = docker::Settings::new(cluster.clone(), socket, data_dir.join("docker"));
    let engine = DockerRuntime::open(settings);
    tokio::time::timeout(DETECT, engine.describe()).await.is_ok_and(|said| said.is_ok())
}
