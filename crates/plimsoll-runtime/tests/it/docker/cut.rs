use std::time::{Duration, Instant};

use bollard::query_parameters::RemoveContainerOptions;
use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::{FileContent, FileMount, NetworkAttachment};
use plimsoll_runtime::Runtime;
use tokio::time::timeout;

use super::berth::{Berth, PATIENCE, container, sh};

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
        let Some(mut berth) = first.block_on(async { Berth::new() }) else { return };
        let order = berth.order(1, demanding());
        let _ = first.block_on(async { timeout(moment, berth.runtime.start(&order)).await });
        // All its tasks end where they are; what it asked of the engine may still be done.
        drop(first);

        let second = daemon();
        second.block_on(async {
            berth.reopen();
            berth.launch(&order).await;
            berth.says(&order.tag, "key").await;
            assert_eq!(berth.printed(&order.tag).await, ["key"], "cut after {moment:?}");
            let [containers, networks, _] = berth.belongings().await;
            assert_eq!((containers.len(), networks.len()), (1, 2), "cut after {moment:?}");
            let settings = berth.inspect(&order.tag).await.network_settings.unwrap();
            assert_eq!(settings.networks.unwrap().len(), 2, "cut after {moment:?}");
        });
    }
}

/// One that dies between the last container and its networks leaves those to the next.
#[tokio::test]
async fn networks_that_a_removal_cut_short_has_left_are_removed_by_the_next_daemon() {
    let Some(mut berth) = Berth::new() else { return };
    let used = berth.start(1, demanding()).await;
    let [_, networks, _] = berth.belongings().await;
    assert_eq!(networks.len(), 2);
    berth.reopen();
    berth.says(&used, "key").await;
    assert_eq!(berth.belongings().await[1], networks, "they are in use");
    let options = RemoveContainerOptions { force: true, ..Default::default() };
    berth.docker.remove_container(&container(&used), Some(options)).await.unwrap();
    berth.reopen();
    let begin = Instant::now();
    while !berth.belongings().await[1].is_empty() {
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
