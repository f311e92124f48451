//! The engine that needs nothing but a disk: openraft over a log and snapshots in the data directory.
//!
//! Openraft decides who leads and what is committed; `store` and `state` give it a log and a state machine,
//! [`network`] a way to the other servers. It is named in this module alone. A cell of one is the same code with
//! one voter. How the parts start, and what is believed of a data directory, is in `start`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{
    ClientWriteError, Fatal, ForwardToLeader, LinearizableReadError, RaftError,
};
use openraft::metrics::WaitError;
use openraft::{ChangeMembers, Instant, Raft, RaftMetrics, ReadPolicy};
use plimsoll_model::{CellId, Command};
use plimsoll_seal::UnlockKey;
use tokio::sync::watch;

use crate::backup::{self, Summary};
use crate::disk::monitored::MonitoredDisk;
use crate::disk::{Disk, RealDisk};
use crate::engine::{
    Committed, Engine, EngineFuture, Error, Leadership, LeadershipInfo, LogPosition, Member, Peer,
    ServerId,
};
use crate::log::{MAX_ENTRY, SEGMENT_SIZE, TornWrite};
use crate::machine::Machine;

mod addresses;
#[cfg(any(test, feature = "testkit"))]
pub mod channel;
mod door;
#[cfg(test)]
mod fuzz;
pub(crate) mod growth;
mod incarnation;
mod leader_tracker;
pub mod network;
pub(crate) mod replay;
mod rpc_server;
pub(crate) mod snapshot;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod store;
mod timing;
pub(crate) mod types;
pub(crate) mod wire;

use door::Door;
use incarnation::IncarnationGuard;
use leader_tracker::LeaderTracker;
use network::{Arrivals, Network, NoNetwork};
use start::ServerIdentity;
use state::StateMachine;
use store::LogStore;
use types::{ENTRY_OVERHEAD, Proposal, Types};

pub use door::{NoNotary, Notary, Sender};
pub use incarnation::Incarnation;
pub use start::{OpenError, cell_of, is_superseded};
pub use timing::Timing;

/// The most bytes one command may take when it is written.
pub const MAX_COMMAND: usize = MAX_ENTRY - ENTRY_OVERHEAD;

/// How many entries may gather before a snapshot replaces them. A start replays at most so many, which takes a
/// fraction of a second; a snapshot of a large cell takes about as long.
pub const SNAPSHOT_EVERY: u64 = 10_000;

/// How many bytes of entries may gather before a snapshot replaces them, or as many as the last snapshot had where that is
/// more. A start reads and replays at most so much, in about a second.
pub const SNAPSHOT_BYTES: u64 = 64 << 20;

/// How many bytes of entries that such a snapshot holds are kept besides, for a server that was away for a moment.
const KEPT_BYTES: u64 = SEGMENT_SIZE;

/// How much room a server wants to go on after a full disk: a segment to write in, and as much for a snapshot.
pub const ROOM: u64 = 2 * SEGMENT_SIZE;

/// How long to wait for a snapshot before it is asked for once more.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// How long a command may take, in election timeouts, before its proposer is told that nobody knows.
const PROPOSAL_ELECTIONS: u32 = 20;

/// How long openraft may take to let go of the log once it has ended.
const LET_GO: Duration = Duration::from_secs(10);

/// How a server starts.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    pub data_dir: PathBuf,
    pub cell_id: CellId,
    /// The number it gets when its data directory is new; after that, the one written there counts.
    pub server: ServerId,
    pub peer: Peer,
    pub founding: Founding,
    /// The life of the cell that it is taken into; one that founds its own begins the first.
    pub incarnation: Incarnation,
    pub snapshot_every: u64,
    pub snapshot_bytes: u64,
    /// None: from how fast the disk is.
    pub timing: Option<Timing>,
    /// What the keyring of its store is kept under; none: under nothing.
    pub unlock: Option<UnlockKey>,
    pub network: Arc<dyn Network>,
    /// What the cell's authority has signed, and how this server has it sign.
    pub notary: Arc<dyn Notary>,
    pub disk: Arc<dyn Disk>,
}

/// What a server does when its data directory is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Founding {
    /// It founds a cell of its own.
    Alone,
    /// It waits to be taken into a cell.
    Join,
}

impl EmbeddedConfig {
    /// A cell of one on this machine's disk.
    pub fn alone(data_dir: impl Into<PathBuf>, cell_id: CellId) -> Self {
        Self {
            data_dir: data_dir.into(),
            cell_id,
            server: ServerId(1),
            peer: Peer::default(),
            founding: Founding::Alone,
            incarnation: Incarnation::default(),
            snapshot_every: SNAPSHOT_EVERY,
            snapshot_bytes: SNAPSHOT_BYTES,
            timing: None,
            unlock: None,
            network: Arc::new(NoNetwork),
            notary: Arc::new(NoNotary),
            disk: Arc::new(RealDisk),
        }
    }
}

