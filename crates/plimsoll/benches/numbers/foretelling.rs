//! What would come of something in a large cell, with every node and replica measured: to the end, with both loops.

use std::hint::black_box;

use plimsoll_kernel::rebalance::{PressureSample, Rebalancer, ReplicaUsage};
use plimsoll_kernel::what_if::{KnownCell, Supposition, forecast};
use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::testkit::{Cell, cpus, node_id, service_key};
use plimsoll_model::{Bytes, Generation, MilliCpus, Millis, NodePressure, Pressure, ReplicaId};

use super::{Table, sample, settled, unplaced};

pub(super) fn foretelling(table: &mut Table) {
    let cell = settled(unplaced(10_000, 1_000, 100)).later(Millis::minutes(20));
    let policy = Policy::default();
    let (rebalancer, signals) = measured(&cell, &policy);
    let lost = (0..10).map(|nth| node_id(&format!("n{:06}", nth * 7))).collect();
    for (what, supposed) in [
        ("drain one node", Supposition::Drain([node_id("n000007")].into())),
        ("lose ten nodes", Supposition::Lose(lost)),
        ("scale 100 to 1 000", Supposition::Scale([(service_key("d0/s"), 1_000)].into())),
        ("add one node", Supposition::Add { count: 1, facts: Box::new(cpus(16).zone("a")) }),
        ("rebalance", Supposition::Rebalance),
    ] {
        let times = sample(3, || {
            let known = KnownCell {
                state: &cell.state,
                signals: &signals,
                policy: &policy,
                rebalancer: rebalancer.clone(),
                now: cell.now,
            };
            let forecast = forecast(known, &supposed, &mut || false).expect("it can be supposed");
            assert!(forecast.is_whole && forecast.plan.unplaced.is_empty());
            black_box(forecast);
        });
        let what = format!("what-if, 10k nodes, 100k replicas: {what}");
        table.time(&what, "≤ 2 s", &times);
    }
}

/// Every node is half busy, and every replica uses what it reserves.
fn measured(cell: &Cell, policy: &Policy) -> (Rebalancer, Signals) {
    let (mut rebalancer, mut signals) = (Rebalancer::default(), Signals::default());
    let pressure = NodePressure::new(Pressure::percent(50), Pressure::percent(40));
    for node in cell.state.nodes().keys() {
        rebalancer.sample(node, Some(PressureSample { at: cell.now, pressure }));
        signals.set(node, Some(pressure));
    }
    let usage = ReplicaUsage { cpu: MilliCpus(100), memory: Bytes(128 << 20) };
    let replicas: Vec<(ReplicaId, Generation)> = (cell.state.replicas())
        .filter_map(|(id, row)| Some((id, row.assignment.as_ref()?.generation)))
        .collect();
    let usages = replicas.iter().map(|(id, generation)| (id, *generation, usage));
    rebalancer.usage(&cell.state, policy, usages);
    (rebalancer, signals)
}
