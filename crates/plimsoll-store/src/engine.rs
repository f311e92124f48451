//! The one door to the replicated state. An [`Engine`] takes commands, makes them durable in an order that every
//! server agrees on, and applies them; who stands behind it, and how the servers agree, is its own affair.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::level::{VERSION, outdated};
use plimsoll_model::{Command, Event, Level, Rejection, Term};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

use crate::backup::Summary;
use crate::machine::Machine;

/// What an engine's methods return, boxed so that a cell can hold any engine.
pub type EngineFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A server of the cell, numbered for life. A server that lost its disk comes back under a new number.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ServerId(pub u64);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}", self.0)
    }
}

/// Where a server is found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Peer {
    /// The node it runs on, as people call it.
    pub name: String,
    pub address: String,
}

/// A server, and whether its vote counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: ServerId,
    pub peer: Peer,
    pub votes: bool,
}

/// Who leads, as far as this server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// The newest term this server has seen. It fences: no two leaders ever share one.
    pub term: Term,
    pub leader: Option<ServerId>,
    /// Whether this server leads *and* has applied all that was committed before its term: it may decide.
    pub is_me: bool,
}

/// What a server is to its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerRole {
    Leader,
    /// Its vote counts, and another leads or nobody.
    Voter,
    /// It holds the log without a vote.
    Learner,
    /// It holds the log and leads as soon as nobody else does; who that is, nobody votes on.
    Standby,
    /// It holds no log.
    #[default]
    Agent,
}

impl ServerRole {
    pub fn word(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Voter => "voter",
            Self::Learner => "learner",
            Self::Standby => "standby",
            Self::Agent => "agent",
        }
    }
}

/// How far a server has come, and how fresh that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPosition {
    pub role: ServerRole,
    pub applied: u64,
    /// The last entry it knows to be committed.
    pub committed: u64,
    /// The last entry in its log.
    pub last: u64,
    /// The cell was recovered without this server, which neither votes nor leads any more.
    pub is_superseded: bool,
    /// The level the cell speaks, where this build cannot read it.
    pub outgrown: Option<Level>,
    /// How long ago it last heard its leader or, leading, most of the servers. None: not since it started.
    pub heard: Option<Duration>,
}

impl LogPosition {
    /// How many entries are committed and not applied here.
    pub fn lag(&self) -> u64 {
        self.committed.saturating_sub(self.applied)
    }
}

/// How the leadership stands and what it rests on, for those who look after the cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeadershipInfo {
    /// What keeps the log: `embedded` or `etcd`.
    pub engine: &'static str,
    /// How long ago this server saw the one who leads begin; none while nobody does.
    pub since: Option<Duration>,
    /// How many leaders this server has seen since it started.
    pub elections: u64,
    /// What is left of this server's lease by its own clock; none where it has none.
    pub lease_left: Option<Duration>,
    /// Why this server can have no part in it at the moment, which may pass by itself.
    pub hindrance: Option<Arc<str>>,
}

/// A command that is in the log for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub index: u64,
    /// What it changed, or why it was refused: a refused command is an entry like any other and changes nothing.
    pub outcome: Result<Arc<[Event]>, Rejection>,
}

/// Why a command did not commit, or may not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    #[error("this server is not the leader; {leader} is")]
    NotLeader { leader: ServerId },
    #[error("the cell has no leader")]
    NoLeader,
    #[error("this server leads but has lost its quorum")]
    QuorumLost,
    #[error("leadership changed during the write; the command may have been committed")]
    Unsettled,
    #[error("this server's cell was recovered without it")]
    Superseded,
    #[error("{}", outdated(VERSION, *level))]
    Outgrown { level: Level },
    #[error("the command needs {needed}, the cell is at {cell}; upgrade every server first")]
    Early { needed: Level, cell: Level },
    #[error("the store is stopped")]
    Stopped,
    /// A bug: this server takes no part in the log until it is started again.
    #[error("the log of this server panicked")]
    Panicked,
    #[error("the command has {size} bytes, the limit is {max}; split it")]
    TooLarge { size: usize, max: usize },
    /// Nothing was written, and the same may well work once the cause is gone.
    #[error("nothing was written: {0}")]
    NotTaken(Arc<str>),
    /// What keeps the log has no room for more; reads and leadership go on.
    #[error("the store is full: {0}")]
    StoreFull(Arc<str>),
    /// What keeps the log has less than was acknowledged. This server has the state, and nobody may write.
    #[error("the log has lost acknowledged writes: {0}")]
    LogLost(Arc<str>),
    #[error("cannot change the servers: {0}")]
    Servers(Arc<str>),
    #[error("the store failed: {0}")]
    Disk(Arc<str>),
    #[error("disk full: cannot write to {}", dir.display())]
    DiskFull { dir: Arc<Path> },
}

