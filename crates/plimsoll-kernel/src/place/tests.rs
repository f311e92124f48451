//! The search agrees with the scan, and the roster with the state, on any cell.

use plimsoll_model::spec::{Attribute, Constraint};
use plimsoll_model::testkit::{Cell, binpack, cell, cpus, pack, spread};
use plimsoll_model::{
    Capability, NodeFacts, NodePressure, Pressure, ReplicaId, ServiceKey, ServiceSpec,
};
use proptest::prelude::*;
use proptest::sample::select;

use super::filter::PlacementRequest;
use super::{Placer, Roster, ring, scan};
use crate::testkit::{Passes, decide};
use crate::{Policy, Scope, Signals, lint, reconcile};

fn any_facts() -> impl Strategy<Value = NodeFacts> {
    let zones = select(vec!["", "a", "b", "c"]);
    let labels = select(vec!["", "ssd", "hdd"]);
    let lacks = prop::option::weighted(0.2, Just(Capability::ImageCommand));
    (1_u64..5, zones, labels, 0_u32..3, lacks).prop_map(|(n, zone, disk, gpus, lacks)| {
        let mut facts = cpus(n).gpus(gpus);
        facts.runtime.lacks.extend(lacks);
        if !zone.is_empty() {
            facts = facts.zone(zone);
        }
        if !disk.is_empty() {
            facts = facts.label("disk", disk);
        }
        facts
    })
}

fn any_spec() -> impl Strategy<Value = ServiceSpec> {
    let shape = (0_u8..3, 0_u32..12, select(vec![0_u64, 100, 700, 2_000]), 0_u64..3_000);
    let extras = (
        prop::option::weighted(0.2, 1_u32..3),
        prop::option::weighted(0.2, select(vec![80_u16, 443])),
        prop::option::weighted(0.3, select(vec!["ssd", "hdd"])),
        prop::option::weighted(0.3, select(vec!["ssd", "hdd"])),
        prop::option::weighted(0.15, select(vec!["n0", "n3"])),
        prop::option::weighted(0.2, 0_u32..3),
        any::<bool>(),
        prop::option::weighted(0.2, select(vec!["manager", "worker"])),
    );
    (shape, extras).prop_map(|(shape, extras)| {
        let (max, port, wants, prefers, not, gpus, has_command, role) = extras;
        let (mode, n, cpu, mib) = shape;
        let mode = [spread, pack, binpack][usize::from(mode)];
        let mut spec = mode(n).reserve(cpu, mib);
        if has_command {
            spec = spec.command("run");
        }
        if let Some(max) = max {
            spec = spec.max_per_node(max);
        }
        if let Some(port) = port {
            spec = spec.host_port(port);
        }
        if let Some(disk) = wants {
            spec = spec.wants_label("disk", disk);
        }
        if let Some(disk) = prefers {
            spec = spec.prefers_label("disk", disk);
        }
        if let Some(gpus) = gpus {
            spec = if gpus == 0 { spec.all_gpus() } else { spec.gpus(gpus) };
        }
        if let Some(role) = role {
            spec = spec.wants_role(role);
        }
        if let Some(name) = not {
            let constraint =
                Constraint { on: Attribute::Name, equal: false, value: name.to_owned() };
            spec.placement.constraints.insert(constraint);
        }
        spec
    })
}

#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) facts: Vec<NodeFacts>,
    specs: Vec<ServiceSpec>,
    down: Vec<bool>,
    cordoned: Vec<bool>,
    pressure: Vec<Option<[u32; 2]>>,
    /// Whether its nodes joined, and so have numbers as servers.
    has_joined: bool,
}

pub(crate) fn any_setting() -> impl Strategy<Value = Setting> {
    (1_usize..14).prop_flat_map(|n| {
        (
            prop::collection::vec(any_facts(), n),
            prop::collection::vec(any_spec(), 1..6),
            prop::collection::vec(prop::bool::weighted(0.15), n),
            prop::collection::vec(prop::bool::weighted(0.15), n),
            prop::collection::vec(prop::option::weighted(0.3, [0_u32..110, 0_u32..110]), n),
            any::<bool>(),
        )
            .prop_map(|(facts, specs, down, cordoned, pressure, has_joined)| Setting {
                facts,
                specs,
                down,
                cordoned,
                pressure,
                has_joined,
            })
    })
}

