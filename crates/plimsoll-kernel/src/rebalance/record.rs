//! What a cycle writes into the log: the move and its numbers, or why there is none. One entry, and none of a calm cycle.

use plimsoll_model::rebalance::{self as told, Skipped};
use plimsoll_model::{Change, Deed, Guarded};

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
            Self::Skipped { src, dominant, pressure, why, nearest } => {
                let nearest = nearest.map(|nearest| nearest.told(limits));
                let skipped = Skipped { src, dominant, pressure, why, nearest };
                vec![record(Deed::Skip(Box::new(skipped)))]
            }
        }
    }
}

impl Relief {
    /// Its numbers, as the audit tells them.
    pub fn told(&self, limits: &Limits) -> told::Relief {
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
