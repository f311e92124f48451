//! A running cell that is written down, and read again, decides the same.

use plimsoll_api::view::Snapshot;
use plimsoll_kernel::place::Roster;
use plimsoll_kernel::rebalance::{self, CycleOutcome, PressureSample, Rebalancer, ReplicaUsage};
use plimsoll_kernel::{Scope, plan, reconcile};
use plimsoll_model::spec::UpdateOrder;
use plimsoll_model::testkit::{Cell, cell, cpus, global, hosts, node_id, pack, replica_id, spread};
use plimsoll_model::{
    Bytes, Guarded, MilliCpus, NodePressure, ObservedState, Pressure, ServiceSpec, Writer,
};

use super::*;
use crate::decide::PlanReport;
use crate::decided::Decided;

fn signals(cell: &Cell, rebalancer: &Rebalancer) -> Signals {
    let mut signals = Signals::default();
    for (node, sample) in rebalancer.samples() {
        signals.set(node, sample.fresh_pressure(&Policy::default(), cell.now));
    }
    signals
}

fn pass(cell: &Cell, rebalancer: &Rebalancer) -> Vec<Guarded> {
    let policy = Policy::default();
    let mut roster = Roster::new(&cell.state, &signals(cell, rebalancer), &policy);
    reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now).batch
}

fn settled(mut cell: Cell) -> Cell {
    for _ in 0..20 {
        let batch = pass(&cell, &Rebalancer::default());
        cell.apply(Writer::Scheduler, batch).unwrap();
        cell = cell.obey();
    }
    cell
}

