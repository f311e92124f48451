//! What is in a volume, as one stream: every file with its owner, mode, times, links and extended attributes, and at the end
//! how many there were, of how many bytes, and the SHA-256 of all of it. Written from a directory and read into an empty one.
//!
//! Neither side follows a symlink: a service may have put one anywhere in its volume, and who copies is root.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

mod check;

pub use check::check;

/// What a stream begins with: the form, and its version.
const MAGIC: &[u8; 18] = b"plimsoll volume 1\n";

/// The most bytes that what is said of one file may have: its path, and attributes of 64 KiB as Linux allows them.
const MAX_HEADER: usize = 1 << 20;

/// How much of a file is in memory at once.
const PIECE: usize = 128 << 10;

/// How deep directories may nest.
const MAX_DEPTH: usize = 256;

/// The most bytes that one name may have, on any file system.
const MAX_NAME: usize = 255;

/// How much is in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumeTotals {
    /// Files of every kind, and directories other than the volume's own.
    pub files: u64,
    /// What regular files hold. One with several names counts once.
    pub bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
enum Record {
    Entry(Entry),
    End { totals: VolumeTotals, sha256: [u8; 32] },
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    /// From the volume's own directory, which is the empty one.
    path: Vec<u8>,
    kind: EntryKind,
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, Serialize, Deserialize)]
enum EntryKind {
    Directory,
    /// So many bytes follow.
    File {
        size: u64,
    },
    Symlink {
        target: Vec<u8>,
    },
    /// Another name of a file that came before.
    Link {
        to: Vec<u8>,
    },
    Fifo,
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

fn shown(path: &[u8]) -> String {
    OsStr::from_bytes(path).display().to_string()
}

fn open_dir(at: impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

fn open_root(dir: &Path) -> io::Result<OwnedFd> {
    let name = CString::new(dir.as_os_str().as_bytes())?;
    Ok(open_dir(CWD, &name)?)
}

/// What is in the directory, by name.
fn names(dir: &OwnedFd) -> io::Result<BTreeSet<CString>> {
    let mut names = BTreeSet::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.insert(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Looks at everything below a directory, and says how much it is.
pub fn measure(dir: &Path) -> io::Result<VolumeTotals> {
    let mut totals = VolumeTotals::default();
    measure_in(&open_root(dir)?, &mut totals, &mut BTreeSet::new(), 0)?;
    Ok(totals)
}

fn measure_in(
    dir: &OwnedFd,
    totals: &mut VolumeTotals,
    linked: &mut BTreeSet<(u64, u64)>,
    depth: usize,
) -> io::Result<()> {
    for name in names(dir)? {
        let stat = match rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            // It went while we looked, which is nothing to complain of where something runs.
            Err(Errno::NOENT) => continue,
            stat => stat?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => continue,
            FileType::Directory if depth < MAX_DEPTH => {
                measure_in(&open_dir(dir, &name)?, totals, linked, depth + 1)?;
            }
            FileType::RegularFile if is_first(&stat, linked) => {
                totals.bytes += u64::try_from(stat.st_size).unwrap_or(0);
            }
            _ => {}
        }
        totals.files += 1;
    }
    Ok(())
}

/// Whether the file did not come before under another name.
fn is_first(stat: &Stat, linked: &mut BTreeSet<(u64, u64)>) -> bool {
    stat.st_nlink < 2 || linked.insert((stat.st_dev, stat.st_ino))
}

/// Writes all that is in the directory, which nothing else writes meanwhile.
pub fn write(dir: &Path, to: impl Write) -> io::Result<VolumeTotals> {
    write_as(dir, to, false)
}

/// Writes what is in a directory that is in use: what goes while it is read is left out, and where a file becomes shorter, zeros
/// follow.
pub fn write_live(dir: &Path, to: impl Write) -> io::Result<VolumeTotals> {
    write_as(dir, to, true)
}

fn write_as(dir: &Path, to: impl Write, is_live: bool) -> io::Result<VolumeTotals> {
    let to = HashingWriter { to, hash: Sha256::new() };
    let (totals, links) = (VolumeTotals::default(), BTreeMap::new());
    let mut writer = Writer { to, totals, links, is_live };
    writer.to.write_all(MAGIC)?;
    let root = open_root(dir)?;
    writer.head(&root, &rustix::fs::fstat(&root)?, Vec::new(), EntryKind::Directory)?;
    writer.directory(&root, &[], 0)?;
    let Writer { to: HashingWriter { mut to, hash }, totals, .. } = writer;
    let end = Record::End { totals, sha256: hash.finalize().into() };
    to.write_all(&framed(&end))?;
    to.flush()?;
    Ok(totals)
}

#[derive(Debug)]
pub(crate) struct HashingWriter<W> {
    pub(crate) to: W,
    pub(crate) hash: Sha256,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

struct Writer<W> {
    to: HashingWriter<W>,
    totals: VolumeTotals,
    /// Files with several names, and the first of them.
    links: BTreeMap<(u64, u64), Vec<u8>>,
    is_live: bool,
}

fn framed(record: &Record) -> Vec<u8> {
    let mut bytes = postcard::to_extend(record, vec![0; 4]).expect("every record can be written");
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

impl<W: Write> Writer<W> {
    fn directory(&mut self, dir: &OwnedFd, path: &[u8], depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("{} is nested too deeply", shown(path))));
        }
        for name in names(dir)? {
            let mut path = path.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.to_bytes());
            match self.entry(dir, &name, path, depth) {
                Err(error) if self.is_live && error.kind() == io::ErrorKind::NotFound => {}
                read => read.map_err(|error| {
                    let text = format!("cannot read {}: {error}", name.to_string_lossy());
                    io::Error::new(error.kind(), text)
                })?,
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: &OwnedFd, name: &CStr, path: Vec<u8>, depth: usize) -> io::Result<()> {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            // It is made anew by whoever listens on it.
            FileType::Socket => return Ok(()),
            FileType::Directory => {
                let inner = open_dir(dir, name)?;
                self.head(&inner, &stat, path.clone(), EntryKind::Directory)?;
                self.totals.files += 1;
                return self.directory(&inner, &path, depth + 1);
            }
            FileType::RegularFile => self.file(dir, name, &stat, path)?,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes();
                self.bare(&stat, path, EntryKind::Symlink { target })?;
            }
            FileType::Fifo => self.bare(&stat, path, EntryKind::Fifo)?,
            _ => return Err(invalid("it is a device, and devices are not copied")),
        }
        self.totals.files += 1;
        Ok(())
    }

    fn file(&mut self, dir: &OwnedFd, name: &CStr, stat: &Stat, path: Vec<u8>) -> io::Result<()> {
        if stat.st_nlink > 1 {
            let key = (stat.st_dev, stat.st_ino);
            if let Some(to) = self.links.get(&key).cloned() {
                return self.bare(stat, path, EntryKind::Link { to });
            }
            self.links.insert(key, path.clone());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        self.head(&file, stat, path, EntryKind::File { size })?;
        let mut file = File::from(file).take(size);
        let mut piece = vec![0; PIECE];
        let mut left = size;
        while left > 0 {
            let mut read = file.read(&mut piece)?;
            if read == 0 && !self.is_live {
                return Err(invalid("it became shorter while it was read"));
            } else if read == 0 {
                read = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
                piece[..read].fill(0);
            }
            self.to.write_all(&piece[..read])?;
            left -= read as u64;
        }
        self.totals.bytes += size;
        Ok(())
    }

    /// Says what a file is that can be asked for its attributes.
    fn head(
        &mut self,
        file: &OwnedFd,
        stat: &Stat,
        path: Vec<u8>,
        kind: EntryKind,
    ) -> io::Result<()> {
        self.say(stat, path, kind, attributes(file)?)
    }

    fn bare(&mut self, stat: &Stat, path: Vec<u8>, kind: EntryKind) -> io::Result<()> {
        self.say(stat, path, kind, Vec::new())
    }

    fn say(
        &mut self,
        stat: &Stat,
        path: Vec<u8>,
        kind: EntryKind,
        attributes: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> io::Result<()> {
        let mode = stat.st_mode & 0o7777;
        let owner = (stat.st_uid, stat.st_gid);
        let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
        let modified = (stat.st_mtime, nanos);
        let entry = Entry { path, kind, mode, owner, modified, attributes };
        self.to.write_all(&framed(&Record::Entry(entry)))
    }
}

/// The extended attributes of a file; none where its file system has none.
fn attributes(file: &OwnedFd) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut listed = Vec::with_capacity(64 << 10);
    match rustix::fs::flistxattr(file, rustix::buffer::spare_capacity(&mut listed)) {
        Err(Errno::NOTSUP | Errno::PERM) => return Ok(Vec::new()),
        listed => listed.map(|_| ())?,
    }
    let mut found = Vec::new();
    for name in listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let key = CString::new(name)?;
        let mut value = Vec::with_capacity(64 << 10);
        match rustix::fs::fgetxattr(file, &key, rustix::buffer::spare_capacity(&mut value)) {
            // What only others may read is not a service's own.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => continue,
            read => read.map(|_| ())?,
        }
        found.push((name.to_vec(), value));
    }
    Ok(found)
}

/// Reads all of it into an empty directory, and has it on disk when it returns.
pub fn read(dir: &Path, from: impl Read) -> io::Result<VolumeTotals> {
    let root = open_root(dir)?;
    if !names(&root)?.is_empty() {
        return Err(invalid("the volume is not empty"));
    }
    let mut reader = Reader { root, directories: Vec::new() };
    let totals = records(from, &mut reader)?;
    reader.finish()?;
    totals.compare(measure(dir)?)?;
    Ok(totals)
}

impl VolumeTotals {
    /// Refuses what is not as many as was announced.
    fn compare(self, found: Self) -> io::Result<()> {
        if found == self {
            return Ok(());
        }
        let text = format!(
            "{} files with {} bytes arrived, of {} with {}",
            found.files, found.bytes, self.files, self.bytes
        );
        Err(invalid(text))
    }
}

/// What is done with each file of a stream.
trait EntrySink {
    /// The bytes of a file are the next to be read, and all of them are.
    fn entry(&mut self, entry: Entry, from: &mut impl Read) -> io::Result<()>;
}

/// Reads a whole stream, and says how much was announced at its end.
fn records(from: impl Read, sink: &mut impl EntrySink) -> io::Result<VolumeTotals> {
    let mut from = HashingReader { from, hash: Sha256::new() };
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(invalid("this is not the content of a volume"));
    }
    loop {
        let hash = from.hash.clone();
        match record(&mut from)? {
            Record::Entry(entry) => {
                let path = shown(&entry.path);
                check_entry(&entry).and_then(|()| sink.entry(entry, &mut from)).map_err(
                    |error| io::Error::new(error.kind(), format!("cannot write {path}: {error}")),
                )?;
            }
            Record::End { totals, sha256 } => {
                let found: [u8; 32] = hash.finalize().into();
                if found != sha256 {
                    return Err(invalid("the checksum is wrong: it was changed on its way"));
                }
                return Ok(totals);
            }
        }
    }
}

