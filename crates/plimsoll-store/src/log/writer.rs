//! The one thread that writes. What queued up while it synced goes into one write and one sync: the busier the
//! store, the more entries share a sync. Orders are carried out in the order they came.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, RwLock};

use super::frame::{self, SEGMENT_HEADER};
use super::index::{EntryLocation, Index, Segment};
use super::{Done, LogWriteError, META, recover};
use crate::disk::Disk;
use crate::fault;

/// The most bytes in one write: large enough to keep the disk busy, small enough that an entry does not wait long.
const MAX_WRITE: usize = 4 << 20;

/// How far ahead of the last entry the file is filled with zeros. Blocks that were written before are synced without
/// touching the file system's journal, which doubles the rate; doing it piecemeal spares the wait of doing it all.
const ZERO_AHEAD: u64 = 1 << 20;

/// What the thread is asked to do.
pub(super) enum WriteRequest {
    Append {
        first: u64,
        payloads: Vec<Arc<[u8]>>,
        done: Done,
    },
    /// Drop the entries from this index on.
    Truncate {
        next: u64,
        done: Done,
    },
    /// Drop the entries before this index.
    Purge {
        start: u64,
        done: Done,
    },
    Meta {
        body: Vec<u8>,
        done: Done,
    },
}

pub(super) struct LogWriter {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) segment_size: u64,
    pub(super) index: Arc<RwLock<Index>>,
    pub(super) segment: Segment,
    /// How large the segment file is.
    pub(super) size: u64,
    pub(super) tail: u64,
    /// Up to where the segment was filled with zeros.
    pub(super) zeroed: u64,
    /// Why nothing is written any more: after a failed write or sync, what the disk holds is not known.
    pub(super) failed: Option<LogWriteError>,
}

impl LogWriter {
    pub(super) fn run(mut self, orders: &Receiver<WriteRequest>) {
        let mut next = None;
        while let Some(order) = next.take().or_else(|| orders.recv().ok()) {
            let (done, result) = match order {
                WriteRequest::Append { first, payloads, done } => {
                    let mut batch = Batch::new(first);
                    batch.add(payloads, done);
                    next = batch.gather(orders);
                    let result = self.attempt(|writer| writer.append(first, &batch.payloads));
                    (batch.done, result)
                }
                WriteRequest::Truncate { next, done } => {
                    (vec![done], self.attempt(|writer| writer.truncate(next)))
                }
                WriteRequest::Purge { start, done } => {
                    (vec![done], self.attempt(|writer| writer.purge(start)))
                }
                WriteRequest::Meta { body, done } => (
                    vec![done],
                    self.attempt(|writer| {
                        META.write(writer.disk.as_ref(), &writer.dir.join(super::META_FILE), &body)
                    }),
                ),
            };
            for done in done {
                done(result.clone());
            }
        }
    }

    fn attempt(
        &mut self,
        action: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> Result<(), LogWriteError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        // A panic is a failure as any other: those who wait for this order must hear of it, and the next must not be tried.
        let done = catch_unwind(AssertUnwindSafe(|| action(self)));
        let done = done.unwrap_or_else(|_| Err(io::Error::other("the writer panicked")));
        done.map_err(|error| {
            let failure = LogWriteError::new(&self.dir, &error);
            self.failed = Some(failure.clone());
            failure
        })
    }

    fn append(&mut self, first: u64, payloads: &[Arc<[u8]>]) -> io::Result<()> {
        fault::reach("log-writer");
        let mut buffer = Vec::new();
        let mut places = Vec::new();
        for (index, payload) in (first..).zip(payloads) {
            let size = frame::frame_size(payload.len()) as u64;
            let end = self.tail + buffer.len() as u64 + size;
            if end > self.size {
                self.write(&mut buffer, &mut places)?;
                self.rotate(index, size)?;
            }
            let place = EntryLocation {
                segment: self.segment.header.first,
                offset: self.tail + buffer.len() as u64,
                length: u32::try_from(payload.len()).expect("entries are bounded by MAX_ENTRY"),
            };
            frame::push_frame(&mut buffer, self.segment.header.salt, index, self.tail, payload);
            places.push((index, place));
        }
        self.write(&mut buffer, &mut places)
    }

