//! The PROXY protocol, version 2: a header before the client's own bytes that says who the client is. It is written by the
//! router that the client is connected to, also where the replica is on another node: the tunnel between nodes carries it
//! like any other byte, so nobody but a node of the cell can put it there.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What every header begins with: no request of a protocol that is in use does.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, on behalf of a client.
const PROXY: u8 = 0x21;

/// Version 2, on the sender's own behalf.
const OWN: u8 = 0x20;

const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// The header of a connection that is nobody's: the router only looks whether the server is there.
pub(crate) const LOCAL: [u8; 16] = {
    let mut header = [0; 16];
    let mut at = 0;
    while at < SIGNATURE.len() {
        header[at] = SIGNATURE[at];
        at += 1;
    }
    header[SIGNATURE.len()] = OWN;
    header
};

/// Where a client's connection comes from, and where the client meant it to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientEnds {
    src: SocketAddr,
    dst: SocketAddr,
}

impl ClientEnds {
    /// Those of an accepted connection, of which the client asked for `port`; none once it is reset.
    pub(crate) fn of(client: &TcpStream, port: u16) -> Option<Self> {
        let (src, dst) = (client.peer_addr().ok()?, client.local_addr().ok()?);
        Some(Self::new(src, SocketAddr::new(dst.ip(), port)))
    }

    /// A listener for both kinds of addresses sees an IPv4 client as an IPv6 address that stands for it.
    fn new(src: SocketAddr, dst: SocketAddr) -> Self {
        let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        Self { src: plain(src), dst: plain(dst) }
    }

    /// The header for a server.
    pub(crate) fn header(self) -> Vec<u8> {
        let Self { src, dst } = self;
        let (family, addresses) = match (src.ip(), dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                (TCP_OVER_IPV4, [src.octets(), dst.octets()].concat())
            }
            (src, dst) => (TCP_OVER_IPV6, [as_v6(src), as_v6(dst)].concat()),
        };
        let ports = [src.port().to_be_bytes(), dst.port().to_be_bytes()].concat();
        let length = u16::try_from(addresses.len() + ports.len()).expect("at most 36 bytes");
        let length = length.to_be_bytes();
        [&SIGNATURE[..], &[PROXY, family], &length, &addresses, &ports].concat()
    }
}

fn as_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Writes a header to a connection that has carried nothing yet.
pub(crate) async fn send(
    link: &mut (impl AsyncWrite + Unpin),
    header: &[u8],
    wait: Duration,
) -> io::Result<()> {
    let sending = async {
        // All at once: servers are allowed to expect it in one piece.
        link.write_all(header).await?;
        link.flush().await
    };
    timeout(wait, sending).await.map_err(io::Error::from).flatten()
}

#[cfg(test)]
mod tests;
