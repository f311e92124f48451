use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use plimsoll_model::spec::{OnFailure, UpdateOrder};
use plimsoll_model::testkit::{cpus, global, hosts, node_id, pack, spread};
use plimsoll_model::{DeploymentName, Happening, Millis, NodeFacts, ServiceName, ServiceSpec};

use crate::chance::Chance;
use crate::chaos::Chaos;
use crate::scenario::{Action, Scenario, Services};
use crate::{Outcome, run};

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

fn run_quietly(scenario: &Scenario, seed: u64) -> Outcome {
    run(scenario, seed, &mut |_| {})
}

fn happened(outcome: &Outcome, is: impl Fn(&Happening) -> bool) -> usize {
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
fn a_lost_node_is_replaced_and_its_return_moves_nothing_back() {
    let mut scenario = small(Millis::minutes(60));
    scenario.script.push((Millis::minutes(10), Action::Crash(node_id("cedar"))));
    scenario.script.push((Millis::minutes(30), Action::Return(node_id("cedar"))));
    let outcome = run_quietly(&scenario, 7);
    assert_eq!(outcome.failure, None);
    assert!(outcome.report.moves > 0);
    let after = outcome.report.story.iter().filter(|line| line.at > Millis::minutes(31));
    assert_eq!(after.filter(|line| matches!(line.what, Happening::MoveStarted { .. })).count(), 0);
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
        happened(&outcome, |what| matches!(what, Happening::MoveStarted { .. })),
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
    scenario.script.push((Millis::minutes(10), Action::Drain(node_id("ash"))));
    for second in [1, 4, 9, 15] {
        let at = Millis(Millis::minutes(10).0 + second * 1_000);
        scenario.script.push((at, Action::NewLeader));
    }
    let outcome = run_quietly(&scenario, 11);
    assert_eq!(outcome.failure, None);
}

/// A cell drawn from the seed: one to nine nodes of any size in up to three zones, and a few services of any kind, some
/// of which do not fit.
fn any_cell(seed: u64) -> Scenario {
    let mut chance = Chance::new(seed.wrapping_mul(31));
    let mut scenario = Scenario::new("any", Millis::minutes(75));
    let names = ["ash", "birch", "cedar", "dogwood", "elm", "fir", "gum", "hazel", "iroko"];
    let count = 1 + usize::try_from(chance.below(9)).unwrap();
    for name in &names[..count] {
        let mut facts = cpus(1 + chance.below(8));
        if chance.percent(70) {
            facts = facts.zone(chance.pick(&["a", "b", "c"]).unwrap());
        }
        if chance.percent(40) {
            facts = facts.label("disk", "ssd");
        }
        scenario.nodes.insert(node_id(name), facts);
    }
    for deployment in ["one", "two", "three"] {
        let mut all = Services::new();
        for name in ["a", "b", "c"] {
            all.insert(ServiceName::new(name).unwrap(), Arc::new(any_service(&mut chance, &names)));
        }
        scenario.deployments.insert(self::deployment(deployment), all);
    }
    scenario
}

fn any_service(chance: &mut Chance, names: &[&str]) -> ServiceSpec {
    let replicas = u32::try_from(chance.below(7)).unwrap();
    let mut spec = match chance.below(10) {
        0 => global(),
        1 | 2 => pack(replicas),
        3 => hosts(replicas, [chance.pick(names).unwrap(), chance.pick(names).unwrap()]),
        _ => spread(replicas),
    };
    if chance.percent(60) {
        spec = spec.reserve(100 + chance.below(900), 64 + chance.below(2_000));
    }
    if chance.percent(15) {
        spec = spec.host_port(8_000 + u16::try_from(chance.below(3)).unwrap());
    }
    if chance.percent(15) {
        spec = spec.volume("data");
    }
    if chance.percent(15) {
        spec = spec.wants_label("disk", "ssd");
    }
    if chance.percent(15) {
        spec = spec.max_per_node(1 + u32::try_from(chance.below(2)).unwrap());
    }
    if chance.percent(15) {
        spec.update.order = UpdateOrder::StopFirst;
    }
    if chance.percent(20) {
        spec.update.parallelism = 1 + u32::try_from(chance.below(3)).unwrap();
    }
    if chance.percent(20) {
        spec.update.delay = Millis::seconds(chance.below(20));
    }
    match chance.below(10) {
        0 => spec.update.on_failure = OnFailure::Pause,
        1 => spec.update.on_failure = OnFailure::Continue,
        _ => {}
    }
    spec
}

/// The property of the whole: whatever the cell and whatever happens to it, every invariant holds, and once it stops the
/// cell settles.
#[test]
fn under_any_faults_every_invariant_holds_and_the_cell_settles() {
    // More by hand: PLIMSOLL_SIM_SEEDS=60000 cargo test --release -p plimsoll-sim under_any_faults
    let count =
        option_env!("PLIMSOLL_SIM_SEEDS").and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    thread::scope(|scope| {
        for nth in 0..threads {
            scope.spawn(move || {
                (nth..count).step_by(usize::try_from(threads).unwrap()).for_each(run_any)
            });
        }
    });
    println!("{count} seeded runs, seeds 0..{count}, all invariants green");
}

fn run_any(seed: u64) {
    assert_eq!(run_quietly(&any_scenario(seed), seed).failure, None, "seed {seed}");
}

/// A cell and what happens to it, drawn from the seed.
pub(crate) fn any_scenario(seed: u64) -> Scenario {
    let mut scenario =
        if seed.is_multiple_of(2) { small(Millis::minutes(75)) } else { any_cell(seed) };
    let chaos = Chaos {
        until: Millis::minutes(45),
        every: Millis::seconds(20 + seed % 90),
        outage: (Millis::seconds(1), Millis::minutes(1 + seed % 12)),
    };
    chaos.unleash(&mut scenario, seed);
    scenario
}

/// A check that cannot fail is no check: a cell that overcommits a node is caught.
#[test]
fn a_run_that_breaks_a_promise_says_which_when_and_with_what_seed() {
    let mut scenario = Scenario::new("shrink", Millis::minutes(30));
    scenario.nodes.insert(node_id("ash"), cpus(4));
    scenario.deployments.insert(deployment("d"), services([("s", spread(4).reserve(1_000, 64))]));
    // The node shrinks below what it holds, and then something changes on it.
    let smaller: NodeFacts = cpus(1);
    scenario.script.push((Millis::minutes(5), Action::Join(node_id("ash"), smaller)));
    let three = services([("s", spread(3).reserve(1_000, 64))]);
    scenario.script.push((Millis::minutes(6), Action::Deploy(deployment("d"), three)));
    let failure = run_quietly(&scenario, 4).failure.expect("three cores are promised of one");
    let text = failure.to_string();
    assert!(text.starts_with("after 6m with seed 4: capacity: ash is promised"), "{text}");
}
