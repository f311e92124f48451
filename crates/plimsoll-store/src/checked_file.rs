//! Small files that are whole or refused: a header with a magic word, a format version and a checksum, then the
//! body. The metadata, the identity, snapshots and backups are written so.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::Level;
use plimsoll_model::level::{VERSION, outdated, remedy};
use thiserror::Error;

use crate::disk::{self, Disk, DiskFile};
use crate::level::Undecoded;

/// magic, format, checksum, length of the body
const HEADER: usize = 8 + 4 + 4 + 8;

/// How much of a streamed body is in memory at a time: few calls to the disk, and little beside a state.
const PIECE: usize = 1 << 20;

/// What a file must begin with, and the newest version of it that this build can read.
#[derive(Debug, Clone, Copy)]
pub struct FileFormat {
    pub magic: [u8; 8],
    pub format: u32,
    /// As in "is not a *backup* of plimsoll".
    pub name: &'static str,
}

/// Why a checked file cannot be used.
#[derive(Debug, Error)]
pub enum Unreadable {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is not a {kind} of plimsoll", path.display())]
    Foreign { path: PathBuf, kind: &'static str },
    #[error(
        "{} is a {kind} of format {found}, this build supports up to {known}; use a newer plimsoll",
        path.display()
    )]
    Newer { path: PathBuf, kind: &'static str, found: u32, known: u32 },
    #[error("{} is of {level}; {}: {}", path.display(), outdated(VERSION, *level), remedy(None))]
    Level { path: PathBuf, level: Level },
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
}

impl Unreadable {
    pub(crate) fn undecoded(path: &Path, why: &Undecoded) -> Self {
        let path = path.to_owned();
        match why {
            Undecoded::Newer(level) => Self::Level { path, level: *level },
            Undecoded::Damaged(_) => Self::Damaged { path, what: why.to_string() },
        }
    }
}

impl FileFormat {
    pub fn encode(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend_from_slice(&self.header(body.len() as u64, crc32c::crc32c(body)));
        bytes.extend_from_slice(body);
        bytes
    }

    /// The body of a checked file; `path` is only named in errors.
    pub fn decode<'b>(&self, bytes: &'b [u8], path: &Path) -> Result<&'b [u8], Unreadable> {
        let foreign = || Unreadable::Foreign { path: path.to_owned(), kind: self.name };
        let (header, body) = bytes.split_at_checked(HEADER).ok_or_else(foreign)?;
        let expected = self.expected(header, body.len() as u64, path)?;
        expected.matches(crc32c::crc32c(body), path)?;
        Ok(body)
    }

    /// What the header of a file says of its body, of which so much is there.
    fn expected(&self, header: &[u8], length: u64, path: &Path) -> Result<Checksum, Unreadable> {
        let path = || path.to_owned();
        if header[..8] != self.magic {
            return Err(Unreadable::Foreign { path: path(), kind: self.name });
        }
        // Before the checksum: a newer format may well be checked differently.
        let found = u32_at(header, 8);
        if found > self.format {
            let (kind, known) = (self.name, self.format);
            return Err(Unreadable::Newer { path: path(), kind, found, known });
        }
        let said = u64::from(u32_at(header, 16)) | (u64::from(u32_at(header, 20)) << 32);
        if said != length {
            let what = format!("it should hold {said} bytes and has {length}");
            return Err(Unreadable::Damaged { path: path(), what });
        }
        Ok(Checksum(u32_at(header, 12)))
    }

    /// Where in a file the body begins.
    pub(crate) const fn body_at() -> u64 {
        HEADER as u64
    }

    /// Checks a file of which no more than a piece is in memory, and gives it with the length of its body; none when there
    /// is no such file.
    pub(crate) fn check(
        &self,
        disk: &dyn Disk,
        path: &Path,
    ) -> Result<Option<CheckedBody>, Unreadable> {
        let io = |source| Unreadable::Io { action: "read", path: path.to_owned(), source };
        let file = match disk.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let foreign = || Unreadable::Foreign { path: path.to_owned(), kind: self.name };
        let length = file.size().map_err(io)?.checked_sub(Self::body_at()).ok_or_else(foreign)?;
        let mut header = [0; HEADER];
        file.read_at(0, &mut header).map_err(io)?;
        let expected = self.expected(&header, length, path)?;
        let (mut piece, mut at, mut found) = (vec![0; PIECE], 0, 0);
        while at < length {
            let left = usize::try_from(length - at).unwrap_or(usize::MAX).min(PIECE);
            file.read_at(Self::body_at() + at, &mut piece[..left]).map_err(io)?;
            found = crc32c::crc32c_append(found, &piece[..left]);
            at += left as u64;
        }
        expected.matches(found, path)?;
        Ok(Some(CheckedBody { file, length }))
    }

    /// The body of the file; none when there is no such file.
    pub fn read(&self, disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, Unreadable> {
        let io = |source| Unreadable::Io { action: "read", path: path.to_owned(), source };
        let Some(mut bytes) = disk::read_whole(disk, path).map_err(io)? else { return Ok(None) };
        self.decode(&bytes, path)?;
        // In place: a backup is as large as the state it is of.
        bytes.drain(..HEADER);
        Ok(Some(bytes))
    }

    /// The same as [`write`](Self::write), of a body that is never in memory as a whole.
    pub fn write_streamed(
        &self,
        disk: &dyn Disk,
        path: &Path,
        body: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        disk::replace_with(disk, path, |file| {
            let mut stream = BodyWriter::to(Arc::clone(file));
            body(&mut stream)?;
            stream.finish(self).map(drop)
        })
    }

    fn header(&self, length: u64, checksum: u32) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.magic);
        bytes[8..12].copy_from_slice(&self.format.to_le_bytes());
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes[16..].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Puts the file in place of the one before, whole or not at all.
    pub fn write(&self, disk: &dyn Disk, path: &Path, body: &[u8]) -> io::Result<()> {
        disk::replace(disk, path, &self.encode(body))
    }
}

