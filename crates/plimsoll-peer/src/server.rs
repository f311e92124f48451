//! Lets others in: bounded in the handshakes that are under way, in the strangers that are being served and in the
//! nodes that stay.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use plimsoll_router::RouterStage;
use plimsoll_router::sockets::SharedSocket;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::{ConnectionContext, Until, ended};
use super::handshakes::{Crowd, Handshakes, accept};
use super::log_throttle::{ConnectionFailure, LogThrottle};
use super::purpose::Purpose;
use super::tls::{AcceptedConnection, TlsHandshaker};
use crate::pki::{self, Credentials};

/// How many connections the kernel may keep for us. After a change of leader every agent comes at once.
const BACKLOG: u32 = 4_096;

/// A connection that cannot be accepted just now, for want of file descriptors perhaps, is tried again after this.
const PAUSE: Duration = Duration::from_millis(100);

/// How long all may take to leave once the daemon ends: a little longer than each of them may.
const GRACE: Duration = Duration::from_secs(6);

/// How much a server takes upon itself.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Nodes of the cell, with a certificate.
    pub nodes: usize,
    /// Others, who can do no more than ask to join, and how long each may stay.
    pub unauthenticated: usize,
    pub unauthenticated_patience: Duration,
    /// Handshakes under way. One has at most 64 kB of somebody's bytes in memory.
    pub handshakes: usize,
    pub handshake_patience: Duration,
    /// When there is no room for another handshake, one that has taken this long has to go: honest ones take
    /// milliseconds, and those who mean to keep others out must not succeed by doing nothing.
    pub crowded_patience: Duration,
    /// After this much silence a peer is asked whether it is there; without an answer in time, it is not.
    pub ping_after: Duration,
    pub pong_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            nodes: 16_384,
            unauthenticated: 64,
            unauthenticated_patience: Duration::from_secs(30),
            handshakes: 1_024,
            handshake_patience: Duration::from_secs(5),
            crowded_patience: Duration::from_secs(1),
            ping_after: Duration::from_secs(10),
            pong_within: Duration::from_secs(10),
        }
    }
}

/// Keeps connections that carry tunnels beyond the end of others: clients are at their ends, whoever leads the cell.
#[derive(Debug, Clone)]
pub struct Stay {
    pub stage: watch::Receiver<RouterStage>,
    /// Held by each of them for as long as it is there.
    pub present: mpsc::Sender<()>,
}

/// The peer port.
#[derive(Debug)]
pub struct PeerServer {
    listener: SharedSocket<TcpListener>,
    tls: Arc<TlsHandshaker>,
    limits: Limits,
}

impl PeerServer {
    pub fn bind(
        address: SocketAddr,
        credentials: &Credentials,
        limits: Limits,
    ) -> io::Result<Self> {
        Self::on(listen(address)?, credentials, limits).map_err(io::Error::other)
    }

