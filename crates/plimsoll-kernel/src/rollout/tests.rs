use plimsoll_model::rollout::{RolloutHalt, RolloutPhase};
use plimsoll_model::spec::{OnFailure, UpdateOrder};
use plimsoll_model::testkit::{Cell, cell, cpus, global, service_key, spread};
use plimsoll_model::{
    Change, Generation, Millis, ObservedState, ReplicaId, Rollout, ServiceSpec, SpecHash, Writer,
};

use crate::testkit::{Passes, decide};

const WEB: &str = "shop/web";

fn three() -> Cell {
    cell().node("ash", cpus(8)).node("birch", cpus(8)).node("cedar", cpus(8))
}

fn old(replicas: u32) -> ServiceSpec {
    spread(replicas)
}

fn new(replicas: u32) -> ServiceSpec {
    spread(replicas).image("app:2")
}

/// A service that runs, and a second spec of it that was applied and not acted on yet.
fn rolling(from: ServiceSpec, to: ServiceSpec) -> Cell {
    three().deploy("shop", [("web", from)]).settle().deploy("shop", [("web", to)])
}

fn rollout(cell: &Cell) -> Rollout {
    cell.state.service(&service_key(WEB)).unwrap().row.rollout.clone().unwrap()
}

fn running(cell: &Cell) -> usize {
    cell.state.replicas().filter(|(_, replica)| replica.is_running()).count()
}

fn on(cell: &Cell, spec: SpecHash) -> usize {
    let on = |hash| hash == spec;
    cell.state.replicas().filter(|(_, r)| r.assignment.as_ref().is_some_and(|a| on(a.spec))).count()
}

/// Every assignment of this spec that holds room.
fn tries(cell: &Cell, spec: SpecHash) -> Vec<(ReplicaId, Generation)> {
    let held = cell.state.replicas().flat_map(|(id, replica)| {
        let held: Vec<_> = replica.holds().map(|a| (id.clone(), a.clone())).collect();
        held
    });
    held.filter(|(_, a)| a.spec == spec).map(|(id, a)| (id, a.generation)).collect()
}

/// Nodes do as they are told, except that nothing of this spec ever gets healthy.
fn obey_but(mut cell: Cell, broken: SpecHash) -> Cell {
    let tried = tries(&cell, broken);
    for (id, generation) in &tried {
        let row = cell.state.replica(id).unwrap();
        let leaves = row.leaving.iter().any(|leaving| leaving.generation == *generation);
        let state = if leaves { ObservedState::Stopped } else { ObservedState::Failed };
        cell.report(id, *generation, state, None);
    }
    let others: Vec<_> = cell
        .state
        .replicas()
        .flat_map(|(id, replica)| {
            let leaves = |g| replica.leaving.iter().any(|l| l.generation == g);
            let held: Vec<_> = replica
                .holds()
                .filter(|a| a.spec != broken)
                .map(|a| (id.clone(), a.generation, leaves(a.generation)))
                .collect();
            held
        })
        .collect();
    for (id, generation, leaves) in others {
        let state = if leaves { ObservedState::Stopped } else { ObservedState::Running };
        cell.report(&id, generation, state, None);
    }
    cell
}

#[test]
fn a_spec_that_never_gets_healthy_is_aborted_once_and_all_replicas_run_the_old_one() {
    let mut cell = rolling(old(3), new(3));
    let broken = new(3).hash;
    let mut aborts = 0;
    for _ in 0..40 {
        let batch = decide(&cell).batch;
        aborts += batch.iter().filter(|g| matches!(g.change, Change::AbortRollout { .. })).count();
        cell = obey_but(cell.pass(), broken).later(Millis::seconds(15));
        assert_eq!(running(&cell), 3, "the original was never touched");
    }
    assert_eq!((aborts, on(&cell, old(3).hash)), (1, 3));
    let rollout = rollout(&cell);
    assert_eq!(rollout.phase, RolloutPhase::Undone);
    assert_eq!(rollout.why, Some(RolloutHalt::Failures { failed: 1, of: 3 }));
    assert!(decide(&cell).batch.is_empty(), "nothing flips ten minutes later");

    let cell = cell.deploy("shop", [("web", new(3))]).pass();
    assert_eq!(tries(&cell, broken).len(), 1, "an identical apply tries once more");
}

