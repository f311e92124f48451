//! A log of entries on disk: numbered, contiguous, and safe once acknowledged.
//!
//! Segment files hold frames; one thread writes and syncs them (`writer`), `recover` reads them back after a
//! crash, `index` knows where each entry is. The log knows nothing of what entries mean, who leads, or when to
//! purge: its user does.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;

use thiserror::Error;

use crate::checked_file::{FileFormat, Unreadable};
use crate::disk::Disk;

mod frame;
#[cfg(test)]
mod fuzz;
mod index;
mod recover;
#[cfg(test)]
mod tests;
mod writer;

use frame::SEGMENT_HEADER;
use index::{EntrySource, Index};
use writer::{LogWriter, WriteRequest};

/// The most bytes one entry may have. A pass that places a full cell of 100 000 replicas takes a third of it.
pub const MAX_ENTRY: usize = 32 << 20;

/// How large a segment file is made. Purging frees whole segments, and a start reads all of them.
pub const SEGMENT_SIZE: u64 = 8 << 20;

const META: FileFormat = FileFormat { magic: *b"plimsmta", format: 1, name: "log metadata file" };
const META_FILE: &str = "meta";

/// Called once when an order is carried out, from the writing thread.
pub type Done = Box<dyn FnOnce(Result<(), LogWriteError>) + Send>;

/// Why a log cannot be opened or read.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{} is corrupt at offset {offset}: {what}; restore this server from a backup, or wipe its data directory \
         and let it join again",
        path.display()
    )]
    Corrupt { path: PathBuf, offset: u64, what: &'static str },
    #[error(
        "{}: entries {from} to {} are missing before it; restore this server from a backup, or wipe its data \
         directory and let it join again",
        path.display(), to - 1
    )]
    Gap { path: PathBuf, from: u64, to: u64 },
    #[error("no log found in {}; was it moved?", dir.display())]
    Lost { dir: PathBuf },
    #[error(
        "{} is missing, which holds the vote of this server: without it the server could vote twice in a term. Put it back, \
         or empty the data directory and let it join again; a server that is alone: `plimsoll backup FILE --data-dir DIR`, \
         then `plimsoll restore`",
        path.display()
    )]
    VoteLost { path: PathBuf },
    #[error(
        "{} is a log of format {found}, this build supports up to {known}; start the newer plimsoll that wrote it",
        path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("{} is not a file of the log; move it away", path.display())]
    Unknown { path: PathBuf },
    #[error(transparent)]
    Meta(#[from] Unreadable),
}

impl Error {
    fn io<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, Self> {
        result.map_err(|source| Self::Io { action, path: path.to_owned(), source })
    }
}

/// Why an order was not carried out, and none will be: the log must be opened again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot write the log in {}: {why}", dir.display())]
pub struct LogWriteError {
    dir: Arc<Path>,
    why: Arc<str>,
    pub kind: io::ErrorKind,
}

impl LogWriteError {
    fn new(dir: &Path, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::StorageFull => "disk full; free some space and restart".into(),
            _ => error.to_string(),
        };
        Self { dir: Arc::from(dir), why: Arc::from(why), kind: error.kind() }
    }
}

impl From<LogWriteError> for io::Error {
    fn from(failure: LogWriteError) -> Self {
        Self::new(failure.kind, failure)
    }
}

/// What opening cut off: the end of a write that was torn by a crash. Nobody was told that it was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornWrite {
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
    pub what: &'static str,
}

impl fmt::Display for TornWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset, bytes, what } = self;
        write!(
            f,
            "{}: truncated {bytes} bytes of a torn write at offset {offset}: {what}",
            path.display()
        )
    }
}

/// How to open a log.
#[derive(Debug, Clone, Copy)]
pub struct LogOptions {
    /// Entries before this one were purged.
    pub start: u64,
    /// Whether there may be no log yet. Otherwise an empty directory is an error, never a fresh start.
    pub may_create: bool,
    pub segment_size: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { start: 0, may_create: true, segment_size: SEGMENT_SIZE }
    }
}

/// An open log. Dropping it waits for what was ordered.
pub struct Log {
    index: Arc<RwLock<Index>>,
    orders: Option<Sender<WriteRequest>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("range", &self.range()).finish_non_exhaustive()
    }
}

/// The metadata that was last written beside the log.
pub fn read_meta(disk: &dyn Disk, dir: &Path) -> Result<Option<Vec<u8>>, Error> {
    Ok(META.read(disk, &dir.join(META_FILE))?)
}

/// Where that is.
pub(crate) fn meta_path(dir: &Path) -> PathBuf {
    dir.join(META_FILE)
}

/// Writes metadata for a log that is not open.
pub fn write_meta(disk: &dyn Disk, dir: &Path, body: &[u8]) -> io::Result<()> {
    META.write(disk, &dir.join(META_FILE), body)
}

