//! What a node does next about one replica: given its orders and what it has, one step. The node's edge carries the
//! step out and reports; the simulator does both under its own clock.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, Generation, Node, NodeId, NodeStatus, ObservedState, Replica, ReplicaId,
    ServiceSpec, State,
};

/// A container, or the beginnings of one, on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalContainer {
    pub generation: Generation,
    pub phase: ContainerPhase,
    /// It was started at least once, so that nothing it depends on is waited for again.
    pub has_started: bool,
}

/// A generation that the node is asked to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedContainer {
    pub generation: Generation,
    /// What it depends on has not come far enough for its first start.
    pub is_held: bool,
    /// It ended for good: what is left of it is kept for its logs, and nothing of it starts again.
    pub is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerPhase {
    Pulling,
    /// The image is here; nothing runs.
    Pulled,
    Starting,
    /// The process runs, healthy or not.
    Up,
    Stopping,
    /// It ended by itself.
    Exited,
}

/// One thing to do. A node may do several at once, for different generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContainerStep {
    Pull(Generation),
    Start(Generation),
    /// Say that it waits for what it depends on.
    Await(Generation),
    Stop(Generation),
    /// Clear away what is no longer asked for and does not run.
    Remove(Generation),
}

/// What the node is asked to run of the replica.
pub fn wanted<'s>(
    state: &'s State,
    node: &'s NodeId,
    id: &'s ReplicaId,
) -> impl Iterator<Item = &'s Assignment> {
    let replica = state.replica(id);
    let is_cleared = replica.is_some_and(|replica| is_cleared_away(state, node, replica));
    let awaits_stop = replica.is_some_and(|replica| awaits_stop(state, node, id, replica));
    // What has begun is not stopped for another copy that stops anyway: what has stopped never starts again.
    let is_held = move |assignment: &Assignment| {
        let is_fresh = !replica.is_some_and(|replica| has_begun(replica, assignment));
        is_fresh && (awaits_stop || awaits_data(state, node, id, assignment))
    };
    // What was stopped has ended: what comes after it is another generation.
    let has_ended =
        move |assignment: &Assignment| replica.is_some_and(|r| r.is_stopped(assignment));
    replica
        .into_iter()
        .filter(move |_| !is_cleared)
        .flat_map(|r| r.assignment.iter().chain(r.successor.as_ref().map(|s| &s.assignment)))
        .filter(move |assignment| assignment.node == *node)
        .filter(move |assignment| !has_ended(assignment) && !is_held(assignment))
}

/// Whether its node has said that it is on the way, or there.
fn has_begun(replica: &Replica, assignment: &Assignment) -> bool {
    let seen = replica.observation(assignment).map(|seen| seen.state);
    !matches!(seen, None | Some(ObservedState::Pending | ObservedState::Stopped))
}

/// Its node is drained by force, and it cannot go anywhere else: it is stopped there, and keeps its assignment.
pub(crate) fn is_cleared_away(state: &State, node: &NodeId, replica: &Replica) -> bool {
    // What has completed runs no more, and holds no room that its stop would give it back.
    let is_done = replica.assignment.as_ref().is_some_and(|it| replica.has_vacated(it));
    let is_stuck = replica.waiting.is_some() && replica.successor.is_none() && !is_done;
    is_stuck && state.node(node).is_some_and(Node::is_cleared)
}

/// It cannot run twice, and another copy of it is still stopping on another node that lives.
fn awaits_stop(state: &State, node: &NodeId, id: &ReplicaId, replica: &Replica) -> bool {
    let is_live = |at: &NodeId| state.node(at).is_some_and(|at| at.status == NodeStatus::Ready);
    let mut elsewhere = replica.leaving.iter().filter(|leaving| leaving.node != *node);
    elsewhere.any(|leaving| is_live(&leaving.node))
        && state
            .service(&id.service)
            .and_then(|service| service.desired())
            .is_some_and(|spec| !spec.can_run_twice())
}

