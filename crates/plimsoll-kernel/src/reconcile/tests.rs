use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reason::{FilterWord, GpusAsked, Shortage, UnplacedReason, WaitReason};
use plimsoll_model::spec::UpdateOrder;
use plimsoll_model::testkit::{
    Cell, cell, cpus, global, hosts, node_id, pack, replica_id, service_key, spread,
};
use plimsoll_model::{
    AuditKind, Capability, Change, Generation, Millis, NodeId, ObservedCode, ObservedState,
    ReplicaId, ServiceSpec, Writer,
};

use crate::testkit::{Passes, decide};

fn three() -> Cell {
    cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4))
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<NodeId> {
    names.into_iter().map(node_id).collect()
}

/// A pseudo-random name that a person might have typed.
fn word(seed: u64) -> String {
    let letters = b"abcdefghijklmnopqrstuvwxyz0123456789-";
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::from("n");
    for _ in 0..seed % 9 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        text.push(letters[usize::try_from(x % letters.len() as u64).unwrap()] as char);
    }
    text
}

#[test]
fn three_replicas_on_three_nodes_are_on_three_nodes_whatever_their_names() {
    for seed in 0..1_000 {
        let (deployment, service) = (word(seed), word(seed + 7_000));
        let cell = three().deploy(&deployment, [(&service, spread(3))]).settle();
        let key = format!("{deployment}/{service}");
        assert_eq!(cell.nodes_of(&key), names(["ash", "birch", "cedar"]), "{key}");
    }
}

#[test]
fn a_node_that_loses_its_label_gives_away_what_wants_it() {
    let ssd = || cpus(4).label("disk", "ssd");
    let cell = cell().node("ash", ssd()).node("birch", cpus(4));
    let cell = cell.deploy("db", [("pg", spread(1).wants_label("disk", "ssd"))]).settle();
    assert_eq!(cell.nodes_of("db/pg"), names(["ash"]));
    let cell = cell.node("ash", cpus(4)).node("birch", ssd()).settle();
    assert_eq!(cell.nodes_of("db/pg"), names(["birch"]));
}

#[test]
fn three_replicas_on_three_nodes_in_uneven_zones_are_on_three_nodes_too() {
    for seed in 0..300 {
        let cell = cell()
            .node("ash", cpus(4).zone("north"))
            .node("birch", cpus(4).zone("north"))
            .node("cedar", cpus(4).zone("south"))
            .deploy(&word(seed), [("web", spread(3))])
            .settle();
        let key = format!("{}/web", word(seed));
        assert_eq!(cell.nodes_of(&key), names(["ash", "birch", "cedar"]), "{key}");
    }
}

#[test]
fn what_is_dropped_as_surplus_does_not_count_where_the_rest_goes() {
    let four = cell()
        .node("ash", cpus(4).zone("a"))
        .node("birch", cpus(4).zone("b"))
        .node("cedar", cpus(4).zone("b"))
        .node("dogwood", cpus(4).zone("a"))
        .deploy("shop", [("web", spread(4))])
        .settle();
    let cell = four.down("cedar").later(Millis::minutes(1)).drain("dogwood");
    let cell = cell.deploy("shop", [("web", spread(2))]).settle();
    assert_eq!(cell.nodes_of("shop/web"), names(["ash", "birch"]));
}

#[test]
fn hosts_changed_from_a_b_to_b_c_moves_only_what_must_move() {
    let cell = three().deploy("shop", [("web", hosts(2, ["ash", "birch"]))]).settle();
    assert_eq!(cell.nodes_of("shop/web"), names(["ash", "birch"]));
    let before = cell.placed("shop/web");
    let stays = before.iter().find(|place| place.ends_with("@birch")).unwrap().clone();
    let cell = cell.deploy("shop", [("web", hosts(2, ["birch", "cedar"]))]).settle();
    assert_eq!(cell.nodes_of("shop/web"), names(["birch", "cedar"]));
    assert!(cell.placed("shop/web").contains(&stays), "{stays} was left alone");
    let moves = cell.state.audit().events();
    let moves = moves.filter(|event| matches!(event.what, AuditKind::MoveStarted { .. })).count();
    assert_eq!(moves, 1);
}

