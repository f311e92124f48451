//! The door with TLS: certificates are the table's, so that a new one is used from the next connection on.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::wire::Watched;
use super::{Guest, attend};
use crate::Stage;
use crate::core::Core;

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

struct Certificates(Arc<Core>);

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates")
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.table.load().certificate(hello.server_name().unwrap_or_default()).cloned()
    }
}

pub(super) fn acceptor(core: &Arc<Core>) -> TlsAcceptor {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has what these versions need")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Certificates(Arc::clone(core))));
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A client under TLS, who says in the handshake which version it speaks.
pub(super) async fn secure(
    guest: &Arc<Guest>,
    acceptor: &TlsAcceptor,
    client: TcpStream,
    stage: watch::Receiver<Stage>,
) {
    let handshake = timeout(guest.core.limits.header_read, acceptor.accept(client)).await;
    let stream = match handshake.map_err(io::Error::from).flatten() {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, from = %guest.from, "a handshake failed");
            return;
        }
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let io = Watched::new(stream, Arc::clone(&guest.seat), Bytes::new(), is_http2);
    Box::pin(attend::serve(guest, io, is_http2, stage)).await;
}
