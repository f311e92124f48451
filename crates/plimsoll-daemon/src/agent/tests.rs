use std::time::Duration;

use plimsoll_model::registries::{RegistryHost, RegistryPassword};
use plimsoll_model::spec::{Dependency, HealthTest, Healthcheck, Lifecycle, Retries};
use plimsoll_model::testkit::{node_id, replica_id, spread};
use plimsoll_model::{DeploymentName, Observation, Revision, ServiceName, ServiceSpec};
use plimsoll_runtime::fake::{Call, Script, Wellness};
use plimsoll_runtime::{Exit, FakeRuntime, VolumeRef};

use super::*;
use crate::dispatcher::{AssignmentSender, slot};
use crate::volume_orders::VolumeDiscard;

mod checks;
mod declared;
mod outage;

/// An agent over a fake runtime, in paused time; the test is the cell.
struct Bench {
    runtime: Arc<FakeRuntime>,
    measurements: SharedMeasurements,
    orders: AssignmentSender,
    reports: mpsc::UnboundedReceiver<Report>,
    told: Vec<(String, u64, Seen)>,
    _shutdown: watch::Sender<bool>,
    agent: tokio::task::JoinHandle<()>,
}

fn cell_id() -> CellId {
    CellId::new("test").unwrap()
}

fn tag(replica: &str, generation: u64) -> Tag {
    let (replica, generation) = (replica_id(replica), Generation(generation));
    Tag { cell_id: cell_id(), replica, generation }
}

fn spec(image: &str) -> ServiceSpec {
    let mut spec = spread(1);
    image.clone_into(&mut spec.container.image);
    spec
}

/// A check that probes every second and forgives nothing.
fn checked(image: &str) -> ServiceSpec {
    let mut spec = spec(image);
    spec.container.healthcheck = Some(Healthcheck {
        test: HealthTest::Shell("check".to_owned()),
        interval: Some(Millis::seconds(1)),
        timeout: None,
        retries: Some(1),
        start_period: None,
        start_interval: None,
    });
    spec
}

fn wanted(generation: u64, spec: ServiceSpec) -> DesiredReplica {
    DesiredReplica {
        generation: Generation(generation),
        spec: Arc::new(spec),
        observed: None,
        awaits: None,
        is_over: false,
        registry_auth: None,
        declared: BTreeMap::new(),
    }
}

fn one(wanted: DesiredReplica) -> Assignments {
    Assignments { wanted: vec![wanted], leaving: Vec::new() }
}

impl Bench {
    fn new() -> Self {
        Self::over(Arc::new(FakeRuntime::new(cell_id())))
    }

    fn over(runtime: Arc<FakeRuntime>) -> Self {
        Self::with(runtime, None)
    }

    /// With requests under way to its containers.
    fn beside(traffic: Arc<dyn Traffic>) -> Self {
        Self::with(Arc::new(FakeRuntime::new(cell_id())), Some(traffic))
    }

    fn with(runtime: Arc<FakeRuntime>, traffic: Option<Arc<dyn Traffic>>) -> Self {
        Self::set_up(runtime, traffic, None)
    }

    /// One that keeps what it has to know below the directory.
    fn keeping(runtime: Arc<FakeRuntime>, directory: &Path) -> Self {
        Self::set_up(runtime, None, Some(directory))
    }

    fn set_up(
        runtime: Arc<FakeRuntime>,
        traffic: Option<Arc<dyn Traffic>>,
        directory: Option<&Path>,
    ) -> Self {
        let (orders, inbox) = slot();
        let (sender, reports) = mpsc::unbounded_channel();
        let measurements = SharedMeasurements::default();
        let (over, measured) = (Arc::clone(&runtime), measurements.clone());
        let mut agent =
            Agent::reporting(sender, over, measured, cell_id(), node_id("ash"), &Policy::default());
        agent.traffic = traffic;
        if let Some(directory) = directory {
            agent = agent.with_data_dir(directory);
        }
        let (shutdown, stopping) = watch::channel(false);
        let agent = tokio::spawn(agent.run(inbox, stopping));
        Self {
            runtime,
            measurements,
            orders,
            reports,
            told: Vec::new(),
            _shutdown: shutdown,
            agent,
        }
    }

    /// Ends the agent as `kill -9` does, and starts another over the same runtime.
    async fn killed(self) -> Self {
        self.agent.abort();
        let _ = self.agent.await;
        Self::over(self.runtime)
    }