/// A file that was found whole, and how long its body is.
#[derive(Debug)]
pub(crate) struct CheckedBody {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) length: u64,
}

/// What a body must have.
struct Checksum(u32);

impl Checksum {
    fn matches(&self, found: u32, path: &Path) -> Result<(), Unreadable> {
        if found == self.0 {
            return Ok(());
        }
        let what = "its checksum does not match".to_owned();
        Err(Unreadable::Damaged { path: path.to_owned(), what })
    }
}

/// Writes a body behind its header, a piece at a time.
#[derive(Debug)]
pub(crate) struct BodyWriter {
    file: Arc<dyn DiskFile>,
    piece: Vec<u8>,
    length: u64,
    checksum: u32,
}

impl BodyWriter {
    pub(crate) fn to(file: Arc<dyn DiskFile>) -> Self {
        Self { file, piece: Vec::with_capacity(PIECE), length: 0, checksum: 0 }
    }

    /// How many bytes were given.
    pub(crate) fn length(&self) -> u64 {
        self.length + self.piece.len() as u64
    }

    fn write_piece(&mut self) -> io::Result<()> {
        self.file.write_at(HEADER as u64 + self.length, &self.piece)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &self.piece);
        self.length += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    /// Writes the header, last, because only now is it known. Until the file has its name nobody looks at it.
    pub(crate) fn finish(mut self, format: &FileFormat) -> io::Result<Arc<dyn DiskFile>> {
        self.write_piece()?;
        self.file.write_at(0, &format.header(self.length, self.checksum))?;
        Ok(self.file)
    }
}

impl io::Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() == PIECE {
            self.write_piece()?;
        }
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: FileFormat = FileFormat { magic: *b"testtest", format: 2, name: "test" };

    #[test]
    fn a_sealed_file_is_whole_or_refused() {
        let bytes = FORMAT.encode(b"body");
        let path = Path::new("f");
        assert_eq!(FORMAT.decode(&bytes, path).unwrap(), b"body");
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x40;
            assert!(FORMAT.decode(&wrong, path).is_err(), "byte {at} was flipped");
            assert!(FORMAT.decode(&bytes[..at], path).is_err(), "cut to {at} bytes");
        }
        let disk = disk::sim::SimDisk::new();
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            let body = vec![7; length];
            let streamed = FORMAT.write_streamed(&disk, path, |to| to.write_all(&body));
            streamed.unwrap();
            assert_eq!(FORMAT.read(&disk, path).unwrap().unwrap(), body, "{length}");
            let CheckedBody { file, length: found } = FORMAT.check(&disk, path).unwrap().unwrap();
            assert_eq!(found, length as u64);
            if let Some(last) = length.checked_sub(1) {
                file.write_at(FileFormat::body_at() + last as u64, &[8]).unwrap();
                assert!(FORMAT.check(&disk, path).is_err(), "{length}: its last byte is another");
            }
        }
        let newer = FileFormat { format: 3, ..FORMAT }.encode(b"body");
        assert_eq!(
            FORMAT.decode(&newer, path).unwrap_err().to_string(),
            "f is a test of format 3, this build supports up to 2; use a newer plimsoll"
        );
    }
}
