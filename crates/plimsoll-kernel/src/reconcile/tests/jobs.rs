//! What runs to its end, and what becomes of it afterwards.

use plimsoll_model::spec::{Lifecycle, Retries};

use super::*;
use crate::policy::Policy;
use crate::progress::{DeploymentProgress, NoReports, progress};

fn job(mut spec: ServiceSpec) -> ServiceSpec {
    spec.lifecycle = Lifecycle::Job(Retries::NEVER);
    spec
}

/// Every replica of the service that is not over ends so, where it is.
#[expect(clippy::needless_pass_by_value, reason = "read where it is written")]
fn end(mut cell: Cell, service: &str, state: ObservedState, code: Option<ObservedCode>) -> Cell {
    let key = service_key(service);
    let replicas = cell.state.service(&key).unwrap().replicas.iter();
    let held = replicas.filter_map(|(slot, replica)| {
        let at = replica.assignment.as_ref().filter(|at| !replica.is_over(at))?;
        Some((ReplicaId::new(key.clone(), slot.clone()), at.generation))
    });
    for (id, generation) in held.collect::<Vec<_>>() {
        cell.report(&id, generation, state, code.clone());
    }
    cell
}

fn complete(cell: Cell, service: &str) -> Cell {
    let code = Some(ObservedCode::JobCompleted { attempts: 1 });
    end(cell, service, ObservedState::Completed, code)
}

fn fail(cell: Cell, service: &str) -> Cell {
    let last = Box::new(ObservedCode::Exited { status: Some(1) });
    let code = Some(ObservedCode::JobFailed { attempts: 1, last });
    end(cell, service, ObservedState::Failed, code)
}

fn generations(cell: &Cell, service: &str) -> Vec<u64> {
    let service = cell.state.service(&service_key(service)).unwrap();
    service.replicas.values().map(|r| r.heading().unwrap().generation.0).collect()
}

fn count(cell: &Cell, word: &str) -> usize {
    cell.state.audit().events().filter(|event| event.what.word() == word).count()
}

fn stands(cell: &Cell) -> DeploymentProgress {
    let services = cell.state.services().iter();
    progress(&cell.state, &Policy::default(), services, &NoReports, cell.now)
}

/// Long enough for every grace period to be over.
const LONG: Millis = Millis::minutes(60);

#[test]
fn what_has_completed_is_steady_and_nothing_makes_it_run_again() {
    let cell = three().deploy("shop", [("mail", job(spread(2)))]).settle();
    assert_eq!(cell.placed("shop/mail").len(), 2);
    let cell = complete(cell, "shop/mail");
    let (places, ran) = (cell.placed("shop/mail"), generations(&cell, "shop/mail"));
    assert_eq!(stands(&cell), DeploymentProgress::Steady);
    assert_eq!(count(&cell, "job_completed"), 2);
    let mut cell = cell.drain("ash").later(LONG).settle().down("birch").later(LONG).settle();
    cell.change(Writer::Operator, Change::RemoveNode { node: node_id("birch") });
    let cell = cell.settle().runtime_down("cedar").later(LONG).settle();
    assert_eq!((cell.placed("shop/mail"), generations(&cell, "shop/mail")), (places, ran));
    assert_eq!(stands(&cell), DeploymentProgress::Steady, "and it is steady all the time");
}

#[test]
fn what_has_completed_holds_no_room_and_no_port_and_lets_its_node_go() {
    let big = || job(spread(1).reserve(3_000, 64).host_port(80));
    let cell = cell().node("ash", cpus(4)).deploy("shop", [("mail", big())]).settle();
    let after = |cell: Cell| cell.deploy("blog", [("mail", big())]).settle();
    assert_eq!(after(cell.clone()).placed("blog/mail").len(), 0, "there is no room");
    let cell = after(complete(cell, "shop/mail"));
    assert_eq!(cell.placed("blog/mail").len(), 1);
    let mut cell = complete(cell, "blog/mail");
    let load = cell.state.load(&node_id("ash")).unwrap();
    assert_eq!((load.replicas, load.tenants.len(), load.everyone().count()), (0, 0, 2));
    cell.change(Writer::Operator, Change::RemoveNode { node: node_id("ash") });
}

#[test]
fn it_runs_again_when_its_spec_changes_or_someone_asks_and_not_when_it_is_scaled() {
    let mail = |replicas, image: &str| [("mail", job(spread(replicas).image(image)))];
    let cell = complete(three().deploy("shop", mail(2, "a")).settle(), "shop/mail");
    let ran = generations(&cell, "shop/mail");
    let cell = cell.deploy("shop", mail(3, "a")).settle();
    assert_eq!(generations(&cell, "shop/mail")[..2], ran, "only the new one runs");
    let cell = complete(cell, "shop/mail").deploy("shop", mail(1, "a")).settle();
    assert_eq!(generations(&cell, "shop/mail").len(), 1);
    let cell = cell.deploy("shop", mail(1, "a")).settle();
    let kept = generations(&cell, "shop/mail");
    let cell = cell.deploy("shop", mail(1, "b")).settle();
    let changed = generations(&cell, "shop/mail");
    assert!(changed > kept, "{changed:?} is newer than {kept:?}");
    let mut cell = complete(cell, "shop/mail");
    assert_eq!(stands(&cell), DeploymentProgress::Steady, "no rollout is left");
    let id = cell.state.replicas().next().unwrap().0;
    cell.change(Writer::Operator, Change::Renew { replica: id });
    let cell = cell.settle();
    assert!(generations(&cell, "shop/mail") > changed, "it was asked for");
}

