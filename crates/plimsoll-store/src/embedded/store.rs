//! The log as openraft wants it: entries, the vote, and how far the log was purged, in that order on disk.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};

use openraft::OptionalSend;
use openraft::alias::{LogIdOf, VoteOf};
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use plimsoll_seal::Keyring;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::growth::LogGrowth;
use super::types::{Ballot, Entry, Mark, Types, decode_entry, encode_entry};
use crate::disk::Disk;
use crate::fault;
use crate::log::{self, Done, Log, TornWrite};

/// The most bytes of entries that one message to a follower carries, beyond its first entry.
const MAX_REPLICATED: usize = 4 << 20;

/// What is written beside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) vote: Option<Ballot>,
    /// The last entry that is gone because a snapshot holds it.
    pub(crate) purged: Option<Mark>,
}

impl Meta {
    pub(crate) fn encode(self) -> Vec<u8> {
        postcard::to_stdvec(&self).expect("numbers can be written")
    }
}

#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    inner: Arc<StoreInner>,
}

/// Fields are dropped in order: the log ends before the directory is let go.
struct StoreInner {
    log: Log,
    /// What entries are sealed with.
    keys: RwLock<Arc<Keyring>>,
    meta: Mutex<Meta>,
    /// One more than the last index known to be committed.
    committed: AtomicU64,
    growth: Arc<LogGrowth>,
    _lock: Box<dyn Send + Sync>,
}

impl Debug for StoreInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreInner").field("log", &self.log).finish_non_exhaustive()
    }
}

