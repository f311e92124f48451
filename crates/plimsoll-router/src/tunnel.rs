//! Tunnels to upstreams on other nodes. The router asks for a stream to an upstream by its key; who implements [`Tunnel`]
//! has the connections between nodes. Datagrams are sent on such a stream in frames.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::table::Protocol;
use crate::upstream::UpstreamKey;

/// A stream of bytes both ways.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// The upstream that a tunnel leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUpstream {
    pub node: Arc<str>,
    pub upstream: UpstreamKey,
    /// Datagrams come as frames: see [`send_datagram`].
    pub protocol: Protocol,
}

impl fmt::Display for RemoteUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.upstream, self.node)
    }
}

pub type TunnelFuture<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'a>>;

/// The connections between nodes.
pub trait Tunnel: Send + Sync + 'static {
    /// A stream to the upstream, open once its node has connected to it. An error of the kind `ConnectionRefused` is about
    /// the upstream; any other is about its node, and so about all upstreams there.
    fn open(&self, to: RemoteUpstream) -> TunnelFuture<'_>;
}

/// For a cell of one node.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTunnel;

impl Tunnel for NoTunnel {
    fn open(&self, to: RemoteUpstream) -> TunnelFuture<'_> {
        let text = format!("cannot reach {to}: this node is not connected to others");
        Box::pin(async { Err(io::Error::new(io::ErrorKind::NotConnected, text)) })
    }
}

/// Writes one datagram to a stream: its length in two bytes, then its bytes.
pub async fn send_datagram(to: &mut (impl AsyncWrite + Unpin), datagram: &[u8]) -> io::Result<()> {
    let length = u16::try_from(datagram.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(datagram).await?;
    to.flush().await
}

/// Reads the next datagram from a stream; none at its end. Not cancel-safe.
pub async fn receive_datagram(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 2];
    match from.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let mut datagram = vec![0; usize::from(u16::from_be_bytes(length))];
    from.read_exact(&mut datagram).await?;
    Ok(Some(datagram))
}

#[cfg(test)]
mod tests {
    use plimsoll_fuzz::Fuzz;

    use super::*;

    #[test]
    fn no_broken_frame_of_a_tunnel_makes_datagrams_that_were_not_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut stream = Vec::new();
        for datagram in [&b"first"[..], b"", &[7; 300], b"last"] {
            runtime.block_on(send_datagram(&mut stream, datagram)).unwrap();
        }
        Fuzz::new("tunnel").one_of(4).input(stream).run(|input| {
            let (mut rest, mut taken) = (input, Vec::new());
            while let Ok(Some(datagram)) = runtime.block_on(receive_datagram(&mut rest)) {
                runtime.block_on(send_datagram(&mut taken, &datagram)).unwrap();
            }
            assert!(input.starts_with(&taken), "each as it was framed, and no more");
        });
    }
}
