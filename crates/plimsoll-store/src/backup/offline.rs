//! Backups of stores that no process runs, and data directories made from backups.

use std::path::Path;
use std::sync::Arc;

use plimsoll_model::{NodeId, State, Term, Timestamp};
use plimsoll_seal::{CellKey, UnlockKey};

use super::{Error, Restored, Summary, key_of};
use crate::disk::Disk;
use crate::embedded::Incarnation;
use crate::embedded::replay::{LogEnd, ReplayUntil, TERM_STEP, replay};
use crate::embedded::snapshot::{Snapshots, stream_state};
use crate::embedded::start::{self, OpenedStore, ServerIdentity};
use crate::embedded::store::Meta;
use crate::embedded::types::{Ballot, Header, Mark, MembershipRecord};
use crate::engine::{Peer, ServerId};
use crate::keys;
use crate::log::{self, Log};
use crate::recovery::{salt, survive};

/// A store that no process runs, with all that its log is known to have committed.
fn stopped(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    unlock: Option<&UnlockKey>,
) -> Result<(OpenedStore, LogEnd), Error> {
    let mut opened = start::open(disk, data_dir, None, unlock)?;
    let failed =
        |source| Error::Io { action: "read the log in", path: data_dir.to_owned(), source };
    let ended = replay(&mut opened, ReplayUntil::Committed).map_err(failed)?;
    Ok((opened, ended))
}

pub(super) fn stopped_key_on(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    unlock: Option<&UnlockKey>,
) -> Result<CellKey, Error> {
    key_of(&stopped(disk, data_dir, unlock)?.0.state).ok_or(Error::NoKey)
}

pub(crate) fn take_stopped_on(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    file: &Path,
    unlock: Option<&UnlockKey>,
) -> Result<Summary, Error> {
    let (opened, ended) = stopped(disk, data_dir, unlock)?;
    super::write(disk.as_ref(), file, &opened.state, ended.last.index, Term(ended.term))
}

pub(crate) fn restore_on(
    disk: &Arc<dyn Disk>,
    summary: Summary,
    mut state: State,
    data_dir: &Path,
    node: &NodeId,
    at: Timestamp,
) -> Result<Restored, Error> {
    must_be_empty(disk, data_dir)?;

    // The old servers may live, so this one has a number that none of them ever had.
    let server = ServerId(state.access().next_server.max(1));
    let term = summary.term.0 + TERM_STEP;
    let others = state.nodes().keys().filter(|other| *other != node);
    let given_up: Vec<NodeId> = others.cloned().collect();
    survive(&mut state, node.clone(), server, given_up.clone(), Term(term), at)?;
    found_on(disk, data_dir, node, server, &state, &summary)?;
    Ok(Restored { summary, server, lost: given_up })
}

fn must_be_empty(disk: &Arc<dyn Disk>, data_dir: &Path) -> Result<(), Error> {
    let failed = |source| Error::Io { action: "list", path: data_dir.to_owned(), source };
    if disk.list(data_dir).map_err(failed)?.is_empty() {
        return Ok(());
    }
    Err(Error::NotEmpty { dir: data_dir.to_owned() })
}

/// Makes the store of a cell of one that begins with this state, in an empty directory. Its log goes on after the entry
/// that the state is of, in a term that is later than any it had.
pub(crate) fn found_on(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    node: &NodeId,
    server: ServerId,
    state: &State,
    of: &Summary,
) -> Result<Incarnation, Error> {
    let io = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    };
    must_be_empty(disk, data_dir)?;
    disk.create_dir(data_dir).map_err(io("create", data_dir))?;
    let term = of.term.0 + TERM_STEP;
    let last = Mark { term: of.term.0, index: of.applied };
    let log_dir = start::log_dir(data_dir);
    let options = log::LogOptions { start: last.index + 1, ..log::LogOptions::default() };
    drop(Log::open(disk, &log_dir, options).map_err(start::OpenError::from)?);
    let vote = Some(Ballot { term, server, won: false });
    let meta = Meta { vote, purged: Some(last) }.encode();
    log::write_meta(disk.as_ref(), &log_dir, &meta).map_err(io("write", &log_dir))?;
    // Where others find it, it says itself once it is up.
    let roster =
        MembershipRecord::alone(server, Peer { name: node.to_string(), ..Peer::default() });
    let header = Header { last: Some(last), roster_at: Some(last), roster };
    // It is not locked: that is done by a start with an unlock key.
    let keys = keys::generate(disk.as_ref(), data_dir, None)?;
    let snapshots = Snapshots::new(disk, data_dir, &keys);
    let written = snapshots.write(&header, |to| stream_state(state, to));
    let placed = written.and_then(|written| snapshots.place(&header, &written));
    placed.map_err(io("write a snapshot to", data_dir))?;
    // Last, because without it the directory is refused as unfinished.
    // A line of its own: what becomes of the cell that the state is from is no matter of this one.
    let salt = salt();
    let incarnation = Incarnation { since: term, salt, is_heir: false, line: salt };
    let cell_id = of.cell_id.clone();
    let identity = ServerIdentity { cell_id, server, founded: true, incarnation, superseded: None };
    identity.write(disk.as_ref(), data_dir)?;
    Ok(incarnation)
}