/// Refuses what no volume has, whoever says so.
fn check_entry(entry: &Entry) -> io::Result<()> {
    // That is nobody's number: the kernel takes it for "leave it as it is".
    if entry.owner.0 == u32::MAX || entry.owner.1 == u32::MAX {
        return Err(invalid("it has an owner that cannot be"));
    }
    if entry.mode > 0o7777 {
        return Err(invalid("it has a mode that cannot be"));
    }
    if entry.path.is_empty() {
        let is_directory = matches!(entry.kind, EntryKind::Directory);
        return if is_directory {
            Ok(())
        } else {
            Err(invalid("the volume itself is no directory"))
        };
    }
    if let EntryKind::Link { to } = &entry.kind {
        parts(to)?;
    }
    parts(&entry.path).map(drop)
}

/// The names that lead to a file, none of which leads out of the volume.
fn parts(path: &[u8]) -> io::Result<Vec<&[u8]>> {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let is_step = |part: &&[u8]| matches!(*part, b"" | b"." | b"..");
    if parts.len() > MAX_DEPTH + 1 || parts.iter().any(is_step) {
        return Err(invalid("it lies outside of the volume"));
    }
    if parts.iter().any(|part| part.len() > MAX_NAME) {
        return Err(invalid(format!("a name has more than {MAX_NAME} bytes")));
    }
    Ok(parts)
}

