//! Connects to one upstream of a pool: chooses one, and after a failure ejects it and tries another.
//!
//! An ejected upstream gets no request until a connection to it succeeds. That is probed beside the requests, which go
//! elsewhere meanwhile. An unresponsive node does not even refuse connections, so a slow upstream is not waited for either
//! where there is another.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::clock;
use crate::core::RouterCore;
use crate::pool::{due_for_probe, has_other, pick, pick_local_first};
use crate::proxy_protocol;
use crate::table::{ANY_PORT, Pool, Protocol};
use crate::tunnel::{ByteStream, RemoteUpstream};
use crate::upstream::{InFlight, Upstream, UpstreamTarget};

/// A connection to an upstream.
pub(crate) enum UpstreamStream {
    /// On this node.
    Local(TcpStream),
    /// Through a tunnel to another node.
    Remote(Box<dyn ByteStream>),
}

impl UpstreamStream {
    /// Closes it so that the other side sees an error and not a regular end.
    pub(crate) fn reset(self) {
        if let Self::Local(stream) = self {
            // A connection that is closed already needs no reset.
            let _ = stream.set_zero_linger();
        }
    }
}

/// Why no upstream was connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// No upstream is ready.
    NoReplica,
    /// Connecting failed to every upstream that was tried.
    AllFailed { tried: usize },
}

/// How long to wait for one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectTimeout {
    /// It is the only one.
    Full,
    /// There is another to try.
    Short,
}

/// The upstreams that were tried for one connection or request.
#[derive(Debug, Default)]
pub(crate) struct ConnectAttempts {
    tried: Vec<Arc<Upstream>>,
    count: usize,
}

impl ConnectAttempts {
    /// How long to wait for this upstream. The last one gets the full timeout: where all are slow, the machine is busy, and
    /// giving up would fail a request that only takes longer.
    pub(crate) fn timeout(
        &self,
        core: &RouterCore,
        upstream: &Upstream,
        pool: &Pool,
    ) -> ConnectTimeout {
        let is_last = self.count + 1 >= core.limits.tries;
        if !is_last && has_other(pool.members(), &self.tried, upstream, clock::now()) {
            ConnectTimeout::Short
        } else {
            ConnectTimeout::Full
        }
    }

    /// This upstream failed. One that timed out is tried again where there is no other: its accept queue may have been full.
    pub(crate) fn failed(&mut self, upstream: &Arc<Upstream>, error: &io::Error, pool: &Pool) {
        self.count += 1;
        self.tried.push(Arc::clone(upstream));
        let is_timeout = error.kind() == io::ErrorKind::TimedOut;
        if is_timeout && pick(pool.members(), &self.tried, clock::now(), 0).is_none() {
            self.tried.pop();
        }
    }
}

/// Chooses an upstream that was not tried yet and counts the request there.
pub(crate) fn choose(
    core: &RouterCore,
    pool: &Pool,
    tries: &ConnectAttempts,
) -> Result<InFlight, ConnectFailure> {
    choose_by(core, pool, tries, core.roll())
}

/// The same for a new connection. Ejected upstreams are probed meanwhile, where that is due.
pub(crate) fn choose_and_probe(
    core: &Arc<RouterCore>,
    pool: &Pool,
    tries: &ConnectAttempts,
) -> Result<InFlight, ConnectFailure> {
    let (now, roll) = (clock::now(), core.roll());
    for upstream in due_for_probe(pool.members(), &tries.tried, now, roll) {
        if upstream.claim_probe(now) {
            tokio::spawn(probe(Arc::clone(core), Arc::clone(upstream)));
        }
    }
    choose_by(core, pool, tries, roll)
}

fn choose_by(
    core: &RouterCore,
    pool: &Pool,
    tries: &ConnectAttempts,
    roll: u64,
) -> Result<InFlight, ConnectFailure> {
    if tries.count >= core.limits.tries {
        return Err(ConnectFailure::AllFailed { tried: tries.count });
    }
    // The pool may be outdated, and some of its upstreams stopping by now.
    let mut without: Option<Vec<Arc<Upstream>>> = None;
    let pick = if pool.key().is_any() { pick_local_first } else { pick };
    loop {
        let left_out = without.as_ref().unwrap_or(&tries.tried);
        let Some(upstream) = pick(pool.members(), left_out, clock::now(), roll) else { break };
        if let Some(begun) = upstream.begin_if_open() {
            return Ok(begun);
        }
        without = Some(left_out.iter().chain([upstream]).cloned().collect());
    }
    if tries.count == 0 {
        Err(ConnectFailure::NoReplica)
    } else {
        Err(ConnectFailure::AllFailed { tried: tries.count })
    }
}

