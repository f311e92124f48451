use plimsoll_model::Millis;
use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::reason::WaitReason;
use plimsoll_model::spec::UpdateOrder;
use plimsoll_model::testkit::{Cell, cell, cpus, global, node_id, replica_id, service_key, spread};
use plimsoll_model::{Availability, DeploymentName, NodeStatus, ServiceName, ServiceSpec};

use super::*;
use crate::testkit::{Passes, decide};

fn given(cell: &Cell, writer: Writer, change: Change) -> Plan {
    let (state, signals, policy) = (cell.state.clone(), Signals::default(), Policy::default());
    what_if(state, &signals, &policy, (writer, vec![change]), cell.now).unwrap().0
}

fn drain(cell: &Cell, node: &str, force: bool) -> Plan {
    let change = Change::Drain { node: node_id(node), timeout: DRAIN_TIMEOUT, force };
    given(cell, Writer::Operator, change)
}

fn apply<const N: usize>(cell: &Cell, name: &str, services: [(&str, ServiceSpec); N]) -> Plan {
    let services = services.map(|(name, spec)| (ServiceName::new(name).unwrap(), spec.into()));
    let deployment = DeploymentName::new(name).unwrap();
    let (services, routes) = (services.into(), Vec::new());
    given(cell, Writer::Operator, Change::Deploy { deployment, services, routes })
}

/// What is begun, in short: `1 moved shop-web-1 ash birch`.
fn begun(plan: &Plan) -> Vec<String> {
    let line = |it: &ReplicaOutcome| {
        let (word, id, node) = (it.fate.word(), &it.id, &it.node);
        match &it.fate {
            ReplicaFate::Placed { round, .. }
            | ReplicaFate::Preempted { round, .. }
            | ReplicaFate::Retired { round } => Some(format!("{round} {word} {id} {node}")),
            ReplicaFate::Moved { from, round, is_stop_first, .. } => {
                let order = if *is_stop_first { " stop-first" } else { "" };
                Some(format!("{round} {word} {id} {from} {node}{order}"))
            }
            ReplicaFate::Stays { .. } => None,
        }
    };
    plan.outcomes.iter().filter_map(line).collect()
}

/// What should change and does not: `shop-db-1 stateful`.
fn stuck(plan: &Plan) -> Vec<String> {
    let line = |it: &ReplicaOutcome| match &it.fate {
        ReplicaFate::Stays { why: StayReason::Settled, .. } => None,
        ReplicaFate::Stays { why, .. } => Some(format!("{} {}", it.id, why.word())),
        _ => None,
    };
    plan.outcomes.iter().filter_map(line).collect()
}

fn short(plan: &Plan) -> Vec<(&str, u32, u32)> {
    let short = plan.shortfalls.iter();
    short.map(|(key, short)| (key.service.as_str(), short.least, short.of)).collect()
}

fn three() -> Cell {
    cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4))
}

fn stop_first(mut spec: ServiceSpec) -> ServiceSpec {
    spec.update.order = UpdateOrder::StopFirst;
    spec
}

#[test]
fn a_drain_is_foretold_as_it_then_happens() {
    let single = stop_first(spread(1).image("once"));
    let services =
        [("web", spread(6)), ("db", spread(3).volume("d")), ("all", global()), ("one", single)];
    let mut cell = three().deploy("shop", services).settle();
    let node = cell.nodes_of("shop/one").into_iter().next().unwrap();
    let plan = drain(&cell, node.as_str(), false);

    cell = cell.drain(node.as_str());
    let mut happened = Vec::new();
    for _ in 0..20 {
        for guarded in decide(&cell).batch {
            if let Change::Succeed { replica, node, .. } = guarded.change {
                happened.push((replica, node));
            }
        }
        cell = cell.pass().obey();
    }
    let is_move = |it: &&ReplicaOutcome| matches!(it.fate, ReplicaFate::Moved { .. });
    let moved = plan.outcomes.iter().filter(is_move);
    let told: Vec<_> = moved.map(|it| (it.id.clone(), it.node.clone())).collect();
    assert_eq!(told, happened);
    assert_eq!(told.len(), 3, "two of web, and the one");
    let begun = begun(&plan);
    let ending = |with: &str| begun.iter().filter(|line| line.ends_with(with)).count();
    assert_eq!(ending("stop-first"), 1, "{begun:?}");
    let retired: Vec<_> = begun.iter().filter(|line| line.contains("retired")).collect();
    assert_eq!(retired, [&format!("1 retired shop-all-{node} {node}")]);
    let stuck = stuck(&plan);
    assert!(stuck.len() == 1 && stuck[0].ends_with(" stateful"), "{stuck:?}");
    assert_eq!(short(&plan), [("all", 2, 3), ("one", 0, 1)], "who is missed, and no one else");
}