#[test]
fn pack_counts_replicas_of_any_service_and_counts_within_the_pass() {
    let cell = three().deploy("a", [("w", hosts(1, ["ash"])), ("x", hosts(1, ["ash"]))]).settle();
    let cell = cell.deploy("b", [("y", pack(1))]).settle();
    assert_eq!(cell.placed("b/y"), ["1@birch"], "fewest of any service, then by name");
    let cell = cell.deploy("c", [("z", pack(3))]).pass();
    assert_eq!(
        cell.placed("c/z"),
        ["1@cedar", "2@birch", "3@cedar"],
        "one pass counts what it placed"
    );
}

#[test]
fn global_on_three_nodes_with_one_lost_keeps_id_and_place_of_the_other_two() {
    let cell = three().deploy("mon", [("agent", global())]).settle();
    let places = ["ash@ash", "birch@birch", "cedar@cedar"];
    assert_eq!(cell.placed("mon/agent"), places);
    let before = cell.state.clone();
    let cell = cell.down("cedar").later(Millis::minutes(1)).settle();
    assert_eq!(cell.placed("mon/agent"), places, "the lost node keeps its own, should it return");
    for node in ["ash", "birch"] {
        let id = replica_id(&format!("mon/agent/@{node}"));
        assert_eq!(cell.state.replica(&id), before.replica(&id));
    }
    let cell = cell.node("dogwood", cpus(4)).settle();
    assert_eq!(cell.nodes_of("mon/agent").len(), 4, "a node that joins gets one");
}

#[test]
fn a_drained_node_drops_its_global_replicas_and_moves_the_others() {
    let cell = three().deploy("mon", [("agent", global()), ("web", spread(3))]).settle();
    let cell = cell.drain("cedar").settle();
    assert_eq!(cell.nodes_of("mon/agent"), names(["ash", "birch"]));
    assert_eq!(cell.nodes_of("mon/web"), names(["ash", "birch"]));
    assert!(cell.state.load(&node_id("cedar")).is_none());
}

#[test]
fn hosts_with_too_few_ready_nodes_schedules_nothing_and_names_the_missing() {
    let cell =
        three().down("cedar").deploy("shop", [("web", hosts(3, ["ash", "cedar", "dogwood"]))]);
    let cell = cell.settle();
    assert_eq!(cell.placed("shop/web"), Vec::<String>::new());
    let service = cell.state.service(&service_key("shop/web")).unwrap();
    let unplaced = service.row.unplaced.as_ref().unwrap();
    assert_eq!(unplaced.why.word(), "cannot_satisfy_host_placement");
    assert_eq!(unplaced.why.to_string(), "needs 3 ready hosts; missing: cedar, dogwood");
    let cell = cell.up("cedar").node("dogwood", cpus(4)).settle();
    assert_eq!(cell.nodes_of("shop/web"), names(["ash", "cedar", "dogwood"]), "it clears itself");
    assert!(cell.state.unplaced().is_empty());
}

#[test]
fn a_node_that_joins_moves_nothing() {
    let cell = three().deploy("shop", [("web", spread(6)), ("db", pack(4))]).settle();
    let joined = cell.clone().node("dogwood", cpus(64));
    assert_eq!(decide(&joined).batch, vec![]);
}

#[test]
fn a_second_pass_changes_nothing() {
    let full = spread(9).reserve(3_000, 64);
    let cell =
        three().deploy("shop", [("web", spread(4)), ("big", full), ("all", global())]).pass();
    assert_eq!(decide(&cell).batch, vec![], "also before any node has done anything");
    let cell = cell.obey();
    assert_eq!(decide(&cell).batch, vec![]);
}

#[test]
fn retired_and_renamed_services_lose_their_replicas_and_leave_no_stale_plan() {
    let impossible = spread(1).reserve(64_000, 64);
    let cell = three().deploy("shop", [("web", spread(2)), ("big", impossible)]).settle();
    assert_eq!(cell.state.unplaced().len(), 1);
    let cell = cell.deploy("shop", [("site", spread(2))]).settle();
    let left: Vec<String> = cell.state.services().keys().map(ToString::to_string).collect();
    assert_eq!(left, ["shop/site"]);
    assert!(cell.state.unplaced().is_empty());
    let cell = cell.undeploy("shop").settle();
    assert!(cell.state.services().is_empty() && cell.state.replicas().next().is_none());
}

