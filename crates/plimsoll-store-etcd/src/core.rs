//! The task that is the engine: it follows the log, campaigns when nobody leads, and leads when it won. One task writes
//! the machine, so entries are applied in one order whoever leads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_etcd::{
    Error as EtcdError, EtcdClient, KeyChange, Keys, Op, Range, Txn, Watching, When,
};
use plimsoll_model::Command;
use plimsoll_store::{Committed, Error};
use tokio::sync::{mpsc, oneshot, watch};

use crate::layout::{Layout, LeaderClaim, LostMark, Owner, ParsedKey, from_json, to_json};
use crate::rules::{self, StandbyAction};
use crate::seal::ValueSeal;
use crate::session::{LeaderSession, doubted};
use crate::shared::EtcdShared;
use crate::sync::{
    LeaderRecord, LogReader, Loss, Note, SyncError, SyncLock, SyncReport, Witness, note,
};
use crate::tip::KnownTip;

/// What is asked of the one who leads.
#[derive(Debug)]
pub(crate) enum LeaderRequest {
    Propose(PendingProposal),
    CatchUp(oneshot::Sender<Result<u64, Error>>),
    Snapshot(oneshot::Sender<Result<u64, Error>>),
}

#[derive(Debug)]
pub(crate) struct PendingProposal {
    pub(crate) bytes: Bytes,
    pub(crate) command: Command,
    pub(crate) reply: oneshot::Sender<Result<Committed, Error>>,
}

impl LeaderRequest {
    /// Whoever asked may have gone away.
    pub(crate) fn refuse(self, error: Error) {
        match self {
            Self::Propose(proposal) => drop(proposal.reply.send(Err(error))),
            Self::CatchUp(reply) | Self::Snapshot(reply) => drop(reply.send(Err(error))),
        }
    }
}

/// How the engine behaves.
#[derive(Debug, Clone)]
pub(crate) struct EngineOptions {
    pub(crate) me: LeaderClaim,
    pub(crate) ttl: Duration,
    pub(crate) snapshot_every: u64,
    pub(crate) compacts: bool,
}

#[derive(Debug)]
pub(crate) struct EngineTask {
    pub(crate) shared: Arc<EtcdShared>,
    pub(crate) client: EtcdClient,
    /// Connections of its own, so that renewals wait behind nothing.
    pub(crate) keeper: EtcdClient,
    pub(crate) layout: Layout,
    pub(crate) options: EngineOptions,
    pub(crate) asks: mpsc::Receiver<LeaderRequest>,
    /// Asked of us while we lead, and not yet taken up.
    pub(crate) queue: VecDeque<LeaderRequest>,
    pub(crate) stop: watch::Receiver<bool>,
    /// Whether we lead when nobody does.
    pub(crate) stands: watch::Receiver<bool>,
    pub(crate) turn: SyncLock,
    pub(crate) tip: KnownTip,
    pub(crate) seal: ValueSeal,
    /// Whose prefix it is, and how that is written there.
    pub(crate) owner: (Owner, Bytes),
    pub(crate) held: Option<LeaderRecord>,
    /// All up to there is known.
    pub(crate) revision: i64,
    pub(crate) session: Option<LeaderSession>,
    pub(crate) watching: Option<Watching>,
}

/// How a stretch of following or leading ended.
#[derive(Debug)]
pub(crate) enum End {
    Stop,
    /// Look again at who leads.
    Turn,
    Unreadable(String),
}

impl EngineTask {
    /// Runs until it is told to stop, or cannot go on.
    pub(crate) async fn run(mut self) {
        loop {
            let end = match self.follow().await {
                Ok(term) => self.lead(term).await,
                Err(end) => end,
            };
            self.refuse_all();
            match end {
                End::Turn => {}
                End::Stop => break,
                End::Unreadable(why) => {
                    self.shared.fail(&why);
                    break;
                }
            }
        }
        self.shared.announce(None, false);
        self.shared.fenced_at(None);
        if let Some(session) = self.session.take() {
            // Its keys go at once, so that nobody waits for them to expire. If etcd does not hear it, they expire.
            self.client.revoke(session.lease).await.ok();
        }
        self.asks.close();
        while let Ok(ask) = self.asks.try_recv() {
            ask.refuse(Error::Stopped);
        }
    }

