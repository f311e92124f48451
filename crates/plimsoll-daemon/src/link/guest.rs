//! A node's end, where another leads.

use std::io;

use plimsoll_model::{NodeFacts, Term};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::fence::Fence;
use super::frame::{Down, Frames, Up, VERSION, encode};
use super::host::next;
use super::outbox::Outbox;
use super::{HEARTBEAT, Pipe};
use crate::cell::{Cell, now};
use crate::orders::Telling;

/// Stays with the leader until the link breaks, or it turns out to lead no longer.
pub(super) async fn attend(
    cell: &Cell,
    facts: &NodeFacts,
    pipe: Pipe,
    fence: &mut Fence,
    orders: &mpsc::Sender<Telling>,
    outbox: &mut Outbox,
) -> io::Result<()> {
    let Pipe { to, mut from } = pipe;
    let mut frames = Frames::default();
    let (node, seen, facts) = (cell.node.clone(), fence.seen(), Box::new(facts.clone()));
    let hello = Up::Hello { version: VERSION, node, seen, facts };
    send(&to, &hello).await?;
    let mut beat_at = Instant::now();
    loop {
        tokio::select! {
            message = next::<Down>(&mut from, &mut frames) => match message? {
                None => return Ok(()),
                Some(Down::Orders { term, telling }) => {
                    admit(fence, term)?;
                    orders.send(telling).await.map_err(|_| gone())?;
                }
                Some(Down::Servers { term, roll }) => {
                    admit(fence, term)?;
                    cell.servers.tell(roll);
                }
                Some(Down::Written { seq }) => outbox.written(seq),
                Some(Down::Chart { term, correction }) => {
                    admit(fence, term)?;
                    cell.soft.correct_chart(correction);
                }
            },
            (seq, reports) = outbox.next() => send(&to, &Up::Reports { seq, reports }).await?,
            () = sleep_until(beat_at) => {
                send(&to, &beat(cell)).await?;
                beat_at = Instant::now() + HEARTBEAT;
            }
        }
    }
}

fn admit(fence: &mut Fence, term: Term) -> io::Result<()> {
    if fence.admit(term)? {
        return Ok(());
    }
    tracing::warn!(term = term.0, seen = fence.seen().0, "orders of a deposed leader are refused");
    Err(io::Error::other("the leader is of an older term"))
}

fn beat(cell: &Cell) -> Up {
    let facts = cell.soft.facts();
    let fact = facts.nodes.get(&cell.node).cloned().unwrap_or_default();
    let replicas = facts.replicas.iter().map(|(key, fact)| (key.clone(), *fact)).collect();
    let measured = fact.measured_at.map(|at| now().since(at));
    Up::Beat { fact: Box::new(fact), measured, replicas }
}

/// A leader that takes nothing for as long as three heartbeats has left.
async fn send(to: &mpsc::Sender<Vec<u8>>, message: &Up) -> io::Result<()> {
    match timeout(HEARTBEAT * 3, to.send(encode(message))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(gone()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn gone() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}
