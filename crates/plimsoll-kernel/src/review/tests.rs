use plimsoll_model::review::{MoveReview, MovingLoop};
use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, spread};
use plimsoll_model::{AuditEntry, MoveCause, NodePressure, Pressure, Writer};

use super::*;
use crate::Signals;
use crate::rebalance::{Dimension, PressureSample, Relief};
use crate::reschedule::Rescheduler;
use crate::testkit::Passes;

const ID: &str = "d/web/1";

/// Two nodes with a replica on one, which the rebalancer moves to the other because it is to get cooler by 0.20.
fn relieved() -> Cell {
    let cell = cell().node("ash", cpus(4)).deploy("d", [("web", spread(1))]).settle();
    let mut cell = cell.node("birch", cpus(4)).later(Millis::minutes(20));
    let (replica, share) = (replica_id(ID), Pressure::percent);
    let relief = Relief {
        replica: replica.clone(),
        src: node_id("ash"),
        dst: node_id("birch"),
        dominant: Dimension::Cpu,
        relief: share(20),
        score: 190_000,
        move_cost: share(1),
        src_before: share(90),
        src_after: share(70),
        dst_before: share(10),
        dst_after: share(30),
        refused: Vec::new(),
    };
    let spec = cell.state.replica(&replica).unwrap().heading().unwrap().spec;
    let (node, cause) = (node_id("birch"), MoveCause::Pressure);
    let batch = vec![
        Change::Succeed { replica, node, spec, cause }.free(),
        Change::Record { entry: AuditEntry::Relieve(Box::new(relief)) }.free(),
    ];
    cell.apply(Writer::Rebalancer, batch).unwrap();
    cell
}

/// A rebalancer that has measured so much of the source, in hundredths; none: it is silent.
fn measured(cell: &Cell, ash: Option<u32>) -> Rebalancer {
    let policy = Policy::default();
    let mut rebalancer = Rebalancer::default();
    if let Some(percent) = ash {
        let pressure = NodePressure::new(Pressure::percent(percent), Pressure::percent(10));
        rebalancer.sample(&node_id("ash"), Some(PressureSample { at: cell.now, pressure }));
    }
    let roster = Roster::new(&cell.state, &Signals::default(), &policy);
    rebalancer.cycle(&cell.state, &roster, &policy, cell.now);
    rebalancer
}

fn due(cell: &Cell, rebalancer: &Rebalancer) -> Vec<MoveReview> {
    let policy = Policy::default();
    let roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let batch = reviews(&cell.state, &roster, &policy, rebalancer, cell.now);
    let reviewed = batch.into_iter().map(|guarded| match guarded.change {
        Change::ReviewMove { review } => *review,
        other => panic!("{other:?}"),
    });
    reviewed.collect()
}

fn result(cell: &Cell, ash: Option<u32>) -> Option<ReviewResult> {
    due(cell, &measured(cell, ash)).pop().map(|review| review.result)
}

fn not_judged(why: UnjudgedReason) -> ReviewResult {
    ReviewResult::NotJudged { why }
}

#[test]
fn a_relief_is_realised_as_far_as_the_source_got_cooler_and_never_beyond_what_was_predicted() {
    let cell = relieved().obey().settle().later(Millis(10 * 60_000 - 1));
    assert_eq!(result(&cell, Some(70)), None, "it is too early");
    let cell = cell.later(Millis(1));
    for (case, ash, gain) in [
        ("as predicted", 70, 200_000),
        ("its load fell too", 30, 200_000),
        ("half of it", 80, 100_000),
        ("its load grew by as much", 90, 0),
        ("it is hotter than before", 95, -50_000),
    ] {
        assert_eq!(result(&cell, Some(ash)), Some(ReviewResult::Realised { gain }), "{case}");
    }
}