    fn ask<const N: usize>(&self, briefs: [(&str, Assignments); N]) {
        let all = briefs.into_iter().map(|(id, brief)| (replica_id(id), brief)).collect();
        self.orders.put(AssignmentUpdate::All(all));
    }

    /// Waits until this was told; returns how long that took.
    async fn until(&mut self, replica: &str, generation: u64, state: ObservedState) -> Duration {
        let (id, began) = (replica_id(replica).to_string(), Instant::now());
        let wait = async {
            loop {
                let report = self.reports.recv().await.expect("the agent lives");
                let is_it = matches!(&report, Report::Seen(seen) if seen.replica.to_string() == id
                    && seen.generation.0 == generation
                    && seen.state == state);
                self.note(report);
                if is_it {
                    return;
                }
            }
        };
        let is_told = tokio::time::timeout(Duration::from_hours(2), wait).await.is_ok();
        assert!(is_told, "{id} is never {state:?}; told: {:#?}", self.told);
        began.elapsed()
    }

    /// Everything told so far, and in the given time, of one replica.
    async fn told_within(&mut self, span: Duration) -> Vec<(u64, ObservedState)> {
        let end = Instant::now() + span;
        while let Ok(Some(report)) = tokio::time::timeout_at(end, self.reports.recv()).await {
            self.note(report);
        }
        self.told.iter().map(|(_, generation, (state, _))| (*generation, *state)).collect()
    }

    fn note(&mut self, report: Report) {
        let Report::Seen(link::Seen { replica, generation, state, code }) = report else {
            return;
        };
        self.told.push((replica.to_string(), generation.0, (state, code)));
    }

    fn last_code(&self) -> &ObservedCode {
        self.told.last().and_then(|(.., (_, code))| code.as_ref()).expect("a reason was given")
    }

    fn count(&self, is_it: impl Fn(&Call) -> bool) -> usize {
        self.runtime.calls().iter().filter(|call| is_it(call)).count()
    }

    async fn here(&self) -> Vec<Tag> {
        self.runtime.list().await.unwrap().into_iter().map(|found| found.tag).collect()
    }
}

const WEB: &str = "shop/web/1";

#[tokio::test(start_paused = true)]
async fn a_replica_goes_from_its_order_to_running_and_is_told_step_by_step() {
    let mut bench = Bench::new();
    bench.runtime.on("app", Script { pull_dwell: Duration::from_secs(3), ..Script::default() });
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    let took = bench.until(WEB, 1, ObservedState::Running).await;
    assert!(took >= Duration::from_secs(8), "a pull, and five seconds of running: {took:?}");
    let states: Vec<_> = bench.told.iter().map(|(.., (state, _))| *state).collect();
    let steps = [ObservedState::Pulling, ObservedState::Starting, ObservedState::Running];
    assert_eq!(states, steps);
}

