use plimsoll_model::preemption::WithdrawReason;
use plimsoll_model::reason::{UnplacedReason, WaitReason};
use plimsoll_model::testkit::{Cell, cell, cpus, global, node_id, replica_id, service_key, spread};
use plimsoll_model::{AuditKind, MoveCause, ServiceSpec, Writer};
use proptest::prelude::*;

use super::*;
use crate::explain;
use crate::policy::Policy;
use crate::signals::Signals;
use crate::testkit::Passes;

const LONGEST: Millis = Millis::minutes(10);

fn ranked(priority: i32, spec: ServiceSpec) -> ServiceSpec {
    ServiceSpec { priority, ..spec }
}

fn asking(priority: i32, milli_cpus: u64) -> ServiceSpec {
    ranked(priority, spread(1).reserve(milli_cpus, 64))
}

fn in_flight(cell: &Cell) -> &BTreeMap<NodeId, Preemption> {
    cell.state.preemptions().in_flight()
}

fn why(cell: &Cell, service: &str) -> Option<UnplacedReason> {
    let service = cell.state.service(&service_key(service))?;
    service.row.unplaced.as_ref().map(|unplaced| unplaced.why.clone())
}

fn runs_on(cell: &Cell, service: &str) -> Vec<String> {
    let service = cell.state.service(&service_key(service));
    let replicas = service.into_iter().flat_map(|it| it.replicas.values());
    let mut nodes: Vec<String> = replicas
        .filter_map(|it| it.assignment.as_ref())
        .map(|assignment| assignment.node.to_string())
        .collect();
    nodes.sort_unstable();
    nodes
}

fn withdrawals(cell: &Cell) -> Vec<WithdrawReason> {
    let events = cell.state.audit().events();
    events
        .filter_map(|event| match &event.what {
            AuditKind::PreemptionWithdrawn { why, .. } => Some(why.clone()),
            _ => None,
        })
        .collect()
}

/// A node of four cpus with three of them taken by a batch job of priority 0.
fn full() -> Cell {
    cell().node("ash", cpus(4)).deploy("low", [("batch", asking(0, 3_000))]).settle()
}

#[test]
fn the_grace_falls_with_the_gap() {
    let limits = PreemptLimits::default();
    for (gap, grace) in [
        (1, Millis::minutes(10)),
        (100_000, Millis::minutes(10)),
        (100_001, Millis::minutes(2)),
        (500_000, Millis::minutes(2)),
        (500_001, Millis::seconds(30)),
        (900_000, Millis::seconds(30)),
        (900_001, Millis::seconds(10)),
    ] {
        assert_eq!(limits.grace(gap, 0), grace, "gap {gap}");
    }
    assert_eq!(limits.grace(i32::MAX, i32::MIN), Millis::seconds(10), "the widest gap there is");
}

#[test]
fn a_replica_without_room_preempts_one_of_lower_priority_after_its_grace() {
    let cell = full().deploy("high", [("web", asking(10, 3_000))]).settle();
    let held = &in_flight(&cell)[&node_id("ash")];
    assert_eq!((held.by.clone(), held.priority), (replica_id("high/web/1"), 10));
    assert_eq!(held.victims.keys().collect::<Vec<_>>(), [&replica_id("low/batch/1")]);
    let waiting = &cell.state.replica(&replica_id("low/batch/1")).unwrap().waiting;
    let Some(WaitReason::Preempted { by, until }) = waiting else { panic!("{waiting:?}") };
    assert_eq!((by.priority, by.own, *until), (10, 0, cell.now.plus(LONGEST)));
    assert_eq!(why(&cell, "high/web").unwrap().word(), "preempting");
    assert_eq!(runs_on(&cell, "low/batch"), ["ash"], "it has its grace");

    let cell = cell.later(Millis(LONGEST.0 - 1)).settle();
    assert_eq!(runs_on(&cell, "low/batch"), ["ash"], "to the end");
    let cell = cell.later(Millis(1)).settle();
    assert_eq!(runs_on(&cell, "high/web"), ["ash"]);
    assert_eq!(runs_on(&cell, "low/batch"), Vec::<String>::new());
    let Some(UnplacedReason::Preempted { by, .. }) = why(&cell, "low/batch") else {
        panic!("{:?}", why(&cell, "low/batch"))
    };
    assert_eq!((by.by.clone(), by.own, by.priority), (replica_id("high/web/1"), 0, 10));
    assert!(in_flight(&cell).is_empty());
    let counts = cell.state.preemptions().counts();
    assert_eq!((counts.begun, counts.evicted, counts.withdrawn), (1, 1, 0));

    let cell = cell.undeploy("high").settle();
    assert_eq!(runs_on(&cell, "low/batch"), ["ash"], "it comes back by itself");
    assert_eq!(why(&cell, "low/batch"), None);
}

