//! The log's way to other servers: each message is a `POST`, its answer the body that comes back.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use hyper::{Method, Uri};
use plimsoll_model::NodeId;
use plimsoll_store::embedded::network::{Network, Sent};
use plimsoll_store::{Peer, ServerId};

use super::body::{Outgoing, read_whole};
use super::client::{self, PeerClient, uri};
use super::extract::KnownCaller;
use super::{Target, error::Error};
use crate::pki::Caller;

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

/// The receiving side: hands each message to `answer`, with the node that sent it. Only nodes of the cell are heard;
/// which of them are servers is for `answer` to know.
pub fn raft_router<A, F>(answer: A) -> Router
where
    A: Fn(Caller, Bytes) -> F + Send + Sync + 'static,
    F: Future<Output = Vec<u8>> + Send + 'static,
{
    let answer = Arc::new(answer);
    let handle = move |KnownCaller(caller): KnownCaller, request: Request| async move {
        match read_whole(request.into_body(), MAX_MESSAGE).await {
            Ok(message) => Response::new(Body::from(answer(caller, message).await)),
            Err(status) => status.into_response(),
        }
    };
    Router::new().route(PATH, post(handle))
}
