//! Reading: how a server comes up to date with the log, from entries where it can, from a snapshot where it must.
//!
//! All of it is read as of one revision, so that what is watched afterwards follows on it without a gap. Where etcd
//! compacts that revision meanwhile, it is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_etcd::{Error, EtcdClient, KeyChange, KeyValue, Keys, Range};
use plimsoll_model::{Command, State};
use plimsoll_seal::OpenError;
use plimsoll_store::level::{self, Undecoded};
use plimsoll_store::{Machine, Peer, ServerId, aside};
use tokio::sync::Mutex;

use crate::layout::{
    Body, FORMAT, Layout, LeaderClaim, LogEntry, LostMark, Owner, ParsedKey, Snapshot, from_json,
};
use crate::rules::{self, EntryArrival, LeaderKey};
use crate::seal::{ValueSeal, part_of};
use crate::tip::{KnownTip, TipMatch};

/// How many pairs are read at once. The largest entries are half a megabyte.
const PAGE: u32 = 100;

/// How many parts are read at once, each a megabyte.
const PAGE_OF_PARTS: u32 = 16;

/// What is larger takes milliseconds to read or to apply.
const LARGE: usize = 64 << 10;

/// Why a server is not up to date.
#[derive(Debug)]
pub(crate) enum SyncError {
    /// Etcd did not do as asked; perhaps later.
    Etcd(Error),
    /// What is stored cannot be used: to go on would be to guess.
    Unreadable(String),
    /// What was acknowledged is not there: whoever has applied it keeps it, and nobody writes.
    Lost(Loss),
}

/// What etcd lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) why: String,
    pub(crate) witness: Witness,
}

/// Who knows of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Witness {
    /// This server has applied what is missing, and tells the others.
    Here,
    /// Another server, or nobody who may write below this prefix.
    Elsewhere,
}

fn lost(why: impl Into<String>) -> SyncError {
    SyncError::Lost(Loss { why: why.into(), witness: Witness::Here })
}

impl From<Error> for SyncError {
    fn from(error: Error) -> Self {
        Self::Etcd(error)
    }
}

/// The leader's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaderRecord {
    pub(crate) seen: LeaderKey,
    pub(crate) leader: LeaderClaim,
}

impl LeaderRecord {
    /// A key that was written by nobody we know is taken all the same; its holder has no name.
    pub(crate) fn of(pair: &KeyValue) -> Self {
        let nameless = LeaderClaim { server: ServerId(0), peer: Peer::default(), term: None };
        let leader = from_json(&pair.value).unwrap_or(nameless);
        Self { seen: LeaderKey { term: pair.create_revision, lease: pair.lease }, leader }
    }
}

/// What there is besides the log, as of a revision.
#[derive(Debug, Default)]
pub(crate) struct SyncReport {
    pub(crate) revision: i64,
    pub(crate) held: Option<LeaderRecord>,
    pub(crate) members: BTreeMap<ServerId, Peer>,
    /// Who says that entries are lost. Where that is this server, it finds now that they are not.
    pub(crate) mark: Option<LostMark>,
    /// The last entry that was applied before this was read, and whether etcd has it, or a snapshot of it.
    before: u64,
    has_end: bool,
}

/// What reads the log into the machine.
#[derive(Debug, Clone)]
pub(crate) struct LogReader {
    pub(crate) client: EtcdClient,
    pub(crate) layout: Layout,
    pub(crate) machine: Arc<Machine>,
    pub(crate) turn: SyncLock,
    pub(crate) tip: KnownTip,
    pub(crate) seal: ValueSeal,
    /// Whose prefix it must be; none for one who only looks.
    pub(crate) owner: Option<Owner>,
    /// Who reads; none for one who has applied nothing before.
    pub(crate) server: Option<ServerId>,
}

impl LogReader {
    fn applied(&self) -> u64 {
        *self.machine.applied().borrow()
    }

    /// Applies all that is in the log now, and says what else there is.
    pub(crate) async fn sync(&self) -> Result<SyncReport, SyncError> {
        self.turn.free().await;
        loop {
            match self.read().await {
                Err(SyncError::Etcd(Error::Compacted { .. })) => {}
                result => return result,
            }
        }
    }