#[test]
fn indices_are_never_reused_after_delete_and_re_apply() {
    let cell = three().deploy("shop", [("web", spread(2))]).settle();
    assert_eq!(cell.placed("shop/web").len(), 2);
    let cell = cell.undeploy("shop").settle().deploy("shop", [("web", spread(2))]).settle();
    let slots: Vec<String> = cell.state.replicas().map(|(id, _)| id.to_string()).collect();
    assert_eq!(slots, ["shop-web-3", "shop-web-4"]);
}

#[test]
fn scaling_from_two_to_three_leaves_the_two_alone() {
    let cell = three().deploy("shop", [("web", spread(2))]).settle();
    let before = cell.state.clone();
    let cell = cell.deploy("shop", [("web", spread(3))]).settle();
    for (id, replica) in before.replicas() {
        assert_eq!(cell.state.replica(&id), Some(replica), "{id}");
    }
    assert_eq!(cell.nodes_of("shop/web").len(), 3);
}

#[test]
fn scaling_down_takes_from_the_fullest_node_and_the_newest_first() {
    let cell = three().deploy("shop", [("web", spread(4))]).settle();
    let cell = cell.deploy("shop", [("web", spread(3))]).settle();
    assert_eq!(cell.nodes_of("shop/web").len(), 3, "{:?}", cell.placed("shop/web"));
    let cell = cell.deploy("shop", [("web", spread(0))]).settle();
    assert_eq!(cell.placed("shop/web"), Vec::<String>::new());
}

#[test]
fn an_unschedulable_deployment_is_written_once_and_clears_itself_when_a_node_comes() {
    let cell =
        cell().node("ash", cpus(1)).deploy("shop", [("web", spread(2).reserve(800, 64))]).settle();
    let service = cell.state.service(&service_key("shop/web")).unwrap();
    let unplaced = service.row.unplaced.clone().unwrap();
    let turned_away = BTreeMap::from([(FilterWord::InsufficientCapacity, 1)]);
    assert_eq!(
        (unplaced.missing, unplaced.why),
        (1, UnplacedReason::NoEligibleNode { nodes: 1, turned_away })
    );
    let later = cell.later(Millis::minutes(10));
    assert_eq!(decide(&later).batch, vec![], "ten minutes later there is nothing new to say");
    let cell = later.node("birch", cpus(1)).settle();
    assert_eq!(cell.nodes_of("shop/web"), names(["ash", "birch"]));
    assert!(cell.state.unplaced().is_empty());
    let said =
        |word: &str| cell.state.audit().events().filter(|event| event.what.word() == word).count();
    assert_eq!((said("unplaced"), said("all_placed")), (1, 1));
}

#[test]
fn a_cell_without_nodes_says_so() {
    let cell = cell().deploy("shop", [("web", spread(2)), ("agent", global())]).settle();
    let service = cell.state.service(&service_key("shop/web")).unwrap();
    assert_eq!(service.row.unplaced.as_ref().unwrap().why, UnplacedReason::NoNodes);
}

#[test]
fn a_lost_node_is_replaced_after_the_grace_and_gives_up_what_it_lost() {
    let cell = three().deploy("shop", [("web", spread(3))]).settle();
    let cell = cell.down("cedar");
    let decision = decide(&cell);
    assert_eq!(decision.batch, vec![], "it may come back");
    let wake = decision.wake.expect("the grace has an end");
    let cell = cell.later(wake.since(three().now)).settle();
    assert_eq!(cell.nodes_of("shop/web"), names(["ash", "birch"]));
    let held = cell.state.load(&node_id("cedar")).unwrap();
    assert_eq!(
        (held.replicas, held.tenants.len()),
        (0, 1),
        "the lost one still stands there, leaving"
    );
    let cell = cell.up("cedar").obey().settle();
    assert!(cell.state.load(&node_id("cedar")).is_none(), "the node is back and gave it up");
    assert_eq!(
        cell.nodes_of("shop/web"),
        names(["ash", "birch"]),
        "and nothing moves back by itself"
    );
}

#[test]
fn a_node_that_returns_before_its_replicas_are_replaced_keeps_them() {
    let cell = three().deploy("shop", [("web", spread(3))]).settle();
    let before = cell.placed("shop/web");
    let cell = cell.down("cedar").later(Millis::minutes(1)).pass();
    assert_ne!(cell.placed("shop/web"), before, "a move has begun");
    let cell = cell.up("cedar").pass();
    assert_eq!(cell.placed("shop/web"), before, "and is given up as needless");
    assert_eq!(cell.settle().nodes_of("shop/web").len(), 3);
}

