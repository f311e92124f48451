//! Who leads and where, for whoever has something to pass on.

use std::io;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use plimsoll_runtime::BoxFuture;
use plimsoll_store::Peer;
use tokio::sync::mpsc;

use super::{ANSWER, target, upgrade};
use crate::cell::Cell;
use crate::link::{Connect, PIECES_AHEAD, Pipe, Unopened};
use crate::peer::{Client, Target};

/// Where an agent brings its link.
pub const LINK: &str = "/peer/link";

/// Who leads instead. Not in the body: the one who asks is still sending its own, and may not get to read another.
pub const LEADER: HeaderName = HeaderName::from_static("plimsoll-leader-at");

/// Where a node without the log asks for another certificate.
pub const RENEW: &str = "/peer/renew";

/// The leader, if it is known and another node.
pub fn leader(cell: &Cell) -> Option<Target> {
    let leadership = *cell.engine.leadership().borrow();
    if leadership.is_me {
        return None;
    }
    let by_log = || {
        let members = cell.engine.members();
        Some(members.into_iter().find(|member| Some(member.id) == leadership.leader)?.peer)
    };
    let by_link = || cell.servers.leader();
    // The one that is kept up to date goes first.
    let peer =
        if cell.holds_log() { by_log().or_else(by_link)? } else { by_link().or_else(by_log)? };
    (peer.name != cell.node.as_str()).then(|| target(&peer)).flatten()
}

/// Opens links over the peer port.
#[derive(Debug)]
pub struct Reach(pub Client);

impl Connect for Reach {
    fn open<'a>(&'a self, to: &'a Peer) -> BoxFuture<'a, Result<Pipe, Unopened>> {
        Box::pin(async move {
            let target = target(to).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            let opened =
                self.0.stream(&target, Method::POST, LINK, upgrade::announcement(), ANSWER);
            let mut exchange = opened.await.map_err(io::Error::other)?;
            if exchange.status == StatusCode::MISDIRECTED_REQUEST {
                let named = exchange.headers.get(LEADER).map(HeaderValue::as_bytes);
                let leader = named.and_then(|named| serde_json::from_slice(named).ok());
                return Err(Unopened::NotLeader { leader });
            }
            if exchange.status == StatusCode::UPGRADE_REQUIRED {
                return Err(Unopened::Outdated(Box::new(upgrade::reason(&exchange.headers))));
            }
            if exchange.status == StatusCode::FORBIDDEN {
                return Err(Unopened::Removed);
            }
            if !exchange.status.is_success() {
                let answered = format!("it answered {}", exchange.status);
                return Err(io::Error::other(answered).into());
            }
            let (to, mut outgoing) = mpsc::channel::<Vec<u8>>(PIECES_AHEAD);
            let (incoming, from) = mpsc::channel::<Vec<u8>>(PIECES_AHEAD);
            let sender = exchange.sender;
            tokio::spawn(async move {
                while let Some(piece) = outgoing.recv().await {
                    if !sender.send(Bytes::from(piece)).await {
                        return;
                    }
                }
            });
            tokio::spawn(async move {
                while let Ok(Some(piece)) = exchange.receiver.next().await {
                    if incoming.send(piece.into()).await.is_err() {
                        return;
                    }
                }
            });
            Ok(Pipe { to, from })
        })
    }
}
