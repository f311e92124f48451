use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_model::access::KeyBytes;
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{Author, Change, Command, Writer};

use super::*;
use crate::disk::DiskFile;
use crate::disk::sim::SimDisk;

/// Notes how much is written at a time: that much was in memory.
#[derive(Debug)]
struct Gauge {
    inner: SimDisk,
    largest: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct GaugeFile(Arc<dyn DiskFile>, Arc<AtomicUsize>);

impl Disk for Gauge {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(GaugeFile(self.inner.create(path)?, Arc::clone(&self.largest))))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.inner.lock(path)
    }
}

impl DiskFile for GaugeFile {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, bytes)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.1.fetch_max(bytes.len(), Ordering::Relaxed);
        self.0.write_at(offset, bytes)
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        self.0.allocate(size)
    }
    fn truncate(&self, size: u64) -> io::Result<()> {
        self.0.truncate(size)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn a_large_state_is_backed_up_a_piece_at_a_time() {
    let largest = Arc::<AtomicUsize>::default();
    let disk = Gauge { inner: SimDisk::new(), largest: Arc::clone(&largest) };
    let machine = Machine::new(founded(), 0);
    let by = Author::new(Writer::Operator, "test");
    for nth in 1..=10 {
        let mut facts = cpus(4);
        facts.labels.insert("large".to_owned(), "x".repeat(1 << 20));
        let change = Change::PutNode { node: node_id(&format!("n{nth}")), facts };
        let command = Command::new(Timestamp(1), Term(1), by.clone(), vec![change.free()]);
        machine.apply(nth, &command).unwrap();
    }
    let file = Path::new("backup");
    let summary = take_on(&disk, &machine, Term(3), file).unwrap();
    let largest = largest.load(Ordering::Relaxed);
    assert!(largest <= 1 << 20, "{largest} bytes at once");
    let (of, state) = sealed::open(&disk, file).unwrap().state(&[key(1)]).unwrap();
    assert_eq!((of, summary.applied), (summary.clone(), 10));
    assert!(machine.read(|before| *before == state));
}

fn key(byte: u8) -> CellKey {
    CellKey::from_bytes(&[byte; 32]).unwrap()
}

fn with(state: &mut State, change: Change) {
    let by = Author::new(Writer::Operator, "test");
    state.apply(&Command::new(Timestamp(1), Term(1), by, vec![change.free()])).unwrap();
}

fn founded() -> State {
    let mut state = State::new(CellId::new("test").unwrap());
    with(&mut state, Change::CreateBackupKey { secret: KeyBytes([1; 32]) });
    state
}

/// A backup of several pieces, as bytes.
fn backed_up(disk: &SimDisk, state: &State, applied: u64) -> Vec<u8> {
    write(disk, "b".as_ref(), state, applied, Term(3)).unwrap();
    let file = disk.open("b".as_ref()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What the bytes hold, once their checksum is right again: whoever changes a file can see to that.
fn opened(disk: &SimDisk, bytes: &[u8], keys: &[CellKey]) -> Result<(Summary, State), Error> {
    let body = bytes.get(24..).unwrap_or_default();
    let path = Path::new("changed");
    sealed::BACKUP.write(disk, path, body).unwrap();
    sealed::open(disk, path)?.state(keys)
}

fn large() -> State {
    let mut state = founded();
    let mut facts = cpus(4);
    facts.labels.insert("secret".to_owned(), "hush".repeat(60_000));
    with(&mut state, Change::PutNode { node: node_id("ash"), facts });
    state
}

#[test]
fn a_backup_opens_with_its_key_alone_and_shows_nothing_without() {
    let (disk, state) = (SimDisk::new(), large());
    let bytes = backed_up(&disk, &state, 10);
    for secret in [&b"hushhushhush"[..], &[1; 32], &key(1).to_string().into_bytes()] {
        assert!(!bytes.windows(secret.len()).any(|part| part == secret), "{secret:?}");
    }
    let label = sealed::open(&disk, "b".as_ref()).unwrap().label;
    assert_eq!((label.key, label.summary.applied), (key(1).id(), 10));
    assert_eq!(opened(&disk, &bytes, &[key(2), key(1)]).unwrap().1, state);
    let said = |keys: &[CellKey]| opened(&disk, &bytes, keys).unwrap_err().to_string();
    let [first, second, third] = [1, 2, 3].map(|nth| key(nth).id());
    assert_eq!(
        [said(&[]), said(&[key(2)]), said(&[key(2), key(3)])],
        [
            format!("changed is encrypted with backup key {first}, and no key is given"),
            format!("changed is encrypted with backup key {first}, and the key given is {second}"),
            format!(
                "changed is encrypted with backup key {first}, and the keys given are {second}, {third}"
            ),
        ]
    );
}

#[test]
fn an_older_backup_opens_with_the_older_key() {
    let (disk, mut state) = (SimDisk::new(), large());
    let before = backed_up(&disk, &state, 10);
    with(&mut state, Change::RotateBackupKey { secret: KeyBytes([2; 32]) });
    let after = backed_up(&disk, &state, 11);
    assert!(opened(&disk, &before, &[key(1)]).is_ok());
    assert!(matches!(opened(&disk, &before, &[key(2)]), Err(Error::Locked { .. })));
    assert!(matches!(opened(&disk, &after, &[key(1)]), Err(Error::Locked { .. })));
    for bytes in [before, after] {
        assert!(opened(&disk, &bytes, &[key(1), key(2)]).is_ok());
    }
}

#[test]
fn a_state_without_a_key_is_not_backed_up() {
    let disk = SimDisk::new();
    let state = State::new(CellId::new("test").unwrap());
    let refused = write(&disk, "b".as_ref(), &state, 1, Term(1));
    assert!(matches!(refused, Err(Error::NoKey)), "{refused:?}");
    assert!(disk.open("b".as_ref()).is_err(), "nothing is left behind");
}

#[test]
fn a_backup_that_was_changed_in_any_place_is_refused() {
    let (disk, state) = (SimDisk::new(), large());
    let good = backed_up(&disk, &state, 10);
    let other = backed_up(&disk, &state, 11);
    // Behind the checksum, which may have any byte.
    let line_end = 25 + good[24..].iter().position(|byte| *byte == b'\n').unwrap();
    let (first, piece) = (line_end + 24, (64 << 10) + 16);
    assert!(good.len() > first + 2 * piece, "it has several pieces");
    let refused = |case: &str, bytes: &[u8]| {
        let said = opened(&disk, bytes, &[key(1)]);
        let is_refused =
            matches!(said, Err(Error::Changed { .. } | Error::Locked { .. } | Error::File(_)));
        assert!(is_refused, "{case}: {:?}", said.map(|it| it.0));
    };
    let flips =
        (24..first + 40).chain((first + 40..good.len()).step_by(1_009)).chain([good.len() - 1]);
    for at in flips {
        let mut wrong = good.clone();
        wrong[at] ^= 0x10;
        refused(&format!("byte {at} was flipped"), &wrong);
    }
    for length in
        (24..first + 40).chain((first + 40..good.len()).step_by(4_099)).chain([first + piece])
    {
        refused(&format!("cut to {length}"), &good[..length]);
    }
    refused("one more byte", &[&good[..], &[0]].concat());
    let [one, two] = [0, 1].map(|nth| first + nth * piece..first + (nth + 1) * piece);
    let swapped =
        [&good[..first], &good[two.clone()], &good[one.clone()], &good[two.end..]].concat();
    refused("two pieces in the other order", &swapped);
    refused("a piece left out", &[&good[..first], &good[two.start..]].concat());
    refused("a piece doubled", &[&good[..one.end], &good[first..]].concat());
    let spliced = [&good[..one.end], &other[two.clone()], &good[two.end..]].concat();
    refused("a piece of another backup", &spliced);
    refused("the line of another backup", &[&other[..line_end], &good[line_end..]].concat());
    refused("the stream of another backup", &[&good[..first], &other[first..]].concat());
    assert!(opened(&disk, &good, &[key(1)]).is_ok(), "and the file itself is good");
}
