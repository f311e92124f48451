use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_model::spec::{HealthTest, Healthcheck};
use plimsoll_model::{Bytes, ContainerSpec, Millis};
use plimsoll_runtime::health::probe::HealthState;
use plimsoll_runtime::health::{Check, HealthReport, Monitor};
use plimsoll_runtime::{DockerRuntime, ExecOutcome, ExecRequest, Meter, Runtime};

use super::harness::{PATIENCE, TestCell, idle, sh};

fn texts(executed: &plimsoll_runtime::ExecOutput) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&executed.stdout), text(&executed.stderr))
}

#[tokio::test]
async fn a_command_runs_as_the_service_does() {
    let Some(cell) = TestCell::new() else { return };
    let spec = ContainerSpec {
        user: Some("1000:2000".into()),
        working_dir: Some("/tmp".into()),
        environment: [("SHIP".into(), "ark".into())].into(),
        ..idle()
    };
    let tag = cell.start(1, spec).await;
    let line = "echo $SHIP $(id -u):$(id -g) $(pwd); echo oops >&2; exit 3";
    let executed = cell.exec(&tag, &ExecRequest::shell(line)).await;
    assert_eq!(executed.outcome, ExecOutcome::Done { status: 3 });
    assert_eq!(texts(&executed), ("ark 1000:2000 /tmp".to_owned(), "oops".to_owned()));
    assert!(!executed.is_cut);
    let executed = cell.exec(&tag, &ExecRequest::new(["nothing-here"])).await;
    let ExecOutcome::Done { status } = executed.outcome else { panic!("{executed:?}") };
    assert!(matches!(status, 126 | 127), "{executed:?}");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_what_it_started() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.start(1, idle()).await;
    let exec =
        ExecRequest::shell("echo begun; sleep 611 & sleep 612").timeout(Duration::from_millis(600));
    let executed = cell.exec(&tag, &exec).await;
    assert_eq!(executed.outcome, ExecOutcome::TimedOut);
    assert_eq!(texts(&executed).0, "begun");
    let begin = Instant::now();
    loop {
        let left = cell.exec(&tag, &ExecRequest::shell("ps | grep -c 'sleep 61[12]$'")).await;
        if texts(&left).0 == "0" {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{left:?}");
    }
}

#[tokio::test]
async fn output_is_cut_and_what_stays_in_the_background_is_not_waited_for() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.start(1, idle()).await;
    let exec = ExecRequest {
        max_output: 1_000,
        ..ExecRequest::shell("head -c 100000 /dev/zero; echo no >&2")
    };
    let executed = cell.exec(&tag, &exec).await;
    assert_eq!(executed.outcome, ExecOutcome::Done { status: 0 });
    assert_eq!((executed.stdout.len(), executed.is_cut), (1_000, true));
    assert_eq!(texts(&executed).1, "no");

    let begin = Instant::now();
    let executed = cell.exec(&tag, &ExecRequest::shell("sleep 600 & echo left")).await;
    assert_eq!(executed.outcome, ExecOutcome::Done { status: 0 });
    assert_eq!(texts(&executed).0, "left");
    assert!(begin.elapsed() < PATIENCE);
}

#[tokio::test]
async fn health_is_judged_by_commands_in_the_container() {
    let Some(mut cell) = TestCell::new() else { return };
    let tag = cell.start(1, idle()).await;
    let check = Healthcheck {
        test: HealthTest::Shell("test -e /tmp/well || ! echo it is ill".into()),
        interval: Some(Millis(100)),
        timeout: Some(Millis::seconds(10)),
        start_period: None,
        start_interval: None,
        retries: Some(2),
    };
    let check = Check::of(Some(&check), None);
    let other = DockerRuntime::open(cell.settings.clone());
    let runtime: Arc<dyn Runtime> = Arc::new(std::mem::replace(&mut cell.runtime, other));
    let mut monitor = Monitor::begin(runtime, tag.clone(), check, Duration::ZERO);
    for (line, expected) in [
        ("touch /tmp/well", HealthState::Healthy),
        ("rm /tmp/well", HealthState::Unhealthy { output: "it is ill".into() }),
        ("touch /tmp/well", HealthState::Healthy),
    ] {
        cell.exec(&tag, &ExecRequest::shell(line)).await;
        let changed = async {
            loop {
                match monitor.next().await {
                    // It was asked before the file was there.
                    Some(HealthReport::FailedSoFar { .. }) => {}
                    Some(HealthReport::Changed(health)) if health != expected => {}
                    other => return other,
                }
            }
        };
        let health = tokio::time::timeout(PATIENCE, changed).await.unwrap();
        assert_eq!(health, Some(HealthReport::Changed(expected.clone())), "after {line}");
    }
}

#[tokio::test]
async fn usage_grows_with_what_a_container_does() {
    let Some(cell) = TestCell::new() else { return };
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo worked; exec sleep 600";
    let tag = cell.start(1, sh(script)).await;
    let first = cell.runtime.usage().await.unwrap()[&tag];
    let mut meter = Meter::default();
    assert_eq!(meter.read(Instant::now(), first.cpu), None);
    cell.says(&tag, "worked").await;
    let begin = Instant::now();
    let second = cell.runtime.usage().await.unwrap()[&tag];
    assert!(begin.elapsed() < Duration::from_millis(900), "the engine's own figures take a second");
    assert!(second.cpu > first.cpu, "{first:?} {second:?}");
    assert!(second.memory > Bytes(0) && second.memory < Bytes(1 << 30));
    assert!(meter.read(Instant::now(), second.cpu).is_some());
    cell.runtime.stop(&tag).await.unwrap();
    assert!(cell.runtime.usage().await.unwrap().is_empty(), "what does not run uses nothing");
}