#[test]
fn data_stays_where_it_is() {
    let cell = three().deploy("shop", [("db", spread(3).volume("data"))]).settle();
    let before = cell.placed("shop/db");
    let cell = cell.down("cedar").later(Millis::minutes(1)).settle();
    assert_eq!(cell.placed("shop/db"), before);
    let waiting: Vec<WaitReason> =
        cell.state.replicas().filter_map(|(_, r)| r.waiting.clone()).collect();
    assert_eq!(waiting, [WaitReason::Stateful]);
    let cell = cell.up("cedar").settle();
    assert!(
        cell.state.replicas().all(|(_, replica)| replica.waiting.is_none()),
        "it clears itself"
    );
}

#[test]
fn when_more_than_half_of_the_nodes_vanish_replacement_pauses_and_says_so() {
    let cell = three().deploy("shop", [("web", spread(3))]).settle();
    let before = cell.placed("shop/web");
    let cell = cell.down("birch").down("cedar").later(Millis::minutes(1)).settle();
    assert_eq!(cell.placed("shop/web"), before);
    let waiting = cell.state.replicas().find_map(|(_, r)| r.waiting.clone()).unwrap();
    assert_eq!(waiting, WaitReason::MassLoss { down: 2, nodes: 3 });
    let cell = cell.up("birch").settle();
    assert_eq!(
        cell.nodes_of("shop/web"),
        names(["ash", "birch"]),
        "one of three is an ordinary loss"
    );
}

#[test]
fn a_new_spec_reaches_one_replica_at_a_time_and_none_is_missing_meanwhile() {
    let mut cell = three().deploy("shop", [("web", spread(3))]).settle();
    let places = cell.placed("shop/web");
    cell = cell.deploy("shop", [("web", spread(3).image("app:2"))]);
    for _ in 0..50 {
        let moving =
            cell.state.replicas().filter(|(_, replica)| replica.successor.is_some()).count();
        let running = cell.state.replicas().filter(|(_, replica)| replica.is_running()).count();
        assert!(moving <= 1 && running == 3, "{moving} moving, {running} running");
        cell = cell.pass().obey();
    }
    assert_eq!(cell.placed("shop/web"), places, "each stays on its node");
    let spec = spread(3).image("app:2").hash;
    assert!(
        cell.state.replicas().all(|(_, replica)| replica.assignment.as_ref().unwrap().spec == spec)
    );
}

#[test]
fn what_cannot_run_twice_at_once_makes_way_in_its_own_place() {
    let db = |tag: &str| spread(1).volume("data").image(tag);
    let cell = three().deploy("shop", [("db", db("db:1"))]).settle();
    let places = cell.placed("shop/db");
    let cell = cell.deploy("shop", [("db", db("db:2"))]).pass();
    let (_, replica) = cell.state.replicas().next().unwrap();
    assert_eq!((replica.successor.is_none(), replica.leaving.len()), (true, 1));
    assert_eq!(cell.settle().placed("shop/db"), places);
}

#[test]
fn a_replica_whose_move_ends_in_this_pass_is_not_dropped_by_the_same_one() {
    let cell = three().deploy("shop", [("web", spread(3))]).settle().drain("cedar").pass().obey();
    assert!(cell.state.replicas().any(|(_, replica)| replica.successor.is_some()));
    let cell = cell.deploy("shop", [("web", spread(0))]).settle();
    assert_eq!(cell.placed("shop/web"), Vec::<String>::new());
}

#[test]
fn zones_come_before_nodes() {
    let cell = cell()
        .node("a1", cpus(4).zone("a"))
        .node("b1", cpus(4).zone("b"))
        .node("b2", cpus(4).zone("b"))
        .node("b3", cpus(4).zone("b"))
        .deploy("shop", [("web", spread(4))])
        .settle();
    let in_a = cell.placed("shop/web").iter().filter(|place| place.ends_with("@a1")).count();
    assert_eq!(in_a, 2, "{:?}", cell.placed("shop/web"));
}

