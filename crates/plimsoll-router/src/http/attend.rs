//! One client's connection: which version it speaks, and its requests until it is done.

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

use super::wire::Watched;
use super::{Door, client_address, forward};
use crate::Stage;
use crate::clock;
use crate::core::Core;
use crate::seat::{Activity, Seat};
use crate::tunnel::Stream;

/// What a client that speaks HTTP/2 without being asked begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How often a client of HTTP/2 that is silent is asked whether it is there.
const PING: Duration = Duration::from_secs(20);

/// How much a client of HTTP/2 may send ahead of what is passed on: on one stream, and on all.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// How much of an answer waits for a slow client of HTTP/2, on one stream.
const SEND_BUFFER: usize = 64 << 10;

/// Who is connected.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) core: Arc<Core>,
    pub(crate) seat: Arc<Seat>,
    pub(crate) door: Door,
    pub(crate) from: SocketAddr,
    /// The same, as upstreams are told: made once, because every request needs it.
    pub(crate) address: HeaderValue,
}

impl Guest {
    pub(crate) fn new(core: Arc<Core>, seat: Arc<Seat>, door: Door, from: SocketAddr) -> Self {
        let address = Bytes::from(client_address(from));
        let address = HeaderValue::from_maybe_shared(address).expect("an address is plain text");
        Self { core, seat, door, from, address }
    }

    /// Returns once the client has taken too long over what it is doing.
    pub(crate) async fn dawdles(&self) {
        self.seat.activity.dawdles(&self.core.limits).await;
    }

    /// Returns once the client is to leave, with the request under way if there is one.
    ///
    /// A client of HTTP/2 can be told to go at any time and loses nothing. One of HTTP/1 may be sending its next request
    /// while its idle connection is closed: as long as there is time it leaves with its next answer, which says so.
    async fn is_to_leave(&self, mut stage: watch::Receiver<Stage>, is_http2: bool) {
        let is_due = |stage: &Stage| match stage {
            Stage::Open => false,
            Stage::Leaving => is_http2,
            Stage::Closing => true,
        };
        tokio::select! {
            _ = stage.wait_for(is_due) => {}
            () = self.seat.is_wanted_back() => {}
            () = self.seat.activity.is_done(&self.core.limits) => {}
        }
    }
}

/// A client without TLS, who says by the first bytes which version it speaks.
pub(super) async fn plain(
    guest: &Arc<Guest>,
    mut client: impl Stream + 'static,
    stage: watch::Receiver<Stage>,
) {
    let greeted = tokio::select! {
        greeted = greeting(&mut client, &guest.seat.activity) => greeted,
        () = guest.is_to_leave(stage.clone(), false) => return,
    };
    let Ok((early, is_http2)) = greeted else { return };
    let io = Watched::new(client, Arc::clone(&guest.seat), early, is_http2);
    // Boxed, so that a client that has said nothing does not take the room of one that has.
    Box::pin(serve(guest, io, is_http2, stage)).await;
}

/// Reads until it is clear whether this is HTTP/2. A client that says nothing costs no more than these bytes.
async fn greeting(
    client: &mut (impl AsyncRead + Unpin),
    activity: &Activity,
) -> io::Result<(Bytes, bool)> {
    let mut space = [0; PREFACE.len()];
    let mut length = 0;
    while length < PREFACE.len() && space[..length] == PREFACE[..length] {
        match client.read(&mut space[length..]).await? {
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

/// Serves requests until either side has had enough.
pub(super) async fn serve(
    guest: &Arc<Guest>,
    io: Watched<impl Stream + 'static>,
    is_http2: bool,
    stage: watch::Receiver<Stage>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (guest, stage) = (Arc::clone(guest), stage.clone());
        async move {
            let mut response = forward::answer(guest, request).await;
            let is_last = !is_http2 && *stage.borrow() != Stage::Open;
            if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let io = TokioIo::new(io);
    let leaving = guest.is_to_leave(stage.clone(), is_http2);
    let served = if is_http2 {
        let connection = second(guest).serve_connection(io, service);
        until_done(connection, http2::Connection::graceful_shutdown, leaving).await
    } else {
        let connection = first(guest).serve_connection(io, service).with_upgrades();
        until_done(connection, http1::UpgradeableConnection::graceful_shutdown, leaving).await
    };
    if let Err(error) = served {
        // A client that went away under way is its own affair.
        tracing::debug!(%error, from = %guest.from, "a connection ended early");
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

fn first(guest: &Guest) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let bytes = guest.core.limits.header_bytes;
    // How long a head may take is watched at the seat, with one timer a connection instead of one a request.
    builder.header_read_timeout(None).max_buf_size(bytes).max_header_size(bytes);
    // Upstreams have dated their answers.
    builder.auto_date_header(false);
    builder
}

fn second(guest: &Guest) -> http2::Builder<TokioExecutor> {
    let limits = &guest.core.limits;
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
