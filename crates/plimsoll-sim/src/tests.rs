use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use plimsoll_model::reason::UnplacedReason;
use plimsoll_model::spec::{HealthTest, Healthcheck, OnFailure, UpdateOrder};
use plimsoll_model::testkit::{cpus, global, hosts, node_id, pack, service_key, spread};
use plimsoll_model::{
    AuditKind, DeploymentName, Millis, MoveCause, ServiceKey, ServiceName, ServiceSpec, SpecHash,
};

use crate::chaos::{Chaos, any_scenario};
use crate::scenario::{Action, Scenario, Services};
use crate::shrink::shrink;
use crate::world::{EPOCH, World};
use crate::{RunOutcome, run};

mod foretold;
mod preemption;
mod rescheduling;
mod schedules;
mod start_order;

fn services<const N: usize>(services: [(&str, ServiceSpec); N]) -> Services {
    let named =
        services.into_iter().map(|(name, spec)| (ServiceName::new(name).unwrap(), Arc::new(spec)));
    named.collect::<BTreeMap<_, _>>()
}

fn deployment(name: &str) -> DeploymentName {
    DeploymentName::new(name).unwrap()
}

fn small(length: Millis) -> Scenario {
    let mut scenario = Scenario::new("small", length);
    for (name, zone) in
        [("ash", "a"), ("birch", "a"), ("cedar", "b"), ("dogwood", "b"), ("elm", "c")]
    {
        scenario.nodes.insert(node_id(name), cpus(4).zone(zone));
    }
    let shop = services([
        ("web", spread(4).reserve(250, 128)),
        ("db", spread(1).volume("data").reserve(500, 256)),
        ("edge", spread(2).host_port(443)),
    ]);
    let mon = services([
        ("agent", global()),
        ("jobs", pack(5).reserve(100, 64)),
        ("two", hosts(2, ["ash", "elm"])),
    ]);
    scenario.deployments.insert(deployment("shop"), shop);
    scenario.deployments.insert(deployment("mon"), mon);
    scenario
}

fn run_quietly(scenario: &Scenario, seed: u64) -> RunOutcome {
    run(scenario, seed, &mut |_| {})
}

fn happened(outcome: &RunOutcome, is: impl Fn(&AuditKind) -> bool) -> usize {
    outcome.report.story.iter().filter(|line| is(&line.what)).count()
}

#[test]
fn a_quiet_day_places_everything_and_moves_nothing() {
    let scenario = small(Millis::minutes(60));
    let outcome = run_quietly(&scenario, 1);
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.report.moves, 0);
    let last = outcome.report.samples.last().unwrap();
    assert_eq!((last.running, last.unplaced), (last.wanted, 0));
}

#[test]
fn a_lost_node_is_replaced_and_is_filled_again_when_it_returns() {
    let mut scenario = small(Millis::minutes(60));
    scenario.script.push((Millis::minutes(10), Action::Crash(node_id("cedar"))));
    scenario.script.push((Millis::minutes(30), Action::Return(node_id("cedar"))));
    let outcome = run_quietly(&scenario, 7);
    assert_eq!(outcome.failure, None);
    assert!(outcome.report.moves > 0);
    let after = outcome.report.story.iter().filter(|line| line.at > Millis::minutes(31));
    let causes = after.filter_map(|line| match line.what {
        AuditKind::MoveStarted { cause, .. } => Some(cause),
        _ => None,
    });
    let causes: Vec<MoveCause> = causes.collect();
    assert!(!causes.is_empty() && causes.iter().all(|it| *it == MoveCause::Reschedule));
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let mut scenario = small(Millis::minutes(40));
    let chaos = Chaos {
        until: Millis::minutes(20),
        every: Millis::seconds(60),
        outage: (Millis::seconds(5), Millis::minutes(5)),
    };
    chaos.unleash(&mut scenario, 3);
    let story = |seed| format!("{:?}", run_quietly(&scenario, seed).report);
    assert_eq!(story(5), story(5));
    assert_ne!(story(5), story(6));
}

#[test]
fn a_spec_that_never_becomes_healthy_leaves_the_old_one_running() {
    let mut scenario = small(Millis::minutes(60));
    let broken = spread(4).reserve(250, 128).image("app:broken");
    scenario.script.push((Millis::minutes(5), Action::Break("app:broken".to_owned())));
    let mut shop = scenario.deployments[&deployment("shop")].clone();
    shop.insert(ServiceName::new("web").unwrap(), Arc::new(broken));
    scenario.script.push((Millis::minutes(10), Action::Deploy(deployment("shop"), shop)));
    let outcome = run_quietly(&scenario, 2);
    assert_eq!(outcome.failure, None);
    assert_eq!(
        happened(&outcome, |what| matches!(what, AuditKind::MoveStarted { .. })),
        1,
        "tried once"
    );
    let least =
        outcome.report.samples.iter().skip(4).map(|sample| sample.wanted - sample.running).max();
    assert_eq!(least, Some(0), "nothing was ever missing");
}

