use plimsoll_model::reason::WaitReason;
use plimsoll_model::spec::Dependency;
use plimsoll_model::testkit::{Cell, cell, cpus, global, node_id, replica_id, service_key, spread};
use plimsoll_model::{Change, NodeFacts, ObservedState, ServiceName, Writer};

use super::*;
use crate::testkit::Passes;

/// Edges where one node's runtime does not answer.
struct Down(NodeId);

impl EdgeReports for Down {
    fn unbound_ports(&self, _: &ServiceKey) -> Vec<String> {
        Vec::new()
    }

    fn runtime_down(&self, node: &NodeId) -> Option<(String, String)> {
        (*node == self.0).then(|| ("docker".to_owned(), "connection refused".to_owned()))
    }
}

fn found(cell: &Cell, edges: &dyn EdgeReports) -> DeploymentProgress {
    progress(&cell.state, &Policy::default(), cell.state.services(), edges, cell.now)
}

/// The progress of the cell in a line: what it is, and of whom it says what.
fn shown(cell: &Cell) -> String {
    let words = |items: &[ProgressItem]| {
        let words = items.iter().map(|it| format!("{} {}", it.subject, it.reason.word()));
        words.collect::<Vec<_>>().join(", ")
    };
    match found(cell, &NoReports) {
        DeploymentProgress::Steady => "steady".to_owned(),
        DeploymentProgress::Working(doing) => format!("working: {}", words(&doing)),
        DeploymentProgress::Stuck(why) => format!("stuck: {}", words(&why)),
    }
}

fn shop(replicas: u32) -> Cell {
    cell().node("ash", cpus(4)).deploy("shop", [("web", spread(replicas))])
}

fn observe(cell: &mut Cell, replica: &str, state: ObservedState, code: Option<ObservedCode>) {
    let id = replica_id(replica);
    let generation = cell.state.replica(&id).unwrap().assignment.as_ref().unwrap().generation;
    cell.report(&id, generation, state, code);
}

#[test]
fn a_deployment_works_until_all_that_was_asked_for_runs() {
    let mut cell = shop(2);
    assert_eq!(shown(&cell), "working: shop/web scaling");
    cell = cell.pass();
    assert_eq!(shown(&cell), "working: shop-web-1 starting, shop-web-2 starting");
    observe(&mut cell, "shop/web/1", ObservedState::Running, None);
    observe(&mut cell, "shop/web/2", ObservedState::Pulling, None);
    assert_eq!(shown(&cell), "working: shop-web-2 pulling");
    let mut cell = cell.obey().settle();
    assert_eq!(shown(&cell), "steady");

    cell = cell.deploy("shop", [("web", spread(1))]);
    assert_eq!(shown(&cell), "working: shop/web scaling");
    cell = cell.pass();
    assert_eq!(shown(&cell), "working: shop-web-2 stopping");
    assert_eq!(shown(&cell.obey().settle()), "steady");
}

#[test]
fn a_roll_works_through_those_whose_turn_it_is() {
    let mut cell = shop(2).settle().deploy("shop", [("web", spread(2).image("app:2"))]);
    cell = cell.pass();
    let rolling = shown(&cell);
    assert!(rolling.starts_with("working: ") && rolling.contains(" outdated"), "{rolling}");
    assert_eq!(shown(&cell.obey().settle()), "steady");
}

