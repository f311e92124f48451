//! The snapshot on disk: one file that holds the state as of one entry, replaced whole. A state is written to it and read
//! from it a piece at a time, so that one as large as the memory that holds it costs no second such memory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_model::State;

use super::growth::LogGrowth;
use super::types::Header;
use crate::checked_file::{BodyWriter, FileFormat, Unreadable};
use crate::disk::{self, Disk, DiskFile};
use crate::level;

const SNAPSHOT: FileFormat = FileFormat { magic: *b"plimssnp", format: 1, name: "snapshot" };

/// The most that a snapshot says before its state: who the servers are.
const MAX_HEADER: usize = 1 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    growth: Arc<LogGrowth>,
    progress: Arc<Mutex<Progress>>,
}

#[derive(Debug, Default)]
struct Progress {
    /// How many were begun by this process: each is written to a file of its own.
    begun: u64,
    /// The index of the one that was put in place last.
    placed: Option<u64>,
}

/// A state in a file that stays open, also once a later snapshot has taken its name.
#[derive(Debug, Clone)]
pub(crate) struct StateFile {
    file: Arc<dyn DiskFile>,
    from: u64,
    length: u64,
    /// None of one that was found in its place.
    written: Option<Arc<WrittenFile>>,
}

/// A file beside the snapshot that is to take its place. Dropped before that, it is removed.
#[derive(Debug)]
struct WrittenFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    is_placed: AtomicBool,
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        if !*self.is_placed.get_mut() {
            // One that stays is removed at the next start.
            let _ = self.disk.remove(&self.path);
        }
    }
}

/// A snapshot on its way to disk.
#[derive(Debug)]
pub(crate) struct SnapshotWriter {
    body: BodyWriter,
    written: WrittenFile,
    /// How many bytes of the body come before the state.
    from: u64,
}

impl SnapshotWriter {
    /// How many bytes of the state were given.
    pub(crate) fn length(&self) -> u64 {
        self.body.length() - self.from
    }

    /// It is whole, and not safe yet.
    pub(crate) fn finish(self) -> io::Result<StateFile> {
        let (length, file) = (self.length(), self.body.finish(&SNAPSHOT)?);
        let (from, written) = (SNAPSHOT.body_at() + self.from, Some(Arc::new(self.written)));
        Ok(StateFile { file, from, length, written })
    }
}

impl io::Write for SnapshotWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.body.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.body.flush()
    }
}

impl StateFile {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// So many bytes from there on, or as many as there are.
    pub(crate) fn piece(&self, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; left.min(most)];
        self.file.read_at(self.from + offset, &mut bytes)?;
        Ok(bytes)
    }

    /// All of it, to be decoded.
    pub(crate) fn whole(&self) -> io::Result<Vec<u8>> {
        self.piece(0, usize::MAX)
    }
}

impl Snapshots {
    pub(crate) fn new(disk: &Arc<dyn Disk>, data_dir: &Path) -> Self {
        let (growth, progress) = (Arc::default(), Arc::default());
        Self { disk: Arc::clone(disk), path: data_dir.join("snapshot"), growth, progress }
    }

    /// What counts the bytes of the log since the last of them.
    pub(crate) fn growth(&self) -> &Arc<LogGrowth> {
        &self.growth
    }

    /// Removes what a process that was killed had begun to write. Nobody else must have the directory open.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        for name in self.disk.list(dir)? {
            if name.starts_with("snapshot") && disk::is_unfinished(&name) {
                self.disk.remove(&dir.join(name))?;
            }
        }
        Ok(())
    }

    /// Begins one beside that which is in place.
    pub(crate) fn begin(&self, header: &Header) -> io::Result<SnapshotWriter> {
        let header = postcard::to_stdvec(header).map_err(io::Error::other)?;
        let serial = {
            let mut progress = self.progress.lock().expect("no holder of the progress panics");
            progress.begun += 1;
            progress.begun
        };
        let path = self.path.with_file_name(format!("snapshot-{serial}.new"));
        let file = self.disk.create(&path)?;
        let disk = Arc::clone(&self.disk);
        let written = WrittenFile { disk, path, is_placed: AtomicBool::new(false) };
        let mut body = BodyWriter::to(file);
        io::Write::write_all(&mut body, &header)?;
        Ok(SnapshotWriter { body, written, from: header.len() as u64 })
    }

    /// Writes a state beside the snapshot that is in place.
    pub(crate) fn write(
        &self,
        header: &Header,
        state: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<StateFile> {
        let mut writer = self.begin(header)?;
        state(&mut writer)?;
        writer.finish()
    }

    /// Makes it safe, and has it take the place of the snapshot before it. One that was overtaken by a newer one, which a
    /// leader sent while it was made, is left: the log that would follow it is gone.
    pub(crate) fn place(&self, header: &Header, state: &StateFile) -> io::Result<()> {
        let Some(written) = &state.written else { return Ok(()) };
        state.file.sync()?;
        let index = header.last.map(|mark| mark.index);
        let mut progress = self.progress.lock().expect("no holder of the progress panics");
        if written.is_placed.load(Ordering::Relaxed) || progress.placed > index {
            return Ok(());
        }
        disk::put_in_place(self.disk.as_ref(), &written.path, &self.path)?;
        written.is_placed.store(true, Ordering::Relaxed);
        progress.placed = index;
        drop(progress);
        self.growth.begin_anew(state.length);
        Ok(())
    }

    /// The one that is in place, found whole.
    pub(crate) fn read(&self) -> Result<Option<(Header, StateFile)>, Unreadable> {
        let Some((file, length)) = SNAPSHOT.check(self.disk.as_ref(), &self.path)? else {
            return Ok(None);
        };
        let io = |source| Unreadable::Io { action: "read", path: self.path.clone(), source };
        let mut first = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(MAX_HEADER)];
        file.read_at(SNAPSHOT.body_at(), &mut first).map_err(io)?;
        let (header, rest) =
            postcard::take_from_bytes(&first).map_err(|error| self.damaged(&error))?;
        let before = (first.len() - rest.len()) as u64;
        let (from, length) = (SNAPSHOT.body_at() + before, length - before);
        self.growth.hold(length);
        Ok(Some((header, StateFile { file, from, length, written: None })))
    }

    /// The snapshot with its state decoded.
    pub(crate) fn load(&self) -> Result<Option<(Header, State)>, Unreadable> {
        let Some((header, state)) = self.read()? else { return Ok(None) };
        let io = |source| Unreadable::Io { action: "read", path: self.path.clone(), source };
        let state = level::decode(&state.whole().map_err(io)?)
            .map_err(|undecoded| Unreadable::undecoded(&self.path, &undecoded))?;
        Ok(Some((header, state)))
    }

    fn damaged(&self, error: &postcard::Error) -> Unreadable {
        let what = format!("cannot decode its content ({error})");
        Unreadable::Damaged { path: self.path.clone(), what }
    }
}

/// Writes a state as it is in a snapshot.
pub(crate) fn stream_state(state: &State, to: &mut dyn io::Write) -> io::Result<()> {
    postcard::to_io(state, to).map(drop).map_err(io::Error::other)
}
