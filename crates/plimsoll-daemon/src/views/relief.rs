//! The numbers of the rebalancer, as people and programs read them.

use plimsoll_kernel::rebalance::{self, NodeEvaluation};
use plimsoll_kernel::reschedule::fill_plan;
use plimsoll_model::NodeId;

use super::Source;
use super::reschedule::fill_status;
use plimsoll_api::view::{Gate, NodeAccount, WeighedMove};

/// Why nothing moves off the node, or what is about to.
pub fn account(
    source: &Source<'_>,
    node: &NodeId,
    weighing: Option<&NodeEvaluation>,
) -> NodeAccount {
    let state = source.state;
    let plan = fill_plan(state, source.policy, node, source.here.now);
    let fill = plan.map(|plan| fill_status(&plan, source.here.now));
    let told = |why, gates, moves| NodeAccount { node: node.to_string(), why, fill, gates, moves };
    if let Some(outage) = state.node(node).and_then(|node| node.outage.as_ref()) {
        let why = format!(
            "the container runtime of {node} does not answer: {}; nothing is placed there, what runs on stays, and what \
             does not run is replaced elsewhere",
            outage.why
        );
        return told(why, Vec::new(), Vec::new());
    }
    let Some(weighing) = weighing else {
        let why = format!("no recent measurements of {node}; it is left alone");
        return told(why, Vec::new(), Vec::new());
    };
    let weighed = weighing.candidates.iter().map(|it| WeighedMove {
        replica: it.replica.to_string(),
        dst: it.dst.to_string(),
        relief: it.relief.millionths(),
        gates: it.gates.iter().map(gate).collect(),
    });
    let gates = weighing.gates.iter().map(gate).collect();
    told(why(weighing), gates, weighed.collect())
}

fn why(weighing: &NodeEvaluation) -> String {
    let NodeEvaluation { node, gates, candidates, .. } = weighing;
    let blocking =
        |gates: &[rebalance::GateResult]| gates.iter().find(|gate| !gate.passes).copied();
    if let Some(gate) = blocking(gates) {
        return format!("nothing moves off {node}: {}", failing(&gate));
    }
    let Some(first) = candidates.first() else {
        return format!("no replica on {node} can be moved, or no other node can take it");
    };
    if let Some(it) = candidates.iter().find(|it| blocking(&it.gates).is_none()) {
        return format!("{} moves to {} when its turn comes", it.replica, it.dst);
    }
    let gate = blocking(&first.gates).map(|gate| failing(&gate)).unwrap_or_default();
    format!("nothing moves off {node}: for {}, {gate}", first.replica)
}

fn failing(gate: &rebalance::GateResult) -> String {
    let rebalance::GateResult { gate, found, limit, .. } = gate;
    format!("{gate} is {found}, its limit {limit}")
}

fn gate(gate: &rebalance::GateResult) -> Gate {
    let rebalance::GateResult { gate, found, limit, passes } = *gate;
    Gate { gate: gate.to_owned(), found: found.to_string(), limit: limit.to_string(), passes }
}
