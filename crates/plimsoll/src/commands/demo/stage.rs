//! Where the demo plays: a node of its own in a directory of its own, and nothing of either afterwards.

use std::time::Duration;

use plimsoll_api::client::{Client, Endpoint};
use plimsoll_daemon::node::{self, RunningNode, RuntimeKind};
use plimsoll_model::{CellId, NodeId};
use plimsoll_runtime::process::{ProcessRuntime, Settings};
use tempfile::TempDir;
use tokio::time::timeout;

use super::process::{Process, below, end_below};
use crate::error::CliError;
use crate::output::count;

/// How long services may take to stop when the demo ends early; after that they are killed.
const CLEARING: Duration = Duration::from_secs(5);

pub(super) struct Stage {
    dir: TempDir,
    options: node::NodeOptions,
    cell_id: CellId,
    node: Option<RunningNode>,
}

impl Stage {
    pub(super) fn set() -> Result<Self, CliError> {
        let made = tempfile::Builder::new().prefix("plimsoll-demo-").tempdir();
        let dir = made.map_err(|error| {
            CliError::failed(format!("cannot make a directory for the demo: {error}"))
                .hint("point TMPDIR to a directory you may write to")
        })?;
        let unique = dir.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = unique.trim_start_matches("plimsoll-").to_ascii_lowercase();
        let cell_id = CellId::new(&name).map_err(|why| CliError::failed(why.to_string()))?;
        let options = node::NodeOptions {
            data_dir: dir.path().join("node"),
            name: NodeId::new("here").ok(),
            cell_id: Some(cell_id.clone()),
            runtime: Some(RuntimeKind::Process),
            socket: dir.path().join("plimsoll.sock"),
            ..node::NodeOptions::default()
        };
        Ok(Self { dir, options, cell_id, node: None })
    }

    pub(super) fn client(&self) -> Client {
        Client::new(Endpoint::Unix(self.options.socket.clone()))
    }

    pub(super) async fn up(&mut self) -> Result<(), CliError> {
        let started = RunningNode::start(self.options.clone()).await;
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
    pub(super) async fn clear(mut self) -> Result<(), CliError> {
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
            return Err(CliError::failed(text));
        }
        let removed = self.dir.close();
        removed.map_err(|error| CliError::failed(format!("cannot remove {path}: {error}")))
    }

    /// Stops services as a runtime does, which also gives back their control groups.
    async fn dismiss(&self) -> Result<(), plimsoll_runtime::Error> {
        let dir = self.options.data_dir.join("process");
        let runtime = ProcessRuntime::open(Settings::new(self.cell_id.clone(), dir)).await?;
        runtime.clear().await
    }
}
