//! Backups of stores that no process runs, and data directories made from backups.

use std::path::Path;
use std::sync::Arc;

use openraft::EntryPayload;
use plimsoll_model::Term;

use super::{Content, Error, Summary};
use crate::disk::Disk;
use crate::embedded::snapshot::Snapshots;
use crate::embedded::start::{self, Identity, Opened};
use crate::embedded::state::decode_command;
use crate::embedded::store::Meta;
use crate::embedded::types::{Ballot, Header, Mark, Roster};
use crate::engine::{Peer, ServerId};
use crate::log::{self, Log};

/// How far the terms of a restored cell lie above those of its backup. The old cell may have gone on electing
/// leaders after the backup was taken, and nodes refuse assignments of terms older than they have seen.
const TERM_STEP: u64 = 1_000_000;

/// How much of the log is read at once.
const READ_BYTES: usize = 16 << 20;

pub(crate) fn take_stopped_on(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    file: &Path,
) -> Result<Summary, Error> {
    let Opened { identity, store, header, mut state, .. } = start::open(disk, data_dir, None)?;
    let failed =
        |source| Error::Io { action: "read the log in", path: data_dir.to_owned(), source };
    let mut last = header.last.unwrap_or(Mark { term: 0, index: 0 });
    let mut roster = header.roster;
    let mut next = header.last.map_or(0, |mark| mark.index + 1);
    loop {
        // A voter that is alone commits what it writes; others only know what they were told.
        let end = if roster.is_alone(identity.server) || roster.voters.is_empty() {
            store.range().end
        } else {
            store.committed().map_or(0, |index| index + 1)
        };
        let entries = store.entries(next..end, READ_BYTES).map_err(failed)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            last = Mark::from(&entry.log_id);
            next = last.index + 1;
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Membership(membership) => {
                    roster = Roster::from(&membership);
                    // From here on other rules may hold for what is committed.
                    break;
                }
                EntryPayload::Normal(proposal) => {
                    let command = decode_command(last.index, &proposal.0).map_err(failed)?;
                    // A refusal was the command's outcome and changes nothing.
                    state.apply(&command).ok();
                }
            }
        }
    }
    let term = store.meta().vote.map_or(last.term, |vote| vote.term.max(last.term));
    Content::of(&state, last.index, Term(term)).write(disk.as_ref(), file)
}

pub(crate) fn restore_on(
    disk: &Arc<dyn Disk>,
    file: &Path,
    data_dir: &Path,
    server: ServerId,
    peer: Peer,
) -> Result<Summary, Error> {
    let Content { summary, state } = Content::read(disk.as_ref(), file)?;
    let io = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    };
    if !disk.list(data_dir).map_err(io("list", data_dir))?.is_empty() {
        return Err(Error::NotEmpty { dir: data_dir.to_owned() });
    }
    disk.create_dir(data_dir).map_err(io("create", data_dir))?;

    // The new log begins after the entry that the backup ends with, so that indexes go on where they were.
    let last = Mark { term: summary.term.0, index: summary.applied };
    let log_dir = start::log_dir(data_dir);
    let options = log::Options { start: last.index + 1, ..log::Options::default() };
    drop(Log::open(disk, &log_dir, options).map_err(start::OpenError::from)?);
    let vote = Some(Ballot { term: last.term + TERM_STEP, server, won: false });
    let meta = Meta { vote, purged: Some(last) }.encode();
    log::write_meta(disk.as_ref(), &log_dir, &meta).map_err(io("write", &log_dir))?;
    let roster = Roster::alone(server, peer);
    let header = Header { last: Some(last), roster_at: Some(last), roster };
    let written = Snapshots::new(disk, data_dir).write(&header, &state);
    written.map_err(io("write a snapshot to", data_dir))?;
    // Last, because without it the directory is refused as unfinished.
    let identity = Identity { cluster: summary.cluster.clone(), server, founded: true };
    identity.write(disk.as_ref(), data_dir)?;
    Ok(summary)
}
