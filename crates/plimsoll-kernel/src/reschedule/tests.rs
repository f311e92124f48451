use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reschedule::{RescheduleReason, RescheduleSettings};
use plimsoll_model::spec::{Reschedule, UpdateOrder};
use plimsoll_model::testkit::{Cell, cell, cpus, node_id, pack, service_key, spread};
use plimsoll_model::{Millis, NodePressure, Pressure, ServiceSpec, Writer};
use proptest::prelude::*;

use super::*;
use crate::place::filter::PlacementRequest;
use crate::place::tests::{any_setting, build};
use crate::place::{NodeVerdict, Placer};
use crate::rebalance::PressureSample;
use crate::testkit::Passes;
use crate::{Signals, explain, lint};

fn offered(cell: &Cell, policy: &Policy) -> Vec<RescheduleOffer> {
    let roster = Roster::new(&cell.state, &Signals::default(), policy);
    look(&cell.state, &roster, policy, &Rebalancer::default(), |_| false, cell.now).0
}

/// Cycles, half a minute apart, with nodes that do at once as they are told, until so much time has passed. How many moved.
fn reschedule(mut cell: Cell, span: Millis) -> (Cell, Vec<RescheduledMove>) {
    let policy = Policy::default();
    let mut moved = Vec::new();
    let end = cell.now.plus(span);
    while cell.now < end {
        let offers = offered(&cell, &policy);
        moved.extend(offers.iter().map(|offer| (*offer.moved).clone()));
        let batch: Vec<Guarded> = offers.into_iter().flat_map(RescheduleOffer::changes).collect();
        let broken = lint::plan(&cell.state, &batch);
        assert!(broken.is_empty(), "{broken:#?}");
        cell.apply(Writer::Rescheduler, batch).expect("decided on this very state");
        cell = cell.obey().settle().later(policy.sample_interval);
    }
    (cell, moved)
}

fn counts(cell: &Cell) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> =
        cell.state.nodes().keys().map(|node| (node.to_string(), 0)).collect();
    for (_, replica) in cell.state.replicas() {
        if let Some(at) = replica.heading() {
            *counts.get_mut(at.node.as_str()).unwrap() += 1;
        }
    }
    counts
}

fn three(services: impl IntoIterator<Item = (String, ServiceSpec)>) -> Cell {
    let cell = cell().node("ash", cpus(16)).node("birch", cpus(16)).node("cedar", cpus(16));
    cell.deploy("d", services).settle().later(Millis::minutes(20))
}

#[test]
fn a_node_that_joins_gets_its_share_and_nothing_moves_after_that() {
    let many = |spec: fn() -> ServiceSpec| {
        (0..10).map(move |nth| (format!("s{nth}"), spec())).collect::<Vec<_>>()
    };
    for (case, services) in [
        ("one service", vec![("web".to_owned(), spread(30))]),
        ("one service that reserves", vec![("web".to_owned(), spread(30).reserve(250, 64))]),
        ("ten services that reserve nothing", many(|| spread(3))),
        ("ten services that reserve", many(|| spread(3).reserve(500, 64))),
        ("packed", many(|| pack(3).reserve(500, 64))),
    ] {
        let cell = three(services).node("dogwood", cpus(16));
        let (cell, moved) = reschedule(cell, Millis::minutes(60));
        assert_eq!(moved.len(), 7, "{case}: {moved:?}");
        let counts: BTreeSet<usize> = counts(&cell).into_values().collect();
        assert_eq!(counts, [7, 8].into(), "{case}");
        let (_, moved) = reschedule(cell, Millis::minutes(24 * 60));
        assert_eq!(moved, vec![], "{case}");
    }
}

#[test]
fn what_may_not_move_stays_and_says_so_in_its_spec() {
    let never = ServiceSpec { reschedule: Reschedule::Never, ..spread(6) };
    let mut stop_first = spread(6);
    stop_first.update.order = UpdateOrder::StopFirst;
    let patient = ServiceSpec { reschedule: Reschedule::Above(2_000), ..spread(6) };
    for (case, spec, moves) in [
        ("one that may", spread(6), 1),
        ("reschedule: never", never, 0),
        ("it cannot run twice", stop_first, 0),
        ("it has a volume", spread(6).volume("data"), 0),
        // Its score is no reason, and a joined node is filled all the same.
        ("a threshold that nothing passes", patient, 1),
    ] {
        let cell = three([("web".to_owned(), spec)]);
        let cell = cell.node("dogwood", cpus(16)).later(Millis::minutes(2));
        assert_eq!(offered(&cell, &Policy::default()).len(), moves, "{case}");
    }
}

