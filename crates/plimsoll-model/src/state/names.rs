//! Telling apart what people would read alike. `a-b-c-1` can be replica 1 of `a`/`b-c` or of `a-b`/`c`, or the
//! global replica of `a`/`b` on a node `c-1`. At most one of them may exist.

use std::collections::BTreeMap;

use crate::ids::{DeploymentName, NodeId, ReplicaId, ServiceKey, ServiceName, Slot};

/// Every replica id that prints as this text.
pub(super) fn readings(text: &str) -> impl Iterator<Item = ReplicaId> + '_ {
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    let pairs: Vec<(usize, usize)> = dashes
        .iter()
        .enumerate()
        .flat_map(|(n, first)| dashes[n + 1..].iter().map(|second| (*first, *second)))
        .collect();
    pairs.into_iter().flat_map(|(first, second)| {
        let deployment = DeploymentName::new(&text[..first]).ok();
        let service = ServiceName::new(&text[first + 1..second]).ok();
        let key = deployment.zip(service).map(|(d, s)| ServiceKey::new(d, s));
        let tail = &text[second + 1..];
        // `007` prints as itself only where it is a node's name.
        let index = tail.parse::<u32>().ok().filter(|index| index.to_string() == tail);
        let slots = [index.map(Slot::Index), NodeId::new(tail).ok().map(Slot::Node)];
        slots.into_iter().flatten().filter_map(move |slot| Some(ReplicaId::new(key.clone()?, slot)))
    })
}

/// What the replica ids of each service start with: `shop-web-`, and how many services share it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Prefixes(BTreeMap<String, u32>);

impl Prefixes {
    pub(crate) fn add(&mut self, key: &ServiceKey) {
        *self.0.entry(prefix(key)).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, key: &ServiceKey) {
        let prefix = prefix(key);
        if let Some(count) = self.0.get_mut(&prefix) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&prefix);
            }
        }
    }

    /// Whether some other id could print alike: only where one prefix begins another, or a node's name is a number.
    pub(super) fn may_clash(&self, id: &ReplicaId) -> bool {
        let own = prefix(&id.service);
        let numeric = |node: &NodeId| node.as_str().bytes().all(|b| b.is_ascii_digit());
        let is_shared = self.0.get(&own).is_some_and(|services| *services > 1);
        if is_shared || matches!(&id.slot, Slot::Node(node) if numeric(node)) {
            return true;
        }
        let mut shorter = own[..own.len() - 1].match_indices('-').map(|(at, _)| &own[..=at]);
        let mut longer = self.0.range(own.clone()..).map(|(other, _)| other);
        shorter.any(|other| self.0.contains_key(other))
            || longer.find(|other| **other != own).is_some_and(|other| other.starts_with(&own))
    }
}

fn prefix(key: &ServiceKey) -> String {
    format!("{}-{}-", key.deployment, key.service)
}
