//! What is remembered of automatic moves until they are looked at again, and of how they fared.

use super::Txn;
use crate::audit::AuditKind;
use crate::ids::ReplicaId;
use crate::review::{MAX_PENDING_REVIEWS, MoveReview, PendingReview, ReviewResult, UnjudgedReason};

impl Txn<'_> {
    /// A loop begins a move, which is to be looked at again. One move of a replica is waited for: a newer one ends the wait for
    /// the one before it.
    pub(super) fn expect_review(&mut self, id: &ReplicaId, pending: PendingReview) {
        let by = pending.predicted.by();
        let mut record = self.state.reviews.of(by).clone();
        record.moved_at = Some(self.at);
        self.set_loop_record(by, record);
        if let Some(old) = self.state.reviews.pending.get(id) {
            let result = ReviewResult::NotJudged { why: UnjudgedReason::MovedOn };
            let review = old.reviewed(id, result);
            self.review_move(&review);
        }
        if self.state.reviews.pending.len() < MAX_PENDING_REVIEWS {
            self.set_pending_review(id, Some(pending));
        }
    }

    /// Another leader may have been faster: then nothing waits for it any more.
    pub(super) fn review_move(&mut self, review: &MoveReview) {
        let pending = self.state.reviews.pending.get(&review.replica);
        if pending.is_none_or(|pending| !pending.is_of(review)) {
            return;
        }
        self.set_pending_review(&review.replica, None);
        let mut record = self.state.reviews.of(review.by).clone();
        let change = record.note(review, self.at);
        self.set_loop_record(review.by, record);
        self.audit(AuditKind::MoveReviewed { review: Box::new(review.clone()) });
        if let Some(change) = change {
            self.audit(AuditKind::PaceChanged { change });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::audit::AuditKind;
    use crate::command::{AuditEntry, Change};
    use crate::rebalance::{Dimension, Relief};
    use crate::review::{MAX_PENDING_REVIEWS, MovingLoop, ReviewResult, UnjudgedReason};
    use crate::testkit::{Cell, cell, cpus, node_id, replica_id, spread};
    use crate::{Millis, Pressure, Writer};

    fn begin(cell: &mut Cell, nth: usize) {
        let share = Pressure::percent(20);
        let relief = Relief {
            replica: replica_id(&format!("d/web/{nth}")),
            src: node_id("ash"),
            dst: node_id("birch"),
            dominant: Dimension::Cpu,
            relief: share,
            score: 0,
            move_cost: share,
            src_before: Pressure::percent(90),
            src_after: Pressure::percent(70),
            dst_before: share,
            dst_after: share,
            refused: Vec::new(),
        };
        let entry = AuditEntry::Relieve(Box::new(relief));
        cell.change(Writer::Rebalancer, Change::Record { entry });
    }

    fn two() -> Cell {
        cell().node("ash", cpus(4)).node("birch", cpus(4)).deploy("d", [("web", spread(1))])
    }

    fn last_words(cell: &Cell) -> Vec<&str> {
        cell.state.audit().events().rev().take(2).map(|event| event.what.word()).collect()
    }

    #[test]
    fn a_move_is_waited_for_once_and_judged_once() {
        let mut cell = two();
        begin(&mut cell, 1);
        let id = replica_id("d/web/1");
        let pending = cell.state.reviews().pending()[&id].clone();
        assert_eq!(pending.began, cell.now);
        assert_eq!(cell.state.reviews().of(MovingLoop::Rebalancer).moved_at, Some(cell.now));
        let review = pending.reviewed(&id, ReviewResult::Realised { gain: 150_000 });
        let mut cell = cell.later(Millis::minutes(10));
        for _ in 0..2 {
            cell.change(Writer::Scheduler, Change::ReviewMove { review: Box::new(review.clone()) });
            let record = cell.state.reviews().of(MovingLoop::Rebalancer);
            assert_eq!((record.held, record.predicted, record.realised), (1, 200_000, 150_000));
            assert_eq!(last_words(&cell), ["move_reviewed", "rebalance_moved"]);
        }
        assert!(cell.state.reviews().pending().is_empty());
    }

    #[test]
    fn a_newer_move_of_a_replica_ends_the_wait_for_the_one_before() {
        let mut cell = two();
        begin(&mut cell, 1);
        let mut cell = cell.later(Millis::minutes(10));
        begin(&mut cell, 1);
        let pending = &cell.state.reviews().pending()[&replica_id("d/web/1")];
        assert_eq!(pending.began, cell.now);
        assert_eq!(last_words(&cell), ["rebalance_moved", "move_reviewed"]);
        let events: Vec<_> = cell.state.audit().events().rev().take(2).collect();
        let AuditKind::MoveReviewed { review } = &events[1].what else { panic!("{events:?}") };
        assert_eq!(review.result, ReviewResult::NotJudged { why: UnjudgedReason::MovedOn });
    }

    #[test]
    fn what_is_waited_for_has_a_bound() {
        let mut cell = two();
        for nth in 0..MAX_PENDING_REVIEWS + 10 {
            begin(&mut cell, nth);
        }
        assert_eq!(cell.state.reviews().pending().len(), MAX_PENDING_REVIEWS);
    }
}
