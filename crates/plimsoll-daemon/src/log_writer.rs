//! The log of this node's cell, to write to and to read from: all that is given to who decides for a cell and is no part of its node.

use std::sync::Arc;
use std::time::Instant;

use plimsoll_model::{Author, Command, Event, Guarded, Rejection, Writer};
use plimsoll_store::Engine;
use thiserror::Error;

use crate::clock::now;
use crate::write_latency::WriteLatency;

/// Why a batch was not written.
#[derive(Debug, Clone, Error)]
pub enum WriteError {
    /// It was decided on something that has changed, or asks for what cannot be.
    #[error(transparent)]
    Refused(#[from] Rejection),
    #[error(transparent)]
    Store(#[from] plimsoll_store::Error),
}

/// Clones share the log, and how long writes to it took.
#[derive(Debug, Clone)]
pub struct LogWriter {
    pub engine: Arc<dyn Engine>,
    pub latency: Arc<WriteLatency>,
}

impl LogWriter {
    /// Commits a batch in the name of this writer. Returns the index it has in the log, and what it changed.
    pub async fn write(
        &self,
        writer: Writer,
        identity: &str,
        batch: Vec<Guarded>,
    ) -> Result<(u64, Arc<[Event]>), WriteError> {
        let term = self.engine.leadership().borrow().term;
        let by = Author::new(writer, identity);
        let begin = Instant::now();
        let committed = self.engine.propose(Command::new(now(), term, by, batch)).await?;
        self.latency.note(begin.elapsed());
        Ok((committed.index, committed.outcome?))
    }
}
