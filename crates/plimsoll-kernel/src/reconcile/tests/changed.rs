//! Services that run, and are applied, restarted or given up.

use super::*;
use crate::agent;

#[test]
fn a_service_that_becomes_global_keeps_running_until_the_new_ones_do() {
    let cell = three().deploy("shop", [("web", spread(3))]).settle();
    let cell = cell.deploy("shop", [("web", global())]).pass();
    assert_eq!(cell.placed("shop/web").len(), 6);
    let cell = cell.obey().settle();
    assert_eq!(cell.placed("shop/web"), ["ash@ash", "birch@birch", "cedar@cedar"]);
    let cell = cell.deploy("shop", [("web", spread(2))]).settle();
    assert_eq!(cell.placed("shop/web").len(), 2, "and back: {:?}", cell.placed("shop/web"));
}

#[test]
fn a_lost_node_that_is_removed_is_replaced_at_once() {
    let mut cell = three().deploy("shop", [("web", spread(3))]).settle().down("cedar");
    cell.change(Writer::Operator, Change::RemoveNode { node: node_id("cedar") });
    let cell = cell.settle();
    assert_eq!(cell.nodes_of("shop/web"), names(["ash", "birch"]));
    assert!(cell.state.load(&node_id("cedar")).is_none(), "nothing waits for a node that is gone");
}

/// Every replica of the service fails for good.
fn exhaust(mut cell: Cell, service: &str) -> Cell {
    let key = service_key(service);
    let given = cell.state.service(&key).unwrap().replicas.iter();
    let given: Vec<_> = given
        .map(|(slot, replica)| {
            let generation = replica.heading().unwrap().generation;
            (ReplicaId::new(key.clone(), slot.clone()), generation)
        })
        .collect();
    for (id, generation) in given {
        let last = Box::new(ObservedCode::Exited { status: Some(1) });
        let code = ObservedCode::RestartExhausted { tries: 3, last };
        cell.report(&id, generation, ObservedState::Failed, Some(code));
    }
    cell
}

#[test]
fn an_identical_apply_tries_again_what_was_given_up_and_nothing_else() {
    let services = || [("bad", spread(2)), ("good", spread(2))];
    let cell = three().deploy("shop", services()).settle();
    let before = cell.placed("shop/good");
    let cell = exhaust(cell, "shop/bad");
    assert!(decide(&cell).batch.is_empty(), "what was given up is left alone");
    let mut cell = cell.deploy("shop", services());
    assert_eq!(cell.state.deployments().values().next().unwrap().revision.0, 1);
    let generations = |cell: &Cell, service: &str| -> Vec<u64> {
        let service = cell.state.service(&service_key(service)).unwrap();
        service.replicas.values().map(|r| r.assignment.as_ref().unwrap().generation.0).collect()
    };
    let (bad, good) = (generations(&cell, "shop/bad"), generations(&cell, "shop/good"));
    for _ in 0..2 {
        cell = cell.pass();
    }
    assert!(generations(&cell, "shop/bad").iter().all(|new| !bad.contains(new)), "with new tries");
    assert_eq!((generations(&cell, "shop/good"), cell.placed("shop/good")), (good, before));
    assert!(decide(&cell).batch.is_empty(), "once each: {:?}", decide(&cell).batch);
}

#[test]
fn a_restart_starts_the_new_one_beside_the_old_one_replica_at_a_time() {
    let mut cell = three().deploy("shop", [("web", spread(2))]).settle();
    let ids = [replica_id("shop/web/1"), replica_id("shop/web/2")];
    for replica in ids.clone() {
        cell.change(Writer::Operator, Change::Renew { replica });
    }
    let old = ids.clone().map(|id| cell.state.replica(&id).unwrap().assignment.clone().unwrap());
    let cell = cell.pass();
    let moving = ids.iter().filter(|id| cell.state.replica(id).unwrap().successor.is_some());
    assert_eq!(moving.count(), 1, "one at a time");
    assert!(ids.iter().all(|id| cell.state.replica(id).unwrap().is_running()), "none stopped");
    let cell = cell.obey().settle();
    for (id, old) in ids.iter().zip(old) {
        let new = cell.state.replica(id).unwrap().assignment.clone().unwrap();
        assert!(new.generation > old.generation && new.node == old.node, "{id} is fresh");
    }
}

