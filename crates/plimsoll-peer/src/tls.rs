//! The first moments of a connection to us: is it TLS at all, and who is it? Until that is known somebody costs as
//! little as possible.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::log_throttle::{ConnectionFailure, LogThrottle};
use super::purpose::Purpose;
use crate::pki::{Blame, CertificateRefusal, Credentials, ShownCertificate};

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// What the first byte of a connection says of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Tls,
    /// A request in the clear, by its first letter.
    Plaintext,
    Other,
    /// Somebody who leaves without a word looked whether the port is open, and may.
    Nothing,
}

impl Opening {
    /// Waits for the first byte, and leaves it where it is.
    pub(super) async fn of(stream: &TcpStream) -> io::Result<Self> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Ok(Self::Nothing);
        }
        Ok(match first[0] {
            HANDSHAKE => Self::Tls,
            letter if letter.is_ascii_uppercase() => Self::Plaintext,
            _ => Self::Other,
        })
    }

    /// What is noted of one that goes no further.
    pub(super) fn failure(self) -> Option<ConnectionFailure> {
        match self {
            Self::Tls | Self::Nothing => None,
            Self::Plaintext => Some(ConnectionFailure::Plaintext),
            Self::Other => Some(ConnectionFailure::NotTls),
        }
    }
}

/// Somebody whose handshake is done.
#[derive(Debug)]
pub(super) struct AcceptedConnection {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) remote: SocketAddr,
    /// Who it is; `None` for somebody without a certificate.
    pub(super) shown: Option<ShownCertificate>,
}

impl AcceptedConnection {
    /// Whether it is a node that brings clients.
    pub(super) fn carries_tunnels(&self) -> bool {
        let announced = Purpose::announced(self.stream.get_ref().1.alpn_protocol());
        self.shown.is_some() && announced == Purpose::Tunnels
    }
}

/// What every handshake needs.
#[derive(Debug)]
pub(super) struct TlsHandshaker {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) credentials: Credentials,
    pub(super) patience: Duration,
    pub(super) quiet: Arc<LogThrottle>,
}

impl TlsHandshaker {
    /// Whoever passes; who does not is noted.
    pub(super) async fn receive(
        &self,
        stream: TcpStream,
        remote: SocketAddr,
    ) -> Option<AcceptedConnection> {
        match timeout(self.patience, self.shake(stream, remote)).await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(error)) => {
                if let Some(trouble) = trouble(&error) {
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

    async fn shake(
        &self,
        stream: TcpStream,
        remote: SocketAddr,
    ) -> io::Result<Option<AcceptedConnection>> {
        let opening = Opening::of(&stream).await?;
        if opening != Opening::Tls {
            if let Some(trouble) = opening.failure() {
                self.quiet.note(trouble, Some(remote), &"closed");
            }
            return Ok(None);
        }
        stream.set_nodelay(true)?;
        let stream = TlsAcceptor::from(Arc::clone(&self.tls)).accept(stream).await?;
        match self.credentials.caller_of(stream.get_ref().1.peer_certificates()) {
            Ok(shown) => Ok(Some(AcceptedConnection { stream, remote, shown })),
            Err(error) => {
                self.quiet.note(ConnectionFailure::BadCertificate, Some(remote), &error);
                Ok(None)
            }
        }
    }
}

/// What to call a failure; `None` where somebody merely went away.
pub(super) fn trouble(error: &io::Error) -> Option<ConnectionFailure> {
    Some(match Blame::of(error) {
        Some(Blame::Ours(_)) => ConnectionFailure::RefusesUs,
        Some(Blame::Theirs(CertificateRefusal::Expired | CertificateRefusal::NotYetValid)) => {
            ConnectionFailure::Expired
        }
        Some(Blame::Theirs(
            CertificateRefusal::UnknownAuthority | CertificateRefusal::WrongCell { .. },
        )) => ConnectionFailure::OtherCell,
        Some(Blame::Theirs(_)) => ConnectionFailure::BadCertificate,
        None => match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => return None,
            _ => ConnectionFailure::Handshake,
        },
    })
}
