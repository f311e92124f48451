//! The whole state in one file, and a new cell from such a file.
//!
//! A backup holds the state and where in the log it was taken, not the log: it is small, and any engine can start
//! from it. Who the servers were is left out on purpose: a restored cell must not wait for machines that are gone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::{ClusterId, NodeId, Rejection, State, Term, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::disk::{Disk, RealDisk};
use crate::embedded::OpenError;
use crate::embedded::snapshot::{StateBytes, encode_state};
use crate::engine::ServerId;
use crate::level;
use crate::machine::Machine;
use crate::sealed::{Kind, Unreadable};

mod offline;

const BACKUP: Kind = Kind { magic: *b"plimsbak", format: 1, name: "backup" };

/// What a backup is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub cluster: ClusterId,
    /// The last entry that it holds.
    pub applied: u64,
    pub term: Term,
}

/// What a restore made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    pub summary: Summary,
    pub server: ServerId,
    /// The nodes of the old cell that the new one does without.
    pub lost: Vec<NodeId>,
}

/// Why a backup could not be made or restored. Nothing was changed.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{} is not empty; restore into a new data directory", dir.display())]
    NotEmpty { dir: PathBuf },
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    File(#[from] Unreadable),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("the state in the backup does not go on without its other nodes")]
    Refused(#[from] Rejection),
}

/// Reads a backup and checks it whole.
pub fn verify(file: &Path) -> Result<Summary, Error> {
    Ok(Content::read(&RealDisk, file)?.summary)
}

/// Backs up the state that an engine has applied.
pub fn take(machine: &Machine, term: Term, file: &Path) -> Result<Summary, Error> {
    take_on(&RealDisk, machine, term, file)
}

pub(crate) fn take_on(
    disk: &dyn Disk,
    machine: &Machine,
    term: Term,
    file: &Path,
) -> Result<Summary, Error> {
    machine.read_at(|state, applied| Content::of(state, applied, term)).write(disk, file)
}

/// Backs up the store in a data directory that no process uses.
pub fn take_stopped(data_dir: &Path, file: &Path) -> Result<Summary, Error> {
    take_stopped_on(&real(), data_dir, file)
}

/// The nodes that a backup knows.
pub fn nodes(file: &Path) -> Result<Vec<NodeId>, Error> {
    let content = Content::read(&RealDisk, file)?;
    let state =
        level::decode::<State>(&content.state).map_err(|why| Unreadable::undecoded(file, &why))?;
    Ok(state.nodes().keys().cloned().collect())
}

/// Makes a data directory from a backup: that of a cell of one, of this node. It does not believe in the others, whose
/// replicas it places anew. `at` is this machine's clock.
pub fn restore(
    file: &Path,
    data_dir: &Path,
    node: &NodeId,
    at: Timestamp,
) -> Result<Restored, Error> {
    restore_on(&real(), file, data_dir, node, at)
}

pub(crate) use offline::{found_on, restore_on, take_stopped_on};

fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

/// A backup in memory.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) summary: Summary,
    pub(crate) state: StateBytes,
}

impl Content {
    pub(crate) fn of(state: &State, applied: u64, term: Term) -> Self {
        let summary = Summary { cluster: state.cluster().clone(), applied, term };
        Self { summary, state: encode_state(state) }
    }

    pub(crate) fn write(self, disk: &dyn Disk, file: &Path) -> Result<Summary, Error> {
        let mut body = postcard::to_stdvec(&self.summary).expect("a summary can be written");
        body.extend_from_slice(&self.state);
        let written = BACKUP.write(disk, file, &body);
        let io = |source| Error::Io { action: "write", path: file.to_owned(), source };
        written.map_err(io)?;
        Ok(self.summary)
    }

    pub(crate) fn read(disk: &dyn Disk, file: &Path) -> Result<Self, Error> {
        let missing = || Error::Io {
            action: "read",
            path: file.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        };
        let body = BACKUP.read(disk, file)?.ok_or_else(missing)?;
        let damaged = |error: postcard::Error| damaged(file, &error);
        let (summary, state) = postcard::take_from_bytes(&body).map_err(damaged)?;
        level::decode::<State>(state).map_err(|why| Unreadable::undecoded(file, &why))?;
        Ok(Self { summary, state: Arc::from(state) })
    }
}

fn damaged(file: &Path, error: &postcard::Error) -> Unreadable {
    let what = format!("its content cannot be understood ({error})");
    Unreadable::Damaged { path: file.to_owned(), what }
}

/// An error and what caused it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