#[test]
fn each_replica_that_makes_way_first_waits_for_the_one_before_it() {
    let cell = cell().node("ash", cpus(4)).deploy("shop", [("one", stop_first(spread(3)))]);
    let cell = cell.settle().node("birch", cpus(4));
    assert_eq!(
        begun(&drain(&cell, "ash", false)),
        [
            "1 moved shop-one-1 ash birch stop-first",
            "2 moved shop-one-2 ash birch stop-first",
            "3 moved shop-one-3 ash birch stop-first",
        ]
    );
}

#[test]
fn what_finds_no_room_stays_with_its_reason() {
    let cell = cell().node("ash", cpus(1)).node("birch", cpus(1));
    let cell = cell.deploy("shop", [("web", spread(2).reserve(900, 64))]).settle();
    let plan = drain(&cell, "ash", false);
    assert_eq!(begun(&plan), Vec::<String>::new());
    let on_ash = cell.placed("shop/web").iter().position(|at| at.ends_with("@ash")).unwrap();
    assert_eq!(stuck(&plan), [format!("shop-web-{} no_eligible_node", on_ash + 1)]);
}

#[test]
fn what_is_stuck_on_a_node_that_is_drained_already_is_told_again() {
    let cell = three().deploy("shop", [("db", spread(3).volume("d"))]).settle();
    let cell = cell.drain("ash").settle();
    assert_eq!(stuck(&drain(&cell, "ash", false)).len(), 1);
}

#[test]
fn what_is_stopped_by_force_is_told_as_such_and_missed() {
    let cell = three().deploy("shop", [("db", spread(1).volume("d"))]).settle();
    let node = cell.nodes_of("shop/db").into_iter().next().unwrap();
    let plan = drain(&cell, node.as_str(), true);
    assert_eq!(short(&plan), [("db", 0, 1)]);
    let db = plan.outcome(&replica_id("shop/db/1")).unwrap();
    let why = StayReason::Waiting(WaitReason::Stateful);
    assert_eq!(db.fate, ReplicaFate::Stays { why, is_stopped: true });
}

#[test]
fn an_apply_is_planned_to_its_end_one_round_after_another() {
    let services =
        |image: &str| [("db", spread(1).volume("d").image(image)), ("web", spread(3).image(image))];
    let cell = cell().node("ash", cpus(4)).deploy("shop", services("a")).settle();
    let plan = apply(&cell, "shop", services("b"));
    assert_eq!(
        begun(&plan),
        [
            "1 moved shop-db-1 ash ash stop-first",
            "1 moved shop-web-1 ash ash",
            "2 moved shop-web-2 ash ash",
            "3 moved shop-web-3 ash ash",
        ]
    );
    assert_eq!(short(&plan), [("db", 0, 1)], "its data allows for no second copy");
    assert_eq!(stuck(&plan), Vec::<String>::new());
}

#[test]
fn a_pause_between_steps_does_not_end_the_plan() {
    let slow = |image: &str| {
        let mut spec = spread(3).image(image);
        (spec.update.delay, spec.update.monitor) = (Millis::minutes(2), Millis::minutes(30));
        spec
    };
    let cell = three().deploy("shop", [("db", spread(3).volume("d")), ("web", slow("a"))]);
    // A drain that comes to nothing is given up long before.
    let cell = cell.settle().later(Millis::minutes(90)).settle().drain("ash").settle();
    let plan = apply(&cell, "shop", [("db", spread(3).volume("d")), ("web", slow("b"))]);
    let rounds: Vec<_> =
        begun(&plan).iter().map(|line| line.split_once(' ').unwrap().0.to_owned()).collect();
    assert_eq!(rounds, ["1", "2", "3"]);
    assert_eq!(stuck(&plan).len(), 1, "{:?}", plan.outcomes);
}

#[test]
fn a_node_that_is_lost_is_replaced_once_its_grace_is_over() {
    let cell = three().deploy("shop", [("web", spread(3)), ("db", spread(3).volume("d"))]).settle();
    let (node, status) = (node_id("ash"), NodeStatus::Down);
    let plan = given(&cell, Writer::Liveness, Change::SetStatus { node, status });
    assert_eq!(begun(&plan).len(), 1, "{:?}", begun(&plan));
    assert!(begun(&plan)[0].contains("shop-web-"), "{:?}", begun(&plan));
    assert_eq!(stuck(&plan).len(), 1, "its data is there: {:?}", stuck(&plan));
    assert_eq!(short(&plan), [("db", 2, 3), ("web", 2, 3)]);
}