#[test]
fn steps_already_taken_are_taken_back_the_same_careful_way() {
    let mut cell = rolling(old(3), new(3)).pass().obey().pass();
    assert_eq!(on(&cell, new(3).hash), 1, "the first step is done");
    cell = cell.pass();
    let newest = tries(&cell, new(3).hash).into_iter().max_by_key(|(_, g)| *g).unwrap();
    cell.report(&newest.0, newest.1, ObservedState::Failed, None);
    for _ in 0..20 {
        cell = cell.pass();
        let moving = cell.state.replicas().filter(|(_, r)| r.successor.is_some()).count();
        assert!(moving <= 1 && running(&cell) == 3, "{moving} moving");
        cell = cell.obey();
    }
    assert_eq!((on(&cell, old(3).hash), rollout(&cell).phase), (3, RolloutPhase::Undone));
    let service = cell.state.service(&service_key(WEB)).unwrap();
    assert_eq!(service.row.revision.0, 1, "the service is of the revision it returned to");
}

#[test]
fn an_abort_takes_the_count_back_as_well() {
    let cell = obey_but(rolling(old(2), new(5)).pass(), new(5).hash);
    let mut cell = cell.pass();
    for _ in 0..20 {
        cell = obey_but(cell.pass(), new(5).hash);
    }
    assert_eq!((running(&cell), on(&cell, old(2).hash)), (2, 2));
}

#[test]
fn what_fails_after_its_step_counts_while_it_is_watched() {
    let mut to = new(2);
    to.update.monitor = Millis::seconds(30);
    let mut cell = rolling(old(2), to.clone());
    for _ in 0..8 {
        cell = cell.pass().obey();
    }
    assert_eq!((on(&cell, to.hash), rollout(&cell).phase), (2, RolloutPhase::Rolling));
    assert!(decide(&cell).wake.is_some(), "the end is looked for");
    let fine = cell.clone().later(Millis::seconds(30)).pass();
    assert_eq!(rollout(&fine).phase, RolloutPhase::Done);
    let (id, generation) = tries(&cell, to.hash).remove(0);
    cell.report(&id, generation, ObservedState::Failed, None);
    assert_eq!(rollout(&cell.pass()).phase, RolloutPhase::Undoing);
}

#[test]
fn the_delay_lies_between_two_steps() {
    let mut to = new(2);
    to.update.delay = Millis::seconds(10);
    let cell = rolling(old(2), to.clone()).pass().obey().pass();
    assert_eq!(on(&cell, to.hash), 1);
    let early = cell.clone().later(Millis(9_999)).pass();
    assert_eq!(tries(&early, to.hash).len(), 1);
    let later = cell.later(Millis::seconds(10)).pass();
    assert_eq!(tries(&later, to.hash).len(), 2);
}

#[test]
fn as_many_change_at_once_as_the_file_says() {
    for (parallelism, expected) in [(1, 1), (2, 2), (0, 5)] {
        let mut to = new(5);
        to.update.parallelism = parallelism;
        let cell = rolling(old(5), to.clone()).pass();
        assert_eq!(tries(&cell, to.hash).len(), expected, "parallelism {parallelism}");
    }
}

#[test]
fn a_share_of_failures_may_be_allowed() {
    let mut to = new(4);
    to.update.max_failure_millionths = 250_000;
    let mut cell = rolling(old(4), to.clone()).pass();
    let (id, generation) = tries(&cell, to.hash).remove(0);
    cell.report(&id, generation, ObservedState::Failed, None);
    for _ in 0..20 {
        cell = cell.pass().obey().later(Millis::seconds(2));
    }
    assert_eq!(
        (on(&cell, to.hash), rollout(&cell).phase),
        (3, RolloutPhase::Done),
        "one of four may"
    );
}

