//! Proxies a request to an upstream, and retries it on another where that is safe: any request that was not sent yet, and
//! one that is idempotent (RFC 9110, 9.2.2) while none of its body was sent.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::TrySendError;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::error_page::ErrorPage;
use super::request_body::{OutgoingBody, RequestBody};
use super::upstream_connections::{self, Http1Sender, Http2Sender};
use super::{ClientConnection, head};
use crate::clock;
use crate::connect::{ConnectAttempts, ConnectFailure, choose_and_probe, current};
use crate::limits::HELD_ANSWER;
use crate::table::{Pool, RouteEntry};
use crate::upstream::{InFlight, Upstream};

/// After this a new connection counts as accepted, whether or not its first response has come.
const ACCEPTED: Duration = Duration::from_millis(25);

/// The largest response body that is buffered before the client gets the head.
const BUFFERED: u64 = 16 << 10;

/// How often it is looked whether the connection that a response is waited for on is still there. Who sends a request on a
/// connection that ends at this very moment may never be told: the request stays in a queue that nobody empties.
const STILL_THERE: Duration = Duration::from_secs(1);

/// How often within its grace the rate of a body is looked at.
const LOOKS: u32 = 4;

/// An upstream's response, and what is needed until it has ended.
pub(super) struct ProxiedResponse {
    pub(super) response: Response<Incoming>,
    /// What was read of its body already.
    pub(super) first: Bytes,
    pub(super) in_flight: InFlight,
    /// The connection it came on, if that carries one request at a time.
    pub(super) link: Option<Http1Sender>,
    pub(super) source: Option<Arc<RequestBody>>,
    /// The client's side of an upgrade, and the protocol it asks for.
    pub(super) near: Option<(OnUpgrade, HeaderValue)>,
}

/// A request that is being proxied.
pub(super) struct ProxiedRequest<'a> {
    client: &'a ClientConnection,
    route: &'a RouteEntry,
    pool: Arc<Pool>,
    parts: Parts,
    source: Option<Arc<RequestBody>>,
    near: Option<(OnUpgrade, HeaderValue)>,
    is_grpc: bool,
    is_idempotent: bool,
    tries: ConnectAttempts,
    /// How often it was sent.
    sent: usize,
}

/// The connection a request is sent on.
enum UpstreamConnection {
    Http1 { link: Http1Sender, is_fresh: bool, room: Option<OwnedSemaphorePermit> },
    Http2 { link: Http2Sender, is_fresh: bool },
}

impl UpstreamConnection {
    fn is_fresh(&self) -> bool {
        match self {
            Self::Http1 { is_fresh, .. } | Self::Http2 { is_fresh, .. } => *is_fresh,
        }
    }
}

/// Why there is no response.
enum SendFailure {
    /// It was not sent: here is what is needed to send it again.
    Unsent(Box<Parts>),
    /// The connection was closed after it may have been sent.
    ConnectionLost,
    Timeout,
    /// The client sends its body too slowly.
    SlowBody,
}

impl<'a> ProxiedRequest<'a> {
    pub(super) fn new(
        client: &'a ClientConnection,
        route: &'a RouteEntry,
        mut request: Request<Incoming>,
    ) -> Self {
        let near = head::wanted_upgrade(request.version(), request.headers())
            .map(|protocol| (hyper::upgrade::on(&mut request), protocol));
        let (mut parts, body) = request.into_parts();
        let is_grpc = head::is_grpc(&parts);
        head::forward(&mut parts, client, &route.spec, is_grpc);
        if let Some((_, protocol)) = &near {
            head::ask_upgrade(&mut parts.headers, protocol.clone());
        }
        Self {
            client,
            route,
            pool: Arc::clone(&route.pool),
            source: RequestBody::of(body, &client.slot),
            is_idempotent: parts.method.is_idempotent(),
            parts,
            near,
            is_grpc,
            tries: ConnectAttempts::default(),
            sent: 0,
        }
    }

