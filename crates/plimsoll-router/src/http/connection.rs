//! One client's connection: finds out its HTTP version and serves its requests until it is closed.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::streams::MonitoredStream;
use super::{HttpListenerKind, client_address, forward};
use crate::RouterStage;
use crate::activity::Activity;
use crate::clock;
use crate::connection_limit::ConnectionSlot;
use crate::core::RouterCore;
use crate::tunnel::ByteStream;

/// The preface of a client that speaks HTTP/2 without negotiation.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How often an idle HTTP/2 client is pinged.
const PING: Duration = Duration::from_secs(20);

/// How much an HTTP/2 client may send ahead of what was forwarded: on one stream, and on all.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// How much of a response is buffered for a slow HTTP/2 client, on one stream.
const SEND_BUFFER: usize = 64 << 10;

/// How long an HTTP/2 client may take to answer a ping.
const PONG: Duration = Duration::from_secs(20);

/// The largest frame of an HTTP/2 client, and its table of headers, in bytes: what every client has to do with.
const FRAME: u32 = 16 << 10;
const HEADER_TABLE: u32 = 4 << 10;

/// Streams that an HTTP/2 client may have reset before they were looked at, and those that it may have made fail by breaking
/// the protocol. One more ends its connection: those who send such frames in a row cost more than they are asked for.
const RESET_UNSEEN: usize = 20;
const FAILED_STREAMS: usize = 100;

/// How many requests a client made, and how many of them it reset before they were answered. Each may cost an upstream a
/// connection, and the client nothing.
#[derive(Debug, Default)]
pub(crate) struct ResetCount {
    requests: AtomicU32,
    resets: AtomicU32,
    is_beyond: Notify,
}

impl ResetCount {
    pub(crate) fn begin(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(crate) fn reset(&self, limit: u32) {
        let resets = self.resets.fetch_add(1, Relaxed).saturating_add(1);
        if resets > limit && resets > self.requests.load(Relaxed) / 2 {
            self.is_beyond.notify_one();
        }
    }
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) core: Arc<RouterCore>,
    pub(crate) slot: Arc<ConnectionSlot>,
    pub(crate) listener: HttpListenerKind,
    pub(crate) from: SocketAddr,
    /// The same as a header value: made once, because every request needs it.
    pub(crate) address: HeaderValue,
    /// Whether it is a proxy of ours, whose word on its own clients counts.
    pub(crate) is_trusted: bool,
    pub(crate) resets: ResetCount,
}

impl ClientConnection {
    pub(crate) fn new(
        core: Arc<RouterCore>,
        slot: Arc<ConnectionSlot>,
        listener: HttpListenerKind,
        from: SocketAddr,
    ) -> Self {
        let address = Bytes::from(client_address(from));
        let address = HeaderValue::from_maybe_shared(address).expect("an address is plain text");
        let is_trusted = core.limits.trusted_proxies.contains(from.ip());
        Self { core, slot, listener, from, address, is_trusted, resets: ResetCount::default() }
    }

    /// Returns once the request in flight, or the request head being sent, has timed out.
    pub(crate) async fn times_out(&self) {
        self.slot.activity.times_out(&self.core.limits).await;
    }

    /// Returns once it has reset too many requests.
    pub(crate) async fn resets_too_many(&self) {
        self.resets.is_beyond.notified().await;
    }

    /// Returns once the connection is to be closed, after the request in flight if there is one.
    ///
    /// An HTTP/2 client can be sent GOAWAY at any time and loses nothing. An HTTP/1 client may be sending its next request
    /// while its idle connection is closed: as long as there is time it is closed with its next response, which says so.
    async fn shuts_down(&self, mut stage: watch::Receiver<RouterStage>, is_http2: bool) {
        let is_due = |stage: &RouterStage| match stage {
            RouterStage::Open => false,
            RouterStage::HandingOver => is_http2,
            RouterStage::Closing => true,
        };
        tokio::select! {
            _ = stage.wait_for(is_due) => {}
            () = self.slot.evicted() => {}
            () = self.slot.activity.is_free_for(self.core.limits.keep_alive) => {}
        }
    }
}

