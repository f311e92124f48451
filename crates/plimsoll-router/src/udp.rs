//! Published UDP ports: each client has a session with one upstream, whose datagrams go back to that client. A session ends
//! when it has been idle for long enough, when its upstream is gone, or when there is one too many and it has been idle
//! longest.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::io::{AsyncWriteExt, split};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::clock::{self, Moment};
use crate::connect::{ConnectAttempts, ConnectTimeout, UpstreamStream, choose, dial};
use crate::core::RouterCore;
use crate::sockets::SharedSocket;
use crate::table::{Protocol, PublishedPort};
use crate::tcp::ACCEPT_RETRY;
use crate::tunnel::{receive_datagram, send_datagram};
use crate::upstream::{InFlight, Upstream, UpstreamTarget};
use crate::{RouterStage, stops_accepting};

/// The largest datagram there is.
const LARGEST: usize = 65_535;

/// The datagrams of one client, and the bytes of all clients of a port, that may be queued. Others are dropped.
const QUEUED: usize = 64;
const QUEUED_BYTES: usize = 8 << 20;

type Datagram = (Vec<u8>, OwnedSemaphorePermit);

#[derive(Debug)]
struct UdpSession {
    to: mpsc::Sender<Datagram>,
    heard: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Drop for UdpSession {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the port while the stage is open. After that the next process receives what clients send, and sessions of this one
/// go on until they are answered.
pub(crate) async fn serve(
    core: Arc<RouterCore>,
    at: PublishedPort,
    socket: SharedSocket<UdpSocket>,
    mut stage: watch::Receiver<RouterStage>,
) {
    let (socket, mut sessions) = (Arc::new(socket), HashMap::new());
    tokio::select! {
        biased;
        () = stops_accepting(stage.clone()) => {}
        () = receive_all(&core, at, &socket, &mut sessions) => {}
    }
    let answered = async {
        for session in sessions.into_values() {
            session.to.closed().await;
        }
    };
    tokio::select! {
        () = answered => {}
        _ = stage.wait_for(|stage| *stage == RouterStage::Closing) => {}
    }
}

async fn receive_all(
    core: &Arc<RouterCore>,
    at: PublishedPort,
    socket: &Arc<SharedSocket<UdpSocket>>,
    sessions: &mut HashMap<SocketAddr, UdpSession>,
) {
    let room = Arc::new(Semaphore::new(QUEUED_BYTES));
    let mut space = vec![0; LARGEST];
    loop {
        let (length, client) = match socket.recv_from(&mut space).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(address = %at.address, %error, "cannot receive datagrams");
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let cost = u32::try_from(length).expect("a datagram is small");
        let Ok(permit) = Arc::clone(&room).try_acquire_many_owned(cost) else { continue };
        let mut datagram = (space[..length].to_vec(), permit);
        if let Some(session) = sessions.get(&client) {
            session.heard.store(clock::now().0, Relaxed);
            match session.to.try_send(datagram) {
                Ok(()) | Err(TrySendError::Full(_)) => continue,
                Err(TrySendError::Closed(back)) => datagram = back,
            }
        }
        sessions.remove(&client);
        if sessions.len() >= core.limits.udp_sessions {
            make_room(sessions);
        }
        let session = begin(core, at, Arc::clone(socket), client);
        let _ = session.to.try_send(datagram);
        sessions.insert(client, session);
    }
}

/// Removes ended sessions, or else the one that has been idle longest.
fn make_room(sessions: &mut HashMap<SocketAddr, UdpSession>) {
    let before = sessions.len();
    sessions.retain(|_, session| !session.to.is_closed());
    let idlest = sessions.iter().min_by_key(|(_, session)| session.heard.load(Relaxed));
    if sessions.len() == before
        && let Some(client) = idlest.map(|(client, _)| *client)
    {
        sessions.remove(&client);
    }
}

fn begin(
    core: &Arc<RouterCore>,
    at: PublishedPort,
    socket: Arc<SharedSocket<UdpSocket>>,
    client: SocketAddr,
) -> UdpSession {
    let (to, waiting) = mpsc::channel(QUEUED);
    let heard = Arc::new(AtomicU64::new(clock::now().0));
    let (core, seen) = (Arc::clone(core), Arc::clone(&heard));
    let task = tokio::spawn(async move {
        let client = UdpClient { socket, address: client, heard: seen };
        if let Err(error) = run_session(&core, at, &client, waiting).await {
            tracing::debug!(address = %at.address, %error, "a UDP session failed");
        }
    });
    UdpSession { to, heard, task: task.abort_handle() }
}

/// The client of a session.
struct UdpClient {
    socket: Arc<SharedSocket<UdpSocket>>,
    address: SocketAddr,
    heard: Arc<AtomicU64>,
}

impl UdpClient {
    fn answer(&self, upstream: &Upstream, datagram: &[u8]) {
        upstream.meter.received.add(datagram.len() as u64);
        self.heard.store(clock::now().0, Relaxed);
        // Dropped if the socket's buffer is full.
        let _ = self.socket.try_send_to(datagram, self.address);
    }

    /// Returns once the session has timed out.
    async fn times_out(&self, core: &RouterCore) {
        loop {
            let end = Moment(self.heard.load(Relaxed)).after(core.limits.udp_idle);
            if end <= clock::now() {
                return;
            }
            tokio::time::sleep_until(clock::instant(end)).await;
        }
    }
}

/// One session, from its first datagram to its last.
async fn run_session(
    core: &RouterCore,
    at: PublishedPort,
    client: &UdpClient,
    waiting: mpsc::Receiver<Datagram>,
) -> io::Result<()> {
    let Some(pool) = core.table.load().published_pool(at).map(Arc::clone) else { return Ok(()) };
    let Ok(in_flight) = choose(core, &pool, &ConnectAttempts::default()) else { return Ok(()) };
    let upstream = in_flight.upstream();
    tokio::select! {
        ended = exchange(core, &in_flight, client, waiting) => ended,
        () = client.times_out(core) => Ok(()),
        () = upstream.cut() => Ok(()),
    }
}

async fn exchange(
    core: &RouterCore,
    in_flight: &InFlight,
    client: &UdpClient,
    waiting: mpsc::Receiver<Datagram>,
) -> io::Result<()> {
    let upstream = in_flight.upstream();
    match upstream.target() {
        UpstreamTarget::Local(address) => {
            let ended = near(*address, upstream, client, waiting).await;
            if ended.is_err() {
                upstream.note_failure(clock::now());
            }
            ended
        }
        UpstreamTarget::Via { .. } => {
            let link =
                dial(core, upstream, upstream.key().port, Protocol::Udp, ConnectTimeout::Full)
                    .await?;
            through(link, upstream, client, waiting).await
        }
    }
}

/// A socket that is connected to one address, so that it learns when the port is closed.
pub(crate) async fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let from: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(from).await?;
    socket.connect(address).await?;
    Ok(socket)
}

async fn near(
    address: SocketAddr,
    upstream: &Upstream,
    client: &UdpClient,
    mut waiting: mpsc::Receiver<Datagram>,
) -> io::Result<()> {
    let socket = connected(address).await?;
    let send = async {
        while let Some((datagram, _room)) = waiting.recv().await {
            socket.send(&datagram).await?;
            upstream.meter.sent.add(datagram.len() as u64);
        }
        Ok::<(), io::Error>(())
    };
    let receive = async {
        loop {
            let datagram = receive(&socket).await?;
            upstream.note_success();
            client.answer(upstream, &datagram);
        }
    };
    tokio::select! {
        ended = send => ended,
        failed = receive => failed,
    }
}

/// The next datagram. A buffer for the largest is allocated only when there is one.
pub(crate) async fn receive(socket: &UdpSocket) -> io::Result<Vec<u8>> {
    loop {
        socket.readable().await?;
        let mut space = vec![0; LARGEST];
        match socket.try_recv(&mut space) {
            Ok(length) => {
                space.truncate(length);
                return Ok(space);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn through(
    link: UpstreamStream,
    upstream: &Upstream,
    client: &UdpClient,
    mut waiting: mpsc::Receiver<Datagram>,
) -> io::Result<()> {
    let (mut from, mut to) = split(link);
    let send = async {
        while let Some((datagram, _room)) = waiting.recv().await {
            send_datagram(&mut to, &datagram).await?;
            upstream.meter.sent.add(datagram.len() as u64);
        }
        to.shutdown().await
    };
    let receive = async {
        while let Some(datagram) = receive_datagram(&mut from).await? {
            client.answer(upstream, &datagram);
        }
        Ok(())
    };
    tokio::select! {
        ended = send => ended,
        ended = receive => ended,
    }
}