pub(crate) fn build(setting: &Setting, order: &[usize]) -> (Cell, Signals) {
    let (mut cell, mut signals) = (cell(), Signals::default());
    for i in order {
        cell = cell.node(&format!("n{i}"), setting.facts[*i].clone());
    }
    for i in (0..order.len()).filter(|_| setting.has_joined) {
        cell = cell.enrolled(&format!("n{i}"));
    }
    for i in order {
        let name = format!("n{i}");
        if setting.down[*i] {
            cell = cell.down(&name);
        }
        if setting.cordoned[*i] {
            cell = cell.cordon(&name);
        }
        let node = plimsoll_model::testkit::node_id(&name);
        signals.set(
            &node,
            setting.pressure[*i].map(|[cpu, memory]| {
                NodePressure::new(Pressure::percent(cpu), Pressure::percent(memory))
            }),
        );
    }
    for (i, spec) in setting.specs.iter().enumerate() {
        cell = cell.deploy(&format!("d{i}"), [("s", spec.clone())]);
    }
    (cell, signals)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_search_finds_what_the_scan_finds(setting in any_setting()) {
        let order: Vec<usize> = (0..setting.facts.len()).collect();
        let (cell, signals) = build(&setting, &order);
        let policy = Policy::default();
        let mut roster = Roster::new(&cell.state, &signals, &policy);
        for (key, service) in cell.state.services() {
            let spec = service.desired().unwrap();
            let ask = PlacementRequest::new(spec, &service.row.failures, &policy, cell.now);
            let twin = PlacementRequest::new(spec, &service.row.failures, &policy, cell.now);
            let mut placer = Placer::new(&mut roster, ask, std::iter::empty());
            for index in 1..=spec.placement.mode.replicas().unwrap() {
                let id = ReplicaId::indexed(key, index);
                let expected = scan::best(&twin, placer.roster, &placer.tally, ring::hash(&id));
                let found = placer.best(&id);
                prop_assert_eq!(found, expected, "{}", id);
                let Some(choice) = found else { break };
                placer.take(choice.at, &id);
            }
            placer.close();
        }
    }

    #[test]
    fn a_plan_keeps_every_constraint_and_planning_again_changes_nothing(setting in any_setting()) {
        let order: Vec<usize> = (0..setting.facts.len()).collect();
        let (cell, _) = build(&setting, &order);
        let cell = cell.pass();
        prop_assert_eq!(decide(&cell).batch, vec![]);
    }

    #[test]
    fn equal_inputs_in_another_order_give_the_same_plan(
        (setting, order) in any_setting().prop_flat_map(|setting| {
            let order: Vec<usize> = (0..setting.facts.len()).collect();
            (Just(setting), Just(order).prop_shuffle())
        })
    ) {
        let sorted: Vec<usize> = (0..setting.facts.len()).collect();
        let plan = |order: &[usize]| {
            let (cell, signals) = build(&setting, order);
            let policy = Policy::default();
            let mut roster = Roster::new(&cell.state, &signals, &policy);
            let decision = reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now);
            (lint::plan(&cell.state, &decision.batch), decision)
        };
        let (broken, decision) = plan(&order);
        prop_assert_eq!(broken, vec![]);
        prop_assert_eq!(decision, plan(&sorted).1);
    }

    #[test]
    fn a_roster_that_follows_events_equals_one_made_anew(setting in any_setting()) {
        let policy = Policy::default();
        let signals = Signals::default();
        let mut cell = cell();
        let mut roster = Roster::new(&cell.state, &signals, &policy);
        let order: Vec<usize> = (0..setting.facts.len()).collect();
        let (built, _) = build(&setting, &order);
        // The same cell, built up again one change at a time.
        for (seq, (id, node)) in built.state.nodes().iter().enumerate() {
            let change = plimsoll_model::Change::PutNode { node: id.clone(), facts: node.facts.clone() };
            let events = cell.change(plimsoll_model::Writer::Operator, change);
            roster.follow(&cell.state, &signals, &policy, &events);
            if seq % 3 == 0 {
                let status = plimsoll_model::NodeStatus::Down;
                let change = plimsoll_model::Change::SetStatus { node: id.clone(), status };
                let events = cell.change(plimsoll_model::Writer::Liveness, change);
                roster.follow(&cell.state, &signals, &policy, &events);
            }
        }
        for (i, spec) in setting.specs.iter().enumerate() {
            cell = cell.deploy(&format!("d{i}"), [("s", spec.clone())]);
            let decision = reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now);
            let events = cell.apply(plimsoll_model::Writer::Scheduler, decision.batch).unwrap();
            roster.follow(&cell.state, &signals, &policy, &events);
            let anew = Roster::new(&cell.state, &signals, &policy);
            prop_assert_eq!(format!("{:?}", roster), format!("{:?}", anew));
        }
    }
}

#[test]
fn a_replica_starts_to_look_at_the_same_place_in_every_release() {
    let key: ServiceKey = "shop/web".parse().unwrap();
    let hashes = [1, 2, 3].map(|index| ring::hash(&ReplicaId::indexed(&key, index)));
    assert_eq!(
        hashes,
        [2_679_198_900_739_477_107, 11_261_492_101_026_120_894, 4_307_255_818_883_621_378]
    );
}
