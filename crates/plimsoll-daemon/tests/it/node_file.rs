//! A data directory without the file that says which node it belongs to.

use plimsoll_daemon::node::{NodeOptions, RunningNode, RuntimeKind};
use plimsoll_model::testkit::node_id;

/// Under the name of the host it would be another node: a ghost of the old one stays in the cell, and its log has a server
/// that nobody else knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_its_node_file_is_not_started_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let options = |name: Option<&str>| NodeOptions {
        data_dir: dir.path().join("node"),
        name: name.map(node_id),
        runtime: Some(RuntimeKind::Fake),
        socket: dir.path().join("plimsoll.sock"),
        address: Some(loopback()),
        ..NodeOptions::default()
    };
    let node = RunningNode::start(options(Some("ash"))).await.unwrap();
    node.stop().await;
    let file = dir.path().join("node/node.json");
    let kept = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    for name in [None, Some("ash")] {
        let said = RunningNode::start(options(name)).await.unwrap_err().to_string();
        assert!(said.contains("node.json is missing") && said.contains("Put it back"), "{said}");
        assert!(!file.exists(), "nothing is written down");
    }
    // As it says.
    std::fs::write(&file, kept).unwrap();
    RunningNode::start(options(None)).await.unwrap().stop().await;
}

/// An address that no other test run has.
fn loopback() -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.119.{high}.{}:7117", low.max(1))
}
