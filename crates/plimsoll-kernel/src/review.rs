//! Whether moves that a loop chose were worth it: each is looked at again some time after it began, and what came of it is set
//! beside what was predicted. What that does to the pace of the loop is settled in the model, since it is counted there.
//!
//! A relief is realised as far as the source is cooler than it was just before the move, by the same smoothed mean. Load that
//! grows by itself counts against the move, and load that falls counts for it, up to what was predicted: no single review says
//! much, many of them do. A better place is realised as far as the replica's score on its new node is above the one it left with.

use plimsoll_model::review::{PendingReview, PredictedGain, ReviewResult, UnjudgedReason};
use plimsoll_model::{Change, Guarded, Millis, NodeId, ReplicaId, State, Timestamp};

use crate::place::filter::PlacementRequest;
use crate::place::{Placer, Roster, Score};
use crate::policy::Policy;
use crate::rebalance::Rebalancer;

#[cfg(test)]
mod tests;

/// So many are judged in a cycle; the rest is in the next.
pub const REVIEWS_PER_CYCLE: usize = 256;

/// When moves are looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewLimits {
    /// How long after a move began. Two windows of the mean: what was measured before the move is all but forgotten.
    pub after: Millis,
    /// How much longer one is waited for whose source is silent, or that is still under way.
    pub patience: Millis,
}

impl ReviewLimits {
    /// The same with every span of time divided.
    #[must_use]
    pub fn hurried(self, haste: u32) -> Self {
        let in_haste = |span: Millis| Millis(span.0 / u64::from(haste.max(1)));
        Self { after: in_haste(self.after), patience: in_haste(self.patience) }
    }
}

impl Default for ReviewLimits {
    fn default() -> Self {
        Self { after: Millis::minutes(10), patience: Millis::minutes(10) }
    }
}

/// The reviews that are due, the longest due first.
pub fn reviews(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    measured: &Rebalancer,
    now: Timestamp,
) -> Vec<Guarded> {
    let is_due = |pending: &PendingReview| now.since(pending.began) >= policy.review.after;
    let mut due: Vec<(&ReplicaId, &PendingReview)> =
        state.reviews().pending().iter().filter(|(_, pending)| is_due(pending)).collect();
    if due.is_empty() {
        return Vec::new();
    }
    due.sort_by_key(|(id, pending)| (pending.began, *id));
    let target = state.rescheduling().target;
    let is_scored =
        |pending: &PendingReview| matches!(pending.predicted, PredictedGain::Score { .. });
    let needs_scores = due.iter().any(|(_, pending)| is_scored(pending));
    // The very view that the rescheduler decided by.
    let roster = needs_scores.then(|| roster.seen_by(|node| measured.mean(node), target));
    let mut reviewer = Reviewer { state, roster, policy, measured, now };
    let changes = due.into_iter().filter_map(|(id, pending)| {
        let result = reviewer.result(id, pending)?;
        let review = Box::new(pending.reviewed(id, result));
        Some(Change::ReviewMove { review }.free())
    });
    changes.take(REVIEWS_PER_CYCLE).collect()
}

struct Reviewer<'r> {
    state: &'r State,
    /// Only where some review needs scores.
    roster: Option<Roster>,
    policy: &'r Policy,
    measured: &'r Rebalancer,
    now: Timestamp,
}

/// Where a move has got to.
enum MoveStanding {
    /// The replica is where the move took it.
    Stands,
    UnderWay,
    Over(UnjudgedReason),
}

impl Reviewer<'_> {
    /// None where it is to be waited for.
    fn result(&mut self, id: &ReplicaId, pending: &PendingReview) -> Option<ReviewResult> {
        let limits = self.policy.review;
        let is_late = self.now.since(pending.began).0 >= limits.after.0 + limits.patience.0;
        let late = |why| is_late.then_some(ReviewResult::NotJudged { why });
        match self.standing(id, pending) {
            MoveStanding::Over(why) => return Some(ReviewResult::NotJudged { why }),
            MoveStanding::UnderWay => return late(UnjudgedReason::Undone),
            MoveStanding::Stands => {}
        }
        let gain = match pending.predicted {
            PredictedGain::Relief { before, .. } => {
                let Some(mean) = self.measured.mean(&pending.src) else {
                    return late(UnjudgedReason::Silent);
                };
                i64::from(before.millionths()) - i64::from(mean.top().millionths())
            }
            PredictedGain::Score { before, .. } => {
                let Some(score) = self.score_now(id, &pending.dst) else {
                    return Some(ReviewResult::NotJudged { why: UnjudgedReason::Closed });
                };
                i64::from(score) - i64::from(before)
            }
        };
        Some(ReviewResult::Realised { gain: gain.min(pending.predicted.amount()) })
    }

    fn standing(&self, id: &ReplicaId, pending: &PendingReview) -> MoveStanding {
        let are_there = [&pending.src, &pending.dst].map(|node| self.state.node(node).is_some());
        let service = self.state.service(&id.service).filter(|it| it.desired().is_some());
        let row = service.and_then(|service| service.replicas.get(&id.slot));
        let assignment = row.and_then(|row| row.assignment.as_ref());
        let (Some(row), Some(assignment), [true, true]) = (row, assignment, are_there) else {
            return MoveStanding::Over(UnjudgedReason::Gone);
        };
        let heads_for = row.successor.as_ref().map(|next| &next.assignment.node);
        match (&assignment.node, heads_for) {
            (at, next) if *at == pending.dst && next.is_none_or(|next| *next == pending.dst) => {
                MoveStanding::Stands
            }
            (at, Some(next)) if *at == pending.src && *next == pending.dst => {
                MoveStanding::UnderWay
            }
            (at, None) if *at == pending.src => MoveStanding::Over(UnjudgedReason::Undone),
            _ => MoveStanding::Over(UnjudgedReason::MovedOn),
        }
    }

    /// What the node that the replica is on scores for it now, as if it were nowhere.
    fn score_now(&mut self, id: &ReplicaId, node: &NodeId) -> Option<u16> {
        let service = self.state.service(&id.service)?;
        let spec = service.desired()?;
        let ask = PlacementRequest::new(spec, &service.row.failures, self.policy, self.now);
        let headings = service.replicas.values().filter_map(|it| it.heading()).map(|it| &it.node);
        let mut placer = Placer::new(self.roster.as_mut()?, ask, headings);
        let score = placer.score_again(id, node);
        placer.close();
        score.map(Score::total)
    }
}
