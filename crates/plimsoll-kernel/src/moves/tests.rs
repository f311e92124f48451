use plimsoll_model::spec::HealthTest;
use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, service_key, spread};
use plimsoll_model::{Change, Generation, Millis, MoveCause, Writer};

use super::*;

/// A replica on ash with a successor on birch.
fn moving() -> Cell {
    moving_for(MoveCause::Misplaced, &spread(1))
}

fn moving_for(cause: MoveCause, spec: &ServiceSpec) -> Cell {
    let mut cell =
        cell().node("ash", cpus(4)).node("birch", cpus(4)).deploy("shop", [("web", spec.clone())]);
    let (replica, spec) = (replica_id("shop/web/1"), spec.hash);
    let place = Change::Place { replica: replica.clone(), node: node_id("ash"), spec };
    cell.change(Writer::Scheduler, place);
    cell.report(&replica, Generation(1), ObservedState::Running, None);
    cell.change(
        Writer::Scheduler,
        Change::Succeed { replica, node: node_id("birch"), spec, cause },
    );
    cell
}

fn next(cell: &Cell, is_settled: bool) -> MoveStep {
    let policy = Policy::default();
    let dst = cell.state.node(&node_id("birch"));
    let service = cell.state.service(&service_key("shop/web")).unwrap();
    let (src, spec) = (cell.state.node(&node_id("ash")), service.desired().unwrap());
    let (policy, now, evict_at) = (&policy, cell.now, None);
    let given = MoveContext { src, dst, spec, is_settled, evict_at, policy, now };
    step(cell.state.replica(&replica_id("shop/web/1")).unwrap(), &given)
}

#[test]
fn a_move_ends_when_the_successor_runs_and_not_before() {
    let mut cell = moving();
    let id = replica_id("shop/web/1");
    assert!(
        matches!(next(&cell, false), MoveStep::Wait(_)),
        "the original runs, the successor does not"
    );
    cell.report(&id, Generation(2), ObservedState::Starting, None);
    assert!(matches!(next(&cell, false), MoveStep::Wait(_)));
    cell.report(&id, Generation(2), ObservedState::Running, None);
    assert_eq!(next(&cell, false), MoveStep::Promote);
}

#[test]
fn a_successor_that_failed_once_has_failed_even_if_it_starts_again() {
    let mut cell = moving();
    let id = replica_id("shop/web/1");
    cell.report(&id, Generation(2), ObservedState::Failed, None);
    cell.report(&id, Generation(2), ObservedState::Starting, None);
    assert_eq!(next(&cell, false), MoveStep::Abandon(AbandonReason::SuccessorFailed));
}

/// Least case of a chaos seed: what replaces a lost replica has no time-out, so it was waited for without end.
#[test]
fn a_successor_that_was_stopped_is_not_waited_for() {
    let mut cell = moving_for(MoveCause::NodeLost, &spread(1));
    cell.report(&replica_id("shop/web/1"), Generation(2), ObservedState::Starting, None);
    cell.report(&replica_id("shop/web/1"), Generation(2), ObservedState::Stopped, None);
    assert_eq!(next(&cell, false), MoveStep::Abandon(AbandonReason::Needless));
}

/// Whether a successor that has been in this state for so long is given up.
fn is_given_up(cell: &Cell, state: ObservedState, after: Millis) -> bool {
    let mut cell = cell.clone();
    cell.report(&replica_id("shop/web/1"), Generation(2), state, None);
    next(&cell.later(after), false) == MoveStep::Abandon(AbandonReason::TimedOut)
}

#[test]
fn a_successor_has_a_time_to_pull_and_one_to_get_healthy() {
    let policy = Policy::default();
    let cell = moving_for(MoveCause::Outdated, &spread(1));
    let (pulling, starting) = (ObservedState::Pulling, ObservedState::Starting);
    for (case, state, after, expected) in [
        ("pulling for a minute", pulling, policy.step_timeout, false),
        ("pulling for ever", pulling, policy.pull_timeout, true),
        ("a moment before the minute is over", starting, Millis(policy.step_timeout.0 - 1), false),
        ("starting for a minute", starting, policy.step_timeout, true),
    ] {
        assert_eq!(is_given_up(&cell, state, after), expected, "{case}");
    }
}

#[test]
fn how_long_a_successor_may_take_to_get_healthy_depends_on_why_it_starts() {
    let mut slow = spread(1);
    slow.container.healthcheck = Some(Healthcheck {
        test: HealthTest::Shell("true".into()),
        interval: Some(Millis::seconds(10)),
        timeout: Some(Millis::seconds(5)),
        start_period: Some(Millis::minutes(3)),
        start_interval: None,
        retries: Some(4),
    });
    let (plain, slow) = (&spread(1), &slow);
    let ever = Some(Millis::minutes(24 * 60));
    for (case, cause, spec, limit) in [
        ("a rollout has a minute", MoveCause::Outdated, plain, Some(Millis::minutes(1))),
        ("or what its check implies", MoveCause::Outdated, slow, Some(Millis::minutes(4))),
        ("a restart likewise", MoveCause::Restart, slow, Some(Millis::minutes(4))),
        ("relief likewise", MoveCause::Pressure, plain, Some(Millis::minutes(1))),
        ("and what is rescheduled", MoveCause::Reschedule, plain, Some(Millis::minutes(1))),
        ("what must leave its node has five", MoveCause::Misplaced, plain, Some(DRAIN_TIMEOUT)),
        ("what is lost has nothing to go back to", MoveCause::NodeLost, plain, None),
    ] {
        let cell = moving_for(cause, spec);
        let starting = ObservedState::Starting;
        if let Some(limit) = limit {
            assert!(!is_given_up(&cell, starting, Millis(limit.0 - 1)), "{case}: just before");
        }
        let after = limit.or(ever).unwrap();
        assert_eq!(is_given_up(&cell, starting, after), limit.is_some(), "{case}");
    }
    let mut cell = moving_for(MoveCause::Misplaced, plain);
    let (node, timeout, force) = (node_id("ash"), Millis::minutes(2), false);
    cell.change(Writer::Operator, Change::Drain { node, timeout, force });
    assert!(!is_given_up(&cell, ObservedState::Starting, Millis(timeout.0 - 1)));
    assert!(is_given_up(&cell, ObservedState::Starting, timeout), "a drain has its own time");
}

#[test]
fn a_move_whose_reason_is_gone_is_given_up_unless_it_is_done() {
    let mut cell = moving();
    assert_eq!(next(&cell, true), MoveStep::Abandon(AbandonReason::Needless));
    cell.report(&replica_id("shop/web/1"), Generation(2), ObservedState::Running, None);
    assert_eq!(next(&cell, true), MoveStep::Promote);
    assert_eq!(
        next(&moving().down("birch"), true),
        MoveStep::Abandon(AbandonReason::DestinationLost)
    );
}