    async fn read(&self) -> Result<SyncReport, SyncError> {
        let mut news = SyncReport { revision: self.check_owner().await?, ..SyncReport::default() };
        if self.applied() == 0 {
            // A cell may begin with a snapshot and no entries.
            self.install(news.revision).await?;
        }
        (news.before, news.has_end) = (self.applied(), self.applied() == 0);
        let mut keys = self.layout.news(news.before.max(1));
        loop {
            let rest = keys.clone();
            let page = Range::of(keys).limit(PAGE).at(news.revision);
            let page = self.client.range(page).await?;
            for pair in &page.pairs {
                self.take(pair, &mut news).await?;
            }
            match page.pairs.last() {
                Some(last) if page.more => keys = rest.after(&last.key),
                _ => break,
            }
        }
        self.check_end(&mut news).await?;
        Ok(news)
    }

    /// Whether the prefix is still that of the cell it was; returns etcd's revision.
    async fn check_owner(&self) -> Result<i64, SyncError> {
        let found = self.client.range(Range::of(Keys::one(self.layout.cell_id()))).await?;
        let Some(owner) = &self.owner else { return Ok(found.revision) };
        let prefix = self.layout.prefix();
        let Some(pair) = found.pairs.first() else {
            return Err(lost(format!("there is no cell below {prefix} in etcd any more")));
        };
        if from_json::<Owner>(&pair.value).is_none_or(|found| !found.is_same(owner)) {
            let why = format!("the keys below {prefix} in etcd are of a cell that was begun anew");
            return Err(SyncError::Lost(Loss { why, witness: Witness::Elsewhere }));
        }
        Ok(found.revision)
    }

    async fn take(&self, pair: &KeyValue, news: &mut SyncReport) -> Result<(), SyncError> {
        match self.layout.thing(&pair.key) {
            ParsedKey::Leader => news.held = Some(LeaderRecord::of(pair)),
            ParsedKey::Lost => news.mark = Some(from_json(&pair.value).unwrap_or_else(nobody)),
            ParsedKey::Member(server) => {
                news.members.extend(from_json(&pair.value).map(|peer| (server, peer)));
            }
            ParsedKey::Entry(index) => self.take_entry(index, pair, news).await?,
            ParsedKey::Unknown => {}
        }
        Ok(())
    }

    async fn take_entry(
        &self,
        index: u64,
        pair: &KeyValue,
        news: &mut SyncReport,
    ) -> Result<(), SyncError> {
        match self.tip.compare(index, self.applied(), pair) {
            TipMatch::Same => news.has_end = true,
            TipMatch::Other => {
                return Err(lost(format!(
                    "entry {index} in etcd is not the one that was acknowledged"
                )));
            }
            TipMatch::Elsewhere => {}
        }
        if index > news.before && !news.has_end {
            self.must_be_held(news).await?;
        }
        if rules::arrival(self.applied(), index) == EntryArrival::Gap {
            self.install(news.revision).await?;
        }
        match rules::arrival(self.applied(), index) {
            EntryArrival::Known => Ok(()),
            EntryArrival::Apply => self.apply(index, pair, news.revision).await,
            EntryArrival::Gap => {
                let applied = self.applied();
                Err(lost(format!(
                    "the log in etcd lacks the entries after {applied} and before {index}, and no snapshot holds them; \
                     restore it from a backup"
                )))
            }
        }
    }

    /// The last entry that was applied is not there. That is as it should be where a snapshot holds it.
    async fn must_be_held(&self, news: &mut SyncReport) -> Result<(), SyncError> {
        let before = news.before;
        let Some((meta, created)) = self.snapshot(news.revision).await? else {
            return Err(lost(format!("etcd lacks entry {before}, which was acknowledged")));
        };
        if meta.index < before {
            return Err(lost(format!("etcd lacks entry {before}, which was acknowledged")));
        }
        if meta.index == before {
            self.tip.leap(before, created);
        }
        self.install(news.revision).await?;
        news.has_end = true;
        Ok(())
    }

    /// Whether all that was applied is still there, by this server's word and by that of others.
    async fn check_end(&self, news: &mut SyncReport) -> Result<(), SyncError> {
        if !news.has_end {
            self.must_be_held(news).await?;
        }
        if let Some(hole) = self.tip.hole() {
            let entry = Range::of(Keys::one(self.layout.entry(hole))).keys_only();
            let entry = self.client.range(entry.at(news.revision)).await?;
            if entry.pairs.is_empty() && !self.is_held(hole, news.revision).await? {
                let why = format!("entry {hole} was deleted from etcd, and no snapshot holds it");
                return Err(lost(why));
            }
            self.tip.set_hole(None);
        }
        if let Some(before) = self.tip.see(news.revision) {
            let now = news.revision;
            return Err(lost(format!("etcd went back from revision {before} to {now}")));
        }
        match &news.mark {
            Some(mark) if !self.is_found_again(mark) => {
                let LostMark { peer, applied, .. } = mark;
                let why = format!("{} has applied entry {applied}, which etcd lacks", peer.name);
                Err(SyncError::Lost(Loss { why, witness: Witness::Elsewhere }))
            }
            _ => Ok(()),
        }
    }

