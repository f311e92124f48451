//! What a cycle writes into the log: the move and its numbers, or why there is none. One entry, and none of a calm cycle.

use plimsoll_model::rebalance::{self as told, Skipped, Times};
use plimsoll_model::{Change, Deed, Guarded, Happening, Timestamp};

use super::{Limits, Outcome, Relief};

impl Outcome {
    pub fn batch(self, limits: &Limits) -> Vec<Guarded> {
        let record = |deed: Deed| Change::Record { deed }.free();
        match self {
            Self::Calm => Vec::new(),
            Self::Moved(relief) => {
                let told = relief.told(limits);
                vec![relief.change, record(Deed::Relieve(Box::new(told)))]
            }
            Self::Skipped { .. } => self
                .skipped(limits)
                .map(|skipped| record(Deed::Skip(skipped)))
                .into_iter()
                .collect(),
        }
    }

    /// What the audit will say of it.
    pub fn happening(&self, limits: &Limits, at: Timestamp) -> Option<Happening> {
        match self {
            Self::Calm => None,
            Self::Moved(relief) => {
                Some(Happening::RebalanceMoved { relief: Box::new(relief.told(limits)) })
            }
            Self::Skipped { .. } => {
                let (skipped, times) = (self.skipped(limits)?, Times { count: 1, last_at: at });
                Some(Happening::RebalanceSkipped { skipped, times })
            }
        }
    }

    fn skipped(&self, limits: &Limits) -> Option<Box<Skipped>> {
        let Self::Skipped { src, dominant, pressure, why, nearest } = self else { return None };
        let nearest = nearest.as_ref().map(|nearest| nearest.told(limits));
        let (src, dominant, pressure, why) = (src.clone(), *dominant, *pressure, *why);
        Some(Box::new(Skipped { src, dominant, pressure, why, nearest }))
    }
}

impl Relief {
    /// Its numbers, as the audit tells them.
    fn told(&self, limits: &Limits) -> told::Relief {
        told::Relief {
            replica: self.replica.clone(),
            src: self.src.clone(),
            dst: self.dst.clone(),
            dominant: self.dominant,
            relief: self.relief,
            score: self.score,
            move_cost: limits.move_cost,
            src_before: self.src_before,
            src_after: self.src_after,
            dst_before: self.dst_before,
            dst_after: self.dst_after,
        }
    }
}
