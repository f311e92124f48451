//! A node's end, where another leads.
//!
//! Its heartbeat is a task of its own and waits for nothing but room on the wire: not for the agent, which finds the latest
//! of its orders whenever it looks, nor for the disk that the fence is on, nor for reports to be written.

use std::io;
use std::sync::Arc;

use plimsoll_model::{NodeFacts, Term};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::Pipe;
use super::fence::Fence;
use super::frame::{Down, Frames, Up, VERSION, encode};
use super::leader_side::next;
use super::outbox::Outbox;
use crate::context::{NodeContext, now};
use crate::dispatcher::AssignmentSender;

/// Stays with the leader until the link breaks, or it turns out to lead no longer.
pub(super) async fn attend(
    cell: &NodeContext,
    facts: &NodeFacts,
    pipe: Pipe,
    fence: &mut Fence,
    orders: &AssignmentSender,
    outbox: &mut Outbox,
) -> io::Result<()> {
    let Pipe { to, from } = pipe;
    let (node, seen, facts) = (cell.node.clone(), fence.seen(), Box::new(facts.clone()));
    let listeners = cell.ingress.lock().listeners();
    let hello = Up::Hello { version: VERSION, node, seen, facts, listeners };
    send(cell, &to, &hello).await?;
    // It ends with this: a set that is dropped ends what it holds.
    let mut heartbeat = JoinSet::new();
    heartbeat.spawn(beats(cell.clone(), to.clone()));
    let (written, acknowledged) = watch::channel(0);
    tokio::select! {
        heard = hear(cell, from, fence, orders, &written) => heard,
        reported = report(cell, &to, outbox, acknowledged) => reported,
        Some(ended) = heartbeat.join_next() => ended.unwrap_or_else(|error| Err(error.into())),
    }
}

/// What the leader says, until it says no more.
async fn hear(
    cell: &NodeContext,
    mut from: mpsc::Receiver<Vec<u8>>,
    fence: &mut Fence,
    orders: &AssignmentSender,
    written: &watch::Sender<u64>,
) -> io::Result<()> {
    let mut frames = Frames::default();
    // It begins with who the servers are, at once. Later it may have nothing to say for a long time.
    let first = timeout(cell.patience(), next(&mut from, &mut frames)).await;
    let mut message = first.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    while let Some(word) = message {
        match word {
            Down::Orders { term, update } => {
                admit(fence, term).await?;
                orders.put(update);
            }
            Down::Servers { term, roll } => {
                admit(fence, term).await?;
                let servers = Arc::clone(&cell.servers);
                spawn_blocking(move || servers.tell(roll)).await?;
            }
            Down::Written { seq } => {
                written.send_replace(seq);
            }
            Down::Endpoints { term, update } => {
                admit(fence, term).await?;
                cell.endpoints.update(update);
            }
            Down::Authorities { term, authorities } => {
                admit(fence, term).await?;
                cell.authorities.offer(authorities);
            }
            Down::Certificates { term, certificates } => {
                admit(fence, term).await?;
                cell.certificates.set(certificates);
            }
        }
        message = next(&mut from, &mut frames).await?;
    }
    Ok(())
}

/// Tells what the node saw, a batch at a time.
async fn report(
    cell: &NodeContext,
    to: &mpsc::Sender<Vec<u8>>,
    outbox: &mut Outbox,
    mut acknowledged: watch::Receiver<u64>,
) -> io::Result<()> {
    loop {
        let (seq, reports) = outbox.next().await;
        send(cell, to, &Up::Reports { seq, reports }).await?;
        acknowledged.wait_for(|written| *written == seq).await.map_err(|_| gone())?;
        outbox.written(seq);
    }
}

/// Says that the node is alive, and how busy it is, until the leader takes nothing any more.
async fn beats(cell: NodeContext, to: mpsc::Sender<Vec<u8>>) -> io::Result<()> {
    loop {
        send(&cell, &to, &beat(&cell)).await?;
        sleep(cell.heartbeat()).await;
    }
}

async fn admit(fence: &mut Fence, term: Term) -> io::Result<()> {
    if fence.admit(term).await? {
        return Ok(());
    }
    tracing::warn!(term = term.0, seen = fence.seen().0, "refusing orders of a deposed leader");
    Err(io::Error::other("the leader is of an older term"))
}

fn beat(cell: &NodeContext) -> Up {
    let measured = cell.measurements.lock();
    let node = measured.nodes.get(&cell.node).cloned().unwrap_or_default();
    let replicas = measured.replicas.iter().map(|(key, it)| (key.clone(), it.clone())).collect();
    let measured = node.measured_at.map(|at| now().since(at));
    Up::Beat { node: Box::new(node), measured, replicas }
}

/// A leader that takes nothing for so long has left.
async fn send(cell: &NodeContext, to: &mpsc::Sender<Vec<u8>>, message: &Up) -> io::Result<()> {
    match timeout(cell.patience(), to.send(encode(message))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(gone()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn gone() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}
