//! How bytes reach an upstream on another node. The router asks for a stream to it by key; who implements [`Tunnel`]
//! has the connections between nodes and their keys. Datagrams travel on such a stream in frames.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::table::Protocol;
use crate::upstream::UpstreamKey;

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What the other node is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Far {
    pub node: Arc<str>,
    pub upstream: UpstreamKey,
    /// Datagrams come as frames: see [`send_datagram`].
    pub protocol: Protocol,
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.upstream, self.node)
    }
}

pub type Opening<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// The connections between nodes.
pub trait Tunnel: Send + Sync + 'static {
    /// A stream to the upstream, open once its node has connected to it. An error of the kind `ConnectionRefused` is the
    /// upstream's own; any other is one of its node, and of all that is reached through it.
    fn open(&self, far: Far) -> Opening<'_>;
}

/// For a node that is alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTunnel;

impl Tunnel for NoTunnel {
    fn open(&self, far: Far) -> Opening<'_> {
        let text = format!("cannot reach {far}: this node has no connections to others");
        Box::pin(async { Err(io::Error::new(io::ErrorKind::NotConnected, text)) })
    }
}

/// One datagram onto a stream: its length in two bytes, then itself.
pub async fn send_datagram(to: &mut (impl AsyncWrite + Unpin), datagram: &[u8]) -> io::Result<()> {
    let length = u16::try_from(datagram.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(datagram).await?;
    to.flush().await
}

/// The next datagram from a stream; none at its end. Not to be given up half way.
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
