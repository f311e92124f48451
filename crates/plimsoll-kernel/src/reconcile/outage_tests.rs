//! A node is heard, and its container runtime does not answer: what is placed, moved and said meanwhile.

use plimsoll_model::reason::{FilterWord, UnplacedReason, WaitReason};
use plimsoll_model::spec::UpdateOrder;
use plimsoll_model::testkit::{Cell, cell, cpus, global, node_id, replica_id, service_key, spread};
use plimsoll_model::{Change, Millis, MoveCause, ObservedState, Writer};

use crate::endpoints::EndpointEligibility;
use crate::policy::Policy;
use crate::progress::{DeploymentProgress, NoReports, progress};
use crate::testkit::{Passes, decide};

fn three() -> Cell {
    cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4))
}

fn grace() -> Millis {
    Policy::default().runtime_grace
}

/// Where its only replica is, and what made it leave if it does.
fn one(cell: &Cell) -> (String, Option<MoveCause>) {
    let replica = &cell.state.service(&service_key("d/s")).unwrap().replicas;
    let (_, replica) = replica.iter().next().unwrap();
    let node = replica.assignment.as_ref().unwrap().node.to_string();
    (node, replica.successor.as_ref().map(|successor| successor.cause))
}

fn stands(cell: &Cell) -> String {
    let services = cell.state.services().iter();
    match progress(&cell.state, &Policy::default(), services, &NoReports, cell.now) {
        DeploymentProgress::Steady => "steady".to_owned(),
        DeploymentProgress::Working(items) => format!("working: {}", items[0].reason),
        DeploymentProgress::Stuck(items) => format!("stuck: {}", items[0].reason),
    }
}

#[test]
fn nothing_is_placed_on_a_node_whose_runtime_does_not_answer_and_it_says_why() {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4)).runtime_down("ash");
    let cell = cell.deploy("d", [("s", spread(3))]).settle();
    assert!(cell.nodes_of("d/s").iter().all(|node| node.as_str() == "birch"));
    let cell = cell.cordon("birch").deploy("d", [("s", spread(4))]).settle();
    let unplaced = cell.state.service(&service_key("d/s")).unwrap().row.unplaced.clone();
    let UnplacedReason::NoEligibleNode { turned_away, .. } = unplaced.unwrap().why else {
        panic!("it says which nodes turned it away")
    };
    assert_eq!(turned_away.get(&FilterWord::RuntimeUnavailable), Some(&1));
    let cell = cell.runtime_up("ash").settle();
    assert!(cell.nodes_of("d/s").contains(&node_id("ash")), "it answers again");
}

#[test]
fn what_does_not_run_behind_a_dead_runtime_is_replaced_after_the_grace() {
    let cell = three().deploy("d", [("s", spread(1))]).settle();
    let (home, _) = one(&cell);
    let cell = cell.runtime_down(&home).unknown_on(&home).pass();
    assert_eq!(one(&cell), (home.clone(), None), "it has time to come back");
    assert_eq!(decide(&cell).wake, Some(cell.now.plus(grace())));
    assert!(stands(&cell).starts_with("working: the container runtime of"), "{}", stands(&cell));
    let cell = cell.later(Millis(grace().0 - 1)).pass();
    assert_eq!(one(&cell), (home.clone(), None), "a moment before");
    let cell = cell.later(Millis(1)).pass();
    assert_eq!(one(&cell), (home.clone(), Some(MoveCause::RuntimeLost)));
    let cell = cell.obey().settle();
    let (new_home, _) = one(&cell);
    assert_ne!(new_home, home);
}

#[test]
fn what_runs_on_behind_a_dead_runtime_is_not_moved_and_the_deployment_is_not_steady() {
    let cell = three().deploy("d", [("s", spread(3))]).settle();
    assert_eq!(stands(&cell), "steady");
    let cell = cell.runtime_down("ash").later(Millis::minutes(60));
    assert!(decide(&cell).batch.is_empty(), "{:?}", decide(&cell).batch);
    assert_eq!(
        stands(&cell),
        "stuck: the container runtime of ash does not answer: no socket; it runs on, and nothing can be done to it"
    );
    let cell = cell.unknown_on("ash").pass();
    let moving = cell.state.moving().len();
    assert_eq!(moving, 1, "now it ended, and nobody there can start it again");
    let cell = cell.runtime_up("ash");
    assert_ne!(stands(&cell.settle()), "");
}

#[test]
fn requests_are_sent_to_what_runs_on_and_not_to_what_is_gone() {
    let cell = three().deploy("d", [("s", spread(1))]).settle();
    let (home, _) = one(&cell);
    let cell = cell.runtime_down(&home);
    let eligibility = |cell: &Cell| {
        let replica = cell.state.replica(&replica_id("d/s/1")).unwrap();
        EndpointEligibility::of(&cell.state, replica, replica.assignment.as_ref().unwrap())
    };
    assert_eq!(eligibility(&cell), EndpointEligibility::Eligible);
    let cell = cell.unknown_on(&home);
    assert_eq!(
        eligibility(&cell).to_string(),
        "unknown: the container runtime of its node does not answer"
    );
}

