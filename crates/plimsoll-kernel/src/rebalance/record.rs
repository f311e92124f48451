//! What a cycle writes into the log: the move and its numbers, or why there is none. One entry, and none of a calm cycle.

use plimsoll_model::rebalance::Times;
use plimsoll_model::{Change, Deed, Guarded, Happening, Timestamp};

use super::Outcome;

impl Outcome {
    pub fn batch(self) -> Vec<Guarded> {
        let record = |deed: Deed| Change::Record { deed }.free();
        match self {
            Self::Calm => Vec::new(),
            Self::Moved { change, relief } => vec![*change, record(Deed::Relieve(relief))],
            Self::Skipped(skipped) => vec![record(Deed::Skip(skipped))],
        }
    }

    /// What the audit will say of it.
    pub fn happening(&self, at: Timestamp) -> Option<Happening> {
        match self {
            Self::Calm => None,
            Self::Moved { relief, .. } => {
                Some(Happening::RebalanceMoved { relief: relief.clone() })
            }
            Self::Skipped(skipped) => {
                let (skipped, times) = (skipped.clone(), Times { count: 1, last_at: at });
                Some(Happening::RebalanceSkipped { skipped, times })
            }
        }
    }
}
