use std::time::Duration;

use plimsoll_runtime::{ContainerStatus, Exit, ProcessRuntime, Runtime, RuntimeEvent};
use serde_json::Value;
use tokio::time::timeout;

use crate::harness::{Host, gone, heard, is_alive, kill, order, settings, sh, tag};

fn edit(path: &std::path::Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value =
        serde_json::from_slice(&std::fs::read(path).expect("a record")).expect("in JSON");
    change(&mut value);
    std::fs::write(path, value.to_string()).expect("it can be changed");
}

#[tokio::test]
async fn a_new_runtime_adopts_what_runs_and_hears_how_it_ends() {
    let host = Host::new().await;
    let tag = host.run("trap 'exit 5' TERM; echo pid $$; while :; do sleep 0.01; done").await;
    let pid = host.says(&tag, "pid").await;
    let before = host.status(&tag).await;
    let host = host.restarted().await;
    assert!(is_alive(&pid), "nobody disturbed it");
    assert_eq!(host.status(&tag).await, before);
    let mut events = host.runtime.events();
    host.runtime.start(&order(1, sh("exit 1"))).await.unwrap();
    host.runtime.stop(&tag).await.unwrap();
    let exit = Exit { status: Some(5), oom: false };
    assert_eq!(heard(&mut events).await, RuntimeEvent::Exited { tag: tag.clone(), exit });
    assert_eq!(host.printed(&tag).await, [format!("pid {pid}")], "and it ran once");
}

#[tokio::test]
async fn what_ended_while_nobody_looked_is_known_all_the_same() {
    let host = Host::new().await;
    let script = "while ! [ -e go ]; do sleep 0.01; done; echo bye; exit 9";
    let tag = host.run(script).await;
    let Host { dir, runtime } = host;
    drop(runtime);
    std::fs::write(dir.path().join("test/replicas/g1/work/go"), "").unwrap();
    let ended = dir.path().join("test/replicas/g1/exit.json");
    while !ended.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let runtime = ProcessRuntime::open(settings(dir.path())).await.unwrap();
    let host = Host { dir, runtime };
    assert_eq!(host.exit(&tag).await, Exit { status: Some(9), oom: false });
    assert_eq!(host.printed(&tag).await, ["bye"], "its last words were heard");
}

#[tokio::test]
async fn what_a_removal_cut_short_has_left_is_removed_by_the_next_runtime() {
    let host = Host::new().await;
    let stays = host.run("exec sleep 600").await;
    let ended = host.start(2, sh("exit 3")).await;
    host.exit(&ended).await;
    let never = host.file(3, "work");
    std::fs::create_dir_all(&never).unwrap();
    std::fs::remove_file(host.file(2, "launch.json")).unwrap();
    let host = host.restarted().await;
    assert!(!host.file(2, "").exists(), "its launch was gone already");
    assert!(!host.file(3, "").exists(), "it never had one");
    assert!(host.status(&stays).await.is_some_and(|status| status.is_running()));
}

#[tokio::test]
async fn a_recycled_pid_is_not_mistaken_for_the_service() {
    let host = Host::new().await;
    let tag = host.run("echo pid $$; exec sleep 600").await;
    let pid = host.says(&tag, "pid").await;
    let record = host.file(1, "record.json");
    let original = std::fs::read(&record).unwrap();
    let Host { dir, runtime } = host;
    drop(runtime);
    // The same ids, but as if they had been given to processes that started later.
    edit(&record, |record| {
        for who in ["supervisor", "service"] {
            let start = record[who]["start"].as_u64().unwrap();
            record[who]["start"] = Value::from(start + 1);
        }
    });
    let runtime = ProcessRuntime::open(settings(dir.path())).await.unwrap();
    let host = Host { dir, runtime };
    assert_eq!(host.exit(&tag).await, Exit { status: None, oom: false });
    host.runtime.stop(&tag).await.unwrap();
    assert!(is_alive(&pid), "a stranger is left alone");

    std::fs::write(&record, original).unwrap();
    std::fs::remove_file(host.file(1, "exit.json")).unwrap();
    host.runtime.stop(&tag).await.unwrap();
    gone(&pid).await;
}

#[tokio::test]
async fn a_lost_supervisor_takes_its_service_along() {
    let host = Host::new().await;
    let mut events = host.runtime.events();
    let tag = host.run("sleep 600 & echo child $!; echo pid $$; wait").await;
    let (child, pid) = (host.says(&tag, "child").await, host.says(&tag, "pid").await);
    assert_eq!(heard(&mut events).await, RuntimeEvent::Started { tag: tag.clone() });
    let record = std::fs::read(host.file(1, "record.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    kill(&record["supervisor"]["pid"].to_string());
    let exit = Exit { status: None, oom: false };
    assert_eq!(heard(&mut events).await, RuntimeEvent::Exited { tag: tag.clone(), exit });
    gone(&pid).await;
    gone(&child).await;
    host.runtime.start(&order(1, sh("echo pid again; exec sleep 600"))).await.unwrap();
    assert!(matches!(host.status(&tag).await, Some(ContainerStatus::Running { .. })));
    host.runtime.stop(&tag).await.unwrap();
}

#[tokio::test]
async fn orphans_are_listed_and_can_be_cleared_by_their_tag_alone() {
    let host = Host::new().await;
    let running = host.start(4, sh("exec sleep 600")).await;
    let ended = host.start(7, sh("exit 0")).await;
    host.exit(&ended).await;
    let foreign = host.dir.path().join("other/replicas/g5");
    std::fs::create_dir_all(&foreign).unwrap();
    let host = host.restarted().await;
    let found = host.runtime.list().await.unwrap();
    let tags: Vec<_> = found.iter().map(|found| found.tag.clone()).collect();
    assert_eq!(tags, [running, ended]);
    for tag in tags {
        host.runtime.stop(&tag).await.unwrap();
        host.runtime.remove(&tag).await.unwrap();
    }
    assert_eq!(host.runtime.list().await.unwrap(), []);
    assert!(foreign.is_dir(), "what is another cell's is left alone");
}

/// A daemon that dies at any moment of a start leaves one process or none, and the next one makes it one.
#[test]
fn a_start_cut_short_is_found_again() {
    let daemon = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().expect("a runtime")
    };
    for cut in 0..25_u64 {
        let first = daemon();
        let host = first.block_on(Host::new());
        let order = order(1, sh("echo pid $$; exec sleep 600"));
        let moment = Duration::from_micros(cut * 400);
        let _ = first.block_on(async { timeout(moment, host.runtime.start(&order)).await });
        let Host { dir, runtime } = host;
        drop(runtime);
        // All its tasks end where they are.
        drop(first);

        let second = daemon();
        second.block_on(async {
            let runtime = ProcessRuntime::open(settings(dir.path())).await.unwrap();
            let host = Host { dir, runtime };
            host.runtime.start(&order).await.unwrap();
            let pid = host.says(&tag(1), "pid").await;
            let printed = host.printed(&tag(1)).await;
            assert_eq!(printed, [format!("pid {pid}")], "cut after {moment:?}");
            host.runtime.stop(&tag(1)).await.unwrap();
            gone(&pid).await;
        });
    }
}