#[test]
fn nobody_preempts_its_equals_or_betters() {
    for priority in [0, -1] {
        let cell = full().deploy("other", [("web", asking(priority, 3_000))]).settle();
        assert!(in_flight(&cell).is_empty(), "priority {priority}");
        assert_eq!(why(&cell, "other/web").unwrap().word(), "no_eligible_node");
    }
}

#[test]
fn a_victim_with_room_elsewhere_moves_there_before_it_stops() {
    let mut high = asking(10, 3_000);
    high.placement = high.clone().wants_label("disk", "fast").placement;
    let cell = cell()
        .node("ash", cpus(4).label("disk", "fast"))
        .deploy("low", [("batch", asking(0, 3_000))])
        .settle()
        .node("birch", cpus(4))
        .deploy("high", [("web", high)])
        .pass();
    let cell = cell.pass();
    let moving = cell.state.replica(&replica_id("low/batch/1")).unwrap().successor.clone().unwrap();
    assert_eq!((moving.cause, moving.assignment.node.as_str()), (MoveCause::Preempted, "birch"));
    let cell = cell.obey().settle();
    assert_eq!(runs_on(&cell, "low/batch"), ["birch"]);
    assert_eq!(runs_on(&cell, "high/web"), ["ash"]);
    assert_eq!(cell.state.preemptions().counts().evicted, 0, "none was stopped");
}

#[test]
fn a_move_that_is_not_done_when_the_grace_ends_goes_on_without_the_original() {
    let mut high = asking(10, 3_000);
    high.placement = high.clone().wants_label("disk", "fast").placement;
    let mut cell = cell()
        .node("ash", cpus(4).label("disk", "fast"))
        .deploy("low", [("batch", asking(0, 3_000))])
        .settle()
        .node("birch", cpus(4))
        .deploy("high", [("web", high)]);
    for _ in 0..3 {
        cell = cell.pass();
    }
    let cell = cell.later(LONGEST).pass();
    let batch = cell.state.replica(&replica_id("low/batch/1")).unwrap();
    assert_eq!(batch.assignment.as_ref().unwrap().node, node_id("birch"));
    assert_eq!(batch.leaving.len(), 1);
    let cell = cell.obey().settle();
    assert_eq!(runs_on(&cell, "high/web"), ["ash"]);
}

#[test]
fn data_stays() {
    let db = ranked(0, spread(1).reserve(3_000, 64).volume("data"));
    let cell = cell().node("ash", cpus(4)).deploy("low", [("db", db)]).settle();
    let cell = cell.deploy("high", [("web", asking(1_000_000, 3_000))]).settle();
    assert!(in_flight(&cell).is_empty());
    let verdicts = verdicts(&cell, "high/web");
    let (_, Err(NoVictims::StillNoRoom { may_go, kept, .. })) = &verdicts[0] else {
        panic!("{verdicts:?}")
    };
    assert_eq!((*may_go, kept.data), (0, 1));
}

fn verdicts(cell: &Cell, service: &str) -> Vec<(NodeId, Result<VictimSet, NoVictims>)> {
    let policy = Policy::default();
    let mut roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let before = format!("{roster:?}");
    let key = service_key(service);
    let by = ReplicaId::indexed(&key, cell.state.next_index(&key));
    let found = explain::preemption(&cell.state, &mut roster, &policy, &by, cell.now);
    assert_eq!(before, format!("{roster:?}"));
    found.unwrap().nodes
}