#[test]
fn data_stays_on_a_node_whose_runtime_is_lost_and_waits_with_the_reason() {
    let cell = three().deploy("d", [("s", spread(1).volume("v"))]).settle();
    let (home, _) = one(&cell);
    let cell = cell.runtime_down(&home).unknown_on(&home).later(grace()).settle();
    assert_eq!(one(&cell), (home.clone(), None));
    let waiting = |cell: &Cell| cell.state.replica(&replica_id("d/s/1")).unwrap().waiting.clone();
    assert_eq!(waiting(&cell), Some(WaitReason::Stateful));
    let cell = cell.runtime_up(&home).obey().settle();
    assert_eq!(waiting(&cell), None);
    assert_eq!(stands(&cell), "steady");
}

#[test]
fn when_most_runtimes_are_gone_the_fault_is_more_likely_ours() {
    let cell = three().deploy("d", [("s", spread(3))]).settle();
    let cell = cell.runtime_down("ash").unknown_on("ash").runtime_down("birch").unknown_on("birch");
    let cell = cell.later(grace()).settle();
    assert!(cell.state.moving().is_empty());
    let waiting = cell.state.replicas().filter_map(|(_, replica)| replica.waiting.clone()).count();
    assert_eq!(waiting, 2);
    let cell = cell.runtime_up("birch").obey().settle();
    assert!(!cell.nodes_of("d/s").contains(&node_id("ash")), "one is a loss like any other");
}

#[test]
fn a_global_service_stays_and_says_why() {
    let cell = three().deploy("d", [("s", global())]).settle();
    let cell = cell.runtime_down("ash").unknown_on("ash").later(Millis::minutes(5)).settle();
    assert_eq!(cell.nodes_of("d/s").len(), 3);
    assert!(stands(&cell).ends_with("global has no other place for it"), "{}", stands(&cell));
}

#[test]
fn a_move_to_a_node_whose_runtime_is_lost_goes_elsewhere() {
    let cell = three().deploy("d", [("s", spread(1))]).settle();
    let (home, _) = one(&cell);
    let cell = cell.drain(&home).pass();
    let heading = |cell: &Cell| {
        let replica = cell.state.replica(&replica_id("d/s/1")).unwrap();
        replica.heading().unwrap().node.to_string()
    };
    let first = heading(&cell);
    assert_ne!(first, home);
    let cell = cell.runtime_down(&first).pass();
    assert_eq!(heading(&cell), first, "it has time to come back");
    let cell = cell.later(grace()).settle();
    assert!(heading(&cell) != first && heading(&cell) != home, "{}", heading(&cell));
}

#[test]
fn a_rollout_waits_for_what_runs_on_where_nobody_can_renew_it() {
    for order in [UpdateOrder::StartFirst, UpdateOrder::StopFirst] {
        let mut old = spread(1);
        old.update.order = order;
        let mut new = old.clone().image("app:2");
        new.update.order = order;
        let cell = three().deploy("d", [("s", old)]).settle();
        let (home, _) = one(&cell);
        let cell = cell.runtime_down(&home).deploy("d", [("s", new)]).settle();
        assert_eq!(one(&cell), (home.clone(), None), "{order:?}: it serves on");
        let replica = cell.state.replica(&replica_id("d/s/1")).unwrap();
        assert!(replica.is_running() && replica.leaving.is_empty(), "{order:?}");
        let cell = cell.runtime_up(&home).later(Millis::minutes(2)).settle();
        let cell = cell.later(Millis::minutes(2)).settle();
        let spec = cell.state.service(&service_key("d/s")).unwrap();
        let desired = spec.row.desired;
        let runs = spec.replicas.values().next().unwrap().assignment.as_ref().unwrap().spec;
        assert_eq!(Some(runs), desired, "{order:?}: the rollout goes on");
    }
}

#[test]
fn a_runtime_that_returns_with_the_original_calls_the_move_off() {
    let cell = three().deploy("d", [("s", spread(1))]).settle();
    let (home, _) = one(&cell);
    let mut cell = cell.runtime_down(&home).unknown_on(&home).later(grace()).pass();
    assert_eq!(one(&cell).1, Some(MoveCause::RuntimeLost));
    cell.change(Writer::Liveness, Change::SetRuntime { node: node_id(&home), outage: None });
    let generation = cell.state.replica(&replica_id("d/s/1")).unwrap();
    let generation = generation.assignment.as_ref().unwrap().generation;
    cell.report(&replica_id("d/s/1"), generation, ObservedState::Running, None);
    let cell = cell.settle();
    assert_eq!(one(&cell), (home, None));
}