    /// Sends it until an upstream responds.
    pub(super) async fn run(mut self) -> Result<ProxiedResponse, ErrorPage> {
        loop {
            let chosen = choose_and_probe(&self.client.core, &self.pool, &self.tries);
            let in_flight =
                chosen.map_err(|connect_failure| self.connect_failure(connect_failure))?;
            let upstream = in_flight.upstream();
            let mut connection = match self.connection(upstream).await {
                Ok(connection) => connection,
                Err(error) => {
                    self.count_retry();
                    self.tries.failed(upstream, &error, &self.pool);
                    continue;
                }
            };
            let answered = match self.send(&mut connection).await {
                Ok(mut response) => {
                    self.buffer_small_body(&mut response).await.map(|first| (response, first))
                }
                Err(lost) => Err(lost),
            };
            match answered {
                Ok((response, first)) => {
                    return Ok(self.proxied(response, first, in_flight, connection));
                }
                Err(lost) => self.recover(lost, &connection, upstream)?,
            }
        }
    }

    /// All of a small response body, where the request is idempotent, so that a response that breaks off can be retried. Of a
    /// slow one, what has come so far.
    async fn buffer_small_body(
        &self,
        response: &mut Response<Incoming>,
    ) -> Result<Bytes, SendFailure> {
        let length = response.body().size_hint().exact().unwrap_or(0);
        let is_plain = self.is_idempotent && self.source.is_none() && self.near.is_none();
        if !is_plain || !(1..=BUFFERED).contains(&length) {
            return Ok(Bytes::new());
        }
        let mut first = BytesMut::new();
        let body = response.body_mut();
        let reading = async {
            while (first.len() as u64) < length {
                let frame = body.frame().await.ok_or(SendFailure::ConnectionLost)?;
                let Ok(data) = frame.map_err(|_| SendFailure::ConnectionLost)?.into_data() else {
                    break;
                };
                first.extend_from_slice(&data);
            }
            Ok(())
        };
        timeout(HELD_ANSWER, reading).await.unwrap_or(Ok(()))?;
        Ok(first.freeze())
    }

    fn proxied(
        self,
        response: Response<Incoming>,
        first: Bytes,
        in_flight: InFlight,
        connection: UpstreamConnection,
    ) -> ProxiedResponse {
        let link = match connection {
            UpstreamConnection::Http1 { link, .. } => Some(link),
            UpstreamConnection::Http2 { .. } => None,
        };
        ProxiedResponse { response, first, in_flight, link, source: self.source, near: self.near }
    }

    /// A connection to this upstream, kept or new.
    async fn connection(&self, upstream: &Arc<Upstream>) -> io::Result<UpstreamConnection> {
        let core = &self.client.core;
        let wait = self.tries.timeout(core, upstream, &self.pool);
        if self.is_grpc {
            let (link, was_there) = upstream_connections::http2(core, upstream, wait).await?;
            return Ok(UpstreamConnection::Http2 { link, is_fresh: !was_there });
        }
        let (link, room) = upstream_connections::http1(core, upstream, wait).await?;
        Ok(UpstreamConnection::Http1 { link, is_fresh: room.is_some(), room })
    }

    async fn send(
        &mut self,
        connection: &mut UpstreamConnection,
    ) -> Result<Response<Incoming>, SendFailure> {
        self.sent += 1;
        let parts = if self.is_idempotent {
            self.parts.clone()
        } else {
            std::mem::replace(&mut self.parts, Request::new(()).into_parts().0)
        };
        let request = Request::from_parts(parts, OutgoingBody::of(self.source.as_ref()));
        let answered = match connection {
            UpstreamConnection::Http1 { link, room, .. } => {
                let sending = link.try_send_request(request);
                self.in_time(sending, room.take(), || link.is_closed()).await
            }
            UpstreamConnection::Http2 { link, .. } => {
                let sending = link.try_send_request(request);
                self.in_time(sending, None, || link.is_closed()).await
            }
        };
        answered?.map_err(lost)
    }

