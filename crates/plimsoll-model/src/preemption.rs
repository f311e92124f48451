//! Room that is being freed for a replica of higher priority: who gets it, who makes way and until when. It is state, so that
//! one need preempts once, whoever leads, and nobody else takes the room meanwhile.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ReplicaId, ServiceKey};
use crate::reason::Filter;
use crate::spec::HostPort;
use crate::units::{Generation, Resources, Timestamp};

/// The most preemptions under way at once. More needs than that wait for their turn: every one of them is looked at in each
/// pass, and a cell that frees room in so many places at once is being taken apart.
pub const MAX_PREEMPTIONS: usize = 256;

/// The most replicas that make way for one. A replica that needs more room than these have waits for another node.
pub const MAX_VICTIMS: usize = 16;

/// Room being freed on one node for one replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// Who gets the room. Of a replica that is yet to be placed, the id it would have got when this began.
    pub by: ReplicaId,
    pub priority: i32,
    /// What is held for it on the node.
    pub request: Resources,
    pub ports: Vec<HostPort>,
    pub victims: BTreeMap<ReplicaId, Victim>,
    pub began: Timestamp,
}

/// A replica that makes way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// Of the assignment that makes way: what comes after it is somewhere else, or of no interest here.
    pub generation: Generation,
    pub priority: i32,
    pub penalty: u8,
    /// Until then it may move elsewhere and finish its requests; then it is stopped.
    pub until: Timestamp,
}

impl Preemption {
    /// When the last of them has made way, but for the time its container takes to stop.
    pub fn until(&self) -> Timestamp {
        self.victims.values().map(|victim| victim.until).max().unwrap_or(self.began)
    }
}

/// The preemptions under way, and how many there were.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Preemptions {
    /// One a node: room on a node is freed for one replica at a time.
    pub(crate) in_flight: BTreeMap<NodeId, Preemption>,
    pub(crate) counts: PreemptionCounts,
}

/// How many there were since the cell began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PreemptionCounts {
    pub begun: u64,
    /// Replicas that were stopped for one of higher priority.
    pub evicted: u64,
    pub withdrawn: u64,
}

impl Preemptions {
    pub fn in_flight(&self) -> &BTreeMap<NodeId, Preemption> {
        &self.in_flight
    }

    pub fn counts(&self) -> PreemptionCounts {
        self.counts
    }

    /// Whether an assignment makes way for something.
    pub fn is_victim(&self, generation: Generation) -> bool {
        let victims = self.in_flight.values().flat_map(|it| it.victims.values());
        victims.into_iter().any(|victim| victim.generation == generation)
    }

    /// The preemption that this assignment of the replica makes way for, and the node.
    pub fn of_victim(
        &self,
        replica: &ReplicaId,
        generation: Generation,
    ) -> Option<(&NodeId, &Preemption, Victim)> {
        self.in_flight.iter().find_map(|(node, preemption)| {
            let victim = preemption.victims.get(replica)?;
            (victim.generation == generation).then_some((node, preemption, *victim))
        })
    }
}

/// For whom a replica was stopped, with the numbers that decided it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptedBy {
    pub by: ReplicaId,
    pub node: NodeId,
    pub priority: i32,
    /// The priority of the one that made way.
    pub own: i32,
}

impl fmt::Display for PreemptedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, node, priority, own } = self;
        write!(f, "{by} (priority {priority}) took its room on {node}; its own priority is {own}")
    }
}

/// Why a preemption was given up before its room was taken. Whoever has not been stopped yet stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithdrawReason {
    /// The replica has found a place elsewhere, or is no longer asked for.
    NotNeeded,
    /// Its spec or a priority changed, or a victim got data: what was decided is no longer what would be.
    Changed,
    /// The clock was put back, so nobody knows any more when the time of the victims is over.
    ClockSet,
    /// With all victims gone, this would still turn it away.
    NoLongerFits { why: Filter },
    /// When the victim's time was over, its service had another replica down or moving, and this one does not outrank its
    /// disruption budget.
    Budget { service: ServiceKey },
    /// One of higher priority takes the room.
    Outranked { by: ServiceKey, priority: i32 },
}

impl WithdrawReason {
    pub fn word(&self) -> &'static str {
        match self {
            Self::NotNeeded => "not_needed",
            Self::Changed => "changed",
            Self::ClockSet => "clock_set",
            Self::NoLongerFits { .. } => "no_longer_fits",
            Self::Budget { .. } => "budget",
            Self::Outranked { .. } => "outranked",
        }
    }
}

impl fmt::Display for WithdrawReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNeeded => f.write_str("the room is no longer needed"),
            Self::Changed => f.write_str("a spec or a priority changed"),
            Self::ClockSet => f.write_str("the clock was put back"),
            Self::NoLongerFits { why } => write!(f, "it would not fit any more: {why}"),
            Self::Budget { service } => {
                write!(f, "{service} has no more to give within its disruption budget")
            }
            Self::Outranked { by, priority } => {
                write!(f, "{by} (priority {priority}) takes the room")
            }
        }
    }
}
