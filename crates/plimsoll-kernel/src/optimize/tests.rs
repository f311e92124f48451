use std::collections::BTreeSet;

use plimsoll_model::optimize::{OptimizeDrop, OptimizeStep};
use plimsoll_model::spec::Reschedule;
use plimsoll_model::testkit::{
    Cell, binpack, cell, cpus, global, hosts, node_id, replica_id, spread,
};
use plimsoll_model::{
    AuditKind, Change, Guarded, Millis, MoveCause, ServiceSpec, Timestamp, Writer,
};
use proptest::prelude::*;

use super::*;
use crate::place::tests::{any_setting, build};
use crate::rebalance::Rebalancer;
use crate::testkit::Passes;
use crate::{Leader, LeaderStep, Policy, Signals, lint, reschedule};

const REST: Millis = Millis::minutes(20);

fn plan_within(cell: &Cell, moves: usize, seed: u64, most_steps: u64) -> OptimizePlan {
    let (signals, policy) = (Signals::default(), Policy::default());
    let known = known(cell, &signals, &policy);
    optimize(&known, OptimizeLimits { moves, seed }, &mut |steps| steps > most_steps)
}

fn plan(cell: &Cell, moves: usize) -> OptimizePlan {
    plan_within(cell, moves, 0, 1_000_000)
}

fn known<'a>(cell: &'a Cell, signals: &'a Signals, policy: &'a Policy) -> KnownCell<'a> {
    let rebalancer = Rebalancer::default();
    KnownCell { state: &cell.state, signals, policy, rebalancer, now: cell.now }
}

fn told(plan: &OptimizePlan) -> Vec<String> {
    let one =
        |it: &OptimizedMove| format!("{} {} → {} {}", it.replica, it.src, it.dst, it.why.word());
    plan.moves.iter().map(one).collect()
}

/// Two nodes that hold little of what was packed, since most of it is gone.
fn crumbs() -> Cell {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4));
    let packed = |n| binpack(n).reserve(1_000, 64);
    let cell = cell.deploy("a", [("s", packed(3))]).settle();
    let cell = cell.deploy("b", [("s", packed(1))]).settle();
    let cell = cell.deploy("c", [("s", packed(2))]).settle();
    cell.deploy("a", [("s", packed(0))]).settle().later(REST)
}

#[test]
fn binpack_takes_the_fullest_node_with_room_and_the_first_by_name_of_those() {
    let cell = cell().node("cedar", cpus(4)).node("ash", cpus(4)).node("birch", cpus(4));
    let cell = cell.deploy("d", [("big", binpack(1).reserve(3_000, 64))]).settle();
    assert_eq!(cell.placed("d/big"), ["1@ash"]);
    let cell = cell.deploy("e", [("large", binpack(1).reserve(2_000, 64))]).settle();
    assert_eq!(cell.placed("e/large"), ["1@birch"], "it does not fit beside the other");
    let cell = cell.deploy("f", [("small", binpack(3).reserve(1_000, 64))]).settle();
    assert_eq!(cell.placed("f/small"), ["1@ash", "2@birch", "3@birch"]);
}

#[test]
fn a_node_that_little_is_packed_on_is_freed() {
    let cell = crumbs();
    assert_eq!(cell.placed("b/s"), ["1@ash"]);
    assert_eq!(cell.placed("c/s"), ["1@birch", "2@birch"]);
    let plan = plan(&cell, 20);
    assert_eq!(told(&plan), ["b-s-1 ash → birch frees_node"]);
    assert_eq!((plan.before.nodes_in_use, plan.after.nodes_in_use), (2, 1));
    // One replica kept a node in use for 5 000; two cost 7 500 and three 8 750.
    assert_eq!((plan.gain, plan.is_whole, plan.movable), (3_750, true, 3));
}

