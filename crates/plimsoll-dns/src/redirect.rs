//! Accepts the connections to virtual IPs, at any port, that the kernel redirects here, and hands them to the router.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_router::PoolKey;
use plimsoll_runtime::Bridge;
use rustix::net::sockopt::ip_original_dst;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::DnsInner;
use crate::resolver::{self, Recursion};

/// How long to wait after a failed accept: the process may be out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Accepts for as long as it is polled. Connections that were accepted outlive it.
pub(crate) async fn serve(inner: Arc<DnsInner>, bridge: Arc<Bridge>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(carry(Arc::clone(&inner), Arc::clone(&bridge), client));
            }
            Err(error) => {
                tracing::warn!(network = bridge.name, %error, "cannot accept a connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn carry(inner: Arc<DnsInner>, bridge: Arc<Bridge>, client: TcpStream) {
    // The destination before the kernel redirected it.
    let Ok(destination) = ip_original_dst(&client) else { return reset(&client) };
    if let Some(recursion) = resolver_at(&bridge, destination) {
        return resolver::serve_stream(&inner, &bridge, client, recursion).await;
    }
    // A network reaches the virtual IPs of its own services, and of no other network's.
    let is_ours = bridge.virtual_block.contains(*destination.ip());
    let service = inner.service(&bridge, *destination.ip()).filter(|_| is_ours);
    let Some(service) = service else { return reset(&client) };
    inner.wait_for_directory(&bridge.name).await;
    match inner.router().await {
        Some(router) => router.carry(client, &PoolKey::any(&service), destination.port()).await,
        None => reset(&client),
    }
}

fn resolver_at(bridge: &Bridge, destination: SocketAddrV4) -> Option<Recursion> {
    if destination.port() != resolver::PORT {
        return None;
    }
    let open = (bridge.resolver() == *destination.ip()).then_some(Recursion::Forward);
    open.or_else(|| (bridge.strict_resolver() == *destination.ip()).then_some(Recursion::Refuse))
}

/// As a port that nobody listens on would.
fn reset(client: &TcpStream) {
    let _ = client.set_zero_linger();
}
