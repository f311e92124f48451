//! Which nodes are down and which are back, from when the leader last heard of each; and whose container runtime is, from
//! what they said of it.

use std::collections::BTreeMap;

use plimsoll_model::node::MAX_OUTAGE_TEXT;
use plimsoll_model::{Change, Guarded, Node, NodeId, NodeStatus, State, Timestamp};

use crate::policy::Policy;

/// When each node was last heard of. Soft: a new leader begins with an empty one.
#[derive(Debug, Clone)]
pub struct Heartbeats {
    /// When this leader began to listen: every node gets one TTL from here.
    since: Timestamp,
    last: BTreeMap<NodeId, Timestamp>,
    /// What each node last said of its container runtime: why it does not answer, or that it does.
    runtimes: BTreeMap<NodeId, Option<String>>,
}

impl Heartbeats {
    pub fn from(since: Timestamp) -> Self {
        Self { since, last: BTreeMap::new(), runtimes: BTreeMap::new() }
    }

    /// A node says why its container runtime does not answer, or that it answers.
    pub fn note_runtime(&mut self, node: &NodeId, trouble: Option<&str>) {
        let known = self.runtimes.get(node);
        if known.is_none_or(|known| known.as_deref() != trouble) {
            self.runtimes.insert(node.clone(), trouble.map(str::to_owned));
        }
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
            NodeStatus::Ready | NodeStatus::Down => {
                batch.extend(runtime(id, node, heard));
                continue;
            }
        };
        batch.push(Change::SetStatus { node: id.clone(), status }.free());
    }
    batch
}

/// What the node's word on its runtime changes. While nobody hears it, its last word stands.
fn runtime(id: &NodeId, node: &Node, heard: &Heartbeats) -> Option<Guarded> {
    let trouble = heard.runtimes.get(id).filter(|_| node.status == NodeStatus::Ready)?;
    if trouble.is_some() == node.outage.is_some() {
        return None;
    }
    let outage = trouble.clone().map(|mut why| {
        why.truncate(why.floor_char_boundary(MAX_OUTAGE_TEXT));
        why
    });
    Some(Change::SetRuntime { node: id.clone(), outage }.free())
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

    #[test]
    fn the_word_of_a_node_on_its_runtime_is_written_down_once() {
        let policy = Policy::default();
        let mut cell = cell().node("ash", cpus(4));
        let ash = node_id("ash");
        let mut heard = Heartbeats::from(cell.now);
        for (case, word, changes) in [
            ("it has not said", None, 0),
            ("it answers, as was known", Some(None), 0),
            ("it does not answer", Some(Some("no socket")), 1),
            ("for another reason", Some(Some("refused")), 0),
            ("it answers again", Some(None), 1),
        ] {
            if let Some(word) = word {
                heard.note_runtime(&ash, word);
            }
            let batch = judge(&cell.state, &heard, &policy, cell.now);
            assert_eq!(batch.len(), changes, "{case}");
            cell.apply(Writer::Liveness, batch).unwrap();
        }
        heard.note_runtime(&ash, Some(&"é".repeat(4_000)));
        let batch = judge(&cell.state, &heard, &policy, cell.now);
        cell.apply(Writer::Liveness, batch).expect("a long reason is cut");
        assert!(cell.state.node(&ash).unwrap().outage.is_some());
    }
}
