//! A node that runs nothing: its log, its loops and its API are real, its containers are not.

use std::path::PathBuf;

use plimsoll_api::client::{Client, Endpoint};
use plimsoll_daemon::node::{NodeOptions, RunningNode, RuntimeKind};
use plimsoll_model::testkit::node_id;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::steady;

pub(super) struct Faked {
    pub(super) socket: PathBuf,
    /// Both end with it.
    _node: RunningNode,
    _dir: TempDir,
}

impl Faked {
    pub(super) fn client(&self) -> Client {
        Client::new(Endpoint::Unix(self.socket.clone()))
    }
}

/// With so many deployments of so many replicas each, all steady.
pub(super) fn start(runtime: &Runtime, deployments: usize, replicas: usize) -> Faked {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let socket = dir.path().join("plimsoll.sock");
    let options = NodeOptions {
        data_dir: dir.path().join("node"),
        name: Some(node_id("ash")),
        runtime: Some(RuntimeKind::Fake),
        socket: socket.clone(),
        ..NodeOptions::default()
    };
    let node = runtime.block_on(RunningNode::start(options)).expect("the node starts");
    let faked = Faked { socket, _node: node, _dir: dir };
    let client = faked.client();
    for deployment in 0..deployments {
        let text = format!(
            "name: d{deployment}\nservices:\n  web:\n    image: any\n    \
             healthcheck: {{test: [CMD, 'true'], interval: 1h, start_interval: 10ms, start_period: 1m}}\n    \
             deploy: {{replicas: {replicas}}}\n"
        );
        runtime.block_on(steady(&client, &text));
    }
    faked
}
