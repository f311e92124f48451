//! The form of a backup: what it is of, in a line for people, then the state as a sealed stream. The line is part of what
//! every piece of the stream is sealed with, so neither can be taken from another file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::{State, Term};
use plimsoll_seal::{CellKey, KeyId, Keyring, OpenError, STREAM_HEADER, SealWriter, SealedStream};

use super::{Error, Label, Summary, key_of};
use crate::checked_file::{CheckedBody, FileFormat, Unreadable};
use crate::disk::{Disk, DiskFile};
use crate::embedded::wire::MAX_NUMBER;
use crate::level;

pub(super) const BACKUP: FileFormat = FileFormat { magic: *b"plimsbak", format: 1, name: "backup" };

/// What backup keys seal for.
const PURPOSE: &str = "plimsoll backup";

/// The line has a name and two numbers; what claims to be longer is damaged.
const MAX_LINE: usize = 4 << 10;

/// Writes a state, a piece at a time. None: the cell has no backup key.
pub(super) fn write(
    state: &State,
    applied: u64,
    term: Term,
    to: &mut dyn io::Write,
) -> io::Result<Option<Summary>> {
    let keys = key_of(state).and_then(|key| Keyring::of_cell([&key], PURPOSE));
    let Some(keys) = keys else { return Ok(None) };
    let summary = Summary { cell_id: state.cell_id().clone(), applied, term };
    let mut line = serde_json::to_string(&summary)?;
    line.push('\n');
    to.write_all(line.as_bytes())?;
    let mut sealed = SealWriter::new(&keys, &context(&line), to)?;
    postcard::to_io(state, &mut sealed).map_err(io::Error::other)?;
    sealed.finish()?;
    Ok(Some(summary))
}

fn context(line: &str) -> String {
    format!("{PURPOSE} {line}")
}

/// A backup of which nothing was lost on its way. What it says is not proven.
#[derive(Debug)]
pub(super) struct SealedBackup {
    pub(super) label: Label,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    line: String,
    header: [u8; STREAM_HEADER],
    /// Where the sealed pieces begin and how long they are.
    pieces_at: u64,
    pieces: u64,
}

/// Reads what stands before the state, and checks the whole file against its checksum.
pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<SealedBackup, Error> {
    let io = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let missing = || io(io::ErrorKind::NotFound.into());
    let CheckedBody { file, length } = BACKUP.check(disk, path)?.ok_or_else(missing)?;
    let begin = usize::try_from(length).unwrap_or(MAX_LINE).min(MAX_LINE);
    let mut beginning = vec![0; begin];
    file.read_at(FileFormat::body_at(), &mut beginning).map_err(io)?;
    let line_end = beginning.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
    let (line, rest) = beginning.split_at(line_end.ok_or_else(|| damaged(path, "no first line"))?);
    let line = str::from_utf8(line).map_err(|_| damaged(path, "its first line is no text"))?;
    let summary: Summary = serde_json::from_str(line)
        .map_err(|error| damaged(path, &format!("its first line cannot be read ({error})")))?;
    // What a restore adds to them must not overflow.
    if summary.term.0 >= MAX_NUMBER || summary.applied >= MAX_NUMBER {
        return Err(damaged(path, "it is of a term or an entry that no cell reaches"));
    }
    let header = rest.get(..STREAM_HEADER).ok_or_else(|| damaged(path, "it is cut short"))?;
    let header: [u8; STREAM_HEADER] = header.try_into().expect("so many bytes were taken");
    let key = plimsoll_seal::key_of(&header).ok_or_else(|| damaged(path, "it is not encrypted"))?;
    let before = (line.len() + STREAM_HEADER) as u64;
    Ok(SealedBackup {
        label: Label { summary, key: KeyId(key) },
        path: path.to_owned(),
        line: line.to_owned(),
        file,
        header,
        pieces_at: FileFormat::body_at() + before,
        pieces: length - before,
    })
}

impl SealedBackup {
    /// What it holds. Nothing of it is believed before all of it was opened.
    pub(super) fn state(&self, keys: &[CellKey]) -> Result<(Summary, State), Error> {
        let Self { label: Label { summary, key }, path, .. } = self;
        let key = *key;
        let (path, given) = (path.clone(), keys.iter().map(CellKey::id).collect());
        let locked = Error::Locked { path: path.clone(), key, given };
        let Some(keyring) = Keyring::of_cell(keys, PURPOSE) else { return Err(locked) };
        let stream = SealedStream::new(&keyring, &context(&self.line), self.header);
        let stream = match stream {
            Ok(stream) => stream,
            Err(OpenError::UnknownKey { .. }) => return Err(locked),
            Err(OpenError::Foreign | OpenError::Changed) => {
                return Err(Error::Changed { path, key });
            }
        };
        let read = |at: u64, to: &mut [u8]| self.file.read_at(self.pieces_at + at, to);
        let plain = stream.read(self.pieces, 0, usize::MAX, read).map_err(|source| {
            if let Some(inner) = source.get_ref()
                && inner.is::<OpenError>()
            {
                return Error::Changed { path: path.clone(), key };
            }
            Error::Io { action: "read", path: path.clone(), source }
        })?;
        let state = level::decode(&plain).map_err(|why| Unreadable::undecoded(&path, &why))?;
        Ok((summary.clone(), state))
    }
}

fn damaged(path: &Path, what: &str) -> Error {
    Unreadable::Damaged { path: path.to_owned(), what: what.to_owned() }.into()
}
