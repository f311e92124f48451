//! The end of the log as this server knows it, to tell an etcd that has it from one that lost it: emptied, restored from an
//! older backup, or with entries deleted by hand.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use plimsoll_etcd::{KeyValue, When};

use crate::layout::Layout;

/// A last entry up to this size is compared whole before the next one is written; of a larger one the revision that wrote it
/// is. Sent with every write, so it must be small beside what is written.
const MAX_COMPARED: usize = 8 << 10;

/// What is known of the end of the log. All who read and write it for this server share one.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownTip(Arc<Mutex<Tip>>);

#[derive(Debug, Clone, Default)]
struct Tip {
    /// The newest revision that etcd was seen to have.
    revision: i64,
    /// The last entry that was applied.
    index: u64,
    last: Last,
    /// An entry that was seen to be deleted though no snapshot held it.
    hole: Option<u64>,
}

/// What stands for the last entry in etcd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Unknown,
    /// No entry: the log goes on after a snapshot, as of a cell that came from another engine.
    Snapshot {
        created: i64,
    },
    Entry {
        created: i64,
        value: Bytes,
    },
}

/// How an entry in etcd compares to the last one that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TipMatch {
    Same,
    Other,
    /// It is not the last one.
    Elsewhere,
}

impl KnownTip {
    fn tip(&self) -> MutexGuard<'_, Tip> {
        self.0.lock().expect("no holder of the tip panics")
    }

    /// This entry was applied.
    pub(crate) fn reach(&self, index: u64, created: i64, value: Bytes) {
        let mut tip = self.tip();
        (tip.index, tip.last) = (index, Last::Entry { created, value });
        tip.revision = tip.revision.max(created);
    }

    /// A snapshot was taken over.
    pub(crate) fn leap(&self, index: u64, created: i64) {
        let mut tip = self.tip();
        (tip.index, tip.last) = (index, Last::Snapshot { created });
    }

    /// Etcd is at this revision. Returns the one that was seen before, where that is newer: etcd went back.
    pub(crate) fn see(&self, revision: i64) -> Option<i64> {
        let mut tip = self.tip();
        let before = tip.revision;
        tip.revision = before.max(revision);
        (revision < before).then_some(before)
    }

    /// Compares what is found in etcd to what was applied last; where only its index was known, takes it for that.
    pub(crate) fn compare(&self, index: u64, applied: u64, found: &KeyValue) -> TipMatch {
        if index != applied {
            return TipMatch::Elsewhere;
        }
        let mut tip = self.tip();
        let last = Last::Entry { created: found.create_revision, value: found.value.clone() };
        match &tip.last {
            // What was written last is applied a moment later.
            _ if tip.index > applied => TipMatch::Elsewhere,
            Last::Entry { .. } if tip.index == applied && tip.last != last => TipMatch::Other,
            _ => {
                (tip.index, tip.last) = (index, last);
                TipMatch::Same
            }
        }
    }

    pub(crate) fn set_hole(&self, hole: Option<u64>) {
        self.tip().hole = hole;
    }

    pub(crate) fn hole(&self) -> Option<u64> {
        self.tip().hole
    }

    /// What must hold in etcd for an entry to be written after the last one.
    pub(crate) fn guard(&self, layout: &Layout) -> Option<When> {
        let tip = self.tip();
        match &tip.last {
            Last::Unknown => None,
            Last::Snapshot { created } => Some(When::created_at(layout.snapshot(), *created)),
            Last::Entry { value, .. } if value.len() <= MAX_COMPARED => {
                Some(When::has_value(layout.entry(tip.index), value.clone()))
            }
            Last::Entry { created, .. } => {
                Some(When::created_at(layout.entry(tip.index), *created))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(created: i64, value: &'static str) -> KeyValue {
        KeyValue { create_revision: created, value: value.into(), ..KeyValue::default() }
    }

    #[test]
    fn an_entry_in_the_place_of_the_last_one_is_told_from_it() {
        let tip = KnownTip::default();
        tip.reach(7, 40, "seven".into());
        for (case, index, found, expected) in [
            ("as it was", 7, entry(40, "seven"), TipMatch::Same),
            ("another command", 7, entry(40, "eight"), TipMatch::Other),
            ("written at another time", 7, entry(41, "seven"), TipMatch::Other),
            ("not the last", 6, entry(39, "six"), TipMatch::Elsewhere),
        ] {
            assert_eq!(tip.compare(index, 7, &found), expected, "{case}");
        }
        // Applied aside, by one who was gone before it could say so.
        assert_eq!(tip.compare(8, 8, &entry(44, "eight")), TipMatch::Same);
        assert_eq!(tip.compare(8, 8, &entry(45, "nine")), TipMatch::Other);
        tip.leap(90, 12);
        assert_eq!(tip.compare(90, 90, &entry(60, "ninety")), TipMatch::Same);
    }

    #[test]
    fn a_revision_that_is_older_than_one_seen_before_is_noticed() {
        let tip = KnownTip::default();
        assert_eq!([tip.see(5), tip.see(9), tip.see(9), tip.see(8)], [None, None, None, Some(9)]);
        tip.reach(1, 20, "one".into());
        assert_eq!(tip.see(19), Some(20));
    }
}