impl Log {
    /// Opens the log in a directory, and says what a crash made it cut.
    pub fn open(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
    ) -> Result<(Self, Option<TornWrite>), Error> {
        let LogOptions { start, may_create, segment_size } = options;
        Error::io("create", dir, disk.create_dir(dir))?;
        let found = recover::recover(disk.as_ref(), dir, start)?;
        let had_none = found.tail.is_none();
        if had_none && found.stale.is_empty() && !may_create {
            return Err(Error::Lost { dir: dir.to_owned() });
        }
        let mut index = found.index;
        let (segment, tail) = if let Some(tail) = found.tail {
            tail
        } else {
            let made = recover::create(disk.as_ref(), dir, start, segment_size);
            let segment = Error::io("create a log segment in", dir, made)?;
            index.segments.insert(start, segment.clone());
            (segment, SEGMENT_HEADER as u64)
        };
        for path in &found.stale {
            // Of the same name as the new segment, it has been replaced.
            if *path != segment.path {
                Error::io("remove", path, disk.remove(path))?;
            }
        }
        let path = segment.path.clone();
        let size = Error::io("open", &path, segment.file.size())?;
        let index = Arc::new(RwLock::new(index));
        let mut writer = LogWriter {
            disk: Arc::clone(disk),
            dir: dir.to_owned(),
            segment_size,
            index: Arc::clone(&index),
            segment,
            size,
            tail,
            zeroed: tail,
            failed: None,
        };
        // What was read, bytes and names, may still be on its way to the disk; once shown, it must stay.
        Error::io("sync", dir, disk.sync_dir(dir))?;
        if found.cut.is_some() {
            Error::io("cut", &path, writer.cut(tail))?;
        } else if !had_none {
            Error::io("sync", &path, writer.segment.file.sync())?;
        }
        let (orders, received) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("plimsoll-log".to_owned())
            .spawn(move || writer.run(&received));
        let thread = Error::io("start the writer of", dir, thread)?;
        Ok((Self { index, orders: Some(orders), thread: Some(thread) }, found.cut))
    }

    /// The entries that are there: the first, and the one that comes next.
    pub fn range(&self) -> Range<u64> {
        let index = self.index.read().expect("no holder of the index panics");
        index.start..index.next()
    }

    /// How many bytes each entry has, from one on.
    pub(crate) fn lengths(&self, from: u64) -> impl Iterator<Item = u64> + use<> {
        let index = self.index.read().expect("no holder of the index panics");
        index.lengths(from).into_iter()
    }

    /// Adds entries. They can be read at once, and are safe when `done` is called.
    ///
    /// # Panics
    /// When an entry is empty or larger than [`MAX_ENTRY`]: its writer must refuse it.
    pub fn append(&self, payloads: Vec<Arc<[u8]>>, done: Done) {
        let mut index = self.index.write().expect("no holder of the index panics");
        let first = index.next();
        for payload in &payloads {
            assert!(!payload.is_empty() && payload.len() <= MAX_ENTRY, "an entry of that size");
            index.push(Arc::clone(payload));
        }
        // Under the lock, so that orders queue up as the entries are numbered.
        self.order(WriteRequest::Append { first, payloads, done });
    }

    /// Drops the entries from `next` on. Nothing may be appended before it is done.
    pub fn truncate(&self, next: u64, done: Done) {
        self.order(WriteRequest::Truncate { next, done });
    }

    /// Drops the entries before `start`, which may lie beyond the last. Nothing may be appended before it is done.
    ///
    /// The caller first writes down, in the metadata, that they are gone: their files go in any order.
    pub fn purge(&self, start: u64, done: Done) {
        self.order(WriteRequest::Purge { start, done });
    }

    /// Writes metadata beside the log, in place of what was there.
    pub fn put_meta(&self, body: Vec<u8>, done: Done) {
        self.order(WriteRequest::Meta { body, done });
    }

    fn order(&self, order: WriteRequest) {
        let orders = self.orders.as_ref().expect("it is taken when the log is dropped");
        orders.send(order).expect("the writer ends when the log is dropped");
    }

    /// The entries of the range that are there, up to so many bytes but at least one.
    pub fn read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Arc<[u8]>>, Error> {
        self.lookup(range, max_bytes).0.read()
    }

    /// What a read would read, and whether it needs the disk.
    pub(crate) fn lookup(&self, range: Range<u64>, max_bytes: usize) -> (EntrySources, bool) {
        let index = self.index.read().expect("no holder of the index panics");
        let sources = index.sources(range, max_bytes);
        let needs_disk = !sources.iter().all(EntrySource::is_cached);
        (EntrySources(sources), needs_disk)
    }
}

/// Entries about to be read.
pub(crate) struct EntrySources(Vec<EntrySource>);

impl EntrySources {
    pub(crate) fn read(self) -> Result<Vec<Arc<[u8]>>, Error> {
        self.0.into_iter().map(EntrySource::read).collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the writer was reported when it happened.
            thread.join().ok();
        }
    }
}

fn segment_path(dir: &Path, first: u64) -> PathBuf {
    recover::named(dir, first)
}
