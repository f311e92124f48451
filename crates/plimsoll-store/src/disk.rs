//! What the store asks of a disk, and the disk of this machine.
//!
//! Everything that must survive goes through [`Disk`], so that tests can put a disk below the same code that tears
//! writes, forgets what was not synced and runs full. The trait promises no more than POSIX does: bytes are safe
//! after [`DiskFile::sync`], names after [`Disk::sync_dir`].

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use plimsoll_files::modes;

pub(crate) mod monitored;
#[cfg(any(test, feature = "testkit"))]
pub mod sim;

pub trait Disk: Debug + Send + Sync + 'static {
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// The names in a directory, in order; none when there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// A new, empty file; one of that name is emptied.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Holds the file until dropped. [`io::ErrorKind::WouldBlock`]: another process does.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

pub trait DiskFile: Debug + Send + Sync + 'static {
    fn size(&self) -> io::Result<u64>;
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the file at least this long and reserves the room; what is new reads as zeros.
    fn allocate(&self, size: u64) -> io::Result<()>;
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Returns once all that was written is safe.
    fn sync(&self) -> io::Result<()>;
}

/// The whole of a file; none when there is none of that name.
pub(crate) fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let size = usize::try_from(file.size()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; size];
    file.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Whether a file was still being made: it goes by this name until it is whole.
pub(crate) fn is_unfinished(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "new")
}

/// Puts a file in place of another so that a crash leaves one of the two, whole.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(disk, path, |file| file.write_at(0, bytes))
}

/// The same, with what is written to it.
pub(crate) fn replace_with(
    disk: &dyn Disk,
    path: &Path,
    write: impl FnOnce(&Arc<dyn DiskFile>) -> io::Result<()>,
) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let file = disk.create(new)?;
    write(&file)?;
    file.sync()?;
    put_in_place(disk, new, path)
}

/// Gives a file that is whole and synced its name.
pub(crate) fn put_in_place(disk: &dyn Disk, new: &Path, path: &Path) -> io::Result<()> {
    disk.rename(new, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    disk.sync_dir(parent.unwrap_or(Path::new(".")))
}

/// How many bytes there is room for in the file system that holds this directory.
pub fn room(dir: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The disk of this machine. What it makes is its owner's alone: the log, its snapshots and backups hold secrets.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        plimsoll_files::create_dir(dir, modes::DIR)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = plimsoll_files::create(path, modes::FILE)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(modes::FILE);
        let file = options.open(path)?;
        file.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            std::fs::TryLockError::Error(error) => error,
        })?;
        Ok(Box::new(file))
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        if self.size()? >= size {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, size) {
            // Some file systems cannot reserve; then the room is found, or not, when it is written.
            Err(rustix::io::Errno::OPNOTSUPP) => self.0.set_len(size),
            result => Ok(result?),
        }
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_the_store_makes_is_its_owners_alone() {
        let root = tempfile::tempdir().unwrap();
        let (dir, file) = (root.path().join("store/log"), root.path().join("store/log/0001"));
        RealDisk.create_dir(&dir).unwrap();
        RealDisk.create(&file).unwrap();
        let lock = dir.join("lock");
        let _held = RealDisk.lock(&lock).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!([dir.parent().unwrap(), &dir].map(mode), [0o700, 0o700]);
        assert_eq!([&file, &lock].map(|path| mode(path)), [0o600, 0o600]);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        RealDisk.create(&file).unwrap();
        assert_eq!(mode(&file), 0o600, "an emptied file is closed too");
        let backup = root.path().join("backup");
        replace(&RealDisk, &backup, b"the whole state").unwrap();
        assert_eq!(mode(&backup), 0o600);
    }
}