#[test]
fn a_node_where_the_service_failed_five_times_is_the_last_choice() {
    let mut cell = cell().node("ash", cpus(4)).deploy("shop", [("web", spread(1))]).settle();
    let id = replica_id("shop/web/1");
    for _ in 0..5 {
        cell.report(&id, Generation(1), ObservedState::Failed, None);
        cell.report(&id, Generation(1), ObservedState::Starting, None);
    }
    cell.report(&id, Generation(1), ObservedState::Running, None);
    let cell = cell.node("birch", cpus(4)).deploy("shop", [("web", spread(4))]).settle();
    let on_ash = cell.placed("shop/web").iter().filter(|place| place.ends_with("@ash")).count();
    assert_eq!(on_ash, 1, "only the one that was there: {:?}", cell.placed("shop/web"));
    let cell = cell.cordon("birch").deploy("shop", [("web", spread(5))]).settle();
    let on_ash = cell.placed("shop/web").iter().filter(|place| place.ends_with("@ash")).count();
    assert_eq!(on_ash, 2, "with nothing else left it goes there after all");
}

#[test]
fn host_ports_gpus_labels_and_limits_per_node_are_kept() {
    let cell = three()
        .node("gpu", cpus(4).gpus(1))
        .node("ssd", cpus(4).label("disk", "ssd"))
        .deploy("port", [("web", spread(6).host_port(80))])
        .deploy("ml", [("train", spread(2).gpus(1))])
        .deploy("db", [("pg", spread(2).wants_label("disk", "ssd"))])
        .deploy("one", [("per", spread(9).max_per_node(1))])
        .settle();
    assert_eq!(cell.placed("port/web").len(), 5, "one a node");
    assert_eq!(cell.nodes_of("ml/train"), names(["gpu"]));
    assert_eq!(cell.nodes_of("db/pg"), names(["ssd"]));
    assert_eq!(cell.placed("one/per").len(), 5);
    let why = |key: &str| {
        let service = cell.state.service(&service_key(key)).unwrap();
        service.row.unplaced.as_ref().unwrap().why.to_string()
    };
    assert_eq!(why("port/web"), "0 of 5 nodes can take it: 5 port_taken");
    assert_eq!(why("ml/train"), "0 of 5 nodes can take it: 4 no_gpu, 1 insufficient_capacity");
    assert_eq!(why("one/per"), "0 of 5 nodes can take it: 5 max_per_node");
}

#[test]
fn all_gpus_are_those_of_the_node_a_replica_goes_to() {
    let gpus = |n| cpus(4).gpus(n);
    let why = |cell: &Cell, key: &str| {
        let service = cell.state.service(&service_key(key)).unwrap();
        service.row.unplaced.as_ref().map(|unplaced| unplaced.why.to_string())
    };
    let cell = cell().node("ash", gpus(4)).node("birch", gpus(1)).node("cedar", cpus(4));
    let cell = cell.deploy("ml", [("train", spread(3).all_gpus())]).settle();
    assert_eq!(cell.nodes_of("ml/train"), names(["ash", "birch"]), "one each, none without a gpu");
    assert_eq!(
        why(&cell, "ml/train").unwrap(),
        "0 of 3 nodes can take it: 1 no_gpu, 2 insufficient_capacity"
    );
    let cell = cell.deploy("other", [("one", spread(1).gpus(1))]).settle();
    assert_eq!(cell.placed("other/one").len(), 0, "nothing is left of them");
    assert_eq!(
        why(&cell, "other/one").unwrap(),
        "0 of 3 nodes can take it: 1 no_gpu, 2 insufficient_capacity"
    );
    let cell = cell.deploy("ml", [("train", spread(1).all_gpus())]).settle();
    let (all, one) = (cell.nodes_of("ml/train"), cell.nodes_of("other/one"));
    assert_ne!(all, one, "one came free, and goes to the replica that asks for one");

    let cell = self::cell().node("ash", gpus(4));
    let cell = cell.deploy("other", [("one", spread(1).gpus(1))]).settle();
    let cell = cell.deploy("ml", [("train", spread(1).all_gpus())]).settle();
    assert_eq!(cell.placed("ml/train").len(), 0, "three of four are not all");
    let ask = cell.state.service(&service_key("ml/train")).unwrap().desired().unwrap();
    let text = Shortage::Gpus { asked: GpusAsked::of(ask.request()), free: 3 }.to_string();
    assert_eq!(text, "asks for all gpus, 3 free");
    let cell = cell.undeploy("other").settle();
    assert_eq!(cell.placed("ml/train").len(), 1, "it waited until all were free");
}