#[test]
fn a_drain_under_way_survives_a_new_leader() {
    let mut scenario = small(Millis::minutes(60));
    scenario.script.push((Millis::minutes(10), Action::drain(node_id("ash"))));
    for second in [1, 4, 9, 15] {
        let at = Millis(Millis::minutes(10).0 + second * 1_000);
        scenario.script.push((at, Action::NewLeader));
    }
    let outcome = run_quietly(&scenario, 11);
    assert_eq!(outcome.failure, None);
}

/// The property of the whole: whatever the cell and whatever happens to it, every invariant holds, and once it stops the
/// cell settles. By hand, and many more: `plimsoll sim chaos --seeds 0..20000`.
#[test]
fn under_any_faults_every_invariant_holds_and_the_cell_settles() {
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let seeds = seeds();
    thread::scope(|scope| {
        for nth in 0..threads {
            scope.spawn(move || {
                (nth..seeds).step_by(usize::try_from(threads).unwrap()).for_each(run_any)
            });
        }
    });
    println!("{seeds} seeded runs, seeds 0..{seeds}, all invariants green");
}

/// As many as fit into a minute or so on two cores, or as many as are asked for.
#[expect(clippy::disallowed_methods, reason = "how long a test goes on is up to who runs it")]
fn seeds() -> u64 {
    let asked = std::env::var("PLIMSOLL_SIM_SEEDS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(1_000)
}

/// Enough to make a small scenario of any failure.
const SHRINKING: u32 = 1_000;

fn run_any(seed: u64) {
    let scenario = any_scenario(seed);
    let Some(failure) = run_quietly(&scenario, seed).failure else { return };
    let least = shrink(&scenario, seed, SHRINKING).expect("it fails again");
    panic!("{failure}\nleast: {}\n{}", least.failure, least.scenario.to_text());
}

/// A check that cannot fail is no check: a cell in which nothing ever becomes healthy does not settle.
#[test]
fn a_run_that_breaks_a_promise_says_which_when_and_with_what_seed() {
    let mut scenario = Scenario::new("never", Millis::minutes(30));
    scenario.nodes.insert(node_id("ash"), cpus(4));
    scenario.deployments.insert(deployment("d"), services([("s", spread(1))]));
    scenario.dwell.health = (Millis::minutes(60), Millis::minutes(60));
    let failure = run_quietly(&scenario, 4).failure.expect("it does not run");
    assert_eq!(failure.to_string(), "after 30m with seed 4: settled: d-s-1 does not run on ash");
}

/// What is left is small, fails the same way, and is the same every time.
#[test]
fn a_failing_scenario_shrinks_to_what_it_takes_to_fail() {
    let mut scenario = small(Millis::minutes(60));
    scenario.dwell.health = (Millis::minutes(120), Millis::minutes(120));
    for (minute, action) in [
        (3, Action::Crash(node_id("ash"))),
        (5, Action::NewLeader),
        (8, Action::Return(node_id("ash"))),
        (9, Action::drain(node_id("elm"))),
        (12, Action::Restart(deployment("shop"), None)),
        (15, Action::Uncordon(node_id("elm"))),
    ] {
        scenario.script.push((Millis::minutes(minute), action));
    }
    let least = shrink(&scenario, 3, 400).expect("nothing becomes healthy");
    assert_eq!(least.failure.broken.invariant, "settled");
    let failure = run_quietly(&least.scenario, 3).failure;
    assert_eq!(failure.as_ref(), Some(&least.failure), "what is told is what happens");
    assert_eq!((least.scenario.nodes.len(), least.scenario.script.len()), (1, 0));
    let replicas = least.scenario.deployments.values().flat_map(BTreeMap::values);
    assert_eq!(replicas.count(), 1, "{}", least.scenario.to_text());
    let again = shrink(&scenario, 3, 400).expect("it fails again");
    assert_eq!(again.scenario, least.scenario);
}

/// It takes up to 88 seconds to become healthy.
fn slow(mut spec: ServiceSpec) -> ServiceSpec {
    spec.container.healthcheck = Some(Healthcheck {
        test: HealthTest::Shell("true".to_owned()),
        interval: None,
        timeout: None,
        start_period: Some(Millis::seconds(88)),
        start_interval: None,
        retries: None,
    });
    spec.hash = SpecHash::of(&spec.container);
    spec
}

/// Seed 4713 of `sim chaos`, at its least: what leaves waited for the image of a replica that was given up, which never came.
#[test]
fn what_replaces_a_replica_that_was_given_up_is_not_held_up_by_it() {
    let app = |replicas| spread(replicas).image("app:1");
    let mut scenario = Scenario::new("given-up", Millis::minutes(60));
    scenario.nodes.insert(node_id("ash"), cpus(4));
    scenario.deployments.insert(deployment("d"), services([("s", app(2))]));
    let deploy = |spec| Action::Deploy(deployment("d"), services([("s", spec)]));
    for (second, action) in [
        (60, Action::Break("app:1".to_owned())),
        (60, Action::Fail(service_key("d/s"))),
        (580, Action::Crash(node_id("ash"))),
        (660, Action::Mend("app:1".to_owned())),
        (690, deploy(slow(app(2)))),
        (800, Action::Return(node_id("ash"))),
        (864, deploy(slow(app(1)))),
    ] {
        scenario.script.push((Millis::seconds(second), action));
    }
    assert_eq!(run_quietly(&scenario, 1).failure, None);
}

/// The decisions of one service go wrong while every service is scaled up: the others get all they ask for, it waits alone
/// and says so, and it has all it asks for some time after its decisions are right again.
#[test]
fn one_bad_service_stops_nobody_and_recovers() {
    let mut scenario = Scenario::new("poisoned", Millis::minutes(40));
    for node in ["ash", "birch", "cedar"] {
        scenario.nodes.insert(node_id(node), cpus(8));
    }
    let three = [("good", spread(1)), ("bad", spread(1)), ("everywhere", global())];
    scenario.deployments.insert(deployment("d"), services(three));
    let (good, bad) = (service_key("d/good"), service_key("d/bad"));
    for (second, action) in [
        (60, Action::Poison(bad.clone())),
        (61, Action::Scale(bad.clone(), 5)),
        (62, Action::Scale(good.clone(), 6)),
        (90, Action::Join(node_id("dogwood"), cpus(8))),
        (1_000, Action::Cure(bad.clone())),
    ] {
        scenario.script.push((Millis::seconds(second), action));
    }
    assert_eq!(run_quietly(&scenario, 5).failure, None);

    let mut world = World::new(&scenario, 5);
    while world.step(EPOCH.plus(Millis::seconds(120))) {}
    let placed =
        |world: &World<'_>, key: &ServiceKey| world.state.service(key).unwrap().replicas.len();
    assert_eq!((placed(&world, &good), placed(&world, &bad)), (6, 1));
    assert_eq!(placed(&world, &service_key("d/everywhere")), 4, "the new node has one");
    let said = world.state.service(&bad).unwrap().row.unplaced.as_ref();
    assert!(
        said.is_some_and(|it| matches!(it.why, UnplacedReason::DecisionRefused { .. })),
        "{said:?}"
    );
    assert!(world.refused < 12, "{} batches were refused", world.refused);
    while world.step(EPOCH.plus(scenario.length)) {}
    assert_eq!(placed(&world, &bad), 5);
    assert_eq!(world.state.service(&bad).unwrap().row.unplaced, None, "the alarm clears itself");
}

/// Seed 3803 of `sim chaos` was of this kind.
#[test]
fn a_rollout_to_what_never_starts_and_may_run_nowhere_settles_with_its_reason() {
    for on_failure in [OnFailure::Rollback, OnFailure::Pause, OnFailure::Continue] {
        let mut scenario = small(Millis::minutes(60));
        let mut never = spread(4).image("app:2").wants_label("disk", "none");
        never.update.on_failure = on_failure;
        let deploy = Action::Deploy(deployment("shop"), services([("web", never)]));
        for (minute, action) in [
            (1, Action::Break("app:2".to_owned())),
            (5, deploy),
            (20, Action::Crash(node_id("ash"))),
            (22, Action::Restart(deployment("shop"), None)),
            (30, Action::Return(node_id("ash"))),
        ] {
            scenario.script.push((Millis::minutes(minute), action));
        }
        for seed in 1..=3 {
            assert_eq!(run_quietly(&scenario, seed).failure, None, "{on_failure:?}");
        }
    }
}

/// Seed 309 of `sim chaos`, at its least: a replica that cannot run twice is lost, what replaces it is lost as well, and that one
/// comes back while the next is starting, which is stopped for it.
#[test]
fn a_replica_that_cannot_run_twice_is_replaced_though_an_older_copy_comes_back() {
    let mut once = slow(spread(1));
    once.update.order = UpdateOrder::StopFirst;
    let nodes = ["ash", "birch", "cedar", "dogwood", "elm"];
    for (first, second) in nodes.iter().flat_map(|one| nodes.map(|other| (*one, other))) {
        let mut scenario = Scenario::new("twice", Millis::minutes(40));
        scenario.nodes = nodes.map(|node| (node_id(node), cpus(4))).into();
        scenario.deployments.insert(deployment("d"), services([("s", once.clone())]));
        for (at, action) in [
            (200, Action::Crash(node_id(first))),
            (220, Action::Cut(node_id(second))),
            (250, Action::Return(node_id(second))),
        ] {
            scenario.script.push((Millis::seconds(at), action));
        }
        assert_eq!(run_quietly(&scenario, 1).failure, None, "{first}, {second}");
    }
}
