//! Whether enough servers answer for the cell to have a leader. While nobody leads, this node asks the voters; what it finds
//! tells the short time of an election from a cell that has lost too many servers. While somebody leads it asks nobody.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::Method;
use plimsoll_store::Member;
use tokio::sync::watch;
use tokio::time::sleep;

use super::target;
use crate::context::NodeContext;
use crate::quorum::Quorum;
use plimsoll_api::view::Problem;
use plimsoll_peer::PeerClient;

/// How long a server may take to say that it lives.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the servers are asked.
const EVERY: Duration = Duration::from_millis(500);

/// What every node answers to, whoever leads.
const PATH: &str = "/healthz";

/// Asks while nobody leads, until told to stop. What is found stands in the context as long as it holds.
pub async fn run(cell: NodeContext, client: PeerClient, mut shutdown: watch::Receiver<bool>) {
    let mut leadership = cell.engine.leadership();
    let mut was_told = false;
    let watching = async {
        while leadership.wait_for(|now| now.leader.is_none()).await.is_ok() {
            note(&cell, Some(ask(&cell, &client).await));
            if cell.engine.log_position().is_superseded && !was_told {
                let Problem { message, hint, .. } = crate::problem::superseded();
                tracing::error!("{message}; {}", hint.unwrap_or_default());
                was_told = true;
            }
            tokio::select! {
                () = sleep(EVERY) => {}
                led = leadership.wait_for(|now| now.leader.is_some()) => {
                    note(&cell, None);
                    if led.is_err() {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = watching => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
}

pub(crate) fn note(cell: &NodeContext, found: Option<Quorum>) {
    let before = std::mem::replace(&mut *cell.quorum.lock(), found.clone());
    let was_lost = before.is_some_and(|quorum| quorum.is_lost());
    match found.filter(Quorum::is_lost) {
        Some(quorum) if !was_lost => {
            tracing::error!("the quorum is lost: {}; replicas keep running", quorum.sentence());
        }
        None if was_lost => tracing::info!("enough servers answer again"),
        _ => {}
    }
}

/// Asks every voter at once.
pub async fn ask(cell: &NodeContext, client: &PeerClient) -> Quorum {
    let members = cell.engine.members();
    let voters: Vec<&Member> = members.iter().filter(|member| member.votes).collect();
    let answers = voters.iter().map(|voter| answers(cell, client, voter));
    let answers = join_all(answers).await;
    let mut quorum = Quorum { voters: voters.len(), ..Quorum::default() };
    for (voter, answered) in voters.iter().zip(answers) {
        if answered {
            quorum.answering += 1;
        } else {
            quorum.silent.push(voter.peer.name.clone());
        }
    }
    quorum
}

async fn answers(cell: &NodeContext, client: &PeerClient, voter: &Member) -> bool {
    if voter.peer.name == cell.node.as_str() {
        return true;
    }
    let Some(to) = target(&voter.peer) else { return false };
    let asked = client.call(&to, Method::GET, PATH, Bytes::new(), PATIENCE).await;
    asked.is_ok_and(|answer| answer.status.is_success())
}
