//! Reading: how a server comes up to date with the log, from entries where it can, from a snapshot where it must.
//!
//! All of it is read as of one revision, so that what is watched afterwards follows on it without a gap. Where etcd
//! compacts that revision meanwhile, it is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_etcd::{Change, Client, Error, KeyValue, Keys, Range};
use plimsoll_model::{Command, State};
use plimsoll_store::level::{self, Undecoded};
use plimsoll_store::{Machine, Peer, ServerId};
use tokio::sync::Mutex;

use crate::layout::{Body, Entry, FORMAT, Layout, Leader, Snapshot, Thing, from_json};
use crate::rules::{self, Arrival, Seen};

/// How many pairs are read at once. The largest entries are half a megabyte.
const PAGE: u32 = 100;

/// How many parts are read at once, each a megabyte.
const PAGE_OF_PARTS: u32 = 16;

/// What is larger takes milliseconds to read or to apply.
const LARGE: usize = 64 << 10;

/// Why a server is not up to date.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Etcd did not do as asked; perhaps later.
    Etcd(Error),
    /// What is stored cannot be used: to go on would be to guess.
    Unreadable(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Etcd(error)
    }
}

/// The leader's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) seen: Seen,
    pub(crate) leader: Leader,
}

impl Held {
    /// A key that was written by nobody we know is taken all the same; its holder has no name.
    pub(crate) fn of(pair: &KeyValue) -> Self {
        let nameless = Leader { server: ServerId(0), peer: Peer::default(), term: None };
        let leader = from_json(&pair.value).unwrap_or(nameless);
        Self { seen: Seen { term: pair.create_revision, lease: pair.lease }, leader }
    }
}

/// What there is besides the log, as of a revision.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) revision: i64,
    pub(crate) held: Option<Held>,
    pub(crate) members: BTreeMap<ServerId, Peer>,
}

/// What reads the log into the machine.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) client: Client,
    pub(crate) layout: Layout,
    pub(crate) machine: Arc<Machine>,
    pub(crate) turn: Turn,
}

impl Reader {
    fn applied(&self) -> u64 {
        *self.machine.applied().borrow()
    }

    /// Applies all that is in the log now, and says what else there is.
    pub(crate) async fn sync(&self) -> Result<News, Trouble> {
        self.turn.free().await;
        loop {
            match self.read().await {
                Err(Trouble::Etcd(Error::Compacted { .. })) => {}
                result => return result,
            }
        }
    }

    async fn read(&self) -> Result<News, Trouble> {
        let mut news = News::default();
        if self.applied() == 0 {
            // A cell may begin with a snapshot and no entries.
            news.revision =
                self.client.range(Range::of(Keys::one(self.layout.snapshot()))).await?.revision;
            self.install(news.revision).await?;
        }
        let mut keys = self.layout.news(self.applied() + 1);
        loop {
            let rest = keys.clone();
            let page = Range::of(keys).limit(PAGE).at(news.revision);
            let page = self.client.range(page).await?;
            if news.revision == 0 {
                news.revision = page.revision;
            }
            for pair in &page.pairs {
                self.take(pair, &mut news).await?;
            }
            match page.pairs.last() {
                Some(last) if page.more => keys = rest.after(&last.key),
                _ => return Ok(news),
            }
        }
    }

    async fn take(&self, pair: &KeyValue, news: &mut News) -> Result<(), Trouble> {
        match self.layout.thing(&pair.key) {
            Thing::Leader => news.held = Some(Held::of(pair)),
            Thing::Member(server) => {
                news.members.extend(from_json(&pair.value).map(|peer| (server, peer)));
            }
            Thing::Entry(index) => {
                if rules::arrival(self.applied(), index) == Arrival::Gap {
                    self.install(news.revision).await?;
                }
                match rules::arrival(self.applied(), index) {
                    Arrival::Known => {}
                    Arrival::Apply => self.apply(index, pair, news.revision).await?,
                    Arrival::Gap => {
                        let applied = self.applied();
                        let why = format!(
                            "the log in etcd lacks the entries after {applied} and before {index}, and no snapshot \
                             holds them; restore it from a backup"
                        );
                        return Err(Trouble::Unreadable(why));
                    }
                }
            }
            Thing::Unknown => {}
        }
        Ok(())
    }

