//! What is decided, from facts alone: how long a leader may trust its lease, when a standby campaigns, what an append
//! that got no plain answer came to, and what goes into one transaction.

use std::time::{Duration, Instant};

/// The lease of a leader may not be shorter: etcd itself grants none below about two seconds.
pub const MIN_TTL: Duration = Duration::from_secs(2);

/// Nor longer: so long would a cell be without a leader after a crash.
pub const MAX_TTL: Duration = Duration::from_mins(1);

/// How many steps one transaction may have; etcd's own limit is 128 unless it was told otherwise.
pub(crate) const MAX_OPS: usize = 120;

/// How many bytes one transaction may write; etcd's own limit is 1.5 MiB, keys and all.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// Which share of its lease a leader does not use: clocks differ in speed, and stopping takes a moment.
const MARGIN_SHARE: u32 = 10;

/// Until when a leader may decide, after a renewal that was sent at a moment and answered with a life. Etcd counts from
/// when it got the renewal, which was later, so the lease cannot have expired by then.
pub(crate) fn fence(sent: Instant, ttl: Duration) -> Instant {
    sent + ttl * (MARGIN_SHARE - 1) / MARGIN_SHARE
}

/// How long after a renewal the next one is sent.
pub(crate) fn renew_after(ttl: Duration) -> Duration {
    ttl / 3
}

/// How long after a renewal that failed it is tried again: several times before the fence.
pub(crate) fn retry_after(ttl: Duration) -> Duration {
    ttl / 20
}

/// The leader's key, as last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaderKey {
    pub(crate) term: i64,
    pub(crate) lease: i64,
}

/// What a standby does about the leader's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandbyAction {
    /// Somebody leads.
    Wait,
    /// Nobody does.
    Campaign,
    /// The key is ours: we won without learning of it, or our lease outlived our doubts. Nobody led in between.
    Lead { term: i64 },
}

pub(crate) fn standby(leader: Option<LeaderKey>, lease: i64) -> StandbyAction {
    match leader {
        None => StandbyAction::Campaign,
        Some(seen) if seen.lease == lease => StandbyAction::Lead { term: seen.term },
        Some(_) => StandbyAction::Wait,
    }
}

/// What a guarded append came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppendVerdict {
    Committed,
    /// Another leads, or nobody: this batch was not written, and never will be, because the key that guards it cannot
    /// come back with the same revision.
    Deposed,
    /// The key is ours and the place is free, and yet it was not written: what lies before it is not there any more.
    Hole,
    /// The key is ours and yet the place is taken: somebody writes who must not.
    Broken,
}

/// `leader` is the revision that created the key found there, `first` the term of the entry found in the batch's place.
pub(crate) fn verdict(
    term: i64,
    held: bool,
    leader: Option<i64>,
    first: Option<u64>,
) -> AppendVerdict {
    if held {
        return AppendVerdict::Committed;
    }
    // An earlier try had reached etcd. A leader writes one batch at a time, so an entry of its term is that batch.
    if first.is_some_and(|first| i64::try_from(first) == Ok(term)) {
        return AppendVerdict::Committed;
    }
    match first {
        _ if leader != Some(term) => AppendVerdict::Deposed,
        Some(_) => AppendVerdict::Broken,
        None => AppendVerdict::Hole,
    }
}

/// How many of the proposals that wait, in order, fit into one transaction; at least one.
pub(crate) fn batch(sizes: impl IntoIterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let mut count = 0;
    for size in sizes.into_iter().take(MAX_OPS) {
        bytes += size;
        if count > 0 && bytes > MAX_BYTES {
            break;
        }
        count += 1;
    }
    count
}

/// What to do with an entry that arrives when so many are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryArrival {
    Apply,
    /// It was applied before.
    Known,
    /// Entries before it are missing: they went into a snapshot.
    Gap,
}

pub(crate) fn arrival(applied: u64, index: u64) -> EntryArrival {
    match index.checked_sub(applied) {
        None | Some(0) => EntryArrival::Known,
        Some(1) => EntryArrival::Apply,
        Some(_) => EntryArrival::Gap,
    }
}

/// The last entry that may be deleted once a snapshot holds all up to an index: a share of them stays, so that a
/// standby that was away for a moment needs no snapshot, and the last one always, so that the log is seen to go on.
pub(crate) fn deletable(snapshot: u64, every: u64) -> u64 {
    snapshot.saturating_sub((every / 10).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_stops_before_its_lease_can_have_expired() {
        let sent = Instant::now();
        for seconds in [2, 5, 15, 60] {
            let ttl = Duration::from_secs(seconds);
            let fence = fence(sent, ttl);
            assert!(fence < sent + ttl, "before it ends");
            assert!(fence > sent + renew_after(ttl) * 2, "and not before a renewal was missed");
            assert!(sent + renew_after(ttl) + retry_after(ttl) * 4 < fence, "with tries between");
        }
    }

    #[test]
    fn a_standby_campaigns_when_the_key_is_gone_and_leads_when_it_is_its_own() {
        let of = |lease| Some(LeaderKey { term: 40, lease });
        assert_eq!(standby(None, 7), StandbyAction::Campaign);
        assert_eq!(standby(of(8), 7), StandbyAction::Wait);
        assert_eq!(standby(of(7), 7), StandbyAction::Lead { term: 40 });
    }

    #[test]
    fn an_append_without_a_plain_answer_is_judged_by_what_is_there() {
        for (case, held, leader, first, expected) in [
            ("it was written", true, None, None, AppendVerdict::Committed),
            ("an earlier try was", false, Some(40), Some(40), AppendVerdict::Committed),
            ("and then we were deposed", false, Some(90), Some(40), AppendVerdict::Committed),
            ("and the key is gone", false, None, Some(40), AppendVerdict::Committed),
            ("another leads", false, Some(90), None, AppendVerdict::Deposed),
            ("another leads and wrote", false, Some(90), Some(90), AppendVerdict::Deposed),
            ("nobody leads", false, None, None, AppendVerdict::Deposed),
            ("what lies before is gone", false, Some(40), None, AppendVerdict::Hole),
            ("a stranger writes", false, Some(40), Some(39), AppendVerdict::Broken),
        ] {
            assert_eq!(verdict(40, held, leader, first), expected, "{case}");
        }
    }

    #[test]
    fn a_batch_keeps_both_of_etcds_limits() {
        for (case, sizes, expected) in [
            ("small ones", vec![100; 7], 7),
            ("more than etcd's steps", vec![100; 500], MAX_OPS),
            ("more than its bytes", vec![MAX_BYTES / 2, MAX_BYTES / 2, 1], 2),
            ("one that is large goes alone", vec![MAX_BYTES + 9, 1], 1),
            ("and after others", vec![1, MAX_BYTES], 1),
            ("none", vec![], 0),
        ] {
            assert_eq!(batch(sizes), expected, "{case}");
        }
    }

    #[test]
    fn an_entry_is_applied_once_and_none_is_passed_over() {
        let found = [8, 9, 10, 11].map(|index| arrival(9, index));
        assert_eq!(
            found,
            [EntryArrival::Known, EntryArrival::Known, EntryArrival::Apply, EntryArrival::Gap]
        );
    }

    #[test]
    fn the_last_entry_outlives_every_snapshot() {
        for (snapshot, every, expected) in [(0, 10, 0), (5, 2, 4), (100, 100, 90), (3, 100, 0)] {
            assert_eq!(deletable(snapshot, every), expected);
        }
    }
}
