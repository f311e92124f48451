//! Connections: let in while there is room, served one request after another, and ended in order when the daemon is.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_model::access::Digest;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::Service;

use plimsoll_router::sockets::{SharedSocket, Sockets};

use super::answer::ErrorResponse;
use super::auth::{self, Permits};
use super::dashboard;
use super::door;
use super::local_users::{LocalPeer, LocalUsers};
use super::requester::Requester;
use super::revocation::while_good;
use super::socket::{self, BindError};
use super::source_shares::SourceShares;
use super::token::Token;
use super::{Listen, TcpListen};
use crate::context::NodeContext;
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_peer::{Crowd, Handshakes, OperatorDoor, accept};

/// How many connections may be open on each listener. Beyond it others wait to be let in, and over the network are closed.
const MAX_CONNECTIONS: usize = 1_024;

/// How many of those one address on the network may have.
const MAX_OF_SOURCE: usize = 256;

/// How many handshakes may be under way, and how long one may take where there is no room for another.
const MAX_HANDSHAKES: usize = 256;
const CROWDED_PATIENCE: Duration = Duration::from_secs(1);

/// How long a client may take to say what it wants, or keep a connection it does not use.
const HEADER_PATIENCE: Duration = Duration::from_secs(30);

/// How long requests under way may take to end once the daemon does.
const GRACE: Duration = Duration::from_secs(5);

/// A connection that cannot be accepted just now, for want of file descriptors perhaps, is tried again after this.
const PAUSE: Duration = Duration::from_millis(100);

/// The paths that anyone may ask for: how the node is, and the dashboard's own files, which hold nothing of the cell.
const OPEN_PATHS: &[&str] = &["/", "/healthz", "/readyz", "/metrics"];

pub(super) fn is_open(path: &str) -> bool {
    OPEN_PATHS.contains(&path) || path.starts_with(dashboard::PATH)
}

/// Where clients come in.
#[derive(Debug)]
pub(super) struct ApiListeners {
    unix: SharedSocket<UnixListener>,
    users: LocalUsers,
    path: PathBuf,
    tcp: Option<TlsEntrance>,
    sockets: Sockets,
}

/// The way in over the network.
#[derive(Debug)]
struct TlsEntrance {
    listener: SharedSocket<TcpListener>,
    door: OperatorDoor,
    token: Token,
}

impl ApiListeners {
    pub(super) async fn open(listen: &Listen) -> Result<Self, BindError> {
        let tcp = match &listen.tcp {
            None => None,
            Some(TcpListen { address, credentials }) => {
                let token = Token::of(&listen.data_dir)?;
                let door = OperatorDoor::new(credentials).map_err(BindError::Tls)?;
                let listener = socket::tcp(*address, &listen.sockets)?;
                Some(TlsEntrance { listener, door, token })
            }
        };
        let users = LocalUsers::of(listen.group.as_deref())
            .map_err(|error| BindError::file("open to its group", &listen.socket, error))?;
        let unix = socket::unix(&listen.socket, users.group, &listen.sockets).await?;
        Ok(Self { unix, users, path: listen.socket.clone(), tcp, sockets: listen.sockets.clone() })
    }