#[test]
#[expect(clippy::type_complexity, reason = "a table that is read once")]
fn nothing_moves_that_may_not() {
    let specs: [(&str, fn(u32) -> ServiceSpec); 3] = [
        ("told to stay", |n| ServiceSpec { reschedule: Reschedule::Never, ..binpack(n) }),
        ("has data", |n| binpack(n).volume("data")),
        ("on its hosts", |n| hosts(n, ["ash"])),
    ];
    for (case, spec) in specs {
        let with = |n: u32| spec(n).reserve(1_000, 64);
        let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
        let cell = cell.deploy("a", [("s", with(1))]).settle();
        let cell = cell.deploy("b", [("s", binpack(2).reserve(1_000, 64))]).settle().later(REST);
        let plan = plan(&cell, 20);
        assert!(
            plan.moves.iter().all(|it| it.replica.service.deployment.as_str() != "a"),
            "{case}"
        );
    }
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let cell = cell.deploy("a", [("every", global())]).settle().later(REST);
    assert_eq!(plan(&cell, 20).movable, 0);
    assert_eq!(plan(&crumbs(), 0).moves, vec![], "no move is allowed");
    let fresh = crumbs().deploy("z", [("s", spread(1))]).settle();
    let moved = plan(&fresh, 20).moves;
    assert!(moved.iter().all(|it| it.replica != replica_id("z/s/1")), "it was just placed");
}

/// `ash` has what `web` prefers, and another has the port there that both take.
fn in_the_way() -> Cell {
    let ssd = cpus(4).label("disk", "ssd");
    let cell = cell().node("ash", ssd).node("birch", cpus(4)).node("cedar", cpus(4));
    let only_ash = spread(1).host_port(80).wants_label("disk", "ssd");
    let cell = cell.deploy("a", [("any", only_ash)]).settle();
    let prefers = spread(1).host_port(80).prefers_label("disk", "ssd");
    let cell = cell.deploy("b", [("web", prefers)]).settle();
    // Only now it may go elsewhere, and nothing makes it.
    cell.deploy("a", [("any", spread(1).host_port(80))]).settle().later(REST)
}

#[test]
fn one_makes_room_for_another_first() {
    let plan = plan(&in_the_way(), 20);
    let [first, second] = &plan.moves[..] else { panic!("{:?}", told(&plan)) };
    let of = replica_id("b/web/1");
    assert_eq!(first.why, OptimizeReason::MakesRoom { of: of.clone() });
    assert_eq!((&first.replica, &first.src), (&replica_id("a/any/1"), &node_id("ash")));
    assert_eq!((&second.replica, &second.dst), (&of, &node_id("ash")));
    assert_eq!((first.gain, second.gain, plan.gain), (0, 200, 200), "all of its preferences");
    assert_eq!(plan_within(&in_the_way(), 1, 0, 100_000).moves, vec![], "one move is not enough");
}

#[test]
fn equal_seeds_and_equal_steps_give_equal_plans_and_more_steps_no_worse_ones() {
    let cell = in_the_way();
    let mut gain = 0;
    for steps in [0, 5_000, 50_000, 500_000] {
        let found = plan_within(&cell, 5, 7, steps);
        assert_eq!(found, plan_within(&cell, 5, 7, steps));
        assert!(found.gain >= gain, "{steps}");
        gain = found.gain;
    }
}

#[test]
fn a_plan_is_looked_at_again_before_it_is_carried_out() {
    let cell = crumbs();
    let (signals, policy) = (Signals::default(), Policy::default());
    let found = plan(&cell, 20).moves;
    let again =
        |cell: &Cell, moves: &[OptimizedMove]| check(&known(cell, &signals, &policy), moves);
    assert_eq!(again(&cell, &found).as_ref(), Ok(&found));
    let replica = found[0].replica.clone();
    let elsewhere = vec![OptimizedMove { src: node_id("cedar"), ..found[0].clone() }];
    let worse = vec![OptimizedMove { dst: node_id("cedar"), ..found[0].clone() }];
    let twice = vec![found[0].clone(), found[0].clone()];
    for (case, cell, moves, expected) in [
        ("nothing", &cell, vec![], PlanRefusal::Empty),
        ("too much", &cell, vec![found[0].clone(); 1_001], PlanRefusal::TooMany { moves: 1_001 }),
        ("it is elsewhere", &cell, elsewhere, PlanRefusal::NotMovable { replica: replica.clone() }),
        ("twice", &cell, twice, PlanRefusal::NotMovable { replica: replica.clone() }),
        ("to no use", &cell, worse, PlanRefusal::NoGain { gain: 0 }),
        (
            "cordoned",
            &crumbs().cordon("birch"),
            found.clone(),
            PlanRefusal::DoesNotFit { replica: replica.clone() },
        ),
    ] {
        assert_eq!(again(cell, &moves), Err(expected), "{case}");
    }
}

