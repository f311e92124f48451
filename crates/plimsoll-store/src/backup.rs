//! The whole state in one file, and a new cell from such a file.
//!
//! A backup holds the state and where in the log it was taken, not the log: it is small, and any engine can start
//! from it. Who the servers were is left out on purpose: a restored cell must not wait for machines that are gone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::{CellId, NodeId, Rejection, State, Term, Timestamp};
use plimsoll_seal::UnlockKey;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::checked_file::{FileFormat, Unreadable};
use crate::disk::{Disk, RealDisk};
use crate::embedded::OpenError;
use crate::embedded::wire::MAX_NUMBER;
use crate::engine::ServerId;
use crate::level;
use crate::machine::Machine;

mod offline;

const BACKUP: FileFormat = FileFormat { magic: *b"plimsbak", format: 1, name: "backup" };

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
}

/// Reads a backup and checks it whole.
pub fn verify(file: &Path) -> Result<Summary, Error> {
    Ok(BackupContent::read(&RealDisk, file)?.summary)
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
    stream_to(disk, file, |to| machine.read_at(|state, applied| stream(state, applied, term, to)))
}

/// Writes a state with where it was taken.
pub(crate) fn write(
    disk: &dyn Disk,
    file: &Path,
    state: &State,
    applied: u64,
    term: Term,
) -> Result<Summary, Error> {
    stream_to(disk, file, |to| stream(state, applied, term, to))
}

fn stream_to(
    disk: &dyn Disk,
    file: &Path,
    content: impl FnOnce(&mut dyn io::Write) -> io::Result<Summary>,
) -> Result<Summary, Error> {
    let mut summary = None;
    let written = BACKUP.write_streamed(disk, file, |to| {
        summary = Some(content(to)?);
        Ok(())
    });
    let io = |source| Error::Io { action: "write", path: file.to_owned(), source };
    written.map_err(io)?;
    Ok(summary.expect("what was written has a summary"))
}

fn stream(state: &State, applied: u64, term: Term, to: &mut dyn io::Write) -> io::Result<Summary> {
    let summary = Summary { cell_id: state.cell_id().clone(), applied, term };
    postcard::to_io(&summary, &mut *to).map_err(io::Error::other)?;
    postcard::to_io(state, to).map_err(io::Error::other)?;
    Ok(summary)
}

/// Backs up the store in a data directory that no process uses.
pub fn take_stopped(
    data_dir: &Path,
    file: &Path,
    unlock: Option<&UnlockKey>,
) -> Result<Summary, Error> {
    take_stopped_on(&real(), data_dir, file, unlock)
}

/// The nodes that a backup knows.
pub fn nodes(file: &Path) -> Result<Vec<NodeId>, Error> {
    let content = BackupContent::read(&RealDisk, file)?;
    let state =
        level::decode::<State>(&content.state).map_err(|why| Unreadable::undecoded(file, &why))?;
    Ok(state.nodes().keys().cloned().collect())
}

/// What a backup holds.
pub fn state(file: &Path) -> Result<(Summary, State), Error> {
    let BackupContent { summary, state } = BackupContent::read(&RealDisk, file)?;
    let state = level::decode(&state).map_err(|why| Unreadable::undecoded(file, &why))?;
    Ok((summary, state))
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
pub(crate) struct BackupContent {
    pub(crate) summary: Summary,
    pub(crate) state: Vec<u8>,
}

impl BackupContent {
    pub(crate) fn read(disk: &dyn Disk, file: &Path) -> Result<Self, Error> {
        let missing = || Error::Io {
            action: "read",
            path: file.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        };
        let mut body = BACKUP.read(disk, file)?.ok_or_else(missing)?;
        let damaged = |error: postcard::Error| damaged(file, &error);
        let (summary, state) = postcard::take_from_bytes::<Summary>(&body).map_err(damaged)?;
        // What a restore adds to them must not overflow.
        if summary.term.0 >= MAX_NUMBER || summary.applied >= MAX_NUMBER {
            let what = "it is of a term or an entry that no cell reaches".to_owned();
            return Err(Unreadable::Damaged { path: file.to_owned(), what }.into());
        }
        level::decode::<State>(state).map_err(|why| Unreadable::undecoded(file, &why))?;
        let before = body.len() - state.len();
        body.drain(..before);
        Ok(Self { summary, state: body })
    }
}

fn damaged(file: &Path, error: &postcard::Error) -> Unreadable {
    let what = format!("cannot decode its content ({error})");
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use plimsoll_model::testkit::{cpus, node_id};
    use plimsoll_model::{Author, Change, Command, Writer};

    use super::*;
    use crate::disk::DiskFile;
    use crate::disk::sim::SimDisk;

    /// Notes how much is written at a time: that much was in memory.
    #[derive(Debug)]
    struct Gauge {
        inner: SimDisk,
        largest: Arc<AtomicUsize>,
    }

    #[derive(Debug)]
    struct GaugeFile(Arc<dyn DiskFile>, Arc<AtomicUsize>);

    impl Disk for Gauge {
        fn create_dir(&self, dir: &Path) -> io::Result<()> {
            self.inner.create_dir(dir)
        }
        fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            self.inner.list(dir)
        }
        fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
            Ok(Arc::new(GaugeFile(self.inner.create(path)?, Arc::clone(&self.largest))))
        }
        fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
            self.inner.open(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.inner.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            self.inner.remove(path)
        }
        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            self.inner.sync_dir(dir)
        }
        fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
            self.inner.lock(path)
        }
    }

    impl DiskFile for GaugeFile {
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }
        fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset, bytes)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.1.fetch_max(bytes.len(), Ordering::Relaxed);
            self.0.write_at(offset, bytes)
        }
        fn allocate(&self, size: u64) -> io::Result<()> {
            self.0.allocate(size)
        }
        fn truncate(&self, size: u64) -> io::Result<()> {
            self.0.truncate(size)
        }
        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }
    }

    #[test]
    fn a_large_state_is_backed_up_a_piece_at_a_time() {
        let largest = Arc::<AtomicUsize>::default();
        let disk = Gauge { inner: SimDisk::new(), largest: Arc::clone(&largest) };
        let machine = Machine::new(State::new(CellId::new("test").unwrap()), 0);
        let by = Author::new(Writer::Operator, "test");
        for nth in 1..=10 {
            let mut facts = cpus(4);
            facts.labels.insert("large".to_owned(), "x".repeat(1 << 20));
            let change = Change::PutNode { node: node_id(&format!("n{nth}")), facts };
            let command = Command::new(Timestamp(1), Term(1), by.clone(), vec![change.free()]);
            machine.apply(nth, &command).unwrap();
        }
        let file = Path::new("backup");
        let summary = take_on(&disk, &machine, Term(3), file).unwrap();
        let largest = largest.load(Ordering::Relaxed);
        assert!(largest <= 1 << 20, "{largest} bytes at once");
        let content = BackupContent::read(&disk, file).unwrap();
        assert_eq!((content.summary, summary.applied), (summary.clone(), 10));
        let state = machine.read(|state| postcard::to_stdvec(state).unwrap());
        assert_eq!(&content.state[..], state);
    }
}
