//! Published TCP ports: a connection is proxied to an upstream until both sides have closed it. If the upstream drains, it
//! is reset when the grace period is over, so that neither side takes the cut for a regular end. An idempotent HTTP request
//! that was not answered is replayed on another upstream first (see [`http_replay`](crate::http_replay)).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_keepalive;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::activity::Activity;
use crate::connect::{ConnectAttempts, UpstreamStream, current, reach};
use crate::connection_limit::{ConnectionSlot, ConnectionUse};
use crate::core::RouterCore;
use crate::http_replay::ReplayableClient;
use crate::proxy_protocol::{self, ClientEnds};
use crate::relay::relay;
use crate::sockets::SharedSocket;
use crate::table::{Pool, PoolKey, PublishedPort};
use crate::upstream::InFlight;
use crate::{RouterStage, stops_accepting};

/// How long to wait after a failed accept or receive: the process may be out of file descriptors.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Connections that may wait to be accepted: as many as the kernel allows by default.
const BACKLOG: u32 = 4_096;

/// Listens for clients, with a long backlog.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Connections of an earlier process may still be in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts clients while the stage is open.
pub(crate) async fn accept(
    core: Arc<RouterCore>,
    at: PublishedPort,
    listener: SharedSocket<TcpListener>,
    stage: watch::Receiver<RouterStage>,
) {
    let share = core.connection_limit.port();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stops_accepting(stage.clone()) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, from)) => {
                let (limit, roll) = (&core.connection_limit, core.roll());
                let Some(source) = limit.admit(&client, from.ip(), roll).await else { continue };
                let slot = limit.acquire(source, &share, ConnectionUse::Carried, roll).await;
                tokio::spawn(carry_published(Arc::clone(&core), at, client, slot));
            }
            Err(error) => {
                tracing::warn!(address = %at.address, %error, "cannot accept a connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn carry_published(
    core: Arc<RouterCore>,
    at: PublishedPort,
    client: TcpStream,
    slot: Arc<ConnectionSlot>,
) {
    let Some(pool) = core.table.load().published_pool(at).map(Arc::clone) else { return };
    let ends = ClientEnds::of(&client, at.address.port());
    let port = pool.key().port;
    carry(&core, &pool, port, (client, ends), slot).await;
}

/// Proxies a connection that was accepted elsewhere to a port of the pool's service.
pub(crate) async fn carry_to(core: &Arc<RouterCore>, key: &PoolKey, port: u16, client: TcpStream) {
    let pool = core.table.load().pool(key).map(Arc::clone);
    let Some(pool) = pool else {
        let _ = client.set_zero_linger();
        return;
    };
    // A connection whose other side is gone already has no address.
    let Ok(from) = client.peer_addr() else { return };
    let (limit, roll) = (&core.connection_limit, core.roll());
    let Some(source) = limit.admit(&client, from.ip(), roll).await else { return };
    let slot = limit.acquire_by_name(source, roll).await;
    let ends = ClientEnds::of(&client, port);
    carry(core, &pool, port, (client, ends), slot).await;
}

async fn carry(
    core: &Arc<RouterCore>,
    pool: &Arc<Pool>,
    port: u16,
    (mut client, ends): (TcpStream, Option<ClientEnds>),
    slot: Arc<ConnectionSlot>,
) {
    // Its protocol is unknown and may be silent for hours. A peer that is gone is found by keep-alive probes.
    let _ = (client.set_nodelay(true), set_socket_keepalive(&client, true));
    if !served(core, pool, port, (&mut client, ends), &slot).await {
        let _ = client.set_zero_linger();
    }
}

/// Proxies a client to an upstream, and replays its request on another if that one fails before it answers, unless replays
/// are off for the service. Says whether both sides closed the connection in the end.
async fn served(
    core: &Arc<RouterCore>,
    pool: &Arc<Pool>,
    port: u16,
    (client, ends): (&mut TcpStream, Option<ClientEnds>),
    slot: &ConnectionSlot,
) -> bool {
    let activity = &slot.activity;
    // It was silent for too long, or has to make room.
    let is_over = || async {
        tokio::select! {
            () = activity.is_quiet_for(core.limits.carried_idle) => {}
            () = slot.evicted() => {}
        }
    };
    let mut tries = ConnectAttempts::default();
    if !pool.replays() {
        let Some((in_flight, link)) = reached(core, pool, (port, ends), &mut tries).await else {
            return false;
        };
        return copy_both_ways(client, link, &in_flight, activity, is_over()).await;
    }
    let mut client = ReplayableClient::new(client);
    let mut lost = None;
    loop {
        let Some((in_flight, link)) = reached(core, pool, (port, ends), &mut tries).await else {
            return tokio::select! {
                is_done = client.give_up() => is_done,
                () = is_over() => false,
            };
        };
        if let Some(lost) = lost.take() {
            pool.meter.replays.add(1);
            let next = in_flight.upstream();
            tracing::debug!(pool = %pool.key(), ?lost, ?next, "replaying an unanswered request");
        }
        let mut is_cut = false;
        let cut = async {
            is_over().await;
            is_cut = true;
        };
        if copy_both_ways(&mut client, link, &in_flight, activity, cut).await {
            return true;
        }
        if is_cut || !client.can_replay() {
            return false;
        }
        client.replay();
        let upstream = in_flight.upstream();
        tries.failed(upstream, &io::ErrorKind::ConnectionAborted.into(), pool);
        lost = Some(Arc::clone(upstream));
    }
}

/// Connects to an upstream that was not tried yet, if there is one, and tells it who the client is if it asks for that.
async fn reached(
    core: &Arc<RouterCore>,
    pool: &Arc<Pool>,
    (port, ends): (u16, Option<ClientEnds>),
    tries: &mut ConnectAttempts,
) -> Option<(InFlight, UpstreamStream)> {
    loop {
        let reached = reach(core, current(core, pool), port, tries).await;
        let log =
            |failure| tracing::debug!(pool = %pool.key(), ?failure, "no upstream for a connection");
        let (in_flight, mut link) = reached.map_err(log).ok()?;
        let upstream = in_flight.upstream();
        if !upstream.proxied().contains(&port) {
            return Some((in_flight, link));
        }
        // A client whose address is not known any more is gone.
        let header = ends?.header();
        match proxy_protocol::send(&mut link, &header, core.limits.connect_via).await {
            Ok(()) => return Some((in_flight, link)),
            Err(error) => {
                tracing::debug!(%error, ?upstream, "cannot tell an upstream who its client is");
                tries.failed(upstream, &error, pool);
            }
        }
    }
}

/// Copies both ways until both sides have closed or it is over, and says whether they have closed; if not, the upstream's
/// stream is reset.
pub(crate) async fn copy_both_ways(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut link: UpstreamStream,
    in_flight: &InFlight,
    activity: &Activity,
    is_over: impl Future<Output = ()>,
) -> bool {
    let upstream = in_flight.upstream();
    if let UpstreamStream::Local(stream) = &link {
        let _ = set_socket_keepalive(stream, true);
    }
    let is_done = tokio::select! {
        carried = relay(client, &mut link, &upstream.meter, activity) => carried.is_ok(),
        () = upstream.cut() => false,
        () = is_over => false,
    };
    if !is_done {
        link.reset();
    }
    is_done
}