/// A server of the embedded engine.
pub struct Embedded {
    raft: Raft<Types, StateMachine>,
    identity: ServerIdentity,
    guard: Arc<IncarnationGuard>,
    door: Arc<Door>,
    machine: Arc<Machine>,
    leadership: watch::Receiver<Leadership>,
    tracker: Arc<LeaderTracker>,
    timing: Timing,
    cut: Option<TornWrite>,
    disk: Arc<MonitoredDisk>,
    dir: Arc<Path>,
    arrivals: Mutex<Arrivals>,
    /// Kept to learn when openraft has let go of it, and to let go of it last.
    store: Mutex<Option<LogStore>>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leadership = *self.leadership.borrow();
        f.debug_struct("Embedded")
            .field("server", &self.id())
            .field("leadership", &leadership)
            .finish_non_exhaustive()
    }
}

impl Embedded {
    pub fn id(&self) -> ServerId {
        self.identity.server
    }

    /// Which life of the cell it is of: what a newcomer must be told.
    pub fn incarnation(&self) -> Incarnation {
        self.identity.incarnation
    }

    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// What a crash had left of a torn write, and opening cut.
    pub fn cut(&self) -> Option<&TornWrite> {
        self.cut.as_ref()
    }

    /// Takes a server into the cell, without a vote yet. With `wait` it returns once that server has caught up.
    pub async fn add_server(&self, server: ServerId, peer: Peer, wait: bool) -> Result<(), Error> {
        self.raft.add_learner(server, peer, wait).await.map_err(write_error)?;
        Ok(())
    }

    /// Makes these servers, all of the cell already, the ones whose votes count. The others stay as learners.
    pub async fn set_voters(&self, voters: BTreeSet<ServerId>) -> Result<(), Error> {
        self.raft.change_membership(voters, true).await.map_err(write_error)?;
        Ok(())
    }

    /// Notes where a server is found from now on.
    pub async fn set_peer(&self, server: ServerId, peer: Peer) -> Result<(), Error> {
        let change = ChangeMembers::SetNodes(BTreeMap::from([(server, peer)]));
        self.raft.change_membership(change, true).await.map_err(write_error)?;
        Ok(())
    }

    /// Lets a server without a vote go.
    pub async fn remove_server(&self, server: ServerId) -> Result<(), Error> {
        let change = ChangeMembers::RemoveNodes(BTreeSet::from([server]));
        self.raft.change_membership(change, true).await.map_err(write_error)?;
        Ok(())
    }

    /// Whether this server tries to lead when nobody does. It votes for others all the same.
    pub fn stand(&self, stands: bool) {
        self.raft.runtime_config().elect(stands);
    }

