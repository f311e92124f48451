//! Takes connections to the addresses that stand for services, at whichever port, and has them carried.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_router::PoolKey;
use plimsoll_runtime::Bridge;
use rustix::net::sockopt::ip_original_dst;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::Inner;
use crate::resolver::{self, Asks};

/// A listener that cannot accept, for want of files perhaps, rests for so long.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes them for as long as it is polled. Those that were taken go on.
pub(crate) async fn serve(inner: Arc<Inner>, bridge: Arc<Bridge>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(carry(Arc::clone(&inner), Arc::clone(&bridge), client));
            }
            Err(error) => {
                tracing::warn!(network = bridge.name, %error, "cannot accept");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn carry(inner: Arc<Inner>, bridge: Arc<Bridge>, client: TcpStream) {
    // Where it was sent before the kernel led it here.
    let Ok(meant) = ip_original_dst(&client) else { return reset(&client) };
    if let Some(asks) = asks(&bridge, meant) {
        return resolver::serve_stream(&inner, &bridge, client, asks).await;
    }
    // Who is on this network reaches what stands for services of this network, and of no other.
    let is_ours = bridge.virtual_block.contains(*meant.ip());
    let service = inner.service(&bridge, *meant.ip()).filter(|_| is_ours);
    let Some(service) = service else { return reset(&client) };
    inner.until_known(&bridge.name).await;
    match inner.router().await {
        Some(router) => router.carry(client, &PoolKey::any(&service), meant.port()).await,
        None => reset(&client),
    }
}

fn asks(bridge: &Bridge, meant: SocketAddrV4) -> Option<Asks> {
    if meant.port() != resolver::PORT {
        return None;
    }
    let open = (bridge.resolver() == *meant.ip()).then_some(Asks::Others);
    open.or_else(|| (bridge.strict_resolver() == *meant.ip()).then_some(Asks::Nobody))
}

/// As from a port that nobody listens on.
fn reset(client: &TcpStream) {
    let _ = client.set_zero_linger();
}