#[test]
fn a_deployment_is_stuck_where_nothing_happens_by_itself() {
    use ObservedState::{Degraded, Failed, Pending, Running, Starting};
    let pull = || ObservedCode::ImagePullFailed { image: "a".to_owned(), error: "no".to_owned() };
    let exited = || ObservedCode::Exited { status: Some(1) };
    let exhausted = || ObservedCode::RestartExhausted { tries: 3, last: Box::new(exited()) };
    let awaits = || ObservedCode::AwaitsService {
        service: ServiceName::new("db").unwrap(),
        until: Dependency::Healthy,
    };
    for (case, first, second, expected) in [
        (
            "a pull that fails is tried again and again",
            (Running, None),
            (Pending, Some(pull())),
            "stuck: shop-web-2 image_pull_failed",
        ),
        (
            "while the other still starts there is more to come",
            (Starting, None),
            (Pending, Some(pull())),
            "working: shop-web-1 starting",
        ),
        (
            "three failures in a row are the end",
            (Running, None),
            (Failed, Some(exhausted())),
            "stuck: shop-web-2 restart_exhausted",
        ),
        (
            "one failure is not",
            (Running, None),
            (Failed, Some(exited())),
            "working: shop-web-2 exited",
        ),
        (
            "who is not well is restarted",
            (Running, None),
            (Degraded, Some(ObservedCode::Unhealthy { output: String::new() })),
            "working: shop-web-2 unhealthy",
        ),
        (
            "who waits for another waits as long as that one works",
            (Running, None),
            (Pending, Some(awaits())),
            "working: shop-web-2 awaits_service",
        ),
        (
            "and is stuck behind one that is",
            (Failed, Some(exhausted())),
            (Pending, Some(awaits())),
            "stuck: shop-web-1 restart_exhausted, shop-web-2 awaits_service",
        ),
        (
            "a job that is done is as it should be",
            (Running, None),
            (Running, Some(ObservedCode::Completed)),
            "steady",
        ),
    ] {
        let mut cell = shop(2);
        cell = cell.pass();
        observe(&mut cell, "shop/web/1", first.0, first.1);
        observe(&mut cell, "shop/web/2", second.0, second.1);
        assert_eq!(shown(&cell), expected, "{case}");
    }
}

#[test]
fn a_deployment_is_stuck_where_there_is_no_room_or_a_roll_stalled() {
    let mut full =
        cell().node("ash", cpus(1)).deploy("shop", [("web", spread(3).reserve(500, 64))]);
    full = full.pass();
    let full = full.obey();
    assert_eq!(shown(&full), "stuck: shop/web no_eligible_node");

    let mut stalled = shop(1).settle().deploy("shop", [("web", spread(1).image("app:2"))]);
    let spec = stalled.state.service(&service_key("shop/web")).unwrap().row.desired.unwrap();
    let waiting = Some(WaitReason::Stalled { spec });
    let replica = replica_id("shop/web/1");
    stalled.change(Writer::Scheduler, Change::SetWaiting { replica, waiting });
    assert_eq!(shown(&stalled), "stuck: shop-web-1 stalled");
}

#[test]
fn what_has_to_leave_its_node_keeps_a_deployment_from_being_steady() {
    let two = || cell().node("ash", cpus(4)).node("birch", cpus(4));
    let settled = two().deploy("shop", [("web", spread(4))]).settle();
    assert_eq!(shown(&settled), "steady");
    let draining = settled.clone().drain("ash");
    assert_eq!(shown(&draining), "working: shop-web-2 misplaced, shop-web-3 misplaced");
    assert_eq!(shown(&draining.settle()), "steady");

    let listed = settled.deploy("shop", [("web", spread(4).wants_label("disk", "ssd"))]);
    assert!(shown(&listed).ends_with("shop-web-4 misplaced"), "{}", shown(&listed));
}

#[test]
fn nothing_progresses_on_a_node_whose_runtime_does_not_answer() {
    let cell = shop(1).pass();
    for (case, node, expected) in [
        ("its own node", "ash", "docker on ash does not answer: connection refused"),
        ("another node", "birch", "ash was told to start it"),
    ] {
        let items = match found(&cell, &Down(node_id(node))) {
            DeploymentProgress::Stuck(items) | DeploymentProgress::Working(items) => items,
            DeploymentProgress::Steady => Vec::new(),
        };
        let texts: Vec<String> = items.iter().map(|it| it.reason.to_string()).collect();
        assert_eq!(texts, [expected], "{case}");
    }
}

#[test]
fn a_lost_node_is_progress_for_what_is_replaced_and_the_end_for_global() {
    let nodes: [(&str, NodeFacts); 3] = ["ash", "birch", "cedar"].map(|name| (name, cpus(4)));
    let three = || nodes.iter().fold(cell(), |cell, (name, facts)| cell.node(name, facts.clone()));
    let spread = three().deploy("shop", [("web", spread(3))]).settle().down("birch");
    assert!(shown(&spread).starts_with("working: ") && shown(&spread).contains("node_down"));
    let global = three().deploy("shop", [("agent", global())]).settle().down("birch");
    assert_eq!(shown(&global), "stuck: shop-agent-birch node_down");
}
