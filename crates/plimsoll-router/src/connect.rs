//! Connects to one upstream of a pool: chooses, tries, and where that fails tells the upstream and tries another.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::clock;
use crate::core::Core;
use crate::pool::{pick, pick_near};
use crate::table::{Pool, Protocol};
use crate::tunnel::{Far, Stream};
use crate::upstream::{InFlight, Target, Upstream};

/// A connection to an upstream.
pub(crate) enum Link {
    Near(TcpStream),
    Far(Box<dyn Stream>),
}

impl Link {
    /// Ends it so that the other side sees an error and not an end.
    pub(crate) fn reset(self) {
        if let Self::Near(stream) = self {
            // A connection that is gone already needs no reset.
            let _ = stream.set_zero_linger();
        }
    }
}

/// Why nothing was connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// No upstream takes requests.
    Nobody,
    /// Those that were tried did not accept.
    Refused { tried: usize },
}

/// What was tried for one connection or request.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    tried: Vec<Arc<Upstream>>,
    count: usize,
}

impl Tries {
    /// This one did not do. One that was only late is tried again where there is no other: its queue may have been full.
    pub(crate) fn failed(&mut self, upstream: &Arc<Upstream>, error: &io::Error, pool: &Pool) {
        self.count += 1;
        self.tried.push(Arc::clone(upstream));
        let is_late = error.kind() == io::ErrorKind::TimedOut;
        if is_late && pick(pool.members(), &self.tried, clock::now(), 0).is_none() {
            self.tried.pop();
        }
    }
}

/// Chooses an upstream that was not tried yet and counts the request there.
pub(crate) fn choose(core: &Core, pool: &Pool, tries: &Tries) -> Result<InFlight, Unreached> {
    let pick = if pool.key().is_any() { pick_near } else { pick };
    match pick(pool.members(), &tries.tried, clock::now(), core.roll()) {
        Some(upstream) if tries.count < core.limits.tries => Ok(upstream.begin()),
        _ if tries.count == 0 => Err(Unreached::Nobody),
        _ => Err(Unreached::Refused { tried: tries.count }),
    }
}

/// Connects to the port of one of the pool's upstreams.
pub(crate) async fn reach(
    core: &Core,
    mut pool: Arc<Pool>,
    port: u16,
) -> Result<(InFlight, Link), Unreached> {
    let mut tries = Tries::default();
    loop {
        let chosen = choose(core, &pool, &tries)?;
        let upstream = chosen.upstream();
        match dial_at(core, upstream, port, Protocol::Tcp).await {
            Ok(link) => return Ok((chosen, link)),
            Err(error) => {
                pool = current(core, &pool);
                tries.failed(upstream, &error, &pool);
            }
        }
    }
}

/// The pool as it is by now.
pub(crate) fn current(core: &Core, pool: &Arc<Pool>) -> Arc<Pool> {
    Arc::clone(core.table.load().pool(pool.key()).unwrap_or(pool))
}

/// Connects to this upstream, and has it know how that went.
pub(crate) async fn dial(core: &Core, upstream: &Upstream, protocol: Protocol) -> io::Result<Link> {
    dial_at(core, upstream, upstream.key().port, protocol).await
}

/// The same, at a port of its container that may be another than its own.
pub(crate) async fn dial_at(
    core: &Core,
    upstream: &Upstream,
    port: u16,
    protocol: Protocol,
) -> io::Result<Link> {
    let connected = match upstream.target() {
        Target::Local(address) => {
            let address = upstream.key().address(*address, port);
            let connecting = timeout(core.limits.connect, TcpStream::connect(address));
            connecting.await.map_err(io::Error::from).flatten().map(|stream| {
                // Small messages must not wait for the acknowledgement of others.
                let _ = stream.set_nodelay(true);
                Link::Near(stream)
            })
        }
        Target::Via { node } => {
            let upstream = upstream.key().at(port);
            let far = Far { node: Arc::clone(node), upstream, protocol };
            let opening = timeout(core.limits.connect_via, core.tunnel.open(far));
            opening.await.map_err(io::Error::from).flatten().map(Link::Far)
        }
    };
    match &connected {
        Ok(_) => {
            upstream.note_success();
            upstream.meter.connections.add(1);
        }
        Err(error) => {
            tracing::debug!(%error, ?upstream, port, "cannot connect");
            let is_other = upstream.key().port != port;
            // That nothing listens on one port says nothing of the container's others.
            if !(is_other && error.kind() == io::ErrorKind::ConnectionRefused) {
                upstream.note_failure(clock::now());
            }
        }
    }
    connected
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Near(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Far(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Near(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Far(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Near(stream) => Pin::new(stream).poll_flush(cx),
            Self::Far(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Near(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Far(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Near(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Far(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Near(stream) => stream.is_write_vectored(),
            Self::Far(stream) => stream.is_write_vectored(),
        }
    }
}
