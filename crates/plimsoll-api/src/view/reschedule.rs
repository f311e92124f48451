//! The background rescheduler, as people read and set it: whether it runs, what it found, and what its moves were worth.

use std::collections::BTreeMap;

use plimsoll_model::review::{self, ReviewResult};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// How the rescheduler is to be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetRescheduling {
    pub action: RescheduleAction,
    /// Nodes that joined or came back are filled until no node has more than this share of its capacity reserved, in percent
    /// from 1 to 100; left out: as before.
    #[serde(default)]
    pub target_percent: Option<u32>,
    /// Fill them until all nodes have the same.
    #[serde(default)]
    pub clear_target: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RescheduleAction {
    /// It computes what it would move, and moves nothing. What is under way finishes.
    Pause,
    Resume,
}

/// What the rescheduler does, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RescheduleStatus {
    pub is_paused: bool,
    pub target_percent: Option<u32>,
    /// Who set it so; none where nobody ever did.
    pub set_by: Option<String>,
    pub set_at: Option<Time>,
    /// How many replicas move now, whatever the cause, and how many may at once.
    pub moving: u32,
    pub most_moves: u32,
    /// The latest cycles, the newest first. A new leader begins anew.
    pub cycles: Vec<RescheduleCycle>,
    /// What the latest cycle moved, or would have moved.
    pub offers: Vec<RescheduleMove>,
    /// What it moved lately, the newest first, as far as the audit goes back.
    pub moved: Vec<RescheduleMove>,
    /// The rebalancer and the rescheduler, and what their moves were worth.
    pub loops: Vec<LoopStatus>,
    /// The latest reviews of moves, the newest first, as far as the audit goes back.
    pub reviews: Vec<MoveReview>,
}

/// One cycle in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RescheduleCycle {
    pub at: Time,
    /// Replicas that a quick look did not rule out.
    pub candidates: u64,
    /// Those that were compared with every node.
    pub compared: u64,
    pub offers: u64,
    /// Why it moved nothing whatever it found, as a word from the list in docs/reference/rescheduler.md, and as a sentence.
    pub withheld: Option<String>,
    pub why: Option<String>,
    /// How many candidates stayed, by reason.
    pub stayed: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RescheduleMove {
    pub replica: String,
    pub src: String,
    pub dst: String,
    /// `no_room`, `better_score` or `fill`.
    pub reason: String,
    /// Scores from 0 to 10 000; none of a node that would be turned down.
    pub score_before: Option<u16>,
    pub score_after: u16,
    pub threshold: u16,
    pub at: Option<Time>,
    /// As a sentence.
    pub text: String,
}

/// A loop that moves replicas by itself, and how its predictions fared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoopStatus {
    /// `rebalancer` or `rescheduler`.
    pub name: String,
    /// It acts in one cycle of so many: 1 unless it is slowed down.
    pub slowed: u32,
    pub interval_ms: u64,
    /// When it last began to move something.
    pub moved_at: Option<Time>,
    /// Moves that are to be looked at again.
    pub pending: u64,
    /// Moves that brought at least half of what was predicted, those that did not, and those that could not be judged.
    pub held: u64,
    pub failed: u64,
    pub not_judged: u64,
    /// Of the moves judged since the pace last changed, the latest, oldest first: whether each has held.
    pub recent: Vec<bool>,
}

/// A move looked at again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveReview {
    pub replica: String,
    pub src: String,
    pub dst: String,
    /// `rebalancer` or `rescheduler`.
    pub by: String,
    pub began: Time,
    pub reviewed: Time,
    /// In millionths of a node for the rebalancer, in points of the score for the rescheduler.
    pub predicted: i64,
    /// None where the move could not be judged.
    pub realised: Option<i64>,
    /// Why not: `undone`, `moved_on`, `gone`, `closed` or `silent`.
    pub not_judged: Option<String>,
    /// As a sentence.
    pub text: String,
}

impl MoveReview {
    pub fn of(review: &review::MoveReview, reviewed: Time) -> Self {
        let (realised, not_judged) = match review.result {
            ReviewResult::Realised { gain } => (Some(gain), None),
            ReviewResult::NotJudged { why } => (None, Some(why.word().to_owned())),
        };
        Self {
            replica: review.replica.to_string(),
            src: review.src.to_string(),
            dst: review.dst.to_string(),
            by: review.by.word().to_owned(),
            began: Time(review.began),
            reviewed,
            predicted: review.predicted,
            realised,
            not_judged,
            text: review.to_string(),
        }
    }
}

/// What the rescheduler says of one replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RescheduleVerdict {
    /// Why it stays, as a word from the list in docs/reference/rescheduler.md; none where it moves in its turn.
    pub stays: Option<String>,
    /// The best other node, and what it and the current one score, as if the replica were nowhere.
    pub best: Option<String>,
    pub score_best: Option<u16>,
    pub score_current: Option<u16>,
    /// What the difference has to be above.
    pub threshold: Option<u16>,
    /// As a sentence.
    pub text: String,
}

/// How far the rescheduler has got in filling a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FillStatus {
    /// Replicas that are there or on their way.
    pub has: u32,
    /// What it would have if all nodes that take replicas had the same.
    pub fair_share: u32,
    /// How often it was lost within the hour: each doubles how long it must be ready before it is sent anything.
    pub losses: u32,
    /// `closed`, `earning_trust`, `resting`, `filling` or `filled`.
    pub stage: String,
    /// When it may be sent something next; none where nothing is to come.
    pub next_at: Option<Time>,
    /// As a sentence.
    pub text: String,
}