    /// Writes and syncs the frames gathered so far.
    fn write(
        &mut self,
        buffer: &mut Vec<u8>,
        places: &mut Vec<(u64, EntryLocation)>,
    ) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let file = &self.segment.file;
        let end = self.tail + buffer.len() as u64;
        file.write_at(self.tail, buffer)?;
        if end > self.zeroed {
            let until = (end + ZERO_AHEAD).min(self.size).max(end);
            let zeros = usize::try_from(until - end).expect("a megabyte at most");
            file.write_at(end, &vec![0; zeros])?;
            self.zeroed = until;
        }
        file.sync()?;
        self.tail = end;
        let mut index = self.index.write().expect("no holder of the index panics");
        for (entry, place) in places.drain(..) {
            index.wrote(entry, place);
        }
        index.shrink();
        buffer.clear();
        Ok(())
    }

    /// Goes on in a new segment that begins with the given entry. All before it is synced.
    fn rotate(&mut self, first: u64, frame: u64) -> io::Result<()> {
        // An empty segment that is too small for a large entry is made anew under the same name.
        let size = self.segment_size.max(SEGMENT_HEADER as u64 + frame);
        let segment = recover::create(self.disk.as_ref(), &self.dir, first, size)?;
        let mut index = self.index.write().expect("no holder of the index panics");
        index.segments.insert(first, segment.clone());
        drop(index);
        self.segment = segment;
        self.size = size;
        self.tail = SEGMENT_HEADER as u64;
        self.zeroed = self.tail;
        Ok(())
    }

    fn truncate(&mut self, next: u64) -> io::Result<()> {
        let mut index = self.index.write().expect("no holder of the index panics");
        let Some(place) = index.truncate(next) else { return Ok(()) };
        let later = index.segments.split_off(&(place.segment + 1));
        self.segment = index.segments[&place.segment].clone();
        drop(index);
        // From the last backwards, each gone before the next goes: a crash must not leave a gap.
        for segment in later.values().rev() {
            self.disk.remove(&segment.path)?;
            self.disk.sync_dir(&self.dir)?;
        }
        self.cut(place.offset)
    }

    /// Ends the segment here. It is shortened first, because a frame that stayed behind would be found again.
    pub(super) fn cut(&mut self, offset: u64) -> io::Result<()> {
        self.size = self.segment.file.size()?.max(self.segment_size);
        self.segment.file.truncate(offset)?;
        self.segment.file.sync()?;
        self.segment.file.allocate(self.size)?;
        self.segment.file.sync()?;
        self.tail = offset;
        self.zeroed = offset;
        Ok(())
    }

    fn purge(&mut self, start: u64) -> io::Result<()> {
        let mut index = self.index.write().expect("no holder of the index panics");
        let jumps = start > index.next();
        index.purge(start);
        drop(index);
        if jumps {
            // There is always a segment, so that a log without any is known to be lost.
            self.rotate(start, 0)?;
        }
        let mut index = self.index.write().expect("no holder of the index panics");
        let firsts: Vec<u64> = index.segments.keys().copied().collect();
        // A segment is done with when the one after it begins at or before the first entry that is kept.
        let gone = firsts.windows(2).filter(|pair| pair[1] <= start).map(|pair| pair[0]);
        let gone: Vec<Segment> = gone.filter_map(|first| index.segments.remove(&first)).collect();
        drop(index);
        for segment in &gone {
            self.disk.remove(&segment.path)?;
        }
        if gone.is_empty() { Ok(()) } else { self.disk.sync_dir(&self.dir) }
    }
}

/// Appends that queued up.
struct Batch {
    next: u64,
    payloads: Vec<Arc<[u8]>>,
    bytes: usize,
    done: Vec<Done>,
}

impl Batch {
    fn new(first: u64) -> Self {
        Self { next: first, payloads: Vec::new(), bytes: 0, done: Vec::new() }
    }

    fn add(&mut self, payloads: Vec<Arc<[u8]>>, done: Done) {
        self.next += payloads.len() as u64;
        self.bytes += payloads.iter().map(|payload| payload.len()).sum::<usize>();
        self.payloads.extend(payloads);
        self.done.push(done);
    }

    /// Takes what waits, up to the first order that cannot join, and returns that one.
    fn gather(&mut self, orders: &Receiver<WriteRequest>) -> Option<WriteRequest> {
        while self.bytes < MAX_WRITE {
            match orders.try_recv() {
                Ok(WriteRequest::Append { first, payloads, done }) if first == self.next => {
                    self.add(payloads, done);
                }
                Ok(other) => return Some(other),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
            }
        }
        None
    }
}
