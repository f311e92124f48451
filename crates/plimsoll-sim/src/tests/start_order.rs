//! Services that wait for others, jobs that others wait for, and networks that a node has no addresses for.

use std::collections::BTreeSet;

use plimsoll_model::spec::{Dependency, NetworkAttachment};
use plimsoll_model::{Event, ObservedCode, ObservedState, ReplicaId};

use super::*;

fn after(mut spec: ServiceSpec, on: &str, until: Dependency) -> ServiceSpec {
    spec.depends_on.insert(ServiceName::new(on).unwrap(), until);
    spec
}

fn one_node(length: Millis, services: Services) -> Scenario {
    let mut scenario = Scenario::new("order", length);
    scenario.nodes.insert(node_id("ash"), cpus(4));
    scenario.deployments.insert(deployment("d"), services);
    scenario
}

fn at(scenario: &mut Scenario, second: u64, action: Action) {
    scenario.script.push((Millis::seconds(second), action));
}

/// What the nodes last said of a service's first replica, as of a time.
fn said(
    world: &mut World<'_>,
    second: u64,
    service: &str,
) -> (ObservedState, Option<ObservedCode>) {
    while world.step(EPOCH.plus(Millis::seconds(second))) {}
    let id = world.state.find_replica(&format!("d-{service}-1")).expect("there is one");
    let replica = world.state.replica(&id).unwrap();
    let seen = replica.observation(replica.heading().unwrap()).expect("its node has spoken");
    (seen.state, seen.code.clone())
}

fn awaits(service: &str, until: Dependency) -> (ObservedState, Option<ObservedCode>) {
    let service = ServiceName::new(service).unwrap();
    (ObservedState::Pending, Some(ObservedCode::AwaitsService { service, until }))
}

#[test]
fn services_start_one_after_the_other_and_a_job_is_done_once() {
    let services = services([
        ("a-app", after(spread(2), "b-job", Dependency::Completed)),
        ("b-job", after(spread(1).image("job:1"), "c-db", Dependency::Healthy)),
        ("c-db", spread(1)),
    ]);
    let mut scenario = one_node(Millis::minutes(30), services);
    at(&mut scenario, 600, Action::Crash(node_id("ash")));
    at(&mut scenario, 700, Action::Return(node_id("ash")));
    assert_eq!(run_quietly(&scenario, 3).failure, None);
    let mut world = World::new(&scenario, 3);
    let mut starts: Vec<String> = Vec::new();
    while world.step(EPOCH.plus(scenario.length)) {
        starts.extend(world.first_starts.iter().map(|(_, id, _)| id.service.service.to_string()));
    }
    assert_eq!(starts[..4], ["c-db", "b-job", "a-app", "a-app"]);
    assert_eq!(starts.iter().filter(|it| *it == "b-job").count(), 1, "{starts:?}");
    assert_eq!(starts.len(), 7, "all but the job start again once there is power: {starts:?}");
}

#[test]
fn what_waits_for_a_service_that_is_scaled_to_nothing_says_so_and_goes_on_with_it() {
    let both = services([("db", spread(0)), ("web", after(spread(1), "db", Dependency::Started))]);
    let mut scenario = one_node(Millis::minutes(40), both);
    at(&mut scenario, 600, Action::Scale(service_key("d/db"), 1));
    assert_eq!(run_quietly(&scenario, 1).failure, None);
    let mut world = World::new(&scenario, 1);
    assert_eq!(said(&mut world, 590, "web"), awaits("db", Dependency::Started));
    assert_eq!(said(&mut world, 700, "web"), (ObservedState::Running, None));
}

