//! HTTP routes: lets clients in at a door, reads what they ask for, and has an upstream answer it. The protocol is
//! hyper's; which upstream, how often, how long and how much is ours.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::core::Core;
use crate::sockets::Held;
use crate::tcp::PAUSE;
use crate::{Stage, is_over};

mod answer;
mod attend;
mod forward;
mod head;
mod links;
mod page;
mod passage;
mod source;
mod tls;
mod upgrade;
mod wire;

pub(crate) use attend::Guest;
pub(crate) use links::Links;

/// How clients come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// In the clear. Serves routes without TLS; who asks for another is sent to the port with it, if there is one.
    Plain { secure_port: Option<u16> },
    /// Under TLS, with the certificate of the route's host. Serves routes with TLS.
    Secure,
}

/// Lets clients in while the stage is open.
pub(crate) async fn serve(
    core: Arc<Core>,
    listener: Held<TcpListener>,
    door: Door,
    stage: watch::Receiver<Stage>,
) {
    let acceptor = (door == Door::Secure).then(|| tls::acceptor(&core));
    loop {
        let accepted = tokio::select! {
            biased;
            () = is_over(stage.clone()) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, from)) => {
                let seat = core.seats.take(core.roll()).await;
                let guest = Guest::new(Arc::clone(&core), seat, door, from);
                tokio::spawn(receive(guest, client, acceptor.clone(), stage.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn receive(
    guest: Guest,
    client: TcpStream,
    acceptor: Option<TlsAcceptor>,
    stage: watch::Receiver<Stage>,
) {
    // Small answers must not wait for the acknowledgement of others.
    let _ = client.set_nodelay(true);
    let guest = Arc::new(guest);
    let served = async {
        match acceptor {
            None => attend::plain(&guest, client, stage).await,
            Some(acceptor) => tls::secure(&guest, &acceptor, client, stage).await,
        }
    };
    tokio::select! {
        () = served => {}
        () = guest.dawdles() => tracing::debug!(from = %guest.from, "a client took too long"),
    }
}

/// Where a client comes from, as upstreams are told.
fn client_address(from: SocketAddr) -> String {
    // A client of version 4 at a door for both looks like one of version 6.
    from.ip().to_canonical().to_string()
}