#[test]
fn going_back_to_the_spec_that_runs_starts_nothing_anew() {
    let mut cell = three().deploy("shop", [("web", spread(2))]).settle();
    let running = cell.placed("shop/web");
    let other = spread(2).image("bad");
    cell = cell.deploy("shop", [("web", other)]).pass();
    let (id, next) = cell
        .state
        .replicas()
        .find_map(|(id, replica)| Some((id, replica.successor.clone()?.assignment)))
        .unwrap();
    cell.report(&id, next.generation, ObservedState::Failed, None);
    cell = cell.pass();
    cell.report(&id, next.generation, ObservedState::Stopped, None);
    let cell = cell.deploy("shop", [("web", spread(2))]);
    let touches = |cell: &Cell| decide(cell).batch.iter().any(|it| it.change.replica().is_some());
    assert!(!touches(&cell), "all of it runs as it should");
    assert_eq!(cell.placed("shop/web"), running);
}

#[test]
fn a_late_step_of_a_replica_that_ends_in_the_same_pass_is_no_part_of_its_rollout() {
    let all = |image: &str| global().image(image);
    let cell = three().deploy("d", [("all", all("a"))]).settle();
    // Every step is begun and none ever runs; the node of one of them is drained when they are late.
    let cell = cell.deploy("d", [("all", all("b"))]).pass().drain("ash");
    let cell = cell.later(Millis::minutes(20)).pass();
    let late = cell.state.audit().events().filter(|event| event.what.word() == "retired").count();
    assert_eq!(late, 1, "one decision does both, and can be applied");
}

/// The spec asks for so many processors of its node.
fn wants_cpus(cpus: u64) -> ServiceSpec {
    spread(1).volume("d").reserve(cpus * 1_000, 0)
}

#[test]
fn a_raised_reservation_waits_for_room_in_its_own_place() {
    let cell = cell()
        .node("ash", cpus(4))
        .deploy("a", [("x", spread(1).reserve(2_000, 0))])
        .deploy("d", [("s", wants_cpus(1))])
        .settle();
    let cell = cell.deploy("d", [("s", wants_cpus(3))]).settle();
    let replica = cell.state.replica(&replica_id("d/s/1")).unwrap();
    let waiting = replica.waiting.clone().unwrap();
    assert_eq!(
        waiting.to_string(),
        "the new copy does not fit on its node: asks for 3 cpu, 2 free"
    );
    assert!(replica.is_running(), "the old copy runs on");
    let cell = cell.undeploy("a").settle();
    let replica = cell.state.replica(&replica_id("d/s/1")).unwrap();
    assert_eq!(replica.waiting, None);
    let reserved = cell.state.load(&node_id("ash")).unwrap().reserved;
    assert_eq!(reserved.cpu.0, 3_000, "it has what it asks for, once there is room");
}

#[test]
fn a_host_port_that_another_replica_holds_is_waited_for() {
    let cell = cell()
        .node("ash", cpus(4))
        .deploy("a", [("x", spread(1).host_port(80))])
        .deploy("d", [("s", spread(1).host_port(81)), ("g", global().host_port(82))])
        .settle();
    let cell =
        cell.deploy("d", [("s", spread(1).host_port(80)), ("g", global().host_port(81))]).settle();
    let waits = |id: &str| {
        let waiting = cell.state.replica(&replica_id(id)).unwrap().waiting.clone();
        waiting.map(|waiting| waiting.to_string()).unwrap_or_default()
    };
    assert_eq!(waits("d/s/1"), "the new copy does not fit on its node: a-x-1 holds 80/tcp");
    assert_eq!(waits("d/g/@ash"), "the new copy does not fit on its node: d-s-1 holds 81/tcp");
    let cell = cell.undeploy("a").settle();
    assert!(cell.state.replicas().all(|(_, replica)| replica.waiting.is_none()));
}

#[test]
fn what_may_leave_its_node_finds_the_room_it_asks_for_elsewhere() {
    let stop_first = |cpu| {
        let mut spec = spread(1).reserve(cpu, 0);
        spec.update.order = UpdateOrder::StopFirst;
        spec
    };
    let cell = cell().node("ash", cpus(4)).deploy("d", [("s", stop_first(1_000))]).settle();
    let cell = cell.node("birch", cpus(16)).deploy("d", [("s", stop_first(8_000))]).settle();
    assert_eq!(cell.nodes_of("d/s"), names(["birch"]));
}

#[test]
fn global_and_replicated_change_into_each_other_over_one_port() {
    let kinds = [global().host_port(80), spread(3).host_port(80)];
    for (before, after) in [(0, 1), (1, 0)] {
        let cell = three().deploy("d", [("s", kinds[before].clone())]).settle();
        let mut cell = cell.deploy("d", [("s", kinds[after].clone())]);
        let mut fewest = usize::MAX;
        for _ in 0..60 {
            cell = cell.pass().obey();
            let running = cell.state.replicas().filter(|(_, it)| it.is_running()).count();
            fewest = fewest.min(running);
        }
        let cell = cell.settle();
        assert_eq!(cell.placed("d/s").len(), 3);
        let is_global = cell.placed("d/s").contains(&"ash@ash".to_owned());
        assert_eq!(is_global, after == 0, "{:?}", cell.placed("d/s"));
        assert!(fewest >= 1, "one after the other makes way: {fewest}");
    }
}

