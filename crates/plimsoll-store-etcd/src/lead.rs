//! Leading: from the moment the key is ours until it is not, or may not be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_etcd::{Error as EtcdError, KeyChange, Keys, Op, Range};
use plimsoll_store::{Committed, Error};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::append::{AppendOutcome, EtcdWriter, cost};
use crate::core::{End, EngineTask, LeaderRequest, PendingProposal};
use crate::layout::{LeaderClaim, ParsedKey, Snapshot, from_json, to_json};
use crate::rules;
use crate::session::{Alive, doubted};
use crate::shared::EtcdShared;
use crate::snapshot::{Job, SnapshotFailure};
use crate::sync::{LeaderRecord, LogReader, Note, SyncError, note};

/// How many asks are taken from the queue at a time.
const MAX_TAKEN: usize = 1_024;

/// Between two tries to watch our own key.
const PAUSE: Duration = Duration::from_millis(200);

/// A snapshot under way; it is given up with the leadership.
#[derive(Debug)]
struct Running {
    task: JoinHandle<Result<u64, SnapshotFailure>>,
    waiting: Vec<oneshot::Sender<Result<u64, Error>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EngineTask {
    /// Leads at a term until that is over. Whatever was sent and not answered by then is unsettled for its proposer.
    pub(crate) async fn lead(&mut self, term: i64) -> End {
        let Some(session) = &self.session else { return End::Turn };
        let (alive, lease) = (session.alive.clone(), session.lease);
        self.watching = None;
        let (reader, shared) = (self.reader(), Arc::clone(&self.shared));
        let watched = watch_key(reader.clone(), shared, term);
        let deposed = async {
            tokio::select! {
                () = watched => {}
                () = watch_log(reader) => {}
            }
        };
        let fences = follow_fence(Arc::clone(&self.shared), alive.clone());
        let shared = Arc::clone(&self.shared);
        let (over, is_over) = watch::channel(false);
        let end = {
            let serve_term = self.serve_term(term, is_over);
            tokio::pin!(serve_term);
            let doubt = doubted(alive);
            tokio::pin!(doubt);
            tokio::select! {
                biased;
                () = &mut doubt => End::Turn,
                () = fences => End::Turn,
                end = &mut serve_term => end,
                () = deposed => {
                    shared.announce(None, false);
                    over.send_replace(true);
                    // Etcd answers, so what is on its way comes to a plain end: its guard fails, or it was in time.
                    tokio::select! {
                        biased;
                        () = doubt => End::Turn,
                        end = serve_term => end,
                    }
                }
            }
        };
        // First of all: from here on nobody decides in our name.
        self.shared.announce(None, false);
        self.held = None;
        if !matches!(end, End::Stop) {
            // One lease serves one term: what was sent under it and is still on its way can never be taken for what
            // we may write later.
            self.session = None;
            let client = self.client.clone();
            tokio::spawn(async move { client.revoke(lease).await });
        }
        end
    }

    async fn serve_term(&mut self, term: i64, over: watch::Receiver<bool>) -> End {
        let writer = EtcdWriter {
            client: self.client.clone(),
            layout: self.layout.clone(),
            term,
            owner: self.owner.1.clone(),
            tip: self.tip.clone(),
            seal: self.seal.clone(),
        };
        let me = LeaderClaim { term: Some(self.shared.term_of(term).0), ..self.options.me.clone() };
        let Some(session) = &self.session else { return End::Turn };
        let named = Op::put_leased(self.layout.leader(), to_json(&me), session.lease);
        if !matches!(writer.write([named]).await, AppendOutcome::Committed) {
            return End::Turn;
        }
        // Nobody else can write any more, so what is read now is all there will ever be before our own.
        match self.reader().sync().await {
            Ok(news) => self.learn(news),
            Err(SyncError::Unreadable(why)) => return End::Unreadable(why),
            // What is lost is found again before anybody may lead.
            Err(SyncError::Etcd(_) | SyncError::Lost(_)) => return End::Turn,
        }
        if self.held.as_ref().is_none_or(|held| held.seen.term != term) {
            return End::Turn;
        }
        let snapshot = self.client.get(self.layout.snapshot()).await;
        let Ok(snapshot) = snapshot else { return End::Turn };
        let snapshot = snapshot.and_then(|pair| from_json(&pair.value));
        let snapshot = snapshot.map_or(0, |snapshot: Snapshot| snapshot.index);
        if *over.borrow() {
            return End::Turn;
        }
        self.shared.vouch_for_members();
        self.shared.announce(Some((&me, term)), true);
        self.serve(&writer, snapshot, over).await
    }

    /// Takes up what is asked, one batch at a time: while one is on its way the next gathers.
    async fn serve(
        &mut self,
        writer: &EtcdWriter,
        snapshot: u64,
        mut over: watch::Receiver<bool>,
    ) -> End {
        let mut running: Option<Running> = None;
        let mut due = self.snapshot_due(Some(snapshot));
        loop {
            if self.is_stopping() {
                return End::Stop;
            }
            if *over.borrow() || !*self.stands.borrow() {
                return End::Turn;
            }
            if running.as_ref().is_some_and(|running| running.task.is_finished()) {
                let held = ended(&mut running).await;
                due = self.snapshot_due(held);
            }
            if running.is_none() && self.applied() >= due {
                running = Some(self.begin_snapshot(writer, Vec::new()));
            }
            if self.queue.is_empty() {
                let mut taken = Vec::new();
                tokio::select! {
                    biased;
                    _ = self.stop.changed() => continue,
                    _ = over.changed() => return End::Turn,
                    // A sender that is gone stops us as well.
                    _ = self.stands.changed() => continue,
                    count = self.asks.recv_many(&mut taken, MAX_TAKEN) => {
                        if count == 0 {
                            return End::Stop;
                        }
                    }
                    held = ended(&mut running) => {
                        due = self.snapshot_due(held);
                        continue;
                    }
                }
                self.queue.extend(taken);
            }
            self.gather().await;
            let batch = self.next_batch();
            if !batch.is_empty() {
                if !self.commit(writer, batch).await {
                    return End::Turn;
                }
                continue;
            }
            match self.queue.pop_front() {
                Some(LeaderRequest::CatchUp(reply)) => {
                    if !self.vouch(writer.term, reply).await {
                        return End::Turn;
                    }
                }
                Some(LeaderRequest::Snapshot(reply)) => {
                    // One that was begun before may not hold all that is asked for.
                    if running.is_some() {
                        ended(&mut running).await;
                    }
                    running = Some(self.begin_snapshot(writer, vec![reply]));
                }
                Some(LeaderRequest::Propose(_)) | None => {}
            }
        }
    }

    /// How far the log may grow after a snapshot, or after one that failed, before the next.
    fn snapshot_due(&self, held: Option<u64>) -> u64 {
        let every = self.options.snapshot_every.max(1);
        held.map_or_else(|| self.applied() + (every / 10).max(1), |held| held + every)
    }

    /// Lets those who were just answered in on the next batch: theirs are on the way.
    async fn gather(&mut self) {
        tokio::task::yield_now().await;
        while self.queue.len() < MAX_TAKEN
            && let Ok(ask) = self.asks.try_recv()
        {
            self.queue.push_back(ask);
        }
    }

    /// The proposals at the head of the queue that go into one transaction.
    fn next_batch(&mut self) -> Vec<PendingProposal> {
        let sizes = self.queue.iter().map_while(|ask| match ask {
            LeaderRequest::Propose(proposal) => Some(cost(proposal.bytes.len())),
            LeaderRequest::CatchUp(_) | LeaderRequest::Snapshot(_) => None,
        });
        let count = rules::batch(sizes);
        let batch = self.queue.drain(..count).filter_map(|ask| match ask {
            LeaderRequest::Propose(proposal) => Some(proposal),
            LeaderRequest::CatchUp(_) | LeaderRequest::Snapshot(_) => None,
        });
        batch.collect()
    }

    fn applied(&self) -> u64 {
        *self.shared.machine.applied().borrow()
    }

    /// Writes a batch, applies it and answers. False: we lead no longer.
    async fn commit(&mut self, writer: &EtcdWriter, batch: Vec<PendingProposal>) -> bool {
        let first = self.applied() + 1;
        let commands: Vec<Bytes> = batch.iter().map(|proposal| proposal.bytes.clone()).collect();
        match writer.append(first, &commands).await {
            AppendOutcome::Committed => {
                self.shared.fill(None);
                let machine = Arc::clone(&self.shared.machine);
                let apply = move || {
                    for (index, proposal) in (first..).zip(batch) {
                        let outcome = machine.apply(index, &proposal.command);
                        // Whoever asked may have gone away.
                        proposal.reply.send(Ok(Committed { index, outcome })).ok();
                    }
                };
                self.turn.take(commands.iter().map(Bytes::len).sum(), apply).await;
                true
            }
            AppendOutcome::Refused(error) => {
                if matches!(error, EtcdError::NoSpace { .. }) {
                    self.shared.fill(Some(&error.to_string()));
                }
                for proposal in batch {
                    let error = Error::NotTaken(error.to_string().into());
                    proposal.reply.send(Err(error)).ok();
                }
                true
            }
            // Known to all before it is known to those who asked.
            AppendOutcome::Deposed => {
                self.shared.announce(None, false);
                for proposal in batch {
                    proposal.reply.send(Err(Error::NoLeader)).ok();
                }
                false
            }
            AppendOutcome::Unsure => {
                self.shared.announce(None, false);
                for proposal in batch {
                    proposal.reply.send(Err(Error::Unsettled)).ok();
                }
                false
            }
        }
    }

    /// Says how far we are, if we still lead as of now. All that was committed before is applied: it was by us.
    async fn vouch(&self, term: i64, reply: oneshot::Sender<Result<u64, Error>>) -> bool {
        let look = Range::of(Keys::one(self.layout.leader())).keys_only();
        let (answer, leads) = match self.client.range(look).await {
            Ok(found) => {
                let leads = found.pairs.first().is_some_and(|pair| pair.create_revision == term);
                (if leads { Ok(self.applied()) } else { Err(Error::NoLeader) }, leads)
            }
            Err(_) => (Err(Error::QuorumLost), true),
        };
        if !leads {
            self.shared.announce(None, false);
        }
        reply.send(answer).ok();
        leads
    }

    fn begin_snapshot(
        &self,
        writer: &EtcdWriter,
        waiting: Vec<oneshot::Sender<Result<u64, Error>>>,
    ) -> Running {
        let job = Job {
            writer: writer.clone(),
            machine: Arc::clone(&self.shared.machine),
            every: self.options.snapshot_every,
            compacts: self.options.compacts,
        };
        Running { task: tokio::spawn(job.run()), waiting }
    }
}

/// Waits for a snapshot under way and answers those who wait for it; returns its index if there is one.
async fn ended(running: &mut Option<Running>) -> Option<u64> {
    let Some(under_way) = running else { return std::future::pending().await };
    let result = match (&mut under_way.task).await {
        Ok(Ok(index)) => Ok(index),
        Ok(Err(SnapshotFailure::Deposed)) | Err(_) => Err(Error::NoLeader),
        Ok(Err(SnapshotFailure::Refused(error))) => Err(Error::NotTaken(error.to_string().into())),
    };
    for reply in under_way.waiting.drain(..) {
        reply.send(result.clone()).ok();
    }
    *running = None;
    result.ok()
}

/// Keeps what is known of the lease where others see it; ends when it is gone.
async fn follow_fence(shared: Arc<EtcdShared>, mut alive: watch::Receiver<Alive>) {
    loop {
        let Alive::Until(fence) = *alive.borrow_and_update() else { return };
        shared.fenced_at(Some(fence));
        shared.heard();
        if alive.changed().await.is_err() {
            return;
        }
    }
}

/// Watches the leader's key and who is there; ends when the key is no longer ours, or etcd is not what it was.
async fn watch_key(reader: LogReader, shared: Arc<EtcdShared>, term: i64) {
    let LogReader { client, layout, .. } = &reader;
    loop {
        if let Ok(found) = client.range(Range::of(layout.leader_watches())).await {
            let (mut held, mut members, mut is_marked) = (None, BTreeMap::new(), false);
            for pair in &found.pairs {
                match layout.thing(&pair.key) {
                    ParsedKey::Leader => held = Some(LeaderRecord::of(pair)),
                    ParsedKey::Lost => is_marked = true,
                    ParsedKey::Member(server) => {
                        members.extend(from_json(&pair.value).map(|peer| (server, peer)));
                    }
                    ParsedKey::Entry(_) | ParsedKey::Unknown => {}
                }
            }
            let is_ours = held.as_ref().is_some_and(|held| held.seen.term == term);
            if !is_ours || is_marked || reader.tip.see(found.revision).is_some() {
                return;
            }
            // What is watched follows on this without a gap.
            shared.set_members(members);
            if let Ok(mut watching) =
                client.watch(layout.leader_watches(), found.revision + 1).await
            {
                while let Ok(changes) = watching.next().await {
                    for change in &changes.changes {
                        match note(layout, change, &mut held) {
                            Some(Note::Member(server, peer)) => {
                                shared.set_member(server, peer.as_ref());
                            }
                            Some(Note::Lost) => return,
                            Some(Note::Leader | Note::Deleted(_)) | None => {}
                        }
                    }
                    if held.as_ref().is_none_or(|held| held.seen.term != term) {
                        return;
                    }
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Watches the log that this server leads; ends when entries go from it that no snapshot holds.
async fn watch_log(reader: LogReader) {
    loop {
        if let Ok(revision) = reader.ends_as_known().await {
            let Some(revision) = revision else { return };
            let entries = reader.layout.all_entries();
            if let Ok(mut watching) = reader.client.watch_deletions(entries, revision + 1).await {
                while let Ok(changes) = watching.next().await {
                    let gone = changes.changes.iter().filter_map(|change| match change {
                        KeyChange::Gone { key, .. } => Some(reader.layout.thing(key)),
                        KeyChange::Put(_) => None,
                    });
                    let last = gone.filter_map(|thing| match thing {
                        ParsedKey::Entry(index) => Some(index),
                        _ => None,
                    });
                    if let Some(last) = last.max()
                        && reader.misses(last).await
                    {
                        return;
                    }
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
