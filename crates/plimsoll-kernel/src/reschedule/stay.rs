//! Why a replica stays where it is, as far as the rescheduler goes: one reason from a closed list, with its numbers. A cycle
//! counts them, and one replica can be asked.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_model::reschedule::RescheduledMove;
use plimsoll_model::review::MovingLoop;
use plimsoll_model::{Millis, NodeId, ReplicaId, Score, State, Timestamp};
use serde::Serialize;

use super::candidates::{self, Candidate};
use super::judge::Judge;
use super::shares::NodeShares;
use super::walk::Walk;
use super::{Rescheduler, is_mass_loss};
use crate::place::Roster;
use crate::policy::Policy;
use crate::rebalance::Rebalancer;

/// What keeps a replica where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StayReason {
    /// `x-plimsoll.reschedule: never`
    Never,
    /// It has a bind mount or a volume.
    KeepsData,
    /// One runs on every node.
    Global,
    /// The service stops a replica before it starts the next one: it would be missing for a while.
    StopsFirst,
    /// A rollout of the service is under way.
    RollingOut,
    /// A decision for the service was refused twice.
    DecisionRefused,
    /// Another replica of the service moves or does not run: one is disturbed at a time.
    ServiceBudget,
    /// It has no node, or runs another spec than it should.
    Unsettled,
    /// It was placed or moved a short time ago.
    Rests { left: Millis },
    /// It makes way for a replica of higher priority.
    Preempted,
    /// It is a job that is done.
    Completed,
    /// A hot node was relieved of it.
    Relieved,
    /// Its node is not ready, is being drained or has no runtime: what becomes of it is the scheduler's business.
    NodeUnavailable,
    /// More than half of the nodes are down.
    MassLoss,
    /// As many move in the cell as may at once.
    CellBudget { moving: usize, most: usize },
    /// A move of it was offered a short time ago.
    TriedLately,
    /// There is no other node for it, or each is more crowded with its service.
    NoOther,
    /// No node is better by more than the threshold, and none is to be filled with it.
    NotBetter { gain: i32, threshold: u16 },
    /// The best node was sent something a short time ago, and is waited for.
    NodeRests { node: NodeId },
    /// The service failed on the best node within the hour.
    FailedThere { node: NodeId },
    /// The best node would get too busy.
    DstCap { node: NodeId },
    /// The operator paused the rescheduler.
    Paused,
    /// The rescheduler is slowed down by what came of its moves.
    SlowedDown { left: Millis },
    /// So many were compared in this cycle already; its turn comes.
    ComparisonLimit,
}

impl StayReason {
    /// Every word there is, in the order of the reasons.
    pub const WORDS: [&'static str; 24] = [
        "never",
        "keeps_data",
        "global",
        "stops_first",
        "rolling_out",
        "decision_refused",
        "service_budget",
        "unsettled",
        "cooldown_replica",
        "preempted",
        "completed",
        "relieved",
        "node_unavailable",
        "mass_loss",
        "cell_budget",
        "tried_lately",
        "no_other_node",
        "not_better",
        "cooldown_node",
        "failed_there",
        "dst_cap",
        "paused",
        "slowed_down",
        "comparison_limit",
    ];

    pub fn word(&self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::KeepsData => "keeps_data",
            Self::Global => "global",
            Self::StopsFirst => "stops_first",
            Self::RollingOut => "rolling_out",
            Self::DecisionRefused => "decision_refused",
            Self::ServiceBudget => "service_budget",
            Self::Unsettled => "unsettled",
            Self::Rests { .. } => "cooldown_replica",
            Self::Preempted => "preempted",
            Self::Completed => "completed",
            Self::Relieved => "relieved",
            Self::NodeUnavailable => "node_unavailable",
            Self::MassLoss => "mass_loss",
            Self::CellBudget { .. } => "cell_budget",
            Self::TriedLately => "tried_lately",
            Self::NoOther => "no_other_node",
            Self::NotBetter { .. } => "not_better",
            Self::NodeRests { .. } => "cooldown_node",
            Self::FailedThere { .. } => "failed_there",
            Self::DstCap { .. } => "dst_cap",
            Self::Paused => "paused",
            Self::SlowedDown { .. } => "slowed_down",
            Self::ComparisonLimit => "comparison_limit",
        }
    }
}

impl fmt::Display for StayReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("its service says `reschedule: never`"),
            Self::KeepsData => f.write_str("it has a bind mount or a volume"),
            Self::Global => f.write_str("one runs on every node"),
            Self::StopsFirst => {
                f.write_str("its service stops a replica before it starts the next")
            }
            Self::RollingOut => f.write_str("a rollout of its service is under way"),
            Self::DecisionRefused => f.write_str("a decision for its service was refused twice"),
            Self::ServiceBudget => {
                f.write_str("another replica of its service moves or does not run")
            }
            Self::Unsettled => f.write_str("it does not run its current spec yet"),
            Self::Rests { left } => {
                write!(f, "it was placed or moved a short time ago: {left} left")
            }
            Self::Preempted => f.write_str("it makes way for a replica of higher priority"),
            Self::Completed => f.write_str("its job is done"),
            Self::Relieved => f.write_str("a hot node was relieved of it"),
            Self::NodeUnavailable => f.write_str("its node is not ready, or is being drained"),
            Self::MassLoss => f.write_str("more than half of the nodes are down"),
            Self::CellBudget { moving, most } => {
                write!(f, "{moving} replicas are moving in the cell, and {most} may at once")
            }
            Self::TriedLately => f.write_str("a move of it was tried a short time ago"),
            Self::NoOther => f.write_str("no other node can take it, or each is more crowded"),
            Self::NotBetter { gain, threshold } => {
                write!(f, "the difference of {gain} is not above the threshold of {threshold}")
            }
            Self::NodeRests { node } => write!(f, "{node} was sent a replica a short time ago"),
            Self::FailedThere { node } => write!(f, "its service failed on {node} within the hour"),
            Self::DstCap { node } => write!(f, "{node} would get too busy"),
            Self::Paused => f.write_str("the rescheduler is paused"),
            Self::SlowedDown { left } => write!(f, "the rescheduler is slowed down: {left} left"),
            Self::ComparisonLimit => f.write_str("others come first in this cycle"),
        }
    }
}