#[test]
fn a_replica_whose_volume_a_rollout_drops_does_not_leave_it_behind() {
    let cell = three().deploy("d", [("s", spread(2).volume("v"))]).settle();
    let before = cell.nodes_of("d/s");
    let cell = cell.deploy("d", [("s", spread(2).image("app:2"))]).pass();
    let lost = before.first().unwrap().clone();
    let cell = cell.down(lost.as_str()).later(Millis::minutes(1)).settle();
    assert_eq!(cell.nodes_of("d/s"), before, "the rollout may be taken back: nothing moves");
}

#[test]
fn a_cordoned_host_is_there_for_what_it_runs() {
    let cell = three().deploy("d", [("s", hosts(2, ["ash", "birch"]))]).settle();
    let cell =
        cell.cordon("ash").deploy("d", [("s", hosts(3, ["ash", "birch", "cedar"]))]).settle();
    assert_eq!(cell.nodes_of("d/s"), names(["ash", "birch", "cedar"]));
}

#[test]
fn a_service_that_becomes_global_where_no_node_is_meant_for_it_ends() {
    let cell = three().deploy("d", [("s", spread(2))]).settle();
    let cell = cell.deploy("d", [("s", global().wants_label("disk", "ssd"))]).settle();
    assert_eq!(cell.placed("d/s").len(), 0);
}

/// It was `global`, and waited for a port of its node when that was drained by force.
#[test]
fn one_of_the_former_kind_that_was_stopped_by_force_is_not_waited_for() {
    let cell = cell()
        .node("ash", cpus(4))
        .node("birch", cpus(4))
        .deploy("a", [("x", hosts(1, ["ash"]).host_port(80))])
        .deploy("d", [("s", global().host_port(82))])
        .settle();
    let cell = cell.deploy("d", [("s", global().host_port(80))]).settle();
    let id = replica_id("d/s/@ash");
    let held = |cell: &Cell| cell.state.replica(&id).and_then(|it| it.assignment.clone());
    assert!(cell.state.replica(&id).unwrap().waiting.is_some(), "the port is taken on ash");
    // The new one is placed and does not run: until it does, those of the former kind stay.
    let mut cell = cell.deploy("d", [("s", spread(1).host_port(82))]).pass();
    assert!(held(&cell).is_some());
    let (node, timeout, force) = (node_id("ash"), Millis::minutes(5), true);
    cell.change(Writer::Operator, Change::Drain { node: node.clone(), timeout, force });
    assert_eq!(agent::wanted(&cell.state, &node, &id).count(), 0, "its node stops it");
    let generation = held(&cell).unwrap().generation;
    cell.report(&id, generation, ObservedState::Stopped, None);
    let cell = cell.pass();
    assert_eq!(held(&cell), None, "it serves nobody, and gives its room away");
    assert!(!cell.state.replica(&replica_id("d/s/1")).unwrap().is_running());
}

#[test]
fn what_fails_wherever_it_goes_is_tried_ever_more_seldom() {
    let cell = three().deploy("d", [("s", spread(1))]).settle();
    let home = cell.nodes_of("d/s").first().unwrap().clone();
    let mut cell = cell.down(home.as_str());
    let mut moves = 0;
    for _ in 0..600 {
        cell = cell.later(Millis::seconds(1)).pass();
        let id = replica_id("d/s/1");
        let successor = cell.state.replica(&id).unwrap().successor.clone();
        if let Some(successor) = successor {
            moves += 1;
            let generation = successor.assignment.generation;
            cell.report(&id, generation, ObservedState::Failed, None);
        }
    }
    assert!((5..=15).contains(&moves), "ten minutes of failures: {moves} moves");
}

#[test]
fn a_replica_whose_step_failed_can_be_restarted_once_the_rollout_is_taken_back() {
    let cell = three().deploy("d", [("s", spread(2).image("a"))]).settle();
    let mut cell = cell.deploy("d", [("s", spread(2).image("b"))]).pass();
    let id = replica_id("d/s/1");
    let generation =
        cell.state.replica(&id).unwrap().successor.clone().unwrap().assignment.generation;
    cell.report(&id, generation, ObservedState::Failed, None);
    let mut cell = cell.pass().obey().settle();
    let before = cell.state.replica(&id).unwrap().assignment.clone().unwrap().generation;
    cell.change(Writer::Operator, Change::Renew { replica: id.clone() });
    let cell = cell.settle();
    let after = cell.state.replica(&id).unwrap().assignment.clone().unwrap().generation;
    assert!(after > before, "it was asked for");
}
