//! Why a shortfall is not served, with the numbers that decided it.

use std::fmt;

use plimsoll_model::{Millis, Resources};
use serde::{Deserialize, Serialize};

use plimsoll_model::fleet::Bucket;
use plimsoll_model::fleet::{Pool, Profile, ShardId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unserved {
    pub shard: ShardId,
    pub profile: Profile,
    /// What is missing beyond what is on its way.
    pub missing: Resources,
    pub why: Gate,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Gate {
    /// An operator has paused the fleet.
    FleetPaused,
    /// The shard that lacks it is paused.
    ShardPaused,
    /// It may still help itself.
    TooYoung {
        age: u64,
        above: u64,
    },
    TopologyConstrained,
    /// No type of machine that it accepts and that holds one unit of it is known in the fleet.
    NoMachineFits,
    /// All of it is on its way.
    OnItsWay {
        transfers: usize,
    },
    /// What each way of getting it lacks.
    Tiers(Vec<TierSkip>),
}

/// The ways to serve a shortfall, the cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    Idle,
    Quota,
    Preempt,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierSkip {
    pub tier: Tier,
    pub waits_for: WaitsFor,
}

/// What would have to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "waits_for", rename_all = "snake_case")]
pub enum WaitsFor {
    /// No shard has anything to give.
    Donor,
    /// The best donor could give too little.
    Benefit {
        donor: ShardId,
        pool: Pool,
        given: u32,
        missing: u32,
    },
    /// The two have exchanged such machines lately.
    Cooldown {
        donor: ShardId,
        pool: Pool,
        left: Millis,
    },
    /// Nothing is drained before it is older than this.
    Age {
        age: u64,
        above: u64,
    },
    /// Something cheaper is on its way, or could be.
    CheaperTier,
    /// Its own penalty was not said, or the donor's was not.
    PenaltyUnknown,
    /// What could be drained matters as much.
    Priority {
        donor: ShardId,
        theirs: i32,
        ours: i32,
    },
    Penalty {
        donor: ShardId,
        theirs: Bucket,
        ours: Bucket,
    },
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FleetPaused => f.write_str("the fleet is paused"),
            Self::ShardPaused => f.write_str("the shard is paused"),
            Self::TooYoung { age, above } => {
                write!(f, "missing for {age} cycles; served above {above}")
            }
            Self::TopologyConstrained => f.write_str("no machine of another shard can serve it"),
            Self::NoMachineFits => {
                f.write_str("no known type of machine that it accepts holds one unit")
            }
            Self::OnItsWay { transfers: 1 } => f.write_str("on its way in 1 transfer"),
            Self::OnItsWay { transfers } => write!(f, "on its way in {transfers} transfers"),
            Self::Tiers(skips) => {
                for (nth, skip) in skips.iter().enumerate() {
                    if nth > 0 {
                        f.write_str("; ")?;
                    }
                    write!(f, "{skip}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Idle => "idle",
            Self::Quota => "quota",
            Self::Preempt => "preempt",
        })
    }
}

impl fmt::Display for TierSkip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tier, self.waits_for)
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Donor => f.write_str("no shard has any to give"),
            Self::Benefit { donor, pool, given, missing } => {
                write!(
                    f,
                    "{donor} could give {given} {pool} of {missing} missing, too few for a move"
                )
            }
            Self::Cooldown { donor, pool, left } => {
                write!(f, "{donor} and {pool} rest for another {left}")
            }
            Self::Age { age, above } => {
                write!(f, "missing for {age} cycles; drains begin above {above}")
            }
            Self::CheaperTier => f.write_str("something cheaper can serve it"),
            Self::PenaltyUnknown => f.write_str("interruption penalty not stated"),
            Self::Priority { donor, theirs, ours } => {
                write!(f, "what {donor} could drain has priority {theirs}, not below {ours}")
            }
            Self::Penalty { donor, theirs, ours } => {
                write!(
                    f,
                    "what {donor} could drain is in penalty bucket {}, not below {}",
                    theirs.0, ours.0
                )
            }
        }
    }
}