    /// How many entries each server lacks, as far as this one knows, which must lead to know. A server that has taken
    /// nothing yet, or has not answered lately, is not among them.
    pub fn lags(&self) -> BTreeMap<ServerId, u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let last = metrics.last_log_index.map_or(0, |last| last + 1);
        let (Some(replication), Some(acked)) = (&metrics.replication, &metrics.heartbeat) else {
            return BTreeMap::new();
        };
        let patience = self.timing.election * leader_tracker::SILENT_ELECTIONS;
        let is_there = |server: &ServerId| {
            let acked = acked.get(server).and_then(Option::as_ref);
            acked.is_some_and(|acked| acked.elapsed() < patience)
        };
        let there = replication.iter().filter(|(server, _)| is_there(server));
        let lag = there.filter_map(|(server, matched)| {
            Some((*server, last.saturating_sub(matched.as_ref()?.index + 1)))
        });
        lag.chain([(self.id(), 0)]).collect()
    }

    /// Which entries its log holds; those before are in the snapshot alone.
    pub fn held(&self) -> std::ops::Range<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let first = metrics.purged.as_ref().map_or(0, |id| id.index + 1);
        first..metrics.last_log_index.map_or(first, |last| last + 1)
    }

    /// Returns once the server cannot go on, with why. It answers reads still; only another start makes it write again.
    pub async fn broken(&self) -> Error {
        // Its sender ends with openraft. Metrics would tell as well, and wake whoever waits with every heartbeat.
        let mut leadership = self.leadership.clone();
        while leadership.changed().await.is_ok() {}
        match self.trouble() {
            // It ended without its saying so.
            None => Error::Panicked,
            // As was asked for.
            Some(Error::Stopped) => std::future::pending().await,
            Some(error) => error,
        }
    }

    /// The error, by its name where it is known to be a full disk, or a build that is too old.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Disk(_) if self.machine.has_panicked() => Error::Panicked,
            Error::Disk(_) if let Some(level) = self.machine.outgrown() => {
                Error::Outgrown { level }
            }
            Error::Disk(_) | Error::Stopped if self.disk.was_full() => {
                Error::DiskFull { dir: Arc::clone(&self.dir) }
            }
            error => error,
        }
    }

    /// What can be said before a command is written: then it is certain that it was not.
    fn check_leading(&self) -> Result<(), Error> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        if let Err(fatal) = &metrics.running_state {
            return Err(fatal_error(fatal));
        }
        if self.tracker.has_panicked() {
            return Err(Error::Panicked);
        }
        if self.guard.is_superseded() {
            return Err(Error::Superseded);
        }
        if let Some(level) = self.machine.outgrown() {
            return Err(Error::Outgrown { level });
        }
        if !metrics.state.is_leader() {
            return Err(match self.tracker.leadership(&metrics).leader {
                Some(leader) if leader != self.id() => Error::NotLeader { leader },
                _ => Error::NoLeader,
            });
        }
        if self.tracker.leads_nobody(&metrics) {
            // Whoever is told so and looks again must not find that this server leads.
            self.tracker.tell(&metrics);
            return Err(Error::QuorumLost);
        }
        Ok(())
    }

    async fn write(&self, command: Command) -> Result<Committed, Error> {
        let bytes = postcard::to_stdvec(&command).expect("every command can be written");
        if bytes.len() > MAX_COMMAND {
            return Err(Error::TooLarge { size: bytes.len(), max: MAX_COMMAND });
        }
        self.check_leading()?;
        // The level only rises, so what may be written now may be written wherever it ends up in the log.
        let (needed, cell) = (command.level, self.machine.level());
        if needed > cell {
            return Err(Error::Early { needed, cell });
        }
        let written = self.raft.client_write(Proposal(bytes.into()));
        let limit = self.timing.election * PROPOSAL_ELECTIONS;
        let written = tokio::time::timeout(limit, written).await.map_err(|_| Error::Unsettled)?;
        let response = written.map_err(write_error)?;
        let outcome = response.data.expect("a command has an outcome");
        Ok(Committed { index: response.log_id.index, outcome })
    }

    /// Hands leadership, where this server has it, to the one that has the most of the log. Returns once that leads, or
    /// has had its time to.
    pub async fn hand_over(&self) {
        let best = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            let Some(replication) = metrics.replication.as_ref() else { return };
            let voters: BTreeSet<_> = metrics.membership_config.voter_ids().collect();
            let others = replication.iter();
            let others =
                others.filter(|(server, _)| **server != self.id() && voters.contains(server));
            others.max_by_key(|(_, matched)| matched.as_ref().map(|id| id.index)).map(|(id, _)| *id)
        };
        let Some(best) = best else { return };
        if self.raft.trigger().transfer_leader(best).await.is_ok() {
            let mut leadership = self.leadership.clone();
            let gone = leadership.wait_for(|now| !now.is_me && now.leader.is_some());
            // If it does not work out, the others elect somebody once this server is silent.
            let _ = tokio::time::timeout(self.timing.election, gone).await;
        }
    }

    async fn end(&self) -> Result<(), Error> {
        self.hand_over().await;
        // One that has panicked has nothing to end; its log is let go of all the same, for the next start.
        let ended = self.raft.shutdown().await;
        let ended = ended.map_err(|error| Error::Disk(error.to_string().into()));
        let store = self.store.lock().expect("no holder of the store panics").take();
        if let Some(store) = store {
            // Openraft's own tasks end a moment after it does. After a panic one may not, and then nobody waits for it.
            let begun = std::time::Instant::now();
            while !store.is_last() && begun.elapsed() < LET_GO {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Dropping it waits for the disk.
            tokio::task::spawn_blocking(move || drop(store)).await.ok();
        }
        ended
    }

    async fn take_snapshot(&self) -> Result<u64, Error> {
        let target = *self.machine.applied().borrow();
        let has_it = move |metrics: &RaftMetrics<Types>| {
            metrics.snapshot.as_ref().is_some_and(|id| id.index >= target)
        };
        while !has_it(&self.raft.metrics().borrow_watched()) {
            self.raft.trigger().snapshot().await.map_err(|fatal| fatal_error(&fatal))?;
            // One that is being made already, of an earlier entry, has openraft pass over what is asked for meanwhile.
            let waiting = self.raft.wait(Some(ASK_AGAIN));
            let waited = waiting.metrics(has_it, "a snapshot on demand").await;
            if let Err(WaitError::ShuttingDown) = waited {
                return Err(Error::Stopped);
            }
        }
        Ok(target)
    }

    async fn write_backup(&self, file: &Path) -> Result<Summary, Error> {
        let term = self.leadership.borrow().term;
        let machine = Arc::clone(&self.machine);
        let disk: Arc<dyn Disk> = Arc::clone(&self.disk) as _;
        let file = file.to_owned();
        let written = tokio::task::spawn_blocking(move || {
            backup::take_on(disk.as_ref(), &machine, term, &file)
        });
        match written.await {
            Ok(Ok(summary)) => Ok(summary),
            Ok(Err(error)) => Err(Error::Disk(backup::chain(&error).into())),
            Err(_) => Err(Error::Stopped),
        }
    }
}

