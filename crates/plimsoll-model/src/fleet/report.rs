//! What a shard says of itself every cycle: what it has by type and zone, what it lacks, and what could be taken from it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Resources;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fleet::ids::{MachineType, Pool, Profile, ShardId, Zone};

/// The most shortfalls that one report says: the most important ones, of a shard that has more.
pub const MAX_SHORTFALLS: usize = 100;

/// The most types and zones of one shard, and of what one shortfall accepts.
pub const MAX_POOLS: usize = 4_096;

/// What a shard is, said once and again whenever it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Registration {
    /// What a machine of each type has.
    pub types: BTreeMap<MachineType, Resources>,
}

/// Which of a shard's reports is newer. The epoch grows with each new leader of the cell, the cycle with each report of one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ReportOrder {
    pub epoch: u64,
    pub cycle: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub shard: ShardId,
    pub order: ReportOrder,
    /// Its operator has paused it: it computes, reports, and carries nothing out.
    pub is_paused: bool,
    pub supply: BTreeMap<Pool, Supply>,
    /// Everything it lacks. One that is not listed is met.
    pub shortfalls: Vec<Shortfall>,
    /// What could be drained, and how much it matters.
    pub preemptible: Vec<Preemptible>,
}

/// Machines of one type in one zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Supply {
    /// They exist, and nobody needs them.
    pub idle: u32,
    /// They are nodes of the cell.
    pub configured: u32,
    /// Of its quota for machines that may be made, how many are made or being made. What is left of the quota is no machine.
    pub quota_used: u32,
}

/// Replicas that found no room, alike in what they ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    pub profile: Profile,
    /// What is missing in sum, less what is on its way.
    pub deficit: Resources,
    /// The least that is of any use: what one replica asks for.
    pub min_unit: Resources,
    pub accepts: Accepts,
    pub priority: i32,
    /// What an interruption of it would cost, if that was said.
    pub bucket: Option<Bucket>,
    /// For how many cycles it is missing.
    pub age: u64,
    /// It needs machines that no other shard's could stand for, such as one close to its data.
    pub is_topology_constrained: bool,
}

/// Which machines would do; an empty list means all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Accepts {
    pub types: BTreeSet<MachineType>,
    pub zones: BTreeSet<Zone>,
}

impl Accepts {
    pub fn pool(&self, pool: &Pool) -> bool {
        (self.types.is_empty() || self.types.contains(&pool.machine_type))
            && (self.zones.is_empty() || self.zones.contains(&pool.zone))
    }
}

/// A size of interruption penalty: powers of two in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bucket(pub u8);

impl Bucket {
    /// How many there are. What costs more than the last holds is in the last.
    pub const COUNT: u8 = 27;

    /// The last one: what is in it is not interrupted at any price.
    pub const PINNED: Self = Self(Self::COUNT - 1);

    /// The bucket of a service that says what a stop of it costs. The scale of 1 to 99 is spread evenly over the buckets of one
    /// dollar to 2^25, since people know which of two stops is worse and not by how much; 100 is pinned. Nothing said is no bucket.
    pub fn of_penalty(penalty: u8) -> Option<Self> {
        match penalty {
            0 => None,
            1..100 => {
                let nth = u16::from(penalty - 1) * u16::from(Self::PINNED.0) / 99;
                Some(Self(u8::try_from(nth).unwrap_or(Self::PINNED.0)))
            }
            100.. => Some(Self::PINNED),
        }
    }
}

/// Machines in use that could be drained, alike in what that would interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemptible {
    pub pool: Pool,
    /// The highest priority of anything on one of them.
    pub priority: i32,
    /// The most that an interruption of anything there would cost, if that was said of everything.
    pub bucket: Option<Bucket>,
    pub machines: u32,
    /// How long a drain takes at most.
    pub grace: crate::Millis,
}

/// Why a report is refused whole.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReportError {
    #[error("{shard} reports {found} {what}; at most {max} are taken")]
    TooMany { shard: ShardId, what: &'static str, found: usize, max: usize },
    #[error("{shard} reports shortfall {profile} twice")]
    Twice { shard: ShardId, profile: Profile },
    #[error("{shard} reports shortfall {profile} with nothing missing; leave out what is met")]
    Empty { shard: ShardId, profile: Profile },
    #[error("the supply of {shard} cannot be read: {source}")]
    Summary { shard: ShardId, source: crate::fleet::SummaryError },
    #[error("{shard} reports penalty bucket {found}; there are {}, counted from 0", Bucket::COUNT)]
    Bucket { shard: ShardId, found: u8 },
}

impl Report {
    /// Refuses what no shard would say.
    pub fn check(&self) -> Result<(), ReportError> {
        let shard = || self.shard.clone();
        let many = |what, found, max| {
            if found > max {
                return Err(ReportError::TooMany { shard: shard(), what, found, max });
            }
            Ok(())
        };
        many("shortfalls", self.shortfalls.len(), MAX_SHORTFALLS)?;
        many("types and zones", self.supply.len(), MAX_POOLS)?;
        many("kinds of preemptible machines", self.preemptible.len(), MAX_POOLS)?;
        let mut seen = BTreeSet::new();
        for shortfall in &self.shortfalls {
            let accepted = shortfall.accepts.types.len() + shortfall.accepts.zones.len();
            many("accepted types and zones", accepted, MAX_POOLS)?;
            let profile = || shortfall.profile.clone();
            if !seen.insert(&shortfall.profile) {
                return Err(ReportError::Twice { shard: shard(), profile: profile() });
            }
            if shortfall.deficit == Resources::NONE {
                return Err(ReportError::Empty { shard: shard(), profile: profile() });
            }
        }
        let buckets = self.shortfalls.iter().map(|it| it.bucket);
        let buckets = buckets.chain(self.preemptible.iter().map(|it| it.bucket)).flatten();
        match buckets.map(|bucket| bucket.0).find(|found| *found >= Bucket::COUNT) {
            Some(found) => Err(ReportError::Bucket { shard: shard(), found }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_spread_over_the_buckets_and_only_the_highest_is_pinned() {
        assert_eq!(Bucket::of_penalty(0), None, "nothing was said");
        assert_eq!(Bucket::of_penalty(1), Some(Bucket(0)));
        assert_eq!(Bucket::of_penalty(50), Some(Bucket(12)));
        assert_eq!(Bucket::of_penalty(99), Some(Bucket(25)));
        assert_eq!(Bucket::of_penalty(100), Some(Bucket::PINNED));
        let all: BTreeSet<_> = (1..=100).filter_map(Bucket::of_penalty).collect();
        assert_eq!(all.len(), usize::from(Bucket::COUNT), "each is somebody's");
    }
}
