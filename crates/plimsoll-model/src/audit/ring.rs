//! The ring itself: the newest events, numbered, with what says the same again counted and not repeated.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{AuditEvent, AuditKind, Author};
use crate::rebalance::RepeatCount;
use crate::units::Timestamp;

/// How many events the ring keeps; the oldest go first. At 150 bytes an event this is some 1.5 MB of state.
pub const MAX_AUDIT: usize = 10_000;

/// The last [`MAX_AUDIT`] events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditRing {
    next_seq: u64,
    events: VecDeque<AuditEvent>,
}

impl AuditRing {
    /// Adds events, which is not for nothing, and returns the number of the last.
    pub(crate) fn extend(&mut self, at: Timestamp, by: &Author, mut kinds: Vec<AuditKind>) -> u64 {
        kinds.retain(|what| !self.folds(what, at));
        let new = kinds.len();
        // What the ring would have dropped again before anyone could read it is only counted.
        let unread = new.saturating_sub(MAX_AUDIT);
        let excess = (self.events.len() + new - unread).saturating_sub(MAX_AUDIT);
        self.events.drain(..excess);
        self.next_seq += unread as u64;
        for what in kinds.into_iter().skip(unread) {
            self.events.push_back(AuditEvent { seq: self.next_seq, at, by: by.clone(), what });
            self.next_seq += 1;
        }
        self.next_seq.saturating_sub(1)
    }

    /// Counts a skip with the one before it, where it says the same again.
    fn folds(&mut self, what: &AuditKind, at: Timestamp) -> bool {
        let AuditKind::RebalanceSkipped { skipped: new, .. } = what else { return false };
        let of_rebalancer = self.events.iter_mut().rev().find_map(|event| match &mut event.what {
            AuditKind::RebalanceSkipped { skipped, times } => Some(Some((skipped, times))),
            AuditKind::RebalanceMoved { .. } => Some(None),
            _ => None,
        });
        let Some((last, times)) = of_rebalancer.flatten().filter(|(last, _)| last.repeats(new))
        else {
            return false;
        };
        last.clone_from(new);
        *times = RepeatCount { count: times.count.saturating_add(1), last_at: at };
        true
    }

    /// Oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &AuditEvent> + ExactSizeIterator {
        self.events.iter()
    }

    /// Events from `seq` on, as far back as the ring goes.
    pub fn since(&self, seq: u64) -> impl Iterator<Item = &AuditEvent> {
        let first = self.next_seq - self.events.len() as u64;
        let skip = usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX);
        self.events.iter().skip(skip)
    }

    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }
}
