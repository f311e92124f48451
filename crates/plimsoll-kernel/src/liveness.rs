//! Which nodes are down and which are back, from when the leader last heard of each.

use std::collections::BTreeMap;

use plimsoll_model::{Change, Guarded, NodeId, NodeStatus, State, Timestamp};

use crate::policy::Policy;

/// When each node was last heard of. Soft: a new leader begins with an empty one.
#[derive(Debug, Clone)]
pub struct Heartbeats {
    /// When this leader began to listen: every node gets one TTL from here.
    since: Timestamp,
    last: BTreeMap<NodeId, Timestamp>,
}

impl Heartbeats {
    pub fn from(since: Timestamp) -> Self {
        Self { since, last: BTreeMap::new() }
    }

    pub fn note(&mut self, node: &NodeId, at: Timestamp) {
        let last = self.last.entry(node.clone()).or_insert(at);
        *last = at.max(*last);
    }
}

/// The changes of status that the silence and the words of nodes call for.
pub fn judge(state: &State, heard: &Heartbeats, policy: &Policy, now: Timestamp) -> Vec<Guarded> {
    let mut batch = Vec::new();
    for (id, node) in state.nodes() {
        let last = heard.last.get(id).copied();
        // A node that joined a moment ago may not have spoken to this leader yet.
        let silent_since = last.unwrap_or(heard.since).max(node.joined_at).max(heard.since);
        let is_silent = now.since(silent_since) >= policy.node_ttl();
        let status = match node.status {
            NodeStatus::Ready if is_silent => NodeStatus::Down,
            // Silence brought it down, so only its own word brings it back.
            NodeStatus::Down if last.is_some() && !is_silent => NodeStatus::Ready,
            NodeStatus::Ready | NodeStatus::Down => continue,
        };
        batch.push(Change::SetStatus { node: id.clone(), status }.free());
    }
    batch
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cell, cpus, node_id};
    use plimsoll_model::{Millis, Writer};

    use super::*;

    #[test]
    fn a_node_is_down_after_one_ttl_of_silence() {
        let policy = Policy::default();
        let cell = cell().node("ash", cpus(4));
        let heard = Heartbeats::from(cell.now);
        for (case, after, changes) in [
            ("a moment before", Millis(policy.node_ttl().0 - 1), 0),
            ("at the ttl", policy.node_ttl(), 1),
        ] {
            let batch = judge(&cell.state, &heard, &policy, cell.now.plus(after));
            assert_eq!(batch.len(), changes, "{case}");
        }
    }

    #[test]
    fn a_new_leader_gives_every_node_one_ttl_and_brings_none_back_unheard() {
        let policy = Policy::default();
        let cell = cell()
            .node("ash", cpus(4))
            .node("birch", cpus(4))
            .down("birch")
            .later(Millis::minutes(9));
        let mut heard = Heartbeats::from(cell.now);
        assert_eq!(judge(&cell.state, &heard, &policy, cell.now), vec![]);
        heard.note(&node_id("birch"), cell.now);
        let mut back = cell.clone();
        back.apply(Writer::Liveness, judge(&cell.state, &heard, &policy, cell.now)).unwrap();
        assert!(back.state.nodes().values().all(|node| node.status == NodeStatus::Ready));
    }
}