#[test]
fn a_threshold_is_exact_at_its_edge() {
    for (threshold, moves) in [(614, 1), (615, 0)] {
        let mut spec = spread(6);
        spec.reschedule = Reschedule::Above(threshold);
        // Two of it are on each node; the one that is down has its own elsewhere, and comes back: 3, 3 and 0.
        let cell = three([("web".to_owned(), spec)]).down("cedar").later(Millis::minutes(1));
        let mut cell = cell.settle().up("cedar").later(Millis::minutes(15));
        let mut moved = Vec::new();
        for _ in 0..9 {
            let offers = offered(&cell, &Policy::default());
            moved.extend(offers.iter().map(|offer| offer.moved.why));
            let batch: Vec<_> = offers.into_iter().flat_map(RescheduleOffer::changes).collect();
            cell.apply(Writer::Rescheduler, batch).unwrap();
            cell = cell.obey().settle().later(Millis::minutes(3));
        }
        // From 3, 3, 0 a replica gains two steps; from 3, 2, 1 one, and only that depends on the threshold.
        let better = moved.iter().filter(|why| **why == RescheduleReason::BetterScore).count();
        assert_eq!(better, 1 + moves, "{threshold}: {moved:?}");
    }
}

#[test]
fn while_it_is_paused_it_computes_and_moves_nothing() {
    let mut cell =
        three([("web".to_owned(), spread(30))]).node("dogwood", cpus(16)).later(Millis::minutes(2));
    let policy = Policy::default();
    for (is_paused, changes) in [(true, 0), (false, 2)] {
        let settings = RescheduleSettings { is_paused, target: None };
        cell.change(Writer::Operator, Change::SetRescheduling { settings });
        let roster = Roster::new(&cell.state, &Signals::default(), &policy);
        let (mut rescheduler, mut rebalancer) = (Rescheduler::default(), Rebalancer::default());
        let batch = rescheduler.cycle(&cell.state, &roster, &policy, &mut rebalancer, cell.now);
        assert_eq!(batch.len(), changes);
        assert_eq!(rescheduler.last_offers().len(), 1);
        let again = rescheduler.cycle(&cell.state, &roster, &policy, &mut rebalancer, cell.now);
        let tried = again.iter().filter_map(|guarded| guarded.change.replica());
        let first = batch.first().and_then(|guarded| guarded.change.replica());
        assert!(tried.into_iter().all(|id| Some(id) != first), "what was tried rests");
    }
}

#[test]
fn the_audit_has_the_score_and_its_parts() {
    let mut cell = three([("web".to_owned(), spread(30).reserve(250, 64))])
        .node("dogwood", cpus(16))
        .later(Millis::minutes(2));
    let offers = offered(&cell, &Policy::default());
    let batch: Vec<_> = offers.into_iter().flat_map(RescheduleOffer::changes).collect();
    cell.apply(Writer::Rescheduler, batch).unwrap();
    let last = cell.state.audit().events().last().expect("it is written down");
    let plimsoll_model::AuditKind::Rescheduled { moved } = &last.what else { panic!("{last:?}") };
    assert_eq!(
        moved.before.map(|it| it.to_string()).unwrap(),
        " 8155 = zone 7545 + node 0 + headroom 410 + preferred 200"
    );
    assert_eq!(
        moved.after.to_string(),
        "10000 = zone 7545 + node 1845 + headroom 410 + preferred 200"
    );
    let said = last.what.to_string();
    let (_, said) = said.split_once(" is rescheduled ").unwrap();
    let (_, said) = said.split_once(" → ").unwrap();
    assert!(
        said.starts_with("dogwood (better_score): score 8155 → 10000, threshold 610, "),
        "{said}"
    );
    assert!(said.ends_with(" 0.1562 → 0.1406, on dogwood 0.00 → 0.0156"), "{said}");
}

