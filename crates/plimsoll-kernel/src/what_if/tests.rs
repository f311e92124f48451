use plimsoll_model::testkit::{Cell, cell, cpus, global, node_id, replica_id, service_key, spread};
use plimsoll_model::{Bytes, Generation, MilliCpus, MoveCause, ReplicaId};

use super::*;
use crate::PressureSample;
use crate::plan::{ReplicaFate, ReplicaOutcome};
use crate::rebalance::ReplicaUsage;
use crate::testkit::Passes;

fn what_if(cell: &Cell, supposed: &Supposition) -> Forecast {
    measured(cell, Rebalancer::default(), supposed)
}

fn measured(cell: &Cell, rebalancer: Rebalancer, supposed: &Supposition) -> Forecast {
    let (signals, policy) = (Signals::default(), Policy::default());
    let known = KnownCell {
        state: &cell.state,
        signals: &signals,
        policy: &policy,
        rebalancer,
        now: cell.now,
    };
    forecast(known, supposed, &mut || false).unwrap()
}

fn some<const N: usize>(nodes: [&str; N]) -> BTreeSet<NodeId> {
    nodes.into_iter().map(node_id).collect()
}

/// What moves, in order: `shop-web-1 ash birch misplaced`.
fn moves(forecast: &Forecast) -> Vec<String> {
    let line = |it: &ReplicaOutcome| match &it.fate {
        ReplicaFate::Moved { from, cause, .. } => {
            Some(format!("{} {from} {} {}", it.id, it.node, cause.word()))
        }
        _ => None,
    };
    forecast.plan.outcomes.iter().filter_map(line).collect()
}

fn replicas(forecast: &Forecast) -> Vec<(u32, u32)> {
    let of = |side: Option<NodeUse>| side.map_or(0, |it| it.replicas);
    forecast.nodes.values().map(|node| (of(node.before), of(node.after))).collect()
}

fn three() -> Cell {
    cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4))
}

#[test]
fn a_drain_says_what_every_node_bears_before_after_and_at_most() {
    let cell = three().deploy("shop", [("web", spread(3).reserve(1_000, 1_024))]).settle();
    let forecast = what_if(&cell, &Supposition::Drain(some(["ash"])));
    assert_eq!(moves(&forecast).len(), 1, "{:?}", moves(&forecast));
    assert!(forecast.is_whole);
    assert_eq!(replicas(&forecast).iter().map(|(_, after)| after).sum::<u32>(), 3);
    let ash = &forecast.nodes[&node_id("ash")];
    assert_eq!(ash.change, Some(NodeChange::Drained));
    assert_eq!(ash.before.unwrap().reserved.cpu, Pressure::percent(25));
    assert_eq!(ash.after.unwrap().reserved.cpu, Pressure::ZERO);
    assert_eq!(ash.peak.unwrap().reserved.cpu, Pressure::percent(25));
    let tops = forecast.nodes.values().map(|it| it.peak.unwrap().reserved.cpu);
    assert_eq!(tops.max(), Some(Pressure::percent(50)));
    assert_eq!(cell.state.node(&node_id("ash")).unwrap().availability, Availability::Active);
}

#[test]
fn what_is_lost_for_good_is_told_with_its_reason_and_the_rest_is_replaced() {
    let services = [("web", spread(3)), ("db", spread(3).volume("data")), ("all", global())];
    let cell = three().deploy("shop", services).settle();
    let forecast = what_if(&cell, &Supposition::Lose(some(["birch"])));
    assert_eq!(forecast.nodes[&node_id("birch")].change, Some(NodeChange::Lost));
    assert_eq!(forecast.nodes[&node_id("birch")].after.unwrap().pressure, None);
    let moved = moves(&forecast);
    assert_eq!(moved.len(), 1, "{moved:?}");
    assert!(moved[0].starts_with("shop-web-") && moved[0].ends_with("node_lost"), "{moved:?}");
    let stuck = forecast.plan.outcomes.iter().filter(|it| it.fate.round().is_none());
    let stuck: Vec<&ReplicaId> = stuck.map(|it| &it.id).collect();
    assert_eq!(stuck.len(), 2, "its data, and the one of each node: {stuck:?}");
    let most = what_if(&cell, &Supposition::Lose(some(["ash", "birch"])));
    assert_eq!(moves(&most), Vec::<String>::new(), "most of them at once are more likely us");
}

