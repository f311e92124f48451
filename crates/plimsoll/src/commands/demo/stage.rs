//! Where the demo plays: a node of its own in a directory of its own, and nothing of either afterwards.

use std::time::Duration;

use plimsoll_daemon::client::{Client, Endpoint};
use plimsoll_daemon::node::{self, Kind, Node};
use plimsoll_model::{ClusterId, NodeId};
use plimsoll_runtime::process::{ProcessRuntime, Settings};
use tempfile::TempDir;
use tokio::time::timeout;

use super::process::{Process, below, end_below};
use crate::output::count;
use crate::trouble::Trouble;

/// How long services may take to stop when the demo ends early; after that they are killed.
const CLEARING: Duration = Duration::from_secs(5);

pub(super) struct Stage {
    dir: TempDir,
    options: node::Options,
    cluster: ClusterId,
    node: Option<Node>,
}

impl Stage {
    pub(super) fn set() -> Result<Self, Trouble> {
        let made = tempfile::Builder::new().prefix("plimsoll-demo-").tempdir();
        let dir = made.map_err(|error| {
            Trouble::failed(format!("cannot make a directory for the demo: {error}"))
                .hint("point TMPDIR to a directory you may write to")
        })?;
        let unique = dir.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = unique.trim_start_matches("plimsoll-").to_ascii_lowercase();
        let cluster = ClusterId::new(&name).map_err(|why| Trouble::failed(why.to_string()))?;
        let options = node::Options {
            data_dir: dir.path().join("node"),
            name: NodeId::new("here").ok(),
            cluster: Some(cluster.clone()),
            runtime: Some(Kind::Process),
            socket: dir.path().join("plimsoll.sock"),
            ..node::Options::default()
        };
        Ok(Self { dir, options, cluster, node: None })
    }

    pub(super) fn client(&self) -> Client {
        Client::new(Endpoint::Unix(self.options.socket.clone()))
    }

    pub(super) async fn up(&mut self) -> Result<(), Trouble> {
        let started = Node::start(self.options.clone()).await;
        self.node = Some(started.map_err(|error| super::super::up::unstarted(&error))?);
        Ok(())
    }

    pub(super) async fn down(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop().await;
        }
    }

    /// What runs here, supervisors included.
    pub(super) fn processes(&self) -> Vec<Process> {
        below(self.dir.path())
    }

    /// Ends and removes whatever is left.
    pub(super) async fn clear(mut self) -> Result<(), Trouble> {
        self.down().await;
        if !self.processes().is_empty() || self.options.data_dir.exists() {
            // What does not stop in time is killed below.
            let _ = timeout(CLEARING, self.dismiss()).await;
        }
        let left = end_below(self.dir.path()).await;
        let path = self.dir.path().display().to_string();
        if let Some(one) = left.first() {
            let (many, pid) = (count(left.len(), "process"), one.pid);
            let text = format!(
                "{many} of the demo would not end, {pid} for one; their directory is {path}"
            );
            let _ = self.dir.keep();
            return Err(Trouble::failed(text));
        }
        let removed = self.dir.close();
        removed.map_err(|error| Trouble::failed(format!("cannot remove {path}: {error}")))
    }

    /// Stops services as a runtime does, which also gives back their control groups.
    async fn dismiss(&self) -> Result<(), plimsoll_runtime::Error> {
        let dir = self.options.data_dir.join("process");
        let runtime = ProcessRuntime::open(Settings::new(self.cluster.clone(), dir)).await?;
        runtime.clear().await
    }
}
