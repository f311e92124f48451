//! Ties this node's agent to whoever leads: orders come down, what the node sees goes up, and a heartbeat with it.
//!
//! Where this node leads, both ends are here and the log is at hand; else they talk over a [`Pipe`] that a [`Connect`]
//! opens. The agent knows neither. Without a leader it goes on with the orders it has, and what it sees is kept until
//! somebody wants it. Orders of a term older than the newest taken are refused, also after a restart: see [`fence`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::{NodeFacts, Term};
use plimsoll_runtime::BoxFuture;
use plimsoll_store::{Leadership, Peer};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::cell::Cell;
use crate::orders::{Dispatch, Telling};

pub mod fence;
pub mod frame;
mod guest;
mod host;
mod outbox;

#[cfg(test)]
mod tests;

pub use fence::Fence;
pub use frame::{Cleared, Report, Seen};
pub use host::{Host, Refused};
use outbox::Outbox;

/// How often a node says that it lives: a third of the time after which it is taken for lost.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// How long to wait before a leader that could not be reached is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// Pieces that may be on their way at once in either direction.
pub const PIECES_AHEAD: usize = 16;

/// Two ends of a conversation. Dropping it ends it.
#[derive(Debug)]
pub struct Pipe {
    pub to: mpsc::Sender<Vec<u8>>,
    pub from: mpsc::Receiver<Vec<u8>>,
}

/// How another node is reached.
pub trait Connect: std::fmt::Debug + Send + Sync {
    fn open<'a>(&'a self, to: &'a Peer) -> BoxFuture<'a, io::Result<Pipe>>;
}

/// For a cell of one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Connect for Nobody {
    fn open<'a>(&'a self, _: &'a Peer) -> BoxFuture<'a, io::Result<Pipe>> {
        Box::pin(async { Err(io::ErrorKind::NotConnected.into()) })
    }
}

/// The agent's side of the link.
#[derive(Debug)]
pub struct Ends {
    pub orders: mpsc::Sender<Telling>,
    pub reports: mpsc::UnboundedReceiver<Report>,
    /// What the node offers.
    pub facts: NodeFacts,
}

/// Who leads, as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leader {
    Nobody,
    Me(Term),
    Other(Term, Peer),
}

/// Keeps the link until told to stop or the agent is gone.
pub async fn run(
    cell: Cell,
    dispatch: Arc<Dispatch>,
    connect: Arc<dyn Connect>,
    mut fence: Fence,
    ends: Ends,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut leadership = cell.engine.leadership();
    let mut outbox = Outbox::new(ends.reports);
    let (orders, facts) = (ends.orders, ends.facts);
    loop {
        let leader = leader(&cell, *leadership.borrow_and_update());
        let linked = async {
            match &leader {
                // Who leads may be known before who that is: the servers change without a change of leader.
                Leader::Nobody => {}
                Leader::Me(term) => {
                    host::welcome(&cell, &cell.node, &facts).await;
                    host::at_home(&cell, &dispatch, *term, &mut fence, &orders, &mut outbox).await;
                }
                Leader::Other(_, peer) => {
                    let ended = async {
                        let pipe = connect.open(peer).await?;
                        guest::attend(&cell, &facts, pipe, &mut fence, &orders, &mut outbox).await
                    };
                    if let Err(error) = ended.await {
                        tracing::debug!(leader = peer.name, %error, "the link to the leader ended");
                    }
                }
            }
            sleep(RETRY).await;
        };
        tokio::select! {
            () = linked => {}
            changed = changed(&cell, &mut leadership, &leader) => if changed.is_err() { return },
            () = orders.closed() => return,
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        outbox.resend();
    }
}

/// Returns when another leads. A heartbeat's worth of metrics that change nothing is not a change.
async fn changed(
    cell: &Cell,
    leadership: &mut watch::Receiver<Leadership>,
    before: &Leader,
) -> Result<(), watch::error::RecvError> {
    loop {
        leadership.changed().await?;
        if leader(cell, *leadership.borrow_and_update()) != *before {
            return Ok(());
        }
    }
}

fn leader(cell: &Cell, leadership: Leadership) -> Leader {
    if leadership.is_me {
        return Leader::Me(leadership.term);
    }
    let members = cell.engine.members();
    let leader = members.into_iter().find(|member| Some(member.id) == leadership.leader);
    match leader {
        Some(member) if member.peer.name != cell.node.as_str() => {
            Leader::Other(leadership.term, member.peer)
        }
        _ => Leader::Nobody,
    }
}