#[test]
fn nodes_that_are_added_are_filled_up_to_their_share() {
    let named: [(&str, ServiceSpec); 4] =
        ["a", "b", "c", "d"].map(|name| (name, spread(3).reserve(100, 64)));
    let cell = three().deploy("shop", named).settle().later(Millis::minutes(30));
    let facts = Box::new(cpus(4));
    let forecast = what_if(&cell, &Supposition::Add { count: 1, facts });
    assert_eq!(replicas(&forecast), [(4, 3), (4, 3), (4, 3), (0, 3)]);
    let added = &forecast.nodes[&node_id("new-1")];
    assert_eq!((added.change, added.before), (Some(NodeChange::Added), None));
    assert!(moves(&forecast).iter().all(|line| line.ends_with("new-1 reschedule")));
    assert!(forecast.takes > Millis::minutes(4), "gradually: {}", forecast.takes);
}

#[test]
fn a_name_that_is_taken_is_not_given_to_another_node() {
    let cell = cell().node("new-1", cpus(4));
    let facts = Box::new(cpus(4));
    let forecast = what_if(&cell, &Supposition::Add { count: 2, facts });
    let names: Vec<&str> = forecast.nodes.keys().map(NodeId::as_str).collect();
    assert_eq!(names, ["new-1", "new-2", "new-3"]);
}

#[test]
fn what_finds_no_room_is_counted_with_its_reason() {
    let cell = three().deploy("shop", [("web", spread(3).reserve(2_000, 64))]).settle();
    let counts = [(service_key("shop/web"), 9)].into();
    let forecast = what_if(&cell, &Supposition::Scale(counts));
    assert_eq!(replicas(&forecast), [(1, 2), (1, 2), (1, 2)]);
    let unplaced = &forecast.plan.unplaced[&service_key("shop/web")];
    assert_eq!((unplaced.missing, unplaced.why.word()), (3, "no_eligible_node"));
    let counts = [(service_key("shop/web"), 1)].into();
    let fewer = what_if(&cell, &Supposition::Scale(counts));
    assert_eq!(replicas(&fewer).iter().map(|(_, after)| after).sum::<u32>(), 1);
}

#[test]
fn a_settled_cell_has_nothing_to_rebalance() {
    let cell = three().deploy("shop", [("web", spread(7)), ("api", spread(2))]).settle();
    let forecast = what_if(&cell.later(Millis::minutes(60)), &Supposition::Rebalance);
    assert_eq!(forecast.plan, Plan::default());
    assert_eq!(forecast.takes, Millis(0));
    assert!(forecast.is_whole);
}

/// A rebalancer that was told that the replicas use so many thousandths of a core, and their nodes all of it together.
fn told(cell: &Cell, uses: &[(&str, u64)]) -> Rebalancer {
    let mut rebalancer = Rebalancer::default();
    let uses: Vec<(ReplicaId, u64)> = uses.iter().map(|(id, cpu)| (replica_id(id), *cpu)).collect();
    for (node, row) in cell.state.nodes() {
        let is_here = |id: &ReplicaId| {
            let at = cell.state.replica(id).and_then(|row| row.assignment.as_ref());
            at.is_some_and(|at| at.node == *node)
        };
        let here = uses.iter().filter(|(id, _)| is_here(id)).map(|(_, cpu)| cpu).sum();
        let cpu = Pressure::of(here, row.facts.capacity.cpu.0);
        let pressure = NodePressure { cpu, memory: Pressure::percent(10) };
        rebalancer.sample(node, Some(PressureSample { at: cell.now, pressure }));
    }
    let usages: Vec<(&ReplicaId, Generation, ReplicaUsage)> = uses
        .iter()
        .map(|(id, cpu)| {
            let at = cell.state.replica(id).unwrap().assignment.as_ref().unwrap();
            let usage = ReplicaUsage { cpu: MilliCpus(*cpu), memory: Bytes(64 << 20) };
            (id, at.generation, usage)
        })
        .collect();
    rebalancer.usage(&cell.state, &Policy::default(), usages);
    rebalancer
}

