//! Connects to one upstream of a pool: chooses, tries, and where that fails tells the upstream and tries another.
//!
//! An upstream that failed gets no request until a connection to it has been made: whether one can be is tried beside the
//! requests, which go elsewhere meanwhile. A node that falls silent answers nothing, not even with an error, so what is
//! only late is not waited for either where there is another.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::clock;
use crate::core::Core;
use crate::pool::{due, has_other, pick, pick_near};
use crate::table::{ANY, Pool, Protocol};
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

/// How long one upstream is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It is the only one there is.
    Full,
    /// There is another.
    Short,
}

/// What was tried for one connection or request.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    tried: Vec<Arc<Upstream>>,
    count: usize,
}

impl Tries {
    /// How long to wait for this one, as the pool stands. The last that may be tried is waited for: where all are late,
    /// it is the machine that is busy, and to give up would lose what only takes its time.
    pub(crate) fn patience(&self, core: &Core, upstream: &Upstream, pool: &Pool) -> Patience {
        let is_last = self.count + 1 >= core.limits.tries;
        if !is_last && has_other(pool.members(), &self.tried, upstream, clock::now()) {
            Patience::Short
        } else {
            Patience::Full
        }
    }

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
    choose_by(core, pool, tries, core.roll())
}

/// The same for what needs a connection. Those that failed before are tried meanwhile, where that is due.
pub(crate) fn choose_sound(
    core: &Arc<Core>,
    pool: &Pool,
    tries: &Tries,
) -> Result<InFlight, Unreached> {
    let (now, roll) = (clock::now(), core.roll());
    for upstream in due(pool.members(), &tries.tried, now, roll) {
        if upstream.claim_trial(now) {
            tokio::spawn(try_again(Arc::clone(core), Arc::clone(upstream)));
        }
    }
    choose_by(core, pool, tries, roll)
}

fn choose_by(core: &Core, pool: &Pool, tries: &Tries, roll: u64) -> Result<InFlight, Unreached> {
    if tries.count >= core.limits.tries {
        return Err(Unreached::Refused { tried: tries.count });
    }
    // The pool may be of a moment ago, and some of it about to stop by now.
    let mut without: Option<Vec<Arc<Upstream>>> = None;
    let pick = if pool.key().is_any() { pick_near } else { pick };
    loop {
        let left_out = without.as_ref().unwrap_or(&tries.tried);
        let Some(upstream) = pick(pool.members(), left_out, clock::now(), roll) else { break };
        if let Some(begun) = upstream.begin_if_open() {
            return Ok(begun);
        }
        without = Some(left_out.iter().chain([upstream]).cloned().collect());
    }
    if tries.count == 0 {
        Err(Unreached::Nobody)
    } else {
        Err(Unreached::Refused { tried: tries.count })
    }
}

/// Connects to the port of one of the pool's upstreams that was not tried yet.
pub(crate) async fn reach(
    core: &Arc<Core>,
    mut pool: Arc<Pool>,
    port: u16,
    tries: &mut Tries,
) -> Result<(InFlight, Link), Unreached> {
    loop {
        let chosen = choose_sound(core, &pool, tries)?;
        let upstream = chosen.upstream();
        let patience = tries.patience(core, upstream, &pool);
        match dial(core, upstream, port, Protocol::Tcp, patience).await {
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

/// Connects to a port of this upstream's container, and has it know how that went.
pub(crate) async fn dial(
    core: &Core,
    upstream: &Upstream,
    port: u16,
    protocol: Protocol,
    patience: Patience,
) -> io::Result<Link> {
    let connecting = connect(core, upstream, port, protocol);
    let connected = match patience {
        Patience::Full => Ok(connecting.await),
        Patience::Short => timeout(core.limits.late, connecting).await,
    };
    match &connected {
        Ok(Ok(_)) => {
            upstream.note_success();
            upstream.meter.connections.add(1);
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, ?upstream, port, "cannot connect");
            let is_other = upstream.key().port != port;
            // That nothing listens on one port says nothing of the container's others.
            if !(is_other && error.kind() == io::ErrorKind::ConnectionRefused) {
                upstream.note_failure(clock::now());
                doubt_node(core, upstream, error);
            }
        }
        Err(_) => {
            tracing::debug!(?upstream, "late to accept; another is tried");
            upstream.note_failure(clock::now());
        }
    }
    connected.map_err(io::Error::from).flatten()
}

/// Tries an upstream that failed, and has it know how that went. The connection is for nothing else.
async fn try_again(core: Arc<Core>, upstream: Arc<Upstream>) {
    let port = upstream.key().port;
    match connect(&core, &upstream, port, Protocol::Tcp).await {
        Ok(_) => upstream.note_success(),
        // One that stands for all ports has none of its own: who says no is there.
        Err(error) if port == ANY && error.kind() == io::ErrorKind::ConnectionRefused => {
            upstream.note_success();
        }
        Err(error) => {
            upstream.note_failed_trial(clock::now());
            doubt_node(&core, &upstream, &error);
        }
    }
}

async fn connect(
    core: &Core,
    upstream: &Upstream,
    port: u16,
    protocol: Protocol,
) -> io::Result<Link> {
    match upstream.target() {
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
    }
}

/// If it was the node that could not be reached, all that is reached through it is left out: to find that out of each
/// would cost as many requests their time.
fn doubt_node(core: &Core, upstream: &Upstream, error: &io::Error) {
    let is_its_own = error.kind() == io::ErrorKind::ConnectionRefused;
    let Target::Via { node } = upstream.target() else { return };
    if is_its_own {
        return;
    }
    let (table, now) = (core.table.load(), clock::now());
    let is_there =
        |one: &&Arc<Upstream>| matches!(one.target(), Target::Via { node: other } if other == node);
    table.upstreams().filter(is_there).for_each(|one| one.suspect(now));
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