#[test]
fn on_failure_it_pauses_or_goes_on_where_the_file_says_so() {
    for (on_failure, phase, reached) in
        [(OnFailure::Pause, RolloutPhase::Paused, 0), (OnFailure::Continue, RolloutPhase::Done, 2)]
    {
        let mut to = new(3);
        to.update.on_failure = on_failure;
        let mut cell = rolling(old(3), to.clone()).pass();
        let (id, generation) = tries(&cell, to.hash).remove(0);
        cell.report(&id, generation, ObservedState::Failed, None);
        for _ in 0..20 {
            cell = cell.pass().obey().later(Millis::seconds(2));
        }
        assert_eq!((rollout(&cell).phase, on(&cell, to.hash)), (phase, reached), "{on_failure:?}");
        assert_eq!(running(&cell), 3);
    }
}

#[test]
fn a_pause_lets_what_moves_finish_and_begins_nothing() {
    let service = service_key(WEB);
    let mut cell = rolling(old(3), new(3)).pass();
    let pause = Change::PauseRollout { service: service.clone(), why: RolloutHalt::Operator };
    cell.change(Writer::Operator, pause);
    for _ in 0..10 {
        cell = cell.pass().obey();
    }
    assert_eq!(on(&cell, new(3).hash), 1);
    cell.change(Writer::Operator, Change::ResumeRollout { service: service.clone() });
    for _ in 0..20 {
        cell = cell.pass().obey().later(Millis::seconds(2));
    }
    assert_eq!((on(&cell, new(3).hash), rollout(&cell).phase), (3, RolloutPhase::Done));
    let abort = Change::AbortRollout { service, why: RolloutHalt::Operator };
    assert!(cell.apply(Writer::Operator, vec![abort.free()]).is_err(), "it is over");
}

#[test]
fn a_later_apply_supersedes_and_returns_to_the_last_that_got_through() {
    let cell = rolling(old(3), new(3)).pass().obey().pass();
    let third = spread(3).image("app:3");
    let mut cell = cell.deploy("shop", [("web", third.clone())]);
    assert_eq!(rollout(&cell).from.unwrap().spec.hash, old(3).hash, "app:2 never got through");
    for _ in 0..30 {
        cell = obey_but(cell.pass(), third.hash);
    }
    assert_eq!((on(&cell, old(3).hash), running(&cell)), (3, 3));
}

#[test]
fn what_runs_everywhere_is_returned_to_though_it_was_still_watched() {
    let mut cell = rolling(old(3), new(3));
    for _ in 0..8 {
        cell = cell.pass().obey();
    }
    assert_eq!((on(&cell, new(3).hash), rollout(&cell).phase), (3, RolloutPhase::Rolling));
    let cell = cell.deploy("shop", [("web", spread(3).image("app:3"))]);
    assert_eq!(rollout(&cell).from.unwrap().spec.hash, new(3).hash);
}

#[test]
fn a_restart_does_not_wait_until_a_rollout_is_watched_or_resumed() {
    let mut cell = rolling(old(1), new(1));
    for _ in 0..4 {
        cell = cell.pass().obey();
    }
    assert_eq!(rollout(&cell).phase, RolloutPhase::Rolling);
    let replica = cell.state.replicas().next().unwrap().0;
    cell.change(Writer::Operator, Change::Renew { replica });
    assert!(cell.pass().state.replicas().any(|(_, replica)| replica.successor.is_some()));
}

#[test]
fn who_goes_back_by_hand_half_way_has_nothing_to_abort_to() {
    let cell = rolling(old(3), new(3)).pass().obey().pass();
    let mut cell = cell.deploy("shop", [("web", old(3))]);
    assert_eq!(rollout(&cell).from, None);
    for _ in 0..20 {
        cell = cell.pass().obey().later(Millis::seconds(2));
    }
    assert_eq!((on(&cell, old(3).hash), rollout(&cell).phase), (3, RolloutPhase::Done));
}