#[test]
fn a_budget_is_kept_unless_the_preemptor_outranks_it() {
    for (case, priority, begins) in
        [("within the band", 100_000, false), ("far above", 100_001, true)]
    {
        // Two of one service would have to go.
        let low = ranked(0, spread(2).reserve(1_500, 64));
        let cell = cell().node("ash", cpus(3)).deploy("low", [("batch", low)]).settle();
        let cell = cell.deploy("high", [("web", asking(priority, 3_000))]).settle();
        assert_eq!(!in_flight(&cell).is_empty(), begins, "{case}");
        if begins {
            assert_eq!(in_flight(&cell)[&node_id("ash")].victims.len(), 2);
        }
    }
}

#[test]
fn a_service_that_lacks_one_already_loses_no_other_within_its_band() {
    let low = ranked(0, spread(3).reserve(1_500, 64));
    let cell = cell().node("ash", cpus(3)).deploy("low", [("batch", low)]).settle();
    assert_eq!(why(&cell, "low/batch").unwrap().word(), "no_eligible_node");
    let cell = cell.deploy("high", [("web", asking(10, 1_500))]).settle();
    assert!(in_flight(&cell).is_empty());
    let found = verdicts(&cell, "high/web");
    let (_, Err(NoVictims::StillNoRoom { kept, .. })) = &found[0] else { panic!("{found:?}") };
    assert_eq!(kept.budget, 2);
}

#[test]
fn nobody_is_stopped_for_what_would_still_not_fit() {
    let cell = full().deploy("high", [("web", asking(10, 4_001))]).settle();
    assert!(in_flight(&cell).is_empty());
    let mut picky = asking(10, 3_000);
    picky.placement = picky.clone().wants_label("disk", "fast").placement;
    let cell = full().deploy("high", [("web", picky)]).settle();
    assert!(in_flight(&cell).is_empty(), "not for want of room");
}

#[test]
fn a_host_port_is_made_free_too() {
    let low = ranked(0, spread(1).host_port(80));
    let cell = cell().node("ash", cpus(4)).deploy("low", [("old", low)]).settle();
    let cell = cell.deploy("high", [("new", ranked(1_000_000, spread(1).host_port(80)))]).settle();
    assert_eq!(in_flight(&cell)[&node_id("ash")].victims.len(), 1);
    let cell = cell.later(Millis::seconds(10)).settle();
    assert_eq!((runs_on(&cell, "high/new").len(), runs_on(&cell, "low/old").len()), (1, 0));
}

#[test]
fn global_services_preempt_and_make_way_on_each_node() {
    let two = || cell().node("ash", cpus(4)).node("birch", cpus(4));
    let agents = || ranked(0, global().reserve(2_000, 64));
    let cell = two()
        .deploy("low", [("agent", agents())])
        .deploy("high", [("guard", ranked(1_000_000, global().reserve(3_000, 64)))])
        .settle();
    let guards = runs_on(&cell, "high/guard");
    assert_eq!(guards, ["ash", "birch"], "who comes first chooses first");
    let cell = two().deploy("low", [("agent", agents())]).settle();
    let cell = cell.deploy("high", [("guard", ranked(1_000_000, global().reserve(3_000, 64)))]);
    let cell = cell.settle();
    assert_eq!(in_flight(&cell).len(), 2);
    let cell = cell.later(Millis::seconds(10)).settle();
    assert_eq!(runs_on(&cell, "high/guard"), ["ash", "birch"]);
    assert_eq!(runs_on(&cell, "low/agent"), Vec::<String>::new());
    assert_eq!(why(&cell, "low/agent").unwrap().word(), "preempted");
}

#[test]
fn one_need_preempts_once_and_nobody_takes_its_room() {
    let cell = cell()
        .node("ash", cpus(4))
        .node("birch", cpus(4))
        .deploy("low", [("batch", ranked(0, spread(2).reserve(3_000, 64)))])
        .settle()
        .deploy("high", [("web", asking(10, 3_000))])
        .settle();
    assert_eq!(in_flight(&cell).len(), 1);
    let node = in_flight(&cell).keys().next().unwrap().clone();
    // The victim ends by itself: what comes free is held, whoever asks for it.
    let victim = in_flight(&cell)[&node].victims.keys().next().unwrap().clone();
    let mut cell = cell;
    cell.change(Writer::Scheduler, plimsoll_model::Change::Retire { replica: victim });
    let cell = cell.obey().deploy("other", [("job", asking(10, 1_500))]).settle();
    assert_eq!(runs_on(&cell, "high/web"), [node.to_string()]);
    assert_eq!(cell.state.preemptions().counts().begun, 1);
}