/// Turns of a leader, a few seconds apart, with nodes that do at once as they are told.
fn led(leader: &mut Leader, mut cell: Cell, turns: usize) -> Cell {
    for _ in 0..turns {
        for name in cell.state.nodes().keys() {
            leader.heartbeat(name, cell.now);
        }
        for step in LeaderStep::TURN {
            let batch = leader.decide(step, &cell.state, cell.now);
            let broken = lint::plan(&cell.state, &batch);
            assert!(broken.is_empty(), "{broken:#?}");
            let events = cell.apply(step.writer(), batch).expect("decided on this very state");
            leader.follow(&cell.state, &events);
        }
        cell = cell.obey().later(Millis::seconds(5));
        leader.start_over(cell.now);
    }
    cell
}

fn steps_told(cell: &Cell) -> Vec<OptimizeStep> {
    let events = cell.state.audit().events();
    let steps = events.filter_map(|event| match &event.what {
        AuditKind::Optimize { step } => Some(step.clone()),
        _ => None,
    });
    steps.collect()
}

#[test]
fn a_plan_is_carried_out_through_the_move_path_and_nobody_undoes_it() {
    let cell = crumbs();
    let found = plan(&cell, 20);
    let mut leader = Leader::new(Policy::default(), cell.now);
    leader.pursue(found.moves.clone(), cell.now);
    assert_eq!(leader.pursued(), (1, 0));
    let cell = led(&mut leader, cell, 20);
    assert_eq!(cell.placed("b/s"), ["1@birch"]);
    assert_eq!(leader.pursued(), (0, 0));
    let moved = OptimizeStep::Moved(Box::new(found.moves[0].clone()));
    assert_eq!(steps_told(&cell), [moved, OptimizeStep::Ended { done: 1, of: 1, why: None }]);
    let mut causes = cell.state.audit().events().rev().filter_map(|event| match &event.what {
        AuditKind::MoveFinished { cause, .. } => Some(*cause),
        _ => None,
    });
    assert_eq!(causes.next(), Some(MoveCause::Optimize));
    drop(causes);
    let cell = led(&mut leader, cell.later(REST), 30);
    assert_eq!(cell.placed("b/s"), ["1@birch"], "the rescheduler leaves it there");
    assert_eq!(plan(&cell, 20).moves, vec![], "nothing better is left");
}

