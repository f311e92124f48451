use bollard::query_parameters::RemoveContainerOptions;
use plimsoll_runtime::{Event, Exec, Exit, Outcome, Runtime};

use super::berth::{Berth, container, done, heard, hungry, idle, sh};

#[tokio::test]
async fn a_life_is_told_and_nothing_else() {
    let (Some(berth), Some(other)) = (Berth::new(), Berth::new()) else { return };
    let mut events = berth.runtime.events();
    let tag = berth.start(1, idle()).await;
    assert_eq!(heard(&mut events).await, Event::Started { tag: tag.clone() });
    // Commands, and the containers of other cells, are no events of ours.
    let executed = berth.exec(&tag, &Exec::shell("exit 4")).await;
    assert_eq!(executed.outcome, Outcome::Done { status: 4 });
    let foreign = other.run("exit 0").await;
    other.exit(&foreign).await;
    berth.runtime.stop(&tag).await.unwrap();
    assert_eq!(heard(&mut events).await, Event::Exited { tag: tag.clone(), exit: done(137) });
    berth.runtime.remove(&tag).await.unwrap();
    assert_eq!(heard(&mut events).await, Event::Removed { tag });
}

#[tokio::test]
async fn an_end_is_told_with_its_status_and_its_cause() {
    let Some(berth) = Berth::new() else { return };
    let mut events = berth.runtime.events();
    for (generation, spec, exit) in
        [(1, sh("exit 42"), done(42)), (2, hungry(), Exit { status: Some(137), oom: true })]
    {
        let tag = berth.start(generation, spec).await;
        assert_eq!(heard(&mut events).await, Event::Started { tag: tag.clone() });
        assert_eq!(heard(&mut events).await, Event::Exited { tag, exit });
    }
}

#[tokio::test]
async fn a_container_removed_behind_our_back_is_noticed() {
    let Some(berth) = Berth::new() else { return };
    let tag = berth.start(1, idle()).await;
    let mut events = berth.runtime.events();
    let options = RemoveContainerOptions { force: true, ..Default::default() };
    berth.docker.remove_container(&container(&tag), Some(options)).await.unwrap();
    loop {
        match heard(&mut events).await {
            Event::Started { .. } => {}
            Event::Exited { tag: exited, exit } => {
                assert_eq!((exited, exit), (tag.clone(), done(137)));
            }
            event => {
                assert_eq!(event, Event::Removed { tag: tag.clone() });
                break;
            }
        }
    }
    assert_eq!(berth.status(&tag).await, None);
    berth.start(1, idle()).await;
    assert!(berth.status(&tag).await.is_some_and(|status| status.is_running()));
}
