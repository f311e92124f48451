use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, spread};
use plimsoll_model::{Change, Generation, Millis, MoveCause, Writer};

use super::*;

/// A replica on ash with a successor on birch.
fn moving() -> Cell {
    let mut cell =
        cell().node("ash", cpus(4)).node("birch", cpus(4)).deploy("shop", [("web", spread(1))]);
    let (replica, spec) = (replica_id("shop/web/1"), spread(1).hash);
    let place = Change::Place { replica: replica.clone(), node: node_id("ash"), spec };
    cell.change(Writer::Scheduler, place);
    cell.report(&replica, Generation(1), ObservedState::Running, None);
    let cause = MoveCause::Misplaced;
    cell.change(
        Writer::Scheduler,
        Change::Succeed { replica, node: node_id("birch"), spec, cause },
    );
    cell
}

fn next(cell: &Cell, is_settled: bool) -> Step {
    let policy = Policy::default();
    let dst = cell.state.node(&node_id("birch"));
    let desired = spread(1).hash;
    let given = Circumstances { dst, desired, is_settled, policy: &policy, now: cell.now };
    step(cell.state.replica(&replica_id("shop/web/1")).unwrap(), &given)
}

#[test]
fn a_move_ends_when_the_successor_runs_and_not_before() {
    let mut cell = moving();
    let id = replica_id("shop/web/1");
    assert!(
        matches!(next(&cell, false), Step::Wait(_)),
        "the original runs, the successor does not"
    );
    cell.report(&id, Generation(2), ObservedState::Starting, None);
    assert!(matches!(next(&cell, false), Step::Wait(_)));
    cell.report(&id, Generation(2), ObservedState::Running, None);
    assert_eq!(next(&cell, false), Step::Promote);
}

#[test]
fn a_successor_that_failed_once_has_failed_even_if_it_starts_again() {
    let mut cell = moving();
    let id = replica_id("shop/web/1");
    cell.report(&id, Generation(2), ObservedState::Failed, None);
    cell.report(&id, Generation(2), ObservedState::Starting, None);
    assert_eq!(next(&cell, false), Step::Abandon(Undone::SuccessorFailed));
}

#[test]
fn a_successor_has_a_minute_to_get_healthy_and_longer_to_pull() {
    let policy = Policy::default();
    let id = replica_id("shop/web/1");
    let mut pulling = moving();
    pulling.report(&id, Generation(2), ObservedState::Pulling, None);
    let mut starting = moving();
    starting.report(&id, Generation(2), ObservedState::Starting, None);
    for (case, cell, wait, expected) in [
        ("pulling for a minute", &pulling, policy.step_timeout, false),
        ("pulling for ever", &pulling, policy.pull_timeout, true),
        ("a moment before the minute is over", &starting, Millis(policy.step_timeout.0 - 1), false),
        ("starting for a minute", &starting, policy.step_timeout, true),
    ] {
        let given_up = next(&cell.clone().later(wait), false) == Step::Abandon(Undone::TimedOut);
        assert_eq!(given_up, expected, "{case}");
    }
}

#[test]
fn a_move_whose_reason_is_gone_is_given_up_unless_it_is_done() {
    let mut cell = moving();
    assert_eq!(next(&cell, true), Step::Abandon(Undone::Needless));
    cell.report(&replica_id("shop/web/1"), Generation(2), ObservedState::Running, None);
    assert_eq!(next(&cell, true), Step::Promote);
    assert_eq!(next(&moving().down("birch"), true), Step::Abandon(Undone::DestinationLost));
}
