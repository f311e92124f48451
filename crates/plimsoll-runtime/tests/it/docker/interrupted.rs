use std::time::{Duration, Instant};

use bollard::query_parameters::RemoveContainerOptions;
use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::{FileContent, FileMount, NetworkAttachment};
use plimsoll_runtime::Runtime;
use tokio::time::timeout;

use super::harness::{PATIENCE, TestCell, container, sh};

/// A daemon that dies at any moment of a start leaves one container or none, and the next one makes it one that runs.
#[test]
fn a_start_cut_short_is_found_again() {
    let daemon = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().expect("a runtime")
    };
    for cut in 0..8 {
        let moment = Duration::from_millis(cut * 110);
        let first = daemon();
        let Some(mut cell) = first.block_on(async { TestCell::new() }) else { return };
        let order = cell.order(1, demanding());
        let _ = first.block_on(async { timeout(moment, cell.runtime.start(&order)).await });
        // All its tasks end where they are; what it asked of the engine may still be done.
        drop(first);

        let second = daemon();
        second.block_on(async {
            cell.reopen();
            cell.launch(&order).await;
            cell.says(&order.tag, "key").await;
            assert_eq!(cell.printed(&order.tag).await, ["key"], "cut after {moment:?}");
            let [containers, networks, _] = cell.belongings().await;
            assert_eq!((containers.len(), networks.len()), (1, 2), "cut after {moment:?}");
            let settings = cell.inspect(&order.tag).await.network_settings.unwrap();
            assert_eq!(settings.networks.unwrap().len(), 2, "cut after {moment:?}");
        });
    }
}

/// One that dies between the last container and its networks leaves those to the next.
#[tokio::test]
async fn networks_that_a_removal_cut_short_has_left_are_removed_by_the_next_daemon() {
    let Some(mut cell) = TestCell::new() else { return };
    let used = cell.start(1, demanding()).await;
    let [_, networks, _] = cell.belongings().await;
    assert_eq!(networks.len(), 2);
    cell.reopen();
    cell.says(&used, "key").await;
    assert_eq!(cell.belongings().await[1], networks, "they are in use");
    let options = RemoveContainerOptions { force: true, ..Default::default() };
    cell.docker.remove_container(&container(&used), Some(options)).await.unwrap();
    cell.reopen();
    let begin = Instant::now();
    while !cell.belongings().await[1].is_empty() {
        assert!(begin.elapsed() < PATIENCE, "they are still there");
    }
}

/// It takes several steps to start.
fn demanding() -> ContainerSpec {
    let secret = FileMount {
        name: "key".into(),
        target: "/run/secrets/key".into(),
        content: FileContent::Inline(b"key\n".to_vec()),
        uid: None,
        gid: None,
        mode: None,
    };
    let networks = ["back", "front"].map(|name| (name.to_owned(), NetworkAttachment::default()));
    ContainerSpec {
        network_mode: None,
        networks: networks.into(),
        secrets: vec![secret],
        ..sh("cat /run/secrets/key; exec sleep 600")
    }
}
