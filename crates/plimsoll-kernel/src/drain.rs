//! Drains that take too long.

use plimsoll_model::{Change, Guarded, NodeId, State, Timestamp};

/// The drains to give up now, and when to look again at the others.
pub(crate) fn judge(state: &State, now: Timestamp) -> (Vec<Guarded>, Option<Timestamp>) {
    let (mut overdue, mut look_again) = (Vec::new(), None);
    for id in state.draining() {
        let Some(drain) = state.node(id).and_then(|node| node.drain) else { continue };
        if !holds_any(state, id) {
            continue;
        }
        let deadline = drain.deadline();
        if now >= deadline {
            overdue.push(Change::GiveUpDrain { node: id.clone() }.free());
        } else {
            look_again = Some(look_again.map_or(deadline, |at: Timestamp| at.min(deadline)));
        }
    }
    (overdue, look_again)
}

/// Whether replicas are still assigned to the node and not stopped there by force.
fn holds_any(state: &State, node: &NodeId) -> bool {
    let tenants = state.load(node).into_iter().flat_map(|load| &load.tenants);
    tenants.filter_map(|id| state.replica(id)).any(|replica| {
        let here = replica.assignment.as_ref().filter(|assignment| assignment.node == *node);
        here.is_some_and(|assignment| !replica.is_stopped(assignment))
    })
}

#[cfg(test)]
mod tests {
    use plimsoll_model::node::DRAIN_TIMEOUT;
    use plimsoll_model::spec::OnFailure;
    use plimsoll_model::testkit::{Cell, cell, cpus, global, node_id, replica_id, spread};
    use plimsoll_model::{Millis, ObservedState, Writer};

    use super::*;
    use crate::agent::wanted;
    use crate::testkit::Passes;

    fn three() -> Cell {
        cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4))
    }

    #[test]
    fn a_drain_that_nothing_comes_of_is_given_up_and_everything_runs_on() {
        let cell = three().deploy("shop", [("db", spread(3).volume("d"))]).settle().drain("ash");
        let cell = cell.settle().later(Millis(DRAIN_TIMEOUT.0 - 1)).settle();
        assert!(!cell.state.node(&node_id("ash")).unwrap().drain.unwrap().has_timed_out);
        let cell = cell.later(Millis(1)).settle();
        let node = cell.state.node(&node_id("ash")).unwrap();
        assert!(node.drain.unwrap().has_timed_out && !node.is_open());
        assert_eq!(cell.state.replicas().filter(|(_, r)| r.is_running()).count(), 3);
        let word = cell.state.audit().events().map(|event| event.what.word());
        assert_eq!(word.filter(|word| *word == "drain_timeout").count(), 1);
    }

    #[test]
    fn by_force_what_cannot_move_is_stopped_and_comes_back_with_its_node() {
        let mut cell = three().deploy("shop", [("db", spread(3).volume("d"))]).settle();
        let places = cell.placed("shop/db");
        let (node, timeout) = (node_id("ash"), DRAIN_TIMEOUT);
        cell.change(Writer::Operator, Change::Drain { node, timeout, force: true });
        let wants = |cell: &Cell| {
            let ids: Vec<_> = cell.state.replicas().map(|(id, _)| id).collect();
            let node = node_id("ash");
            ids.iter().map(|id| wanted(&cell.state, &node, id).count()).sum::<usize>()
        };
        let mut cell = cell.pass();
        assert_eq!(wants(&cell), 0, "nothing is asked of the node");
        let held: Vec<_> = cell
            .state
            .replicas()
            .filter_map(|(id, replica)| {
                let here = replica.assignment.as_ref().filter(|it| it.node == node_id("ash"))?;
                Some((id, here.generation))
            })
            .collect();
        for (id, generation) in &held {
            cell.report(id, *generation, ObservedState::Stopped, None);
        }
        let mut cell = cell.pass().pass();
        for (id, generation) in &held {
            let seen = &cell.state.replica(id).unwrap().observed[generation];
            assert_eq!(seen.state, ObservedState::Stopped, "what was stopped stays so");
        }
        let availability = plimsoll_model::Availability::Active;
        cell.change(
            Writer::Operator,
            Change::SetAvailability { node: node_id("ash"), availability },
        );
        let cell = cell.settle();
        assert_eq!(cell.placed("shop/db"), places, "its data is where it was");
        assert_eq!(cell.state.replicas().filter(|(_, r)| r.is_running()).count(), 3);
    }

    #[test]
    fn what_was_stopped_by_force_and_fails_elsewhere_is_not_tried_again_at_once() {
        let cell = cell().node("ash", cpus(2)).node("birch", cpus(4)).cordon("birch");
        let mut cell = cell.deploy("shop", [("web", spread(1))]).settle();
        let id = replica_id("shop/web/1");
        let generation = |cell: &Cell| {
            let replica = cell.state.replica(&id).unwrap();
            replica.heading().unwrap().generation
        };
        let (node, timeout) = (node_id("ash"), DRAIN_TIMEOUT);
        cell.change(Writer::Operator, Change::Drain { node, timeout, force: true });
        let mut cell = cell.pass();
        cell.report(&id, generation(&cell), ObservedState::Stopped, None);
        // It does not fit where it was any more.
        let mut wide = spread(1).reserve(3_000, 64);
        wide.update.on_failure = OnFailure::Pause;
        let mut cell = cell.deploy("shop", [("web", wide)]);
        for node in ["ash", "birch"] {
            let availability = plimsoll_model::Availability::Active;
            let node = node_id(node);
            cell.change(Writer::Operator, Change::SetAvailability { node, availability });
        }
        let is_moving =
            |cell: &Cell| cell.state.replica(&id).is_some_and(|it| it.successor.is_some());
        let mut cell = cell.pass();
        assert!(is_moving(&cell), "it comes back on birch");
        let failed = generation(&cell);
        cell.report(&id, failed, ObservedState::Failed, None);
        let mut cell = cell.pass();
        cell.report(&id, failed, ObservedState::Stopped, None);
        let cell = cell.pass().pass();
        assert!(!is_moving(&cell), "what failed a moment ago fails again");
        assert!(is_moving(&cell.later(Millis::minutes(5)).pass()), "but it may be mended");
    }

    #[test]
    fn what_was_stopped_by_force_ends_when_its_service_is_laid_out_otherwise() {
        for (before, after) in [(spread(1), global()), (global(), spread(1))] {
            let mut cell = cell().node("ash", cpus(4)).deploy("shop", [("web", before)]).settle();
            let (id, generation) = {
                let (id, replica) = cell.state.replicas().next().unwrap();
                (id, replica.assignment.as_ref().unwrap().generation)
            };
            let (node, timeout) = (node_id("ash"), DRAIN_TIMEOUT);
            cell.change(Writer::Operator, Change::Drain { node, timeout, force: true });
            // Before any pass: on a drained node `global` has none to keep.
            let mut cell = cell.deploy("shop", [("web", after)]);
            cell.report(&id, generation, ObservedState::Stopped, None);
            let cell = cell.settle();
            assert!(cell.state.replica(&id).is_none(), "it serves nobody, and no longer waits");
        }
    }
}
