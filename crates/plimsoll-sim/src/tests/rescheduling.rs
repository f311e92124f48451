//! The rescheduler, alone and together with the rebalancer: what it must do, and what it must leave.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reschedule::RescheduleSettings;
use plimsoll_model::testkit::{cpus, node_id, service_key, spread};
use plimsoll_model::{AuditKind, Millis, MoveCause, NodeId, Pressure, ReplicaId, ServiceName};

use super::{deployment, run_quietly, services, small};
use crate::RunOutcome;
use crate::scenario::{Action, Scenario};
use crate::usage::{Shape, Usage};
use crate::world::{EPOCH, World};

/// Every move that began: when, what, from where and to where.
fn moves(outcome: &RunOutcome) -> Vec<(Millis, ReplicaId, MoveCause)> {
    let story = outcome.report.story.iter();
    story
        .filter_map(|line| match &line.what {
            AuditKind::MoveStarted { replica, cause, .. } => {
                Some((line.at, replica.clone(), *cause))
            }
            _ => None,
        })
        .collect()
}

/// How many replicas each node has at the end.
fn counts(scenario: &Scenario, seed: u64) -> BTreeMap<NodeId, usize> {
    let mut world = World::new(scenario, seed);
    while world.step(EPOCH.plus(scenario.length)) {}
    let mut counts: BTreeMap<NodeId, usize> =
        world.state.nodes().keys().map(|node| (node.clone(), 0)).collect();
    for (_, replica) in world.state.replicas() {
        let heading = replica.heading().expect("it is somewhere");
        *counts.get_mut(&heading.node).expect("on a node that is there") += 1;
    }
    counts
}

fn never_below_its_count(outcome: &RunOutcome, from: Millis) {
    assert_eq!(outcome.failure, None);
    let samples = outcome.report.samples.iter().filter(|sample| sample.at > from);
    assert_eq!(samples.map(|sample| sample.missing).max(), Some(0), "nothing was ever missing");
}

/// Three nodes with thirty replicas, and a fourth that joins after twenty minutes.
fn joined(is_one: bool) -> Scenario {
    let mut scenario = Scenario::new("join", Millis::minutes(60));
    for node in ["ash", "birch", "cedar"] {
        scenario.nodes.insert(node_id(node), cpus(8));
    }
    let ten = (0..10).map(|nth| (format!("s{nth}"), spread(3).reserve(100, 64)));
    let one = [("web".to_owned(), spread(30).reserve(100, 64))];
    let named: Vec<_> = if is_one { one.into() } else { ten.collect() };
    let named = named
        .into_iter()
        .map(|(name, spec)| (ServiceName::new(&name).unwrap(), std::sync::Arc::new(spec)));
    scenario.deployments.insert(deployment("d"), named.collect());
    scenario.script.push((Millis::minutes(20), Action::Join(node_id("dogwood"), cpus(8))));
    scenario
}

#[test]
fn a_settled_cell_moves_nothing_in_a_day_however_its_load_swings() {
    let mut scenario = small(Millis::minutes(24 * 60));
    let (low, high, period) = (20, 240, Millis::minutes(60));
    let cpu = Shape::Wave { low, high, period };
    let usage = Usage { cpu, memory: Shape::Constant(64 << 20) };
    scenario.usage.insert(service_key("shop/web"), usage);
    let outcome = run_quietly(&scenario, 1);
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.report.moves, 0);
}

#[test]
fn a_node_that_joins_is_filled_to_within_one_of_even_with_the_fewest_moves() {
    for is_one in [true, false] {
        for seed in 1..=3 {
            let scenario = joined(is_one);
            let outcome = run_quietly(&scenario, seed);
            never_below_its_count(&outcome, Millis::minutes(10));
            let moved = moves(&outcome);
            assert!((7..=9).contains(&moved.len()), "the fewest are 7: {moved:?}");
            let counts: BTreeSet<usize> = counts(&scenario, seed).into_values().collect();
            assert_eq!(counts, [7, 8].into(), "{is_one} {seed}");
        }
    }
}

#[test]
fn leaders_that_last_two_minutes_come_to_the_same() {
    for is_one in [true, false] {
        let mut scenario = joined(is_one);
        scenario.length = Millis::minutes(90);
        for nth in 0..35 {
            scenario.script.push((Millis::minutes(2 * nth), Action::NewLeader));
        }
        let outcome = run_quietly(&scenario, 4);
        never_below_its_count(&outcome, Millis::minutes(10));
        let moved = moves(&outcome);
        assert!((7..=9).contains(&moved.len()), "{moved:?}");
        let counts: BTreeSet<usize> = counts(&scenario, 4).into_values().collect();
        assert_eq!(counts, [7, 8].into());
    }
}

