//! Small files that are whole or refused: a header with a magic word, a format version and a checksum, then the
//! body. The metadata, the identity, snapshots and backups are written so.

use std::io;
use std::path::{Path, PathBuf};

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
        let path = || path.to_owned();
        let foreign = || Unreadable::Foreign { path: path(), kind: self.name };
        let damaged = |what: String| Unreadable::Damaged { path: path(), what };
        let (header, body) = bytes.split_at_checked(HEADER).ok_or_else(foreign)?;
        if header[..8] != self.magic {
            return Err(foreign());
        }
        // Before the checksum: a newer format may well be checked differently.
        let found = u32_at(header, 8);
        if found > self.format {
            let (kind, known) = (self.name, self.format);
            return Err(Unreadable::Newer { path: path(), kind, found, known });
        }
        let length = u64::from(u32_at(header, 16)) | (u64::from(u32_at(header, 20)) << 32);
        if length != body.len() as u64 {
            return Err(damaged(format!("it should hold {length} bytes and has {}", body.len())));
        }
        if crc32c::crc32c(body) != u32_at(header, 12) {
            return Err(damaged("its checksum does not match".to_owned()));
        }
        Ok(body)
    }

    /// The body of the file; none when there is no such file.
    pub fn read(&self, disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, Unreadable> {
        let io = |source| Unreadable::Io { action: "read", path: path.to_owned(), source };
        let Some(bytes) = disk::read_whole(disk, path).map_err(io)? else { return Ok(None) };
        Ok(Some(self.decode(&bytes, path)?.to_vec()))
    }

    /// The same as [`write`](Self::write), of a body that is never in memory as a whole.
    pub fn write_streamed(
        &self,
        disk: &dyn Disk,
        path: &Path,
        body: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        disk::replace_with(disk, path, |file| {
            let mut stream = BodyWriter::to(file);
            body(&mut stream)?;
            let (length, checksum) = stream.finish()?;
            // Last, because only now is it known. Until the file has its name nobody looks at it.
            file.write_at(0, &self.header(length, checksum))
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

/// Writes a body behind its header, a piece at a time.
struct BodyWriter<'f> {
    file: &'f dyn DiskFile,
    piece: Vec<u8>,
    length: u64,
    checksum: u32,
}

impl<'f> BodyWriter<'f> {
    fn to(file: &'f dyn DiskFile) -> Self {
        Self { file, piece: Vec::with_capacity(PIECE), length: 0, checksum: 0 }
    }

    fn write_piece(&mut self) -> io::Result<()> {
        self.file.write_at(HEADER as u64 + self.length, &self.piece)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &self.piece);
        self.length += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    /// How many bytes there were, and their checksum.
    fn finish(mut self) -> io::Result<(u64, u32)> {
        self.write_piece()?;
        Ok((self.length, self.checksum))
    }
}

impl io::Write for BodyWriter<'_> {
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
        }
        let newer = FileFormat { format: 3, ..FORMAT }.encode(b"body");
        assert_eq!(
            FORMAT.decode(&newer, path).unwrap_err().to_string(),
            "f is a test of format 3, this build supports up to 2; use a newer plimsoll"
        );
    }
}