#[derive(Debug)]
pub(crate) struct HashingReader<R> {
    pub(crate) from: R,
    pub(crate) hash: Sha256,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.hash.update(&into[..read]);
        Ok(read)
    }
}

fn record(from: &mut impl Read) -> io::Result<Record> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_HEADER {
        return Err(invalid(format!(
            "a header of {length} bytes, at most {MAX_HEADER} are allowed"
        )));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(|error| invalid(format!("a header is garbled: {error}")))
}

struct Reader {
    root: OwnedFd,
    /// They get their modes and times when all is in them.
    directories: Vec<Entry>,
}

impl EntrySink for Reader {
    fn entry(&mut self, entry: Entry, from: &mut impl Read) -> io::Result<()> {
        if entry.path.is_empty() {
            self.directories.push(entry);
            return Ok(());
        }
        let (dir, name) = self.place(&entry.path)?;
        match &entry.kind {
            EntryKind::Directory => {
                rustix::fs::mkdirat(&dir, &name, Mode::RWXU)?;
                self.directories.push(entry);
                return Ok(());
            }
            EntryKind::File { size } => {
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&dir, &name, flags, Mode::RUSR | Mode::WUSR)?;
                let mut file = File::from(file);
                let mut piece = vec![0; PIECE];
                let mut left = *size;
                while left > 0 {
                    let most = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
                    from.read_exact(&mut piece[..most])?;
                    file.write_all(&piece[..most])?;
                    left -= most as u64;
                }
                dress(&OwnedFd::from(file), &entry)?;
            }
            EntryKind::Symlink { target } => {
                rustix::fs::symlinkat(CString::new(target.clone())?, &dir, &name)?;
                dress_at(&dir, &name, &entry)?;
            }
            EntryKind::Link { to } => {
                let (there, target) = self.place(to)?;
                rustix::fs::linkat(&there, &target, &dir, &name, AtFlags::empty())?;
            }
            EntryKind::Fifo => {
                rustix::fs::mknodat(&dir, &name, FileType::Fifo, Mode::from(entry.mode), 0)?;
                // Whatever the umask left of it.
                rustix::fs::chmodat(&dir, &name, Mode::from(entry.mode), AtFlags::empty())?;
                dress_at(&dir, &name, &entry)?;
            }
        }
        Ok(())
    }
}

