use plimsoll_model::testkit::{Cell, cell, cpus, replica_id, service_key, spread};
use plimsoll_model::{ObservedCode, ReplicaId};

use super::*;
use crate::testkit::Passes;

fn name(text: &str) -> ServiceName {
    ServiceName::new(text).unwrap()
}

fn on(mut spec: ServiceSpec, services: &[(&str, Dependency)]) -> ServiceSpec {
    spec.depends_on = services.iter().map(|(on, until)| (name(on), *until)).collect();
    spec
}

fn held(cell: &Cell, id: &ReplicaId) -> Assignment {
    cell.state.replica(id).unwrap().assignment.clone().unwrap()
}

fn waits_for(cell: &Cell, replica: &str) -> Option<(ServiceName, Dependency)> {
    let id = replica_id(replica);
    unmet(&cell.state, &id.service, cell.state.replica(&id).unwrap().heading().unwrap())
}

fn report(cell: &mut Cell, replica: &str, state: ObservedState, code: Option<ObservedCode>) {
    let id = replica_id(replica);
    let generation = held(cell, &id).generation;
    cell.report(&id, generation, state, code);
}

#[test]
fn a_service_waits_until_what_it_depends_on_has_come_far_enough() {
    use ObservedState::{Completed, Degraded, Pulling, Running, Starting};
    for (case, until, seen, code, is_met) in [
        ("nothing was said yet", Dependency::Started, None, None, false),
        ("pulling is not started", Dependency::Started, Some(Pulling), None, false),
        ("a process is", Dependency::Started, Some(Starting), None, true),
        ("but not healthy", Dependency::Healthy, Some(Starting), None, false),
        ("running is healthy", Dependency::Healthy, Some(Running), None, true),
        ("degraded is not", Dependency::Healthy, Some(Degraded), None, false),
        ("running is not complete", Dependency::Completed, Some(Running), None, false),
        (
            "complete is what its node calls so",
            Dependency::Completed,
            Some(Running),
            Some(ObservedCode::Completed),
            true,
        ),
        ("or is complete", Dependency::Completed, Some(Completed), None, true),
        ("what is complete was healthy", Dependency::Healthy, Some(Completed), None, true),
    ] {
        let web = on(spread(1), &[("db", until)]);
        let mut cell =
            cell().node("ash", cpus(4)).deploy("shop", [("db", spread(1)), ("web", web)]).pass();
        if let Some(state) = seen {
            report(&mut cell, "shop/db/1", state, code);
        }
        let waits = waits_for(&cell, "shop/web/1");
        assert_eq!(waits.is_none(), is_met, "{case}: {waits:?}");
        let job = is_job(&cell, "shop/db");
        assert_eq!(job, until == Dependency::Completed, "{case}");
    }
}

#[test]
fn what_runs_on_a_node_that_is_down_is_waited_for_and_what_completed_there_is_done() {
    for (until, code, waits) in [
        (Dependency::Started, None, true),
        (Dependency::Healthy, None, true),
        (Dependency::Completed, Some(ObservedCode::Completed), false),
    ] {
        let web = on(spread(1), &[("db", until)]);
        let mut cell =
            cell().node("ash", cpus(4)).deploy("shop", [("db", spread(1)), ("web", web)]).pass();
        report(&mut cell, "shop/db/1", ObservedState::Running, code);
        assert_eq!(waits_for(&cell, "shop/web/1"), None, "{until:?}");
        let cell = cell.down("ash");
        assert_eq!(waits_for(&cell, "shop/web/1").is_some(), waits, "{until:?}");
    }
}