/// A bit of everything.
fn services(image: &str) -> [(&'static str, ServiceSpec); 6] {
    let mut single = spread(1).image(image);
    single.update.order = UpdateOrder::StopFirst;
    [
        ("a", pack(5).reserve(200, 128).image(image)),
        ("b", spread(1).volume("data").reserve(300, 64)),
        ("c", spread(1).wants_label("disk", "ssd").host_port(80)),
        ("all", global().image(image)),
        ("on", hosts(1, ["ash"])),
        ("one", single),
    ]
}

/// A cell long after it was placed.
fn mixed() -> Cell {
    let ash = cpus(4).label("disk", "ssd").zone("north");
    let cell = settled(cell().node("ash", ash).deploy("d", services("app:1")));
    let cell = cell.node("birch", cpus(8)).node("cedar", cpus(2)).cordon("cedar");
    settled(cell).later(Millis::minutes(30))
}

/// What nodes and replicas say of themselves, a moment ago.
fn measured(cell: &Cell, rebalancer: &mut Rebalancer, ash: u32) {
    let policy = Policy::default();
    for (node, percent) in [("ash", ash), ("birch", 11), ("cedar", 3)] {
        let cpu = Pressure::from_millionths(percent * 10_000 + 7);
        let pressure = NodePressure::new(cpu, Pressure::percent(percent / 2));
        let sample = PressureSample { at: Timestamp(cell.now.0 - 1_234), pressure };
        rebalancer.sample(&node_id(node), Some(sample));
    }
    let used: Vec<_> = (1..=5)
        .filter_map(|nth| {
            let id = replica_id(&format!("d/a/{nth}"));
            let generation = cell.state.replica(&id)?.assignment.as_ref()?.generation;
            let usage = ReplicaUsage { cpu: MilliCpus(499 + 100 * nth), memory: Bytes(77 << 20) };
            Some((id, generation, usage))
        })
        .collect();
    let used = used.iter().map(|(id, generation, usage)| (id, *generation, *usage));
    rebalancer.usage(&cell.state, &policy, used);
}

/// Written down and read again.
fn exported(cell: &Cell, rebalancer: &Rebalancer) -> Case {
    let (memory, cycle) = rebalancer.next_cycle(&cell.state, &Policy::default(), cell.now);
    let snapshot = Snapshot::of(&cell.state, &memory, &cycle);
    let text = serde_json::to_string_pretty(&snapshot).unwrap();
    let input = InputText { name: "snapshot.json".to_owned(), text };
    let case = of_text(input, Path::new(".")).unwrap();
    let read = case.measured().unwrap();
    let kept = |memory: &RebalanceMemory| {
        let trends = memory.nodes().iter().map(|it| (it.node.clone(), it.mean, it.peak, it.hot));
        (trends.collect::<Vec<_>>(), memory.moving().clone())
    };
    assert_eq!(kept(&read.memory), kept(&memory), "with all the digits there are");
    assert_eq!(read.cycles, [cycle]);
    case
}

/// All of it but which generation it was decided on: a replay numbers its own.
fn told(outcome: &CycleOutcome) -> String {
    let CycleOutcome::Moved { change, relief } = outcome else { return format!("{outcome:?}") };
    format!("{:?} {relief:?}", change.change)
}

fn changes(batch: &[Guarded]) -> Vec<String> {
    batch.iter().map(|it| format!("{:?}", it.change)).collect()
}

fn next_pass(case: &Case) -> Vec<String> {
    let CellSnapshot { state, signals, policy, now } = &case.cell;
    changes(&plan::next_pass(state, signals, policy, *now).unwrap().decision.batch)
}

#[test]
fn cycles_of_a_cell_that_is_written_down_decide_the_same() {
    let (mut cell, mut rebalancer) = (mixed(), Rebalancer::default());
    let policy = Policy::default();
    let mut moved = 0;
    for (nth, ash) in [96, 96, 97, 99, 99, 99, 99, 99, 99, 99, 99, 99, 70].into_iter().enumerate() {
        cell = cell.later(Millis::seconds(30));
        measured(&cell, &mut rebalancer, ash);
        let case = exported(&cell, &rebalancer);
        let Measured { memory, cycles, moves_take } = case.measured().unwrap().clone();
        let state = case.cell.state.clone();
        let steps = rebalance::replay(state, memory, &cycles, moves_take, &policy).unwrap();
        let roster = Roster::new(&cell.state, &Signals::default(), &policy);
        let outcome = rebalancer.cycle(&cell.state, &roster, &policy, cell.now);
        assert_eq!(told(&steps[0].outcome), told(&outcome), "cycle {nth}");
        if let CycleOutcome::Moved { change, .. } = &outcome {
            cell.apply(Writer::Scheduler, vec![(**change).clone()]).unwrap();
            moved += 1;
        } else if nth % 3 == 0 {
            cell = cell.obey();
            let batch = pass(&cell, &rebalancer);
            cell.apply(Writer::Scheduler, batch).unwrap();
            cell = cell.obey();
        }
    }
    assert!(moved > 1, "{moved}");
}

#[test]
#[expect(clippy::large_stack_arrays, reason = "cells are large, and these are few")]
fn passes_over_a_cell_that_is_written_down_decide_the_same() {
    let mut rebalancer = Rebalancer::default();
    let settled = mixed();
    measured(&settled, &mut rebalancer, 80);
    let scaled = |replicas| {
        let [_, b, c, all, on, one] = services("app:1");
        let a = ("a", pack(replicas).reserve(200, 128));
        settled.clone().deploy("d", [a, b, c, all, on, one, ("new", spread(3).gpus(1))])
    };
    let mut rolling = settled.clone().deploy("d", services("app:2"));
    for (case, cell) in [
        ("nothing to do", settled.clone()),
        ("some more, and some that find no room", scaled(9)),
        ("fewer", scaled(2)),
        ("a node is drained", settled.clone().drain("ash")),
        ("a node is lost", settled.clone().down("ash").later(Millis::seconds(10))),
        ("a node is down and may come back", settled.clone().down("ash").later(Millis::seconds(2))),
        ("a new spec", rolling.clone()),
        ("a step of a rollout", {
            let batch = pass(&rolling, &rebalancer);
            rolling.apply(Writer::Scheduler, batch).unwrap();
            rolling.clone()
        }),
        ("a step that is done", rolling.clone().obey()),
    ] {
        let case_of = exported(&cell, &rebalancer);
        assert_eq!(next_pass(&case_of), changes(&pass(&cell, &rebalancer)), "{case}");
    }
}

#[test]
fn the_names_of_replicas_that_ended_are_not_given_again() {
    let cell = settled(mixed().deploy("d", [("a", pack(1)), ("none", spread(0))]));
    let cell = cell.deploy("d", [("a", pack(2)), ("none", spread(1))]);
    let rebalancer = Rebalancer::default();
    let live = changes(&pass(&cell, &rebalancer));
    assert!(live[0].contains("d-a-6"), "{live:?}");
    assert_eq!(next_pass(&exported(&cell, &rebalancer)), live);
}

#[test]
fn room_that_is_still_held_by_what_stops_is_not_given_away() {
    let cell = cell().node("ash", cpus(1)).deploy("d", [("s", spread(1).reserve(900, 64))]);
    let mut cell = settled(cell).undeploy("d").deploy("e", [("s", spread(1).reserve(900, 64))]);
    let batch = pass(&cell, &Rebalancer::default());
    cell.apply(Writer::Scheduler, batch).unwrap();
    let case = exported(&cell, &Rebalancer::default());
    let pass = plan::next_pass(&case.cell.state, &case.cell.signals, &case.cell.policy, cell.now);
    let plan = pass.unwrap().plan;
    assert_eq!(plan.outcomes, [], "what stands for it is not shown");
    assert_eq!(plan.unplaced.len(), 1);
}

#[test]
fn what_nodes_said_of_replicas_is_written_down() {
    let mut cell = mixed();
    let id = replica_id("d/a/1");
    let generation = cell.state.replica(&id).unwrap().assignment.as_ref().unwrap().generation;
    cell.report(&id, generation, ObservedState::Degraded, None);
    let case = exported(&cell, &Rebalancer::default());
    let replica = case.cell.state.replica(&id).unwrap();
    let seen = replica.observation(replica.assignment.as_ref().unwrap()).unwrap();
    assert_eq!(seen.state, ObservedState::Degraded);
    assert_eq!(
        replica.assignment.as_ref().unwrap().at,
        cell.state.replica(&id).unwrap().assignment.as_ref().unwrap().at
    );
}

/// A global service whose rollout to `app:3` has failed on cedar.
fn failed_rollout(rows: &[&str]) -> Case {
    let text = format!(
        "nodes:\n\
         - {{name: ash, cpus: 4, memory: 8gb}}\n\
         - {{name: birch, cpus: 4, memory: 8gb}}\n\
         - {{name: cedar, cpus: 4, memory: 8gb}}\n\
         deployments:\n\
         - {{name: d, services: {{all: {{image: app:3, placement: global, update: {{failure_action: rollback}}}}}}}}\n\
         replicas:\n{}\n",
        rows.join("\n")
    );
    of_text(InputText { name: "case.yaml".to_owned(), text }, Path::new(".")).unwrap()
}

fn image_before(case: &Case) -> Option<String> {
    let service = case.cell.state.services().values().next()?;
    let from = service.row.rollout.as_ref()?.from.as_ref()?;
    Some(from.spec.container.image.clone())
}

#[test]
fn the_order_of_rows_says_nothing_of_what_a_service_goes_back_to() {
    const CEDAR: &str = "- {service: d/all, node: cedar, state: failed}";
    for (case, ash, birch, expected) in [
        (
            "what was given last",
            "- {service: d/all, node: ash, image: app:1, at: 2000}",
            "- {service: d/all, node: birch, image: app:2, at: 1000}",
            "app:1",
        ),
        (
            "whoever has it",
            "- {service: d/all, node: ash, image: app:1, at: 1000}",
            "- {service: d/all, node: birch, image: app:2, at: 2000}",
            "app:2",
        ),
        (
            "one that all of them have",
            "- {service: d/all, node: ash, image: app:2}",
            "- {service: d/all, node: birch, image: app:2}",
            "app:2",
        ),
    ] {
        for rows in [
            [ash, birch, CEDAR],
            [ash, CEDAR, birch],
            [birch, ash, CEDAR],
            [birch, CEDAR, ash],
            [CEDAR, ash, birch],
            [CEDAR, birch, ash],
        ] {
            let read = failed_rollout(&rows);
            assert_eq!(image_before(&read).as_deref(), Some(expected), "{case}: {rows:?}");
            let aborts = next_pass(&read).iter().filter(|it| it.contains("AbortRollout")).count();
            assert_eq!(aborts, 1, "{case}: {rows:?}");
        }
    }
    let numbered = |first: &str, second: &str| {
        let text = format!(
            "nodes: [{{name: ash, cpus: 4, memory: 8gb}}]\n\
             deployments: [{{name: d, services: {{s: {{image: app:2, replicas: 2}}}}}}]\n\
             replicas: [{{service: d/s, index: 1, node: ash{first}}}, \
             {{service: d/s, index: 2, node: ash{second}}}]\n"
        );
        of_text(InputText { name: "case.yaml".to_owned(), text }, Path::new(".")).unwrap()
    };
    for (first, second) in [(", image: app:1", ""), ("", ", image: app:1")] {
        let read = numbered(first, second);
        assert_eq!(image_before(&read).as_deref(), Some("app:1"), "whichever index has it");
    }
}

#[test]
fn a_plan_says_that_it_aborts_a_rollout() {
    let read = failed_rollout(&[
        "- {service: d/all, node: ash, image: app:2}",
        "- {service: d/all, node: birch, image: app:2}",
        "- {service: d/all, node: cedar, state: failed}",
    ]);
    let report = PlanReport::of(&Decided::new(read.cell).unwrap());
    let told: Vec<_> = report.plan.rollouts.iter().collect();
    let [stop] = told[..] else { panic!("{told:?}") };
    assert_eq!(
        (stop.service.as_str(), stop.result.as_str(), stop.detail.as_str()),
        ("d/all", "aborted", "1 of 3 replicas failed")
    );
}