    /// Applies an entry that was watched. False: entries before it are missing, so all must be read anew.
    pub(crate) async fn follow(&self, index: u64, pair: &KeyValue) -> Result<bool, Trouble> {
        match rules::arrival(self.applied(), index) {
            Arrival::Known => Ok(true),
            Arrival::Gap => Ok(false),
            Arrival::Apply => self.apply(index, pair, pair.mod_revision).await.map(|()| true),
        }
    }

    async fn apply(&self, index: u64, pair: &KeyValue, at: i64) -> Result<(), Trouble> {
        let entry = Entry::decode(&pair.value).ok_or_else(|| {
            let why = format!("log entry {index} needs a newer plimsoll; upgrade this node");
            Trouble::Unreadable(why)
        })?;
        let bytes = match entry.body {
            Body::Whole(bytes) => bytes,
            Body::Split { bytes } => {
                let found = self.parts(self.layout.parts(index, entry.term), at).await?;
                if found.len() as u64 != bytes {
                    let why = format!("parts of log entry {index} are missing in etcd");
                    return Err(Trouble::Unreadable(why));
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
        applied.map_err(|why| self.unread(&format!("log entry {index} cannot be followed"), &why))
    }

    /// The server ends with this, and is known to be too old where that is why.
    fn unread(&self, what: &str, why: &Undecoded) -> Trouble {
        if let Undecoded::Newer(level) = why {
            self.machine.outgrow(*level);
        }
        Trouble::Unreadable(format!("{what}: {why}"))
    }

    /// Takes over the snapshot that holds at a revision, if it holds more than was applied.
    async fn install(&self, at: i64) -> Result<(), Trouble> {
        let meta = Range::of(Keys::one(self.layout.snapshot())).at(at);
        let Some(pair) = self.client.range(meta).await?.pairs.pop() else { return Ok(()) };
        let unusable = |what: &str| Trouble::Unreadable(format!("the snapshot in etcd {what}"));
        let meta: Snapshot = from_json(&pair.value)
            .filter(|meta: &Snapshot| meta.format <= FORMAT)
            .ok_or_else(|| unusable("needs a newer plimsoll; upgrade this node"))?;
        if meta.index <= self.applied() {
            return Ok(());
        }
        let bytes = self.parts(self.layout.state(meta.index, meta.term), at).await?;
        if bytes.len() as u64 != meta.bytes || crc32c::crc32c(&bytes) != meta.checksum {
            return Err(unusable("is damaged; restore it from a backup"));
        }
        let read = self.turn.take(bytes.len(), move || level::decode::<State>(&bytes)).await;
        let state = read.map_err(|why| self.unread("the snapshot in etcd cannot be used", &why))?;
        self.machine.replace(state, meta.index);
        Ok(())
    }

    async fn parts(&self, mut keys: Keys, at: i64) -> Result<Bytes, Error> {
        let mut bytes = Vec::new();
        loop {
            let rest = keys.clone();
            let page = self.client.range(Range::of(keys).limit(PAGE_OF_PARTS).at(at)).await?;
            for pair in &page.pairs {
                bytes.extend_from_slice(&pair.value);
            }
            match page.pairs.last() {
                Some(last) if page.more => keys = rest.after(&last.key),
                _ => return Ok(bytes.into()),
            }
        }
    }
}

/// The right to write the machine from beside the tasks. Whoever reads the log anew waits until it is free: work that
/// was begun goes on to its end, even when the one who began it is gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn(Arc<Mutex<()>>);

impl Turn {
    /// Does work on so many bytes, and where that takes long does it beside the tasks: renewals must not wait for it.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if bytes < LARGE {
            return work();
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

/// A change of who leads or who is there, if it is one.
pub(crate) fn note(layout: &Layout, change: &Change, held: &mut Option<Held>) -> Option<Note> {
    match change {
        Change::Put(pair) => match layout.thing(&pair.key) {
            Thing::Leader => {
                *held = Some(Held::of(pair));
                Some(Note::Leader)
            }
            Thing::Member(server) => Some(Note::Member(server, from_json(&pair.value))),
            Thing::Entry(_) | Thing::Unknown => None,
        },
        Change::Gone { key, .. } => match layout.thing(key) {
            Thing::Leader => {
                *held = None;
                Some(Note::Leader)
            }
            Thing::Member(server) => Some(Note::Member(server, None)),
            // Old entries go when a snapshot holds them.
            Thing::Entry(_) | Thing::Unknown => None,
        },
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    Leader,
    Member(ServerId, Option<Peer>),
}