#[test]
fn what_says_nothing_of_the_loop_is_not_judged() {
    let ten = Millis::minutes(10);
    let under_way = relieved();
    assert_eq!(result(&under_way.later(ten), Some(70)), None, "it is still under way");
    assert_eq!(
        result(&relieved().later(ten).later(ten), Some(70)),
        Some(not_judged(UnjudgedReason::Undone))
    );

    let mut undone = relieved();
    let why = plimsoll_model::reason::AbandonReason::TimedOut;
    undone.change(Writer::Scheduler, Change::Abandon { replica: replica_id(ID), why });
    assert_eq!(result(&undone.later(ten), Some(70)), Some(not_judged(UnjudgedReason::Undone)));

    let stands = || relieved().obey().settle();
    let silent = stands().later(ten);
    assert_eq!(result(&silent, None), None, "it may speak again");
    assert_eq!(result(&silent.later(ten), None), Some(not_judged(UnjudgedReason::Silent)));

    let elsewhere = stands().node("cedar", cpus(4)).cordon("ash");
    let moved_on = elsewhere.drain("birch").settle().obey().settle().later(ten);
    assert_eq!(result(&moved_on, Some(70)), Some(not_judged(UnjudgedReason::MovedOn)));

    let gone = stands().undeploy("d").later(ten);
    assert_eq!(result(&gone, Some(70)), Some(not_judged(UnjudgedReason::Gone)));
}

/// Three nodes with ten replicas each and a fourth that joins: one is moved there.
fn rescheduled() -> Cell {
    let cell = cell().node("ash", cpus(16)).node("birch", cpus(16)).node("cedar", cpus(16));
    let cell = cell.deploy("d", [("web", spread(30))]).settle().later(Millis::minutes(20));
    let mut cell = cell.node("dogwood", cpus(16)).later(Millis::minutes(2));
    let policy = Policy::default();
    let roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let (mut rescheduler, mut rebalancer) = (Rescheduler::default(), Rebalancer::default());
    let batch = rescheduler.cycle(&cell.state, &roster, &policy, &mut rebalancer, cell.now);
    cell.apply(Writer::Rescheduler, batch).unwrap();
    cell.obey().settle()
}

#[test]
fn a_better_place_is_realised_as_far_as_it_is_still_the_better_one() {
    let ten = Millis::minutes(10);
    let reviewed = |cell: Cell| {
        let [review] = &due(&cell, &Rebalancer::default())[..] else { panic!("one was moved") };
        assert_eq!((review.by, review.predicted), (MovingLoop::Rescheduler, 1_845));
        review.result
    };
    assert_eq!(reviewed(rescheduled().later(ten)), ReviewResult::Realised { gain: 1_845 });
    let closed = ReviewResult::NotJudged { why: UnjudgedReason::Closed };
    assert_eq!(reviewed(rescheduled().cordon("dogwood").later(ten)), closed);
    // Every other node leaves, and all of the service crowds where it went.
    let mut crowded = rescheduled();
    for node in ["ash", "birch", "cedar"] {
        crowded = crowded.drain(node).settle();
    }
    for nth in 0..3 {
        crowded = crowded.node(&format!("elm-{nth}"), cpus(16));
    }
    assert_eq!(reviewed(crowded.later(ten)), ReviewResult::Realised { gain: 0 });
}

#[test]
fn reviews_are_many_in_a_cycle_but_not_all() {
    let mut cell = relieved().obey().settle();
    let pending = cell.state.reviews().pending()[&replica_id(ID)].clone();
    for nth in 2..300 {
        let PredictedGain::Relief { before, relief } = pending.predicted else { panic!() };
        let relief = Relief {
            replica: replica_id(&format!("d/web/{nth}")),
            src: pending.src.clone(),
            dst: pending.dst.clone(),
            dominant: Dimension::Cpu,
            relief,
            score: 0,
            move_cost: Pressure::ZERO,
            src_before: before,
            src_after: Pressure::ZERO,
            dst_before: Pressure::ZERO,
            dst_after: Pressure::ZERO,
            refused: Vec::new(),
        };
        let entry = AuditEntry::Relieve(Box::new(relief));
        cell.change(Writer::Rebalancer, Change::Record { entry });
    }
    let cell = cell.later(Millis::minutes(10));
    assert_eq!(due(&cell, &measured(&cell, Some(70))).len(), REVIEWS_PER_CYCLE);
}
