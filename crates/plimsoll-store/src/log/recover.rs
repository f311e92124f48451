//! Reads a log as a crash, or a disk, has left it: which entries are there, where the next one goes, and what had
//! to be cut. It keeps every entry that was acknowledged, or says which file and offset cannot be believed.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{self, ALIGN, BadHeader, FORMAT, SEGMENT_HEADER, SegmentHeader};
use super::index::{EntryLocation, Index, IndexedEntry, Segment};
use super::{Error, TornWrite, segment_path};
use crate::disk::{Disk, is_unfinished};

/// A log as found.
pub(super) struct RecoveredLog {
    pub(super) index: Index,
    /// Where the next entry goes: the last segment, and the place in it. None: there is no segment.
    pub(super) tail: Option<(Segment, u64)>,
    pub(super) cut: Option<TornWrite>,
    /// Files of a log that was purged whole; they go once there is a segment to go on in.
    pub(super) stale: Vec<PathBuf>,
}

/// Reads the directory. Entries before `start` were purged, whether or not their files are gone.
pub(super) fn recover(disk: &dyn Disk, dir: &Path, start: u64) -> Result<RecoveredLog, Error> {
    let firsts = list(disk, dir)?;
    let mut index = Index::empty(start);
    let mut tail = None;
    let mut cut = None;
    let mut next = None;
    for (nth, &first) in firsts.iter().enumerate() {
        let path = segment_path(dir, first);
        let following = firsts.get(nth + 1).copied();
        // A purge removes files in no order that a crash would keep: what lies before the start may have gaps.
        if following.is_some_and(|following| following <= start) {
            Error::io("remove", &path, disk.remove(&path))?;
            continue;
        }
        let (segment, bytes) = load(disk, &path, first)?;
        let expected = next.unwrap_or(first);
        if expected != first || (next.is_none() && first > start) {
            let from = if next.is_none() { start } else { expected };
            return Err(Error::Gap { path, from, to: first });
        }
        let scan = scan(&path, &bytes, segment.header, following.is_none())?;
        for (at, place) in scan.places.iter().enumerate() {
            if first + at as u64 >= start {
                index.entries.push_back(IndexedEntry { place: Some(*place), cached: None });
            }
        }
        next = Some(first + scan.places.len() as u64);
        index.segments.insert(first, segment.clone());
        if let Some(what) = scan.torn {
            let bytes = segment.file.size().unwrap_or(0).saturating_sub(scan.end);
            cut = Some(TornWrite { path, offset: scan.end, bytes, what });
        }
        tail = Some((segment, scan.end));
    }
    if next.is_some_and(|next| next < start) {
        // All of it was purged, and the crash came before the files went.
        let stale = index.segments.into_values().map(|segment| segment.path).collect();
        return Ok(RecoveredLog { index: Index::empty(start), tail: None, cut: None, stale });
    }
    Ok(RecoveredLog { index, tail, cut, stale: Vec::new() })
}

/// The first indexes of the segments, ascending. Files that were never finished go.
fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, Error> {
    let mut firsts = Vec::new();
    for name in Error::io("list", dir, disk.list(dir))? {
        if is_unfinished(&name) {
            let path = dir.join(&name);
            Error::io("remove", &path, disk.remove(&path))?;
        } else if let Some(number) = name.strip_suffix(".log") {
            let unknown = |_| Error::Unknown { path: dir.join(&name) };
            firsts.push(number.parse().map_err(unknown)?);
        }
    }
    firsts.sort_unstable();
    Ok(firsts)
}

fn load(disk: &dyn Disk, path: &Path, first: u64) -> Result<(Segment, Vec<u8>), Error> {
    let read = || -> io::Result<_> {
        let file = disk.open(path)?;
        let size = usize::try_from(file.size()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; size];
        file.read_at(0, &mut bytes)?;
        Ok((file, bytes))
    };
    let (file, bytes) = Error::io("read", path, read())?;
    let header = SegmentHeader::decode(&bytes).map_err(|bad| match bad {
        BadHeader::Newer(found) => Error::Newer { path: path.to_owned(), found, known: FORMAT },
        BadHeader::Damaged(what) => Error::Corrupt { path: path.to_owned(), offset: 0, what },
    })?;
    if header.first != first {
        let what = "file name and header differ in the first entry";
        return Err(Error::Corrupt { path: path.to_owned(), offset: 0, what });
    }
    Ok((Segment { file, path: path.to_owned(), header }, bytes))
}

struct Scan {
    places: Vec<EntryLocation>,
    /// Where the last good frame ends.
    end: u64,
    torn: Option<&'static str>,
}

fn scan(path: &Path, bytes: &[u8], header: SegmentHeader, is_last: bool) -> Result<Scan, Error> {
    let mut places = Vec::new();
    let mut at = SEGMENT_HEADER;
    let torn = loop {
        if bytes[at..].iter().all(|byte| *byte == 0) {
            break None;
        }
        match frame::frame_at(bytes, at, header.salt) {
            Ok(frame) if frame.index == header.first + places.len() as u64 => {
                let length = u32::try_from(frame.payload.len()).expect("read from a u32");
                places.push(EntryLocation { segment: header.first, offset: at as u64, length });
                at = frame.end;
            }
            Ok(_) => break Some("its index does not follow the one before"),
            Err(what) => break Some(what),
        }
    };
    if let Some(what) = torn
        && (!is_last || has_later_write(bytes, at, header))
    {
        return Err(Error::Corrupt { path: path.to_owned(), offset: at as u64, what });
    }
    Ok(Scan { places, end: at as u64, torn })
}

/// Whether any frame behind `at` was written when the bytes at `at` had been synced: then they were good once.
fn has_later_write(bytes: &[u8], at: usize, header: SegmentHeader) -> bool {
    let from = at.next_multiple_of(ALIGN);
    (from..bytes.len()).step_by(ALIGN).any(|candidate| {
        // The floor is looked at first, since it is cheap: nearly nothing passes, and checksums are long.
        frame::floor_at(bytes, candidate)
            .is_some_and(|floor| floor > at as u64 && floor <= candidate as u64)
            && frame::frame_at(bytes, candidate, header.salt).is_ok()
    })
}

impl Index {
    pub(super) fn empty(start: u64) -> Self {
        Self {
            start,
            entries: VecDeque::new(),
            segments: BTreeMap::new(),
            cached: 0,
            oldest_cached: start,
        }
    }
}

/// Names of segment files, so that the names sort as the segments do.
pub(super) fn named(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:020}.log"))
}

/// Makes a segment that a crash leaves whole or nameless.
pub(super) fn create(disk: &dyn Disk, dir: &Path, first: u64, size: u64) -> io::Result<Segment> {
    let header = SegmentHeader { first, salt: RandomState::new().hash_one(first) };
    let path = segment_path(dir, first);
    let new = path.with_extension("new");
    let file = disk.create(&new)?;
    // The room is taken before anything is promised in it: a full disk is met here, between two entries.
    file.allocate(size)?;
    file.write_at(0, &header.encode())?;
    file.sync()?;
    disk.rename(&new, &path)?;
    disk.sync_dir(dir)?;
    Ok(Segment { file: Arc::clone(&file), path, header })
}
