//! Opens a connection: TCP, TLS, HTTP/2, within one time limit. It counts as open once the other side has said
//! something, for only then has it accepted our certificate.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::NOMINAL;
use super::body::Outgoing;
use super::error::Error;
use super::purpose::Purpose;

/// Fewer and larger frames for large bodies.
const FRAME: u32 = 64 << 10;

/// The headers of an answer are a few lines.
const MAX_HEADERS: u32 = 16 << 10;

/// How many streams we take to be welcome until the other side has said.
const STREAMS_AT_FIRST: usize = 64;

/// What of an answer's first bytes is read ahead: any of them will do.
const PEEK: usize = 16;

/// After so much silence a node is asked whether it is there, where requests wait for it.
const TUNNEL_PING: Duration = Duration::from_millis(500);

/// How a client watches its connections.
#[derive(Debug, Clone, Copy)]
pub struct DialOptions {
    /// For TCP, TLS and the first sign of HTTP/2 together.
    pub connect_within: Duration,
    /// After this much silence the other side is asked whether it is there.
    pub ping_after: Duration,
    /// Without an answer within this, it is not.
    pub pong_within: Duration,
    pub carries: Purpose,
}

impl Default for DialOptions {
    /// A dead peer is noticed within four seconds; a slow but living one is not given up.
    fn default() -> Self {
        Self {
            connect_within: Duration::from_secs(2),
            ping_after: Duration::from_secs(2),
            pong_within: Duration::from_secs(2),
            carries: Purpose::Requests,
        }
    }
}

impl DialOptions {
    /// The same for connections that carry tunnels.
    pub fn for_tunnels(self) -> Self {
        let ping_after = self.ping_after.min(TUNNEL_PING);
        Self { carries: Purpose::Tunnels, ping_after, ..self }
    }

    /// After this, a node that fell silent is known to be gone.
    pub fn noticed_within(&self) -> Duration {
        self.ping_after + self.pong_within
    }
}

/// An open connection, and what the other side showed. The connection ends once nobody can use it any more.
#[derive(Debug)]
pub(super) struct Dialed {
    pub(super) sender: SendRequest<Outgoing>,
    pub(super) shown: Vec<CertificateDer<'static>>,
    /// Ends with the connection.
    pub(super) carried: JoinHandle<()>,
}

pub(super) async fn dial(
    to: &Arc<str>,
    address: &str,
    tls: Arc<ClientConfig>,
    options: &DialOptions,
) -> Result<Dialed, Error> {
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    let secured = timeout(options.connect_within, secure(address, tls)).await;
    let stream = secured.unwrap_or_else(late).map_err(|error| Error::connecting(to, error))?;
    let shown = stream.get_ref().get_ref().1.peer_certificates();
    let shown = shown.unwrap_or_default().iter().map(|it| it.clone().into_owned()).collect();
    let windows = options.carries.windows();
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(windows.stream)
        .initial_connection_window_size(windows.connection)
        .initial_max_send_streams(STREAMS_AT_FIRST)
        .max_frame_size(FRAME)
        .max_header_list_size(MAX_HEADERS)
        .keep_alive_interval(options.ping_after)
        .keep_alive_timeout(options.pong_within)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Error::closed(to, error))?;
    let to = Arc::clone(to);
    let carried = tokio::spawn(async move {
        if let Err(error) = connection.await {
            // Whoever waits for an answer hears of it and says so.
            tracing::debug!(%to, %error, "a connection to a peer has broken");
        }
    });
    Ok(Dialed { sender, shown, carried })
}

type Secured = BufReader<tokio_rustls::client::TlsStream<TcpStream>>;

async fn secure(address: &str, tls: Arc<ClientConfig>) -> io::Result<Secured> {
    let stream = TcpStream::connect(address).await?;
    // Small requests must not wait for the acknowledgement of others.
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(NOMINAL).expect("this is a name");
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    let mut stream = BufReader::with_capacity(PEEK, stream);
    if stream.fill_buf().await?.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(stream)
}
