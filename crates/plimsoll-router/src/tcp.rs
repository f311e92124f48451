//! Published TCP ports: a connection is handed to an upstream and carried until both sides are done. If the upstream
//! leaves, it is carried until the grace is over and then reset, so that nobody takes a cut for an end. A request that may
//! be said twice and was not answered is said to another upstream first (see [`opening`](crate::opening)).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_keepalive;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::connect::{Link, Tries, current, reach};
use crate::core::Core;
use crate::opening::Opening;
use crate::relay::relay;
use crate::seat::{Activity, Seat};
use crate::sockets::Held;
use crate::table::{Pool, PoolKey, Published};
use crate::upstream::InFlight;
use crate::{Stage, is_over};

/// A listener that cannot accept, for want of files perhaps, rests for so long.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// How many clients may wait to be let in: as many as the kernel allows by default, for crowds that come at once.
const BACKLOG: u32 = 4_096;

/// Listens for clients, with room for a crowd.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Connections of an earlier process that still linger are no reason to wait.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Lets clients in while the stage is open.
pub(crate) async fn accept(
    core: Arc<Core>,
    at: Published,
    listener: Held<TcpListener>,
    stage: watch::Receiver<Stage>,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = is_over(stage.clone()) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => {
                let seat = core.seats.take(core.roll()).await;
                tokio::spawn(carry_in(Arc::clone(&core), at, client, seat));
            }
            Err(error) => {
                tracing::warn!(address = %at.address, %error, "cannot accept");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn carry_in(core: Arc<Core>, at: Published, client: TcpStream, seat: Arc<Seat>) {
    let Some(pool) = core.table.load().published_pool(at).map(Arc::clone) else { return };
    let port = pool.key().port;
    carry(&core, &pool, port, client, seat).await;
}

/// Carries a connection that somebody else has accepted to a port of the pool's service.
pub(crate) async fn carry_to(core: &Arc<Core>, key: &PoolKey, port: u16, client: TcpStream) {
    let pool = core.table.load().pool(key).map(Arc::clone);
    let Some(pool) = pool else {
        let _ = client.set_zero_linger();
        return;
    };
    let seat = core.seats.take(core.roll()).await;
    carry(core, &pool, port, client, seat).await;
}

async fn carry(
    core: &Arc<Core>,
    pool: &Arc<Pool>,
    port: u16,
    mut client: TcpStream,
    seat: Arc<Seat>,
) {
    // Never an idle one that could make room: what it carries may be silent for hours and still be wanted. One whose
    // other end is no more is found by probes.
    seat.activity.begin();
    let _ = (client.set_nodelay(true), set_socket_keepalive(&client, true));
    if !served(core, pool, port, &mut client, &seat.activity).await {
        let _ = client.set_zero_linger();
    }
}

/// Hands a client to an upstream, and to another where that is lost before it answered and nothing speaks against it. Says
/// whether both sides were done in the end.
async fn served(
    core: &Arc<Core>,
    pool: &Arc<Pool>,
    port: u16,
    client: &mut TcpStream,
    activity: &Activity,
) -> bool {
    let (mut client, mut tries) = (Opening::new(client), Tries::default());
    loop {
        let (in_flight, link) = match reach(core, current(core, pool), port, &mut tries).await {
            Ok(reached) => reached,
            Err(unreached) => {
                tracing::debug!(pool = %pool.key(), ?unreached, "a connection found nobody");
                return false;
            }
        };
        if between(&mut client, link, &in_flight, activity).await {
            return true;
        }
        if !client.may_repeat() {
            return false;
        }
        client.repeat();
        tries.failed(in_flight.upstream(), &io::ErrorKind::ConnectionAborted.into(), pool);
    }
}

/// Carries between the two until both are done, and says whether they were; if not, the link is reset.
pub(crate) async fn between(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut link: Link,
    in_flight: &InFlight,
    activity: &Activity,
) -> bool {
    let upstream = in_flight.upstream();
    if let Link::Near(stream) = &link {
        let _ = set_socket_keepalive(stream, true);
    }
    let is_done = tokio::select! {
        carried = relay(client, &mut link, &upstream.meter, activity) => carried.is_ok(),
        () = upstream.cut() => false,
    };
    if !is_done {
        link.reset();
    }
    is_done
}
