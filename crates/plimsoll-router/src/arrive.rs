//! The other end of a tunnel: a stream that another node opened to an upstream on this one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncWriteExt, split};

use crate::connect::{Link, Patience, dial};
use crate::core::Core;
use crate::seat::Activity;
use crate::table::{ANY, Protocol};
use crate::tunnel::{Stream, receive_datagram, send_datagram};
use crate::upstream::{InFlight, Target, Upstream, UpstreamKey};
use crate::{tcp, udp};

/// Why a stream that another node asks for is not opened.
#[derive(Debug, thiserror::Error)]
pub enum ArriveError {
    #[error("{0} does not run on this node, or not any more")]
    Unknown(UpstreamKey),
    #[error("{0} is about to stop")]
    Leaves(UpstreamKey),
    #[error("cannot connect to {key}")]
    Connect { key: UpstreamKey, source: io::Error },
}

/// A connection to an upstream on this node, made for another one before it is told that the way is open.
#[derive(Debug)]
pub struct Arrival {
    in_flight: InFlight,
    way: Way,
}

enum Way {
    Stream(Link),
    Datagrams(tokio::net::UdpSocket),
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stream(_) => "Stream",
            Self::Datagrams(_) => "Datagrams",
        })
    }
}

/// Connects for a stream that is about to come. Whether the upstream takes requests is settled by the node that asks:
/// it may know of a drain later than this one, and what it sends then is still served, until it is about to stop.
pub(crate) async fn arrive(
    core: &Core,
    key: &UpstreamKey,
    protocol: Protocol,
) -> Result<Arrival, ArriveError> {
    let (upstream, address) = local(core, key).ok_or_else(|| ArriveError::Unknown(key.clone()))?;
    let in_flight = upstream.begin_if_open().ok_or_else(|| ArriveError::Leaves(key.clone()))?;
    let way = match protocol {
        Protocol::Tcp => {
            let dialling = dial(core, &upstream, key.port, protocol, Patience::Full);
            dialling.await.map(Way::Stream)
        }
        Protocol::Udp => udp::connected(address).await.map(Way::Datagrams),
    };
    match way {
        Ok(way) => Ok(Arrival { in_flight, way }),
        Err(source) => Err(ArriveError::Connect { key: key.clone(), source }),
    }
}

/// The upstream of that key, or the one that stands for all ports of its container; and where the port is.
fn local(core: &Core, key: &UpstreamKey) -> Option<(Arc<Upstream>, SocketAddr)> {
    let table = core.table.load();
    let find = |wanted: &UpstreamKey| {
        let all = table.pools().flat_map(|pool| pool.all());
        all.filter(|(upstream, _)| upstream.key() == wanted).find_map(|(upstream, _)| {
            let Target::Local(address) = upstream.target() else { return None };
            Some((Arc::clone(upstream), upstream.key().address(*address, key.port)))
        })
    };
    find(key).or_else(|| find(&key.at(ANY)))
}

impl Arrival {
    /// Carries until both sides are done, and says whether they were. If not, the stream must end in an error on the
    /// other node as well, so that nobody there takes a cut for an end.
    pub async fn carry(self, stream: &mut impl Stream) -> bool {
        match self.way {
            Way::Stream(link) => {
                tcp::between(stream, link, &self.in_flight, &Activity::default()).await
            }
            Way::Datagrams(socket) => {
                let upstream = self.in_flight.upstream();
                let ended = tokio::select! {
                    ended = unframe(stream, &socket) => ended,
                    () = upstream.cut() => Ok(()),
                };
                if let Err(error) = &ended {
                    tracing::debug!(%error, ?upstream, "a session for another node ended early");
                }
                ended.is_ok()
            }
        }
    }
}

async fn unframe(stream: &mut impl Stream, socket: &tokio::net::UdpSocket) -> io::Result<()> {
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
    // The other node learns that it is over, whichever side said so.
    to.shutdown().await?;
    ended
}
