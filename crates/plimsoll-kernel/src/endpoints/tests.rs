use plimsoll_model::spec::{Replay, RouteSpec, Tls};
use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, service_key, spread};
use plimsoll_model::{Change, MoveCause, ObservedState, ServiceName, ServiceSpec, Writer};

use super::*;
use crate::testkit::Passes;

/// Two nodes, and a replica of the shop on each that runs.
fn shop(spec: &ServiceSpec) -> Cell {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let mut cell = cell.deploy("shop", [("web", spec.clone())]);
    for (replica, node) in [("shop/web/1", "ash"), ("shop/web/2", "birch")] {
        let (replica, node) = (replica_id(replica), node_id(node));
        cell.change(Writer::Scheduler, Change::Place { replica, node, spec: spec.hash });
    }
    cell.obey()
}

fn route(path: &str, port: u16) -> RouteSpec {
    let service = ServiceName::new("web").unwrap();
    let (host, path) = (Some("shop.example".to_owned()), path.to_owned());
    RouteSpec { host, path, strip_path: true, service, port, tls: Tls::Off }
}

/// The shop with routes and without published ports.
fn routed(routes: Vec<RouteSpec>) -> Cell {
    let spec = spread(2);
    let mut cell = shop(&spec).deploy_routed("shop", [("web", spec)], routes);
    cell = cell.obey();
    cell
}

/// Without replays at its ports.
fn unreplayed(spec: ServiceSpec) -> ServiceSpec {
    ServiceSpec { replay: Replay::Off, ..spec }
}

#[test]
fn replays_are_switched_off_without_another_container() {
    let spec = spread(2).published(8080, 80);
    let before = Endpoints::of(&shop(&spec).state, None);
    let cell = shop(&spec).deploy("shop", [("web", unreplayed(spec.clone()))]);
    let (before, after) = (before, Endpoints::of(&cell.state, None));
    let web = service_key("shop/web");
    let (before, after) = (&before.services[&web], &after.services[&web]);
    assert_eq!((before.replay, after.replay), (Replay::On, Replay::Off));
    assert_eq!(before.replicas, after.replicas);
}

#[test]
fn each_replica_is_told_of_its_clients_as_its_own_spec_asks() {
    let plain = spread(2).published(8080, 80);
    let proxied = plain.clone().proxied();
    assert_ne!(
        plain.hash, proxied.hash,
        "whoever listens must expect it from the first connection"
    );
    let mut cell = shop(&plain).deploy("shop", [("web", proxied.clone())]);
    let told = |cell: &Cell| {
        let endpoints = Endpoints::of(&cell.state, None);
        let replicas = &endpoints.services[&service_key("shop/web")].replicas;
        replicas.iter().map(|it| it.proxied.contains(&80)).collect::<Vec<_>>()
    };
    assert_eq!(told(&cell), [false, false], "they were made before");
    let (replica, node) = (replica_id("shop/web/1"), node_id("birch"));
    let (cause, spec) = (MoveCause::Outdated, proxied.hash);
    cell.change(Writer::Scheduler, Change::Succeed { replica, node, spec, cause });
    assert_eq!(told(&cell), [false, true, false], "the successor alone");
}

#[test]
fn endpoints_that_follow_events_are_the_endpoints_of_the_state() {
    let spec = spread(2).published(8080, 80);
    let steps: [fn(Cell) -> Cell; 9] = [
        |cell| cell.deploy("shop", [("web", unreplayed(spread(2).published(8080, 80)))]),
        |cell| cell.down("birch"),
        |cell| cell.deploy("blog", [("web", spread(1)), ("db", spread(1))]).obey(),
        |cell| cell.up("birch"),
        |cell| cell.deploy_routed("blog", [("web", spread(1))], vec![route("/", 81)]).obey(),
        |cell| cell.deploy("shop", [("web", spread(2).published(8081, 81))]).obey(),
        |cell| cell.node("cedar", cpus(1)).drain("ash"),
        |cell| cell.undeploy("shop").obey(),
        |cell| cell.undeploy("blog").obey(),
    ];
    let mut cell = shop(&spec);
    let mut endpoints = Endpoints::of(&cell.state, None);
    for (number, step) in steps.into_iter().enumerate() {
        cell.events.clear();
        cell = step(cell);
        let whole = Endpoints::of(&cell.state, Some(&endpoints));
        endpoints = endpoints.after(&cell.state, &cell.events);
        assert_eq!(endpoints, whole, "after step {number}");
    }
}