#[test]
fn a_node_that_is_lost_again_and_again_earns_its_trust_ever_later() {
    let policy = Policy::default();
    let limits = policy.reschedule;
    let mut cell = three([("web".to_owned(), spread(30))]).node("dogwood", cpus(16));
    for (losses, minutes) in [(0, 1), (1, 2), (2, 4), (3, 8), (4, 16)] {
        let node = cell.state.node(&node_id("dogwood")).unwrap();
        assert_eq!(limits.losses(node, cell.now), losses);
        assert_eq!(limits.distrust(node, cell.now), Millis::minutes(minutes));
        cell = cell.later(Millis::seconds(30)).down("dogwood").up("dogwood");
    }
    let node = cell.state.node(&node_id("dogwood")).unwrap();
    let later = cell.now.plus(Millis::minutes(61));
    assert_eq!((limits.losses(node, later), limits.distrust(node, later)), (0, Millis(0)));
}

#[test]
fn the_plan_for_a_node_says_where_it_stands() {
    let policy = Policy::default();
    let cell = three([("web".to_owned(), spread(30))]).node("dogwood", cpus(16));
    let plan = |cell: &Cell, node| {
        fill_plan(&cell.state, &policy, &node_id(node), cell.now).unwrap().to_string()
    };
    assert_eq!(
        plan(&cell, "dogwood"),
        "dogwood has 0 replicas, its fair share is 8: filling begins in 1m"
    );
    assert_eq!(
        plan(&cell, "ash"),
        "ash has 10 replicas, its fair share is 8: not filled any further"
    );
    let cell = cell.down("dogwood").up("dogwood");
    assert_eq!(
        plan(&cell, "dogwood"),
        "dogwood has 0 replicas, its fair share is 8: lost once within the hour, filling begins in 2m"
    );
    let cell = cell.later(Millis::minutes(3));
    assert_eq!(
        plan(&cell, "dogwood"),
        "dogwood has 0 replicas, its fair share is 8: filling, 1 every 2m"
    );
    let (cell, _) = reschedule(cell, Millis::seconds(30));
    assert_eq!(
        plan(&cell, "dogwood"),
        "dogwood has 1 replica, its fair share is 8: filling, next in 1m 30s"
    );
    assert_eq!(
        plan(&cell.cordon("dogwood"), "dogwood"),
        "dogwood has 1 replica, its fair share is 10: it takes no new replicas"
    );
}

#[test]
fn a_node_that_shrank_gives_away_what_it_has_no_room_for_and_no_more() {
    let specs = (0..6).map(|nth| (format!("s{nth}"), spread(1).reserve(1_000, 64)));
    let cell = cell().node("ash", cpus(6)).deploy("d", specs).settle();
    let cell = cell.node("birch", cpus(8)).later(Millis::minutes(20)).node("ash", cpus(2));
    let (cell, moved) = reschedule(cell, Millis::minutes(60));
    let why: Vec<_> = moved.iter().map(|it| it.why).collect();
    assert_eq!(why, [RescheduleReason::NoRoom; 4]);
    assert_eq!(counts(&cell), [("ash".to_owned(), 2), ("birch".to_owned(), 4)].into());
}

#[test]
fn what_a_hot_node_was_relieved_of_is_not_moved_back() {
    let cell = cell().node("ash", cpus(8).zone("a")).node("birch", cpus(8).zone("b"));
    let mut cell = cell.deploy("d", [("web", spread(2))]).settle();
    let (key, from) = (service_key("d/web"), node_id("ash"));
    let service = cell.state.service(&key).unwrap();
    let (slot, replica) =
        service.replicas.iter().find(|(_, it)| it.heading().unwrap().node == from).unwrap();
    let (replica, spec) =
        (ReplicaId::new(key.clone(), slot.clone()), replica.heading().unwrap().spec);
    for (cause, offers) in [(MoveCause::Pressure, 1), (MoveCause::Misplaced, 1)] {
        let at = cell.state.replica(&replica).unwrap().heading().unwrap().node.clone();
        let node = if at == from { node_id("birch") } else { from.clone() };
        let change = Change::Succeed { replica: replica.clone(), node, spec, cause };
        cell.change(Writer::Rebalancer, change);
        cell = cell.obey().settle().later(Millis::minutes(20));
        if cause == MoveCause::Misplaced {
            // Both are even again.
            assert_eq!(offered(&cell, &Policy::default()), vec![]);
            continue;
        }
        let found = offered(&cell, &Policy::default());
        assert_eq!(found.len(), offers);
        assert_ne!(found[0].moved.replica, replica, "another of the two goes");
    }
    assert!(!cell.state.replica(&replica).unwrap().is_relieved);
}

