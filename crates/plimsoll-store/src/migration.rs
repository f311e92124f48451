//! A cell that goes to another engine, or comes from one: the whole state of a stopped server, and a store that begins with
//! such a state. Unlike with a backup the nodes of the cell stay what they are.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::{NodeId, State, Term};
use plimsoll_seal::UnlockKey;
use thiserror::Error;

use crate::backup::{self, Summary, found_on};
use crate::disk::{Disk, RealDisk};
use crate::embedded::replay::{ReplayUntil, replay};
use crate::embedded::start::{self, ServerIdentity};
use crate::embedded::{Incarnation, OpenError};
use crate::engine::ServerId;

/// A store that no process runs, with all that its log holds.
pub struct Stopped {
    pub state: State,
    /// Its last entry. Of several servers the one whose last entry has the highest term, and then the highest number, has
    /// all that was ever acknowledged.
    pub last: u64,
    pub last_term: Term,
    /// The newest term that it has seen.
    pub term: Term,
    pub incarnation: Incarnation,
    /// Held, so that nobody starts it meanwhile.
    _held: Box<dyn Send + Sync>,
}

impl std::fmt::Debug for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopped").field("last", &self.last).finish_non_exhaustive()
    }
}

/// Why a store cannot be read.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{} has no log: its node is not a server", dir.display())]
    NoLog { dir: PathBuf },
    #[error("the cell was recovered without the server in {}", dir.display())]
    Superseded { dir: PathBuf },
    #[error("cannot read the log in {}", dir.display())]
    Io { dir: PathBuf, source: io::Error },
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// Reads the store of a stopped server to the end of its log.
pub fn read(store: &Path, unlock: Option<&UnlockKey>) -> Result<Stopped, Error> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let dir = || store.to_owned();
    let mut opened = start::open(&disk, store, None, unlock)?;
    let failed = |source| Error::Io { dir: dir(), source };
    let ended = replay(&mut opened, ReplayUntil::End).map_err(failed)?;
    let ServerIdentity { server, incarnation, superseded, .. } = opened.identity.clone();
    if superseded.is_some() {
        return Err(Error::Superseded { dir: dir() });
    }
    if !ended.roster.peers.contains_key(&server) {
        return Err(Error::NoLog { dir: dir() });
    }
    Ok(Stopped {
        state: opened.state,
        last: ended.last.index,
        last_term: Term(ended.last.term),
        term: Term(ended.term),
        incarnation,
        _held: Box::new(opened.store),
    })
}

/// Makes the store of a cell of one, of this node, that begins with this state. The directory must be empty.
pub fn found(
    store: &Path,
    node: &NodeId,
    server: ServerId,
    state: &State,
    of: &Summary,
) -> Result<Incarnation, backup::Error> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    found_on(&disk, store, node, server, state, of)
}
