//! The first moments of an operator's connection. It is TLS or nothing: a request in the clear is told where to go, and
//! neither it nor the token it may hold is looked at.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::access::Digest;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::log_throttle::{ConnectionFailure, LogThrottle};
use super::tls::{Opening, trouble};
use crate::pki::{self, Credentials};

/// How long a handshake may take: operators may be far away, and behind slow lines.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much of a request in the clear is read and thrown away, and for how long: who is cut off while it sends does not read
/// the answer.
const DISCARDED: u64 = 64 << 10;
const DISCARDING: Duration = Duration::from_secs(1);

/// What who speaks in the clear is told.
const PLAIN: &str = "this port speaks TLS only: use https://, and `plimsoll login STRING` with what `plimsoll token create` \
                     prints; a token sent in the clear is known to others, revoke it\n";

/// The door of one node. Its certificate is the node's own, as it is at the moment.
#[derive(Debug, Clone)]
pub struct OperatorDoor {
    tls: Arc<ServerConfig>,
    quiet: Arc<LogThrottle>,
}

impl OperatorDoor {
    pub fn new(credentials: &Credentials) -> Result<Self, pki::Error> {
        Ok(Self { tls: Arc::new(credentials.operator_config()?), quiet: Arc::default() })
    }

    /// Whoever passes, with what their certificate makes them known by where they show one; who does not pass is noted.
    pub async fn receive(
        &self,
        stream: TcpStream,
        remote: SocketAddr,
    ) -> Option<(TlsStream<TcpStream>, Option<Digest>)> {
        match timeout(PATIENCE, self.shake(stream, remote)).await {
            Ok(Ok(stream)) => {
                let stream = stream?;
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let key = shown.and_then(|certificate| pki::operator_key(certificate).ok());
                Some((stream, key))
            }
            Ok(Err(error)) => {
                // An operator who does not believe this node, or looks with another tool, says so at their own end.
                if let Some(trouble) = trouble(&error)
                    && trouble != ConnectionFailure::RefusesUs
                {
                    self.quiet.note(trouble, Some(remote), &error);
                }
                None
            }
            Err(late) => {
                self.quiet.note(ConnectionFailure::Slow, Some(remote), &late);
                None
            }
        }
    }

    /// That somebody had to go for this one.
    pub fn note_crowd(&self, remote: SocketAddr, at_once: usize) {
        self.quiet.note(ConnectionFailure::Crowded, Some(remote), &at_once);
    }

    /// That there was no room for this one.
    pub fn note_full(&self, remote: SocketAddr) {
        self.quiet.note(ConnectionFailure::TooManyConnections, Some(remote), &"closed");
    }

    async fn shake(
        &self,
        stream: TcpStream,
        remote: SocketAddr,
    ) -> io::Result<Option<TlsStream<TcpStream>>> {
        // Small answers must not wait for the acknowledgement of others.
        stream.set_nodelay(true)?;
        let opening = Opening::of(&stream).await?;
        if let Some(trouble) = opening.failure() {
            self.quiet.note(trouble, Some(remote), &"closed");
        }
        match opening {
            Opening::Tls => TlsAcceptor::from(Arc::clone(&self.tls)).accept(stream).await.map(Some),
            Opening::Plaintext => redirect(stream).await.map(|()| None),
            Opening::Other | Opening::Nothing => Ok(None),
        }
    }
}

async fn redirect(mut stream: TcpStream) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{PLAIN}",
        PLAIN.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let mut rest = stream.take(DISCARDED);
    let discarded = async { tokio::io::copy(&mut rest, &mut tokio::io::sink()).await };
    // Whoever goes on is cut off.
    let _ = timeout(DISCARDING, discarded).await;
    Ok(())
}
