use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use proptest::prelude::*;

use super::*;
use crate::disk::sim::SimDisk;

pub(super) const DIR: &str = "data/log";

/// Small, so that a short history crosses segments.
const SMALL: u64 = 512;

pub(super) fn open(disk: &SimDisk, start: u64) -> Result<(Log, Option<TornWrite>), Error> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = LogOptions { start, may_create: true, segment_size: SMALL };
    Log::open(&disk, Path::new(DIR), options)
}

fn entry(index: u64, version: u8) -> Arc<[u8]> {
    let text = format!("entry {index} of version {version} ");
    let length = 8 + usize::try_from(index % 7).unwrap() * 23;
    text.bytes().cycle().take(length).collect()
}

/// Gives an order and waits for its end.
fn wait(order: impl FnOnce(Done)) -> Result<(), LogWriteError> {
    let (sender, receiver) = mpsc::channel();
    order(Box::new(move |result| sender.send(result).expect("the test waits")));
    receiver.recv().expect("every order ends")
}

pub(super) fn append(log: &Log, count: u64, version: u8) -> Result<(), LogWriteError> {
    let next = log.range().end;
    let payloads = (next..next + count).map(|index| entry(index, version)).collect();
    wait(|done| log.append(payloads, done))
}

pub(super) fn contents(log: &Log) -> Vec<Arc<[u8]>> {
    log.read(log.range(), usize::MAX).unwrap()
}

pub(super) fn segment(first: u64) -> PathBuf {
    segment_path(Path::new(DIR), first)
}

#[test]
fn a_log_reads_as_it_was_written_also_after_it_was_opened_again() {
    let disk = SimDisk::new();
    let (log, cut) = open(&disk, 0).unwrap();
    assert_eq!(cut, None);
    for _ in 0..10 {
        append(&log, 5, 0).unwrap();
    }
    let written = contents(&log);
    assert_eq!(written, (0..50).map(|index| entry(index, 0)).collect::<Vec<_>>());
    drop(log);
    let (log, cut) = open(&disk, 0).unwrap();
    assert_eq!((contents(&log), cut), (written, None));
    assert!(disk.list(Path::new(DIR)).unwrap().len() > 3, "it crossed segments");
}

#[test]
fn an_entry_larger_than_a_segment_gets_one_of_its_own() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, 0).unwrap();
    let large: Arc<[u8]> = vec![7; 5_000].into();
    wait(|done| log.append(vec![Arc::clone(&large)], done)).unwrap();
    append(&log, 1, 0).unwrap();
    drop(log);
    let (log, _) = open(&disk, 0).unwrap();
    assert_eq!(contents(&log), [large, entry(1, 0)]);
}

#[test]
fn entries_that_left_memory_are_read_from_disk() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, 0).unwrap();
    let payload = |index: u8| -> Arc<[u8]> { vec![index + 1; index::MAX_CACHE / 4].into() };
    for index in 0..12 {
        wait(|done| log.append(vec![payload(index)], done)).unwrap();
    }
    assert!(log.lookup(0..12, usize::MAX).1, "the oldest are on disk only");
    assert!(!log.lookup(11..12, usize::MAX).1, "the newest is in memory");
    assert_eq!(contents(&log), (0..12).map(payload).collect::<Vec<_>>());
    assert_eq!(log.read(0..12, 1).unwrap().len(), 1, "a bound in bytes gives at least one");
}

#[test]
fn what_is_purged_frees_whole_segments_and_stays_gone() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, 0).unwrap();
    append(&log, 50, 0).unwrap();
    let before = disk.list(Path::new(DIR)).unwrap().len();
    wait(|done| log.purge(40, done)).unwrap();
    assert_eq!(log.range(), 40..50);
    assert!(disk.list(Path::new(DIR)).unwrap().len() < before);
    drop(log);
    let (log, _) = open(&disk, 40).unwrap();
    assert_eq!(contents(&log), (40..50).map(|index| entry(index, 0)).collect::<Vec<_>>());

    wait(|done| log.purge(1_000, done)).unwrap();
    assert_eq!(log.range(), 1_000..1_000, "a snapshot may lie beyond the log");
    append(&log, 3, 0).unwrap();
    drop(log);
    assert_eq!(open(&disk, 1_000).unwrap().0.range(), 1_000..1_003);
}