#[tokio::test(start_paused = true)]
async fn an_order_heard_twice_is_carried_out_once() {
    let mut bench = Bench::new();
    bench.runtime.on("app", Script { start_dwell: Duration::from_secs(2), ..Script::default() });
    for _ in 0..5 {
        bench.ask([(WEB, one(wanted(1, spec("app"))))]);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    bench.until(WEB, 1, ObservedState::Running).await;
    assert_eq!(bench.count(|call| matches!(call, Call::Start(_))), 1);
}

#[tokio::test(start_paused = true)]
async fn the_old_one_serves_on_until_the_image_of_the_new_one_is_here() {
    let mut bench = Bench::new();
    bench.ask([(WEB, one(wanted(1, spec("old"))))]);
    bench.until(WEB, 1, ObservedState::Running).await;
    bench.runtime.on("new", Script { pull_failures: 4, ..Script::default() });
    let brief = Assignments { wanted: vec![wanted(2, spec("new"))], leaving: vec![Generation(1)] };
    bench.ask([(WEB, brief.clone())]);
    bench.until(WEB, 2, ObservedState::Pending).await;
    let ObservedCode::ImagePullFailed { image, error } = bench.last_code() else {
        panic!("{:?}", bench.last_code())
    };
    assert_eq!((image.as_str(), error.contains("manifest unknown")), ("new", true));
    assert!(bench.here().await.contains(&tag(WEB, 1)), "the old one is not touched");
    let took = bench.until(WEB, 1, ObservedState::Stopped).await;
    assert_eq!(took.as_secs(), 1 + 2 + 4 + 8, "each try waits twice as long as the last");
    bench.until(WEB, 2, ObservedState::Running).await;
    assert_eq!(bench.here().await, [tag(WEB, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_pull_and_a_slow_stop_hold_up_nothing_else() {
    let mut bench = Bench::new();
    let hour = Duration::from_hours(1);
    bench.runtime.on("stuck", Script { pull_dwell: hour, ..Script::default() });
    bench.runtime.on("slow", Script { stop_dwell: hour, ..Script::default() });
    let mut slow = spec("slow");
    slow.container.stop_grace = Some(Millis::minutes(60));
    bench.ask([("shop/slow/1", one(wanted(1, slow)))]);
    bench.until("shop/slow/1", 1, ObservedState::Running).await;
    bench.ask([
        ("shop/slow/1", Assignments { wanted: Vec::new(), leaving: vec![Generation(1)] }),
        ("shop/stuck/1", one(wanted(2, spec("stuck")))),
        (WEB, one(wanted(3, spec("app")))),
    ]);
    let took = bench.until(WEB, 3, ObservedState::Running).await;
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_newer_generation_supersedes_an_older_start() {
    let mut bench = Bench::new();
    bench.runtime.on("old", Script { start_dwell: Duration::from_secs(20), ..Script::default() });
    bench.ask([(WEB, one(wanted(1, spec("old"))))]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let brief = Assignments { wanted: vec![wanted(2, spec("new"))], leaving: vec![Generation(1)] };
    bench.ask([(WEB, brief)]);
    bench.until(WEB, 1, ObservedState::Stopped).await;
    bench.until(WEB, 2, ObservedState::Running).await;
    assert_eq!(bench.here().await, [tag(WEB, 2)]);

    // A pull is simply given up.
    bench.runtime.on("slow", Script { pull_dwell: Duration::from_mins(15), ..Script::default() });
    bench.ask([(WEB, Assignments { wanted: vec![wanted(3, spec("slow"))], leaving: vec![] })]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let brief = Assignments { wanted: vec![wanted(4, spec("new"))], leaving: vec![Generation(3)] };
    bench.ask([(WEB, brief)]);
    let took = bench.until(WEB, 4, ObservedState::Running).await;
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn one_exit_is_one_failure_however_often_it_is_looked_at() {
    let mut bench = Bench::new();
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    bench.until(WEB, 1, ObservedState::Running).await;
    bench.runtime.crash(&tag(WEB, 1), Exit { status: Some(3), oom: false });
    bench.until(WEB, 1, ObservedState::Failed).await;
    assert_eq!(*bench.last_code(), ObservedCode::Exited { status: Some(3) });
    bench.until(WEB, 1, ObservedState::Running).await;
    let states = bench.told_within(Duration::from_mins(10)).await;
    let failures = states.iter().filter(|(_, state)| *state == ObservedState::Failed).count();
    assert_eq!(failures, 1, "{states:?}");
    let fact = bench.measurements.lock().replicas[&(replica_id(WEB), Generation(1))].clone();
    assert_eq!(fact.failures, 1);
}

#[tokio::test(start_paused = true)]
async fn three_failures_in_a_row_exhaust_the_tries_and_a_new_agent_knows() {
    let mut bench = Bench::new();
    let exits = Some((Duration::from_secs(2), 1));
    bench.runtime.on("bad", Script { exits, ..Script::default() });
    bench.ask([(WEB, one(wanted(1, spec("bad"))))]);
    let started = Instant::now();
    while !matches!(
        bench.told.last(),
        Some((.., (_, Some(ObservedCode::RestartExhausted { tries: 3, .. }))))
    ) {
        bench.until(WEB, 1, ObservedState::Failed).await;
    }
    let took = started.elapsed();
    assert!(
        took > Duration::from_secs(2 + 1 + 2 + 2 + 2) && took < Duration::from_secs(12),
        "{took:?}"
    );
    let code = Some(bench.last_code().clone());
    let mut bench = bench.killed().await;
    let observed = Observation { state: ObservedState::Failed, code, at: Timestamp(0) };
    let brief = one(DesiredReplica { observed: Some(observed), ..wanted(1, spec("bad")) });
    bench.ask([(WEB, brief)]);
    assert_eq!(bench.told_within(Duration::from_mins(5)).await, []);
    assert_eq!(bench.count(|call| matches!(call, Call::Start(_))), 3);
}

#[tokio::test(start_paused = true)]
async fn a_run_long_enough_clears_the_count() {
    let mut bench = Bench::new();
    let exits = Some((Duration::from_secs(70), 1));
    bench.runtime.on("flaky", Script { exits, ..Script::default() });
    bench.ask([(WEB, one(wanted(1, spec("flaky"))))]);
    for _ in 0..5 {
        bench.until(WEB, 1, ObservedState::Failed).await;
        assert_eq!(*bench.last_code(), ObservedCode::Exited { status: Some(1) });
    }
}

#[tokio::test(start_paused = true)]
async fn what_turns_unhealthy_is_degraded_then_stopped_with_its_grace_and_started_again() {
    let mut bench = Bench::new();
    let stop_dwell = Duration::from_secs(7);
    bench.runtime.on("app", Script { stop_dwell, ..Script::default() });
    bench.ask([(WEB, one(wanted(1, checked("app"))))]);
    bench.until(WEB, 1, ObservedState::Running).await;
    let sick = Script { wellness: Wellness::Never, stop_dwell, ..Script::default() };
    bench.runtime.on("app", sick);
    bench.until(WEB, 1, ObservedState::Degraded).await;
    let stopping = bench.until(WEB, 1, ObservedState::Failed).await;
    assert_eq!(stopping.as_secs(), 7, "it gets the time it needs to stop");
    bench.runtime.on("app", Script::default());
    bench.until(WEB, 1, ObservedState::Running).await;
    assert_eq!(bench.count(|call| matches!(call, Call::Start(_))), 2);
}

#[tokio::test(start_paused = true)]
async fn a_new_agent_adopts_what_runs_and_removes_its_orphans() {
    let mut bench = Bench::new();
    let orphan = "shop/gone/1";
    bench.ask([(WEB, one(wanted(1, spec("app")))), (orphan, one(wanted(2, spec("app"))))]);
    bench.until(WEB, 1, ObservedState::Running).await;
    bench.told_within(Duration::from_secs(10)).await;
    let starts = bench.count(|call| matches!(call, Call::Start(_)));
    let mut bench = bench.killed().await;
    let observed = Observation { state: ObservedState::Running, code: None, at: Timestamp(0) };
    bench.ask([(WEB, one(DesiredReplica { observed: Some(observed), ..wanted(1, spec("app")) }))]);
    let told = bench.told_within(Duration::from_mins(1)).await;
    assert_eq!(bench.here().await, [tag(WEB, 1)]);
    assert_eq!(bench.count(|call| matches!(call, Call::Start(_))), starts, "nothing started anew");
    assert!(told.iter().all(|(generation, _)| *generation == 2), "it ran on: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn what_exited_while_nobody_watched_is_started_again_at_once() {
    let mut bench = Bench::new();
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    bench.until(WEB, 1, ObservedState::Running).await;
    bench.agent.abort();
    tokio::task::yield_now().await;
    bench.runtime.crash(&tag(WEB, 1), Exit { status: None, oom: false });
    let mut bench = bench.killed().await;
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    let took = bench.until(WEB, 1, ObservedState::Running).await;
    assert_eq!(took.as_secs(), 5, "without a pause: a reboot is not a failure of the service");
}

#[tokio::test(start_paused = true)]
async fn a_container_removed_behind_our_back_is_put_back_with_or_without_an_event() {
    for quietly in [false, true] {
        let mut bench = Bench::new();
        bench.ask([(WEB, one(wanted(1, spec("app"))))]);
        bench.until(WEB, 1, ObservedState::Running).await;
        bench.runtime.vanish(&tag(WEB, 1), quietly);
        let noticed = bench.until(WEB, 1, ObservedState::Failed).await;
        assert_eq!(*bench.last_code(), ObservedCode::Vanished);
        let most = Duration::from_secs(if quietly { 31 } else { 1 });
        assert!(noticed <= most, "quietly: {quietly}, after {noticed:?}");
        bench.until(WEB, 1, ObservedState::Running).await;
        assert_eq!(bench.here().await, [tag(WEB, 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_does_not_answer_is_waited_for_and_says_so() {
    let runtime = Arc::new(FakeRuntime::new(cell_id()));
    runtime.set_down(true);
    let mut bench = Bench::over(runtime);
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    assert_eq!(bench.told_within(Duration::from_secs(90)).await, []);
    let is_silent = |bench: &Bench| {
        let measured = bench.measurements.lock();
        let runtime = measured.nodes.get(&node_id("ash")).and_then(|it| it.runtime.clone());
        runtime.is_some_and(|runtime| runtime.trouble.is_some())
    };
    assert!(is_silent(&bench));
    bench.runtime.set_down(false);
    let took = bench.until(WEB, 1, ObservedState::Running).await;
    assert!(took < Duration::from_secs(7) && !is_silent(&bench), "{took:?}");

    // Later it goes away for a while: what runs is left alone, what is new waits and is not blamed.
    bench.runtime.set_down(true);
    bench.ask([(WEB, one(wanted(1, spec("app")))), ("shop/db/1", one(wanted(2, spec("db"))))]);
    tokio::time::sleep(Duration::from_mins(15)).await;
    assert!(is_silent(&bench));
    bench.runtime.set_down(false);
    let took = bench.until("shop/db/1", 2, ObservedState::Running).await;
    assert!(took < Duration::from_secs(7), "{took:?}");
    assert!(bench.told.iter().all(|(.., (state, _))| *state != ObservedState::Failed));
}

#[tokio::test(start_paused = true)]
async fn a_first_start_waits_for_what_it_depends_on_and_a_restart_does_not() {
    let mut bench = Bench::new();
    let awaits = Some((ServiceName::new("db").unwrap(), Dependency::Healthy));
    let waiting = DesiredReplica { awaits, ..wanted(1, spec("app")) };
    bench.ask([(WEB, one(waiting.clone()))]);
    bench.until(WEB, 1, ObservedState::Pending).await;
    assert_eq!(bench.last_code().to_string(), "waits until db is healthy");
    assert_eq!(bench.told_within(Duration::from_mins(5)).await.len(), 2, "it has its image");
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    bench.until(WEB, 1, ObservedState::Running).await;
    bench.ask([(WEB, one(waiting))]);
    bench.runtime.crash(&tag(WEB, 1), Exit { status: Some(1), oom: false });
    bench.until(WEB, 1, ObservedState::Failed).await;
    bench.until(WEB, 1, ObservedState::Running).await;
}

fn job(retries: Retries) -> DesiredReplica {
    let mut spec = spec("migrate");
    spec.lifecycle = Lifecycle::Job(retries);
    wanted(1, spec)
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_well_is_done_and_stays_done() {
    let mut bench = Bench::new();
    let exits = Some((Duration::from_secs(2), 0));
    bench.runtime.on("migrate", Script { exits, ..Script::default() });
    bench.ask([(WEB, one(job(Retries::NEVER)))]);
    bench.until(WEB, 1, ObservedState::Completed).await;
    assert_eq!(*bench.last_code(), ObservedCode::JobCompleted { attempts: 1 });
    let mut bench = bench.killed().await;
    let code = Some(ObservedCode::JobCompleted { attempts: 1 });
    let observed = Some(Observation { state: ObservedState::Completed, code, at: Timestamp(0) });
    bench.ask([(WEB, one(DesiredReplica { observed, is_over: true, ..job(Retries::NEVER) }))]);
    assert_eq!(bench.told_within(Duration::from_mins(2)).await, []);
    assert_eq!(bench.count(|call| matches!(call, Call::Start(_))), 1);
    assert_eq!(bench.count(|call| matches!(call, Call::Remove(_))), 0, "its logs are kept");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_is_retried_as_often_as_its_file_says() {
    for (limit, starts) in [(0, 1), (2, 3)] {
        let mut bench = Bench::new();
        let exits = Some((Duration::from_secs(1), 3));
        bench.runtime.on("migrate", Script { exits, ..Script::default() });
        bench.ask([(WEB, one(job(Retries { limit: Some(limit), delay: None })))]);
        for _ in 0..starts {
            bench.until(WEB, 1, ObservedState::Failed).await;
        }
        let last = Box::new(ObservedCode::Exited { status: Some(3) });
        assert_eq!(*bench.last_code(), ObservedCode::JobFailed { attempts: starts, last });
        let told = bench.told.len();
        assert_eq!(bench.told_within(Duration::from_mins(10)).await.len(), told);
        let count = bench.count(|call| matches!(call, Call::Start(_)));
        assert_eq!(count, starts as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ended_while_nobody_watched_is_not_run_again_for_that() {
    use ObservedState::{Completed, Failed, Starting};
    for (case, status, state, starts) in [
        ("it ended well", Some(0), Completed, 1),
        ("it failed", Some(1), Failed, 1),
        ("nobody knows", None, Completed, 2),
    ] {
        let mut bench = Bench::new();
        bench.ask([(WEB, one(job(Retries::NEVER)))]);
        bench.until(WEB, 1, Starting).await;
        bench.agent.abort();
        tokio::task::yield_now().await;
        bench.runtime.crash(&tag(WEB, 1), Exit { status, oom: false });
        let exits = Some((Duration::from_secs(1), 0));
        bench.runtime.on("migrate", Script { exits, ..Script::default() });
        let mut bench = bench.killed().await;
        let observed = Some(Observation { state: Starting, code: None, at: Timestamp(0) });
        bench.ask([(WEB, one(DesiredReplica { observed, ..job(Retries::NEVER) }))]);
        bench.until(WEB, 1, state).await;
        let told = bench.told.len();
        assert_eq!(bench.told_within(Duration::from_mins(2)).await.len(), told, "{case}");
        assert_eq!(bench.count(|call| matches!(call, Call::Start(_))), starts, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_leaves_and_is_not_here_has_stopped() {
    let mut bench = Bench::new();
    bench.ask([(WEB, Assignments { wanted: Vec::new(), leaving: vec![Generation(7)] })]);
    bench.until(WEB, 7, ObservedState::Stopped).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_tried_again_and_says_why() {
    let mut bench = Bench::new();
    bench.runtime.on("app", Script { start_failures: 2, ..Script::default() });
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    bench.until(WEB, 1, ObservedState::Failed).await;
    assert!(
        matches!(bench.last_code(), ObservedCode::StartFailed { error } if error.contains("told to fail"))
    );
    bench.until(WEB, 1, ObservedState::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_without_subnets_is_retried_and_uses_up_no_tries() {
    let mut bench = Bench::new();
    bench.runtime.on("app", Script { subnet_failures: 6, ..Script::default() });
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    bench.until(WEB, 1, ObservedState::Pending).await;
    let (began, code) = (Instant::now(), bench.last_code().clone());
    assert!(
        matches!(&code, ObservedCode::SubnetPoolExhausted { error } if error.contains("no subnet is left")),
        "{code:?}"
    );
    bench.until(WEB, 1, ObservedState::Running).await;
    assert!(began.elapsed() > Duration::from_secs(1 + 2 + 4 + 8 + 16), "{:?}", began.elapsed());
    let codes: Vec<_> = bench.told.iter().filter(|(.., (_, code))| code.is_some()).collect();
    assert_eq!(codes.len(), 1, "told once, and cleared by itself: {:?}", bench.told);
    let fact = bench.measurements.lock().replicas[&(replica_id(WEB), Generation(1))].clone();
    assert_eq!(fact.failures, 0, "not a failure of the replica");
    bench.runtime.crash(&tag(WEB, 1), Exit { status: Some(3), oom: false });
    bench.until(WEB, 1, ObservedState::Failed).await;
    assert_eq!(*bench.last_code(), ObservedCode::Exited { status: Some(3) }, "its first failure");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_is_no_longer_wanted_is_given_up_between_two_tries() {
    let mut bench = Bench::new();
    bench.runtime.on("missing", Script { pull_failures: 1_000, ..Script::default() });
    bench.ask([(WEB, one(wanted(1, spec("missing"))))]);
    bench.until(WEB, 1, ObservedState::Pending).await;
    let brief = Assignments { wanted: vec![wanted(2, spec("app"))], leaving: vec![Generation(1)] };
    bench.ask([(WEB, brief)]);
    bench.until(WEB, 1, ObservedState::Stopped).await;
    bench.until(WEB, 2, ObservedState::Running).await;
    let pulls = bench.count(|call| *call == Call::Pull("missing".to_owned()));
    bench.told_within(Duration::from_mins(10)).await;
    assert_eq!(bench.count(|call| *call == Call::Pull("missing".to_owned())), pulls);
}

#[tokio::test(start_paused = true)]
async fn with_other_credentials_a_pull_is_tried_again_at_once() {
    let mut bench = Bench::new();
    bench.runtime.on("private", Script { pull_failures: 7, ..Script::default() });
    let asked = |user: Option<&str>| {
        let auth = |user: &str| RegistryAuth {
            registry: RegistryHost::parse("r.example").unwrap(),
            user: user.to_owned(),
            password: RegistryPassword::new("hunter2"),
        };
        let registry_auth = user.map(|user| Arc::new(auth(user)));
        one(DesiredReplica { registry_auth, ..wanted(1, spec("private")) })
    };
    bench.ask([(WEB, asked(None))]);
    let pulls = |bench: &Bench| bench.count(|call| *call == Call::Pull("private".to_owned()));
    while pulls(&bench) < 6 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The next try is half a minute away.
    for (user, expected) in [(None, 6), (Some("wrong"), 7), (Some("wrong"), 7), (Some("ci"), 8)] {
        bench.ask([(WEB, asked(user))]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(pulls(&bench), expected, "{user:?}");
    }
    bench.until(WEB, 1, ObservedState::Running).await;
}

impl Bench {
    /// Asks for the volumes of `shop` to go, as of its end at this revision.
    fn doom(&self, revision: u32) {
        let shop = (DeploymentName::new("shop").unwrap(), Revision(revision));
        let orders = VolumeOrders { doomed: [shop].into(), ..VolumeOrders::default() };
        self.orders.put(AssignmentUpdate::Volumes(orders));
    }

    /// Waits until the cell was told that the volumes of `shop` are gone.
    async fn until_cleared(&mut self, revision: u32) {
        let wait = async {
            loop {
                let report = self.reports.recv().await.expect("the agent lives");
                if let Report::Cleared(cleared) = &report {
                    assert_eq!(cleared.deployment.as_str(), "shop");
                    assert_eq!(cleared.revision, Revision(revision));
                    return;
                }
                self.note(report);
            }
        };
        tokio::time::timeout(Duration::from_hours(2), wait).await.expect("they are never gone");
    }

    fn removals(&self) -> usize {
        let calls = self.runtime.calls().into_iter();
        calls.filter(|call| matches!(call, Call::RemoveVolumes(_))).count()
    }
}

#[tokio::test(start_paused = true)]
async fn volumes_go_once_the_last_container_is_gone_and_the_cell_hears_of_it() {
    let mut bench = Bench::new();
    bench.ask([("shop/db/1", one(wanted(1, spec("db"))))]);
    bench.until("shop/db/1", 1, ObservedState::Running).await;
    bench.doom(1);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.removals(), 0, "it still runs");
    bench.runtime.set_down(true);
    bench.ask([]);
    bench.doom(1);
    tokio::time::sleep(Duration::from_mins(1)).await;
    bench.runtime.set_down(false);
    bench.until_cleared(1).await;
    let calls = bench.runtime.calls();
    let position = |is_it: fn(&Call) -> bool| calls.iter().rposition(is_it).unwrap();
    let removed = position(|call| matches!(call, Call::Remove(_)));
    assert!(position(|call| matches!(call, Call::RemoveVolumes(_))) > removed);
    let so_far = bench.removals();
    bench.doom(1);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.removals(), so_far, "once is enough");
    bench.doom(2);
    bench.until_cleared(2).await;
}

#[tokio::test(start_paused = true)]
async fn volumes_of_what_is_asked_for_again_stay() {
    let mut bench = Bench::new();
    let other = || ("mon/web/1", one(wanted(1, spec("web"))));
    bench.ask([other()]);
    bench.until("mon/web/1", 1, ObservedState::Running).await;
    bench.runtime.set_down(true);
    bench.doom(1);
    tokio::time::sleep(Duration::from_secs(10)).await;
    bench.ask([other(), ("shop/db/1", one(wanted(2, spec("db"))))]);
    bench.doom(1);
    // Time passes only when nobody has anything to do: by then the agent has heard both.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let tried = bench.removals();
    bench.runtime.set_down(false);
    bench.until("shop/db/1", 2, ObservedState::Running).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.removals(), tried);
}

/// Requests that take a minute to end, however patient one is.
#[derive(Debug, Default)]
struct Busy(std::sync::Mutex<Vec<(String, u64, Duration)>>);

impl Traffic for Busy {
    fn parted<'a>(
        &'a self,
        replica: &'a ReplicaId,
        generation: Generation,
        patience: Duration,
    ) -> BoxFuture<'a, ()> {
        self.0.lock().unwrap().push((replica.to_string(), generation.0, patience));
        Box::pin(tokio::time::sleep(patience))
    }
}

#[tokio::test(start_paused = true)]
async fn what_leaves_is_stopped_once_its_requests_have_ended_or_its_grace_is_over() {
    for (case, grace, patience) in [
        ("a short grace is kept", Some(Millis::seconds(3)), 3),
        ("none is ten seconds", None, 10),
        ("a long one does not hold up the node", Some(Millis::minutes(5)), 10),
    ] {
        let busy = Arc::new(Busy::default());
        let mut bench = Bench::beside(Arc::clone(&busy) as Arc<dyn Traffic>);
        let mut spec = spec("app");
        spec.container.stop_grace = grace;
        bench.ask([(WEB, one(wanted(1, spec)))]);
        bench.until(WEB, 1, ObservedState::Running).await;
        bench.ask([(WEB, Assignments { wanted: Vec::new(), leaving: vec![Generation(1)] })]);
        let patience = Duration::from_secs(patience);
        tokio::time::sleep(patience.mul_f64(0.99)).await;
        assert_eq!(bench.count(|call| matches!(call, Call::Stop(_))), 0, "{case}");
        bench.until(WEB, 1, ObservedState::Stopped).await;
        assert_eq!(*busy.0.lock().unwrap(), [(replica_id(WEB).to_string(), 1, patience)], "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_never_was_well_is_stopped_at_once() {
    let busy = Arc::new(Busy::default());
    let mut bench = Bench::beside(Arc::clone(&busy) as Arc<dyn Traffic>);
    bench.runtime.on("sick", Script { wellness: Wellness::Never, ..Script::default() });
    bench.ask([(WEB, one(wanted(1, checked("sick"))))]);
    bench.until(WEB, 1, ObservedState::Failed).await;
    assert!(busy.0.lock().unwrap().is_empty(), "it failed its check");

    let mut bench = Bench::beside(Arc::clone(&busy) as Arc<dyn Traffic>);
    bench.ask([(WEB, one(wanted(1, spec("app"))))]);
    bench.until(WEB, 1, ObservedState::Starting).await;
    bench.ask([(WEB, Assignments { wanted: Vec::new(), leaving: vec![Generation(1)] })]);
    bench.until(WEB, 1, ObservedState::Stopped).await;
    assert!(busy.0.lock().unwrap().is_empty(), "nobody was sent to it yet");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_told_to_be_running_once_it_is_known_where_it_is_reached() {
    let mut bench = Bench::new();
    let mut spec = checked("app");
    // It passes its check before the agent would look by itself.
    spec.container.healthcheck.as_mut().unwrap().interval = Some(Millis(1));
    bench.ask([(WEB, one(wanted(1, spec)))]);
    bench.until(WEB, 1, ObservedState::Running).await;
    let calls = bench.runtime.calls();
    let at = |is_it: &dyn Fn(&Call) -> bool| calls.iter().rposition(is_it).unwrap();
    let (start, look) =
        (at(&|call| matches!(call, Call::Start(_))), at(&|call| matches!(call, Call::List)));
    assert!(look > start, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_when_asked_and_what_is_left_of_a_move_only_where_it_was_made_for_it() {
    let mut bench = Bench::new();
    bench.ask([]);
    let volume = |name| VolumeRef::new(&DeploymentName::new("shop").unwrap(), name);
    let discard = |order, is_remnant| VolumeDiscard { order: Generation(order), is_remnant };
    let discards: BTreeMap<VolumeRef, VolumeDiscard> =
        [(volume("shop_a"), discard(7, false)), (volume("shop_b"), discard(8, true))].into();
    let orders = VolumeOrders { discards, ..VolumeOrders::default() };
    bench.orders.put(AssignmentUpdate::Volumes(orders.clone()));
    let mut told = BTreeSet::new();
    while told.len() < 2 {
        match bench.reports.recv().await.expect("the agent lives") {
            Report::VolumeRemoved { volume, order } => drop(told.insert((volume.name, order))),
            report => bench.note(report),
        }
    }
    let expected = [("shop_a".to_owned(), Generation(7)), ("shop_b".to_owned(), Generation(8))];
    assert_eq!(told, expected.into());
    bench.orders.put(AssignmentUpdate::Volumes(orders));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let calls = bench.runtime.calls().into_iter();
    let removed: Vec<Call> = calls.filter(|it| matches!(it, Call::RemoveVolume(_))).collect();
    assert_eq!(removed, [Call::RemoveVolume(volume("shop_a"))], "once, and nothing of others");
}