    /// Whether this server said that entries were lost, and has found all of them by now.
    fn is_found_again(&self, mark: &LostMark) -> bool {
        self.server == Some(mark.server) && self.applied() >= mark.applied
    }

    /// Whether a snapshot has an entry, which may then be deleted.
    pub(crate) async fn is_held(&self, index: u64, at: i64) -> Result<bool, SyncError> {
        let found = self.snapshot(at).await?;
        Ok(found.is_some_and(|(meta, _)| meta.index >= index))
    }

    /// Applies an entry that was watched. False: entries before it are missing, so all must be read anew.
    pub(crate) async fn follow(&self, index: u64, pair: &KeyValue) -> Result<bool, SyncError> {
        match rules::arrival(self.applied(), index) {
            EntryArrival::Known => Ok(true),
            EntryArrival::Gap => Ok(false),
            EntryArrival::Apply => self.apply(index, pair, pair.mod_revision).await.map(|()| true),
        }
    }

    /// The revision at which etcd was found to have the last entry that this server applied; none if it does not.
    pub(crate) async fn ends_as_known(&self) -> Result<Option<i64>, SyncError> {
        let applied = self.applied();
        let found = self.client.range(Range::of(Keys::one(self.layout.entry(applied)))).await?;
        let is_there = match found.pairs.first() {
            Some(pair) => self.tip.compare(applied, self.applied(), pair) != TipMatch::Other,
            None => applied == 0 || self.is_held(applied, found.revision).await?,
        };
        Ok(is_there.then_some(found.revision))
    }

    /// Whether an entry that was deleted is in no snapshot. Then all is read anew, and found to be lost.
    pub(crate) async fn misses(&self, deleted: u64) -> bool {
        match self.is_held(deleted, 0).await {
            Ok(true) => false,
            Ok(false) => {
                self.tip.set_hole(Some(deleted));
                true
            }
            Err(_) => true,
        }
    }

    async fn apply(&self, index: u64, pair: &KeyValue, at: i64) -> Result<(), SyncError> {
        let entry = LogEntry::decode(&pair.value).ok_or_else(|| {
            let why = format!("log entry {index} needs a newer plimsoll; upgrade this node");
            SyncError::Unreadable(why)
        })?;
        let what = format!("log entry {index}");
        let body = entry.open(&self.seal, &pair.key).map_err(|why| unsealed(&what, &why))?;
        let bytes = match body {
            Body::Whole(bytes) => bytes,
            Body::Split { bytes } => {
                let keys = self.layout.parts(index, entry.term);
                let found = self.parts(&what, keys, bytes, at).await?;
                if found.len() as u64 != bytes {
                    return Err(lost(format!("parts of log entry {index} are missing in etcd")));
                }
                found
            }
        };
        let machine = Arc::clone(&self.machine);
        let size = bytes.len();
        let apply = move || {
            let command: Command = level::decode(&bytes)?;
            // A refusal is the command's outcome and changes nothing.
            machine.apply(index, &command).ok();
            // One that raised the level can be read; what is allowed after it cannot, and nobody must wait for that.
            machine.outgrown().map_or(Ok(()), |level| Err(Undecoded::Newer(level)))
        };
        let applied = self.turn.take(size, apply).await;
        applied
            .map_err(|why| self.unread(&format!("log entry {index} cannot be applied"), &why))?;
        // A copy, because the value is a slice of all that was read with it.
        self.tip.reach(index, pair.create_revision, Bytes::copy_from_slice(&pair.value));
        Ok(())
    }

    /// The server ends with this, and is known to be too old where that is why.
    fn unread(&self, what: &str, why: &Undecoded) -> SyncError {
        if let Undecoded::Newer(level) = why {
            self.machine.outgrow(*level);
        }
        SyncError::Unreadable(format!("{what}: {why}"))
    }