impl LogStore {
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        may_create: bool,
        keys: &Arc<Keyring>,
        lock: Box<dyn Send + Sync>,
        growth: Arc<LogGrowth>,
    ) -> Result<(Self, Option<TornWrite>), log::Error> {
        let meta = match log::read_meta(disk.as_ref(), dir)? {
            None => Meta::default(),
            Some(body) => postcard::from_bytes(&body).map_err(|error| log::Error::Io {
                action: "understand the metadata of",
                path: dir.to_owned(),
                source: io::Error::other(error),
            })?,
        };
        let start = meta.purged.map_or(0, |mark| mark.index + 1);
        let options = log::LogOptions { start, may_create, ..log::LogOptions::default() };
        let (log, cut) = Log::open(disk, dir, options)?;
        let (meta, committed) = (Mutex::new(meta), AtomicU64::new(0));
        let keys = RwLock::new(Arc::clone(keys));
        let inner = StoreInner { log, keys, meta, committed, growth, _lock: lock };
        let store = Self { inner: Arc::new(inner) };
        // The last entry knows best how far the log was committed.
        let last = store.last_entry().map_err(|source| log::Error::Io {
            action: "read the last entry of",
            path: dir.to_owned(),
            source,
        })?;
        let committed = last.and_then(|(_, committed)| committed).map_or(0, |index| index + 1);
        store.inner.committed.store(committed, Ordering::Relaxed);
        Ok((store, cut))
    }

    pub(crate) fn meta(&self) -> Meta {
        *self.inner.meta.lock().expect("no holder of the metadata panics")
    }

    fn keys(&self) -> Arc<Keyring> {
        Arc::clone(&self.inner.keys.read().expect("no holder of the keys panics"))
    }

    /// Seals with this keyring from now on. It opens all that the one before does.
    pub(crate) fn seal_with(&self, keys: &Arc<Keyring>) {
        *self.inner.keys.write().expect("no holder of the keys panics") = Arc::clone(keys);
    }

    /// The keys of the first and the last entry, and so the oldest and the newest that the log takes: keys are numbered in
    /// the order they are used in.
    pub(crate) fn keys_in_use(&self) -> Result<Vec<u32>, log::Error> {
        let range = self.range();
        let ends = [range.start, range.end.saturating_sub(1)];
        let mut numbers = Vec::new();
        for at in ends.into_iter().filter(|at| range.contains(at)) {
            let entry = self.inner.log.read(at..at + 1, usize::MAX)?;
            numbers.extend(entry.first().and_then(|entry| plimsoll_seal::key_of(entry)));
        }
        Ok(numbers)
    }

    /// Whether the log has entries that only a server with a vote can have taken, and that vote is gone. A cell that is
    /// founded has one entry before its first vote.
    pub(crate) fn lacks_vote(&self) -> io::Result<bool> {
        if self.meta().vote.is_some() {
            return Ok(false);
        }
        Ok(self.last_entry()?.is_some_and(|(entry, _)| *entry.log_id.leader_id > 0))
    }

    /// How far the log was known to be committed when it was closed.
    pub(crate) fn committed(&self) -> Option<u64> {
        self.inner.committed.load(Ordering::Relaxed).checked_sub(1)
    }

    /// How many bytes the entries from one on have.
    pub(crate) fn bytes_from(&self, index: u64) -> u64 {
        self.inner.log.lengths(index).sum()
    }

    /// A handle that does not keep the log open.
    pub(crate) fn downgrade(&self) -> WeakLogStore {
        WeakLogStore(Arc::downgrade(&self.inner))
    }

    /// Whether openraft has let go of the log.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.inner.log.range()
    }

    /// Entries of a range, up to so many bytes, read on this thread.
    pub(crate) fn entries(
        &self,
        range: std::ops::Range<u64>,
        max_bytes: usize,
    ) -> io::Result<Vec<Entry>> {
        let first = range.start.max(self.range().start);
        let payloads = self.inner.log.read(range, max_bytes).map_err(io::Error::other)?;
        decode(&self.keys(), first, &payloads)
    }

    fn last_entry(&self) -> io::Result<Option<(Entry, Option<u64>)>> {
        let range = self.inner.log.range();
        let Some(last) = range.end.checked_sub(1).filter(|last| *last >= range.start) else {
            return Ok(None);
        };
        let found = self.inner.log.read(last..range.end, usize::MAX).map_err(io::Error::other)?;
        found.first().map(|bytes| open(&self.keys(), last, bytes)).transpose()
    }

    /// Appends entries to the log of a server that does not run, and waits on this thread until they are safe. All
    /// before them counts as committed.
    pub(crate) fn append_stopped(&self, entries: &[Entry]) -> io::Result<()> {
        let committed = self.range().end.checked_sub(1);
        let keys = self.keys();
        let payloads = entries.iter().map(|entry| seal(&keys, entry, committed));
        let (sender, receiver) = std::sync::mpsc::channel();
        let done = move |result| drop(sender.send(result));
        self.inner.log.append(payloads.collect::<io::Result<_>>()?, Box::new(done));
        Ok(receiver.recv().map_err(|_| io::Error::other("the log has ended"))??)
    }

    /// Gives an order to the log and waits for its end.
    async fn order(&self, order: impl FnOnce(&Log, Done)) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        // Nobody waits any more when the store is stopped under way.
        order(&self.inner.log, Box::new(move |result| drop(sender.send(result))));
        let result = receiver.await.map_err(|_| io::Error::other("the log has ended"))?;
        Ok(result?)
    }

    async fn put_meta(&self, change: impl FnOnce(&mut Meta)) -> io::Result<()> {
        let body = {
            let mut meta = self.inner.meta.lock().expect("no holder of the metadata panics");
            let before = *meta;
            change(&mut meta);
            if *meta == before {
                return Ok(());
            }
            meta.encode()
        };
        self.order(|log, done| log.put_meta(body, done)).await
    }

    async fn read(&self, range: impl RangeBounds<u64>, max: usize) -> io::Result<Vec<Entry>> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let first = start.max(self.range().start);
        let (sources, needs_disk) = self.inner.log.lookup(start..end, max);
        let payloads = if needs_disk {
            tokio::task::spawn_blocking(|| sources.read()).await?
        } else {
            sources.read()
        };
        decode(&self.keys(), first, &payloads.map_err(io::Error::other)?)
    }
}

