//! The connection pool of an upstream: HTTP/1.1 connections carry one request at a time and are kept for the next; one HTTP/2
//! connection carries all gRPC calls.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::request_body::OutgoingBody;
use super::streams::MeteredStream;
use crate::clock::{self, Moment};
use crate::connect::{ConnectTimeout, dial};
use crate::core::RouterCore;
use crate::limits::RouterLimits;
use crate::table::Protocol;
use crate::upstream::Upstream;

pub(super) type Http1Sender = http1::SendRequest<OutgoingBody>;
pub(super) type Http2Sender = http2::SendRequest<OutgoingBody>;

/// How many new connections to one upstream may be without their first response. A request beyond that waits for one of
/// them, or for a connection that becomes idle. Servers commonly have a backlog of 128; beyond it SYNs are dropped, and
/// retransmitted by the kernel only after a second.
const OPENING: usize = 64;

/// How many streams that were reset here an HTTP/2 connection remembers, for the frames that are still on their way.
const RESET_STREAMS: usize = 50;

/// The open connections of an upstream.
pub(crate) struct UpstreamConnections {
    /// Last in, first out, so that those that are not needed time out.
    idle: Mutex<Vec<(Http1Sender, Moment)>>,
    /// Notified when a connection becomes idle.
    freed: Notify,
    /// Permits to open a connection.
    opening: Arc<Semaphore>,
    shared: Mutex<Option<Http2Sender>>,
    /// Held by the request that opens the shared connection, while others wait for it.
    opening_shared: tokio::sync::Mutex<()>,
}

impl Default for UpstreamConnections {
    fn default() -> Self {
        Self {
            idle: Mutex::default(),
            freed: Notify::new(),
            opening: Arc::new(Semaphore::new(OPENING)),
            shared: Mutex::default(),
            opening_shared: tokio::sync::Mutex::default(),
        }
    }
}

impl UpstreamConnections {
    /// Closes idle connections. The shared connection ends with the last request on it.
    pub(crate) fn clear(&self) {
        self.idle.lock().expect("no holder panics").clear();
        self.shared.lock().expect("no holder panics").take();
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn sweep(&self, limits: &RouterLimits, now: Moment) {
        let mut idle = self.idle.lock().expect("no holder panics");
        idle.retain(|(link, since)| !link.is_closed() && now.since(*since) < limits.kept_for);
    }

    /// An idle connection, if there is one.
    fn take(&self, limits: &RouterLimits) -> Option<Http1Sender> {
        let mut idle = self.idle.lock().expect("no holder panics");
        while let Some((link, since)) = idle.pop() {
            if link.is_closed() {
                continue;
            }
            if clock::now().since(since) >= limits.kept_for {
                // Those below it have been idle for even longer.
                idle.clear();
                return None;
            }
            return Some(link);
        }
        None
    }

    fn shared(&self) -> Option<Http2Sender> {
        let shared = self.shared.lock().expect("no holder panics");
        shared.as_ref().filter(|link| !link.is_closed()).cloned()
    }
}

impl fmt::Debug for UpstreamConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = self.idle.lock().expect("no holder panics").len();
        f.debug_struct("UpstreamConnections").field("idle", &idle).finish_non_exhaustive()
    }
}

/// Keeps a connection for the next request, while the upstream is ready.
pub(super) fn keep(limits: &RouterLimits, upstream: &Upstream, link: Http1Sender) {
    if !upstream.is_kept() || link.is_closed() {
        return;
    }
    let mut idle = upstream.connections.idle.lock().expect("no holder panics");
    if idle.len() < limits.kept {
        idle.push((link, clock::now()));
    }
    drop(idle);
    upstream.connections.freed.notify_one();
    if !upstream.is_kept() {
        // It stopped being ready in between, and the others were cleared before this one was added.
        upstream.connections.clear();
    }
}

/// An HTTP/1.1 connection, and if it is new, the permit it holds until it is known to be accepted.
pub(super) async fn http1(
    core: &RouterCore,
    upstream: &Arc<Upstream>,
    wait: ConnectTimeout,
) -> io::Result<(Http1Sender, Option<OwnedSemaphorePermit>)> {
    let connections = &upstream.connections;
    loop {
        if let Some(link) = kept(core, connections).await {
            return Ok((link, None));
        }
        tokio::select! {
            biased;
            room = Arc::clone(&connections.opening).acquire_owned() => {
                let room = room.expect("the semaphore is never closed");
                return match kept(core, connections).await {
                    Some(link) => Ok((link, None)),
                    None => Ok((open(core, upstream, wait).await?, Some(room))),
                };
            }
            () = connections.freed.notified() => {}
        }
    }
}

/// A kept connection that is ready. One may still be finishing its last request, or have been closed just now.
async fn kept(core: &RouterCore, connections: &UpstreamConnections) -> Option<Http1Sender> {
    while let Some(mut link) = connections.take(&core.limits) {
        if matches!(timeout(core.limits.connect, link.ready()).await, Ok(Ok(()))) {
            return Some(link);
        }
    }
    None
}

async fn open(
    core: &RouterCore,
    upstream: &Arc<Upstream>,
    wait: ConnectTimeout,
) -> io::Result<Http1Sender> {
    let link = dial(core, upstream, upstream.key().port, Protocol::Tcp, wait).await?;
    let io = TokioIo::new(MeteredStream::new(link, Arc::clone(upstream)));
    let mut builder = http1::Builder::new();
    let bytes = core.limits.header_bytes;
    builder.max_buf_size(bytes).max_header_size(bytes);
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    run(upstream, connection.with_upgrades());
    Ok(sender)
}

/// The HTTP/2 connection, opened if there is none; says whether it was open already.
pub(super) async fn http2(
    core: &RouterCore,
    upstream: &Arc<Upstream>,
    wait: ConnectTimeout,
) -> io::Result<(Http2Sender, bool)> {
    let connections = &upstream.connections;
    if let Some(link) = connections.shared() {
        return Ok((link, true));
    }
    let _one = connections.opening_shared.lock().await;
    if let Some(link) = connections.shared() {
        return Ok((link, true));
    }
    if upstream.is_ejected(clock::now()) {
        // The request before this one failed to open it just now; trying one after the other would add up.
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let link = dial(core, upstream, upstream.key().port, Protocol::Tcp, wait).await?;
    let io = TokioIo::new(MeteredStream::new(link, Arc::clone(upstream)));
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_header_list_size(u32::try_from(core.limits.header_bytes).unwrap_or(u32::MAX));
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    run(upstream, connection);
    if upstream.is_kept() {
        *connections.shared.lock().expect("no holder panics") = Some(sender.clone());
    }
    Ok((sender, false))
}

/// Drives a connection until it ends, or is cut off.
fn run(
    upstream: &Arc<Upstream>,
    connection: impl Future<Output = hyper::Result<()>> + Send + 'static,
) {
    let upstream = Arc::clone(upstream);
    tokio::spawn(async move {
        let ended = tokio::select! {
            biased;
            ended = connection => ended,
            () = upstream.cut() => return,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, ?upstream, "a connection to an upstream failed");
        }
    });
}
