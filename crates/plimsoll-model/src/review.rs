//! Whether automatic moves were worth it. Each is written down with what it is to bring, looked at again some time later, and
//! what came of it counts for the loop that chose it: one whose predictions keep failing gets slower. All of it is replicated,
//! so that a new leader knows it too.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ReplicaId};
use crate::pressure::Pressure;
use crate::rebalance::Relief;
use crate::reschedule::{RescheduledMove, Score};
use crate::units::{Millis, Timestamp};

/// The most moves that wait for their review; of those beyond it nothing is kept. Both loops together begin at most 65 in a
/// cycle, so that many in ten minutes of twenty cycles.
pub const MAX_PENDING_REVIEWS: usize = 1_300;

/// So many of a loop's latest judged moves decide on its pace: more than half of them.
pub const REVIEW_WINDOW: usize = 8;

/// How often the interval of a loop doubles at most: sixteen times as long, eight minutes, is as good as off and still ends.
pub const MAX_DOUBLINGS: u32 = 4;

/// With no move to judge for so long, a loop that was slowed is given half of its pace back.
pub const PACE_MEMORY: Millis = Millis::minutes(60);

/// A loop that moves replicas by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MovingLoop {
    Rebalancer,
    Rescheduler,
}

impl MovingLoop {
    pub const ALL: [Self; 2] = [Self::Rebalancer, Self::Rescheduler];

    pub fn word(self) -> &'static str {
        match self {
            Self::Rebalancer => "rebalancer",
            Self::Rescheduler => "rescheduler",
        }
    }

    /// A gain in its own measure, as people read it.
    pub fn measure(self, gain: i64) -> GainText {
        GainText { by: self, gain }
    }
}

/// `0.12` of a node, or `615 points`.
#[derive(Debug, Clone, Copy)]
pub struct GainText {
    by: MovingLoop,
    gain: i64,
}

impl fmt::Display for GainText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            MovingLoop::Rescheduler => write!(f, "{} points", self.gain),
            MovingLoop::Rebalancer => {
                let share = u32::try_from(self.gain.unsigned_abs()).unwrap_or(u32::MAX);
                let sign = if self.gain < 0 { "-" } else { "" };
                write!(f, "{sign}{}", Pressure::from_millionths(share))
            }
        }
    }
}

/// What a move is to bring, in the measure of the loop that chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PredictedGain {
    /// The source gets so much cooler than it was before, by the hotter of its dimensions, smoothed.
    Relief { before: Pressure, relief: Pressure },
    /// The new node scores so much more than the old one did, which counts as 0 where it would have been turned down.
    Score { before: u16, points: i32 },
}

impl PredictedGain {
    pub fn by(self) -> MovingLoop {
        match self {
            Self::Relief { .. } => MovingLoop::Rebalancer,
            Self::Score { .. } => MovingLoop::Rescheduler,
        }
    }

    /// In millionths of a node, or in points of the score.
    pub fn amount(self) -> i64 {
        match self {
            Self::Relief { relief, .. } => relief.millionths().into(),
            Self::Score { points, .. } => points.into(),
        }
    }
}

/// A move that is to be looked at again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingReview {
    pub src: NodeId,
    pub dst: NodeId,
    pub began: Timestamp,
    pub predicted: PredictedGain,
}

impl PendingReview {
    pub(crate) fn of_relief(moved: &Relief, began: Timestamp) -> Self {
        let predicted = PredictedGain::Relief { before: moved.src_before, relief: moved.relief };
        Self { src: moved.src.clone(), dst: moved.dst.clone(), began, predicted }
    }

    pub(crate) fn of_rescheduled(moved: &RescheduledMove, began: Timestamp) -> Self {
        let before = moved.before.map_or(0, Score::total);
        let points = i32::from(moved.after.total()) - i32::from(before);
        let predicted = PredictedGain::Score { before, points };
        Self { src: moved.src.clone(), dst: moved.dst.clone(), began, predicted }
    }