#[test]
fn a_job_that_runs_is_not_moved_and_one_whose_node_is_lost_is_run_again_and_says_so() {
    let running = || three().deploy("shop", [("mail", job(spread(1)))]).settle();
    let cell = running();
    let node = cell.nodes_of("shop/mail").into_iter().next().unwrap();
    let drained = cell.clone().drain(node.as_str()).settle();
    assert_eq!(drained.placed("shop/mail"), cell.placed("shop/mail"));
    let replica = drained.state.replica(&replica_id("shop/mail/1")).unwrap();
    assert_eq!(replica.waiting, Some(WaitReason::JobRunning));
    let done = complete(drained, "shop/mail").settle();
    let replica = done.state.replica(&replica_id("shop/mail/1")).unwrap();
    assert_eq!(replica.waiting, None, "it has ended");
    assert_eq!(count(&done, "job_rerun"), 0);

    let lost = cell.down(node.as_str()).later(LONG).settle();
    assert_ne!(lost.nodes_of("shop/mail"), BTreeSet::from([node.clone()]));
    assert_eq!(count(&lost, "job_rerun"), 1);
    let failed = fail(lost, "shop/mail");
    let (places, ran) = (failed.placed("shop/mail"), generations(&failed, "shop/mail"));
    let later = failed.later(LONG).settle().up(node.as_str()).later(LONG).settle();
    assert_eq!((later.placed("shop/mail"), generations(&later, "shop/mail")), (places, ran));
}

#[test]
fn a_node_that_returns_and_has_completed_it_saves_the_rerun() {
    let cell = three().deploy("shop", [("mail", job(spread(1)))]).settle();
    let node = cell.nodes_of("shop/mail").into_iter().next().unwrap();
    let first = generations(&cell, "shop/mail");
    let cell = cell.down(node.as_str()).later(LONG).pass();
    assert_ne!(generations(&cell, "shop/mail"), first, "a successor has its place");
    let cell = complete(cell.up(node.as_str()), "shop/mail").settle();
    assert_eq!(generations(&cell, "shop/mail"), first, "which is not needed any more");
}

#[test]
fn what_failed_for_good_is_stuck_until_it_is_applied_again() {
    let mail = || [("mail", job(spread(1)))];
    let cell = fail(three().deploy("shop", mail()).settle(), "shop/mail");
    assert!(decide(&cell).batch.is_empty(), "nothing is tried");
    let DeploymentProgress::Stuck(items) = stands(&cell) else { panic!("{:?}", stands(&cell)) };
    assert_eq!(items[0].reason.word(), "job_failed");
    let before = generations(&cell, "shop/mail");
    let cell = cell.deploy("shop", mail()).settle();
    assert!(generations(&cell, "shop/mail") > before);
}

#[test]
fn what_is_a_job_no_more_is_started_again() {
    let cell = three().deploy("shop", [("mail", job(spread(1)))]).settle();
    let cell = complete(cell, "shop/mail");
    let before = generations(&cell, "shop/mail");
    let cell = cell.deploy("shop", [("mail", spread(1))]).settle();
    assert!(generations(&cell, "shop/mail") > before);
    let replica = cell.state.replica(&replica_id("shop/mail/1")).unwrap();
    assert!(!replica.has_completed(replica.assignment.as_ref().unwrap()));
}

#[test]
fn a_global_job_runs_once_on_each_node_and_on_those_that_join() {
    let cell = three().deploy("shop", [("warm", job(global()))]).settle();
    let cell = complete(cell, "shop/warm");
    let ran = generations(&cell, "shop/warm");
    let mut cell = cell.drain("ash").settle();
    assert_eq!(stands(&cell), DeploymentProgress::Steady, "ash keeps the record of it");
    let (node, availability) = (node_id("ash"), plimsoll_model::Availability::Active);
    cell.change(Writer::Operator, Change::SetAvailability { node, availability });
    let cell = cell.settle();
    assert_eq!(generations(&cell, "shop/warm"), ran);
    let cell = cell.node("dogwood", cpus(4)).settle();
    assert_eq!(cell.placed("shop/warm").len(), 4);
}

#[test]
fn a_global_job_that_runs_ends_before_its_node_is_drained() {
    let cell = three().deploy("shop", [("warm", job(global()))]).settle().drain("ash").settle();
    assert_eq!(cell.placed("shop/warm").len(), 3, "it is not stopped half-way");
    let id = ReplicaId::new(service_key("shop/warm"), plimsoll_model::Slot::Node(node_id("ash")));
    let replica = cell.state.replica(&id).unwrap();
    assert_eq!(replica.waiting, Some(WaitReason::JobRunning));
    let cell = complete(cell, "shop/warm").settle();
    let load = cell.state.load(&node_id("ash")).unwrap();
    assert_eq!((load.tenants.len(), load.completed.len()), (0, 1));
}

#[test]
fn what_serves_and_may_end_is_moved_like_any_other_until_it_has() {
    let mut web = spread(1);
    web.lifecycle = Lifecycle::Finite(Retries::default());
    let cell = three().deploy("shop", [("web", web)]).settle();
    let node = cell.nodes_of("shop/web").into_iter().next().unwrap();
    let moving = cell.clone().drain(node.as_str()).pass();
    let replica = moving.state.replica(&replica_id("shop/web/1")).unwrap();
    assert!(replica.successor.is_some(), "make before break");
    let done = complete(moving, "shop/web").settle();
    assert_eq!(generations(&done, "shop/web"), generations(&cell, "shop/web"));
}