    /// Told to stop, or left alone: nobody holds the engine any more.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    pub(crate) fn reader(&self) -> LogReader {
        LogReader {
            client: self.client.clone(),
            layout: self.layout.clone(),
            machine: Arc::clone(&self.shared.machine),
            turn: self.turn.clone(),
            tip: self.tip.clone(),
            seal: self.seal.clone(),
            owner: Some(self.owner.0.clone()),
            server: Some(self.options.me.server),
        }
    }

    /// Follows until this server holds the leader's key; returns its term.
    async fn follow(&mut self) -> Result<i64, End> {
        loop {
            if self.is_stopping() {
                return Err(End::Stop);
            }
            let lease = match self.ready().await {
                Ok(lease) => lease,
                Err(SyncError::Unreadable(why)) => return Err(End::Unreadable(why)),
                // What this server has applied is worth more than what is there. It goes on telling it, and looks whether
                // etcd has it again.
                Err(SyncError::Lost(loss)) => {
                    self.bear(&loss).await;
                    self.pause().await;
                    continue;
                }
                Err(SyncError::Etcd(error)) => {
                    self.in_trouble(&error);
                    self.pause().await;
                    continue;
                }
            };
            self.shared.lose(None);
            let held = self.held.as_ref();
            self.shared.announce(held.map(|held| (&held.leader, held.seen.term)), false);
            match rules::standby(held.map(|held| held.seen), lease) {
                StandbyAction::Lead { term } => return Ok(term),
                StandbyAction::Campaign if *self.stands.borrow() => {
                    if let Err(error) = self.campaign().await {
                        self.in_trouble(&error);
                        self.pause().await;
                    }
                }
                StandbyAction::Campaign | StandbyAction::Wait => {
                    match self.wait().await {
                        Err(SyncError::Unreadable(why)) => return Err(End::Unreadable(why)),
                        // What is wrong is found when it is read anew.
                        Ok(()) | Err(SyncError::Lost(_) | SyncError::Etcd(_)) => {}
                    }
                }
            }
        }
    }

    /// Tells everybody what etcd lost, and leaves a mark there, so that nobody writes who does not know it.
    async fn bear(&mut self, loss: &Loss) {
        self.watching = None;
        self.shared.lose(Some(&loss.why));
        self.shared.announce(None, false);
        if loss.witness == Witness::Here
            && let Err(error) = self.mark_lost().await
        {
            self.in_trouble(&error);
            self.shared.lose(Some(&loss.why));
        }
    }

    async fn mark_lost(&self) -> Result<(), EtcdError> {
        let key = self.layout.lost();
        let LeaderClaim { server, peer, .. } = self.options.me.clone();
        let applied = *self.shared.machine.applied().borrow();
        let mark = Op::put(key.clone(), to_json(&LostMark { server, peer, applied }));
        let look = Op::get(Range::of(Keys::one(key.clone())));
        let first = Txn::when([When::absent(key.clone())]).then([mark.clone()]).otherwise([look]);
        let found = self.client.txn(first.repeatable()).await?;
        let Some(pair) = found.reads().next().and_then(|mut found| found.pairs.pop()) else {
            return Ok(());
        };
        // Of several servers, the one that has the most is named.
        if from_json(&pair.value).is_none_or(|told: LostMark| told.applied < applied) {
            let more = Txn::when([When::modified_at(key, pair.mod_revision)]).then([mark]);
            self.client.txn(more).await?;
        }
        Ok(())
    }

    fn in_trouble(&mut self, error: &EtcdError) {
        self.shared.hinder(Some(&error.to_string()));
        if matches!(error, EtcdError::NoSuchLease { .. }) {
            self.session = None;
        }
        // Whoever led when we last heard of it may have been followed by others, once our own lease is in doubt.
        let now = Instant::now();
        if self.session.as_ref().and_then(LeaderSession::fence).is_none_or(|fence| fence <= now) {
            self.shared.announce(None, false);
        }
        self.client.turn();
    }

    /// Sees to it that this server has a lease, knows all there is, and watches what comes.
    async fn ready(&mut self) -> Result<i64, SyncError> {
        if self.watching.is_none() {
            let mut news = self.reader().sync().await?;
            if let Some(mark) = news.mark.take() {
                // It was ours, and nothing is lost after all.
                let mine = When::has_value(self.layout.lost(), to_json(&mark));
                let clear = Op::delete(Keys::one(self.layout.lost()));
                self.client.txn(Txn::when([mine]).then([clear]).repeatable()).await?;
            }
            self.shared.set_members(std::mem::take(&mut news.members));
            self.learn(news);
            let keys = self.layout.standby_watches();
            self.watching = Some(self.client.watch(keys, self.revision + 1).await?);
        }
        // One that is in doubt may have expired: then nothing that hangs on it can be trusted.
        let now = Instant::now();
        if self.session.as_ref().and_then(LeaderSession::fence).is_none_or(|fence| fence <= now) {
            self.session = None;
            let key = self.layout.member(self.options.me.server);
            let value = to_json(&self.options.me.peer);
            let (client, keeper) = (&self.client, &self.keeper);
            let session = LeaderSession::open(client, keeper, self.options.ttl, key, value).await?;
            self.session = Some(session);
        }
        let session = self.session.as_ref().expect("it was opened above");
        self.shared.fenced_at(session.fence());
        Ok(session.lease.0)
    }

    /// Not who is there: while this server leads, its watch knows that better than what was read beside it.
    pub(crate) fn learn(&mut self, news: SyncReport) {
        self.shared.heard();
        self.revision = news.revision;
        self.held = news.held;
    }

    /// Takes what is watched as it comes, until who leads may have changed or something went wrong.
    async fn wait(&mut self) -> Result<(), SyncError> {
        let reader = self.reader();
        let Some(session) = &self.session else { return Ok(()) };
        let mut alive = session.alive.clone();
        let doubt = doubted(alive.clone());
        tokio::pin!(doubt);
        let Some(mut watching) = self.watching.take() else { return Ok(()) };
        let idle = rules::renew_after(self.options.ttl);
        let (mut heard, mut asked) = (tokio::time::Instant::now(), false);
        loop {
            tokio::select! {
                biased;
                _ = self.stop.changed() => return Ok(()),
                _ = self.stands.changed() => {
                    self.watching = Some(watching);
                    return Ok(());
                }
                Some(ask) = self.asks.recv() => {
                    let error = self.shared.check_leading().err().unwrap_or(Error::NoLeader);
                    ask.refuse(error);
                }
                changed = alive.changed() => {
                    let fence = self.session.as_ref().and_then(LeaderSession::fence);
                    self.shared.fenced_at(fence);
                    if changed.is_err() || fence.is_none() {
                        // The lease is gone, not the watch.
                        self.watching = Some(watching);
                        return Ok(());
                    }
                }
                // Whether anybody leads is no longer known.
                () = &mut doubt => {
                    self.shared.announce(None, false);
                    return Ok(());
                }
                changes = tokio::time::timeout_at(heard + idle, watching.next()) => match changes {
                    Ok(Ok(changes)) => {
                        (heard, asked) = (tokio::time::Instant::now(), false);
                        self.shared.heard();
                        if !self.take(&reader, &changes.changes).await? {
                            return Ok(());
                        }
                        self.revision = watching.resume() - 1;
                        let noted = changes.changes.iter().any(|change| is_leaders(&self.layout, change));
                        if noted {
                            self.watching = Some(watching);
                            return Ok(());
                        }
                    }
                    // A watch that etcd ended is begun anew, with all that was missed.
                    Ok(Err(error)) => {
                        self.in_trouble(&error);
                        return Ok(());
                    }
                    // The member may hang, and its connection not know it yet.
                    Err(_) if asked => {
                        self.client.turn();
                        return Ok(());
                    }
                    Err(_) => {
                        (heard, asked) = (tokio::time::Instant::now(), true);
                        watching.ask_progress();
                    }
                },
            }
        }
    }

    /// False: it must all be read anew.
    async fn take(&mut self, reader: &LogReader, changes: &[KeyChange]) -> Result<bool, SyncError> {
        // The last of them first, so that whoever looks meanwhile sees how much is still to be applied.
        let entries = changes.iter().filter_map(|change| match change {
            KeyChange::Put(pair) => Some(self.layout.thing(&pair.key)),
            KeyChange::Gone { .. } => None,
        });
        for thing in entries {
            if let ParsedKey::Entry(index) = thing {
                self.shared.saw(index);
            }
        }
        let mut deleted = None;
        for change in changes {
            match note(&self.layout, change, &mut self.held) {
                Some(Note::Member(server, peer)) => self.shared.set_member(server, peer.as_ref()),
                Some(Note::Lost) => return Ok(false),
                Some(Note::Deleted(index)) => deleted = deleted.max(Some(index)),
                Some(Note::Leader) | None => {}
            }
            let KeyChange::Put(pair) = change else { continue };
            if let ParsedKey::Entry(index) = self.layout.thing(&pair.key) {
                match reader.follow(index, pair).await {
                    Ok(true) => {}
                    Ok(false) | Err(SyncError::Etcd(_)) => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(match deleted {
            Some(index) => !reader.misses(index).await,
            None => true,
        })
    }

    /// Puts our name on the leader's key if nobody's is there. Either way it is known afterwards whose it is.
    async fn campaign(&mut self) -> Result<(), EtcdError> {
        let Some(session) = &self.session else { return Ok(()) };
        let key = self.layout.leader();
        let mine = Op::put_leased(key.clone(), to_json(&self.options.me), session.lease);
        let look = || Op::get(Range::of(Keys::one(key.clone())));
        let cell = When::has_value(self.layout.cell_id(), self.owner.1.clone());
        let txn = Txn::when([When::absent(key.clone()), When::absent(self.layout.lost()), cell])
            .then([mine, look()])
            .otherwise([look()])
            .repeatable();
        let reply = self.client.txn(txn).await?;
        let has_won = reply.held;
        let found = reply.reads().next();
        self.held = found.and_then(|mut found| found.pairs.pop()).as_ref().map(LeaderRecord::of);
        if !has_won && self.held.is_none() {
            // Nobody leads and nobody may: what is wrong is found when it is read anew.
            self.watching = None;
        }
        Ok(())
    }

    /// Waits a little before etcd is tried again, and refuses what is asked meanwhile.
    async fn pause(&mut self) {
        let over = tokio::time::sleep(rules::retry_after(self.options.ttl));
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                _ = self.stop.changed() => return,
                Some(ask) = self.asks.recv() => {
                    ask.refuse(self.shared.check_leading().err().unwrap_or(Error::NoLeader));
                }
                () = &mut over => return,
            }
        }
    }

    /// Nothing of this was taken up.
    fn refuse_all(&mut self) {
        let error = self.shared.check_leading().err().unwrap_or(Error::NoLeader);
        for ask in self.queue.drain(..) {
            ask.refuse(error.clone());
        }
    }
}

fn is_leaders(layout: &Layout, change: &KeyChange) -> bool {
    let key = match change {
        KeyChange::Put(pair) => &pair.key,
        KeyChange::Gone { key, .. } => key,
    };
    layout.thing(key) == ParsedKey::Leader
}