    /// The review of it, with what came of it.
    pub fn reviewed(&self, id: &ReplicaId, result: ReviewResult) -> MoveReview {
        MoveReview {
            replica: id.clone(),
            src: self.src.clone(),
            dst: self.dst.clone(),
            began: self.began,
            by: self.predicted.by(),
            predicted: self.predicted.amount(),
            result,
        }
    }

    pub(crate) fn is_of(&self, review: &MoveReview) -> bool {
        (self.began, self.predicted.by()) == (review.began, review.by)
    }
}

/// Why a move says nothing of the loop that chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnjudgedReason {
    /// It was taken back: the replica is where it was.
    Undone,
    /// Something else moved the replica since.
    MovedOn,
    /// The replica, its service or one of the nodes is gone.
    Gone,
    /// The new node takes no replicas now, so that it has no score.
    Closed,
    /// Nothing was measured of the source.
    Silent,
}

impl UnjudgedReason {
    pub const ALL: [Self; 5] =
        [Self::Undone, Self::MovedOn, Self::Gone, Self::Closed, Self::Silent];

    pub fn word(self) -> &'static str {
        match self {
            Self::Undone => "undone",
            Self::MovedOn => "moved_on",
            Self::Gone => "gone",
            Self::Closed => "closed",
            Self::Silent => "silent",
        }
    }
}

impl fmt::Display for UnjudgedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undone => "the move was undone",
            Self::MovedOn => "it has moved again since",
            Self::Gone => "the replica or one of its nodes is gone",
            Self::Closed => "its new node takes no replicas now",
            Self::Silent => "no measurements of the node it left",
        })
    }
}

/// What came of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewResult {
    /// In the measure of the prediction, and never more than that.
    Realised {
        gain: i64,
    },
    NotJudged {
        why: UnjudgedReason,
    },
}

/// A move looked at again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReview {
    pub replica: ReplicaId,
    pub src: NodeId,
    pub dst: NodeId,
    pub began: Timestamp,
    pub by: MovingLoop,
    /// In millionths of a node, or in points of the score.
    pub predicted: i64,
    pub result: ReviewResult,
}

impl MoveReview {
    /// Whether at least half of what was predicted came true; none where that was not judged.
    pub fn has_held(&self) -> Option<bool> {
        match self.result {
            ReviewResult::Realised { gain } => Some(2 * gain >= self.predicted),
            ReviewResult::NotJudged { .. } => None,
        }
    }
}

impl fmt::Display for MoveReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replica, src, dst, by, predicted, .. } = self;
        write!(f, "{replica} {src} → {dst} by the {}: ", by.word())?;
        write!(f, "predicted {}, ", by.measure(*predicted))?;
        match self.result {
            ReviewResult::Realised { gain } => write!(f, "realised {}", by.measure(gain)),
            ReviewResult::NotJudged { why } => write!(f, "not judged: {why}"),
        }
    }
}

/// How often a loop acts, and why it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceChange {
    pub by: MovingLoop,
    pub doublings: u32,
    /// Of so many moves that were judged, so many did not bring half of what was predicted.
    pub failed: u32,
    pub judged: u32,
    pub is_slower: bool,
}

impl fmt::Display for PaceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, doublings, failed, judged, is_slower } = self;
        let pace = if *is_slower { "slows down" } else { "speeds up" };
        write!(f, "the {} {pace} to 1 cycle in {}: ", by.word(), 1_u32 << doublings)?;
        write!(
            f,
            "{failed} of its last {judged} moves brought less than half of what was predicted"
        )
    }
}

/// How the predictions of one loop have fared.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoopRecord {
    /// Of the moves judged since the pace last changed, the latest [`REVIEW_WINDOW`], oldest first: whether each has held.
    pub recent: Vec<bool>,
    doublings: u32,
    /// When a move was last judged.
    judged_at: Option<Timestamp>,
    /// When it last began to move something.
    pub moved_at: Option<Timestamp>,
    pub held: u64,
    pub failed: u64,
    pub not_judged: u64,
    /// Of the moves that were judged, in all. What went the wrong way counts as nothing.
    pub predicted: u64,
    pub realised: u64,
}