#[test]
fn what_is_asked_for_less_of_is_not_missed() {
    let cell = three().deploy("shop", [("web", spread(3)), ("old", spread(2))]).settle();
    let plan = apply(&cell, "shop", [("web", spread(1))]);
    assert_eq!(begun(&plan).iter().filter(|line| line.contains("1 retired")).count(), 4);
    assert_eq!(short(&plan), []);
}

#[test]
fn what_finds_no_place_is_counted_with_its_reason() {
    let plan = apply(&three(), "shop", [("web", spread(9).reserve(2_000, 64))]);
    assert_eq!(begun(&plan).len(), 6);
    let unplaced = &plan.unplaced[&service_key("shop/web")];
    assert_eq!((unplaced.missing, unplaced.why.word()), (3, "no_eligible_node"));
}

#[test]
fn a_move_under_way_is_part_of_the_plan_and_one_given_up_is_not() {
    let cell = three().deploy("shop", [("web", spread(3).image("a"))]).settle();
    let moving = cell.deploy("shop", [("web", spread(3).image("b"))]).pass();
    let plan = apply(&moving, "shop", [("web", spread(3).image("b"))]);
    assert_eq!(begun(&plan).len(), 3, "{:?}", begun(&plan));
    let numbered =
        |plan: &Plan, round| begun(plan).iter().filter(|line| line.starts_with(round)).count();
    assert_eq!(numbered(&plan, "1"), 1, "the others wait for it: {:?}", begun(&plan));
    let plan = apply(&moving, "shop", [("web", spread(3).image("a"))]);
    assert_eq!(begun(&plan), Vec::<String>::new(), "nothing was changed yet");
}

#[test]
fn the_next_pass_says_who_waits_for_their_turn() {
    let cell = three().deploy("shop", [("web", spread(2).image("a"))]).settle();
    let cell = cell.deploy("shop", [("web", spread(2).image("b"))]);
    let pass = next_pass(&cell.state, &Signals::default(), &Policy::default(), cell.now).unwrap();
    assert_eq!(pass.decision, decide(&cell));
    assert_eq!(begun(&pass.plan).len(), 1);
    assert_eq!(stuck(&pass.plan), ["shop-web-2 in_turn"]);
}

#[test]
fn a_plan_about_a_few_services_leaves_out_the_rest_and_what_is_as_it_should_be() {
    let cell = three().deploy("shop", [("web", spread(2)), ("db", spread(1))]).settle();
    let cell = cell.deploy("blog", [("web", spread(1))]);
    let (state, signals, policy) = (cell.state.clone(), Signals::default(), Policy::default());
    let plan = what_if(state, &signals, &policy, (Writer::Operator, vec![]), cell.now).unwrap().0;
    assert_eq!(plan.outcomes.len(), 4, "all of them");
    let shop = plan.clone().about(&BTreeSet::from([service_key("shop/web")]));
    assert_eq!(shop, Plan::default());
    let blog = plan.about(&BTreeSet::from([service_key("blog/web")]));
    assert_eq!(blog.outcomes.len(), 1);
}

#[test]
fn a_plan_is_what_happens_and_planning_it_again_finds_nothing_to_do() {
    let cell = three().deploy("shop", [("web", spread(5)), ("db", spread(2).volume("d"))]).settle();
    let availability = Availability::Draining;
    let change = Change::SetAvailability { node: node_id("birch"), availability };
    let (state, signals, policy) = (cell.state.clone(), Signals::default(), Policy::default());
    let changes = (Writer::Operator, vec![change]);
    let (plan, end) = what_if(state, &signals, &policy, changes, cell.now).unwrap();
    assert!(!begun(&plan).is_empty());
    let again = what_if(end.clone(), &signals, &policy, (Writer::Operator, vec![]), cell.now);
    let (again, settled) = again.unwrap();
    assert_eq!(begun(&again), Vec::<String>::new());
    assert_eq!(stuck(&again), stuck(&plan));
    assert_eq!(settled, end);
}

#[test]
fn a_dry_run_shows_who_is_preempted_by_whom() {
    let cell = cell().node("ash", cpus(4)).deploy("low", [("batch", spread(1).reserve(3_000, 64))]);
    let cell = cell.settle();
    let high = ServiceSpec { priority: 10, ..spread(1).reserve(3_000, 64) };
    let plan = apply(&cell, "high", [("web", high)]);
    assert_eq!(begun(&plan), ["1 preempted low-batch-1 ash", "2 placed high-web-1 ash"]);
    assert_eq!(plan.unplaced[&service_key("low/batch")].why.word(), "preempted");
}