#[test]
fn what_changes_meanwhile_ends_a_plan_and_a_new_leader_knows_none() {
    let found = plan(&crumbs(), 20).moves;
    let replica = found[0].replica.clone();
    let ended = |why| OptimizeStep::Ended { done: 0, of: 1, why: Some(why) };
    let node = node_id("birch");
    for (case, cell, expected) in [
        (
            "cordoned",
            crumbs().cordon("birch"),
            OptimizeDrop::NoRoom { replica: replica.clone(), node },
        ),
        (
            "gone",
            crumbs().undeploy("b").settle(),
            OptimizeDrop::Changed { replica: replica.clone() },
        ),
    ] {
        let mut leader = Leader::new(Policy::default(), cell.now);
        leader.pursue(found.clone(), cell.now);
        let cell = led(&mut leader, cell, 4);
        assert_eq!(steps_told(&cell), [ended(expected)], "{case}");
        assert_eq!(leader.pursued(), (0, 0), "{case}");
    }
    // The node is full: it waits for room, and not for ever.
    let full = crumbs().deploy("z", [("s", binpack(2).reserve(1_000, 64))]).settle();
    assert_eq!(full.placed("z/s"), ["1@birch", "2@birch"]);
    let mut leader = Leader::new(Policy::default(), full.now);
    leader.pursue(found.clone(), full.now);
    let full = led(&mut leader, full, 10);
    assert_eq!((steps_told(&full), leader.pursued()), (vec![], (1, 0)));
    let full = led(&mut leader, full.later(Millis::minutes(11)), 1);
    assert_eq!(steps_told(&full), [ended(OptimizeDrop::Stuck { replica })]);
    // Another leader has other things to do, and the layout is whole.
    let cell = crumbs();
    let mut leader = Leader::new(Policy::default(), cell.now);
    let cell = led(&mut leader, cell, 20);
    assert_eq!((steps_told(&cell), cell.placed("b/s")), (vec![], vec!["1@ash".to_owned()]));
    // A second plan takes the place of the first.
    let cell = crumbs();
    let mut leader = Leader::new(Policy::default(), cell.now);
    leader.pursue(found.clone(), cell.now);
    leader.pursue(found.clone(), cell.now);
    let cell = led(&mut leader, cell, 20);
    let (first, moved) =
        (ended(OptimizeDrop::Replaced), OptimizeStep::Moved(Box::new(found[0].clone())));
    assert_eq!(
        steps_told(&cell),
        [first, moved, OptimizeStep::Ended { done: 1, of: 1, why: None }]
    );
}

/// One move after another, each whole before the next, and what was broken on the way.
fn carry_out(mut cell: Cell, moves: &[OptimizedMove]) -> (Cell, Vec<lint::Violation>) {
    let mut broken = Vec::new();
    for moved in moves {
        let service = cell.state.service(&moved.replica.service).expect("it is deployed");
        let spec = service.desired().expect("it is deployed").hash;
        let (replica, node) = (moved.replica.clone(), moved.dst.clone());
        let cause = MoveCause::Optimize;
        let batch: Vec<Guarded> = vec![Change::Succeed { replica, node, spec, cause }.free()];
        broken.extend(lint::plan(&cell.state, &batch));
        cell.apply(Writer::Rescheduler, batch).expect("it may be moved");
        // Only the move: what finds room meanwhile is not part of the plan, and a leader looks again before each step.
        cell = cell.obey();
        cell.change(Writer::Scheduler, Change::Promote { replica: moved.replica.clone() });
        cell = cell.obey();
    }
    (cell, broken)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_step_of_a_plan_is_feasible_and_the_rescheduler_leaves_it(setting in any_setting(), seed in 0_u64..9) {
        let order: Vec<usize> = (0..setting.facts.len()).collect();
        let (cell, _) = build(&setting, &order);
        let cell = cell.settle().later(REST);
        // Something ended, and a node came.
        let cell = cell.undeploy("d0").settle().node("late", cpus(4)).later(REST).settle();
        let found = plan_within(&cell, 8, seed, 100_000);
        prop_assert!(found.moves.len() <= 8);
        prop_assert_eq!(found.gain, found.moves.iter().map(|it| it.gain).sum::<i64>());
        prop_assert!(found.moves.is_empty() || found.gain > 0);
        let mut once = BTreeSet::new();
        for moved in &found.moves {
            prop_assert!(once.insert(&moved.replica), "it rests after it moved");
        }
        let (after, broken) = carry_out(cell, &found.moves);
        prop_assert_eq!(broken, vec![]);
        let after = after.later(REST);
        let policy = Policy::default();
        let roster = Roster::new(&after.state, &Signals::default(), &policy);
        let rebalancer = Rebalancer::default();
        let now: Timestamp = after.now;
        let (offers, _) = reschedule::look(&after.state, &roster, &policy, &rebalancer, |_| false, now);
        for offer in offers {
            prop_assert!(!once.contains(&offer.moved.replica), "{}", offer.moved);
        }
    }
}
