//! Ties this node's agent to whoever leads: orders come down, what the node sees goes up, and a heartbeat with it.
//!
//! Where this node leads, both ends are here and the log is at hand; else they talk over a [`Pipe`] that a [`Connect`]
//! opens. The agent knows neither. Without a leader it goes on with the orders it has, and what it sees is kept until
//! somebody wants it. Orders of a term older than the newest taken are refused, also after a restart: see [`fence`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::access::Digest;
use plimsoll_model::{NodeFacts, Term};
use plimsoll_runtime::BoxFuture;
use plimsoll_store::{Leadership, Peer};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::context::NodeContext;
use crate::dispatcher::{AssignmentSender, Dispatch};
use crate::problem;
use crate::servers::has_address;
use plimsoll_api::view::Problem;

mod agent_side;
pub mod fence;
pub mod frame;
mod leader_side;
mod outbox;
pub mod reach;

#[cfg(test)]
mod tests;

pub use fence::Fence;
pub use frame::{Cleared, Declared, Report, Seen, Served};
pub use leader_side::{LinkServer, Refused};
use outbox::Outbox;

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
    fn open<'a>(&'a self, to: &'a Peer) -> BoxFuture<'a, Result<Pipe, Unopened>>;
}

/// Why there is no link.
#[derive(Debug, Error)]
pub enum Unopened {
    #[error("it does not lead")]
    NotLeader { leader: Option<Peer> },
    #[error("it says that this node is not of the cell")]
    Removed,
    #[error("it is of another authority of the cell")]
    OtherAuthority,
    #[error("{}", .0.message)]
    Outdated(Box<Problem>),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// For a cell of one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Connect for Nobody {
    fn open<'a>(&'a self, _: &'a Peer) -> BoxFuture<'a, Result<Pipe, Unopened>> {
        Box::pin(async { Err(io::Error::from(io::ErrorKind::NotConnected).into()) })
    }
}

/// The agent's side of the link.
#[derive(Debug)]
pub struct Ends {
    pub orders: AssignmentSender,
    pub reports: mpsc::UnboundedReceiver<Report>,
    /// What the node offers.
    pub facts: NodeFacts,
    /// The key it is known by, where it was not taken in with a token.
    pub key: Option<Digest>,
}

/// Who leads, as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum KnownLeader {
    Nobody,
    Me(Term),
    Other(Peer),
}

/// Keeps the link until told to stop or the agent is gone.
pub async fn run(
    cell: NodeContext,
    dispatch: Arc<Dispatch>,
    connect: Arc<dyn Connect>,
    mut fence: Fence,
    ends: Ends,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut leadership = cell.engine.leadership();
    let Ends { orders, reports, facts, key } = ends;
    let mut outbox = Outbox::new(reports);
    let (mut hint, mut was_removed) = (None, false);
    loop {
        // On a line of its own: what is borrowed here must be given back before the engine is asked.
        let now = *leadership.borrow_and_update();
        let known = leader(&cell, now);
        let linked = async {
            if let KnownLeader::Me(term) = &known {
                let welcome = leader_side::welcome(&cell, &cell.node, &facts, key).await;
                match welcome {
                    Ok(()) => {
                        let (fence, outbox) = (&mut fence, &mut outbox);
                        leader_side::local(&cell, &dispatch, *term, fence, &orders, outbox).await;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "this node leads but has not joined the cell yet")
                    }
                }
            } else {
                let is_hinted = hint.is_some();
                if let Some(peer) = whom(&cell, &known, hint.take()) {
                    let linked = async {
                        let pipe = connect.open(&peer).await?;
                        cell.levels.lock().outdated = None;
                        cell.servers.attach(Some(peer.clone()));
                        let (fence, outbox) = (&mut fence, &mut outbox);
                        Ok(agent_side::attend(&cell, &facts, pipe, fence, &orders, outbox).await?)
                    };
                    match linked.await {
                        Ok(()) => {}
                        Err(Unopened::NotLeader { leader: Some(leader) }) if leader != peer => {
                            hint = Some(leader);
                            // Worth a try at once, but not for ever: two may each take the other for the leader.
                            if !is_hinted {
                                return;
                            }
                        }
                        Err(error) => {
                            was_removed |= say(&peer, &error, was_removed);
                            match &error {
                                Unopened::Outdated(problem) => turned_away(&cell, problem),
                                Unopened::OtherAuthority => {
                                    turned_away(&cell, &problem::left_behind(&cell.node));
                                }
                                _ => {}
                            }
                            hint = cell.any_server();
                        }
                    }
                }
            }
            sleep(RETRY).await;
        };
        tokio::select! {
            () = linked => {}
            () = changed(&cell, &mut leadership, &known) => {}
            () = orders.closed() => return,
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        cell.servers.attach(None);
        outbox.resend();
    }
}

/// The leader does not let this node in: it is too old, or comes too late. What it runs, it goes on running; it is said once.
fn turned_away(cell: &NodeContext, problem: &Problem) {
    let before = cell.levels.lock().outdated.replace(problem.clone());
    if before.as_ref() != Some(problem) {
        let next = problem.hint.as_deref().unwrap_or_default();
        tracing::error!("{}: {next}; replicas keep running", problem.message);
    }
}

/// Says why there is no link; that this node was removed, loudly and once. Returns whether it was that.
fn say(peer: &Peer, error: &Unopened, was_said: bool) -> bool {
    tracing::debug!(leader = peer.name, %error, "no link to the leader");
    let is_removed = matches!(error, Unopened::Removed);
    if is_removed && !was_said {
        tracing::error!(
            leader = peer.name,
            "this node was removed from the cell, or another has its name; to join again, empty its data directory and \
             bring a new token"
        );
    }
    is_removed
}

/// Whom to ask for orders. A hint goes before this node's log, which may be the older or hold nothing at all.
fn whom(cell: &NodeContext, known: &KnownLeader, hint: Option<Peer>) -> Option<Peer> {
    hint.or_else(|| match known {
        KnownLeader::Other(peer) => Some(peer.clone()),
        KnownLeader::Me(_) | KnownLeader::Nobody => cell.any_server(),
    })
}

/// Returns when another leads. A heartbeat's worth of metrics that change nothing is not a change.
async fn changed(
    cell: &NodeContext,
    leadership: &mut watch::Receiver<Leadership>,
    before: &KnownLeader,
) {
    while leadership.changed().await.is_ok() {
        let now = *leadership.borrow_and_update();
        if leader(cell, now) != *before {
            return;
        }
    }
    // This node's log has ended, on a full disk perhaps. What it runs is asked for elsewhere all the same.
    std::future::pending().await
}

fn leader(cell: &NodeContext, leadership: Leadership) -> KnownLeader {
    if leadership.is_me {
        return KnownLeader::Me(leadership.term);
    }
    let members = cell.engine.members();
    let leader = members.into_iter().find(|member| Some(member.id) == leadership.leader);
    match leader {
        Some(member) if member.peer.name != cell.node.as_str() && has_address(&member.peer) => {
            KnownLeader::Other(member.peer)
        }
        _ => KnownLeader::Nobody,
    }
}
