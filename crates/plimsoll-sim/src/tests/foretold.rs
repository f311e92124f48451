//! What `what-if` says is what then happens: cells of many kinds are left to settle, asked what would come of something, and then
//! it is done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_kernel::what_if::{Forecast, KnownCell, Supposition, forecast};
use plimsoll_model::testkit::{cpus, global, hosts, node_id, pack, spread};
use plimsoll_model::{
    Millis, Mode, NodeFacts, NodeId, ReplicaId, ServiceKey, ServiceName, ServiceSpec, State,
};

use super::deployment;
use crate::rng::SimRng;
use crate::scenario::{Action, Dwell, Scenario, Services};
use crate::world::{EPOCH, World};

const NAMES: [&str; 8] = ["ash", "birch", "cedar", "dogwood", "elm", "fir", "gum", "hazel"];

/// By then a cell has settled, and nothing rests any more.
const SETTLED: Millis = Millis::minutes(40);

/// By then all that follows from it is over.
const END: Millis = Millis::minutes(100);

/// Where everything is.
fn places(state: &State) -> BTreeMap<ReplicaId, NodeId> {
    let placed = state.replicas();
    placed.filter_map(|(id, replica)| Some((id, replica.heading()?.node.clone()))).collect()
}

/// How many replicas of each service each node has.
fn counts(places: &BTreeMap<ReplicaId, NodeId>) -> BTreeMap<(ServiceKey, NodeId), u32> {
    let mut counts = BTreeMap::new();
    for (id, node) in places {
        *counts.entry((id.service.clone(), node.clone())).or_default() += 1;
    }
    counts
}

fn drawn_node(chance: &mut SimRng, is_zoned: bool) -> NodeFacts {
    let facts = cpus(2 + 2 * chance.below(4));
    if is_zoned { facts.zone(chance.pick(&["a", "b", "c"]).unwrap()) } else { facts }
}

fn drawn_service(chance: &mut SimRng) -> ServiceSpec {
    let replicas = 1 + u32::try_from(chance.below(6)).unwrap();
    let spec = match chance.below(10) {
        0 => global(),
        1 => pack(replicas),
        2 => hosts(2, ["ash", "birch", "cedar"]),
        3 => spread(1).volume("data"),
        _ => spread(replicas),
    };
    if chance.percent(80) { spec.reserve(100 + 50 * chance.below(8), 64) } else { spec }
}

fn drawn_services(chance: &mut SimRng) -> Services {
    let names =
        ["a", "b", "c", "d"].into_iter().take(1 + usize::try_from(chance.below(4)).unwrap());
    names.map(|name| (ServiceName::new(name).unwrap(), Arc::new(drawn_service(chance)))).collect()
}

fn drawn_cell(chance: &mut SimRng) -> Scenario {
    let mut scenario = Scenario::new("foretold", END);
    let is_zoned = chance.percent(50);
    let count = 3 + usize::try_from(chance.below(6)).unwrap();
    for name in &NAMES[..count] {
        scenario.nodes.insert(node_id(name), drawn_node(chance, is_zoned));
    }
    for name in ["one", "two", "three"] {
        scenario.deployments.insert(deployment(name), drawn_services(chance));
    }
    scenario
}

/// Something that is done to a cell, and the same as a question.
fn drawn_question(chance: &mut SimRng, scenario: &Scenario) -> (Vec<Action>, Supposition) {
    let nodes: Vec<NodeId> = scenario.nodes.keys().cloned().collect();
    let names: Vec<_> = scenario.deployments.keys().cloned().collect();
    let name = chance.pick(&names).unwrap().clone();
    let mut services = scenario.deployments[&name].clone();
    let keys: Vec<ServiceName> = services.keys().cloned().collect();
    let service = chance.pick(&keys).unwrap().clone();
    match chance.below(5) {
        0 => {
            let node = chance.pick(&nodes).unwrap().clone();
            (vec![Action::drain(node.clone())], Supposition::Drain([node].into()))
        }
        1 => {
            let most = 1 + chance.below(nodes.len() as u64 / 2);
            let lost: BTreeSet<NodeId> =
                (0..most).map(|_| chance.pick(&nodes).unwrap().clone()).collect();
            (lost.iter().cloned().map(Action::Crash).collect(), Supposition::Lose(lost))
        }
        2 if services[&service].placement.mode != Mode::Global => {
            let key = ServiceKey::new(name, service);
            let replicas = u32::try_from(chance.below(12)).unwrap();
            (
                vec![Action::Scale(key.clone(), replicas)],
                Supposition::Scale([(key, replicas)].into()),
            )
        }
        _ => {
            if chance.percent(50) {
                services.insert(service, Arc::new(drawn_service(chance)));
            } else {
                services = drawn_services(chance);
            }
            let action = Action::Deploy(name.clone(), services.clone());
            (vec![action], Supposition::Deploy { deployment: name, services, routes: Vec::new() })
        }
    }
}

