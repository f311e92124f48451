use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, spread};
use plimsoll_model::{Change, Millis, ObservedCode, Writer};

use super::*;
use crate::testkit::Passes;

/// A replica on each of two nodes, both running.
fn shop() -> Cell {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    cell.deploy("shop", [("web", spread(2))]).settle()
}

/// The replica on ash.
fn on_ash(cell: &Cell) -> String {
    let service = cell.state.services().values().next().unwrap();
    let is_on_ash = |replica: &&Replica| {
        let held = replica.assignment.as_ref().or(replica.leaving.first());
        held.is_some_and(|held| held.node == node_id("ash"))
    };
    let replica = service.replicas.values().find(is_on_ash).unwrap();
    let condition =
        ReplicaCondition::of(&cell.state, &Policy::default(), service, replica, cell.now);
    format!("{}: {condition}", condition.word())
}

#[test]
#[expect(clippy::large_stack_arrays, reason = "cells are large, and these are few")]
fn a_replica_has_one_condition_and_what_must_end_first_is_named_first() {
    let grace = Policy::default().loss_grace;
    let renewed = |cell: Cell| cell.deploy("shop", [("web", spread(2).image("app:2"))]);
    let stateful = |cell: Cell| cell.deploy("shop", [("web", spread(2).volume("data"))]);
    for (case, cell, expected) in [
        ("it is as it should be", shop(), "settled: running and healthy"),
        (
            "it runs an older spec",
            renewed(shop()),
            "outdated: its turn to get the new spec will come",
        ),
        (
            "its node is drained",
            shop().drain("ash"),
            "misplaced: its turn to leave ash will come: it is being drained",
        ),
        ("its node is down", shop().down("ash"), "node_down: ash is down"),
        ("its node is lost", shop().down("ash").later(grace), "node_down: ash is down"),
        (
            "its node is drained and it should change: it changes where it goes",
            renewed(shop()).drain("ash"),
            "misplaced: its turn to leave ash will come: it is being drained",
        ),
        (
            "its data is on a node that is drained",
            stateful(shop()).settle().drain("ash").pass(),
            "stateful: its data lives on its node",
        ),
        ("nobody asks for it", shop().undeploy("shop"), "retired: it ends on ash"),
        (
            "it was ended",
            shop().undeploy("shop").pass(),
            "stopping: its old container stops on ash",
        ),
        ("it moves", shop().drain("ash").pass(), "misplaced: birch was told to start it"),
    ] {
        assert_eq!(on_ash(&cell), expected, "{case}");
    }
}

#[test]
fn the_grace_of_a_node_ends_to_the_millisecond() {
    let grace = Policy::default().loss_grace;
    let cell = shop().down("ash");
    let (state, since) = (&cell.state, cell.now);
    let service = state.services().values().next().unwrap();
    let replica = service
        .replicas
        .values()
        .find(|it| it.assignment.as_ref().is_some_and(|held| held.node == node_id("ash")));
    let at = |after: Millis| {
        let now = since.plus(after);
        ReplicaCondition::of(state, &Policy::default(), service, replica.unwrap(), now)
    };
    let (node, until) = (node_id("ash"), since.plus(grace));
    assert_eq!(at(Millis(grace.0 - 1)), ReplicaCondition::InGrace { node: node.clone(), until });
    assert_eq!(at(grace), ReplicaCondition::Lost { node });
}

#[test]
fn what_does_not_run_says_what_its_node_saw_and_whether_it_is_replaced() {
    let mut cell = shop();
    let ids = ["shop/web/1", "shop/web/2"].map(replica_id);
    for id in &ids {
        let generation = cell.state.replica(id).unwrap().assignment.as_ref().unwrap().generation;
        let code = Some(ObservedCode::Exited { status: Some(3) });
        cell.report(id, generation, ObservedState::Failed, code);
    }
    assert_eq!(on_ash(&cell), "exited: it exited with status 3");
    let due = |cell: &Cell| {
        let service = cell.state.services().values().next().unwrap();
        let replica = service.replicas.values().next().unwrap();
        match ReplicaCondition::of(&cell.state, &Policy::default(), service, replica, cell.now) {
            ReplicaCondition::Starting { replaced_for, .. } => replaced_for,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(due(&cell), None);
    let mut renewed = cell.clone();
    renewed.change(Writer::Operator, Change::Renew { replica: ids[0].clone() });
    assert_eq!(due(&renewed), Some(MoveCause::Restart));
    let newer = cell.deploy("shop", [("web", spread(2).image("app:2"))]);
    assert_eq!(due(&newer), Some(MoveCause::Outdated));
}