impl LoopRecord {
    /// How often its interval is doubled by now.
    pub fn doublings(&self, now: Timestamp) -> u32 {
        let quiet = self.judged_at.map_or(0, |at| now.since(at).0 / PACE_MEMORY.0);
        self.doublings.saturating_sub(u32::try_from(quiet).unwrap_or(u32::MAX))
    }

    /// How long it waits after a cycle that moved something, where a cycle comes every so often.
    pub fn interval(&self, cycle: Millis, now: Timestamp) -> Millis {
        Millis(cycle.0 << self.doublings(now))
    }

    /// How much longer it moves nothing because it is slowed down.
    pub fn waits(&self, cycle: Millis, now: Timestamp) -> Option<Millis> {
        if self.doublings(now) == 0 {
            return None;
        }
        let rested = now.since(self.moved_at?);
        let left = self.interval(cycle, now).0.saturating_sub(rested.0);
        (left > 0).then_some(Millis(left))
    }

    /// More than half of the window one way or the other changes the pace, and the count begins anew.
    pub(crate) fn note(&mut self, review: &MoveReview, at: Timestamp) -> Option<PaceChange> {
        let Some(has_held) = review.has_held() else {
            self.not_judged += 1;
            return None;
        };
        let (ReviewResult::Realised { gain }, predicted) = (review.result, review.predicted) else {
            return None;
        };
        let amount = |gain: i64| u64::try_from(gain).unwrap_or(0);
        self.predicted = self.predicted.saturating_add(amount(predicted));
        self.realised = self.realised.saturating_add(amount(gain));
        if has_held {
            self.held += 1
        } else {
            self.failed += 1
        }
        self.doublings = self.doublings(at);
        self.judged_at = Some(at);
        self.recent.push(has_held);
        if self.recent.len() > REVIEW_WINDOW {
            self.recent.remove(0);
        }
        let judged = self.recent.len();
        let held = self.recent.iter().filter(|held| **held).count();
        let is_most = |count: usize| 2 * count > REVIEW_WINDOW;
        let is_slower = is_most(judged - held) && self.doublings < MAX_DOUBLINGS;
        let is_faster = is_most(held) && self.doublings > 0;
        if !is_slower && !is_faster {
            return None;
        }
        self.doublings = if is_slower { self.doublings + 1 } else { self.doublings - 1 };
        self.recent.clear();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (failed, judged) = (count(judged - held), count(judged));
        Some(PaceChange { by: review.by, doublings: self.doublings, failed, judged, is_slower })
    }
}

/// All automatic moves that wait to be looked at, and how those before them have fared.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MoveReviews {
    pub(crate) pending: BTreeMap<ReplicaId, PendingReview>,
    pub(crate) rebalancer: LoopRecord,
    pub(crate) rescheduler: LoopRecord,
}

impl MoveReviews {
    pub fn pending(&self) -> &BTreeMap<ReplicaId, PendingReview> {
        &self.pending
    }

    pub fn of(&self, by: MovingLoop) -> &LoopRecord {
        match by {
            MovingLoop::Rebalancer => &self.rebalancer,
            MovingLoop::Rescheduler => &self.rescheduler,
        }
    }

