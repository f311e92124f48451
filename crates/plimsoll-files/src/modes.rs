//! Who may read what a daemon keeps: its own user, and nobody else of the host. A log holds secrets and the key of the cell.
//!
//! New files get their mode from whoever makes them. Here are the modes, and the mending of what an earlier release, or a
//! hand, left open.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fchmod, fstat, openat, statat};
use rustix::io::Errno;

/// A file that its owner alone reads.
pub const FILE: u32 = 0o600;

/// A directory that its owner alone enters.
pub const DIR: u32 = 0o700;

/// A directory that others pass through without seeing what is in it: services of other users live below it.
pub const PASSAGE: u32 = 0o711;

/// How many directories deep a tree is looked at. A daemon's own are four deep; a deeper one is not ours.
const MAX_DEPTH: usize = 16;

/// What was open to other users and is not any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mended {
    pub count: usize,
    /// The first of them, to name one.
    pub first: Option<PathBuf>,
}

impl Mended {
    fn note(&mut self, path: &Path) {
        self.count += 1;
        self.first.get_or_insert_with(|| path.to_owned());
    }

    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        if let (None, Some(first)) = (&self.first, other.first) {
            self.first = Some(first);
        }
    }
}

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The file or directory alone.
    Itself,
    /// And everything below it.
    Tree,
}

/// Takes from a file or directory every permission that is not in `most`; it never gives one. Follows no symbolic link, so
/// that nobody can point it elsewhere, and what is not there needs nothing.
pub fn narrow(path: &Path, most: u32, reach: Reach) -> io::Result<Mended> {
    let mut mended = Mended::default();
    match walk(CWD.as_fd(), path.as_os_str(), path, most, reach, MAX_DEPTH, &mut mended) {
        Ok(()) | Err(Errno::NOENT) => Ok(mended),
        Err(error) => Err(error.into()),
    }
}

fn walk(
    dir: impl AsFd,
    name: &OsStr,
    path: &Path,
    most: u32,
    reach: Reach,
    depth: usize,
    mended: &mut Mended,
) -> rustix::io::Result<()> {
    let found = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    let is_dir = kind == FileType::Directory;
    // A socket is closed by whoever binds it, a link has no mode, and no other kind is ours.
    if !is_dir && kind != FileType::RegularFile {
        return Ok(());
    }
    if !is_dir && !is_open(&found, most) {
        return Ok(());
    }
    let opened = open(&dir, name, is_dir)?;
    // Once more, of what was opened: the name may lead elsewhere by now.
    let found = fstat(&opened)?;
    if is_open(&found, most) {
        fchmod(&opened, Mode::from_raw_mode(found.st_mode & most))?;
        mended.note(path);
    }
    if !is_dir || reach == Reach::Itself || depth == 0 {
        return Ok(());
    }
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        match walk(&opened, name, &path.join(name), most, reach, depth - 1, mended) {
            // It was removed meanwhile.
            Err(Errno::NOENT) => {}
            walked => walked?,
        }
    }
    Ok(())
}

fn is_open(found: &Stat, most: u32) -> bool {
    found.st_mode & 0o777 & !most != 0
}

fn open(dir: impl AsFd, name: &OsStr, is_dir: bool) -> rustix::io::Result<OwnedFd> {
    let kind = if is_dir { OFlags::DIRECTORY } else { OFlags::NONBLOCK };
    openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | kind, Mode::empty())
}