    /// Takes over the snapshot that holds at a revision, if it holds more than was applied.
    async fn install(&self, at: i64) -> Result<(), SyncError> {
        let Some((meta, created)) = self.snapshot(at).await? else { return Ok(()) };
        if meta.index <= self.applied() {
            return Ok(());
        }
        let keys = self.layout.state(meta.index, meta.term);
        let bytes = self.parts("the snapshot", keys, meta.bytes, at).await?;
        if bytes.len() as u64 != meta.bytes {
            return Err(lost("the snapshot in etcd is damaged; restore it from a backup"));
        }
        let read = self.turn.take(bytes.len(), move || level::decode::<State>(&bytes)).await;
        let state = read.map_err(|why| self.unread("the snapshot in etcd cannot be used", &why))?;
        self.machine.replace(state, meta.index);
        self.tip.leap(meta.index, created);
        Ok(())
    }

    /// The snapshot that holds at a revision, and when its key was created.
    async fn snapshot(&self, at: i64) -> Result<Option<(Snapshot, i64)>, SyncError> {
        let meta = Range::of(Keys::one(self.layout.snapshot())).at(at);
        let Some(pair) = self.client.range(meta).await?.pairs.pop() else { return Ok(None) };
        let meta = from_json(&pair.value).filter(|meta: &Snapshot| meta.format <= FORMAT);
        let meta = meta.ok_or_else(|| {
            let why = "the snapshot in etcd needs a newer plimsoll; upgrade this node";
            SyncError::Unreadable(why.to_owned())
        })?;
        Ok(Some((meta, pair.create_revision)))
    }

    /// What something that has so many bytes is made of.
    async fn parts(
        &self,
        what: &str,
        mut keys: Keys,
        whole: u64,
        at: i64,
    ) -> Result<Bytes, SyncError> {
        let (mut bytes, of) = (Vec::new(), part_of(whole));
        loop {
            let rest = keys.clone();
            let page = self.client.range(Range::of(keys).limit(PAGE_OF_PARTS).at(at)).await?;
            for pair in &page.pairs {
                let part = self.seal.open(&pair.key, &of, &pair.value);
                bytes.extend_from_slice(&part.map_err(|why| unsealed(what, &why))?);
            }
            match page.pairs.last() {
                Some(last) if page.more => keys = rest.after(&last.key),
                _ => return Ok(bytes.into()),
            }
        }
    }
}

/// Somebody without the cell's key has written it, or put it where it does not belong.
fn unsealed(what: &str, why: &OpenError) -> SyncError {
    SyncError::Unreadable(format!(
        "{what} in etcd was not written there by a server of this cell ({why}); restore etcd from its backup"
    ))
}

/// A mark that cannot be read is one all the same.
fn nobody() -> LostMark {
    let peer = Peer { name: "a server".to_owned(), ..Peer::default() };
    LostMark { server: ServerId(0), peer, applied: 0 }
}

/// The right to write the machine from beside the tasks. Whoever reads the log anew waits until it is free: work that
/// was begun goes on to its end, even when the one who began it is gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct SyncLock(Arc<Mutex<()>>);

impl SyncLock {
    /// Does work on so many bytes, and where that takes long does it beside the tasks: renewals must not wait for it.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if bytes < LARGE {
            // Small commands may have large effects, or wait for who reads the state.
            return aside(work);
        }
        let turn = Arc::clone(&self.0).lock_owned().await;
        let work = move || {
            let done = work();
            drop(turn);
            done
        };
        tokio::task::spawn_blocking(work).await.expect("what is done aside does not panic")
    }

    async fn free(&self) {
        drop(self.0.lock().await);
    }
}

/// What a change means to who follows the log, besides the entries that come.
pub(crate) fn note(
    layout: &Layout,
    change: &KeyChange,
    held: &mut Option<LeaderRecord>,
) -> Option<Note> {
    match change {
        KeyChange::Put(pair) => match layout.thing(&pair.key) {
            ParsedKey::Leader => {
                *held = Some(LeaderRecord::of(pair));
                Some(Note::Leader)
            }
            ParsedKey::Member(server) => Some(Note::Member(server, from_json(&pair.value))),
            ParsedKey::Lost => Some(Note::Lost),
            ParsedKey::Entry(_) | ParsedKey::Unknown => None,
        },
        KeyChange::Gone { key, .. } => match layout.thing(key) {
            ParsedKey::Leader => {
                *held = None;
                Some(Note::Leader)
            }
            ParsedKey::Member(server) => Some(Note::Member(server, None)),
            ParsedKey::Entry(index) => Some(Note::Deleted(index)),
            ParsedKey::Lost | ParsedKey::Unknown => None,
        },
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    Leader,
    /// Some server misses entries.
    Lost,
    /// An entry went, as old ones do when a snapshot holds them.
    Deleted(u64),
    Member(ServerId, Option<Peer>),
}
