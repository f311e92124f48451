//! A disk that remembers when it was full, whoever had to hear of it: by the time a failure has come through the
//! consensus, all that is left of its kind is words.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Disk, DiskFile};

#[derive(Debug, Clone)]
pub(crate) struct MonitoredDisk {
    disk: Arc<dyn Disk>,
    full: Full,
}

/// Whether something could not be written for want of room.
#[derive(Debug, Clone, Default)]
struct Full(Arc<AtomicBool>);

impl Full {
    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        {
            self.0.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl MonitoredDisk {
    pub(crate) fn over(disk: Arc<dyn Disk>) -> Self {
        Self { disk, full: Full::default() }
    }

    pub(crate) fn was_full(&self) -> bool {
        self.full.0.load(Ordering::Relaxed)
    }

    fn file(&self, file: io::Result<Arc<dyn DiskFile>>) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.full.note(file)?;
        Ok(Arc::new(WatchedFile { file, full: self.full.clone() }))
    }
}

impl Disk for MonitoredDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.full.note(self.disk.create_dir(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.file(self.disk.create(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.file(self.disk.open(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.full.note(self.disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.full.note(self.disk.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.full.note(self.disk.lock(path))
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    full: Full,
}

impl DiskFile for WatchedFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.full.note(self.file.write_at(offset, bytes))
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.full.note(self.file.allocate(size))
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.full.note(self.file.truncate(size))
    }

    fn sync(&self) -> io::Result<()> {
        self.full.note(self.file.sync())
    }
}