#[test]
fn a_hot_node_is_relieved_and_what_it_gave_away_is_seen_on_the_other() {
    let one = |name: &'static str| (name, spread(1));
    let cell = cell().node("ash", cpus(4)).deploy("shop", [one("a"), one("b"), one("c")]).settle();
    let cell = cell.node("birch", cpus(4)).later(Millis::minutes(30));
    // Only what is hot is to move: what fills the new node stays away.
    let uses = [("shop/a/1", 1_200), ("shop/b/1", 1_200), ("shop/c/1", 1_200)];
    let mut rebalancer = told(&cell, &uses);
    // Birch says how idle it is as well.
    let idle = NodePressure { cpu: Pressure::percent(1), memory: Pressure::percent(1) };
    rebalancer.sample(&node_id("birch"), Some(PressureSample { at: cell.now, pressure: idle }));
    let forecast = measured(&cell, rebalancer, &Supposition::Rebalance);
    assert!(!moves(&forecast).is_empty());
    let at = |name: &str, side: fn(&NodeForecast) -> Option<NodeUse>| {
        side(&forecast.nodes[&node_id(name)]).unwrap().pressure.unwrap().cpu
    };
    assert_eq!(at("ash", |it| it.before), Pressure::percent(90));
    assert!(at("ash", |it| it.after) <= Pressure::percent(60), "{:?}", forecast.nodes);
    assert!(at("birch", |it| it.after) >= Pressure::percent(30), "{:?}", forecast.nodes);
    let by = [MoveCause::Pressure.word(), MoveCause::Reschedule.word()];
    assert!(moves(&forecast).iter().all(|line| by.iter().any(|cause| line.ends_with(cause))));
}

#[test]
fn one_more_replica_is_taken_to_use_what_others_of_its_service_do() {
    let cell = three().deploy("shop", [("web", spread(2))]).settle();
    let rebalancer = told(&cell, &[("shop/web/1", 400), ("shop/web/2", 400)]);
    let counts = [(service_key("shop/web"), 3)].into();
    let forecast = measured(&cell, rebalancer, &Supposition::Scale(counts));
    for node in forecast.nodes.values() {
        let after = node.after.unwrap();
        assert_eq!((after.replicas, after.pressure.unwrap().cpu), (1, Pressure::percent(10)));
    }
}

#[test]
fn whoever_is_late_is_told_what_is_known_so_far() {
    let cell = three().deploy("shop", [("web", spread(6))]).settle();
    let (signals, policy) = (Signals::default(), Policy::default());
    let known = || KnownCell {
        state: &cell.state,
        signals: &signals,
        policy: &policy,
        rebalancer: Rebalancer::default(),
        now: cell.now,
    };
    let drain = Supposition::Drain(some(["ash"]));
    let mut looks = 0;
    let mut is_late = || {
        looks += 1;
        looks > 2
    };
    let cut = forecast(known(), &drain, &mut is_late).unwrap();
    assert!(!cut.is_whole);
    let whole = forecast(known(), &drain, &mut || false).unwrap();
    assert!(cut.plan.outcomes.len() <= whole.plan.outcomes.len());
}

#[test]
fn planning_it_again_gives_the_same() {
    let cell = three().deploy("shop", [("web", spread(8).reserve(300, 64))]).settle();
    for supposed in [
        Supposition::Drain(some(["cedar"])),
        Supposition::Lose(some(["ash"])),
        Supposition::Add { count: 2, facts: Box::new(cpus(8)) },
    ] {
        assert_eq!(what_if(&cell, &supposed), what_if(&cell, &supposed));
    }
}
