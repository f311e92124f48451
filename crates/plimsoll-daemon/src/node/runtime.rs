//! Which runtime a node has.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::ClusterId;
use plimsoll_runtime::docker::{self, DockerRuntime};
use plimsoll_runtime::process::{self, ProcessRuntime};
use plimsoll_runtime::{FakeRuntime, Runtime};

use super::memory::Memory;
use super::{Error, Kind, Options};

/// How long an engine may take to say that it is there before the node runs processes instead.
const DETECT: Duration = Duration::from_secs(3);

/// The runtime that was asked for, else the one this node had last time, else Docker if it answers, else processes.
pub(super) async fn open(
    options: &Options,
    memory: Option<&Memory>,
    cluster: ClusterId,
) -> Result<(Kind, Arc<dyn Runtime>), Error> {
    let socket = options.docker_socket.clone().or_else(docker::detect);
    let kind = match options.runtime.or(memory.and_then(|memory| memory.runtime)) {
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
        Kind::Fake => Arc::new(FakeRuntime::new(cluster)),
    };
    Ok((kind, runtime))
}

async fn answers(cluster: &ClusterId, socket: &Path, data_dir: &Path) -> bool {
    let settings = docker::Settings::new(cluster.clone(), socket, data_dir.join("docker"));
    let engine = DockerRuntime::open(settings);
    tokio::time::timeout(DETECT, engine.describe()).await.is_ok_and(|said| said.is_ok())
}
