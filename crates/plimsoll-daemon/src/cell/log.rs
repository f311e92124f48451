//! What keeps this node's log, and the little that a daemon must do differently for each: everyone else holds an
//! [`Engine`] and does not know which.
//!
//! The embedded engine needs messages carried between servers, and somebody to say who they are. On an etcd there is
//! neither: who has access to it is a server, and signs its own certificate.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use plimsoll_model::access::Digest;
use plimsoll_store::{Embedded, Engine, Error, Incarnation};
use plimsoll_store_etcd::Etcd;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Late, membership};
use crate::context::NodeContext;
use plimsoll_peer::{RaftNetwork, raft_router};

/// How often a server on etcd sees whether it is still of the cell.
const EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub enum CellLog {
    Embedded { engine: Arc<Embedded>, network: Arc<Late> },
    Etcd { engine: Arc<Etcd>, lock: Arc<Lock> },
}

/// Kept for as long as this process uses its data directory.
pub struct Lock(Mutex<Option<Box<dyn Send + Sync>>>);

impl Lock {
    pub fn new(lock: Box<dyn Send + Sync>) -> Self {
        Self(Mutex::new(Some(lock)))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lock")
    }
}

impl CellLog {
    pub fn engine(&self) -> Arc<dyn Engine> {
        match self {
            Self::Embedded { engine, .. } => Arc::clone(engine) as _,
            Self::Etcd { engine, .. } => Arc::clone(engine) as _,
        }
    }

    /// From now on other servers can be reached.
    pub fn reach(&self, network: impl FnOnce() -> RaftNetwork) {
        match self {
            Self::Embedded { network: late, .. } => late.arrive(network()),
            Self::Etcd { .. } => {}
        }
    }

    /// Which life of the cell it is of. On an etcd a cell has but one: what is lost there is lost for all.
    pub fn incarnation(&self) -> Incarnation {
        match self {
            Self::Embedded { engine, .. } => engine.incarnation(),
            Self::Etcd { .. } => Incarnation::default(),
        }
    }

    /// Whether a node with a certificate of the cell is taken in without a token: it came by it through etcd, or with a
    /// token before. One that was removed is known by its key.
    pub fn takes_certificates(&self) -> bool {
        matches!(self, Self::Etcd { .. })
    }

    /// Where the messages of other servers come in.
    pub fn peer_routes(&self) -> Router {
        match self {
            // Whom the sender may speak for is settled by the engine, which knows the log.
            Self::Embedded { engine, .. } => {
                let engine = Arc::clone(engine);
                raft_router(move |sender, message: Bytes| {
                    let engine = Arc::clone(&engine);
                    async move { engine.answer(&sender, &message).await }
                })
            }
            Self::Etcd { .. } => Router::new(),
        }
    }

    /// The answer to a message of a server that is not of the cell any more; none where servers send none.
    pub fn turn_away(&self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Embedded { engine, .. } => Some(engine.turn_away(message)),
            Self::Etcd { .. } => None,
        }
    }

    /// Sees to it that the right servers hold the log and stand for election, until told to stop.
    pub async fn keep_seats(
        self,
        cell: NodeContext,
        key: Digest,
        mut shutdown: watch::Receiver<bool>,
    ) {
        match self {
            Self::Embedded { engine, .. } => membership::run(cell, engine, shutdown).await,
            Self::Etcd { engine, .. } => loop {
                let is_removed =
                    engine.machine().read(|state| state.access().revoked.contains_key(&key));
                engine.stand(!is_removed);
                tokio::select! {
                    () = sleep(EVERY) => {}
                    _ = shutdown.wait_for(|stop| *stop) => return,
                }
            },
        }
    }

    /// Returns once this server cannot write any more, with why.
    pub async fn broken(&self) -> Error {
        match self {
            Self::Embedded { engine, .. } => engine.broken().await,
            Self::Etcd { engine, .. } => engine.broken().await,
        }
    }

    /// Has another process use the data directory, though something of this one still holds the log. It is shut down.
    pub fn let_go(&self) {
        match self {
            // Its lock is its store's.
            Self::Embedded { .. } => {}
            Self::Etcd { lock, .. } => drop(lock.0.lock().expect("no holder panics").take()),
        }
    }

    /// Gives the leadership to another, where this server has it and another can.
    pub async fn hand_over(&self) {
        match self {
            Self::Embedded { engine, .. } => engine.hand_over().await,
            Self::Etcd { engine, .. } => engine.hand_over().await,
        }
    }
}