/// What comes with a migration waits for that one, and not for the one before it, which is done.
#[test]
fn what_comes_with_a_job_waits_for_that_job() {
    let app = |image: &str| on(spread(1).image(image), &[("job", Dependency::Completed)]);
    let job = |image: &str| spread(1).image(image);
    let done = || Some(ObservedCode::Completed);
    let mut cell = cell()
        .node("ash", cpus(4))
        .deploy("shop", [("app", app("app:1")), ("job", job("job:1"))])
        .pass();
    report(&mut cell, "shop/job/1", ObservedState::Running, done());
    report(&mut cell, "shop/app/1", ObservedState::Running, None);
    let old = held(&cell, &replica_id("shop/app/1"));
    let mut cell = cell.deploy("shop", [("app", app("app:2")), ("job", job("job:2"))]).pass();
    assert_eq!(waits_for(&cell, "shop/app/1"), Some((name("job"), Dependency::Completed)));
    let of_old = |cell: &Cell| unmet(&cell.state, &service_key("shop/app"), &old);
    assert_eq!(of_old(&cell), None, "a copy of the old revision had its own job");
    let next = cell.state.replica(&replica_id("shop/job/1")).unwrap().heading().unwrap().generation;
    cell.report(&replica_id("shop/job/1"), next, ObservedState::Running, done());
    assert_eq!(waits_for(&cell, "shop/app/1"), None);
}

/// Two revisions ask for opposite orders. A copy of each never waits for the other.
#[test]
fn a_copy_of_an_older_revision_waits_only_for_what_is_still_asked_for() {
    let (a, b) = (name("a"), name("b"));
    let after =
        |other: &str, image: &str| on(spread(1).image(image), &[(other, Dependency::Healthy)]);
    let cell = cell()
        .node("ash", cpus(4))
        .deploy("shop", [("a", after("b", "a:1")), ("b", spread(1).image("b:1"))])
        .pass();
    let old = held(&cell, &replica_id("shop/a/1"));
    let of_old = |cell: &Cell| unmet(&cell.state, &service_key("shop/a"), &old);
    assert_eq!(of_old(&cell), Some((b, Dependency::Healthy)));
    let cell =
        cell.deploy("shop", [("a", spread(1).image("a:2")), ("b", after("a", "b:2"))]).pass();
    assert_eq!(of_old(&cell), None, "the file does not ask for it any more");
    assert_eq!(waits_for(&cell, "shop/b/1"), Some((a, Dependency::Healthy)));
    let cell = cell.deploy("shop", [("a", spread(1).image("a:3"))]).pass();
    assert_eq!(of_old(&cell), None, "what it waited for is gone for good");
}

#[test]
fn services_that_wait_for_each_other_or_for_nobody_start_in_no_order() {
    let started = |services: &[&str]| {
        let edges: Vec<_> = services.iter().map(|on| (*on, Dependency::Started)).collect();
        on(spread(1), &edges)
    };
    let missing =
        |service, on| Err(StartOrderMistake::Missing { service: name(service), on: name(on) });
    let circle = |names: &[&str]| {
        Err(StartOrderMistake::Circle(names.iter().map(|text| name(text)).collect()))
    };
    for (case, edges, expected) in [
        ("a chain", [&["b"][..], &["c"], &[]], Ok(())),
        ("one that is not there", [&["b"], &["d"], &[]], missing("b", "d")),
        ("itself", [&["a"], &[], &[]], circle(&["a", "a"])),
        ("a circle, and one that waits for it", [&["b"], &["c"], &["b"]], circle(&["b", "c", "b"])),
    ] {
        let services = ["a", "b", "c"].into_iter().zip(edges);
        let services = services.map(|(service, edges)| (name(service), started(edges))).collect();
        assert_eq!(check::<ServiceSpec>(&services), expected, "{case}");
    }
}

#[test]
fn whoever_may_wait_is_known_and_what_is_waited_for_to_complete_is_a_job() {
    let until = |until| on(spread(1), &[("db", until)]);
    let cell = cell().node("ash", cpus(4)).deploy(
        "shop",
        [
            ("app", until(Dependency::Completed)),
            ("db", spread(1)),
            ("web", until(Dependency::Started)),
        ],
    );
    let dependents: Vec<ServiceKey> = dependents(&cell.state, &service_key("shop/db")).collect();
    assert_eq!(dependents, [service_key("shop/app"), service_key("shop/web")]);
    assert!(is_job(&cell, "shop/db"));
    let cell = cell.deploy("shop", [("db", spread(1)), ("web", spread(1))]);
    assert!(!is_job(&cell, "shop/db"));
}

fn is_job(cell: &Cell, service: &str) -> bool {
    let service = cell.state.service(&service_key(service));
    service.and_then(Service::desired).is_some_and(|spec| spec.is_job())
}
