//! Serves one connection, within limits that depend on who it is: a node of the cell has room to work, somebody
//! without a certificate has just enough to ask to join.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use plimsoll_model::Timestamp;
use plimsoll_router::RouterStage;
use tokio::sync::watch;
use tokio::time::sleep;
use tower::Service;

use super::extract::{Key, KnownShard, Remote};
use super::log_throttle::{ConnectionFailure, LogThrottle};
use super::purpose::{Purpose, Windows};
use super::server::Limits;
use super::tls::AcceptedConnection;
use crate::pki::{Credentials, ShownCertificate};

/// How many requests a node may give up before we have looked at them. A burst of them is what a process finds that was
/// stopped for a while, and no attack; the usual limit of twenty is for strangers.
const GIVEN_UP: usize = 1_024;

/// Fewer and larger frames for large bodies.
const FRAME: u32 = 64 << 10;

/// What somebody without a certificate may: all of it together fits into the first window of HTTP/2.
const GUEST_STREAMS: u32 = 4;
const GUEST_WINDOW: u32 = (64 << 10) - 1;
const GUEST_FRAME: u32 = 16 << 10;

/// A name, a token and a few lines about them.
const MAX_HEADERS: u32 = 16 << 10;

/// How much of an answer waits in memory for somebody who does not read it.
const SEND_BUFFER: usize = 256 << 10;

/// How long requests under way may take to end once the connection does.
const GRACE: Duration = Duration::from_secs(5);

/// What is the same for all connections of a server.
#[derive(Debug, Clone)]
pub(super) struct ConnectionContext {
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) quiet: Arc<LogThrottle>,
    pub(super) ending: watch::Receiver<bool>,
    pub(super) credentials: Credentials,
}

/// What a connection ends with.
#[derive(Debug)]
pub(super) enum Until {
    Ended(watch::Receiver<bool>),
    /// The stage of what it carries.
    Led(watch::Receiver<RouterStage>),
}

impl Until {
    async fn is_over(&self) {
        match self {
            Self::Ended(ending) => ended(ending.clone()).await,
            Self::Led(stage) => {
                let _ = stage.clone().wait_for(|stage| *stage != RouterStage::Open).await;
            }
        }
    }

    /// Returns once what is still under way must end.
    async fn has_no_more_time(&self) {
        if let Self::Led(stage) = self {
            // Whoever leaves without haste says when that is over.
            let _ = stage.clone().wait_for(|stage| *stage != RouterStage::HandingOver).await;
        }
        sleep(GRACE).await;
    }
}

impl ConnectionContext {
    /// Serves until either side has had enough, the certificate has run out or its authority is not trusted any more, or the
    /// daemon ends.
    pub(super) async fn serve(self, accepted: AcceptedConnection, until: Until) {
        let Self { router, limits, quiet, credentials, .. } = self;
        let AcceptedConnection { stream, remote, shown } = accepted;
        let carries = Purpose::announced(stream.get_ref().1.alpn_protocol());
        let stay =
            shown.as_ref().map_or(limits.unauthenticated_patience, |shown| left(shown.until));
        let windows = shown.is_some().then(|| carries.windows());
        let vouched = shown.as_ref().map(|shown| shown.authority);
        let distrusted = async {
            match vouched {
                Some(authority) => credentials.distrusted(authority).await,
                None => std::future::pending().await,
            }
        };
        let mut drain = None;
        let builder = builder(windows, &limits);
        let service =
            service_fn(move |request| answer(router.clone(), request, shown.clone(), remote));
        let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
        let served = tokio::select! {
            served = connection.as_mut() => Some(served),
            () = until.is_over() => None,
            () = sleep(stay) => None,
            () = distrusted => {
                drain = Some(carries.drain());
                None
            }
        };
        let served = if let Some(served) = served {
            served
        } else {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection => served,
                () = has_no_more_time(&until, drain) => Ok(()),
            }
        };
        if let Err(error) = served
            && !is_farewell(&error)
        {
            quiet.note(ConnectionFailure::Protocol, Some(remote), &chain(&error));
        }
    }
}

/// What a node carries for clients was let in when it was begun, and may end in its own time.
async fn has_no_more_time(until: &Until, drain: Option<Duration>) {
    let Some(drain) = drain else { return until.has_no_more_time().await };
    let daemon_ends = async {
        until.is_over().await;
        until.has_no_more_time().await;
    };
    tokio::select! {
        () = sleep(drain) => {}
        () = daemon_ends => {}
    }
}

/// Hands a request to the router, with who sent it.
fn answer(
    mut router: Router,
    request: Request<Incoming>,
    shown: Option<ShownCertificate>,
    remote: SocketAddr,
) -> <Router as Service<Request<Body>>>::Future {
    let mut request = request.map(Body::new);
    // To everything but what shards are for, a shard is a stranger.
    let (shard, node) = match shown {
        Some(shown) if shown.caller.is_shard() => (Some(shown), None),
        shown => (None, shown),
    };
    let shard =
        shard.map(|shown| KnownShard { name: shown.caller.node.to_string(), key: shown.key });
    request.extensions_mut().insert(shard);
    request.extensions_mut().insert(node.as_ref().map(|shown| Key(shown.key)));
    request.extensions_mut().insert(node.map(|shown| shown.caller));
    request.extensions_mut().insert(Remote(remote));
    router.call(request)
}

/// Without windows of its own, somebody gets those of a guest.
fn builder(windows: Option<Windows>, limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADERS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(limits.ping_after)
        .keep_alive_timeout(limits.pong_within)
        .auto_date_header(false);
    if let Some(windows) = windows {
        builder
            .max_concurrent_streams(windows.streams)
            .max_pending_accept_reset_streams(GIVEN_UP)
            .initial_stream_window_size(windows.stream)
            .initial_connection_window_size(windows.connection)
            .max_frame_size(FRAME);
    } else {
        builder
            .max_concurrent_streams(GUEST_STREAMS)
            .initial_stream_window_size(GUEST_WINDOW)
            .initial_connection_window_size(GUEST_WINDOW)
            .max_frame_size(GUEST_FRAME);
    }
    builder
}

/// How long a certificate is still good for.
fn left(until: Timestamp) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(until.0).saturating_sub(now)
}

/// Returns once the daemon ends. A sender that is gone is an end as well.
pub(super) async fn ended(mut ending: watch::Receiver<bool>) {
    let _ = ending.wait_for(|has_ended| *has_ended).await;
}

/// Whether somebody merely went away, or stopped answering: that is their affair, and the other end's to report.
fn is_farewell(error: &hyper::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.is::<std::io::Error>() {
            return true;
        }
        source = error.source();
    }
    error.is_closed() || error.is_canceled() || error.is_timeout()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