/// The log, as long as others hold it.
#[derive(Debug, Clone)]
pub(crate) struct WeakLogStore(Weak<StoreInner>);

impl WeakLogStore {
    /// The first entry that it and all after it are no more than so many bytes; none once the log is closed.
    pub(crate) fn first_within(&self, bytes: u64) -> Option<u64> {
        let log = &self.0.upgrade()?.log;
        let range = log.range();
        let lengths: Vec<u64> = log.lengths(range.start).collect();
        let mut left = bytes;
        let kept = lengths.iter().rev().take_while(|length| {
            let fits = **length <= left;
            left = left.saturating_sub(**length);
            fits
        });
        Some(range.end - kept.count() as u64)
    }
}

fn decode(keys: &Keyring, first: u64, payloads: &[Arc<[u8]>]) -> io::Result<Vec<Entry>> {
    let numbered = (first..).zip(payloads);
    numbered.map(|(index, bytes)| Ok(open(keys, index, bytes)?.0)).collect()
}

/// An entry as it stands in the log.
fn seal(keys: &Keyring, entry: &Entry, committed: Option<u64>) -> io::Result<Arc<[u8]>> {
    let context = context(entry.log_id.index);
    Ok(keys.seal(&context, &encode_entry(entry, committed)?)?.into())
}

/// The entry at an index.
fn open(keys: &Keyring, index: u64, bytes: &[u8]) -> io::Result<(Entry, Option<u64>)> {
    let opened = keys.open(&context(index), bytes).map_err(|why| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("log entry {index} cannot be read: {why}"),
        )
    })?;
    decode_entry(index, &opened)
}

/// An entry is read at its own place only.
fn context(index: u64) -> String {
    format!("entry {index}")
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        self.read(range, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start..end, MAX_REPLICATED).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<Types>>> {
        Ok(self.meta().vote.map(Into::into))
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let last_purged_log_id = self.meta().purged.map(Into::into);
        let last = self.last_entry()?.map(|(entry, _)| entry.log_id);
        Ok(LogState { last_purged_log_id, last_log_id: last.or(last_purged_log_id) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<Types>) -> io::Result<()> {
        let ballot = Ballot::from(vote);
        self.put_meta(|meta| meta.vote = Some(ballot)).await
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<Types>>) -> io::Result<()> {
        // It goes to disk with the next entry.
        let next = committed.map_or(0, |id| id.index + 1);
        self.inner.committed.store(next, Ordering::Relaxed);
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<Types>>> {
        let Some(index) = self.committed() else { return Ok(None) };
        let entry = self.entries(index..index + 1, usize::MAX)?;
        Ok(entry.first().map(|entry| entry.log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        fault::reach("log-core");
        let committed = self.committed();
        let (keys, mut payloads) = (self.keys(), Vec::new());
        for (next, entry) in (self.range().end..).zip(entries) {
            if entry.log_id.index != next {
                let text = format!("entry {} was to follow entry {next}", entry.log_id.index);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let payload = seal(&keys, &entry, committed)?;
            if payload.len() > log::MAX_ENTRY {
                let text =
                    format!("entry {next} has {} bytes, too many for the log", payload.len());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            payloads.push(payload);
        }
        self.inner.growth.add(payloads.iter().map(|payload| payload.len() as u64).sum());
        let done = move |result: Result<(), log::LogWriteError>| {
            callback.io_completed(result.map_err(io::Error::from));
        };
        self.inner.log.append(payloads, Box::new(done));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<Types>>) -> io::Result<()> {
        let next = last.map_or(0, |id| id.index + 1);
        self.order(|log, done| log.truncate(next, done)).await
    }

    async fn purge(&mut self, through: LogIdOf<Types>) -> io::Result<()> {
        self.put_meta(|meta| meta.purged = Some(Mark::from(&through))).await?;
        self.order(|log, done| log.purge(through.index + 1, done)).await
    }
}
