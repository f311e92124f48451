//! The snapshot on disk: one file that holds the state as of one entry, replaced whole. A state is written to it and read
//! from it a piece at a time, so that one as large as the memory that holds it costs no second such memory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_model::State;
use plimsoll_seal::{Keyring, STREAM_HEADER, SealWriter, SealedStream, key_of};

use super::growth::LogGrowth;
use super::types::Header;
use crate::checked_file::{BodyWriter, CheckedBody, FileFormat, Unreadable};
use crate::disk::{self, Disk, DiskFile};
use crate::level::{self, Undecoded};

const SNAPSHOT: FileFormat = FileFormat { magic: *b"plimssnp", format: 1, name: "snapshot" };

/// What a snapshot is sealed as.
const CONTEXT: &str = "snapshot";

/// The most that a snapshot says before its state: who the servers are.
const MAX_HEADER: usize = 1 << 20;

/// How much of a state is opened at a time while it is decoded.
const READ_AHEAD: usize = 1 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    growth: Arc<LogGrowth>,
    keys: Arc<Keyring>,
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
    body: SealedBody,
    /// How many bytes of what it holds come before the state.
    from: u64,
    length: u64,
    /// None of one that was found in its place.
    written: Option<Arc<WrittenFile>>,
}

/// What a snapshot's file holds, under its seal.
#[derive(Debug, Clone)]
struct SealedBody {
    file: Arc<dyn DiskFile>,
    stream: SealedStream,
    /// How long it is in the file, without its header.
    sealed: u64,
}

impl SealedBody {
    fn read(&self, from: u64, most: usize) -> io::Result<Vec<u8>> {
        let begins = FileFormat::body_at() + STREAM_HEADER as u64;
        self.stream.read(self.sealed, from, most, |at, to| self.file.read_at(begins + at, to))
    }
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
    body: SealWriter<BodyWriter>,
    written: WrittenFile,
    /// How many bytes come before the state.
    from: u64,
    /// How many bytes of the state were given.
    length: u64,
}

impl SnapshotWriter {
    /// How many bytes of the state were given.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// It is whole, and not safe yet.
    pub(crate) fn finish(self) -> io::Result<StateFile> {
        let (body, stream) = self.body.finish()?;
        let sealed = body.length() - STREAM_HEADER as u64;
        let body = SealedBody { file: body.finish(&SNAPSHOT)?, stream, sealed };
        let (from, length) = (self.from, self.length);
        Ok(StateFile { body, from, length, written: Some(Arc::new(self.written)) })
    }
}

impl io::Write for SnapshotWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.body.write(bytes)?;
        self.length += taken as u64;
        Ok(taken)
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
        self.body.read(self.from + offset.min(self.length), most)
    }

    /// What it holds, decoded as it is read: a state as large as the memory that holds it costs no second such memory.
    pub(crate) fn decode(&self) -> io::Result<Result<State, Undecoded>> {
        let reader = StateReader { state: self, offset: 0 };
        level::decode_from(io::BufReader::with_capacity(READ_AHEAD, reader))
    }

    #[cfg(test)]
    pub(crate) fn whole(&self) -> io::Result<Vec<u8>> {
        self.piece(0, usize::MAX)
    }
}

/// Reads a state from its beginning.
struct StateReader<'f> {
    state: &'f StateFile,
    offset: u64,
}

impl io::Read for StateReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let piece = self.state.piece(self.offset, into.len().min(READ_AHEAD))?;
        into[..piece.len()].copy_from_slice(&piece);
        self.offset += piece.len() as u64;
        Ok(piece.len())
    }
}

impl Snapshots {
    pub(crate) fn new(disk: &Arc<dyn Disk>, data_dir: &Path, keys: &Arc<Keyring>) -> Self {
        let (disk, keys) = (Arc::clone(disk), Arc::clone(keys));
        let (growth, progress) = (Arc::default(), Arc::default());
        Self { disk, path: data_dir.join("snapshot"), growth, keys, progress }
    }

    /// Seals with this keyring from now on. It opens all that the one before does.
    pub(crate) fn seal_with(&mut self, keys: &Arc<Keyring>) {
        self.keys = Arc::clone(keys);
    }

    /// The key of the snapshot that is in place.
    pub(crate) fn key_in_use(&self) -> Result<Option<u32>, Unreadable> {
        let found = SNAPSHOT.check(self.disk.as_ref(), &self.path)?;
        found.map_or(Ok(None), |body| Ok(key_of(&self.stream_header(&body.file)?)))
    }

    fn stream_header(&self, file: &Arc<dyn DiskFile>) -> Result<[u8; STREAM_HEADER], Unreadable> {
        let mut header = [0; STREAM_HEADER];
        let read = file.read_at(FileFormat::body_at(), &mut header);
        read.map_err(|error| self.damaged(&error))?;
        Ok(header)
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
        let mut body = SealWriter::new(&self.keys, CONTEXT, BodyWriter::to(file))?;
        io::Write::write_all(&mut body, &header)?;
        Ok(SnapshotWriter { body, written, from: header.len() as u64, length: 0 })
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
        state.body.file.sync()?;
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
        let Some(CheckedBody { file, length }) = SNAPSHOT.check(self.disk.as_ref(), &self.path)?
        else {
            return Ok(None);
        };
        let stream = SealedStream::new(&self.keys, CONTEXT, self.stream_header(&file)?);
        let stream = stream.map_err(|error| self.damaged(&error))?;
        let sealed = length.saturating_sub(STREAM_HEADER as u64);
        let body = SealedBody { file, stream, sealed };
        let first = body.read(0, MAX_HEADER).map_err(|error| self.damaged(&error))?;
        let (header, rest) =
            postcard::take_from_bytes(&first).map_err(|error| self.damaged(&error))?;
        let from = (first.len() - rest.len()) as u64;
        let length = SealedStream::plain_length(sealed).unwrap_or(0).saturating_sub(from);
        self.growth.hold(length);
        Ok(Some((header, StateFile { body, from, length, written: None })))
    }

    /// The snapshot with its state decoded.
    pub(crate) fn load(&self) -> Result<Option<(Header, State)>, Unreadable> {
        let Some((header, state)) = self.read()? else { return Ok(None) };
        let io = |source| Unreadable::Io { action: "read", path: self.path.clone(), source };
        let state = state.decode().map_err(io)?;
        let state = state.map_err(|undecoded| Unreadable::undecoded(&self.path, &undecoded))?;
        Ok(Some((header, state)))
    }

    fn damaged(&self, error: &dyn std::fmt::Display) -> Unreadable {
        let what = format!("cannot decode its content ({error})");
        Unreadable::Damaged { path: self.path.clone(), what }
    }
}

/// Writes a state as it is in a snapshot.
pub(crate) fn stream_state(state: &State, to: &mut dyn io::Write) -> io::Result<()> {
    postcard::to_io(state, to).map(drop).map_err(io::Error::other)
}

#[cfg(test)]
mod fuzz;
