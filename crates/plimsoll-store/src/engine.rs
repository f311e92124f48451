//! The one door to the replicated state. An [`Engine`] takes commands, makes them durable in an order that every
//! server agrees on, and applies them; who stands behind it, and how the servers agree, is its own affair.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use plimsoll_model::{Command, Event, Rejection, Term};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

use crate::backup::Summary;
use crate::machine::Machine;

/// What an engine's methods return, boxed so that a cell can hold any engine.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

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
    #[error("this server does not lead; {leader} does")]
    NotLeader { leader: ServerId },
    #[error("no server leads at the moment")]
    NoLeader,
    #[error("this server leads but cannot reach most of the others")]
    QuorumLost,
    #[error("leadership changed under way; whether the command was committed is not known")]
    Unsettled,
    #[error("the store is stopped")]
    Stopped,
    #[error("the command takes {size} bytes, at most {max} are allowed; split it")]
    TooLarge { size: usize, max: usize },
    /// Nothing was written, and the same may well work once the cause is gone.
    #[error("the store took nothing: {0}")]
    NotTaken(Arc<str>),
    #[error("the servers were not changed: {0}")]
    Servers(Arc<str>),
    #[error("the store cannot go on: {0}")]
    Disk(Arc<str>),
}

impl Error {
    /// Whether the command may have been committed all the same. Then look before trying again.
    pub fn may_have_committed(&self) -> bool {
        match self {
            Self::Unsettled | Self::Stopped | Self::Disk(_) => true,
            Self::NotLeader { .. }
            | Self::NoLeader
            | Self::QuorumLost
            | Self::TooLarge { .. }
            | Self::NotTaken(_)
            | Self::Servers(_) => false,
        }
    }
}

/// The replicated log of a cell.
pub trait Engine: fmt::Debug + Send + Sync + 'static {
    /// Returns once the command is committed and applied here.
    fn propose(&self, command: Command) -> Answer<'_, Committed>;

    fn leadership(&self) -> watch::Receiver<Leadership>;

    /// The state as applied here: read it, watch it, wait for it.
    fn machine(&self) -> &Arc<Machine>;

    fn members(&self) -> Vec<Member>;

    /// Waits until all that was committed anywhere before this call is applied here. Only the leader can tell.
    fn catch_up(&self) -> Answer<'_, u64>;

    /// Writes a snapshot and drops the log behind it. Returns the index it holds.
    fn snapshot(&self) -> Answer<'_, u64>;

    /// Writes the state as applied now to one file.
    fn backup<'a>(&'a self, file: &'a Path) -> Answer<'a, Summary>;

    /// Hands leadership on where it can, and ends. What is proposed from now on is refused.
    fn shutdown(&self) -> Answer<'_, ()>;
}
