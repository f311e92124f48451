//! Published UDP ports: each client that is heard from has a session with one upstream, and what comes back goes to that
//! client. A session ends when it has been quiet for long enough, when its upstream is gone, or when one more would be
//! too many and it is the quietest.

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
use crate::connect::{Link, Patience, Tries, choose, dial};
use crate::core::Core;
use crate::sockets::Held;
use crate::table::{Protocol, Published};
use crate::tcp::PAUSE;
use crate::tunnel::{receive_datagram, send_datagram};
use crate::upstream::{InFlight, Target, Upstream};
use crate::{Stage, is_over};

/// The largest datagram there is.
const LARGEST: usize = 65_535;

/// Datagrams that one client may have waiting, and bytes that all clients of a port may. What is beyond is lost, as
/// datagrams are.
const WAITING: usize = 64;
const WAITING_BYTES: usize = 8 << 20;

type Datagram = (Vec<u8>, OwnedSemaphorePermit);

#[derive(Debug)]
struct Session {
    to: mpsc::Sender<Datagram>,
    heard: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the port while the stage is open. Then whoever listens next hears what clients send, and those who have been heard
/// here get the answers that are under way.
pub(crate) async fn serve(
    core: Arc<Core>,
    at: Published,
    socket: Held<UdpSocket>,
    mut stage: watch::Receiver<Stage>,
) {
    let (socket, mut sessions) = (Arc::new(socket), HashMap::new());
    tokio::select! {
        biased;
        () = is_over(stage.clone()) => {}
        () = receive_all(&core, at, &socket, &mut sessions) => {}
    }
    let answered = async {
        for session in sessions.into_values() {
            session.to.closed().await;
        }
    };
    tokio::select! {
        () = answered => {}
        _ = stage.wait_for(|stage| *stage == Stage::Closing) => {}
    }
}

async fn receive_all(
    core: &Arc<Core>,
    at: Published,
    socket: &Arc<Held<UdpSocket>>,
    sessions: &mut HashMap<SocketAddr, Session>,
) {
    let room = Arc::new(Semaphore::new(WAITING_BYTES));
    let mut space = vec![0; LARGEST];
    loop {
        let (length, client) = match socket.recv_from(&mut space).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(address = %at.address, %error, "cannot receive");
                sleep(PAUSE).await;
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

/// Clears out those that ended, else the quietest.
fn make_room(sessions: &mut HashMap<SocketAddr, Session>) {
    let before = sessions.len();
    sessions.retain(|_, session| !session.to.is_closed());
    let quietest = sessions.iter().min_by_key(|(_, session)| session.heard.load(Relaxed));
    if sessions.len() == before
        && let Some(client) = quietest.map(|(client, _)| *client)
    {
        sessions.remove(&client);
    }
}

fn begin(
    core: &Arc<Core>,
    at: Published,
    socket: Arc<Held<UdpSocket>>,
    client: SocketAddr,
) -> Session {
    let (to, waiting) = mpsc::channel(WAITING);
    let heard = Arc::new(AtomicU64::new(clock::now().0));
    let (core, seen) = (Arc::clone(core), Arc::clone(&heard));
    let task = tokio::spawn(async move {
        let client = Client { socket, address: client, heard: seen };
        if let Err(error) = hold(&core, at, &client, waiting).await {
            tracing::debug!(address = %at.address, %error, "a session ended early");
        }
    });
    Session { to, heard, task: task.abort_handle() }
}

/// Who a session is for.
struct Client {
    socket: Arc<Held<UdpSocket>>,
    address: SocketAddr,
    heard: Arc<AtomicU64>,
}

impl Client {
    fn answer(&self, upstream: &Upstream, datagram: &[u8]) {
        upstream.meter.received.add(datagram.len() as u64);
        self.heard.store(clock::now().0, Relaxed);
        // A socket that takes no more loses it, as datagrams are lost.
        let _ = self.socket.try_send_to(datagram, self.address);
    }

    /// Returns once nothing was heard for as long as a session may be quiet.
    async fn is_quiet(&self, core: &Core) {
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
async fn hold(
    core: &Core,
    at: Published,
    client: &Client,
    waiting: mpsc::Receiver<Datagram>,
) -> io::Result<()> {
    let Some(pool) = core.table.load().published_pool(at).map(Arc::clone) else { return Ok(()) };
    let Ok(in_flight) = choose(core, &pool, &Tries::default()) else { return Ok(()) };
    let upstream = in_flight.upstream();
    tokio::select! {
        ended = exchange(core, &in_flight, client, waiting) => ended,
        () = client.is_quiet(core) => Ok(()),
        () = upstream.cut() => Ok(()),
    }
}

async fn exchange(
    core: &Core,
    in_flight: &InFlight,
    client: &Client,
    waiting: mpsc::Receiver<Datagram>,
) -> io::Result<()> {
    let upstream = in_flight.upstream();
    match upstream.target() {
        Target::Local(address) => {
            let ended = near(*address, upstream, client, waiting).await;
            if ended.is_err() {
                upstream.note_failure(clock::now());
            }
            ended
        }
        Target::Via { .. } => {
            let link =
                dial(core, upstream, upstream.key().port, Protocol::Udp, Patience::Full).await?;
            through(link, upstream, client, waiting).await
        }
    }
}

/// A socket that speaks with one address only, so that it hears when nobody is there.
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
    client: &Client,
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

/// The next datagram. Room for the largest is only taken while there is one.
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
    link: Link,
    upstream: &Upstream,
    client: &Client,
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
