//! The log of a stopped server, applied to the state of its snapshot.

use std::io;

use openraft::EntryPayload;

use super::start::OpenedStore;
use super::state::decode_command;
use super::types::{Mark, MembershipRecord};

/// How far the terms of a restored or recovered cell lie above those it comes from. The old one may have gone on
/// electing leaders, and nodes refuse assignments of terms older than they have seen.
pub const TERM_STEP: u64 = 1_000_000;

/// How much of the log is read at once.
const READ_BYTES: usize = 16 << 20;

/// How much of a log is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplayUntil {
    /// What is known to be committed.
    Committed,
    /// All of it: an entry may be committed though this server was never told.
    End,
}

/// Where a log ends.
#[derive(Debug)]
pub(crate) struct LogEnd {
    pub(crate) last: Mark,
    pub(crate) roster: MembershipRecord,
    /// The newest term the server has seen.
    pub(crate) term: u64,
}

/// Applies entries to the opened state.
pub(crate) fn replay(opened: &mut OpenedStore, until: ReplayUntil) -> io::Result<LogEnd> {
    let OpenedStore { identity, store, header, state, .. } = opened;
    let mut last = header.last.unwrap_or(Mark { term: 0, index: 0 });
    let mut roster = header.roster.clone();
    let mut next = header.last.map_or(0, |mark| mark.index + 1);
    loop {
        // A voter that is alone commits what it writes; others only know what they were told.
        let is_alone = roster.is_alone(identity.server) || roster.voters.is_empty();
        let end = if is_alone || until == ReplayUntil::End {
            store.range().end
        } else {
            store.committed().map_or(0, |index| index + 1)
        };
        let entries = store.entries(next..end, READ_BYTES)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            last = Mark::from(&entry.log_id);
            next = last.index + 1;
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Membership(membership) => {
                    roster = MembershipRecord::from(&membership);
                    // From here on other rules may hold for what is committed.
                    break;
                }
                EntryPayload::Normal(proposal) => {
                    let command = decode_command(last.index, &proposal.0)?;
                    // A refusal was the command's outcome and changes nothing.
                    state.apply(&command).ok();
                }
            }
        }
    }
    let term = store.meta().vote.map_or(last.term, |vote| vote.term.max(last.term));
    Ok(LogEnd { last, roster, term })
}