#[test]
fn what_makes_way_first_is_missed_one_at_a_time_and_given_up_when_it_is_late() {
    let stop_first = |mut spec: ServiceSpec| {
        spec.update.order = UpdateOrder::StopFirst;
        spec
    };
    let to = stop_first(new(3));
    let cell = rolling(stop_first(old(3)), to.clone()).pass();
    let (id, generation) = tries(&cell, to.hash).remove(0);
    let mut cell = cell;
    cell.report(&id, generation, ObservedState::Starting, None);
    assert_eq!((running(&cell), decide(&cell).batch.len()), (2, 0), "the others wait for it");
    let cell = cell.later(Millis::seconds(60)).pass();
    assert!(rollout(&cell).failed.contains_key(&id.slot), "a minute is enough");
    let cell = cell.pass();
    assert_eq!(rollout(&cell).phase, RolloutPhase::Undoing);
    assert_eq!(on(&cell.settle(), old(3).hash), 3);
}

#[test]
fn a_global_service_rolls_node_by_node_and_back() {
    let to = global().image("app:2");
    let mut cell = rolling(global(), to.clone()).pass();
    assert_eq!((running(&cell), tries(&cell, to.hash).len()), (2, 1));
    let (id, generation) = tries(&cell, to.hash).remove(0);
    cell.report(&id, generation, ObservedState::Failed, None);
    for _ in 0..20 {
        cell = obey_but(cell.pass(), to.hash);
    }
    assert_eq!((on(&cell, global().hash), rollout(&cell).phase), (3, RolloutPhase::Undone));
}

#[test]
fn a_step_is_not_ended_by_the_fresh_health_of_the_old_generation() {
    let mut cell = rolling(old(1), new(1)).pass();
    let (id, _) = tries(&cell, new(1).hash).remove(0);
    let old_generation = cell.state.replica(&id).unwrap().assignment.as_ref().unwrap().generation;
    cell.report(&id, old_generation, ObservedState::Degraded, None);
    cell.report(&id, old_generation, ObservedState::Running, None);
    let cell = cell.pass();
    assert!(cell.state.replica(&id).unwrap().successor.is_some());
}

#[test]
fn a_node_lost_on_the_way_is_not_held_against_the_new_spec() {
    let db = |tag: &str| spread(2).volume("data").image(tag);
    let mut cell = rolling(db("db:1"), db("db:2"));
    for _ in 0..6 {
        cell = cell.pass().obey();
    }
    let node = cell.nodes_of(WEB).into_iter().next().unwrap();
    let cell = cell.down(node.as_str()).later(Millis::minutes(2)).pass().pass();
    assert_ne!(rollout(&cell).phase, RolloutPhase::Undoing);
}

#[test]
fn a_drain_and_a_rollout_of_one_service_share_one_budget() {
    let mut cell = rolling(old(3), new(3)).pass().drain("birch");
    for _ in 0..40 {
        let moving = cell.state.replicas().filter(|(_, r)| r.successor.is_some()).count();
        assert!(moving <= 1 && running(&cell) == 3, "{moving} moving, {} running", running(&cell));
        cell = cell.pass().obey().later(Millis::seconds(1));
    }
    assert_eq!(on(&cell, new(3).hash), 3);
    assert!(cell.nodes_of(WEB).iter().all(|node| node.as_str() != "birch"));
}

#[test]
fn two_drains_at_once_keep_the_full_count() {
    let cell = cell().node("ash", cpus(8)).node("birch", cpus(8)).node("cedar", cpus(8));
    let mut cell = cell
        .node("elm", cpus(8))
        .deploy("shop", [("web", spread(4))])
        .settle()
        .drain("ash")
        .drain("elm");
    for _ in 0..20 {
        let moving = cell.state.replicas().filter(|(_, r)| r.successor.is_some()).count();
        assert!(moving <= 1 && running(&cell) == 4);
        cell = cell.pass().obey();
    }
    assert_eq!(cell.nodes_of(WEB).len(), 2);
}
