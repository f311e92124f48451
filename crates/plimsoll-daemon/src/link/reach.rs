//! Opens links over the peer port.

use std::io;

use bytes::Bytes;
use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use plimsoll_runtime::BoxFuture;
use plimsoll_store::Peer;
use tokio::sync::mpsc;

use super::{Connect, PIECES_AHEAD, Pipe, Unopened};
use crate::cell::reach::{LEADER, LINK};
use crate::cell::{ANSWER, target, upgrade};
use plimsoll_peer::PeerClient;

/// To any server of the cell.
#[derive(Debug)]
pub struct Reach(pub PeerClient);

impl Connect for Reach {
    fn open<'a>(&'a self, to: &'a Peer) -> BoxFuture<'a, Result<Pipe, Unopened>> {
        Box::pin(async move {
            let target = target(to).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            let opened =
                self.0.stream(&target, Method::POST, LINK, upgrade::announcement(), ANSWER);
            let mut exchange = opened.await.map_err(|error| {
                let own = self.0.credentials().cell_id();
                if error.is_other_authority(own) {
                    return Unopened::OtherAuthority;
                }
                Unopened::Io(io::Error::other(error))
            })?;
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