    /// What comes before the response timeout, which begins when the upstream has the whole request, so that a long body does
    /// not count. A body has a least rate instead, except that of a call: those are as slow as what they tell of.
    async fn in_time<T>(
        &self,
        sending: impl Future<Output = T>,
        room: Option<OwnedSemaphorePermit>,
        has_ended: impl Fn() -> bool,
    ) -> Result<T, SendFailure> {
        let limits = &self.client.core.limits;
        let mut sending = pin!(sending);
        if let Some(room) = room {
            if let Ok(answered) = timeout(ACCEPTED, sending.as_mut()).await {
                return Ok(answered);
            }
            drop(room);
        }
        let mut wait = limits.response_head;
        while !wait.is_zero() {
            let unsent = self.source.as_ref().filter(|source| !self.is_grpc && !source.is_done());
            let step = if unsent.is_some() { wait.min(limits.body_grace / LOOKS) } else { wait };
            let step = step.min(STILL_THERE);
            if let Ok(answered) = timeout(step, sending.as_mut()).await {
                return Ok(answered);
            }
            if has_ended() {
                // It may have been answered as it ended.
                let answered = timeout(ACCEPTED, sending).await;
                return answered.map_err(|_| SendFailure::ConnectionLost);
            }
            let now = clock::now();
            if unsent.is_some_and(|source| source.is_too_slow(limits, now)) {
                return Err(SendFailure::SlowBody);
            }
            let moved = self.source.as_ref().map(|source| now.since(source.moved()));
            let left = |moved| limits.response_head.saturating_sub(moved);
            wait = moved.map_or(wait.saturating_sub(step), left);
        }
        Err(SendFailure::Timeout)
    }

    /// Prepares a retry, or says why there is none.
    fn recover(
        &mut self,
        lost: SendFailure,
        connection: &UpstreamConnection,
        upstream: &Arc<Upstream>,
    ) -> Result<(), ErrorPage> {
        let service = self.route.spec.pool.service.to_string();
        let is_untouched = self.source.as_ref().is_none_or(|source| source.is_untouched());
        match lost {
            SendFailure::Timeout => {
                let seconds = self.client.core.limits.response_head.as_secs();
                return Err(ErrorPage::Timeout { service, seconds });
            }
            SendFailure::SlowBody => return Err(ErrorPage::SlowBody),
            SendFailure::Unsent(parts) if is_untouched => self.parts = *parts,
            SendFailure::ConnectionLost if self.is_idempotent && is_untouched => {}
            SendFailure::Unsent(_) | SendFailure::ConnectionLost => {
                return Err(ErrorPage::ConnectionLost { service });
            }
        }
        if self.sent >= self.client.core.limits.tries {
            return Err(ErrorPage::ConnectionLost { service });
        }
        self.count_retry();
        if connection.is_fresh() {
            self.tries.failed(upstream, &io::ErrorKind::ConnectionAborted.into(), &self.pool);
        } else {
            // It was closed while idle, and so may the others have been; the upstream itself may be healthy.
            upstream.connections.clear();
        }
        Ok(())
    }

    /// Counts a retry and takes the current pool: the upstream that failed may have left it.
    fn count_retry(&mut self) {
        self.route.meter.retries.add(1);
        self.pool = current(&self.client.core, &self.pool);
    }

    fn connect_failure(&self, connect_failure: ConnectFailure) -> ErrorPage {
        let service = self.route.spec.pool.service.to_string();
        match connect_failure {
            ConnectFailure::NoReplica => ErrorPage::NoReplica { service },
            ConnectFailure::AllFailed { .. } if self.sent > 0 => {
                ErrorPage::ConnectionLost { service }
            }
            ConnectFailure::AllFailed { tried } => ErrorPage::Unreachable { service, tried },
        }
    }
}

fn lost(mut error: TrySendError<Request<OutgoingBody>>) -> SendFailure {
    if let Some(request) = error.take_message() {
        return SendFailure::Unsent(Box::new(request.into_parts().0));
    }
    tracing::debug!(error = %error.into_error(), "an upstream closed the connection without a response");
    SendFailure::ConnectionLost
}
