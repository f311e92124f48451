//! The log's way to other servers: each message is a `POST`, its answer the body that comes back.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use hyper::{Method, StatusCode, Uri};
use plimsoll_model::NodeId;
use plimsoll_store::embedded::Sender;
use plimsoll_store::embedded::network::{Network, Sent};
use plimsoll_store::{Peer, ServerId};

use super::body::{Outgoing, read_whole};
use super::client::{self, PeerClient, uri};
use super::extract::{Key, KnownCaller};
use super::{Target, error::Error};
use crate::pki::Credentials;

pub const PATH: &str = "/peer/raft";

/// The most that one message may have: many times a piece of a snapshot, or a batch of commands.
pub const MAX_MESSAGE: usize = 64 << 20;

/// Carries the log's messages to the servers of this cell.
#[derive(Debug, Clone)]
pub struct RaftNetwork {
    client: PeerClient,
}

impl RaftNetwork {
    pub fn new(client: PeerClient) -> Self {
        Self { client }
    }

    /// What this server shows to the others, and what it judges them by.
    pub fn credentials(&self) -> &Credentials {
        self.client.credentials()
    }

    async fn carry(&self, peer: &Peer, message: Vec<u8>, within: Duration) -> Result<Bytes, Error> {
        static URI: OnceLock<Uri> = OnceLock::new();
        let uri = URI.get_or_init(|| uri(PATH).expect("this is a path")).clone();
        let node = NodeId::new(&peer.name).map_err(|_| Error::Path { path: peer.name.clone() })?;
        let link = self.client.link(&Target { node, address: peer.address.clone() });
        let request = client::request(Method::POST, uri, Outgoing::whole(message.into()));
        client::call(&link, request, within).await?.good()
    }
}

impl Network for RaftNetwork {
    fn send<'a>(
        &'a self,
        _: ServerId,
        peer: &'a Peer,
        request: Vec<u8>,
        within: Duration,
    ) -> Sent<'a> {
        Box::pin(async move { Ok(self.carry(peer, request, within).await?.into()) })
    }
}

/// The receiving side: hands each message to `answer`, with the name and the key of the node that sent it. Only nodes with a
/// certificate of the cell are heard; which of them are servers is for `answer` to know.
pub fn raft_router<A, F>(answer: A) -> Router
where
    A: Fn(Sender, Bytes) -> F + Send + Sync + 'static,
    F: Future<Output = Vec<u8>> + Send + 'static,
{
    let answer = Arc::new(answer);
    let handle = move |KnownCaller(caller): KnownCaller, request: Request| async move {
        let Some(Key(key)) = Key::of(&request) else {
            return StatusCode::UNAUTHORIZED.into_response();
        };
        let sender = Sender::Node { node: caller.node, key };
        match read_whole(request.into_body(), MAX_MESSAGE).await {
            Ok(message) => Response::new(Body::from(answer(sender, message).await)),
            Err(status) => status.into_response(),
        }
    };
    Router::new().route(PATH, post(handle))
}
