use std::time::{Duration, Instant};

use plimsoll_model::{ContainerSpec, Millis};
use plimsoll_runtime::{Exit, Runtime};

use super::harness::{TestCell, done, hungry, sh};

fn stops(script: &str, signal: Option<&str>, grace: Millis) -> ContainerSpec {
    ContainerSpec {
        stop_signal: signal.map(str::to_owned),
        stop_grace: Some(grace),
        ..sh(&format!("{script}; echo ready; while :; do sleep 0.02; done"))
    }
}

#[tokio::test]
async fn what_exits_when_asked_is_not_waited_for() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.start(1, stops("trap 'exit 7' TERM", None, Millis::minutes(1))).await;
    cell.says(&tag, "ready").await;
    let begin = Instant::now();
    cell.runtime.stop(&tag).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(cell.exit(&tag).await, done(7));
}

#[tokio::test]
async fn a_service_is_stopped_with_its_own_signal() {
    let Some(cell) = TestCell::new() else { return };
    let script = "trap 'exit 3' USR1; trap 'exit 4' TERM";
    let tag = cell.start(1, stops(script, Some("SIGUSR1"), Millis::minutes(1))).await;
    cell.says(&tag, "ready").await;
    cell.runtime.stop(&tag).await.unwrap();
    assert_eq!(cell.exit(&tag).await, done(3));
}

#[tokio::test]
async fn what_ignores_the_signal_is_killed_after_its_grace() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.start(1, stops("trap '' TERM", None, Millis::seconds(2))).await;
    cell.says(&tag, "ready").await;
    let begin = Instant::now();
    cell.runtime.stop(&tag).await.unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(cell.exit(&tag).await, done(137));
}

/// Longer than the ten seconds that engines give by default: whoever stops it, its own grace counts.
#[tokio::test]
async fn a_long_grace_is_kept_by_whoever_stops_it() {
    let Some(mut cell) = TestCell::new() else { return };
    let script = "trap 'sleep 12; exit 6' TERM";
    let tag = cell.start(1, stops(script, None, Millis::minutes(1))).await;
    cell.says(&tag, "ready").await;
    cell.reopen();
    cell.runtime.stop(&tag).await.unwrap();
    assert_eq!(cell.exit(&tag).await, done(6));
}

#[tokio::test]
async fn a_container_killed_for_memory_is_said_to_be() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.start(1, hungry()).await;
    assert_eq!(cell.exit(&tag).await, Exit { status: Some(137), oom: true });
}