#[test]
fn what_is_cut_off_is_not_found_again() {
    for next in [45, 21, 1, 0] {
        let disk = SimDisk::new();
        let (log, _) = open(&disk, 0).unwrap();
        append(&log, 50, 0).unwrap();
        wait(|done| log.truncate(next, done)).unwrap();
        append(&log, 3, 1).unwrap();
        drop(log);
        let (log, cut) = open(&disk, 0).unwrap();
        let old = (0..next).map(|index| entry(index, 0));
        let expected: Vec<_> = old.chain((next..next + 3).map(|index| entry(index, 1))).collect();
        assert_eq!((contents(&log), cut), (expected, None), "cut at {next}");
    }
}

#[test]
fn a_flipped_bit_is_an_error_that_names_file_and_offset_or_a_torn_tail() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, 0).unwrap();
    for _ in 0..8 {
        append(&log, 1, 0).unwrap();
    }
    drop(log);
    let last = disk.list(Path::new(DIR)).unwrap().len() - 1;
    let names = disk.list(Path::new(DIR)).unwrap();
    for (nth, name) in names.iter().enumerate() {
        let path = Path::new(DIR).join(name);
        let size = usize::try_from(disk.open(&path).unwrap().size().unwrap()).unwrap();
        for offset in (0..size).step_by(3) {
            disk.flip(&path, offset, 5);
            match open(&disk.after_crash(0), 0) {
                Err(Error::Corrupt { path: blamed, .. } | Error::Newer { path: blamed, .. }) => {
                    assert_eq!(blamed, path);
                }
                // Padding is not covered by checksums, and the very last write cannot be told from a torn one.
                Ok((log, cut)) => {
                    let kept = contents(&log);
                    let all: Vec<_> = (0..8).map(|index| entry(index, 0)).collect();
                    assert_eq!(kept, all[..kept.len()]);
                    let lost_last = nth == last && kept.len() == 7 && cut.is_some();
                    assert!(kept.len() == 8 || lost_last, "{name} {offset}: {cut:?}");
                }
                Err(other) => panic!("{name} {offset}: {other}"),
            }
            disk.flip(&path, offset, 5);
        }
    }
}

#[test]
fn a_lost_segment_is_an_error_and_never_an_empty_log() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, 0).unwrap();
    append(&log, 50, 0).unwrap();
    drop(log);
    let firsts: Vec<u64> = disk
        .list(Path::new(DIR))
        .unwrap()
        .iter()
        .map(|name| name.strip_suffix(".log").unwrap().parse().unwrap())
        .collect();
    let damaged = disk.after_crash(0);
    damaged.remove(&segment(firsts[1])).unwrap();
    let error = open(&damaged, 0).unwrap_err().to_string();
    let expected = format!(
        "{}: entries {} to {} are missing before it; restore this server from a backup, or wipe its data \
         directory and let it join again",
        segment(firsts[2]).display(),
        firsts[1],
        firsts[2] - 1
    );
    assert_eq!(error, expected);

    let damaged = disk.after_crash(0);
    damaged.remove(&segment(0)).unwrap();
    assert!(matches!(open(&damaged, 0), Err(Error::Gap { from: 0, .. })));

    for first in firsts {
        disk.remove(&segment(first)).unwrap();
    }
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let options = LogOptions { may_create: false, ..LogOptions::default() };
    let error = Log::open(&disk, Path::new(DIR), options).unwrap_err().to_string();
    assert_eq!(error, "no log found in data/log; was it moved?");
}

#[test]
fn a_full_disk_fails_the_entry_and_keeps_the_others() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, 0).unwrap();
    append(&log, 3, 0).unwrap();
    disk.set_room(700);
    let mut kept = 3;
    let failure = loop {
        match append(&log, 1, 0) {
            Ok(()) => kept += 1,
            Err(failure) => break failure,
        }
    };
    assert_eq!(
        failure.to_string(),
        "cannot write the log in data/log: disk full; free some space and restart"
    );
    assert!(
        append(&log, 1, 0).is_err(),
        "what the disk holds is not known until it is opened again"
    );
    drop(log);
    let (log, _) = open(&disk.after_crash(1), 0).unwrap();
    assert_eq!(contents(&log), (0..kept).map(|index| entry(index, 0)).collect::<Vec<_>>());
}

#[test]
fn a_segment_of_a_newer_format_is_refused_with_the_next_step() {
    let disk = SimDisk::new();
    drop(open(&disk, 0).unwrap());
    disk.flip(&segment(0), 8, 1);
    assert_eq!(
        open(&disk, 0).unwrap_err().to_string(),
        "data/log/00000000000000000000.log is a log of format 3, this build supports up to 1; start the newer \
         plimsoll that wrote it"
    );
}