/// Another replica that writes the same data on this node is still stopping: one that was scaled down or deleted a moment ago,
/// or whose service has another name by now. Services that share a volume write it side by side, and wait for none of it.
fn awaits_data(state: &State, node: &NodeId, id: &ReplicaId, assignment: &Assignment) -> bool {
    let deployment = &id.service.deployment;
    let written = |service: &Service, assignment: &Assignment| {
        let spec = service.spec_of(assignment);
        spec.map(|spec| spec.container.written_data(deployment)).unwrap_or_default()
    };
    let Some(own) = state.service(&id.service).map(|service| written(service, assignment)) else {
        return false;
    };
    if own.is_empty() {
        return false;
    }
    let is_same = |other: &BTreeSet<String>| !other.is_disjoint(&own);
    state.services_of(deployment).any(|key| {
        let Some(service) = state.service(key) else { return false };
        let shares = |spec: &Arc<ServiceSpec>| is_same(&spec.container.written_data(deployment));
        if *key != id.service && service.desired().is_some_and(shares) {
            return false;
        }
        let mut others =
            service.replicas.iter().filter(|(slot, _)| *key != id.service || **slot != id.slot);
        others.any(|(_, other)| {
            let mut here = other.leaving.iter().filter(|leaving| leaving.node == *node);
            here.any(|leaving| is_same(&written(service, leaving)))
        })
    })
}

/// Whether any copy of the replica is still to begin.
pub(crate) fn is_to_begin(replica: &Replica) -> bool {
    let successor = replica.successor.as_ref().map(|successor| &successor.assignment);
    let mut given = replica.assignment.iter().chain(successor);
    given.any(|assignment| !has_begun(replica, assignment))
}