/// A client without TLS, whose first bytes tell its HTTP version.
pub(super) async fn plain(
    client: &Arc<ClientConnection>,
    mut stream: impl ByteStream + 'static,
    stage: watch::Receiver<RouterStage>,
) {
    let greeted = tokio::select! {
        greeted = read_preface(&mut stream, &client.slot.activity) => greeted,
        () = client.shuts_down(stage.clone(), false) => return,
    };
    let Ok((early, is_http2)) = greeted else { return };
    let io = MonitoredStream::new(stream, Arc::clone(&client.slot), early, is_http2);
    // Boxed, so that a client that has sent nothing does not take the memory of one that has.
    Box::pin(serve(client, io, is_http2, stage)).await;
}

/// Reads until it is clear whether this is HTTP/2. A client that sends nothing costs no more than these bytes.
async fn read_preface(
    stream: &mut (impl AsyncRead + Unpin),
    activity: &Activity,
) -> io::Result<(Bytes, bool)> {
    let mut space = [0; PREFACE.len()];
    let mut length = 0;
    while length < PREFACE.len() && space[..length] == PREFACE[..length] {
        match stream.read(&mut space[length..]).await? {
            0 => break,
            count => length += count,
        }
        activity.received(clock::now());
    }
    let is_http2 = space == *PREFACE;
    if is_http2 {
        activity.speaks_frames();
    }
    Ok((Bytes::copy_from_slice(&space[..length]), is_http2))
}

/// Serves requests until either side closes the connection.
pub(super) async fn serve(
    client: &Arc<ClientConnection>,
    io: MonitoredStream<impl ByteStream + 'static>,
    is_http2: bool,
    stage: watch::Receiver<RouterStage>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (client, stage) = (Arc::clone(client), stage.clone());
        async move {
            let mut response = forward::answer(client, request).await;
            let is_last = !is_http2 && *stage.borrow() != RouterStage::Open;
            if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let io = TokioIo::new(io);
    let leaving = client.shuts_down(stage.clone(), is_http2);
    let served = if is_http2 {
        let connection = http2_builder(client).serve_connection(io, service);
        until_done(client, connection, http2::Connection::graceful_shutdown, leaving).await
    } else {
        let connection = http1_builder(client).serve_connection(io, service).with_upgrades();
        let shut_down = http1::UpgradeableConnection::graceful_shutdown;
        until_done(client, connection, shut_down, leaving).await
    };
    if let Err(error) = served {
        tracing::debug!(%error, from = %client.from, "a connection to a client failed");
    }
}

async fn until_done<C: Future<Output = hyper::Result<()>>>(
    client: &ClientConnection,
    connection: C,
    shut_down: fn(Pin<&mut C>),
    leaving: impl Future<Output = ()>,
) -> hyper::Result<()> {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        served = connection.as_mut() => served,
        () = leaving => {
            shut_down(connection.as_mut());
            let limit = client.core.limits.header_read;
            let is_left_open = async {
                sleep(limit).await;
                client.slot.activity.is_free_for(limit).await;
            };
            tokio::select! {
                served = connection => served,
                // The client has no request, and does not take the hint either.
                () = is_left_open => Ok(()),
            }
        }
    }
}

fn http1_builder(client: &ClientConnection) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let bytes = client.core.limits.header_bytes;
    // How long a request head may take is watched by `Activity`, with one timer per connection instead of one per request.
    builder.header_read_timeout(None).max_buf_size(bytes).max_header_size(bytes);
    // Upstreams have set the date of their responses.
    builder.auto_date_header(false);
    builder
}

fn http2_builder(client: &ClientConnection) -> http2::Builder<TokioExecutor> {
    let limits = &client.core.limits;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(RESET_UNSEEN)
        .max_local_error_reset_streams(FAILED_STREAMS)
        .max_frame_size(FRAME)
        .header_table_size(HEADER_TABLE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .auto_date_header(false);
    builder
}