    /// On a port that is open already.
    pub fn on(
        listener: impl Into<SharedSocket<TcpListener>>,
        credentials: &Credentials,
        limits: Limits,
    ) -> Result<Self, pki::Error> {
        let mut tls = credentials.server_config()?;
        Purpose::accept_all(&mut tls);
        let tls = TlsHandshaker {
            tls: Arc::new(tls),
            credentials: credentials.clone(),
            patience: limits.handshake_patience,
            quiet: Arc::default(),
        };
        Ok(Self { listener: listener.into(), tls: Arc::new(tls), limits })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `ending` is true and all are gone, or their grace is over.
    pub async fn serve(self, router: Router, ending: watch::Receiver<bool>) {
        self.serve_all(router, ending, None).await;
    }

    /// The same, but that tunnels stay until they are told to go.
    pub async fn serve_beside(self, router: Router, ending: watch::Receiver<bool>, stay: Stay) {
        self.serve_all(router, ending, Some(stay)).await;
    }

    async fn serve_all(self, router: Router, ending: watch::Receiver<bool>, stay: Option<Stay>) {
        let Self { listener, tls, limits } = self;
        let quiet = Arc::clone(&tls.quiet);
        let (credentials, ending_all) = (tls.credentials.clone(), ending.clone());
        let mut handshakes = Handshakes::new(limits.handshakes, limits.crowded_patience);
        let quiet_all = Arc::clone(&quiet);
        let context =
            ConnectionContext { router, limits, quiet: quiet_all, ending: ending_all, credentials };
        let stage = stay.as_ref().map(|stay| stay.stage.clone());
        let goes_on = || stage.as_ref().is_some_and(|stage| *stage.borrow() == RouterStage::Open);
        let mut seats = Connections::new(context, &quiet, limits, stay);
        loop {
            let room_at = handshakes.room_at();
            tokio::select! {
                biased;
                () = ended(ending.clone()) => break,
                Some(shaken) = handshakes.over() => {
                    if let Ok(accepted) = shaken {
                        seats.take(accepted);
                    }
                }
                accepted = accept(&listener, room_at) => match accepted {
                    Ok((stream, remote)) => {
                        let tls = Arc::clone(&tls);
                        let shake = async move { tls.receive(stream, remote).await };
                        if handshakes.begin(shake) == Crowd::OldestWent {
                            let failure = ConnectionFailure::Crowded;
                            quiet.note(failure, Some(remote), &limits.handshakes);
                        }
                    }
                    Err(error) => {
                        quiet.note(ConnectionFailure::Accept, None, &error);
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
            seats.clear();
        }
        drop(listener);
        while goes_on()
            && let Some(shaken) = handshakes.over().await
        {
            // Who has come this far, with a client perhaps, came to this process.
            if let Ok(accepted) = shaken {
                seats.take(accepted);
            }
        }
        drop(handshakes);
        seats.part().await;
    }
}

/// Opens the peer port.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A daemon that restarts must not wait for the connections of the one before to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Those who are being served.
struct Connections {
    context: ConnectionContext,
    quiet: Arc<LogThrottle>,
    for_nodes: Arc<Semaphore>,
    for_unauthenticated: Arc<Semaphore>,
    taken: JoinSet<()>,
    stay: Option<Stay>,
}

impl Connections {
    fn new(
        context: ConnectionContext,
        quiet: &Arc<LogThrottle>,
        limits: Limits,
        stay: Option<Stay>,
    ) -> Self {
        Self {
            context,
            quiet: Arc::clone(quiet),
            for_nodes: Arc::new(Semaphore::new(limits.nodes)),
            for_unauthenticated: Arc::new(Semaphore::new(limits.unauthenticated)),
            taken: JoinSet::new(),
            stay,
        }
    }

    fn take(&mut self, accepted: AcceptedConnection) {
        let seats =
            if accepted.shown.is_some() { &self.for_nodes } else { &self.for_unauthenticated };
        let Ok(seat) = Arc::clone(seats).try_acquire_owned() else {
            self.quiet.note(
                ConnectionFailure::TooManyConnections,
                Some(accepted.remote),
                &"closed",
            );
            return;
        };
        let stay = self.stay.clone().filter(|_| accepted.carries_tunnels());
        let present = stay.as_ref().map(|stay| stay.present.clone());
        let until = match stay {
            None => Until::Ended(self.context.ending.clone()),
            Some(stay) => Until::Led(stay.stage),
        };
        let served = self.context.clone().serve(accepted, until);
        let is_staying = present.is_some();
        let seated = async {
            served.await;
            drop((seat, present));
        };
        if is_staying {
            // Whoever ends the stage waits for it.
            tokio::spawn(seated);
        } else {
            self.taken.spawn(seated);
        }
    }

    fn clear(&mut self) {
        while self.taken.try_join_next().is_some() {}
    }

    /// Waits for those who are still there; who does not go in time is disconnected.
    async fn part(mut self) {
        let all_gone = async { while self.taken.join_next().await.is_some() {} };
        let _ = timeout(GRACE, all_gone).await;
    }
}
