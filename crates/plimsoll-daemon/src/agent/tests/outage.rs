//! The runtime does not answer: what runs on is left alone, what is gone is told.

use std::process::{Child, Command};

use super::*;

/// A process that stands for a container.
struct Process(Child);

impl Process {
    fn start() -> Self {
        Self(Command::new("sleep").arg("3600").spawn().unwrap())
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A replica that runs as a process, seen as such.
async fn running(bench: &mut Bench) -> Process {
    let process = Process::start();
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    bench.until(WEB, 1, ObservedState::Running).await;
    bench.runtime.run_as(&tag(WEB, 1), process.0.id());
    bench.told_within(Duration::from_secs(31)).await;
    process
}

fn last(bench: &Bench) -> (ObservedState, Option<ObservedCode>) {
    bench.told.last().map(|(.., seen)| seen.clone()).expect("something was told")
}

#[tokio::test(start_paused = true)]
async fn what_runs_on_without_its_engine_is_left_alone() {
    let mut bench = Bench::new();
    let _process = running(&mut bench).await;
    let told = bench.told.len();
    bench.runtime.set_down(true);
    bench.told_within(Duration::from_mins(10)).await;
    assert_eq!(bench.told.len(), told, "{:?}", bench.told);
    bench.runtime.set_down(false);
    bench.told_within(Duration::from_mins(10)).await;
    assert_eq!(bench.told.len(), told, "and after it answers again: {:?}", bench.told);
}

#[tokio::test(start_paused = true)]
async fn what_went_with_its_engine_is_unknown_until_that_is_back() {
    let mut bench = Bench::new();
    let mut process = running(&mut bench).await;
    bench.runtime.set_down(true);
    process.end();
    let took = bench.until(WEB, 1, ObservedState::Unknown).await;
    assert!(took < Duration::from_secs(33), "within one look: {took:?}");
    assert_eq!(*bench.last_code(), ObservedCode::RuntimeUnavailable);
    let told = bench.told.len();
    bench.told_within(Duration::from_mins(5)).await;
    assert_eq!(bench.told.len(), told, "once");
    bench.runtime.crash(&tag(WEB, 1), Exit { status: Some(137), oom: false });
    bench.runtime.set_down(false);
    bench.until(WEB, 1, ObservedState::Failed).await;
    bench.until(WEB, 1, ObservedState::Running).await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_and_went_with_its_engine_has_stopped() {
    let mut bench = Bench::new();
    let mut process = running(&mut bench).await;
    bench.runtime.set_down(true);
    bench.told_within(Duration::from_secs(35)).await;
    let leaving = Assignments { wanted: Vec::new(), leaving: vec![Generation(1)] };
    bench.ask([(WEB, leaving)]);
    let told = bench.told_within(Duration::from_mins(5)).await;
    assert!(!told.contains(&(1, ObservedState::Stopped)), "it runs on: {told:?}");
    process.end();
    bench.until(WEB, 1, ObservedState::Stopped).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_starts_beside_a_dead_engine_knows_what_runs_on() {
    let directory = tempfile::tempdir().unwrap();
    let (web, db) = (tag(WEB, 1), tag("shop/db/1", 2));
    let runtime = Arc::new(FakeRuntime::new(cell_id()));
    let mut first = Bench::keeping(Arc::clone(&runtime), directory.path());
    first.ask([(WEB, one(wanted(1, spec("app")))), ("shop/db/1", one(wanted(2, spec("db"))))]);
    first.until(WEB, 1, ObservedState::Running).await;
    first.told_within(Duration::from_secs(10)).await;
    let (survivor, mut other) = (Process::start(), Process::start());
    runtime.run_as(&web, survivor.0.id());
    runtime.run_as(&db, other.0.id());
    first.told_within(Duration::from_secs(31)).await;
    // A file is written beside the paused clock.
    while !directory.path().join("processes.json").exists() {
        first.told_within(Duration::from_secs(31)).await;
        std::thread::sleep(Duration::from_millis(5));
    }
    first.agent.abort();
    let _ = first.agent.await;

    runtime.set_down(true);
    other.end();
    let mut second = Bench::keeping(runtime, directory.path());
    let seen = || {
        let state = ObservedState::Running;
        Some(Observation { state, code: None, at: Timestamp(0) })
    };
    second.ask([
        (WEB, one(DesiredReplica { observed: seen(), ..wanted(1, spec("app")) })),
        ("shop/db/1", one(DesiredReplica { observed: seen(), ..wanted(2, spec("db")) })),
    ]);
    second.until("shop/db/1", 2, ObservedState::Unknown).await;
    second.told_within(Duration::from_mins(5)).await;
    assert_eq!(second.told.len(), 1, "the other runs on: {:?}", second.told);
    assert_eq!(second.count(|call| matches!(call, Call::Start(_))), 2, "nothing was started");
    second.runtime.crash(&db, Exit { status: Some(137), oom: false });
    second.runtime.set_down(false);
    second.until("shop/db/1", 2, ObservedState::Running).await;
    assert_eq!(last(&second).0, ObservedState::Running);
    let web = second.told.iter().filter(|(id, ..)| *id == replica_id(WEB).to_string()).count();
    assert_eq!(web, 0, "nothing happened to what ran on: {:?}", second.told);
}
