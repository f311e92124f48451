use std::time::Instant;

use plimsoll_model::{ContainerSpec, Millis};
use plimsoll_runtime::{ContainerStatus, Error, Exit, Runtime, RuntimeEvent};

use crate::harness::{Host, gone, grace, heard, is_alive, order, sh, tag};

fn status(status: i32) -> Exit {
    Exit { status: Some(status), oom: false }
}

#[tokio::test]
async fn what_exits_when_asked_is_not_waited_for() {
    let host = Host::new().await;
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let tag = host.start(1, grace(sh(script), Millis::minutes(1))).await;
    host.says(&tag, "ready").await;
    let begin = Instant::now();
    host.runtime.stop(&tag).await.unwrap();
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    assert_eq!(host.exit(&tag).await, status(7));
}

#[tokio::test]
async fn what_ignores_the_signal_is_killed_after_its_grace() {
    let host = Host::new().await;
    let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
    let tag = host.start(1, grace(sh(script), Millis(300))).await;
    host.says(&tag, "ready").await;
    let begin = Instant::now();
    host.runtime.stop(&tag).await.unwrap();
    assert!(begin.elapsed().as_millis() >= 300, "{:?}", begin.elapsed());
    assert_eq!(host.exit(&tag).await, status(137));
}

#[tokio::test]
async fn a_service_is_stopped_with_its_own_signal() {
    let host = Host::new().await;
    let script = "trap 'exit 3' QUIT; trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done";
    let spec = ContainerSpec { stop_signal: Some("SIGQUIT".into()), ..sh(script) };
    let tag = host.start(1, spec).await;
    host.says(&tag, "ready").await;
    host.runtime.stop(&tag).await.unwrap();
    assert_eq!(host.exit(&tag).await, status(3));
}

#[tokio::test]
async fn the_whole_group_dies_with_its_first_process() {
    let host = Host::new().await;
    // One child in the same group, one that made a session of its own and was abandoned twice over.
    let script = "sleep 600 & echo child $!; \
        sh -c 'setsid sh -c \"sleep 600 & echo far \\$!; wait\" &'; \
        echo ready; wait";
    let tag = host.start(1, grace(sh(script), Millis(5_000))).await;
    let child = host.says(&tag, "child").await;
    let far = host.says(&tag, "far").await;
    host.says(&tag, "ready").await;
    assert!(is_alive(&child) && is_alive(&far));
    host.runtime.stop(&tag).await.unwrap();
    assert!(!is_alive(&child) && !is_alive(&far), "both are gone when stop returns");
    assert_eq!(host.exit(&tag).await, status(143));
}

#[tokio::test]
async fn a_service_that_goes_into_the_background_has_ended() {
    let host = Host::new().await;
    let tag = host.run("sh -c 'setsid sleep 600 & echo daemon $!'; exit 0").await;
    let daemon = host.says(&tag, "daemon").await;
    assert_eq!(host.exit(&tag).await, status(0));
    gone(&daemon).await;
}

#[tokio::test]
async fn how_it_ended_is_told() {
    for (case, script, expected) in
        [("well", "exit 0", 0), ("badly", "exit 42", 42), ("by a signal", "kill -SEGV $$", 139)]
    {
        let host = Host::new().await;
        let mut events = host.runtime.events();
        let tag = host.run(script).await;
        assert_eq!(heard(&mut events).await, RuntimeEvent::Started { tag: tag.clone() }, "{case}");
        let exited = RuntimeEvent::Exited { tag: tag.clone(), exit: status(expected) };
        assert_eq!(heard(&mut events).await, exited, "{case}");
        assert_eq!(host.exit(&tag).await, status(expected), "{case}");
        host.runtime.remove(&tag).await.unwrap();
        assert_eq!(heard(&mut events).await, RuntimeEvent::Removed { tag }, "{case}");
    }
}

