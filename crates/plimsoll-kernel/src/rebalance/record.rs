//! What a cycle writes into the log: the move and its numbers, or why there is none. One entry, and none of a calm cycle.

use plimsoll_model::rebalance::RepeatCount;
use plimsoll_model::{AuditEntry, AuditKind, Change, Guarded, Timestamp};

use super::CycleOutcome;

impl CycleOutcome {
    pub fn batch(self) -> Vec<Guarded> {
        let record = |entry: AuditEntry| Change::Record { entry }.free();
        match self {
            Self::Calm => Vec::new(),
            Self::Moved { change, relief } => vec![*change, record(AuditEntry::Relieve(relief))],
            Self::Skipped(skipped) => vec![record(AuditEntry::Skip(skipped))],
        }
    }

    /// What the audit will say of it.
    pub fn audit_kind(&self, at: Timestamp) -> Option<AuditKind> {
        match self {
            Self::Calm => None,
            Self::Moved { relief, .. } => {
                Some(AuditKind::RebalanceMoved { relief: relief.clone() })
            }
            Self::Skipped(skipped) => {
                let (skipped, times) = (skipped.clone(), RepeatCount { count: 1, last_at: at });
                Some(AuditKind::RebalanceSkipped { skipped, times })
            }
        }
    }
}
