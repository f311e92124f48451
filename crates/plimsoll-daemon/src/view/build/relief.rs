//! The numbers of the rebalancer, as people and programs read them.

use plimsoll_kernel::rebalance::{self, Weighing};
use plimsoll_model::audit::Happening;
use plimsoll_model::rebalance::{Dimension, Relief, Skipped, Times};
use plimsoll_model::{NodeId, Pressure};

use crate::view::{self, Gate, NodeAccount, Time, WeighedMove};

/// What the audit has of it beyond the sentence.
pub fn relief(what: &Happening) -> Option<view::Relief> {
    match what {
        Happening::RebalanceMoved { relief } => Some(weighed(relief)),
        Happening::RebalanceSkipped { skipped, times } => Some(skip(skipped, *times)),
        _ => None,
    }
}

fn weighed(relief: &Relief) -> view::Relief {
    let Relief { replica, src, dst, dominant, .. } = relief;
    view::Relief {
        replica_id: Some(replica.to_string()),
        deployment: Some(replica.service.deployment.to_string()),
        service: Some(replica.service.service.to_string()),
        src: src.to_string(),
        dst: Some(dst.to_string()),
        dominant: dominant.word().to_owned(),
        relief: Some(relief.relief.millionths()),
        score: Some(relief.score),
        move_cost: Some(relief.move_cost.millionths()),
        src_before: relief.src_before.millionths(),
        src_after: Some(relief.src_after.millionths()),
        dst_before: Some(relief.dst_before.millionths()),
        dst_after: Some(relief.dst_after.millionths()),
        reason: None,
        count: None,
        last_at: None,
    }
}

fn unweighed(src: &NodeId, dominant: Dimension, pressure: Pressure) -> view::Relief {
    view::Relief {
        replica_id: None,
        deployment: None,
        service: None,
        src: src.to_string(),
        dst: None,
        dominant: dominant.word().to_owned(),
        relief: None,
        score: None,
        move_cost: None,
        src_before: pressure.millionths(),
        src_after: None,
        dst_before: None,
        dst_after: None,
        reason: None,
        count: None,
        last_at: None,
    }
}

fn skip(skipped: &Skipped, times: Times) -> view::Relief {
    let Skipped { src, dominant, pressure, why, nearest } = skipped;
    let numbers = nearest.as_ref().map_or_else(|| unweighed(src, *dominant, *pressure), weighed);
    view::Relief {
        reason: Some(why.word().to_owned()),
        count: Some(times.count),
        last_at: Some(Time(times.last_at)),
        ..numbers
    }
}

/// Why nothing moves off the node, or what is about to.
pub fn account(node: &NodeId, weighing: Option<&Weighing>) -> NodeAccount {
    let Some(weighing) = weighing else {
        let why =
            format!("nothing was measured of {node} of late, and what is unknown is left alone");
        return NodeAccount { node: node.to_string(), why, gates: Vec::new(), moves: Vec::new() };
    };
    let weighed = weighing.candidates.iter().map(|it| WeighedMove {
        replica: it.replica.to_string(),
        dst: it.dst.to_string(),
        relief: it.relief.millionths(),
        gates: it.gates.iter().map(gate).collect(),
    });
    let gates = weighing.gates.iter().map(gate).collect();
    NodeAccount { node: node.to_string(), why: why(weighing), gates, moves: weighed.collect() }
}

fn why(weighing: &Weighing) -> String {
    let Weighing { node, gates, candidates, .. } = weighing;
    let blocking = |gates: &[rebalance::Gate]| gates.iter().find(|gate| !gate.passes).copied();
    if let Some(gate) = blocking(gates) {
        return format!("nothing moves off {node}: {}", failing(&gate));
    }
    let Some(first) = candidates.first() else {
        return format!("nothing on {node} may be moved, or nobody else can take it");
    };
    if let Some(it) = candidates.iter().find(|it| blocking(&it.gates).is_none()) {
        return format!("{} moves to {} when its turn comes", it.replica, it.dst);
    }
    let gate = blocking(&first.gates).map(|gate| failing(&gate)).unwrap_or_default();
    format!("nothing moves off {node}: for {}, {gate}", first.replica)
}

fn failing(gate: &rebalance::Gate) -> String {
    let rebalance::Gate { gate, found, limit, .. } = gate;
    format!("{gate} is {found}, its limit {limit}")
}

fn gate(gate: &rebalance::Gate) -> Gate {
    let rebalance::Gate { gate, found, limit, passes } = *gate;
    Gate { gate: gate.to_owned(), found: found.to_string(), limit: limit.to_string(), passes }
}