#[tokio::test]
async fn what_is_done_already_is_done_again_without_harm() {
    let host = Host::new().await;
    host.runtime.stop(&tag(9)).await.unwrap();
    host.runtime.remove(&tag(9)).await.unwrap();
    let tag = host.run("echo pid $$; exec sleep 600").await;
    let pid = host.says(&tag, "pid").await;
    host.runtime.start(&order(1, sh("exit 1"))).await.unwrap();
    assert!(is_alive(&pid), "a second start leaves the first alone");
    let refused = host.runtime.remove(&tag).await.unwrap_err();
    assert_eq!(refused.to_string(), "cannot remove shop-web-1 g1: still running; stop it first");
    host.runtime.stop(&tag).await.unwrap();
    host.runtime.stop(&tag).await.unwrap();
    assert!(!is_alive(&pid));
    host.runtime.start(&order(1, sh("echo again; exec sleep 600"))).await.unwrap();
    host.says(&tag, "again").await;
    assert!(matches!(host.status(&tag).await, Some(ContainerStatus::Running { .. })));
    host.runtime.stop(&tag).await.unwrap();
    host.runtime.remove(&tag).await.unwrap();
    assert_eq!(host.status(&tag).await, None);
    assert!(!host.file(1, "").exists(), "nothing of it is left");
}

#[tokio::test]
async fn four_starts_at_once_make_one_process() {
    let host = Host::new().await;
    let order = order(1, sh("echo pid $$; exec sleep 600"));
    let start = || host.runtime.start(&order);
    let (one, two, three, four) = tokio::join!(start(), start(), start(), start());
    assert!([one, two, three, four].iter().all(Result::is_ok));
    let first = host.says(&order.tag, "pid").await;
    assert_eq!(host.printed(&order.tag).await, [format!("pid {first}")]);
    host.runtime.stop(&order.tag).await.unwrap();
}

#[tokio::test]
async fn a_service_of_another_cell_is_none_of_ours() {
    let host = Host::new().await;
    let mut foreign = order(1, sh("exit 0"));
    foreign.tag.cell_id = plimsoll_model::CellId::new("other").unwrap();
    let error = host.runtime.start(&foreign).await.unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    let error = host.runtime.stop(&foreign.tag).await.unwrap_err();
    let expected = "cannot stop shop-web-1 g1: it belongs to cell other, this node to test";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_generation_given_again_does_not_mix_two_replicas_up() {
    let host = Host::new().await;
    let tag = host.run("echo pid $$; exec sleep 600").await;
    let pid = host.says(&tag, "pid").await;
    let mut other = order(1, sh("exit 0"));
    other.tag.replica = plimsoll_model::testkit::replica_id("shop/db/1");
    host.runtime.stop(&other.tag).await.unwrap();
    host.runtime.remove(&other.tag).await.unwrap();
    assert!(is_alive(&pid), "what is stopped is not this one");
    let error = host.runtime.start(&other).await.unwrap_err();
    let expected =
        "cannot start shop-db-1 g1: its generation is in use by shop-web-1 g1; remove that first";
    assert_eq!(plimsoll_runtime::chain(&error), expected);
    host.runtime.stop(&tag).await.unwrap();
    host.runtime.remove(&tag).await.unwrap();
    host.runtime.start(&other).await.unwrap();
    assert_eq!(host.exit(&other.tag).await, status(0));
}

#[tokio::test]
async fn one_unreadable_directory_hides_no_other() {
    let host = Host::new().await;
    let tag = host.start(1, sh("exec sleep 600")).await;
    let broken = host.start(2, sh("exit 0")).await;
    host.exit(&broken).await;
    std::fs::write(host.file(2, "launch.json"), "").unwrap();
    let host = host.restarted().await;
    assert_eq!(host.runtime.list().await.unwrap().len(), 1);
    let error = host.runtime.start(&order(2, sh("exit 0"))).await.unwrap_err();
    assert!(plimsoll_runtime::chain(&error).contains("launch.json is not readable"), "{error}");
    host.runtime.stop(&tag).await.unwrap();
}