/// Connects to the port of one of the pool's upstreams that was not tried yet.
pub(crate) async fn reach(
    core: &Arc<RouterCore>,
    mut pool: Arc<Pool>,
    port: u16,
    tries: &mut ConnectAttempts,
) -> Result<(InFlight, UpstreamStream), ConnectFailure> {
    loop {
        let chosen = choose_and_probe(core, &pool, tries)?;
        let upstream = chosen.upstream();
        let wait = tries.timeout(core, upstream, &pool);
        match dial(core, upstream, port, Protocol::Tcp, wait).await {
            Ok(link) => return Ok((chosen, link)),
            Err(error) => {
                pool = current(core, &pool);
                tries.failed(upstream, &error, &pool);
            }
        }
    }
}

/// The pool as of the current table.
pub(crate) fn current(core: &RouterCore, pool: &Arc<Pool>) -> Arc<Pool> {
    Arc::clone(core.table.load().pool(pool.key()).unwrap_or(pool))
}

/// Connects to a port of this upstream's container, and notes on the upstream whether that succeeded.
pub(crate) async fn dial(
    core: &RouterCore,
    upstream: &Upstream,
    port: u16,
    protocol: Protocol,
    wait: ConnectTimeout,
) -> io::Result<UpstreamStream> {
    let connecting = connect(core, upstream, port, protocol);
    let connected = match wait {
        ConnectTimeout::Full => Ok(connecting.await),
        ConnectTimeout::Short => timeout(core.limits.late, connecting).await,
    };
    match &connected {
        Ok(Ok(_)) => {
            upstream.note_success();
            upstream.meter.connections.add(1);
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, ?upstream, port, "cannot connect to an upstream");
            let is_other = upstream.key().port != port;
            // A closed port says nothing of the container's other ports.
            if !(is_other && error.kind() == io::ErrorKind::ConnectionRefused) {
                upstream.note_failure(clock::now());
                eject_node(core, upstream, error);
            }
        }
        Err(_) => {
            tracing::debug!(?upstream, "slow to accept a connection; trying another upstream");
            upstream.note_failure(clock::now());
        }
    }
    connected.map_err(io::Error::from).flatten()
}

/// Connects to an ejected upstream and notes whether that succeeded. The connection is used for nothing else.
async fn probe(core: Arc<RouterCore>, upstream: Arc<Upstream>) {
    let port = upstream.key().port;
    match connect(&core, &upstream, port, Protocol::Tcp).await {
        Ok(mut link) => {
            upstream.note_success();
            if upstream.proxied().contains(&port) {
                // Otherwise its server would log a connection without a header.
                let wait = core.limits.connect_via;
                let _ = proxy_protocol::send(&mut link, &proxy_protocol::LOCAL, wait).await;
            }
        }
        // An upstream for any port has none of its own: a refusal shows that it is up.
        Err(error) if port == ANY_PORT && error.kind() == io::ErrorKind::ConnectionRefused => {
            upstream.note_success();
        }
        Err(error) => {
            upstream.note_failed_probe(clock::now());
            eject_node(&core, &upstream, &error);
        }
    }
}

async fn connect(
    core: &RouterCore,
    upstream: &Upstream,
    port: u16,
    protocol: Protocol,
) -> io::Result<UpstreamStream> {
    match upstream.target() {
        UpstreamTarget::Local(address) => {
            let address = upstream.key().address(*address, port);
            let connecting = timeout(core.limits.connect, TcpStream::connect(address));
            connecting.await.map_err(io::Error::from).flatten().map(|stream| {
                // Small messages must not wait for the acknowledgement of others.
                let _ = stream.set_nodelay(true);
                UpstreamStream::Local(stream)
            })
        }
        UpstreamTarget::Via { node } => {
            let upstream = upstream.key().at(port);
            let remote = RemoteUpstream { node: Arc::clone(node), upstream, protocol };
            let opening = timeout(core.limits.connect_via, core.tunnel.open(remote));
            opening.await.map_err(io::Error::from).flatten().map(UpstreamStream::Remote)
        }
    }
}

/// If the node could not be reached, all upstreams on it are ejected: finding that out for each would delay as many
/// requests.
fn eject_node(core: &RouterCore, upstream: &Upstream, error: &io::Error) {
    let is_upstreams_own = error.kind() == io::ErrorKind::ConnectionRefused;
    let UpstreamTarget::Via { node } = upstream.target() else { return };
    if is_upstreams_own {
        return;
    }
    let (table, now) = (core.table.load(), clock::now());
    let is_there = |one: &&Arc<Upstream>| matches!(one.target(), UpstreamTarget::Via { node: other } if other == node);
    table.upstreams().filter(is_there).for_each(|one| one.eject(now));
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Local(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Remote(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Local(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Remote(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Local(stream) => Pin::new(stream).poll_flush(cx),
            Self::Remote(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Local(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Remote(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Local(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Remote(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Local(stream) => stream.is_write_vectored(),
            Self::Remote(stream) => stream.is_write_vectored(),
        }
    }
}