/// The steps a node should begin now for a replica of which it is asked to run these generations. Where it is asked
/// for none, whatever is here is an orphan.
pub fn next(wanted: &[WantedContainer], local: &[LocalContainer]) -> Vec<ContainerStep> {
    let find = |generation: Generation| local.iter().find(|have| have.generation == generation);
    // A container is not touched until the image of what replaces it here is there: a bad tag costs nothing. What is older
    // than it does not replace it, and may be given up and never get an image.
    let awaits_image = |have: &LocalContainer| {
        let mut newer =
            wanted.iter().filter(|new| new.generation > have.generation && !new.is_over);
        newer.any(|new| find(new.generation).is_none_or(|it| it.phase == ContainerPhase::Pulling))
    };

    let mut steps = Vec::new();
    let is_leaving =
        |have: &&LocalContainer| wanted.iter().all(|new| new.generation != have.generation);
    for have in local.iter().filter(is_leaving) {
        match have.phase {
            ContainerPhase::Up if awaits_image(have) => {}
            ContainerPhase::Starting | ContainerPhase::Up => {
                steps.push(ContainerStep::Stop(have.generation))
            }
            ContainerPhase::Pulling | ContainerPhase::Pulled | ContainerPhase::Exited => {
                steps.push(ContainerStep::Remove(have.generation));
            }
            ContainerPhase::Stopping => {}
        }
    }
    // What replaces a leaving container in its own place waits until that is gone: the two may share a port, a volume
    // or the last of the room. After a make-before-break move the new one is up already and nothing waits.
    let blocked =
        local.iter().any(|have| is_leaving(&have) && have.phase != ContainerPhase::Pulled);
    for &WantedContainer { generation, is_held, .. } in wanted.iter().filter(|it| !it.is_over) {
        let Some(have) = find(generation) else {
            steps.push(ContainerStep::Pull(generation));
            continue;
        };
        let can_start = matches!(have.phase, ContainerPhase::Pulled | ContainerPhase::Exited);
        if can_start && !blocked {
            let is_held = is_held && !have.has_started;
            let step = if is_held { ContainerStep::Await } else { ContainerStep::Start };
            steps.push(step(generation));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use plimsoll_model::reason::AbandonReason;
    use plimsoll_model::spec::UpdateOrder;
    use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, spread};
    use plimsoll_model::{Change, Event, MoveCause, Writer};

    use super::*;
    use crate::orders;
    use crate::testkit::Passes;

    fn steps(cell: &Cell, replica: &ReplicaId, local: &[LocalContainer]) -> Vec<ContainerStep> {
        let node = node_id("ash");
        let wanted: Vec<WantedContainer> =
            orders::of(&cell.state, &node, replica).map(|order| order.wanted()).collect();
        next(&wanted, local)
    }

    fn local(generation: u64, phase: ContainerPhase) -> LocalContainer {
        LocalContainer { generation: Generation(generation), phase, has_started: false }
    }

    fn free(generation: Generation) -> WantedContainer {
        WantedContainer { generation, is_held: false, is_over: false }
    }

    #[test]
    fn a_node_does_what_it_is_told_and_clears_what_it_is_not() {
        let mut cell = cell().node("ash", cpus(4)).deploy("shop", [("web", spread(1))]);
        let (replica, spec, node) = (replica_id("shop/web/1"), spread(1).hash, node_id("ash"));
        cell.change(
            Writer::Scheduler,
            Change::Place { replica: replica.clone(), node: node.clone(), spec },
        );
        for (case, has, expected) in [
            ("it pulls first", vec![], vec![ContainerStep::Pull(Generation(1))]),
            ("a pull under way is left alone", vec![local(1, ContainerPhase::Pulling)], vec![]),
            (
                "then it starts",
                vec![local(1, ContainerPhase::Pulled)],
                vec![ContainerStep::Start(Generation(1))],
            ),
            (
                "what exited starts again",
                vec![local(1, ContainerPhase::Exited)],
                vec![ContainerStep::Start(Generation(1))],
            ),
            (
                "an older one serves on while the image of the new one is pulled",
                vec![local(0, ContainerPhase::Up), local(1, ContainerPhase::Pulling)],
                vec![],
            ),
            (
                "it stops once the image is there",
                vec![local(0, ContainerPhase::Up), local(1, ContainerPhase::Pulled)],
                vec![ContainerStep::Stop(Generation(0))],
            ),
            (
                "in its own place the new one waits for the old",
                vec![local(0, ContainerPhase::Stopping), local(1, ContainerPhase::Pulled)],
                vec![],
            ),
        ] {
            assert_eq!(steps(&cell, &replica, &has), expected, "{case}");
        }
        assert_eq!(
            steps(&cell, &replica_id("shop/gone/1"), &[local(7, ContainerPhase::Up)]),
            vec![ContainerStep::Stop(Generation(7))],
            "an orphan"
        );
    }

    /// Least case of a chaos seed: an original was given up and its node lost its container; its successor was called off
    /// for a newer one, and stayed up for ever, for the image of the original was waited for.
    #[test]
    fn a_container_waits_for_the_image_of_a_newer_one_alone() {
        let given_up = Generation(1);
        let (called_off, newest) = (local(2, ContainerPhase::Up), Generation(3));
        let wanted = [given_up, newest].map(free);
        let stop = ContainerStep::Stop(called_off.generation);
        assert!(!next(&wanted, &[called_off]).contains(&stop), "the newest has no image yet");
        let pulled = local(3, ContainerPhase::Pulled);
        let steps = next(&wanted, &[called_off, pulled]);
        assert!(steps.contains(&stop), "{steps:?}");
        assert!(!steps.contains(&ContainerStep::Start(newest)), "it waits for the other to stop");
        assert!(next(&[free(given_up)], &[called_off]).contains(&stop), "nothing replaces it");
    }

    #[test]
    fn what_has_ended_for_good_is_kept_and_never_starts_again() {
        let over = WantedContainer { is_over: true, ..free(Generation(1)) };
        for has in [vec![], vec![local(1, ContainerPhase::Exited)]] {
            assert_eq!(next(&[over], &has), vec![], "{has:?}");
        }
        let newer = next(&[free(Generation(2))], &[local(1, ContainerPhase::Exited)]);
        assert!(newer.contains(&ContainerStep::Remove(Generation(1))), "until the next run");
    }

    #[test]
    fn a_first_start_waits_for_what_it_depends_on_and_a_restart_does_not() {
        let held = WantedContainer { is_held: true, ..free(Generation(1)) };
        let (await_it, start) =
            (ContainerStep::Await(Generation(1)), ContainerStep::Start(Generation(1)));
        let has_run = |phase| LocalContainer { has_started: true, ..local(1, phase) };
        for (case, has, expected) in [
            ("its image is pulled meanwhile", vec![], vec![ContainerStep::Pull(Generation(1))]),
            ("then it waits", vec![local(1, ContainerPhase::Pulled)], vec![await_it]),
            (
                "a start that failed was none",
                vec![local(1, ContainerPhase::Exited)],
                vec![await_it],
            ),
            ("what ran before runs again", vec![has_run(ContainerPhase::Exited)], vec![start]),
            ("what runs is left alone", vec![has_run(ContainerPhase::Up)], vec![]),
            (
                "the one before it stops first",
                vec![local(0, ContainerPhase::Up), local(1, ContainerPhase::Pulled)],
                vec![ContainerStep::Stop(Generation(0))],
            ),
        ] {
            assert_eq!(next(&[held], &has), expected, "{case}");
        }
        let pulled = [local(1, ContainerPhase::Pulled)];
        assert_eq!(next(&[free(Generation(1))], &pulled), vec![start]);
    }

    /// Least case of a chaos seed: an original that came back was stopped for good, because its successor was still stopping.
    #[test]
    fn what_cannot_run_twice_waits_for_another_copy_to_stop_unless_it_has_begun() {
        let mut once = spread(1);
        once.update.order = UpdateOrder::StopFirst;
        let (replica, spec, cause) = (replica_id("shop/web/1"), once.hash, MoveCause::NodeLost);
        let mut cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
        cell = cell.deploy("shop", [("web", once)]);
        let (id, node) = (|| replica.clone(), node_id("ash"));
        cell.change(Writer::Scheduler, Change::Place { replica: id(), node: node.clone(), spec });
        let dst = node_id("birch");
        cell.change(Writer::Scheduler, Change::Succeed { replica: id(), node: dst, spec, cause });
        let why = AbandonReason::Needless;
        cell.change(Writer::Scheduler, Change::Abandon { replica: id(), why });
        for (state, is_wanted) in [
            (None, false),
            (Some(ObservedState::Pending), false),
            (Some(ObservedState::Pulling), true),
            (Some(ObservedState::Starting), true),
            (Some(ObservedState::Running), true),
        ] {
            let mut cell = cell.clone();
            if let Some(state) = state {
                cell.report(&replica, Generation(1), state, None);
            }
            let wanted = wanted(&cell.state, &node, &replica).count();
            assert_eq!(wanted, usize::from(is_wanted), "{state:?}");
            cell.report(&replica, Generation(2), ObservedState::Stopped, None);
            let wanted = super::wanted(&cell.state, &node, &replica).count();
            assert_eq!(wanted, 1, "the other has stopped: {state:?}");
        }
    }

    /// What replaces a replica under another name finds the data in use until the old container has stopped.
    #[test]
    fn a_new_replica_waits_for_the_last_one_to_let_go_of_their_data() {
        let db = || spread(1).volume("data");
        let shop = |services: Vec<(&str, ServiceSpec)>| {
            let cell = cell().node("ash", cpus(4)).deploy("shop", [("db", db()), ("app", db())]);
            cell.settle().deploy("shop", services).pass()
        };
        let orders = |cell: &Cell, id: &ReplicaId| wanted(&cell.state, &node_id("ash"), id).count();
        // Generations are given in the order of names: app has the first.
        let (app, old) = (replica_id("shop/app/1"), replica_id("shop/db/1"));
        for (case, services, new, leaving, waits) in [
            ("renamed", vec![("app", db()), ("new", db())], "shop/new/1", &old, true),
            ("with no data", vec![("app", db()), ("new", spread(1))], "shop/new/1", &old, false),
            (
                "an update of one that shares it",
                vec![("app", db().image("app:2")), ("db", db()), ("new", db())],
                "shop/new/1",
                &app,
                false,
            ),
        ] {
            let mut cell = shop(services);
            let is_leaving = !cell.state.replica(leaving).unwrap().leaving.is_empty();
            assert!(is_leaving, "{case}");
            let new = &replica_id(new);
            assert_eq!(orders(&cell, new), usize::from(!waits), "{case}");
            let generation = cell.state.replica(leaving).unwrap().leaving[0].generation;
            cell.report(leaving, generation, ObservedState::Stopped, None);
            assert_eq!(orders(&cell, new), 1, "{case}: it has stopped");
        }

        let cell = cell().node("ash", cpus(4)).deploy("shop", [("db", db())]).settle();
        let cell = cell.deploy("shop", [("db", spread(0).volume("data"))]).pass();
        let cell = cell.deploy("shop", [("db", db())]).pass();
        let again = cell.state.service(&old.service).unwrap();
        let new = again.replicas.iter().find(|(_, it)| it.assignment.is_some()).unwrap().0;
        let new = ReplicaId::new(old.service.clone(), new.clone());
        assert_ne!(new, old);
        assert_eq!(orders(&cell, &new), 0, "scaled down and up");
        let events = [Event::Replica(old.clone())];
        assert!(orders::touched(&cell.state, events.iter()).contains(&new), "it is told then");
    }

    #[test]
    fn a_successor_starts_beside_the_original() {
        let mut cell = cell().node("ash", cpus(4)).deploy("shop", [("web", spread(1))]);
        let (replica, spec, node) = (replica_id("shop/web/1"), spread(1).hash, node_id("ash"));
        cell.change(
            Writer::Scheduler,
            Change::Place { replica: replica.clone(), node: node.clone(), spec },
        );
        let cause = MoveCause::Outdated;
        let change = Change::Succeed { replica: replica.clone(), node: node.clone(), spec, cause };
        cell.change(Writer::Scheduler, change);
        let has = [local(1, ContainerPhase::Up), local(2, ContainerPhase::Pulled)];
        assert_eq!(steps(&cell, &replica, &has), vec![ContainerStep::Start(Generation(2))]);
    }
}
