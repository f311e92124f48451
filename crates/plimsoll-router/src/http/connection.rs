//! One client's connection: finds out its HTTP version and serves its requests until it is closed.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

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

/// A connected client.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) core: Arc<RouterCore>,
    pub(crate) slot: Arc<ConnectionSlot>,
    pub(crate) listener: HttpListenerKind,
    pub(crate) from: SocketAddr,
    /// The same as a header value: made once, because every request needs it.
    pub(crate) address: HeaderValue,
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
        Self { core, slot, listener, from, address }
    }

    /// Returns once the request in flight, or the request head being sent, has timed out.
    pub(crate) async fn times_out(&self) {
        self.slot.activity.times_out(&self.core.limits).await;
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
            () = self.slot.activity.keep_alive_ends(&self.core.limits) => {}
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
        activity.greeted();
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
        until_done(connection, http2::Connection::graceful_shutdown, leaving).await
    } else {
        let connection = http1_builder(client).serve_connection(io, service).with_upgrades();
        until_done(connection, http1::UpgradeableConnection::graceful_shutdown, leaving).await
    };
    if let Err(error) = served {
        tracing::debug!(%error, from = %client.from, "a connection to a client failed");
    }
}

async fn until_done<C: Future<Output = hyper::Result<()>>>(
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
            connection.await
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
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .auto_date_header(false);
    builder
}
