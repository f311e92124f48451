//! How busy nodes are, as the leader takes it into its decisions: what explains a decision must see what decided it.

use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::{Pressure, Timestamp};

use crate::soft::{Facts, NodeFact};

pub fn signals(facts: &Facts, policy: &Policy, now: Timestamp) -> Signals {
    let mut signals = Signals::default();
    for (node, fact) in &facts.nodes {
        signals.set(node, pressure(fact, policy, now));
    }
    signals
}

/// How busy the node is, as far as it has said so of late.
pub fn pressure(fact: &NodeFact, policy: &Policy, now: Timestamp) -> Option<[Pressure; 2]> {
    fact.reading.as_ref().filter(|_| is_fresh(fact, policy, now))?.pressure()
}

/// What a node said before it fell silent is no measurement any more.
pub(super) fn is_fresh(fact: &NodeFact, policy: &Policy, now: Timestamp) -> bool {
    fact.heard_at.is_some_and(|heard_at| now.since(heard_at) < policy.node_ttl)
}