    pub(crate) fn of_mut(&mut self, by: MovingLoop) -> &mut LoopRecord {
        match by {
            MovingLoop::Rebalancer => &mut self.rebalancer,
            MovingLoop::Rescheduler => &mut self.rescheduler,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{node_id, replica_id};

    fn review(predicted: i64, result: ReviewResult) -> MoveReview {
        MoveReview {
            replica: replica_id("shop/web/1"),
            src: node_id("ash"),
            dst: node_id("birch"),
            began: Timestamp(0),
            by: MovingLoop::Rebalancer,
            predicted,
            result,
        }
    }

    fn realised(gain: i64) -> MoveReview {
        review(200_000, ReviewResult::Realised { gain })
    }

    #[test]
    fn half_of_what_was_predicted_is_enough_and_less_is_not() {
        for (gain, has_held) in [(200_000, true), (100_000, true), (99_999, false), (-5, false)] {
            assert_eq!(realised(gain).has_held(), Some(has_held), "{gain}");
        }
        let silent = ReviewResult::NotJudged { why: UnjudgedReason::Silent };
        assert_eq!(review(200_000, silent).has_held(), None);
        let even = |gain| review(0, ReviewResult::Realised { gain }).has_held();
        assert_eq!((even(0), even(-615)), (Some(true), Some(false)), "nothing was promised");
    }

    #[test]
    fn a_loop_whose_predictions_fail_gets_slower_to_a_bound_and_recovers() {
        let mut record = LoopRecord::default();
        let cycle = Millis::seconds(30);
        let mut note = |gain, times| {
            let changes = (0..times).filter_map(|_| record.note(&realised(gain), Timestamp(0)));
            let changes: Vec<u32> = changes.map(|change| change.doublings).collect();
            (changes, record.interval(cycle, Timestamp(0)))
        };
        assert_eq!(note(200_000, 20), (vec![], cycle), "one that is right keeps its pace");
        assert_eq!(note(0, 4), (vec![], cycle), "half of the window is not most of it");
        assert_eq!(note(0, 1), (vec![1], Millis::seconds(60)));
        assert_eq!(note(0, 40), (vec![2, 3, 4], Millis::minutes(8)), "there is a bound");
        assert_eq!(note(200_000, 4), (vec![], Millis::minutes(8)));
        assert_eq!(note(200_000, 1), (vec![3], Millis::minutes(4)));
        assert_eq!(note(200_000, 15), (vec![2, 1, 0], cycle));
    }

    #[test]
    fn with_nothing_to_judge_a_slow_loop_gets_its_pace_back_by_the_hour() {
        let mut record = LoopRecord::default();
        for _ in 0..10 {
            record.note(&realised(0), Timestamp(0));
        }
        record.moved_at = Some(Timestamp(0));
        let at = |minutes: u64| Timestamp(minutes * 60_000);
        let doublings = [0, 59, 60, 119, 120, 500].map(|minutes| record.doublings(at(minutes)));
        assert_eq!(doublings, [2, 2, 1, 1, 0, 0]);
        let waits = |at| record.waits(Millis::seconds(30), Timestamp(at));
        assert_eq!(waits(0), Some(Millis::seconds(120)));
        assert_eq!((waits(119_999), waits(120_000)), (Some(Millis(1)), None));
    }

    #[test]
    fn what_is_not_judged_counts_for_nothing() {
        let mut record = LoopRecord::default();
        for why in UnjudgedReason::ALL {
            for _ in 0..REVIEW_WINDOW {
                assert_eq!(
                    record.note(&review(1, ReviewResult::NotJudged { why }), Timestamp(0)),
                    None
                );
            }
        }
        assert_eq!((record.not_judged, record.held, record.failed), (40, 0, 0));
        assert!(record.recent.is_empty());
    }

    #[test]
    fn a_review_says_what_was_predicted_and_what_came_of_it() {
        assert_eq!(
            realised(-20_000).to_string(),
            "shop-web-1 ash → birch by the rebalancer: predicted 0.20, realised -0.02"
        );
        let by_score = MoveReview { by: MovingLoop::Rescheduler, ..realised(615) };
        let by_score = MoveReview { predicted: 1_230, ..by_score };
        assert_eq!(
            by_score.to_string(),
            "shop-web-1 ash → birch by the rescheduler: predicted 1230 points, realised 615 points"
        );
        let undone = ReviewResult::NotJudged { why: UnjudgedReason::Undone };
        assert!(review(1, undone).to_string().ends_with("not judged: the move was undone"));
    }
}