/// What is foretold of a settled cell, and what then happens to it. None where the cell has not settled: something of it finds
/// no place, or still moves.
fn foretold(
    scenario: &Scenario,
    seed: u64,
    supposed: &Supposition,
) -> Option<(Forecast, BTreeMap<ReplicaId, NodeId>, State)> {
    let mut world = World::new(scenario, seed);
    while world.step(EPOCH.plus(Millis(SETTLED.0 - 1))) {}
    let leader = world.leader().expect("somebody leads");
    if !world.state.moving().is_empty() || !world.state.unplaced().is_empty() {
        return None;
    }
    let known = KnownCell {
        state: &world.state,
        signals: leader.signals(),
        policy: &scenario.policy,
        rebalancer: leader.rebalancer().clone(),
        now: world.leader_time(),
    };
    let before = world.state.clone();
    let told = forecast(known, supposed, &mut || false).expect("it can be supposed");
    assert_eq!(before, world.state, "nothing is done");
    while world.step(EPOCH.plus(scenario.length)) {}
    let happened = places(&world.state);
    Some((told, happened, world.state))
}

/// Everything takes as long as it does anywhere, so that what is begun together is done together.
fn steady() -> Dwell {
    let always = |millis| (Millis(millis), Millis(millis));
    Dwell {
        pull: always(2_000),
        start: always(500),
        health: always(1_000),
        stop: always(1_000),
        network: always(5),
        commit: always(5),
        election: always(500),
    }
}

/// More by hand: `PLIMSOLL_SIM_SEEDS=200 cargo test --release -p plimsoll-sim foretold`.
fn seeds() -> u64 {
    option_env!("PLIMSOLL_SIM_SEEDS").and_then(|count| count.parse().ok()).unwrap_or(60)
}

/// On nodes that take as long as each other, every replica ends where it was foretold after a drain, a loss and a scale. A rollout
/// goes on for longer, and what nodes measure meanwhile may decide between two that are equal otherwise.
#[test]
fn what_is_foretold_is_where_everything_ends() {
    let (mut asked, mut moved, mut otherwise) = (0, 0, Vec::new());
    for seed in 0..seeds() {
        let mut chance = SimRng::new(seed);
        let mut scenario = drawn_cell(&mut chance);
        scenario.dwell = steady();
        let (actions, supposed) = drawn_question(&mut chance, &scenario);
        scenario.script = actions.into_iter().map(|action| (SETTLED, action)).collect();
        let Some((told, happened, state)) = foretold(&scenario, seed, &supposed) else { continue };
        assert!(told.is_whole, "seed {seed}");
        let is_alike = places(&told.after) == happened;
        if matches!(supposed, Supposition::Deploy { .. }) {
            otherwise.extend((!is_alike).then_some(seed));
        } else {
            assert_eq!(places(&told.after), happened, "seed {seed}: {supposed:?}");
        }
        let unplaced: Vec<&ServiceKey> = told.plan.unplaced.keys().collect();
        assert_eq!(unplaced, state.unplaced().iter().collect::<Vec<_>>(), "seed {seed}");
        (asked, moved) = (asked + 1, moved + told.plan.outcomes.len());
    }
    println!("{asked} cells were asked about, {moved} replicas changed; otherwise {otherwise:?}");
    assert!(asked >= seeds() / 2 && moved > 0, "{asked} {moved}");
    assert!(otherwise.len() as u64 * 20 <= asked, "{otherwise:?} of {asked}");
}

/// Where nodes take as long as they like, one may be chosen before another is done with its part; as many of each service are
/// placed all the same.
#[test]
fn whatever_nodes_take_as_much_is_placed_as_was_foretold() {
    let (mut asked, mut alike) = (0, 0);
    for seed in 0..seeds() / 2 {
        let mut chance = SimRng::new(1_000 + seed);
        let mut scenario = drawn_cell(&mut chance);
        let (actions, supposed) = drawn_question(&mut chance, &scenario);
        scenario.script = actions.into_iter().map(|action| (SETTLED, action)).collect();
        let Some((told, happened, state)) = foretold(&scenario, seed, &supposed) else { continue };
        let told_places = places(&told.after);
        asked += 1;
        alike += u64::from(counts(&told_places) == counts(&happened));
        let ids = |places: &BTreeMap<ReplicaId, NodeId>| places.keys().cloned().collect::<Vec<_>>();
        assert_eq!(ids(&told_places), ids(&happened), "seed {seed}: {supposed:?}");
        let unplaced: Vec<&ServiceKey> = told.plan.unplaced.keys().collect();
        assert_eq!(unplaced, state.unplaced().iter().collect::<Vec<_>>(), "seed {seed}");
    }
    println!("{alike} of {asked} cells ended alike, node by node");
    assert!(asked > 0 && alike * 100 >= asked * 90, "{alike} of {asked}");
}