#[test]
fn measurements_count_by_their_mean_and_by_what_nodes_have_reached() {
    let policy = Policy::default();
    let cell =
        three([("web".to_owned(), spread(30))]).node("dogwood", cpus(16)).later(Millis::minutes(2));
    let roster = Roster::new(&cell.state, &Signals::default(), &policy);
    for (case, shares, moves) in [
        ("it is cool", [10, 10], 1),
        ("it is hot for a moment", [10, 99], 1),
        ("it has been hot", [99, 10], 0),
    ] {
        let mut rebalancer = Rebalancer::default();
        for (nth, share) in (0_u64..).zip(shares) {
            let at = Timestamp(cell.now.0 - 20_000 + nth * 10_000);
            let pressure = NodePressure::new(Pressure::percent(share), Pressure::percent(10));
            rebalancer.sample(&node_id("dogwood"), Some(PressureSample { at, pressure }));
            rebalancer.cycle(&cell.state, &roster, &policy, at);
        }
        let (offers, _) = look(&cell.state, &roster, &policy, &rebalancer, |_| false, cell.now);
        assert_eq!(offers.len(), moves, "{case}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever the cell, and whatever became of its nodes before: what a pass has just placed stays.
    #[test]
    fn no_fresh_placement_is_ever_an_offer(setting in any_setting()) {
        let order: Vec<usize> = (0..setting.facts.len()).collect();
        let (cell, _) = build(&setting, &order);
        let cell = cell.settle().later(Millis::minutes(30));
        prop_assert_eq!(offered(&cell, &Policy::default()), vec![]);
    }

    /// The quick way and the scan that `explain` prints are one judgement.
    #[test]
    fn a_comparison_says_what_every_node_says(setting in any_setting(), later in any_setting()) {
        let order: Vec<usize> = (0..setting.facts.len()).collect();
        let (mut cell, signals) = build(&setting, &order);
        cell = cell.settle();
        // Then nodes change, and what was right is so no longer.
        for (nth, facts) in later.facts.iter().enumerate() {
            cell = cell.node(&format!("n{nth}"), facts.clone());
        }
        let policy = Policy::default();
        let mut roster = Roster::new(&cell.state, &signals, &policy);
        for (key, service) in cell.state.services() {
            let spec = service.desired().unwrap();
            for (slot, replica) in &service.replicas {
                let id = ReplicaId::new(key.clone(), slot.clone());
                let Some(node) = replica.heading().map(|it| it.node.clone()) else { continue };
                let told = explain::replica(&cell.state, &mut roster, &policy, &id, cell.now);
                let told = told.expect("it is there").verdicts;
                let ask = PlacementRequest::new(spec, &service.row.failures, &policy, cell.now);
                let headings = service.replicas.values().filter_map(|it| it.heading());
                let mut placer = Placer::new(&mut roster, ask, headings.map(|it| &it.node));
                let compared = placer.compare(&id, &node);
                placer.close();
                roster.forget_pass(&cell.state);
                let Some(compared) = compared else { continue };
                let said = |of: &NodeVerdict| of.score.map(plimsoll_model::Score::total);
                prop_assert_eq!(roster.id_at(compared.best.at), &told[0].node);
                let current = told.iter().find(|it| it.node == node).expect("it is a node");
                if let (Some(best), Some(current)) = (said(&told[0]), said(current)) {
                    let found = (compared.best.score.total(), compared.current.total());
                    prop_assert_eq!(found, (best, current), "{} on {}", id, node);
                }
            }
        }
    }
}

fn verdict_of(cell: &Cell, replica: &str) -> RescheduleVerdict {
    let policy = Policy::default();
    let roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let (measured, rescheduler) = (Rebalancer::default(), Rescheduler::default());
    let id = replica.parse().expect("a test writes deployment/service/slot");
    verdict(&cell.state, &roster, &policy, &measured, &rescheduler, &id, cell.now)
        .expect("it is there")
}

#[test]
fn a_replica_says_why_it_stays_with_both_scores_and_the_threshold() {
    let cell = three([("web".to_owned(), spread(30))]);
    assert_eq!(
        verdict_of(&cell, "d/web/1").to_string(),
        "stays: no other node can take it, or each is more crowded"
    );
    let young = cell.deploy("e", [("api", spread(3))]).settle();
    assert_eq!(
        verdict_of(&young, "e/api/1").to_string(),
        "stays: it was placed or moved a short time ago: 10m left"
    );
    let cell = young.node("dogwood", cpus(16)).later(Millis::minutes(2));
    let said = verdict_of(&cell, "d/web/1").to_string();
    assert_eq!(
        said,
        "moves to dogwood in its turn (better_score); scores 8155 here, 10000 on dogwood"
    );
    let (mut cell, moved) = reschedule(cell, Millis::seconds(30));
    let is_moved = |id: &String| moved.iter().any(|it| it.replica == id.parse().unwrap());
    let id = (1..=30).map(|nth| format!("d/web/{nth}")).find(|id| !is_moved(id)).unwrap();
    assert_eq!(
        verdict_of(&cell, &id).to_string(),
        "stays: dogwood was sent a replica a short time ago; scores 8155 here, 10000 on dogwood"
    );
    let settings = RescheduleSettings { is_paused: true, target: None };
    cell.change(Writer::Operator, Change::SetRescheduling { settings });
    let cell = cell.later(Millis::minutes(3));
    assert_eq!(
        verdict_of(&cell, &id).to_string(),
        "would move to dogwood (better_score), but the rescheduler is paused; scores 8155 here, 10000 on dogwood"
    );
}

/// What a replica is told alone is what a cycle does with it.
#[test]
fn what_a_cycle_moves_says_so_of_itself_and_nothing_else_does() {
    let cell = three([("web".to_owned(), spread(30)), ("db".to_owned(), spread(3).volume("data"))])
        .node("dogwood", cpus(16))
        .later(Millis::minutes(2));
    let offers = offered(&cell, &Policy::default());
    assert_eq!(offers.len(), 1);
    let moving = verdict_of(&cell, &format!("d/web/{}", slot(&offers[0].moved.replica)));
    assert_eq!((moving.stays, moving.moves.as_deref()), (None, Some(&*offers[0].moved)));
    let data = verdict_of(&cell, "d/db/1");
    assert_eq!((data.stays, data.moves), (Some(StayReason::KeepsData), None));
}

fn slot(id: &ReplicaId) -> String {
    match &id.slot {
        plimsoll_model::Slot::Index(index) => index.to_string(),
        plimsoll_model::Slot::Node(node) => node.to_string(),
    }
}

#[test]
fn a_cycle_tells_what_held_its_candidates_back() {
    let policy = Policy::default();
    let cell = three([("web".to_owned(), spread(30))]).node("dogwood", cpus(16));
    let cell = cell.later(Millis::minutes(2));
    let roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let (mut rescheduler, mut rebalancer) = (Rescheduler::default(), Rebalancer::default());
    for _ in 0..CYCLES_KEPT + 3 {
        rescheduler.cycle(&cell.state, &roster, &policy, &mut rebalancer, cell.now);
    }
    assert_eq!(rescheduler.cycles().len(), CYCLES_KEPT, "as many as are kept");
    let mut first = Rescheduler::default();
    first.cycle(&cell.state, &roster, &policy, &mut rebalancer, cell.now);
    let summary = &first.cycles()[0];
    assert_eq!((summary.candidates, summary.compared, summary.offers), (30, 1, 1));
    assert_eq!(summary.stayed, [("cell_budget", 29)].into());
    let lost = cell.down("ash").down("birch").down("cedar");
    first.cycle(&lost.state, &roster, &policy, &mut rebalancer, lost.now);
    assert_eq!(first.cycles()[1].withheld, Some(StayReason::MassLoss));
}

#[test]
fn every_reason_to_stay_has_its_word() {
    let node = node_id("ash");
    let all = [
        StayReason::Never,
        StayReason::KeepsData,
        StayReason::Global,
        StayReason::StopsFirst,
        StayReason::RollingOut,
        StayReason::DecisionRefused,
        StayReason::ServiceBudget,
        StayReason::Unsettled,
        StayReason::Rests { left: Millis(1) },
        StayReason::Preempted,
        StayReason::Completed,
        StayReason::Relieved,
        StayReason::NodeUnavailable,
        StayReason::MassLoss,
        StayReason::CellBudget { moving: 1, most: 1 },
        StayReason::TriedLately,
        StayReason::NoOther,
        StayReason::NotBetter { gain: 1, threshold: 2 },
        StayReason::NodeRests { node: node.clone() },
        StayReason::FailedThere { node: node.clone() },
        StayReason::DstCap { node },
        StayReason::Paused,
        StayReason::SlowedDown { left: Millis(1) },
        StayReason::ComparisonLimit,
    ];
    assert_eq!(all.map(|why| why.word()), StayReason::WORDS);
}