/// What a comparison found, whatever came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScoreComparison {
    pub best: NodeId,
    pub best_score: Score,
    pub current_score: Score,
    pub threshold: u16,
}

/// A replica that is not moved, why, and what it was compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Staying {
    pub(super) why: StayReason,
    pub(super) compared: Option<ScoreComparison>,
}

impl From<StayReason> for Staying {
    fn from(why: StayReason) -> Self {
        Self { why, compared: None }
    }
}

/// What the rescheduler would say of one replica now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RescheduleVerdict {
    /// Why it stays; none where nothing is in the way of its move.
    pub stays: Option<StayReason>,
    pub compared: Option<ScoreComparison>,
    /// The move it would make, or will make in its turn.
    pub moves: Option<Box<RescheduledMove>>,
}

impl From<Staying> for RescheduleVerdict {
    fn from(staying: Staying) -> Self {
        Self { stays: Some(staying.why), compared: staying.compared, moves: None }
    }
}

impl fmt::Display for RescheduleVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stays, compared, moves } = self;
        if let Some(moves) = moves {
            let RescheduledMove { dst, why, .. } = &**moves;
            match stays {
                None => write!(f, "moves to {dst} in its turn ({})", why.word())?,
                Some(stays) => write!(f, "would move to {dst} ({}), but {stays}", why.word())?,
            }
        } else if let Some(stays) = stays {
            write!(f, "stays: {stays}")?;
        }
        let Some(ScoreComparison { best, best_score, current_score, .. }) = compared else {
            return Ok(());
        };
        write!(f, "; scores {} here, {} on {best}", current_score.total(), best_score.total())
    }
}

/// One cycle, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CycleSummary {
    pub at: Timestamp,
    /// Replicas that a quick look did not rule out.
    pub candidates: usize,
    pub compared: usize,
    pub offers: usize,
    /// What of the offers was not done, and why; none where all of it was.
    pub withheld: Option<StayReason>,
    /// How many candidates stayed, by reason.
    pub stayed: BTreeMap<&'static str, usize>,
}

impl CycleSummary {
    pub(super) fn new(at: Timestamp) -> Self {
        let (candidates, compared, offers) = (0, 0, 0);
        Self { at, candidates, compared, offers, withheld: None, stayed: BTreeMap::new() }
    }

    pub(super) fn note(&mut self, why: &StayReason) {
        *self.stayed.entry(why.word()).or_default() += 1;
    }
}

/// What keeps the rescheduler from doing what it found, whichever replica it is about.
pub(super) fn withheld(state: &State, policy: &Policy, now: Timestamp) -> Option<StayReason> {
    if state.rescheduling().is_paused {
        return Some(StayReason::Paused);
    }
    let record = state.reviews().of(MovingLoop::Rescheduler);
    let left = record.waits(policy.sample_interval, now)?;
    Some(StayReason::SlowedDown { left })
}

/// What the rescheduler would say of a replica now; none where there is no such replica.
pub fn verdict(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    measured: &Rebalancer,
    rescheduler: &Rescheduler,
    id: &ReplicaId,
    now: Timestamp,
) -> Option<RescheduleVerdict> {
    let service = state.service(&id.service)?;
    let replica = service.replicas.get(&id.slot)?;
    if is_mass_loss(state) {
        return Some(Staying::from(StayReason::MassLoss).into());
    }
    let mut roster = roster.seen_by(|node| measured.mean(node), state.rescheduling().target);
    let shares = NodeShares::new(state, &mut roster, policy, measured, now);
    let walk = Walk::new(state, policy, now);
    let finder = candidates::Finder { state, roster: &roster, shares: &shares, policy, walk, now };
    let candidate: Candidate<'_> = match finder.candidate(id, service, replica) {
        Ok(candidate) => candidate,
        Err(why) => return Some(Staying::from(why).into()),
    };
    if rescheduler.is_tried(id, policy, now) {
        return Some(Staying::from(StayReason::TriedLately).into());
    }
    let (moving, most) = (state.moving().len(), policy.reschedule.moves_at_once(shares.open));
    let mut judge = Judge { state, roster, shares, policy, measured, budget: usize::MAX, now };
    let offer = match judge.offer(&candidate) {
        Ok(offer) => offer,
        Err(staying) => return Some(staying.into()),
    };
    let full = (moving >= most).then_some(StayReason::CellBudget { moving, most });
    let stays = withheld(state, policy, now).or(full);
    let moved = &offer.moved;
    let compared = moved.before.map(|current_score| ScoreComparison {
        best: moved.dst.clone(),
        best_score: moved.after,
        current_score,
        threshold: moved.threshold,
    });
    Some(RescheduleVerdict { stays, compared, moves: Some(offer.moved) })
}
