use bollard::query_parameters::RemoveContainerOptions;
use plimsoll_runtime::{ExecOutcome, ExecRequest, Exit, Runtime, RuntimeEvent};

use super::harness::{TestCell, container, done, heard, hungry, idle, sh};

#[tokio::test]
async fn a_life_is_told_and_nothing_else() {
    let (Some(cell), Some(other)) = (TestCell::new(), TestCell::new()) else { return };
    let mut events = cell.runtime.events();
    let tag = cell.start(1, idle()).await;
    assert_eq!(heard(&mut events).await, RuntimeEvent::Started { tag: tag.clone() });
    // Commands, and the containers of other cells, are no events of ours.
    let executed = cell.exec(&tag, &ExecRequest::shell("exit 4")).await;
    assert_eq!(executed.outcome, ExecOutcome::Done { status: 4 });
    let foreign = other.run("exit 0").await;
    other.exit(&foreign).await;
    cell.runtime.stop(&tag).await.unwrap();
    assert_eq!(
        heard(&mut events).await,
        RuntimeEvent::Exited { tag: tag.clone(), exit: done(137) }
    );
    cell.runtime.remove(&tag).await.unwrap();
    assert_eq!(heard(&mut events).await, RuntimeEvent::Removed { tag });
}

#[tokio::test]
async fn an_end_is_told_with_its_status_and_its_cause() {
    let Some(cell) = TestCell::new() else { return };
    let mut events = cell.runtime.events();
    for (generation, spec, exit) in
        [(1, sh("exit 42"), done(42)), (2, hungry(), Exit { status: Some(137), oom: true })]
    {
        let tag = cell.start(generation, spec).await;
        assert_eq!(heard(&mut events).await, RuntimeEvent::Started { tag: tag.clone() });
        assert_eq!(heard(&mut events).await, RuntimeEvent::Exited { tag, exit });
    }
}

#[tokio::test]
async fn a_container_removed_behind_our_back_is_noticed() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.start(1, idle()).await;
    let mut events = cell.runtime.events();
    let options = RemoveContainerOptions { force: true, ..Default::default() };
    cell.docker.remove_container(&container(&tag), Some(options)).await.unwrap();
    loop {
        match heard(&mut events).await {
            RuntimeEvent::Started { .. } => {}
            RuntimeEvent::Exited { tag: exited, exit } => {
                assert_eq!((exited, exit), (tag.clone(), done(137)));
            }
            event => {
                assert_eq!(event, RuntimeEvent::Removed { tag: tag.clone() });
                break;
            }
        }
    }
    assert_eq!(cell.status(&tag).await, None);
    cell.start(1, idle()).await;
    assert!(cell.status(&tag).await.is_some_and(|status| status.is_running()));
}
