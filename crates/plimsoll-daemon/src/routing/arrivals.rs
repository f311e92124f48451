//! The other end of a tunnel: connects to a container of this node and carries what another node sends it.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use plimsoll_router::{InboundTunnel, InboundTunnelError, Protocol, UpstreamKey};
use plimsoll_runtime::chain;
use tokio::time::{Instant, timeout_at};

use super::{Routing, tunnel};
use plimsoll_peer::answer_stream;

/// How long this node may know of a container later than the one that asks for it.
const LATER: Duration = Duration::from_secs(1);

impl Routing {
    /// Opens the stream that a node of the cell asks for, once the container has accepted.
    pub async fn receive(&self, request: Request) -> Response {
        let Some((key, protocol)) = tunnel::read(request.headers()) else {
            return (StatusCode::BAD_REQUEST, "this names no replica's port").into_response();
        };
        let arrival = match self.arrive(&key, protocol).await {
            Ok(arrival) => arrival,
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot serve a request of another node");
                return (StatusCode::BAD_GATEWAY, chain(&error)).into_response();
            }
        };
        let (mut stream, body) = answer_stream(request.into_body());
        tokio::spawn(async move {
            // A stream that is dropped without its end is reset.
            arrival.carry(&mut stream).await;
        });
        Response::new(Body::new(body))
    }

    /// Connects, and waits a moment for a container that this node has yet to learn of: the node that asks may have read
    /// further in the log.
    async fn arrive(
        &self,
        key: &UpstreamKey,
        protocol: Protocol,
    ) -> Result<InboundTunnel, InboundTunnelError> {
        let (mut fed, deadline) = (self.fed.subscribe(), Instant::now() + LATER);
        loop {
            let arrival = self.router.accept_tunnel(key, protocol).await;
            let is_unknown = matches!(arrival, Err(InboundTunnelError::Unknown(_)));
            if is_unknown && self.cell.endpoints.latest().is_none() {
                self.others.send_if_modified(|others| others.insert(key.clone()));
            }
            if !is_unknown || !matches!(timeout_at(deadline, fed.changed()).await, Ok(Ok(()))) {
                return arrival;
            }
        }
    }
}