#[derive(Debug, Clone)]
enum Step {
    /// Appends of so many entries each, given at once.
    Append(Vec<u64>),
    /// Keeps so many of a hundred of the entries.
    Truncate(u64),
    Purge(u64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(1..6_u64, 1..4).prop_map(Step::Append),
        1 => (0..=100_u64).prop_map(Step::Truncate),
        1 => (0..=120_u64).prop_map(Step::Purge),
        1 => Just(Step::Reopen),
    ]
}

/// What the log holds by right: as of the last acknowledgement, and each way the order under way may have ended.
#[derive(Debug, Clone)]
struct Promise {
    start: u64,
    entries: Vec<Arc<[u8]>>,
    maybe: Vec<Vec<Arc<[u8]>>>,
    version: u8,
}

impl Promise {
    /// Carries out a step until the machine stops.
    fn take(&mut self, log: &Log, step: &Step) -> Result<(), LogWriteError> {
        match step {
            Step::Append(batches) => {
                self.version = self.version.wrapping_add(1);
                let (sender, receiver) = mpsc::channel();
                let mut all = self.entries.clone();
                self.maybe.clear();
                for count in batches {
                    let next = self.start + all.len() as u64;
                    let payloads: Vec<_> =
                        (next..next + count).map(|index| entry(index, self.version)).collect();
                    for payload in &payloads {
                        self.maybe.push(all.clone());
                        all.push(Arc::clone(payload));
                    }
                    let sender = sender.clone();
                    log.append(payloads, Box::new(move |result| sender.send(result).unwrap()));
                }
                self.maybe.push(all.clone());
                let mut acknowledged = self.entries.len();
                let mut failed = None;
                for count in batches {
                    match receiver.recv().unwrap() {
                        Ok(()) => acknowledged += usize::try_from(*count).unwrap(),
                        Err(failure) => failed = Some(failure),
                    }
                }
                self.entries = all[..acknowledged].to_vec();
                self.maybe.retain(|maybe| maybe.len() >= acknowledged);
                failed.map_or(Ok(()), Err)
            }
            Step::Truncate(percent) => {
                let kept = self.entries.len() * usize::try_from(*percent).unwrap() / 100;
                self.maybe =
                    (kept..=self.entries.len()).map(|n| self.entries[..n].to_vec()).collect();
                let next = self.start + kept as u64;
                wait(|done| log.truncate(next, done))?;
                self.entries.truncate(kept);
                self.maybe.clear();
                Ok(())
            }
            Step::Purge(percent) => {
                let count = self.entries.len() as u64 * percent / 100;
                // As its user does: first it is written down, then the files go.
                let dropped = usize::try_from(count).unwrap().min(self.entries.len());
                self.entries.drain(..dropped);
                self.start += count;
                self.maybe.clear();
                wait(|done| log.purge(self.start, done))
            }
            Step::Reopen => Ok(()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_crash_every_acknowledged_entry_is_there_and_nothing_else(
        steps in prop::collection::vec(step(), 1..14),
        crash in 1..120_u64,
        seed in any::<u64>(),
        again in 1..20_u64,
        is_kill in any::<bool>(),
    ) {
        let disk = SimDisk::new();
        let mut promise = Promise { start: 0, entries: Vec::new(), maybe: Vec::new(), version: 0 };
        disk.crash_at(crash);
        let mut log = open(&disk, 0).ok().map(|(log, _)| log);
        for step in &steps {
            let Some(open_log) = &log else { break };
            if promise.take(open_log, step).is_err() {
                break;
            }
            if matches!(step, Step::Reopen) {
                drop(log.take());
                log = open(&disk, promise.start).ok().map(|(log, _)| log);
            }
        }
        drop(log);

        // Opening may itself be stopped, and tried again.
        let found = if is_kill { disk.after_kill() } else { disk.after_crash(seed) };
        found.crash_at(found.operations() + again);
        let shown = open(&found, promise.start).ok().map(|(log, _)| contents(&log));
        let found = found.after_crash(!seed);
        let (log, _) = open(&found, promise.start).expect("a crash is no corruption");
        let kept = contents(&log);
        prop_assert!(shown.is_none_or(|shown| shown == kept), "what was shown once stays");
        prop_assert_eq!(log.range().start, promise.start);
        prop_assert!(
            kept == promise.entries || promise.maybe.contains(&kept),
            "kept {} of {} promised", kept.len(), promise.entries.len()
        );
        // And it goes on from there.
        let mut expected = kept;
        let next = log.range().end;
        append(&log, 4, 99).unwrap();
        expected.extend((next..next + 4).map(|index| entry(index, 99)));
        drop(log);
        let (log, _) = open(&found, promise.start).unwrap();
        prop_assert_eq!(contents(&log), expected);
    }
}
