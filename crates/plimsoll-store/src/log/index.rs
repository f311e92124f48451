//! Where each entry is: in memory while it is new, and on disk from its write on.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::Error;
use super::frame::{self, SegmentHeader};
use crate::disk::DiskFile;

/// How many bytes of recent entries stay in memory: what is applied and replicated is nearly always new.
pub(super) const MAX_CACHE: usize = 4 << 20;

#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) path: PathBuf,
    pub(super) header: SegmentHeader,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct EntryLocation {
    /// The first index of the segment.
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// An entry. It has a place, or is cached, or both.
#[derive(Debug)]
pub(super) struct IndexedEntry {
    pub(super) place: Option<EntryLocation>,
    pub(super) cached: Option<Arc<[u8]>>,
}

#[derive(Debug)]
pub(super) struct Index {
    /// The first entry that is not purged.
    pub(super) start: u64,
    pub(super) entries: VecDeque<IndexedEntry>,
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) cached: usize,
    /// No entry before this one is cached.
    pub(super) oldest_cached: u64,
}

/// What a read needs once the index is let go.
pub(super) enum EntrySource {
    Memory(Arc<[u8]>),
    Disk(Segment, EntryLocation),
}

impl Index {
    /// The index that the next entry gets.
    pub(super) fn next(&self) -> u64 {
        self.start + self.entries.len() as u64
    }

    fn slot(&mut self, index: u64) -> Option<&mut IndexedEntry> {
        let at = usize::try_from(index.checked_sub(self.start)?).ok()?;
        self.entries.get_mut(at)
    }

    pub(super) fn push(&mut self, payload: Arc<[u8]>) {
        self.cached += payload.len();
        self.entries.push_back(IndexedEntry { place: None, cached: Some(payload) });
    }

    pub(super) fn lengths(&self, from: u64) -> Vec<u64> {
        let skipped = usize::try_from(from.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let length = |entry: &IndexedEntry| match (&entry.place, &entry.cached) {
            (Some(place), _) => u64::from(place.length),
            (None, Some(payload)) => payload.len() as u64,
            (None, None) => 0,
        };
        self.entries.iter().skip(skipped).map(length).collect()
    }

    /// The entry is on disk now. One that was cut or purged meanwhile is not minded.
    pub(super) fn wrote(&mut self, index: u64, place: EntryLocation) {
        if let Some(slot) = self.slot(index) {
            slot.place = Some(place);
        }
    }

    /// Forgets cached entries, oldest first, as long as they are on disk.
    pub(super) fn shrink(&mut self) {
        while self.cached > MAX_CACHE && self.oldest_cached < self.next() {
            let oldest = self.oldest_cached;
            if let Some(slot) = self.slot(oldest) {
                if slot.place.is_none() {
                    return;
                }
                let freed = slot.cached.take().map_or(0, |payload| payload.len());
                self.cached -= freed;
            }
            self.oldest_cached += 1;
        }
    }

    /// Drops every entry from `next` on, and says where the first of them began on disk, if it got there.
    pub(super) fn truncate(&mut self, next: u64) -> Option<EntryLocation> {
        let mut first = None;
        while self.next() > next.max(self.start) {
            let Some(slot) = self.entries.pop_back() else { break };
            self.cached -= slot.cached.map_or(0, |payload| payload.len());
            first = slot.place.or(first);
        }
        self.oldest_cached = self.oldest_cached.min(self.next());
        first
    }

    /// Drops every entry before `start`.
    pub(super) fn purge(&mut self, start: u64) {
        while self.start < start {
            if let Some(slot) = self.entries.pop_front() {
                self.cached -= slot.cached.map_or(0, |payload| payload.len());
                self.start += 1;
            } else {
                self.start = start;
            }
        }
        self.oldest_cached = self.oldest_cached.max(self.start);
    }

    /// Where to read each entry of the range that is there, up to some bytes but at least one entry.
    pub(super) fn sources(&self, range: Range<u64>, max_bytes: usize) -> Vec<EntrySource> {
        let mut sources = Vec::new();
        let mut bytes = 0;
        for index in range.start.max(self.start)..range.end.min(self.next()) {
            let at = usize::try_from(index - self.start).expect("it is in memory");
            let source = match &self.entries[at] {
                IndexedEntry { cached: Some(payload), .. } => {
                    EntrySource::Memory(Arc::clone(payload))
                }
                IndexedEntry { place: Some(place), .. } => {
                    EntrySource::Disk(self.segments[&place.segment].clone(), *place)
                }
                IndexedEntry { .. } => {
                    unreachable!("an entry leaves the cache when it has a place")
                }
            };
            bytes += source.length();
            if bytes > max_bytes && !sources.is_empty() {
                break;
            }
            sources.push(source);
        }
        sources
    }
}

impl EntrySource {
    fn length(&self) -> usize {
        match self {
            Self::Memory(payload) => payload.len(),
            Self::Disk(_, place) => place.length as usize,
        }
    }

    pub(super) fn is_cached(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// The payload; what comes from the disk is checked again, since disks go bad while they run.
    pub(super) fn read(self) -> Result<Arc<[u8]>, Error> {
        let (segment, place) = match self {
            Self::Memory(payload) => return Ok(payload),
            Self::Disk(segment, place) => (segment, place),
        };
        let mut bytes = vec![0; frame::frame_size(place.length as usize)];
        Error::io("read", &segment.path, segment.file.read_at(place.offset, &mut bytes))?;
        let frame = frame::frame_at(&bytes, 0, segment.header.salt).map_err(|what| {
            Error::Corrupt { path: segment.path.clone(), offset: place.offset, what }
        })?;
        Ok(Arc::from(&bytes[frame.payload]))
    }
}
