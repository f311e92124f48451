//! The whole state in one file, and a new cell from such a file.
//!
//! A backup holds the state and where in the log it was taken, not the log: it is small, and any engine can start
//! from it. Who the servers were is left out on purpose: a restored cell must not wait for machines that are gone.
//!
//! The state is encrypted with the backup key of the cell, which is in the state itself: whoever takes a backup need not know
//! it, and whoever opens one must. What the backup is of stands before it in the clear, and is bound to what is encrypted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::{CellId, NodeId, Rejection, State, Term, Timestamp};
use plimsoll_seal::{CellKey, KeyId, UnlockKey};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::checked_file::Unreadable;
use crate::disk::{Disk, RealDisk};
use crate::embedded::OpenError;
use crate::engine::ServerId;
use crate::machine::Machine;

mod offline;
mod sealed;
#[cfg(test)]
mod tests;

/// What a backup is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub cell_id: CellId,
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
    #[error("cannot remove the other nodes from the state in the backup")]
    Refused(#[from] Rejection),
    #[error(
        "the cell has no backup key yet, without which nothing is backed up; start it with `plimsoll up`, which makes one"
    )]
    NoKey,
    #[error("{} is encrypted with backup key {key}, and {}", path.display(), given_keys(given))]
    Locked { path: PathBuf, key: KeyId, given: Vec<KeyId> },
    #[error("{} was changed after it was written, or its backup key {key} is another cell's", path.display())]
    Changed { path: PathBuf, key: KeyId },
}

fn given_keys(given: &[KeyId]) -> String {
    let given: Vec<String> = given.iter().map(ToString::to_string).collect();
    match given.as_slice() {
        [] => "no key is given".to_owned(),
        [one] => format!("the key given is {one}"),
        all => format!("the keys given are {}", all.join(", ")),
    }
}

/// What a file says of itself without its key. That is not proven before the file is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub summary: Summary,
    /// The backup key that opens it.
    pub key: KeyId,
}

/// Reads what a backup is of, and checks that nothing was lost of it on its way. It takes no key.
pub fn verify(file: &Path) -> Result<Label, Error> {
    Ok(sealed::open(&RealDisk, file)?.label)
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
    // Nothing is applied meanwhile, as with a copy; but a copy of a large state would be held as long as the file takes. It
    // is synced after the state is let go.
    stream_to(disk, file, |to| {
        machine.read_at(|state, applied| sealed::write(state, applied, term, to))
    })
}

/// Writes a state with where it was taken.
pub(crate) fn write(
    disk: &dyn Disk,
    file: &Path,
    state: &State,
    applied: u64,
    term: Term,
) -> Result<Summary, Error> {
    stream_to(disk, file, |to| sealed::write(state, applied, term, to))
}

fn stream_to(
    disk: &dyn Disk,
    file: &Path,
    content: impl FnOnce(&mut dyn io::Write) -> io::Result<Option<Summary>>,
) -> Result<Summary, Error> {
    let mut summary = None;
    let written = sealed::BACKUP.write_streamed(disk, file, |to| {
        summary = content(to)?;
        // Nothing is put under the name of a backup that holds none.
        if summary.is_some() { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    });
    match (written, summary) {
        (Ok(()), Some(summary)) => Ok(summary),
        (Err(error), None) if error.kind() == io::ErrorKind::InvalidInput => Err(Error::NoKey),
        (Err(source), _) => Err(Error::Io { action: "write", path: file.to_owned(), source }),
        (Ok(()), None) => Err(Error::NoKey),
    }
}

/// Backs up the store in a data directory that no process uses.
pub fn take_stopped(
    data_dir: &Path,
    file: &Path,
    unlock: Option<&UnlockKey>,
) -> Result<Summary, Error> {
    take_stopped_on(&real(), data_dir, file, unlock)
}

/// What a backup holds, with whichever of the keys opens it.
pub fn state(file: &Path, keys: &[CellKey]) -> Result<(Summary, State), Error> {
    sealed::open(&RealDisk, file)?.state(keys)
}

/// The backup key in the store of a data directory that no process uses.
pub fn stopped_key(data_dir: &Path, unlock: Option<&UnlockKey>) -> Result<CellKey, Error> {
    offline::stopped_key_on(&real(), data_dir, unlock)
}

/// The key that a cell's backups are encrypted with now.
pub fn key_of(state: &State) -> Option<CellKey> {
    CellKey::from_bytes(&state.access().backup_key.as_ref()?.secret.0)
}

/// Makes a data directory from what a backup holds: that of a cell of one, of this node. It does not believe in the others, whose
/// replicas it places anew. `at` is this machine's clock.
pub fn restore(
    (of, state): (Summary, State),
    data_dir: &Path,
    node: &NodeId,
    at: Timestamp,
) -> Result<Restored, Error> {
    restore_on(&real(), of, state, data_dir, node, at)
}

pub(crate) use offline::{found_on, restore_on, take_stopped_on};

fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
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