impl Reader {
    /// The directory that a path leads to, by directories alone, and the name in it.
    fn place(&self, path: &[u8]) -> io::Result<(OwnedFd, CString)> {
        let mut parts = parts(path)?;
        let name = CString::new(parts.pop().unwrap_or_default())?;
        let mut dir = self.root.try_clone()?;
        for part in parts {
            dir = open_dir(&dir, &CString::new(part)?)?;
        }
        Ok((dir, name))
    }

    fn finish(self) -> io::Result<()> {
        for entry in self.directories.iter().rev() {
            let dir = if entry.path.is_empty() {
                self.root.try_clone()?
            } else {
                let (dir, name) = self.place(&entry.path)?;
                open_dir(&dir, &name)?
            };
            dress(&dir, entry)?;
        }
        // All of it is on disk before anybody is told so.
        rustix::fs::syncfs(&self.root)?;
        Ok(())
    }
}

fn times(entry: &Entry) -> Timestamps {
    let at = Timespec { tv_sec: entry.modified.0, tv_nsec: entry.modified.1 };
    Timestamps { last_access: at, last_modification: at }
}

/// Gives a file its owner, mode, attributes and times, in the order in which each leaves the others as they are.
fn dress(file: &OwnedFd, entry: &Entry) -> io::Result<()> {
    let stat = rustix::fs::fstat(file)?;
    if (stat.st_uid, stat.st_gid) != entry.owner {
        let (user, group) = (Uid::from_raw(entry.owner.0), Gid::from_raw(entry.owner.1));
        rustix::fs::fchown(file, Some(user), Some(group))?;
    }
    for (name, value) in &entry.attributes {
        let name = CString::new(name.clone())?;
        match rustix::fs::fsetxattr(file, &name, value, XattrFlags::empty()) {
            // Another file system, or no root: the content is what counts.
            Err(Errno::NOTSUP | Errno::PERM) => {}
            set => set?,
        }
    }
    rustix::fs::fchmod(file, Mode::from(entry.mode))?;
    Ok(rustix::fs::futimens(file, &times(entry))?)
}

/// The same for what cannot be opened.
fn dress_at(dir: &OwnedFd, name: &CStr, entry: &Entry) -> io::Result<()> {
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statat(dir, name, nofollow)?;
    if (stat.st_uid, stat.st_gid) != entry.owner {
        let (user, group) = (Uid::from_raw(entry.owner.0), Gid::from_raw(entry.owner.1));
        rustix::fs::chownat(dir, name, Some(user), Some(group), nofollow)?;
    }
    Ok(rustix::fs::utimensat(dir, name, &times(entry), nofollow)?)
}

#[cfg(test)]
mod tests;
