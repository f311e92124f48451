use std::collections::BTreeMap;

use plimsoll_model::testkit::replica_id;
use plimsoll_model::{CellId, ContainerSpec, Generation};

use super::*;
use crate::fake::{FakeRuntime, Script, Wellness};
use crate::runtime::StartRequest;

fn check(test: HealthTest) -> Healthcheck {
    Healthcheck {
        test,
        interval: None,
        timeout: None,
        start_period: None,
        start_interval: None,
        retries: None,
    }
}

fn shell(line: &str) -> HealthTest {
    HealthTest::Shell(line.to_owned())
}

#[test]
fn a_spec_adjusts_replaces_or_turns_off_what_its_image_brings() {
    let command = |line: &str, rules: ProbeTiming| Check::Command {
        command: vec!["/bin/sh".into(), "-c".into(), line.into()],
        rules,
    };
    let image = Healthcheck { retries: Some(7), ..check(shell("from-image")) };
    let slower = Healthcheck { interval: Some(Millis::seconds(60)), ..check(HealthTest::Image) };
    let seven = ProbeTiming { retries: 7, ..ProbeTiming::default() };
    for (case, spec, image, expected) in [
        ("nothing at all", None, None, Check::Uptime),
        (
            "the spec's own, with Docker's defaults",
            Some(check(shell("own"))),
            None,
            command("own", ProbeTiming::default()),
        ),
        ("the image's own", None, Some(&image), command("from-image", seven.clone())),
        ("turned off", Some(check(HealthTest::Disabled)), Some(&image), Check::Uptime),
        (
            "the image's command at the spec's pace",
            Some(slower.clone()),
            Some(&image),
            command("from-image", ProbeTiming { interval: Millis::seconds(60), ..seven }),
        ),
        ("an image without one", Some(slower), None, Check::Uptime),
        (
            "zero means the default",
            Some(Healthcheck { timeout: Some(Millis(0)), ..check(shell("own")) }),
            None,
            command("own", ProbeTiming::default()),
        ),
    ] {
        assert_eq!(Check::of(spec.as_ref(), image), expected, "{case}");
    }
}

async fn started(script: Script) -> (Arc<FakeRuntime>, Tag) {
    let cell_id = CellId::new("test").unwrap();
    let runtime = Arc::new(FakeRuntime::new(cell_id.clone()));
    runtime.on("app:1", script);
    let tag = Tag { cell_id, replica: replica_id("shop/web/1"), generation: Generation(1) };
    let spec = Arc::new(ContainerSpec { image: "app:1".into(), ..ContainerSpec::default() });
    runtime.start(&StartRequest::new(tag.clone(), spec)).await.unwrap();
    (runtime, tag)
}

fn every(seconds: u64) -> Check {
    let rules = ProbeTiming { interval: Millis::seconds(seconds), ..ProbeTiming::default() };
    Check::Command { command: vec!["probe".into()], rules }
}

#[tokio::test(start_paused = true)]
async fn a_monitor_tells_the_changes_at_their_times() {
    let after = Duration::from_secs(45);
    for (case, wellness, check, age, told) in [
        (
            "up for five seconds",
            Wellness::Never,
            Check::Uptime,
            0,
            BTreeMap::from([(5, "healthy")]),
        ),
        (
            "up for five already",
            Wellness::Never,
            Check::Uptime,
            9,
            BTreeMap::from([(0, "healthy")]),
        ),
        (
            "well at the first probe",
            Wellness::Always,
            every(10),
            0,
            BTreeMap::from([(10, "healthy")]),
        ),
        (
            "an adopted one is asked at once",
            Wellness::Always,
            every(10),
            60,
            BTreeMap::from([(0, "healthy")]),
        ),
        (
            "never well",
            Wellness::Never,
            every(10),
            0,
            BTreeMap::from([(10, "failed once"), (20, "failed twice"), (30, "unhealthy")]),
        ),
        (
            "well only late",
            Wellness::After(after),
            every(10),
            0,
            BTreeMap::from([
                (10, "failed once"),
                (20, "failed twice"),
                (30, "unhealthy"),
                (50, "healthy"),
            ]),
        ),
    ] {
        let (runtime, tag) = started(Script { wellness, ..Script::default() }).await;
        let begin = Instant::now();
        let mut monitor = Monitor::begin(runtime, tag, check, Duration::from_secs(age));
        let mut heard = BTreeMap::new();
        while let Ok(Some(report)) = tokio::time::timeout(2 * after, monitor.next()).await {
            let word = match report {
                HealthReport::Changed(HealthState::Healthy) => "healthy",
                HealthReport::Changed(_) => "unhealthy",
                HealthReport::FailedSoFar { checks: 1, .. } => "failed once",
                HealthReport::FailedSoFar { checks: 2, .. } => "failed twice",
                HealthReport::FailedSoFar { .. } => "failed often",
            };
            heard.insert(begin.elapsed().as_secs(), word);
        }
        assert_eq!(heard, told, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_does_not_answer_makes_nobody_ill() {
    let (runtime, tag) = started(Script::default()).await;
    let mut monitor = Monitor::begin(Arc::clone(&runtime) as _, tag, every(1), Duration::ZERO);
    assert_eq!(monitor.next().await, Some(HealthReport::Changed(HealthState::Healthy)));
    runtime.set_down(true);
    let heard = tokio::time::timeout(Duration::from_mins(10), monitor.next()).await;
    assert!(heard.is_err(), "{heard:?}");
}
