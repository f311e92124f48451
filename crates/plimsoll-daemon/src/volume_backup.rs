//! The backup of a volume in one file. It begins with what it is and of what, in words that a person can read; then comes what is
//! in the volume, as [`volume_archive`] has it; and at the end how much that was, and the SHA-256 of all that came before. The end
//! is written once it is certain that the copy is good: a file without one is refused, as is one with a byte changed.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::path::Path;

use plimsoll_model::{NodeId, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::volume_archive::{self, HashingReader, HashingWriter, VolumeTotals};

#[cfg(test)]
mod tests;

/// What a file begins with: the form, and its version.
const MAGIC: &[u8; 25] = b"plimsoll volume backup 1\n";

/// The most bytes that the label or the end may have: names, a time and a checksum.
const MAX_WORDS: usize = 16 << 10;

/// Of what a backup is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeLabel {
    pub volume: String,
    pub deployment: String,
    /// The node that had it.
    pub node: NodeId,
    pub taken_at: Timestamp,
    /// What uses the volume ran on meanwhile, so that files may not fit each other.
    pub is_live: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BackupEnd {
    totals: VolumeTotals,
    sha256: String,
}

/// A backup that was read, or checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeBackup {
    pub label: VolumeLabel,
    pub totals: VolumeTotals,
    /// As hexadecimal digits.
    pub sha256: String,
}

/// A backup that is being written.
#[derive(Debug)]
pub struct BackupWriter<W> {
    to: HashingWriter<W>,
    label: VolumeLabel,
    totals: VolumeTotals,
}

impl<W: Write> BackupWriter<W> {
    /// Copies all that is in a volume, as a node sends it, and looks at it on the way. It is no backup before its
    /// [`finish`](Self::finish).
    pub fn copy(to: W, label: VolumeLabel, content: impl Read) -> io::Result<Self> {
        let mut to = HashingWriter { to, hash: Sha256::new() };
        to.write_all(MAGIC)?;
        write_words(&mut to, &label)?;
        let mut tee = Tee { from: content, to: &mut to };
        let totals = volume_archive::check(&mut tee)?;
        expect_end(&mut tee.from)?;
        Ok(Self { to, label, totals })
    }

    /// Says that the copy is good.
    pub fn finish(self) -> io::Result<(W, VolumeBackup)> {
        let Self { to: HashingWriter { mut to, hash }, label, totals } = self;
        let sha256 = digits(hash);
        write_words(&mut to, &BackupEnd { totals, sha256: sha256.clone() })?;
        to.flush()?;
        Ok((to, VolumeBackup { label, totals, sha256 }))
    }
}

/// Reads a backup into an empty directory, and has it on disk when it returns. Of one that is refused anything may be there.
pub fn read(dir: &Path, from: impl Read) -> io::Result<VolumeBackup> {
    whole(from, |content| volume_archive::read(dir, content))
}

/// Reads a backup without writing anything.
pub fn check(from: impl Read) -> io::Result<VolumeBackup> {
    whole(from, |content| volume_archive::check(content))
}

fn whole<R: Read>(
    from: R,
    content: impl FnOnce(&mut HashingReader<R>) -> io::Result<VolumeTotals>,
) -> io::Result<VolumeBackup> {
    let mut from = HashingReader { from, hash: Sha256::new() };
    let mut magic = [0; MAGIC.len()];
    // Shorter than that it is no backup either.
    let read = from.read_exact(&mut magic).map_err(cut);
    if read.is_err() || magic != *MAGIC {
        return Err(invalid("this is no backup of a volume"));
    }
    let label: VolumeLabel = read_words(&mut from)?;
    let totals = content(&mut from).map_err(cut)?;
    let sha256 = digits(from.hash.clone());
    let end: BackupEnd = read_words(&mut from)?;
    if end != (BackupEnd { totals, sha256: sha256.clone() }) {
        return Err(invalid("the checksum is wrong: the backup was changed"));
    }
    expect_end(&mut from.from)?;
    Ok(VolumeBackup { label, totals, sha256 })
}

fn digits(hash: Sha256) -> String {
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// What ends too early is said to.
fn cut(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return invalid("the backup is cut off: its end is missing");
    }
    error
}

fn expect_end(from: &mut impl Read) -> io::Result<()> {
    match from.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(invalid("something follows the end of the backup")),
    }
}

fn write_words(to: &mut impl Write, words: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(words).expect("words have string keys only");
    bytes.push(b'\n');
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.write_all(&length.to_be_bytes())?;
    to.write_all(&bytes)
}

fn read_words<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length).map_err(cut)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_WORDS {
        return Err(invalid(format!("a label of {length} bytes, at most {MAX_WORDS} are allowed")));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).map_err(cut)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| invalid(format!("the backup cannot be read: {error}")))
}

/// What is read is written, too.
struct Tee<R, W> {
    from: R,
    to: W,
}

impl<R: Read, W: Write> Read for Tee<R, W> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.to.write_all(&into[..read])?;
        Ok(read)
    }
}