#[test]
fn endpoints_and_what_changed_since_make_the_next_ones() {
    let (web, other) = (spread(2).published(8080, 80), spread(2).published(9090, 80));
    let first = shop(&web);
    let mut states = vec![first.state.clone()];
    let second = first.deploy("blog", [("web", other)]).node("cedar", cpus(1));
    states.push(second.state.clone());
    let third = second.undeploy("shop").down("birch");
    states.push(third.state.clone());
    let drawn = |state| {
        let mut endpoints = Endpoints::of(state, None);
        let addressed = state.nodes().keys().map(|id| (id.clone(), format!("{id}:7117")));
        endpoints.nodes = addressed.collect();
        endpoints
    };
    let all_endpoints: Vec<Endpoints> = states.iter().map(drawn).collect();
    for before in &all_endpoints {
        for after in &all_endpoints {
            assert_eq!(before.updated(after.since(Some(before))), *after);
            assert_eq!(before.updated(after.since(None)), *after, "a whole one needs none before");
        }
        let nothing = before.since(Some(before));
        assert!(nothing.services.is_empty() && nothing.nodes.is_empty() && !nothing.is_whole);
    }
    let known = &all_endpoints[0].services[&service_key("shop/web")];
    let again = Endpoints::of(&states[1], Some(&all_endpoints[0]));
    assert!(Arc::ptr_eq(known, &again.services[&service_key("shop/web")]), "it is as it was");
}

#[test]
fn what_a_route_led_to_is_known_until_it_has_gone() {
    let cell = routed(vec![route("/", 80)]);
    let before = Endpoints::of(&cell.state, None);
    let without = cell.deploy("shop", [("web", spread(2))]);
    let after = Endpoints::of(&without.state, Some(&before));
    assert!(after.routes.is_empty());
    let ports = |endpoints: &Endpoints| {
        let listing = endpoints.services.get(&service_key("shop/web"));
        let all = listing.into_iter().flat_map(|it| &it.replicas);
        all.flat_map(|one| one.ports.iter().copied()).collect::<Vec<_>>()
    };
    assert_eq!(ports(&after), [80, 80], "what is under way there may end");
    let mut gone = without.undeploy("shop");
    for replica in ["shop/web/1", "shop/web/2"] {
        gone.change(Writer::Scheduler, Change::Retire { replica: replica_id(replica) });
    }
    let leaving = Endpoints::of(&gone.state, Some(&after));
    assert_eq!(ports(&leaving), [80, 80]);
    let gone = gone.obey();
    assert_eq!(ports(&Endpoints::of(&gone.state, Some(&leaving))), [0; 0]);
}

#[test]
fn what_a_forced_drain_stops_gets_no_more_requests() {
    let cell = shop(&spread(2).volume("data"));
    let mut cell = cell.pass();
    let before = Endpoints::of(&cell.state, None);
    let (node, timeout) = (node_id("ash"), Millis::minutes(1));
    cell.events.clear();
    cell.change(Writer::Operator, Change::Drain { node, timeout, force: true });
    let cell = cell.pass();
    let replica = cell.state.replica(&replica_id("shop/web/1")).unwrap();
    assert!(replica.waiting.is_some() && replica.leaving.is_empty(), "it keeps its assignment");
    // Its node stops it once nothing is sent there any more, and would wait for that until its grace is over.
    let states = |endpoints: &Endpoints| {
        let web = &endpoints.services[&service_key("shop/web")];
        web.replicas.iter().map(|one| one.state).collect::<Vec<_>>()
    };
    assert_eq!(states(&before), [EndpointState::Ready; 2]);
    let grace = spread(2).container.effective_stop_grace();
    let after = before.after(&cell.state, &cell.events);
    assert_eq!(states(&after), [EndpointState::Draining { grace }, EndpointState::Ready]);
    assert_eq!(after, Endpoints::of(&cell.state, Some(&before)));
}

#[test]
fn every_endpoint_has_the_reason_why_it_is_routed_to_or_not() {
    let one = replica_id("shop/web/2");
    let shown = |cell: &Cell, generation: u64| {
        let replica = cell.state.replica(&one).unwrap();
        let held = replica.holds().find(|held| held.generation.0 == generation).unwrap();
        let eligibility = EndpointEligibility::of(&cell.state, replica, held);
        format!("{}: {eligibility}", eligibility.word())
    };
    let spec = spread(2);
    let cell = || shop(&spec);
    assert_eq!(shown(&cell(), 2), "takes_requests: running and healthy");
    assert_eq!(shown(&cell().down("birch"), 2), "node_down: no heartbeat from birch");
    let mut sick = cell();
    sick.report(&one, Generation(2), ObservedState::Degraded, None);
    assert_eq!(shown(&sick, 2), "degraded: degraded");
    let mut moving = cell();
    let (replica, node, cause) = (one.clone(), node_id("ash"), MoveCause::Outdated);
    moving.change(Writer::Scheduler, Change::Succeed { replica, node, spec: spec.hash, cause });
    assert_eq!(shown(&moving, 3), "unseen: its node has not reported it yet");
    let mut moving = moving.obey();
    assert_eq!(shown(&moving, 2), "takes_requests: running and healthy");
    assert_eq!(shown(&moving, 3), "takes_over: healthy; takes over once generation 2 drains");
    moving.change(Writer::Scheduler, Change::Promote { replica: one.clone() });
    assert_eq!(shown(&moving, 2), "leaves: draining: finishing open requests");
    assert_eq!(shown(&moving, 3), "takes_requests: running and healthy");
}
