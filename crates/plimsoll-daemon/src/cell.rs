//! What every part of a daemon holds: the replicated state, the runtime, and who this node is.

use std::sync::Arc;

use plimsoll_model::{Author, Command, Event, Guarded, NodeId, Rejection, Writer};
use plimsoll_runtime::Runtime;
use plimsoll_store::{Engine, Peer};
use thiserror::Error;

pub use crate::clock::now;
use crate::cluster::servers::Servers;
use crate::soft::Soft;

#[derive(Debug, Clone)]
pub struct Cell {
    pub engine: Arc<dyn Engine>,
    pub runtime: Arc<dyn Runtime>,
    pub node: NodeId,
    pub soft: Arc<Soft>,
    pub servers: Arc<Servers>,
}

/// Why a batch was not written.
#[derive(Debug, Clone, Error)]
pub enum WriteError {
    /// It was decided on something that has changed, or asks for what cannot be.
    #[error(transparent)]
    Refused(#[from] Rejection),
    #[error(transparent)]
    Store(#[from] plimsoll_store::Error),
}

impl Cell {
    /// Whether this node holds the log. One that does not asks those who do.
    pub fn holds_log(&self) -> bool {
        self.servers.hold(self.node.as_str(), &*self.engine)
    }

    /// One of the servers, another each time, for who knows no leader.
    pub fn any_server(&self) -> Option<Peer> {
        self.servers.any(self.node.as_str(), &*self.engine)
    }

    /// Commits a batch in the name of this writer. Returns the index it has in the log, and what it changed.
    pub async fn write(
        &self,
        writer: Writer,
        identity: &str,
        batch: Vec<Guarded>,
    ) -> Result<(u64, Arc<[Event]>), WriteError> {
        let term = self.engine.leadership().borrow().term;
        let by = Author::new(writer, identity);
        let committed = self.engine.propose(Command::new(now(), term, by, batch)).await?;
        Ok((committed.index, committed.outcome?))
    }
}
