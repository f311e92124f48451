//! Priorities where room is short: who makes way, for how long, and who comes back.

use plimsoll_model::testkit::{cpus, node_id, service_key, spread};
use plimsoll_model::{AuditKind, Millis, ServiceSpec};

use super::{deployment, run_quietly, services};
use crate::RunOutcome;
use crate::scenario::{Action, Scenario};
use crate::world::{EPOCH, World};

fn ranked(priority: i32, spec: ServiceSpec) -> ServiceSpec {
    ServiceSpec { priority, ..spec }
}

/// A new leader looks at everything first, and a full pass comes twice a minute.
const LATE: Millis = Millis::minutes(1);

/// Three nodes, full with a service of priority 0; after ten minutes one of higher priority comes for ninety minutes.
fn contested(priority: i32) -> Scenario {
    let mut scenario = Scenario::new("contested", Millis::minutes(150));
    for node in ["ash", "birch", "cedar"] {
        scenario.nodes.insert(node_id(node), cpus(4));
    }
    let low = services([("batch", ranked(0, spread(3).reserve(3_000, 64)))]);
    scenario.deployments.insert(deployment("low"), low);
    let high = services([("web", ranked(priority, spread(1).reserve(3_000, 64)))]);
    let deploy = Action::Deploy(deployment("high"), high);
    scenario.script.push((Millis::minutes(10), deploy));
    scenario.script.push((
        Millis::minutes(100),
        Action::Undeploy { deployment: deployment("high"), volumes: false },
    ));
    scenario
}

/// When each event of preemption was written, by its word.
fn story(outcome: &RunOutcome) -> Vec<(Millis, &'static str)> {
    let lines = outcome.report.story.iter();
    let of_it = lines.filter(|line| {
        matches!(
            line.what,
            AuditKind::PreemptionStarted { .. }
                | AuditKind::Evicted { .. }
                | AuditKind::PreemptionWithdrawn { .. }
        )
    });
    of_it.map(|line| (line.at, line.what.word())).collect()
}

#[test]
fn one_need_preempts_once_and_in_time_whoever_leads() {
    for (priority, grace) in [
        (10, Millis::minutes(10)),
        (200_000, Millis::minutes(2)),
        (600_000, Millis::seconds(30)),
        (1_000_000, Millis::seconds(10)),
    ] {
        for has_new_leaders in [false, true] {
            let mut scenario = contested(priority);
            if has_new_leaders {
                let terms = (1..60).map(|nth| (Millis::minutes(2 * nth), Action::NewLeader));
                scenario.script.extend(terms);
            }
            let outcome = run_quietly(&scenario, 7);
            assert_eq!(outcome.failure, None, "{priority} {has_new_leaders}");
            let story = story(&outcome);
            let words: Vec<&str> = story.iter().map(|(_, word)| *word).collect();
            assert_eq!(words, ["preemption_started", "evicted"], "{priority} {has_new_leaders}");
            let waited = Millis(story[1].0.0 - story[0].0.0);
            // What is written takes effect a moment after it was decided.
            let (late, early) =
                (waited.0.saturating_sub(grace.0), grace.0.saturating_sub(waited.0));
            let is_in_time = Millis(early) <= Millis::seconds(2) && Millis(late) <= LATE;
            assert!(is_in_time, "{waited} for {grace}");
        }
    }
}

#[test]
fn who_made_way_comes_back_by_itself() {
    let scenario = contested(1_000_000);
    let mut world = World::new(&scenario, 3);
    while world.step(EPOCH.plus(Millis::minutes(90))) {}
    let replicas = |world: &World<'_>, key: &str| {
        let service = world.state.service(&service_key(key));
        service.map_or(0, |it| it.replicas.values().filter(|it| it.is_running()).count())
    };
    assert_eq!((replicas(&world, "low/batch"), replicas(&world, "high/web")), (2, 1));
    let row = &world.state.service(&service_key("low/batch")).unwrap().row;
    assert_eq!(row.unplaced.as_ref().unwrap().why.word(), "preempted");
    while world.step(EPOCH.plus(scenario.length)) {}
    assert_eq!(replicas(&world, "low/batch"), 3);
}
