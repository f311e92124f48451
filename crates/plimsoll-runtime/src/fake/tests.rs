use plimsoll_model::testkit::replica_id;
use plimsoll_model::{Generation, Millis};

use super::*;

fn fake() -> FakeRuntime {
    FakeRuntime::new(CellId::new("test").unwrap())
}

fn tag(generation: u64) -> Tag {
    let cell_id = CellId::new("test").unwrap();
    Tag { cell_id, replica: replica_id("shop/web/1"), generation: Generation(generation) }
}

fn order(generation: u64) -> StartRequest {
    let spec = ContainerSpec {
        image: "app:1".into(),
        stop_grace: Some(Millis::seconds(60)),
        ..ContainerSpec::default()
    };
    StartRequest::new(tag(generation), Arc::new(spec))
}

#[tokio::test(start_paused = true)]
async fn pulls_and_starts_fail_as_often_as_told_and_take_their_time() {
    let fake = fake();
    fake.on(
        "app:1",
        Script {
            pull_dwell: Duration::from_secs(3),
            pull_failures: 2,
            start_failures: 1,
            ..Script::default()
        },
    );
    let begin = Instant::now();
    let pull = Pull::of(&order(1).spec);
    for attempt in 1..=2 {
        let error = fake.pull(&pull).await.unwrap_err();
        assert_eq!(error.to_string(), "app:1 does not exist: manifest unknown", "try {attempt}");
    }
    fake.pull(&pull).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::from_secs(9));
    assert_eq!(fake.start(&order(1)).await.unwrap_err().to_string(), "cannot start shop-web-1 g1");
    fake.start(&order(1)).await.unwrap();
    assert_eq!(fake.calls().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_told_and_only_that_run() {
    let fake = fake();
    fake.on("app:1", Script { exits: Some((Duration::from_secs(10), 3)), ..Script::default() });
    let mut events = fake.events();
    fake.start(&order(1)).await.unwrap();
    sleep(Duration::from_secs(4)).await;
    fake.crash(&tag(1), Exit { status: Some(1), oom: true });
    fake.start(&order(1)).await.unwrap();
    sleep(Duration::from_secs(7)).await;
    assert!(fake.list().await.unwrap()[0].status.is_running(), "the first run's end is past");
    sleep(Duration::from_secs(4)).await;
    let exit = Exit { status: Some(3), oom: false };
    let (since, at) = (Timestamp(4_000), Timestamp(14_000));
    assert_eq!(fake.list().await.unwrap()[0].status, ContainerStatus::Exited { since, at, exit });
    let mut heard = Vec::new();
    while let Ok(event) = tokio::time::timeout(Duration::from_secs(1), events.next()).await {
        heard.push(event.unwrap());
    }
    assert_eq!(
        heard,
        [
            RuntimeEvent::Started { tag: tag(1) },
            RuntimeEvent::Exited { tag: tag(1), exit: Exit { status: Some(1), oom: true } },
            RuntimeEvent::Started { tag: tag(1) },
            RuntimeEvent::Exited { tag: tag(1), exit },
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_its_dwell_or_the_grace() {
    for (case, dwell, took, status) in
        [("stops when asked", 2, 2, 0), ("is killed after its grace", 100, 60, KILLED)]
    {
        let fake = fake();
        let stop_dwell = Duration::from_secs(dwell);
        fake.on("app:1", Script { stop_dwell, ..Script::default() });
        fake.start(&order(1)).await.unwrap();
        assert!(matches!(fake.remove(&tag(1)).await, Err(Error::StillRunning { .. })));
        let begin = Instant::now();
        fake.stop(&tag(1)).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(took), "{case}");
        let ContainerStatus::Exited { exit, .. } = fake.list().await.unwrap()[0].status else {
            panic!("{case}")
        };
        assert_eq!(exit.status, Some(status), "{case}");
        fake.remove(&tag(1)).await.unwrap();
        assert_eq!(fake.list().await.unwrap(), []);
    }
}

#[tokio::test]
async fn while_it_is_down_nothing_is_answered_and_everything_runs_on() {
    let fake = fake();
    fake.start(&order(1)).await.unwrap();
    fake.set_down(true);
    assert!(matches!(fake.list().await, Err(Error::Unavailable { .. })));
    assert!(fake.pull(&Pull::of(&order(1).spec)).await.is_err());
    fake.set_down(false);
    assert!(fake.list().await.unwrap()[0].status.is_running());
}
