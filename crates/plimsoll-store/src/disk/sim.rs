//! A disk in memory that behaves as badly as a real one may: what was not synced is torn or forgotten in a crash,
//! room runs out, and the machine can stop at any operation.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Disk, DiskFile};

/// What a crash keeps or loses of a write. Smaller than a sector, because less is then taken for granted.
const TORN_PIECE: usize = 32;

#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    world: Arc<Mutex<DiskWorld>>,
}

#[derive(Debug, Default)]
struct DiskWorld {
    files: BTreeMap<PathBuf, Arc<Mutex<Inode>>>,
    /// The names as of the last sync, and what happened to them since.
    safe_files: BTreeMap<PathBuf, Arc<Mutex<Inode>>>,
    renames: Vec<NameChange>,
    locked: BTreeSet<PathBuf>,
    /// Counts operations that change something.
    operations: u64,
    crash_at: Option<u64>,
    room: Option<u64>,
}

#[derive(Debug, Clone)]
enum NameChange {
    Put(PathBuf, Arc<Mutex<Inode>>),
    /// A name is of a file: whatever else was lost, the new one leads to the file that was renamed.
    Rename(PathBuf, PathBuf, Arc<Mutex<Inode>>),
    Remove(PathBuf),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    safe: Vec<u8>,
    unsafe_changes: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Size(usize),
}

#[derive(Debug)]
struct SimFile {
    world: Arc<Mutex<DiskWorld>>,
    inode: Arc<Mutex<Inode>>,
}

impl SimDisk {
    pub fn new() -> Self {
        Self::default()
    }

    /// From the given operation on, nothing works any more.
    pub fn crash_at(&self, operation: u64) {
        self.world().crash_at = Some(operation);
    }

    pub fn operations(&self) -> u64 {
        self.world().operations
    }

    /// How many more bytes fit.
    pub fn set_room(&self, room: u64) {
        self.world().room = Some(room);
    }

    /// Flips a bit of a file, as disks do.
    pub fn flip(&self, path: &Path, offset: usize, bit: u8) {
        let world = self.world();
        let mut inode = lock(&world.files[path]);
        inode.bytes[offset] ^= 1 << bit;
        inode.keep();
    }

    /// The process was killed, and the machine went on: all that was written is there, and none of it the safer.
    pub fn after_kill(&self) -> Self {
        self.world().crash_at = None;
        self.clone()
    }

    /// The disk that is found after the machine stops now: what was synced, and of the rest what chance kept.
    pub fn after_crash(&self, seed: u64) -> Self {
        let mut chance = FaultRng(seed ^ 0x9e37_79b9_7f4a_7c15);
        let world = self.world();
        let mut names = world.safe_files.clone();
        for change in &world.renames {
            if chance.flip() {
                change.apply(&mut names);
            }
        }
        let mut files = BTreeMap::new();
        for (path, inode) in names {
            let found = lock(&inode).after_crash(&mut chance);
            let inode = Inode { safe: found.clone(), bytes: found, unsafe_changes: Vec::new() };
            files.insert(path, Arc::new(Mutex::new(inode)));
        }
        let world = DiskWorld { safe_files: files.clone(), files, ..DiskWorld::default() };
        Self { world: Arc::new(Mutex::new(world)) }
    }

    fn world(&self) -> MutexGuard<'_, DiskWorld> {
        lock(&self.world)
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Arc<Mutex<Inode>>>) {
        match self {
            Self::Put(path, inode) => {
                names.insert(path.clone(), Arc::clone(inode));
            }
            Self::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), Arc::clone(inode));
            }
            Self::Remove(path) => {
                names.remove(path);
            }
        }
    }
}

impl Inode {
    /// All of it is safe now.
    fn keep(&mut self) {
        self.safe.clone_from(&self.bytes);
        self.unsafe_changes.clear();
    }

    fn after_crash(&self, chance: &mut FaultRng) -> Vec<u8> {
        let mut bytes = self.safe.clone();
        for change in &self.unsafe_changes {
            match change {
                Change::Size(size) if chance.flip() => bytes.resize(*size, 0),
                Change::Size(_) => {}
                Change::Write(offset, written) => {
                    for (nth, piece) in written.chunks(TORN_PIECE).enumerate() {
                        if chance.flip() {
                            put(&mut bytes, offset + nth * TORN_PIECE, piece);
                        }
                    }
                }
            }
        }
        bytes
    }
}

impl DiskWorld {
    /// Counts an operation, and fails it once the machine has stopped.
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.crash_at {
            Some(at) if self.operations >= at => Err(io::Error::other("the machine has stopped")),
            _ => Ok(()),
        }
    }

    fn take_room(&mut self, bytes: usize) -> io::Result<()> {
        let Some(room) = &mut self.room else { return Ok(()) };
        *room = room.checked_sub(bytes as u64).ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    }

    fn change_names(&mut self, change: NameChange) -> io::Result<()> {
        self.operate()?;
        change.apply(&mut self.files);
        self.renames.push(change);
        Ok(())
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.world();
        let inside = world.files.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let inode = Arc::new(Mutex::new(Inode::default()));
        self.world().change_names(NameChange::Put(path.to_owned(), Arc::clone(&inode)))?;
        Ok(Arc::new(SimFile { world: Arc::clone(&self.world), inode }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let inode = self.world().files.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { world: Arc::clone(&self.world), inode }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world();
        let inode = world.files.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        world.change_names(NameChange::Rename(from.to_owned(), to.to_owned(), inode))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        if !world.files.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.change_names(NameChange::Remove(path.to_owned()))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.operate()?;
        world.safe_files = world.files.clone();
        world.renames.clear();
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        if !self.world().locked.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { world: Arc::clone(&self.world), path: path.to_owned() }))
    }
}

struct SimLock {
    world: Arc<Mutex<DiskWorld>>,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        lock(&self.world).locked.remove(&self.path);
    }
}

impl SimFile {
    fn change(&self, change: Change) -> io::Result<()> {
        let mut world = lock(&self.world);
        let mut inode = lock(&self.inode);
        let result = world.operate().and_then(|()| {
            let size = match &change {
                Change::Write(offset, bytes) => offset + bytes.len(),
                Change::Size(size) => *size,
            };
            world.take_room(size.saturating_sub(inode.bytes.len()))
        });
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            return result;
        }
        match &change {
            Change::Write(offset, bytes) => put(&mut inode.bytes, *offset, bytes),
            Change::Size(size) => inode.bytes.resize(*size, 0),
        }
        // Also the one that the machine stopped in: some of it may have got through.
        inode.unsafe_changes.push(change);
        result
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(lock(&self.inode).bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let inode = lock(&self.inode);
        let at = index(offset);
        let found = inode.bytes.get(at..at + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(Change::Write(index(offset), bytes.to_vec()))
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let size = index(size);
        if lock(&self.inode).bytes.len() >= size {
            return Ok(());
        }
        self.change(Change::Size(size))
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.change(Change::Size(index(size)))
    }

    fn sync(&self) -> io::Result<()> {
        lock(&self.world).operate()?;
        let mut inode = lock(&self.inode);
        inode.keep();
        Ok(())
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, written: &[u8]) {
    if bytes.len() < offset + written.len() {
        bytes.resize(offset + written.len(), 0);
    }
    bytes[offset..offset + written.len()].copy_from_slice(written);
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a simulated file fits in memory")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of the simulated disk panics")
}

/// A seeded coin (xorshift): a failing seed fails again.
struct FaultRng(u64);

impl FaultRng {
    fn flip(&mut self) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 63 == 1
    }
}