/// What it had is replaced once. Within the hour it is never trusted again, so nothing is sent there to be lost.
#[test]
fn a_node_that_flaps_every_minute_costs_what_it_had_and_nothing_more() {
    let mut scenario = Scenario::new("flapping", Millis::minutes(120));
    for node in ["ash", "birch", "cedar"] {
        scenario.nodes.insert(node_id(node), cpus(8));
    }
    scenario.deployments.insert(deployment("d"), services([("web", spread(30).reserve(100, 64))]));
    for minute in 20..80 {
        let at = Millis::minutes(minute);
        scenario.script.push((at, Action::Crash(node_id("cedar"))));
        scenario.script.push((Millis(at.0 + 30_000), Action::Return(node_id("cedar"))));
    }
    for seed in 1..=3 {
        let outcome = run_quietly(&scenario, seed);
        assert_eq!(outcome.failure, None);
        let moved = moves(&outcome);
        let during = moved.iter().filter(|(at, ..)| *at < Millis::minutes(81));
        let (lost, chosen): (Vec<_>, Vec<_>) =
            during.partition(|(.., cause)| *cause == MoveCause::NodeLost);
        assert!(lost.len() <= 10 && chosen.is_empty(), "{lost:?} {chosen:?}");
    }
}

#[test]
fn a_changed_constraint_moves_what_is_misplaced_and_nothing_else() {
    let mut scenario = Scenario::new("constraint", Millis::minutes(60));
    for (node, disk) in [("ash", "ssd"), ("birch", "ssd"), ("cedar", "hdd"), ("dogwood", "hdd")] {
        scenario.nodes.insert(node_id(node), cpus(8).label("disk", disk));
    }
    let (web, api) = (spread(4).reserve(100, 64), spread(4).reserve(100, 64));
    scenario
        .deployments
        .insert(deployment("d"), services([("web", web.clone()), ("api", api.clone())]));
    let changed = services([("web", web.wants_label("disk", "ssd")), ("api", api)]);
    scenario.script.push((Millis::minutes(20), Action::Deploy(deployment("d"), changed)));
    let outcome = run_quietly(&scenario, 1);
    never_below_its_count(&outcome, Millis::minutes(10));
    let moved = moves(&outcome);
    assert!(moved.iter().all(|(_, id, _)| id.service == service_key("d/web")), "{moved:?}");
    assert!(moved.iter().all(|(.., cause)| *cause == MoveCause::Misplaced), "{moved:?}");
    assert_eq!(moved.len(), 2, "two of four were on the others");
}

/// Load that goes round the services, a node that leaves and comes back, and both loops on it.
#[test]
fn under_rotating_hotspots_neither_loop_undoes_the_other() {
    for seed in 1..=3_u64 {
        let mut scenario = Scenario::new("rotating", Millis::minutes(12 * 60));
        for (node, zone) in [("ash", "a"), ("birch", "a"), ("cedar", "b"), ("dogwood", "b")] {
            scenario.nodes.insert(node_id(node), cpus(4).zone(zone));
        }
        let names = ["one", "two", "three", "four", "five", "six"];
        let specs = names.map(|name| (name, spread(3).reserve(100, 64)));
        scenario.deployments.insert(deployment("d"), services(specs));
        for (nth, name) in names.into_iter().enumerate() {
            let hot = (0..6).map(|turn| if (turn + nth) % 6 == 0 { 3_000 } else { 200 });
            let (step, values) = (Millis::minutes(40), hot.collect());
            let cpu = Shape::Trace { step, values };
            let usage = Usage { cpu, memory: Shape::Constant(64 << 20) };
            scenario.usage.insert(service_key(&format!("d/{name}")), usage);
        }
        for (minute, action) in [
            (60, Action::Crash(node_id("cedar"))),
            (90, Action::Return(node_id("cedar"))),
            (200, Action::Join(node_id("elm"), cpus(4).zone("b"))),
        ] {
            scenario.script.push((Millis::minutes(minute), action));
        }
        let outcome = run_quietly(&scenario, seed);
        assert_eq!(outcome.failure, None);
        let mut last: BTreeMap<ReplicaId, Millis> = BTreeMap::new();
        let moved = moves(&outcome);
        for (at, id, cause) in &moved {
            let before = last.insert(id.clone(), *at);
            let is_chosen = matches!(cause, MoveCause::Pressure | MoveCause::Reschedule);
            let rested = before.is_none_or(|before| at.0 - before.0 >= Millis::minutes(10).0);
            assert!(!is_chosen || rested, "{id} moves twice in its cooldown: {moved:?}");
        }
        let by = |cause| moved.iter().filter(|(.., it)| *it == cause).count();
        println!("{} relieved, {} rescheduled", by(MoveCause::Pressure), by(MoveCause::Reschedule));
        assert!(by(MoveCause::Reschedule) <= 36, "two for each replica at most: {moved:?}");
        let late = moved.iter().filter(|(at, _, cause)| {
            *at > Millis::minutes(8 * 60) && *cause == MoveCause::Reschedule
        });
        assert_eq!(late.count(), 0, "it has an end, though the load has none");
    }
}

