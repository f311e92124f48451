//! Connections to an upstream: of HTTP/1.1 one for each request at a time, kept for the next; of HTTP/2 one for all.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::source::Outgoing;
use super::wire::Counted;
use crate::clock::{self, Moment};
use crate::connect::{Patience, dial};
use crate::core::Core;
use crate::limits::Limits;
use crate::table::Protocol;
use crate::upstream::Upstream;

pub(super) type First = http1::SendRequest<Outgoing>;
pub(super) type Second = http2::SendRequest<Outgoing>;

/// How many new connections to one upstream may be without their first answer. Who comes beyond waits for room, or for one
/// that is free by then. Servers commonly let 128 wait to be accepted; what comes beyond is dropped, and tried again by the
/// kernel only after a second.
const OPENING: usize = 64;

/// What is kept of an upstream's connections.
pub(crate) struct Links {
    /// The one used last is used next, so that the others grow old and go.
    idle: Mutex<Vec<(First, Moment)>>,
    /// Told when one was put there.
    freed: Notify,
    /// For those who open one of their own.
    opening: Arc<Semaphore>,
    shared: Mutex<Option<Second>>,
    /// One opens the shared connection, and the others wait for it.
    opening_shared: tokio::sync::Mutex<()>,
}

impl Default for Links {
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

impl Links {
    /// Closes what is idle. The shared connection ends when what is under way on it does.
    pub(crate) fn clear(&self) {
        self.idle.lock().expect("no holder panics").clear();
        self.shared.lock().expect("no holder panics").take();
    }

    /// Closes what has been idle for too long.
    pub(crate) fn sweep(&self, limits: &Limits, now: Moment) {
        let mut idle = self.idle.lock().expect("no holder panics");
        idle.retain(|(link, since)| !link.is_closed() && now.since(*since) < limits.kept_for);
    }

    /// One that is idle, if there is any.
    fn take(&self, limits: &Limits) -> Option<First> {
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

    fn shared(&self) -> Option<Second> {
        let shared = self.shared.lock().expect("no holder panics");
        shared.as_ref().filter(|link| !link.is_closed()).cloned()
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = self.idle.lock().expect("no holder panics").len();
        f.debug_struct("Links").field("idle", &idle).finish_non_exhaustive()
    }
}

/// Keeps a connection for the next request, while the upstream takes any.
pub(super) fn keep(limits: &Limits, upstream: &Upstream, link: First) {
    if !upstream.is_kept() || link.is_closed() {
        return;
    }
    let mut idle = upstream.links.idle.lock().expect("no holder panics");
    if idle.len() < limits.kept {
        idle.push((link, clock::now()));
    }
    drop(idle);
    upstream.links.freed.notify_one();
    if !upstream.is_kept() {
        // It left in between, and whoever cleared the others did not see this one.
        upstream.links.clear();
    }
}

/// A connection of HTTP/1.1, and if it is new, the room it takes until it is known to be accepted.
pub(super) async fn first(
    core: &Core,
    upstream: &Arc<Upstream>,
    patience: Patience,
) -> io::Result<(First, Option<OwnedSemaphorePermit>)> {
    let links = &upstream.links;
    loop {
        if let Some(link) = kept(core, links).await {
            return Ok((link, None));
        }
        tokio::select! {
            biased;
            room = Arc::clone(&links.opening).acquire_owned() => {
                let room = room.expect("it is never closed");
                return match kept(core, links).await {
                    Some(link) => Ok((link, None)),
                    None => Ok((open(core, upstream, patience).await?, Some(room))),
                };
            }
            () = links.freed.notified() => {}
        }
    }
}

/// One that was kept and is ready. It may still be finishing with its last request, or have ended just now.
async fn kept(core: &Core, links: &Links) -> Option<First> {
    while let Some(mut link) = links.take(&core.limits) {
        if matches!(timeout(core.limits.connect, link.ready()).await, Ok(Ok(()))) {
            return Some(link);
        }
    }
    None
}

async fn open(core: &Core, upstream: &Arc<Upstream>, patience: Patience) -> io::Result<First> {
    let link = dial(core, upstream, upstream.key().port, Protocol::Tcp, patience).await?;
    let io = TokioIo::new(Counted::new(link, Arc::clone(upstream)));
    let mut builder = http1::Builder::new();
    let bytes = core.limits.header_bytes;
    builder.max_buf_size(bytes).max_header_size(bytes);
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    run(upstream, connection.with_upgrades());
    Ok(sender)
}

/// The connection of HTTP/2, opened where there is none; says whether it was there already.
pub(super) async fn second(
    core: &Core,
    upstream: &Arc<Upstream>,
    patience: Patience,
) -> io::Result<(Second, bool)> {
    let links = &upstream.links;
    if let Some(link) = links.shared() {
        return Ok((link, true));
    }
    let _one = links.opening_shared.lock().await;
    if let Some(link) = links.shared() {
        return Ok((link, true));
    }
    if upstream.is_ejected(clock::now()) {
        // Whoever opened before us failed just now; to try it one after the other would add up.
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let link = dial(core, upstream, upstream.key().port, Protocol::Tcp, patience).await?;
    let io = TokioIo::new(Counted::new(link, Arc::clone(upstream)));
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(core.limits.header_bytes).unwrap_or(u32::MAX));
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    run(upstream, connection);
    if upstream.is_kept() {
        *links.shared.lock().expect("no holder panics") = Some(sender.clone());
    }
    Ok((sender, false))
}

/// Moves a connection's bytes until it ends, or must.
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
            tracing::debug!(%error, ?upstream, "a connection to an upstream ended early");
        }
    });
}
