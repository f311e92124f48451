//! Who leads and where, for whoever has something to pass on.

use std::io;

use bytes::Bytes;
use hyper::{HeaderMap, Method};
use plimsoll_runtime::BoxFuture;
use plimsoll_store::Peer;
use tokio::sync::mpsc;

use super::{ANSWER, target};
use crate::cell::Cell;
use crate::link::{Connect, PIECES_AHEAD, Pipe};
use crate::peer::{Client, Target};

/// Where an agent brings its link.
pub const LINK: &str = "/peer/link";

/// The leader, if it is known and another node.
pub fn leader(cell: &Cell) -> Option<Target> {
    let leadership = *cell.engine.leadership().borrow();
    if leadership.is_me {
        return None;
    }
    let members = cell.engine.members();
    let leader = members.into_iter().find(|member| Some(member.id) == leadership.leader)?;
    (leader.peer.name != cell.node.as_str()).then(|| target(&leader.peer)).flatten()
}

/// Opens links over the peer port.
#[derive(Debug)]
pub struct Reach(pub Client);

impl Connect for Reach {
    fn open<'a>(&'a self, to: &'a Peer) -> BoxFuture<'a, io::Result<Pipe>> {
        Box::pin(async move {
            let target = target(to).ok_or(io::ErrorKind::InvalidInput)?;
            let opened = self.0.stream(&target, Method::POST, LINK, HeaderMap::new(), ANSWER);
            let mut exchange = opened.await.map_err(io::Error::other)?;
            if !exchange.status.is_success() {
                return Err(io::Error::other(format!("it answered {}", exchange.status)));
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