/// The job of the new revision fails for good. What comes with it never starts, and the old copy serves on.
#[test]
fn a_rollout_that_waits_for_a_job_that_fails_is_taken_back() {
    let revision = |nth: u32| {
        let app = after(spread(1).image(&format!("app:{nth}")), "job", Dependency::Completed);
        services([("app", app), ("job", spread(1).image(&format!("job:{nth}")))])
    };
    let mut scenario = one_node(Millis::minutes(60), revision(1));
    at(&mut scenario, 1, Action::Break("job:2".to_owned()));
    at(&mut scenario, 300, Action::Deploy(deployment("d"), revision(2)));
    // After it is taken back, what is lost comes back with the job it had.
    at(&mut scenario, 2_000, Action::Crash(node_id("ash")));
    at(&mut scenario, 2_100, Action::Return(node_id("ash")));
    assert_eq!(run_quietly(&scenario, 2).failure, None);
    let mut world = World::new(&scenario, 2);
    assert_eq!(said(&mut world, 400, "app"), awaits("job", Dependency::Completed));
    let mut images: Vec<String> = Vec::new();
    while world.step(EPOCH.plus(scenario.length)) {
        for (node, id, generation) in &world.first_starts {
            let container = world.machines[node].container(id, *generation);
            images.extend(container.map(|it| it.spec.container.image.clone()));
        }
    }
    assert!(!images.contains(&"app:2".to_owned()), "{images:?}");
    assert_eq!(said(&mut world, 3_600, "app"), (ObservedState::Running, None));
}

#[test]
fn a_circle_is_refused_and_what_runs_is_left_alone() {
    let circle = services([
        ("a", after(spread(1).image("a:2"), "b", Dependency::Started)),
        ("b", after(spread(1), "a", Dependency::Started)),
    ]);
    let good = services([("a", spread(1).image("a:1")), ("b", spread(1))]);
    let mut scenario = one_node(Millis::minutes(30), good);
    at(&mut scenario, 300, Action::Deploy(deployment("d"), circle));
    let mut world = World::new(&scenario, 1);
    while world.step(EPOCH.plus(scenario.length)) {}
    assert_eq!(world.refused, 1);
    assert_eq!(world.state.deployments()[&deployment("d")].revision.0, 1);
}

#[test]
fn a_node_without_addresses_is_asked_again_and_costs_a_replica_none_of_its_tries() {
    let mut apart = spread(1);
    apart.container.networks.insert("back".to_owned(), NetworkAttachment::default());
    apart.hash = SpecHash::of(&apart.container);
    let mut scenario = one_node(Millis::minutes(60), services([("web", apart)]));
    at(&mut scenario, 0, Action::ExhaustSubnets(node_id("ash")));
    at(&mut scenario, 1_200, Action::FreeSubnets(node_id("ash")));
    assert_eq!(run_quietly(&scenario, 1).failure, None);
    let mut world = World::new(&scenario, 1);
    let (state, code) = said(&mut world, 1_190, "web");
    assert_eq!(
        (state, code.map(|code| code.word())),
        (ObservedState::Pending, Some("subnet_pool_exhausted"))
    );
    assert_eq!(said(&mut world, 3_500, "web"), (ObservedState::Running, None));
}

#[test]
fn no_entry_that_a_leader_writes_is_longer_than_it_may_be() {
    let most = plimsoll_kernel::batch::MAX_CHANGES;
    let many = services([("web", spread(u32::try_from(4 * most).unwrap()))]);
    let mut scenario = one_node(Millis::minutes(20), many);
    let (deployment, volumes) = (deployment("d"), false);
    at(&mut scenario, 300, Action::Undeploy { deployment, volumes });
    let mut world = World::new(&scenario, 1);
    let mut longest = 0;
    while world.step(EPOCH.plus(scenario.length)) {
        for applied in &world.applied {
            let ids = applied.events.iter().filter_map(|event| match event {
                Event::Replica(id) => Some(id),
                _ => None,
            });
            longest = longest.max(ids.collect::<BTreeSet<&ReplicaId>>().len());
        }
    }
    assert_eq!(longest, most);
    assert_eq!(world.state.replicas().count(), 0, "all of them are gone");
}
