//! Which formats the nodes that have a link to this one can read, and who is too old for the cell.

use std::collections::BTreeMap;

use plimsoll_api::view::Problem;
use plimsoll_model::{Level, NodeId};

#[derive(Debug, Default)]
pub struct PeerLevels {
    /// What each linked node can read, with the number of its announcement.
    announced: BTreeMap<NodeId, (u64, Level)>,
    /// How many announcements there were.
    count: u64,
    /// Nodes of the cell that were turned away here as too old, and what they were told.
    turned_away: BTreeMap<NodeId, Problem>,
    /// Why the leader turns this node away: it is too old, or the authority of its certificate is not the cell's any more.
    pub outdated: Option<Problem>,
}

impl PeerLevels {
    /// A node announces what it can read. The number is for [taking it back](Self::withdraw).
    pub fn announce(&mut self, node: &NodeId, level: Level) -> u64 {
        self.count += 1;
        self.announced.insert(node.clone(), (self.count, level));
        self.turned_away.remove(node);
        self.count
    }

    /// The link of that announcement has ended. A later link of the same node has one of its own.
    pub fn withdraw(&mut self, node: &NodeId, number: u64) {
        if self.announced.get(node).is_some_and(|(known, _)| *known == number) {
            self.announced.remove(node);
        }
    }

    pub fn announced(&self) -> BTreeMap<NodeId, Level> {
        self.announced.iter().map(|(node, (_, level))| (node.clone(), *level)).collect()
    }

    /// A node is told that it is too old. Whether it was told something else before, or nothing.
    pub fn turn_away(&mut self, node: &NodeId, problem: Problem) -> bool {
        let message = problem.message.clone();
        let before = self.turned_away.insert(node.clone(), problem);
        before.is_none_or(|before| before.message != message)
    }
}
