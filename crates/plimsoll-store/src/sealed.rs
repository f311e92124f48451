//! Small files that are whole or refused: a header with a magic word, a format version and a checksum, then the
//! body. The metadata, the identity, snapshots and backups are written so.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_model::Level;
use plimsoll_model::level::{VERSION, outdated, remedy};
use thiserror::Error;

use crate::disk::{self, Disk};
use crate::level::Undecoded;

/// magic, format, checksum, length of the body
const HEADER: usize = 8 + 4 + 4 + 8;

/// What a file must begin with, and the newest version of it that this build can read.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub magic: [u8; 8],
    pub format: u32,
    /// As in "is not a *backup* of plimsoll".
    pub name: &'static str,
}

/// Why a sealed file cannot be used.
#[derive(Debug, Error)]
pub enum Unreadable {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is not a {kind} of plimsoll", path.display())]
    Foreign { path: PathBuf, kind: &'static str },
    #[error(
        "{} is a {kind} of format {found}, this build knows up to {known}; use a newer plimsoll",
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

impl Kind {
    pub fn seal(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend_from_slice(&self.magic);
        bytes.extend_from_slice(&self.format.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// The body of a sealed file; `path` is only named in errors.
    pub fn unseal<'b>(&self, bytes: &'b [u8], path: &Path) -> Result<&'b [u8], Unreadable> {
        let path = || path.to_owned();
        let foreign = || Unreadable::Foreign { path: path(), kind: self.name };
        let damaged = |what: String| Unreadable::Damaged { path: path(), what };
        let (header, body) = bytes.split_at_checked(HEADER).ok_or_else(foreign)?;
        if header[..8] != self.magic {
            return Err(foreign());
        }
        // Before the checksum: a newer format may well seal differently.
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
        Ok(Some(self.unseal(&bytes, path)?.to_vec()))
    }

    /// Puts the file in place of the one before, whole or not at all.
    pub fn write(&self, disk: &dyn Disk, path: &Path, body: &[u8]) -> io::Result<()> {
        disk::replace(disk, path, &self.seal(body))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { magic: *b"testtest", format: 2, name: "test" };

    #[test]
    fn a_sealed_file_is_whole_or_refused() {
        let bytes = KIND.seal(b"body");
        let path = Path::new("f");
        assert_eq!(KIND.unseal(&bytes, path).unwrap(), b"body");
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x40;
            assert!(KIND.unseal(&wrong, path).is_err(), "byte {at} was flipped");
            assert!(KIND.unseal(&bytes[..at], path).is_err(), "cut to {at} bytes");
        }
        let newer = Kind { format: 3, ..KIND }.seal(b"body");
        assert_eq!(
            KIND.unseal(&newer, path).unwrap_err().to_string(),
            "f is a test of format 3, this build knows up to 2; use a newer plimsoll"
        );
    }
}