#[test]
fn a_rollout_in_place_may_go_from_some_gpus_to_all_and_back() {
    let stop_first = |mut spec: ServiceSpec| {
        spec.update.order = UpdateOrder::StopFirst;
        spec
    };
    let cell = cell().node("ash", cpus(4).gpus(4));
    let cell = cell.deploy("ml", [("train", stop_first(spread(1).gpus(1)))]).settle();
    let cell = cell.deploy("ml", [("train", stop_first(spread(1).all_gpus()))]).settle();
    let reserved = |cell: &Cell| {
        let capacity = cell.state.node(&node_id("ash")).unwrap().facts.capacity;
        cell.state.load(&node_id("ash")).unwrap().reserved.on(capacity).gpus
    };
    assert_eq!(reserved(&cell), 4);
    let image = |tag: &str| stop_first(spread(1).all_gpus().image(tag));
    let cell = cell.deploy("ml", [("train", image("train:2"))]).settle();
    assert_eq!(reserved(&cell), 4, "a new image takes the place of the old one");
    let cell = cell.deploy("ml", [("train", stop_first(spread(1).gpus(2)))]).settle();
    assert_eq!(reserved(&cell), 2);
}

#[test]
fn a_preferred_node_wins_among_equals_but_not_over_evenness() {
    let prefers = |n| spread(n).prefers_label("disk", "ssd");
    let cell =
        three().node("ssd", cpus(4).label("disk", "ssd")).deploy("a", [("x", prefers(1))]).settle();
    assert_eq!(cell.nodes_of("a/x"), names(["ssd"]));
    let cell = cell.deploy("a", [("x", prefers(4))]).settle();
    assert_eq!(cell.nodes_of("a/x").len(), 4);
}

#[test]
fn what_matters_more_is_placed_first() {
    let wants = |priority: i32| {
        let mut spec = spread(1).reserve(3_000, 64);
        spec.priority = priority;
        spec
    };
    let cell =
        cell().node("ash", cpus(4)).deploy("a", [("low", wants(0)), ("top", wants(9))]).settle();
    assert_eq!((cell.placed("a/low").len(), cell.placed("a/top").len()), (0, 1));
}

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
fn a_node_whose_runtime_lacks_what_a_container_needs_gets_none_of_it() {
    let cell = cell()
        .node("ash", cpus(4).lacks(Capability::ImageCommand))
        .node("birch", cpus(4))
        .deploy("shop", [("web", spread(3)), ("job", spread(2).command("run"))])
        .settle();
    assert_eq!(cell.nodes_of("shop/web"), names(["birch"]));
    assert_eq!(cell.nodes_of("shop/job"), names(["ash", "birch"]), "it brings its own command");

    let cell = self::cell()
        .node("ash", cpus(4).lacks(Capability::ImageCommand))
        .deploy("shop", [("web", spread(1))])
        .settle();
    let unplaced = cell.state.service(&service_key("shop/web")).unwrap().row.unplaced.clone();
    let turned_away = BTreeMap::from([(FilterWord::RuntimeLacks, 1)]);
    let why = UnplacedReason::NoEligibleNode { nodes: 1, turned_away };
    assert_eq!(unplaced.unwrap().why, why);
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
fn stacks_that_reserve_nothing_leave_no_node_more_than_one_above_another() {
    for seed in 0..300_u64 {
        let mut cell = (0..3 + seed % 5).fold(cell(), |it, n| it.node(&format!("n{n}"), cpus(4)));
        let mut draw = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for stack in 0..=seed % 4 {
            let services: Vec<(String, ServiceSpec)> = (0..=draw % 7)
                .map(|service| {
                    draw = draw.rotate_left(13).wrapping_mul(5).wrapping_add(seed);
                    let replicas = u32::try_from(draw % 4).unwrap();
                    (format!("{}{service}", word(draw)), spread(replicas))
                })
                .collect();
            cell = cell.deploy(&format!("stack{stack}"), services).settle();
        }
        let loads = cell.state.nodes().keys();
        let loads = loads.map(|node| cell.state.load(node).map_or(0, |load| load.replicas));
        let loads: Vec<u32> = loads.collect();
        let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
        assert!(most - least <= 1, "seed {seed}: {loads:?}");
    }
}

#[test]
fn a_service_that_becomes_global_where_no_node_is_meant_for_it_ends() {
    let cell = three().deploy("d", [("s", spread(2))]).settle();
    let cell = cell.deploy("d", [("s", global().wants_label("disk", "ssd"))]).settle();
    assert_eq!(cell.placed("d/s").len(), 0);
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