#[test]
fn what_is_held_is_held_against_equals_and_taken_by_betters() {
    for (case, priority, gets_it) in [("an equal", 10, false), ("a better", 11, true)] {
        let cell = full().deploy("high", [("web", asking(10, 3_000))]).settle();
        let cell = cell.deploy("other", [("job", asking(priority, 1_000))]).settle();
        assert_eq!(!runs_on(&cell, "other/job").is_empty(), gets_it, "{case}");
        let cell = cell.later(LONGEST).settle();
        assert_eq!(runs_on(&cell, "high/web").len(), 1, "{case}");
    }
}

#[test]
fn a_better_takes_over_a_preemption_under_way() {
    let cell = full().deploy("high", [("web", asking(10, 3_000))]).settle();
    let cell = cell.deploy("best", [("app", asking(1_000_000, 3_000))]).settle();
    let held = &in_flight(&cell)[&node_id("ash")];
    assert_eq!(held.by, replica_id("best/app/1"));
    let by = service_key("best/app");
    assert_eq!(withdrawals(&cell), [WithdrawReason::Outranked { by, priority: 1_000_000 }]);
    let cell = cell.later(Millis::seconds(10)).settle();
    assert_eq!(runs_on(&cell, "best/app"), ["ash"]);
    assert_eq!(why(&cell, "high/web").unwrap().word(), "no_eligible_node");
}

#[test]
fn victims_stay_when_the_need_ends() {
    let waiting = || full().deploy("high", [("web", asking(10, 3_000))]).settle();
    for (case, cell) in [
        ("it is deleted", waiting().undeploy("high")),
        ("a node joins", waiting().node("birch", cpus(4))),
        ("it asks for less", waiting().deploy("high", [("web", asking(10, 1_000))])),
        ("it is no longer above", waiting().deploy("high", [("web", asking(0, 3_000))])),
        ("the node is cordoned", waiting().cordon("ash")),
    ] {
        let cell = cell.settle();
        assert!(in_flight(&cell).is_empty(), "{case}");
        assert_eq!(withdrawals(&cell).len(), 1, "{case}");
        let cell = cell.later(LONGEST).settle();
        assert_eq!(runs_on(&cell, "low/batch"), ["ash"], "{case}");
        let waiting = &cell.state.replica(&replica_id("low/batch/1")).unwrap().waiting;
        assert_eq!(*waiting, None, "{case}");
    }
}

#[test]
fn a_lost_replica_may_preempt_and_its_successor_takes_the_room() {
    let cell = cell()
        .node("ash", cpus(4))
        .node("birch", cpus(4))
        .node("cedar", cpus(1))
        .deploy("high", [("web", asking(1_000_000, 3_000))])
        .settle();
    let on = runs_on(&cell, "high/web")[0].clone();
    let cell = cell.deploy("low", [("batch", asking(0, 3_000))]).settle();
    let cell = cell.down(&on).later(Millis::seconds(3)).settle();
    assert_eq!(in_flight(&cell).values().next().unwrap().by, replica_id("high/web/1"));
    let cell = cell.later(Millis::seconds(10)).settle();
    assert_ne!(runs_on(&cell, "high/web"), [on]);
    assert_eq!(why(&cell, "low/batch").unwrap().word(), "preempted");
}

/// Services of one replica each, as drawn: what it asks for, its priority and its penalty.
type Drawn = Vec<(u64, i32, u8)>;

fn small_cell(nodes: &[u64], drawn: &Drawn) -> Cell {
    let names = ["ash", "birch", "cedar"];
    let cell =
        nodes.iter().zip(names).fold(cell(), |cell, (cpu, name)| cell.node(name, cpus(*cpu)));
    let services = drawn.iter().enumerate().map(|(i, (cpu, priority, penalty))| {
        let spec = asking(*priority, cpu * 500);
        (format!("s{i}"), ServiceSpec { interruption_penalty: *penalty, ..spec })
    });
    cell.deploy("low", services.collect::<Vec<_>>())
}

