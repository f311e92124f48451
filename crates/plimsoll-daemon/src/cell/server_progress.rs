//! How far each server has come, by its own word.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::Method;
use plimsoll_store::{Member, ServerId};

use super::target;
use crate::context::NodeContext;
use plimsoll_api::view::Health;
use plimsoll_peer::PeerClient;

/// How long a server may take to say it: somebody waits for all of them.
const PATIENCE: Duration = Duration::from_millis(500);

/// What every node answers to, whoever leads.
const PATH: &str = "/healthz";

/// Asks every server but this one at once. Those that do not answer are not among them.
pub async fn ask(cell: &NodeContext, client: &PeerClient) -> BTreeMap<ServerId, Health> {
    let members = cell.engine.members();
    let others = members.iter().filter(|member| member.peer.name != cell.node.as_str());
    let asked = others.map(|member| one(client, member));
    join_all(asked).await.into_iter().flatten().collect()
}

async fn one(client: &PeerClient, member: &Member) -> Option<(ServerId, Health)> {
    let to = target(&member.peer)?;
    let answer = client.call(&to, Method::GET, PATH, Bytes::new(), PATIENCE).await.ok()?;
    Some((member.id, serde_json::from_slice(&answer.body).ok()?))
}
