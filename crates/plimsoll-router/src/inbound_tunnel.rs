//! The receiving end of a tunnel: a stream that another node opened to an upstream on this node.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncWriteExt, split};

use crate::activity::Activity;
use crate::connect::{ConnectTimeout, UpstreamStream, dial};
use crate::core::RouterCore;
use crate::table::{ANY_PORT, Protocol};
use crate::tunnel::{ByteStream, receive_datagram, send_datagram};
use crate::upstream::{InFlight, Upstream, UpstreamKey, UpstreamTarget};
use crate::{tcp, udp};

/// Why a tunnel from another node is refused.
#[derive(Debug, thiserror::Error)]
pub enum InboundTunnelError {
    #[error("{0} is not running on this node")]
    Unknown(UpstreamKey),
    #[error("{0} is stopping")]
    Stopping(UpstreamKey),
    #[error("cannot connect to {key}")]
    Connect { key: UpstreamKey, source: io::Error },
}

/// A connection to an upstream on this node, made before the other node is told that the tunnel is open.
#[derive(Debug)]
pub struct InboundTunnel {
    in_flight: InFlight,
    transport: InboundTransport,
}

enum InboundTransport {
    Tcp(UpstreamStream),
    Udp(tokio::net::UdpSocket),
}

impl std::fmt::Debug for InboundTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            Self::Udp(_) => "Udp",
        })
    }
}

/// Connects for a tunnel that is about to open. Whether the upstream is ready is decided by the node that asks: it may learn
/// of a drain later than this one, and what it sends until then is still served, unless the upstream is stopping.
pub(crate) async fn accept(
    core: &RouterCore,
    key: &UpstreamKey,
    protocol: Protocol,
) -> Result<InboundTunnel, InboundTunnelError> {
    let (upstream, address) =
        local(core, key).ok_or_else(|| InboundTunnelError::Unknown(key.clone()))?;
    let in_flight =
        upstream.begin_if_open().ok_or_else(|| InboundTunnelError::Stopping(key.clone()))?;
    let transport = match protocol {
        Protocol::Tcp => {
            let connecting = dial(core, &upstream, key.port, protocol, ConnectTimeout::Full);
            connecting.await.map(InboundTransport::Tcp)
        }
        Protocol::Udp => udp::connected(address).await.map(InboundTransport::Udp),
    };
    match transport {
        Ok(transport) => Ok(InboundTunnel { in_flight, transport }),
        Err(source) => Err(InboundTunnelError::Connect { key: key.clone(), source }),
    }
}

/// The upstream of that key, or the one for any port of its container, and the port's address.
fn local(core: &RouterCore, key: &UpstreamKey) -> Option<(Arc<Upstream>, SocketAddr)> {
    let table = core.table.load();
    let find = |wanted: &UpstreamKey| {
        let all = table.pools().flat_map(|pool| pool.all());
        all.filter(|(upstream, _)| upstream.key() == wanted).find_map(|(upstream, _)| {
            let UpstreamTarget::Local(address) = upstream.target() else { return None };
            Some((Arc::clone(upstream), upstream.key().address(*address, key.port)))
        })
    };
    find(key).or_else(|| find(&key.at(ANY_PORT)))
}

impl InboundTunnel {
    /// Copies both ways until both sides have closed, and says whether they have. If not, the stream must end in an error on
    /// the other node as well, so that nobody there takes the cut for a regular end.
    pub async fn carry(self, stream: &mut impl ByteStream) -> bool {
        match self.transport {
            InboundTransport::Tcp(link) => {
                // How long a client may be silent is watched where it is connected.
                let (activity, is_over) = (Activity::default(), std::future::pending());
                tcp::copy_both_ways(stream, link, &self.in_flight, &activity, is_over).await
            }
            InboundTransport::Udp(socket) => {
                let upstream = self.in_flight.upstream();
                let ended = tokio::select! {
                    ended = unframe(stream, &socket) => ended,
                    () = upstream.cut() => Ok(()),
                };
                if let Err(error) = &ended {
                    tracing::debug!(%error, ?upstream, "a UDP session for another node failed");
                }
                ended.is_ok()
            }
        }
    }
}

async fn unframe(stream: &mut impl ByteStream, socket: &tokio::net::UdpSocket) -> io::Result<()> {
    let (mut from, mut to) = split(stream);
    let send = async {
        while let Some(datagram) = receive_datagram(&mut from).await? {
            socket.send(&datagram).await?;
        }
        Ok(())
    };
    let back = async {
        loop {
            send_datagram(&mut to, &udp::receive(socket).await?).await?;
        }
    };
    let ended = tokio::select! {
        ended = send => ended,
        failed = back => failed,
    };
    // The other node learns of the end, whichever side caused it.
    to.shutdown().await?;
    ended
}