/// So much of a node may be reserved, in thousandths of a core.
const TARGET: u64 = 2_000;

/// The case of `peers.md`: 300 nodes three quarters full, 200 empty ones, and no node above half.
fn crowded() -> Scenario {
    let mut scenario = Scenario::new("crowded", Millis::minutes(45));
    for nth in 0..300 {
        scenario.nodes.insert(node_id(&format!("old-{nth}")), cpus(4));
    }
    for nth in 0..5_000_u64 {
        // 100, 150, 200 and 250, in no order.
        let drawn = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
        let spec = spread(1).reserve(100 + 50 * drawn, 64);
        let name = ServiceName::new(format!("s{nth}")).unwrap();
        let part = scenario.deployments.entry(deployment(&format!("d{}", nth / 1_000)));
        part.or_default().insert(name, std::sync::Arc::new(spec));
    }
    let settings = RescheduleSettings { is_paused: false, target: Some(Pressure::percent(50)) };
    scenario.script.push((Millis::minutes(14), Action::Reschedule(settings)));
    for nth in 0..200 {
        let join = Action::Join(node_id(&format!("new-{nth}")), cpus(4));
        scenario.script.push((Millis::minutes(15), join));
    }
    scenario
}

/// What each node has reserved, replica by replica.
fn reserved(world: &World<'_>) -> BTreeMap<NodeId, Vec<u64>> {
    let mut reserved: BTreeMap<NodeId, Vec<u64>> = BTreeMap::new();
    for (id, replica) in world.state.replicas() {
        let heading = replica.heading().expect("it is somewhere");
        let spec = world.state.service(&id.service).and_then(|it| it.desired()).unwrap();
        reserved.entry(heading.node.clone()).or_default().push(spec.request().cpu.0);
    }
    reserved
}

#[test]
fn two_hundred_empty_nodes_relieve_three_hundred_full_ones_with_hardly_a_move_too_many() {
    let scenario = crowded();
    let mut world = World::new(&scenario, 1);
    while world.step(EPOCH.plus(Millis::minutes(14))) {}
    // The fewest that bring a node below the target are its largest.
    let mut fewest = 0;
    for replicas in reserved(&world).values_mut() {
        replicas.sort_unstable();
        while replicas.iter().sum::<u64>() > TARGET {
            replicas.pop();
            fewest += 1;
        }
    }
    while world.step(EPOCH.plus(scenario.length)) {}
    let above = reserved(&world).into_values().filter(|it| it.iter().sum::<u64>() > TARGET).count();
    let is_rescheduled = |what: &AuditKind| matches!(what, AuditKind::Rescheduled { .. });
    let audit = world.state.audit().events().map(|event| &event.what);
    let plan: Vec<&AuditKind> = audit.filter(|what| is_rescheduled(what)).collect();
    println!("{} moves, the fewest are {fewest}, {above} nodes above", plan.len());
    assert_eq!(above, 0);
    assert!(plan.len() <= fewest + 10 && plan.len() <= 1_300, "{} of {fewest}", plan.len());

    let outcome = run_quietly(&scenario, 1);
    never_below_its_count(&outcome, Millis::minutes(10));
    let story = outcome.report.story.iter().map(|line| &line.what);
    let again: Vec<&AuditKind> = story.filter(|what| is_rescheduled(what)).collect();
    assert_eq!(plan, again, "the same plan on every run");
}
