//! The numbers of the rescheduler, each with its reason. Cooldowns are the rebalancer's own: both share one ledger.

use plimsoll_model::{Millis, Node, Timestamp};

use crate::place::rank::MOST_BESIDE_EVENNESS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RescheduleLimits {
    /// A node must beat the current one by more than this. All of headroom and preferences together is no more, so by
    /// default only evenness over zones and nodes is worth a move, and no noise of measurements ever is.
    pub threshold: u16,
    /// How many replicas one cycle looks at: a cell of 100,000 is gone through in ten minutes.
    pub replicas_per_cycle: usize,
    /// How many of them it compares with every node: what a quick look cannot rule out.
    pub comparisons_per_cycle: usize,
    /// How long a node must be open before it is sent anything. Each loss of late doubles it.
    pub trust: Millis,
    /// More losses than this do not count.
    pub most_doublings: u32,
    /// How long a loss of a node counts, and a failure of a service on it.
    pub loss_memory: Millis,
    /// A node is sent this part of its fair share at a time, one replica at least, and then rests.
    pub parts_per_share: u32,
    /// One move at once for so many nodes, one at least, whatever the cause of what else is moving.
    pub nodes_per_move: usize,
    /// At most so many at once in a cell of any size.
    pub most_moves: usize,
}

impl RescheduleLimits {
    /// The same with every span of time divided.
    #[must_use]
    pub fn hurried(self, haste: u32) -> Self {
        let in_haste = |span: Millis| Millis(span.0 / u64::from(haste.max(1)));
        Self { trust: in_haste(self.trust), loss_memory: in_haste(self.loss_memory), ..self }
    }

    /// How often the node was lost of late.
    pub(super) fn losses(&self, node: &Node, now: Timestamp) -> u32 {
        let recent = node.lost_at.iter().filter(|at| now.since(**at) < self.loss_memory).count();
        u32::try_from(recent).unwrap_or(u32::MAX)
    }

    /// How much longer the node must be open before it is sent anything.
    pub(crate) fn distrust(&self, node: &Node, now: Timestamp) -> Millis {
        let doublings = self.losses(node, now).min(self.most_doublings);
        let needed = self.trust.0.saturating_mul(1 << doublings.min(32));
        Millis(needed.saturating_sub(now.since(node.open_since).0))
    }

    /// How many replicas may move at once in a cell with so many nodes to move to.
    pub fn moves_at_once(&self, open: usize) -> usize {
        (open / self.nodes_per_move.max(1)).clamp(1, self.most_moves)
    }

    /// How many replicas a node is sent at a time.
    pub(super) fn at_a_time(&self, fair_share: u32) -> u32 {
        fair_share.div_ceil(self.parts_per_share.max(1)).max(1)
    }
}

impl Default for RescheduleLimits {
    fn default() -> Self {
        Self {
            threshold: MOST_BESIDE_EVENNESS,
            replicas_per_cycle: 5_000,
            comparisons_per_cycle: 2_000,
            trust: Millis::minutes(1),
            most_doublings: 6,
            loss_memory: Millis::minutes(60),
            parts_per_share: 10,
            nodes_per_move: 8,
            most_moves: 64,
        }
    }
}