impl Error {
    /// Whether the command may have been committed all the same. Then look before trying again.
    pub fn may_have_committed(&self) -> bool {
        match self {
            Self::Unsettled
            | Self::Stopped
            | Self::Panicked
            | Self::Disk(_)
            | Self::DiskFull { .. } => true,
            Self::NotLeader { .. }
            | Self::NoLeader
            | Self::QuorumLost
            | Self::Superseded
            | Self::Outgrown { .. }
            | Self::Early { .. }
            | Self::TooLarge { .. }
            | Self::NotTaken(_)
            | Self::StoreFull(_)
            | Self::LogLost(_)
            | Self::Servers(_) => false,
        }
    }
}

/// The replicated log of a cell.
pub trait Engine: fmt::Debug + Send + Sync + 'static {
    /// Returns once the command is committed and applied here.
    fn propose(&self, command: Command) -> EngineFuture<'_, Committed>;

    fn leadership(&self) -> watch::Receiver<Leadership>;

    /// Why this server cannot go on, if it cannot. Then it knows nobody who leads, whoever does.
    fn trouble(&self) -> Option<Error> {
        None
    }

    /// What keeps writes from being taken, for whoever looks after the cell: before one fails, and also where somebody
    /// leads, as on an etcd without space.
    fn impairment(&self) -> Option<Error> {
        self.trouble()
    }

    /// The state as applied here: read it, watch it, wait for it.
    fn machine(&self) -> &Arc<Machine>;

    fn members(&self) -> Vec<Member>;

    /// The entry of the log that made these the members. Of two words on the members, the one of the later entry counts.
    fn members_since(&self) -> u64;

    /// Whether this server is a member for as long as it runs, and knows the others at any time. One that may be let go
    /// without hearing of it is not, and listens to what its leader says of the members.
    fn is_member_for_good(&self) -> bool {
        false
    }

    /// Whether the members are being changed just now, so that what is said of them is not settled.
    fn is_changing(&self) -> bool {
        false
    }

    /// How far this server has come. One without a log knows no more than what it has applied.
    fn log_position(&self) -> LogPosition {
        let applied = *self.machine().applied().borrow();
        let leads = self.leadership().borrow().leader.is_some();
        let heard = leads.then_some(Duration::ZERO);
        let (committed, last) = (applied, applied);
        LogPosition { applied, committed, last, heard, ..LogPosition::default() }
    }

    fn leadership_info(&self) -> LeadershipInfo;

    /// How long it takes until somebody stands for election where nobody leads; zero where that is not up to the servers.
    fn election_timeout(&self) -> Duration {
        Duration::ZERO
    }

    /// Waits until all that was committed anywhere before this call is applied here. Only the leader can tell.
    fn catch_up(&self) -> EngineFuture<'_, u64>;

    /// Writes a snapshot and drops the log behind it. Returns the index it holds.
    fn snapshot(&self) -> EngineFuture<'_, u64>;

    /// Writes the state as applied now to one file.
    fn backup<'a>(&'a self, file: &'a Path) -> EngineFuture<'a, Summary>;

    /// Hands leadership on where it can, and ends. What is proposed from now on is refused.
    fn shutdown(&self) -> EngineFuture<'_, ()>;
}
