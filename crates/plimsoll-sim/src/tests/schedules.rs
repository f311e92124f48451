//! Schedules under leaders that come and go, clocks that are wrong, and nodes that are lost in the middle of a run.

use plimsoll_model::schedule::{Cron, Schedule};
use plimsoll_model::testkit::{cpus, node_id, spread};
use plimsoll_model::{AuditKind, Millis, ServiceSpec};

use super::{deployment, happened, run_quietly, services};
use crate::scenario::{Action, Scenario};

fn every(cron: &str, mut spec: ServiceSpec) -> ServiceSpec {
    spec.schedule = Some(Schedule::new(Cron::parse(cron).unwrap(), None));
    spec.become_job();
    spec
}

fn scheduled() -> Scenario {
    let mut scenario = Scenario::new("scheduled", Millis::minutes(60));
    for name in ["ash", "birch", "cedar"] {
        scenario.nodes.insert(node_id(name), cpus(4));
    }
    let shop = services([
        ("mail", every("*/5 * * * *", spread(1))),
        ("sweep", every("* * * * *", spread(2).reserve(500, 64))),
    ]);
    scenario.deployments.insert(deployment("shop"), shop);
    scenario
}

#[test]
fn each_slot_is_started_once_or_stated_missed_whoever_leads() {
    let mut scenario = scheduled();
    for minute in 1..50 {
        let at = Millis::minutes(minute);
        // Before, at and after the slot.
        for late in [0, 20, 400] {
            scenario.script.push((Millis(at.0 + late), Action::NewLeader));
        }
    }
    scenario.script.push((Millis::minutes(20), Action::Skew(-90_000)));
    scenario.script.push((Millis::minutes(25), Action::Skew(150_000)));
    scenario.script.push((Millis::minutes(31), Action::Crash(node_id("birch"))));
    scenario.script.push((Millis::minutes(40), Action::Return(node_id("birch"))));
    scenario.script.sort_by_key(|(at, _)| *at);
    for seed in 0..8 {
        let outcome = run_quietly(&scenario, seed);
        assert_eq!(outcome.failure, None, "seed {seed}");
        let started = happened(&outcome, |what| matches!(what, AuditKind::RunStarted { .. }));
        let missed = happened(&outcome, |what| matches!(what, AuditKind::SlotsMissed { .. }));
        // The invariant compares them with the slots there are; here it is enough that there were any.
        assert!(started >= 30, "seed {seed}: {started} started, {missed} missed");
    }
}
