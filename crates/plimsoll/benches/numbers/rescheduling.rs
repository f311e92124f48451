//! A full pass of the rescheduler over a large cell, which a leader spreads over twenty cycles: with nothing to do, with nodes
//! that joined and are worth filling, and with nodes that look so and are not, so that all that a cycle may compare is compared.

use std::hint::black_box;

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::rebalance::Rebalancer;
use plimsoll_kernel::reschedule::{CycleSummary, RescheduleLimits, look};
use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::testkit::{Cell, cpus, node_id};
use plimsoll_model::{Bytes, Change, Guarded, MilliCpus, Millis, NodeFacts, Resources, Writer};

use super::{Table, sample, settled, unplaced};

const RUNS: usize = 7;

/// Whether a pass came to what it should.
type Expected = fn(&CycleSummary) -> bool;

pub(super) fn rescheduling(table: &mut Table) {
    let cell = settled(unplaced(10_000, 1_000, 100)).later(Millis::minutes(20));
    let tiny = Resources { cpu: MilliCpus(150), memory: Bytes(1 << 30), ..Resources::NONE };
    let cases: [(&str, Cell, Expected); 3] = [
        ("nothing to do", cell.clone(), |it| it.offers == 0 && it.compared == 0),
        ("500 nodes joined", joined(cell.clone(), &cpus(16)), |it| it.offers == 64),
        ("500 nodes joined that are too small", joined(cell, &NodeFacts::new(tiny)), |it| {
            it.offers == 0 && it.compared == 16_000
        }),
    ];
    for (what, cell, is_expected) in cases {
        let reschedule = RescheduleLimits {
            replicas_per_cycle: usize::MAX,
            comparisons_per_cycle: usize::MAX,
            ..RescheduleLimits::default()
        };
        let policy = Policy { reschedule, ..Policy::default() };
        let roster = Roster::new(&cell.state, &Signals::default(), &policy);
        let measured = Rebalancer::default();
        let times = sample(RUNS, || {
            let (offers, summary) =
                look(&cell.state, &roster, &policy, &measured, |_| false, cell.now);
            black_box(offers);
            assert!(is_expected(&summary), "{what}: {summary:?}");
        });
        let size = "10k nodes, 100k replicas";
        table.time(&format!("a full pass of the rescheduler, {size}, {what}"), "≤ 1 s", &times);
    }
}

/// Nodes that joined ten minutes ago, long after everything was placed.
fn joined(mut cell: Cell, facts: &NodeFacts) -> Cell {
    let nodes = (0..500).map(|nth| {
        let facts = facts.clone().zone(["a", "b", "c"][nth % 3]);
        Change::PutNode { node: node_id(&format!("new{nth:03}")), facts }.free()
    });
    let nodes: Vec<Guarded> = nodes.collect();
    cell.apply(Writer::Operator, nodes).expect("nodes can join");
    cell.later(Millis::minutes(10))
}