/// The rule itself, over every node and every set of its replicas: the cost of the best, and its node.
fn by_looking(cell: &Cell, cpu: u64, priority: i32) -> Option<(VictimCost, NodeId)> {
    let mut best = None;
    for (node, row) in cell.state.nodes() {
        let here: Vec<(u64, i32, u8)> = cell
            .state
            .replicas()
            .filter(|(_, replica)| replica.assignment.as_ref().is_some_and(|it| it.node == *node))
            .map(|(id, _)| {
                let spec = cell.state.service(&id.service).unwrap().desired().unwrap();
                (spec.request().cpu.0, spec.priority, spec.interruption_penalty)
            })
            .collect();
        for bits in 0_u32..1 << here.len() {
            let (go, stay): (Vec<_>, Vec<_>) =
                here.iter().enumerate().partition(|(i, _)| bits >> i & 1 == 1);
            let reserved: u64 = stay.iter().map(|(_, it)| it.0).sum();
            let is_lower = go.iter().all(|(_, it)| it.1 < priority);
            if is_lower && reserved + cpu <= row.facts.capacity.cpu.0 {
                let cost = VictimCost {
                    count: go.len(),
                    highest_priority: go
                        .iter()
                        .map(|(_, it)| i64::from(it.1))
                        .max()
                        .unwrap_or(i64::MIN),
                    priorities: go.iter().map(|(_, it)| i64::from(it.1)).sum(),
                    penalties: go.iter().map(|(_, it)| u32::from(it.2)).sum(),
                };
                let found = (cost, node.clone());
                best =
                    Some(best.map_or(found.clone(), |best: (VictimCost, NodeId)| best.min(found)));
            }
        }
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn victims_are_those_that_looking_at_every_set_of_every_node_gives(
        nodes in prop::collection::vec(1_u64..5, 1..4),
        drawn in prop::collection::vec((1_u64..5, 0_i32..4, 0_u8..3), 1..9),
        cpu in 1_u64..9,
        priority in 0_i32..5,
    ) {
        let cell = small_cell(&nodes, &drawn).settle();
        let settled_without = in_flight(&cell).is_empty();
        prop_assume!(settled_without);
        let before = cell.state.clone();
        let cell = cell.deploy("high", [("web", asking(priority, cpu * 500))]).pass();
        let found = in_flight(&cell).iter().next().map(|(node, it)| {
            let cost = VictimCost {
                count: it.victims.len(),
                highest_priority: it.victims.values().map(|v| i64::from(v.priority)).max().unwrap(),
                priorities: it.victims.values().map(|v| i64::from(v.priority)).sum(),
                penalties: it.victims.values().map(|v| u32::from(v.penalty)).sum(),
            };
            (cost, node.clone())
        });
        let expected = by_looking(&Cell { state: before, ..cell.clone() }, cpu * 500, priority);
        match expected {
            Some((cost, _)) if cost.count == 0 => {
                prop_assert_eq!(found, None, "there is room");
                prop_assert_eq!(runs_on(&cell, "high/web").len(), 1);
            }
            expected => prop_assert_eq!(found, expected),
        }
    }

    #[test]
    fn mixed_priorities_settle_and_nobody_waits_for_room_that_a_lesser_one_has(
        nodes in prop::collection::vec(1_u64..5, 1..4),
        first in prop::collection::vec((1_u64..5, 0_i32..4, 0_u8..3), 1..8),
        then in prop::collection::vec((1_u64..5, 0_i32..4, 0_u8..3), 1..8),
    ) {
        let mut cell = small_cell(&nodes, &first).settle();
        let services = then.iter().enumerate().map(|(i, (cpu, priority, _))| {
            (format!("t{i}"), asking(*priority, cpu * 500))
        });
        cell = cell.deploy("next", services.collect::<Vec<_>>()).settle();
        let most = first.len() + then.len();
        let mut rounds = 0;
        while !in_flight(&cell).is_empty() {
            rounds += 1;
            prop_assert!(rounds <= 4 * most, "it goes on and on");
            cell = cell.later(LONGEST).settle();
        }
        // Each one that is placed for another moves the cell up: so there are no more of them than replicas and priorities.
        prop_assert!(cell.state.preemptions().counts().begun <= 4 * most as u64);
        for key in cell.state.unplaced() {
            let spec = cell.state.service(key).unwrap().desired().unwrap();
            let expected = by_looking(&cell, spec.request().cpu.0, spec.priority);
            prop_assert_eq!(expected, None, "{} waits", key);
        }
    }
}
