//! The numbers of the rebalancer, as people and programs read them.

use plimsoll_kernel::rebalance::{self, Account};
use plimsoll_model::NodeId;
use plimsoll_model::audit::Happening;
use plimsoll_model::rebalance::{Relief, Skipped, Times};

use crate::view::{self, Gate, NodeAccount, Time, WeighedMove};

/// What the audit has of it beyond the sentence.
pub(super) fn of(what: &Happening) -> Option<view::Relief> {
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

fn skip(skipped: &Skipped, times: Times) -> view::Relief {
    let Skipped { src, dominant, pressure, why, nearest } = skipped;
    let numbers = nearest.as_ref().map(weighed).unwrap_or_else(|| view::Relief {
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
    });
    view::Relief {
        reason: Some(why.word().to_owned()),
        count: Some(times.count),
        last_at: Some(Time(times.last_at)),
        ..numbers
    }
}

/// Why nothing moves off the node, or what is about to.
pub fn account(node: &NodeId, account: Option<&Account>) -> NodeAccount {
    let Some(account) = account else {
        let why =
            format!("nothing was measured of {node} of late, and what is unknown is left alone");
        let (node, gates) = (node.to_string(), Vec::new());
        return NodeAccount { node, why, cpu: None, memory: None, gates, nearest: None };
    };
    let [cpu, memory] = account.pressure.map(|it| Some(it.millionths()));
    let nearest = account.nearest.as_ref().map(|nearest| WeighedMove {
        replica: nearest.replica.to_string(),
        dst: nearest.dst.to_string(),
        gates: nearest.gates.iter().map(gate).collect(),
    });
    let gates = account.gates.iter().map(gate).collect();
    NodeAccount { node: node.to_string(), why: why(node, account), cpu, memory, gates, nearest }
}

fn why(node: &NodeId, account: &Account) -> String {
    match (account.blocked(), &account.nearest) {
        (Some(gate), _) => {
            let rebalance::Gate { name, found, limit, .. } = gate;
            format!("nothing moves off {node}: {name} is {found}, and must be {limit}")
        }
        (None, None) => format!("nothing on {node} may be moved, or nobody else can take it"),
        (None, Some(nearest)) => {
            format!("{} moves to {} with the next cycle", nearest.replica, nearest.dst)
        }
    }
}

fn gate(gate: &rebalance::Gate) -> Gate {
    let rebalance::Gate { name, found, limit, passes } = gate.clone();
    Gate { gate: name.to_owned(), found, limit, passes }
}
