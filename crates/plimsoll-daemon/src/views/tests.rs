use std::collections::BTreeSet;

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::{Policy, Scope, Signals, reconcile};
use plimsoll_model::testkit::{self, cell, cpus, global, node_id, replica_id, service_key, spread};
use plimsoll_model::{Generation, MilliCpus, ObservedCode, ObservedState, Writer};

use super::*;
use crate::measurements::{
    FailedChecks, MAX_CHECK_OUTPUT, Measurements, NodeMeasurement, ReplicaMeasurement,
};
use plimsoll_api::view::{Progress, Reason, ReasonCode, Runtime};

fn here() -> Responder {
    Responder {
        lag: 0,
        heard_ms: Some(0),
        node: node_id("ash"),
        version: "0.0.0",
        leader: Some("ash".to_owned()),
        servers: BTreeSet::from(["ash".to_owned(), "birch".to_owned()]),
        term: 3,
        applied: 7,
        trouble: None,
        now: Timestamp(1_000_000),
    }
}

fn look<T>(cell: &testkit::Cell, view: impl FnOnce(&Source<'_>) -> T) -> T {
    known(cell, &Measurements::default(), &IngressStatus::default(), view)
}

fn known<T>(
    cell: &testkit::Cell,
    measured: &Measurements,
    ingress: &IngressStatus,
    view: impl FnOnce(&Source<'_>) -> T,
) -> T {
    let (state, policy, here) = (&cell.state, &Policy::default(), &here());
    view(&Source { state, measured, ingress, policy, here })
}

fn pass(cell: &mut testkit::Cell) -> bool {
    let policy = Policy::default();
    let mut roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let batch = reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now).batch;
    let has_decided = !batch.is_empty();
    cell.apply(Writer::Scheduler, batch).expect("the scheduler's own batch");
    has_decided
}

fn settled(mut cell: testkit::Cell) -> testkit::Cell {
    while pass(&mut cell) {
        cell = cell.obey();
    }
    cell
}

fn observe(cell: &mut testkit::Cell, id: &str, state: ObservedState, code: Option<ObservedCode>) {
    let id = replica_id(id);
    let generation = cell.state.replica(&id).unwrap().heading().unwrap().generation;
    cell.report(&id, generation, state, code);
}

/// The progress of `shop` in a line: what it is, and of whom it says what.
fn progress(cell: &testkit::Cell) -> String {
    let shop = look(cell, |source| {
        let mut all = source.deployments().into_iter();
        all.find(|deployment| deployment.name == "shop").unwrap()
    });
    let said = |reasons: Vec<Reason>| -> String {
        let words: Vec<_> = reasons.iter().map(|r| format!("{} {}", r.subject, r.word)).collect();
        words.join(", ")
    };
    match shop.progress {
        Progress::Steady => "steady".to_owned(),
        Progress::Working { doing } => format!("working: {}", said(doing)),
        Progress::Stuck { why } => format!("stuck: {}", said(why)),
    }
}

fn shop(replicas: u32) -> testkit::Cell {
    cell().node("ash", cpus(4)).deploy("shop", [("web", spread(replicas))])
}

#[test]
fn a_deployment_is_stuck_while_a_port_it_publishes_is_not_to_be_had() {
    let cell = settled(shop(1));
    let address = "[::]:8080".parse().unwrap();
    let mut ingress = IngressStatus::default();
    let taken = "cannot listen on port 8080: Address already in use".to_owned();
    for (case, service, stuck) in [("its own", "shop/web", true), ("another's", "blog/web", false)]
    {
        ingress.unbound_ports = BTreeMap::from([((service_key(service), address), taken.clone())]);
        let why = vec![Reason::new(&service_key(service), ReasonCode::PortUnavailable, &taken)];
        let expected = if stuck { Progress::Stuck { why } } else { Progress::Steady };
        let shop = known(&cell, &Measurements::default(), &ingress, |source| {
            source.deployments().remove(0)
        });
        assert_eq!(shop.progress, expected, "{case}");
    }
}

#[test]
fn a_global_service_wants_one_on_every_node_that_may_take_it() {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4));
    let mut cell = settled(cell.cordon("cedar").deploy("shop", [("agent", global())]));
    let service = |cell: &testkit::Cell| {
        let service = look(cell, |source| source.deployments()[0].services[0].clone());
        (service.wanted, service.running)
    };
    assert_eq!((service(&cell), progress(&cell).as_str()), ((2, 2), "steady"));
    cell = cell.node("dogwood", cpus(4));
    assert_eq!(service(&cell), (3, 2));
    assert_eq!(progress(&cell), "working: shop/agent scaling");
    let cell = settled(cell).down("birch");
    assert_eq!(progress(&cell), "stuck: shop-agent-birch node_down");
}

#[test]
fn a_deleted_deployment_is_shown_until_its_last_container_is_gone() {
    let mut cell = settled(shop(1)).undeploy("shop");
    let shown = look(&cell, |source| source.deployments().remove(0));
    assert!(shown.is_deleted);
    assert_eq!(progress(&cell), "working: shop-web-1 retired");
    pass(&mut cell);
    assert_eq!(progress(&cell), "working: shop-web-1 stopping");
    assert_eq!(look(&settled(cell.obey()), |source| source.deployments().len()), 0);
}

#[test]
fn a_long_list_of_reasons_is_cut_and_says_so() {
    let mut cell = cell().node("ash", cpus(4)).deploy("shop", [("web", spread(80))]);
    pass(&mut cell);
    let shop = look(&cell, |source| source.deployments().remove(0));
    let Progress::Working { doing } = shop.progress else { panic!("nothing runs yet") };
    assert_eq!((doing.len(), doing[50].text.as_str()), (51, "and 30 more"));
}

