//! `Cell::new("blue").serve("ash")`: a server on a port of its own, and clients for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use hyper::Method;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::pki::testkit::node;
use crate::pki::{Caller, Credentials};
use crate::{
    DialOptions, Error, KnownCaller, Limits, PeerClient, PeerServer, Response, Target, read_whole,
};

pub(super) const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const MAX_BODY: usize = 4 << 20;

/// A server that runs until it is dropped.
pub(super) struct Served {
    pub(super) target: Target,
    pub(super) address: SocketAddr,
    pub(super) counts: Arc<Counts>,
    pub(super) end: watch::Sender<bool>,
    pub(super) running: JoinHandle<()>,
}

/// What its handlers have seen.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) waiting: AtomicUsize,
    pub(super) release: Notify,
}

struct Waiting(Arc<Counts>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Served {
    pub(super) fn new(credentials: &Credentials) -> Self {
        Self::with(credentials, Limits::default())
    }

    pub(super) fn with(credentials: &Credentials, limits: Limits) -> Self {
        let server = PeerServer::bind("127.0.0.1:0".parse().unwrap(), credentials, limits).unwrap();
        Self::run(server, credentials)
    }

    pub(super) fn run(server: PeerServer, credentials: &Credentials) -> Self {
        let address = server.local_addr().unwrap();
        let (end, ending) = watch::channel(false);
        let counts = Arc::<Counts>::default();
        let running = tokio::spawn(server.serve(router(&counts), ending));
        let target = Target { node: credentials.node().clone(), address: address.to_string() };
        Self { target, address, counts, end, running }
    }

    /// The same place, but somebody else is meant.
    pub(super) fn as_if(&self, name: &str) -> Target {
        Target { node: node(name), address: self.target.address.clone() }
    }

    pub(super) fn waiting(&self) -> usize {
        self.counts.waiting.load(Ordering::SeqCst)
    }

    pub(super) async fn until_waiting(&self, count: usize) {
        for _ in 0..1_000 {
            if self.waiting() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{} wait, {count} should", self.waiting());
    }
}

/// Says who asks, gives back what it is sent, keeps people waiting.
fn router(counts: &Arc<Counts>) -> Router {
    let who = |Extension(caller): Extension<Option<Caller>>| async move {
        caller.map_or_else(|| "nobody".to_owned(), |caller| caller.to_string())
    };
    let known = |KnownCaller(caller): KnownCaller| async move { caller.node.to_string() };
    let echo = |request: Request| async move { read_whole(request.into_body(), MAX_BODY).await };
    let pass = |request: Request| async move { Body::new(request.into_body()) };
    let counts = Arc::clone(counts);
    let wait = move || {
        counts.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting(Arc::clone(&counts));
        async move {
            waiting.0.release.notified().await;
            "released"
        }
    };
    Router::new()
        .route("/who", get(who))
        .route("/known", get(known))
        .route("/echo", post(echo))
        .route("/pass", post(pass))
        .route("/wait", get(wait))
}

/// Notices quickly, for tests.
pub(super) fn watchful() -> DialOptions {
    DialOptions {
        connect_within: Duration::from_secs(5),
        ping_after: Duration::from_millis(300),
        pong_within: Duration::from_millis(300),
        ..DialOptions::default()
    }
}

pub(super) async fn ask(client: &PeerClient, to: &Target, path: &str) -> Result<Response, Error> {
    client.call(to, Method::GET, path, Bytes::new(), PATIENCE).await
}

pub(super) async fn text(client: &PeerClient, to: &Target, path: &str) -> String {
    let body = ask(client, to, path).await.unwrap().good().unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}