    pub(super) fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref()?.listener.local_addr().ok()
    }

    /// Serves until `ending` is true and all are gone, or their grace is over.
    pub(super) async fn serve(
        self,
        router: Router,
        cell: NodeContext,
        ending: watch::Receiver<bool>,
    ) {
        let Self { unix, users, path, tcp, sockets } = self;
        let entrance = UnixEntrance { listener: unix, users, cell: cell.clone() };
        let local = by(entrance, router.clone(), ending.clone());
        let remote = async {
            if let Some(TlsEntrance { listener, door, token }) = tcp {
                let permits = Permits::new(token, cell);
                let present = receive_tls(&listener, &door, &permits, router, ending).await;
                drop(listener);
                part(present).await;
            }
        };
        tokio::join!(local, remote);
        // A path that stays says that somebody listens.
        if !sockets.is_kept() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The socket on this host, who may use it, and the node that it leads to.
struct UnixEntrance {
    listener: SharedSocket<UnixListener>,
    users: LocalUsers,
    cell: NodeContext,
}

impl UnixEntrance {
    async fn accept(&self) -> io::Result<(UnixStream, ClientOrigin)> {
        let (stream, _) = UnixListener::accept(&self.listener).await?;
        let peer = stream.peer_cred()?;
        let (uid, gid) = (peer.uid(), peer.gid());
        let is_admitted = self.users.admit(LocalPeer { uid, gid });
        Ok((stream, ClientOrigin::Unix { uid, is_admitted, cell: Box::new(self.cell.clone()) }))
    }
}

async fn by(entrance: UnixEntrance, router: Router, ending: watch::Receiver<bool>) {
    let present = receive(&entrance, router, ending).await;
    drop(entrance);
    part(present).await;
}

/// Which way a client came in.
#[derive(Debug, Clone)]
enum ClientOrigin {
    Unix {
        uid: u32,
        is_admitted: bool,
        cell: Box<NodeContext>,
    },
    /// With what the certificate that was shown makes its holder known by.
    Tcp(Box<Permits>, Option<Digest>),
}

/// Lets clients in until the daemon ends, and returns those who are still there.
async fn receive(
    entrance: &UnixEntrance,
    router: Router,
    ending: watch::Receiver<bool>,
) -> JoinSet<()> {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut present = JoinSet::new();
    loop {
        let next = async {
            let permit = Arc::clone(&room).acquire_owned().await.expect("it is never closed");
            (permit, entrance.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            () = ended(ending.clone()) => return present,
            next = next => next,
        };
        match accepted {
            Ok((stream, origin)) => {
                let accepted = attend(stream, origin, router.clone(), ending.clone());
                present.spawn(async {
                    accepted.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
        while present.try_join_next().is_some() {}
    }
}

/// The same over the network. Who has not finished a handshake holds no place of those who have, and whoever comes when all
/// are taken is closed: to wait would be to let strangers decide for how long.
async fn receive_tls(
    listener: &TcpListener,
    door: &OperatorDoor,
    permits: &Permits,
    router: Router,
    ending: watch::Receiver<bool>,
) -> JoinSet<()> {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let shares = SourceShares::new(MAX_OF_SOURCE);
    let mut handshakes = Handshakes::new(MAX_HANDSHAKES, CROWDED_PATIENCE);
    let mut present = JoinSet::new();
    loop {
        let room_at = handshakes.room_at();
        tokio::select! {
            biased;
            () = ended(ending.clone()) => return present,
            Some(shaken) = handshakes.over() => {
                let Ok((stream, key, share, remote)) = shaken else { continue };
                let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                    door.note_full(remote);
                    continue;
                };
                let origin = ClientOrigin::Tcp(Box::new(permits.clone()), key);
                let attended = attend(stream, origin, router.clone(), ending.clone());
                present.spawn(async move {
                    attended.await;
                    drop((permit, share));
                });
            }
            accepted = accept(listener, room_at) => match accepted {
                Ok((stream, remote)) => {
                    let Some(share) = shares.take(remote.ip()) else {
                        door.note_full(remote);
                        continue;
                    };
                    let own = door.clone();
                    let handshake = async move {
                        let (stream, key) = own.receive(stream, remote).await?;
                        Some((stream, key, share, remote))
                    };
                    if handshakes.begin(handshake) == Crowd::OldestWent {
                        door.note_crowd(remote, MAX_HANDSHAKES);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
        while present.try_join_next().is_some() {}
    }
}

/// Waits for those who are still there; who does not go in time is disconnected.
async fn part(mut present: JoinSet<()>) {
    let all_gone = async { while present.join_next().await.is_some() {} };
    let _ = timeout(GRACE, all_gone).await;
}

/// Returns once the daemon ends. A sender that is gone is an end as well.
pub(super) async fn ended(mut ending: watch::Receiver<bool>) {
    let _ = ending.wait_for(|has_ended| *has_ended).await;
}

/// Serves one connection until either side has had enough.
async fn attend<S>(stream: S, origin: ClientOrigin, router: Router, ending: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (origin, mut router) = (origin.clone(), router.clone());
        async move {
            let mut request = request.map(Body::new);
            let peer = match admit(&origin, &mut request).await {
                Ok(peer) => peer,
                Err(response) => return Ok::<Response, Infallible>(*response),
            };
            request.extensions_mut().insert(peer.clone());
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let answer = router
                .call(request)
                .map(|answered| answered.unwrap_or_else(|never| match never {}));
            let response = match (origin, peer) {
                (ClientOrigin::Tcp(permits, _), Requester::Operator { name, token, .. }) => {
                    while_good(permits.cell().clone(), (name, token), answer).await
                }
                _ => answer.await,
            };
            tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
            Ok(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = ended(ending) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        // A client that went away under way is its own affair.
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Who asks, or the answer to somebody who may not. What nobody may say from outside is taken out of the request first.
async fn admit(
    origin: &ClientOrigin,
    request: &mut Request<Body>,
) -> Result<Requester, Box<Response>> {
    door::clean(request.headers_mut())?;
    let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
    match origin {
        ClientOrigin::Unix { uid, is_admitted: true, cell } => {
            auth::local(cell, Some(*uid), method, path, headers).await
        }
        ClientOrigin::Unix { uid, is_admitted: false, .. } => {
            let message = format!(
                "user {uid} may not use this socket: run the command as root or as the daemon's user, or start the daemon \
                 with --socket-group and a group of yours"
            );
            let problem = Problem::new(ProblemCode::Forbidden, message);
            Err(Box::new(ErrorResponse(problem).into_response()))
        }
        ClientOrigin::Tcp(..) if is_open(path) => Ok(Requester::Anyone),
        ClientOrigin::Tcp(permits, key) => permits.admit(method, path, headers, *key),
    }
}