#[test]
fn measurements_are_shown_while_they_are_fresh() {
    let cell = settled(shop(1).node("birch", cpus(4)).node("cedar", cpus(4)));
    let id = replica_id("shop/web/1");
    let replica = cell.state.replica(&id).unwrap();
    let generation = replica.assignment.as_ref().unwrap().generation;
    let mut measured = Measurements::default();
    let used = ReplicaMeasurement {
        cpu: Some(MilliCpus(250)),
        failures: 2,
        ..ReplicaMeasurement::default()
    };
    measured.replicas.insert((id.clone(), generation), used);
    // Of another generation it says nothing.
    measured.replicas.insert((id.clone(), Generation(99)), ReplicaMeasurement::default());
    let stalls = plimsoll_runtime::pressure::Stalls::default();
    let reading = plimsoll_runtime::pressure::PressureReading { cpu: None, memory: None, stalls };
    // Both are heard; what one of them says was measured too long ago.
    for (node, measured_at) in [("ash", 999_000), ("birch", 900_000)] {
        let said = NodeMeasurement {
            heard_at: Some(Timestamp(999_000)),
            measured_at: Some(Timestamp(measured_at)),
            reading: Some(reading.clone()),
            ..NodeMeasurement::default()
        };
        measured.nodes.insert(node_id(node), said);
    }
    let (state, policy, here) = (&cell.state, &Policy::default(), &here());
    let ingress = &IngressStatus::default();
    let source = Source { state, measured: &measured, ingress, policy, here };
    let now = source.replica(&id).unwrap().now.unwrap();
    assert_eq!((now.cpu_millis, now.memory_bytes, now.failures), (Some(250), None, 2));
    let nodes = source.nodes();
    let fresh: Vec<bool> = nodes.iter().map(|node| node.pressure.is_some()).collect();
    assert_eq!(fresh, [true, false, false], "silence is not data");
    let roles: Vec<&str> = nodes.iter().map(|node| node.role.as_str()).collect();
    assert_eq!(roles, ["leader", "server", "agent"]);
}

#[test]
fn a_replica_whose_check_fails_from_the_start_shows_what_the_last_one_printed() {
    let mut cell = shop(1);
    pass(&mut cell);
    let (name, id) = ("shop/web/1", replica_id("shop/web/1"));
    let first = ObservedCode::Unhealthy { output: "no such file".into() };
    observe(&mut cell, name, ObservedState::Starting, Some(first));
    let generation = cell.state.replica(&id).unwrap().heading().unwrap().generation;
    let shown = |cell: &testkit::Cell, checks: Option<FailedChecks>| {
        let mut measured = Measurements::default();
        let said = ReplicaMeasurement { failed_checks: checks, ..ReplicaMeasurement::default() };
        measured.replicas.insert((id.clone(), generation), said);
        known(cell, &measured, &IngressStatus::default(), |source| {
            let status = source.replica(&id).unwrap().now.unwrap().reason.unwrap().text;
            let progress = match source.deployments().remove(0).progress {
                Progress::Working { mut doing } => doing.remove(0).text,
                Progress::Stuck { mut why } => why.remove(0).text,
                Progress::Steady => "steady".to_owned(),
            };
            assert_eq!(status, progress, "one sentence everywhere");
            status
        })
    };
    assert_eq!(shown(&cell, None), "health check failed: no such file");
    let checks = |count| Some(FailedChecks::new(count, "connection refused".into()));
    assert_eq!(
        shown(&cell, checks(12)),
        "health check failed: connection refused (12 checks failed in a row)"
    );
    let FailedChecks { last_output, .. } = FailedChecks::new(2, "ä".repeat(MAX_CHECK_OUTPUT));
    assert!(last_output.len() <= MAX_CHECK_OUTPUT, "a heartbeat carries no more of it");
    // What was measured before says nothing of how it failed since.
    observe(&mut cell, name, ObservedState::Failed, Some(ObservedCode::OutOfMemory));
    assert_eq!(shown(&cell, checks(12)), "it ran out of memory and was killed");
}

#[test]
fn what_should_happen_on_a_node_whose_runtime_is_silent_is_held_up() {
    let mut cell = shop(2);
    pass(&mut cell);
    let silent = || {
        let runtime = Runtime {
            name: "docker".to_owned(),
            version: None,
            trouble: Some("connection refused".to_owned()),
            limits: Vec::new(),
        };
        let fact = NodeMeasurement { runtime: Some(runtime), ..NodeMeasurement::default() };
        Measurements { nodes: [(node_id("ash"), fact)].into(), ..Measurements::default() }
    };
    let words = |cell: &testkit::Cell| {
        let shop = known(cell, &silent(), &IngressStatus::default(), |source| {
            source.deployments().remove(0)
        });
        match shop.progress {
            Progress::Stuck { why } => {
                assert_eq!(why[0].text, "docker on ash does not answer: connection refused");
                why.into_iter().map(|reason| reason.word).collect()
            }
            Progress::Steady => Vec::new(),
            Progress::Working { doing } => panic!("{doing:?}"),
        }
    };
    assert_eq!(words(&cell), [ReasonCode::RuntimeUnavailable; 2]);
    let error = "the engine is gone".to_owned();
    let code = Some(ObservedCode::StartFailed { error });
    observe(&mut cell, "shop/web/1", ObservedState::Pending, code);
    observe(&mut cell, "shop/web/2", ObservedState::Running, None);
    assert_eq!(words(&cell), [ReasonCode::RuntimeUnavailable]);
    observe(&mut cell, "shop/web/1", ObservedState::Running, None);
    assert_eq!(
        words(&cell),
        [ReasonCode::RuntimeUnavailable; 0],
        "what ran before it fell silent runs on"
    );
}
