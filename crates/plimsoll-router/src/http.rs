//! HTTP routes: accepts clients on a listener, reads their requests, and proxies them to an upstream. The protocol is
//! hyper's; the choice of upstreams, retries, timeouts and limits are ours.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::connection_limit::ConnectionUse;
use crate::core::RouterCore;
use crate::sockets::SharedSocket;
use crate::tcp::ACCEPT_RETRY;
use crate::{RouterStage, stops_accepting};

mod acme;
mod connection;
mod error_page;
mod forward;
mod head;
mod path;
mod proxy;
mod request_body;
mod response_body;
mod streams;
mod tls;
mod upgrade;
mod upstream_connections;

pub(crate) use connection::ClientConnection;
pub(crate) use upstream_connections::UpstreamConnections;

/// Whether a listener speaks TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpListenerKind {
    /// Without TLS. Serves routes without TLS; requests for others are redirected to the HTTPS port, if there is one.
    Plain { https_port: Option<u16> },
    /// With TLS and the certificate of the route's host. Serves routes with TLS.
    Tls,
}

/// Accepts clients while the stage is open.
pub(crate) async fn serve(
    core: Arc<RouterCore>,
    listener: SharedSocket<TcpListener>,
    kind: HttpListenerKind,
    stage: watch::Receiver<RouterStage>,
) {
    let share = core.connection_limit.port();
    let acceptor = (kind == HttpListenerKind::Tls).then(|| tls::acceptor(&core));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stops_accepting(stage.clone()) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                let (limit, roll) = (&core.connection_limit, core.roll());
                let Some(source) = limit.admit(&stream, from.ip(), roll).await else { continue };
                let slot = limit.acquire(source, &share, ConnectionUse::Http, roll).await;
                let client = ClientConnection::new(Arc::clone(&core), slot, kind, from);
                tokio::spawn(receive(client, stream, acceptor.clone(), stage.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn receive(
    client: ClientConnection,
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    stage: watch::Receiver<RouterStage>,
) {
    // Small responses must not wait for the acknowledgement of earlier ones.
    let _ = stream.set_nodelay(true);
    let client = Arc::new(client);
    let served = async {
        match acceptor {
            None => connection::plain(&client, stream, stage).await,
            Some(acceptor) => tls::secure(&client, &acceptor, stream, stage).await,
        }
    };
    tokio::select! {
        () = served => {}
        () = client.resets_too_many() => tracing::debug!(from = %client.from, "closing a connection that resets its requests"),
        () = client.times_out() => tracing::debug!(from = %client.from, "closing a connection that timed out"),
    }
}

/// The client's address in `X-Forwarded-For`.
fn client_address(from: SocketAddr) -> String {
    // On a dual-stack socket an IPv4 client has an IPv4-mapped IPv6 address.
    from.ip().to_canonical().to_string()
}
