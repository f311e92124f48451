//! Waits until every node answers a challenge: an authority asks whichever node the name leads to, once, and takes a 404
//! for a no.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use plimsoll_model::{NodeId, NodeStatus};
use plimsoll_peer::{Response, Target};
use tokio::time::{Instant, sleep};

use super::Asking;
use crate::peer_api::CHALLENGE;

/// How long is waited in all. A node that does not answer by then is as good as down, and the others may do.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one node may take to say so.
const ANSWER: Duration = Duration::from_secs(2);

const AGAIN: Duration = Duration::from_millis(100);

pub(super) async fn known_everywhere(asking: &Asking, host: &str, token: &str) {
    let deadline = Instant::now() + PATIENCE;
    let mut waiting: BTreeSet<NodeId> = asking.cell.engine.machine().read(|state| {
        let ready = state.nodes().iter().filter(|(_, node)| node.status == NodeStatus::Ready);
        ready.map(|(id, _)| id.clone()).collect()
    });
    while !waiting.is_empty() && Instant::now() < deadline {
        for node in waiting.clone() {
            if knows(asking, &node, host, token).await {
                waiting.remove(&node);
            }
        }
        if !waiting.is_empty() {
            sleep(AGAIN).await;
        }
    }
    for node in waiting {
        tracing::warn!(%node, host, "this node does not answer for the host yet; the authority is told to ask all the same");
    }
}

async fn knows(asking: &Asking, node: &NodeId, host: &str, token: &str) -> bool {
    if *node == asking.cell.node {
        let ingress = asking.cell.ingress.lock();
        return ingress.answered_challenges.get(host).is_some_and(|known| known == token);
    }
    let address = asking
        .cell
        .engine
        .machine()
        .read(|state| state.node(node).and_then(|node| node.facts.address.clone()));
    let Some(address) = address else { return false };
    let target = Target { node: node.clone(), address };
    let body = Bytes::from(format!("{host} {token}"));
    let asked = asking.client.call(&target, Method::POST, CHALLENGE, body, ANSWER).await;
    asked.and_then(Response::good).is_ok()
}
