use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reason::{FilterWord, GpusAsked, Shortage, UnplacedReason, WaitReason};
use plimsoll_model::spec::UpdateOrder;
use plimsoll_model::state::MAX_TENANTS;
use plimsoll_model::testkit::{
    Cell, cell, cpus, global, hosts, node_id, pack, replica_id, service_key, spread,
};
use plimsoll_model::{
    AuditKind, Capability, Change, Generation, Millis, NodeId, ObservedCode, ObservedState,
    ReplicaId, ServiceSpec, Writer,
};

use crate::testkit::{Passes, decide};

mod changed;
mod jobs;

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
fn a_node_takes_no_more_replicas_than_a_node_may_hold_and_the_rest_wait_with_that_reason() {
    let most = u32::try_from(MAX_TENANTS).unwrap();
    let cell = cell().node("ash", cpus(4)).deploy("much", [("web", spread(most + 3))]);
    let cell = cell.pass().obey().pass().deploy("late", [("web", global())]).pass();
    assert_eq!(cell.state.load(&node_id("ash")).unwrap().tenants.len(), MAX_TENANTS);
    for (service, missing) in [("much/web", 3), ("late/web", 1)] {
        let row = &cell.state.service(&service_key(service)).unwrap().row;
        let unplaced = row.unplaced.clone().unwrap();
        let turned_away = BTreeMap::from([(FilterWord::InsufficientCapacity, 1)]);
        let why = UnplacedReason::NoEligibleNode { nodes: 1, turned_away };
        assert_eq!((unplaced.missing, unplaced.why), (missing, why), "{service}");
    }
    // What is there already can still be given a new spec in its place.
    let mut renewed = spread(most).image("app:2");
    renewed.update.order = UpdateOrder::StopFirst;
    cell.deploy("much", [("web", renewed)]).pass();
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