impl Engine for Embedded {
    fn propose(&self, command: Command) -> EngineFuture<'_, Committed> {
        Box::pin(async { self.write(command).await.map_err(|error| self.named(error)) })
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    fn trouble(&self) -> Option<Error> {
        let state = self.raft.metrics().borrow_watched().running_state.clone();
        let fatal = state.err().map(|fatal| fatal_error(&fatal));
        let error = fatal.or_else(|| self.tracker.has_panicked().then_some(Error::Panicked));
        error.map(|error| self.named(error))
    }

    fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    fn members(&self) -> Vec<Member> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<ServerId> = membership.voter_ids().collect();
        let nodes = membership.nodes();
        nodes
            .map(|(id, peer)| Member { id: *id, peer: peer.clone(), votes: voters.contains(id) })
            .collect()
    }

    fn members_since(&self) -> u64 {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.log_id().as_ref().map_or(0, |id| id.index)
    }

    fn is_changing(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let stored = &metrics.membership_config;
        let committed = metrics.cluster_committed.as_ref().max(metrics.local_committed.as_ref());
        stored.membership().get_joint_config().len() > 1 || stored.log_id().as_ref() > committed
    }

    fn log_position(&self) -> LogPosition {
        let log_position = self.tracker.log_position(&self.raft.metrics().borrow_watched());
        // The metrics follow what is applied a moment later.
        let applied = *self.machine.applied().borrow();
        let (committed, outgrown) = (log_position.committed.max(applied), self.machine.outgrown());
        LogPosition { applied, committed, outgrown, ..log_position }
    }

    fn leadership_info(&self) -> LeadershipInfo {
        self.tracker.leadership_info()
    }

    fn election_timeout(&self) -> Duration {
        // At most twice as long as it is at least, so that two seldom stand at once.
        self.timing.election * 2
    }

    fn catch_up(&self) -> EngineFuture<'_, u64> {
        Box::pin(async {
            self.check_leading()?;
            let read = self.raft.ensure_linearizable(ReadPolicy::ReadIndex);
            let limit = self.timing.election * PROPOSAL_ELECTIONS;
            let read = tokio::time::timeout(limit, read).await.map_err(|_| Error::QuorumLost)?;
            read.map_err(|error| match error {
                RaftError::Fatal(fatal) => fatal_error(&fatal),
                RaftError::APIError(LinearizableReadError::ForwardToLeader(to)) => elsewhere(&to),
                RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)) => Error::QuorumLost,
            })?;
            Ok(*self.machine.applied().borrow())
        })
    }

    fn snapshot(&self) -> EngineFuture<'_, u64> {
        Box::pin(async { self.take_snapshot().await.map_err(|error| self.named(error)) })
    }

    fn backup<'a>(&'a self, file: &'a Path) -> EngineFuture<'a, Summary> {
        Box::pin(async move { self.write_backup(file).await.map_err(|error| self.named(error)) })
    }

    fn shutdown(&self) -> EngineFuture<'_, ()> {
        Box::pin(self.end())
    }
}

fn elsewhere(to: &ForwardToLeader<Types>) -> Error {
    to.leader_id.map_or(Error::NoLeader, |leader| Error::NotLeader { leader })
}

fn fatal_error(fatal: &Fatal<Types>) -> Error {
    match fatal {
        Fatal::StorageError(error) => Error::Disk(error.to_string().into()),
        Fatal::Panicked => Error::Panicked,
        Fatal::Stopped => Error::Stopped,
    }
}

fn write_error(error: RaftError<Types, ClientWriteError<Types>>) -> Error {
    match error {
        RaftError::Fatal(fatal) => fatal_error(&fatal),
        RaftError::APIError(ClientWriteError::ForwardToLeader(to)) => elsewhere(&to),
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => {
            Error::Servers(error.to_string().into())
        }
        RaftError::APIError(
            ClientWriteError::LogEntryDiscarded(_) | ClientWriteError::PreconditionFailed(_),
        ) => Error::Unsettled,
    }
}
