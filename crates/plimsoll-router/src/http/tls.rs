//! Listeners with TLS: certificates are those of the table, so that a new one is used from the next connection on.

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

use super::streams::MonitoredStream;
use super::{ClientConnection, acme, connection};
use crate::RouterStage;
use crate::core::RouterCore;

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

struct CertificateResolver(Arc<RouterCore>);

impl fmt::Debug for CertificateResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateResolver")
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let (table, host) = (self.0.table.load(), hello.server_name().unwrap_or_default());
        if acme::is_asking(&hello) {
            return acme::certificate(&table, host);
        }
        table.certificate(host).cloned()
    }
}

pub(super) fn acceptor(core: &Arc<RouterCore>) -> TlsAcceptor {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has what these versions need")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(CertificateResolver(Arc::clone(core))));
    // An authority's comes last: who offers another beside it is a client.
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec(), acme::PROTOCOL.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A client with TLS, which negotiates the HTTP version in the handshake.
pub(super) async fn secure(
    client: &Arc<ClientConnection>,
    acceptor: &TlsAcceptor,
    tcp: TcpStream,
    stage: watch::Receiver<RouterStage>,
) {
    let handshake = timeout(client.core.limits.header_read, acceptor.accept(tcp)).await;
    let stream = match handshake.map_err(io::Error::from).flatten() {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, from = %client.from, "a TLS handshake failed");
            return;
        }
    };
    if stream.get_ref().1.alpn_protocol() == Some(acme::PROTOCOL) {
        // The certificate was all that is asked for.
        return;
    }
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    if is_http2 {
        client.slot.activity.speaks_frames();
    }
    let io = MonitoredStream::new(stream, Arc::clone(&client.slot), Bytes::new(), is_http2);
    Box::pin(connection::serve(client, io, is_http2, stage)).await;
}
