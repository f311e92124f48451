//! Gives the cell as many servers and votes as its size calls for, while this node leads: one step at a time, each
//! chosen by `plimsoll_kernel::voters` and carried out by the engine.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_kernel::voters::{self, MembershipStep, VoterCandidate};
use plimsoll_model::{Availability, NodeId};
use plimsoll_store::{Embedded, Engine, Member, Peer, ServerId};
use tokio::sync::watch;
use tokio::time::sleep;

use super::upgrade;
use crate::context::NodeContext;

/// How often the leader looks.
const EVERY: Duration = Duration::from_millis(500);

/// How many entries a server may lack and still count as one that has the log: what is on its way at any moment.
const CAUGHT_UP: u64 = 1_000;

/// Runs until told to stop.
pub async fn run(cell: NodeContext, engine: Arc<Embedded>, mut shutdown: watch::Receiver<bool>) {
    loop {
        // Who was let go must not ask for votes it would never get, nor lead what it cannot read.
        engine.stand(cell.holds_log() && engine.machine().outgrown().is_none());
        let is_leader = engine.leadership().borrow().is_me;
        if is_leader {
            let members = engine.members();
            readdress(&cell, &engine, &members).await;
            upgrade::raise(&cell, &*engine, &members).await;
            if let Some(step) = next(&cell, &engine, &members) {
                take(&cell, &engine, step).await;
            }
            if should_yield(&cell, &members) {
                tracing::info!("this node is drained: leadership transferred");
                engine.hand_over().await;
            }
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

/// Whether this node is drained and another server that votes is not.
fn should_yield(cell: &NodeContext, members: &[Member]) -> bool {
    cell.engine.machine().read(|state| {
        let availability = |name: &str| state.nodes().get(name).map(|node| node.availability);
        let is_other = |member: &&Member| member.votes && member.peer.name != cell.node.as_str();
        let mut others = members.iter().filter(is_other);
        availability(cell.node.as_str()) == Some(Availability::Draining)
            && others.any(|it| availability(&it.peer.name) != Some(Availability::Draining))
    })
}

fn next(cell: &NodeContext, engine: &Embedded, members: &[Member]) -> Option<MembershipStep> {
    let lags = engine.lags();
    let server = |member: &Member| VoterCandidate {
        id: member.id.0,
        votes: member.votes,
        is_caught_up: lags.get(&member.id).is_some_and(|lag| *lag <= CAUGHT_UP),
    };
    let servers: Vec<VoterCandidate> = members.iter().map(server).collect();
    cell.engine.machine().read(|state| voters::next(state, &servers, engine.id().0))
}

async fn take(cell: &NodeContext, engine: &Embedded, step: MembershipStep) {
    let taken = match &step {
        MembershipStep::Add { id, node } => match peer(cell, node) {
            Some(peer) => engine.add_server(ServerId(*id), peer, false).await,
            None => return,
        },
        MembershipStep::SetVoters(voters) => {
            engine.set_voters(voters.iter().map(|id| ServerId(*id)).collect()).await
        }
        MembershipStep::Remove { id } => engine.remove_server(ServerId(*id)).await,
    };
    match taken {
        Ok(()) => tracing::info!(?step, "the servers of the cell changed"),
        // It is tried again in a moment, and by then perhaps by another.
        Err(error) => tracing::debug!(?step, %error, "cannot change the servers of the cell"),
    }
}

/// Notes the addresses of servers that are found elsewhere than they were, as after a move or a restore.
async fn readdress(cell: &NodeContext, engine: &Embedded, members: &[Member]) {
    for member in members {
        let node = cell.engine.machine().read(|state| {
            let mut nodes = state.nodes().iter();
            nodes.find(|(_, node)| node.server == Some(member.id.0)).map(|(id, _)| id.clone())
        });
        let Some(peer) = node.and_then(|node| peer(cell, &node)) else { continue };
        if peer == member.peer {
            continue;
        }
        let address = peer.address.clone();
        match engine.set_peer(member.id, peer).await {
            Ok(()) => {
                tracing::info!(server = member.id.0, address, "the address of a server changed")
            }
            Err(error) => tracing::debug!(%error, "cannot write the new address of a server"),
        }
    }
}

/// A node without an address cannot be a server.
fn peer(cell: &NodeContext, node: &NodeId) -> Option<Peer> {
    cell.engine.machine().read(|state| {
        let address = state.node(node)?.facts.address.clone()?;
        Some(Peer { name: node.to_string(), address })
    })
}
