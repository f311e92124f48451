//! The door with TLS.

use std::sync::Arc;

use plimsoll_router::{
    HttpListenerKind, NoTunnel, RouteConfig, RouteTls, Router, RouterConfig, RouterLimits,
    RouterStage,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::kit::{Server, everything, hear, mirror};
use super::second::speak;
use crate::kit::{address, connect, inside, web};

/// A certificate that signs itself, and what a client has to trust.
pub(crate) fn certificate(host: &str) -> (Arc<CertifiedKey>, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    let trusted = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    (Arc::new(CertifiedKey::new(vec![trusted.clone()], key)), trusted)
}

fn secured(host: &str) -> RouteConfig {
    RouteConfig { host: Some(host.to_owned()), tls: RouteTls::Internal, ..everything() }
}

pub(crate) async fn shake(
    to: std::net::SocketAddr,
    host: &str,
    trusted: &[CertificateDer<'static>],
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for one in trusted {
        roots.add(one.clone()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, connect(to).await).await
}

#[tokio::test]
async fn each_host_has_its_certificate_and_both_versions_are_spoken() {
    let server = Server::new(mirror).await;
    let (one, trusts_one) = certificate("one.example");
    let (wild, trusts_wild) = certificate("*.two.example");
    let router = Router::new(RouterLimits::default(), Arc::new(NoTunnel));
    let at = address();
    let listener = TcpListener::bind(at).await.unwrap();
    let (_stage, stages) = watch::channel(RouterStage::Open);
    let serving = router.clone();
    tokio::spawn(async move { serving.serve(listener, HttpListenerKind::Tls, stages).await });
    router.update(&RouterConfig {
        pools: [(web(), [inside("web-1", server.at)].into())].into(),
        routes: vec![
            secured("one.example"),
            secured("*.two.example"),
            RouteConfig { host: Some("open.two.example".to_owned()), ..everything() },
        ],
        certificates: [("one.example".to_owned(), one), ("*.two.example".to_owned(), wild)].into(),
        ..RouterConfig::default()
    });
    let trusted = [trusts_one, trusts_wild];
    for (host, status) in [("one.example", 200), ("a.two.example", 200), ("open.two.example", 404)]
    {
        let mut stream = shake(at, host, &trusted, &[b"http/1.1"]).await.unwrap();
        let get = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(get.as_bytes()).await.unwrap();
        let heard = hear(&mut stream).await;
        assert_eq!(heard.status, status, "{host}");
        assert_eq!(heard.body.contains("x-forwarded-proto: https\n"), status == 200);
    }
    let stream = shake(at, "one.example", &trusted, &[b"h2", b"http/1.1"]).await.unwrap();
    let mut sender = speak(stream).await;
    let get = hyper::Request::get("https://one.example/").body(super::kit::full("")).unwrap();
    assert_eq!(sender.send_request(get).await.unwrap().status(), 200);
    assert!(shake(at, "three.example", &trusted, &[]).await.is_err(), "no certificate, no talk");
}

#[tokio::test]
async fn who_asks_in_the_clear_for_what_is_secured_is_sent_there() {
    let site = super::kit::Site::with(
        RouterLimits::default(),
        Arc::new(NoTunnel),
        vec![secured("one.example")],
        &[],
    )
    .await;
    let heard = site.ask("GET /x?y HTTP/1.1\r\nHost: one.example\r\n\r\n").await;
    assert_eq!(heard.status, 308);
    assert_eq!(heard.field("location"), Some("https://one.example:8443/x?y"));
}
