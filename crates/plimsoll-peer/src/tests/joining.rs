use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::kit::{PATIENCE, Served};
use crate::pki::testkit::{cell, now};
use crate::pki::{Authority, CertificateRefusal, Fingerprint, Identity, NODE_LIFETIME};
use crate::{Error, ask};

/// Shows these certificates to whoever comes, and keeps what it is told.
async fn impostor(identity: &Identity, chain: Vec<CertificateDer<'static>>) -> SocketAddr {
    let key = PrivatePkcs8KeyDer::from(identity.key_for_tests());
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key.into());
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            assert!(acceptor.accept(stream).await.is_err(), "nobody falls for it");
        }
    });
    address
}

async fn refused(fingerprint: Fingerprint, address: SocketAddr) -> CertificateRefusal {
    let asked = ask(fingerprint, &address.to_string(), "/echo", "secret".into(), PATIENCE).await;
    match asked.unwrap_err() {
        Error::Refused { source, .. } => source,
        error => panic!("{error:?}"),
    }
}

fn ash(authority: &Authority) -> Identity {
    authority.identity("ash", now(), NODE_LIFETIME)
}

#[tokio::test]
async fn a_newcomer_believes_any_node_of_the_cell_that_its_token_names() {
    let blue = cell("blue");
    for name in ["ash", "birch"] {
        let served = Served::new(&blue.node(name));
        let address = &served.target.address;
        let asked = ask(blue.fingerprint(), address, "/echo", "hello".into(), PATIENCE).await;
        let introduced = asked.unwrap();
        assert_eq!(introduced.by.to_string(), format!("{name} of cell blue"));
        assert_eq!(introduced.authority, *blue.certificate());
        assert_eq!(introduced.response.good().unwrap(), "hello");
    }
}

#[tokio::test]
async fn a_newcomer_does_not_believe_a_node_of_another_cell() {
    for name in ["green", "blue"] {
        let other = cell(name);
        let served = Served::new(&other.node("ash"));
        let refusal = refused(cell("blue").fingerprint(), served.address).await;
        assert_eq!(refusal, CertificateRefusal::WrongAuthority);
    }
}

#[tokio::test]
async fn a_newcomer_does_not_believe_who_shows_the_authority_but_is_not_signed_by_it() {
    let (blue, own) = (cell("blue"), cell("blue"));
    let identity = ash(&own);
    let both =
        vec![identity.certificate().clone(), own.certificate().clone(), blue.certificate().clone()];
    let address = impostor(&identity, both).await;
    let refusal = refused(blue.fingerprint(), address).await;
    assert_eq!(refusal, CertificateRefusal::WrongCell { says: identity.caller().clone() });
    let only = vec![identity.certificate().clone(), blue.certificate().clone()];
    let address = impostor(&identity, only).await;
    let refusal = refused(blue.fingerprint(), address).await;
    assert_eq!(refusal, CertificateRefusal::WrongCell { says: identity.caller().clone() });
}

#[tokio::test]
async fn a_newcomer_does_not_believe_who_shows_another_nodes_certificate_without_its_key() {
    let blue = cell("blue");
    let (real, own) = (ash(&blue), ash(&cell("blue")));
    let provider = rustls::crypto::ring::default_provider();
    let key = PrivatePkcs8KeyDer::from(own.key_for_tests());
    let key = rustls::crypto::ring::sign::any_ecdsa_type(&key.into()).unwrap();
    let chain = vec![real.certificate().clone(), blue.certificate().clone()];
    let stolen = Arc::new(rustls::sign::CertifiedKey::new(chain, key));
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(stolen)));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { acceptor.accept(listener.accept().await.unwrap().0).await.err() });
    assert_eq!(refused(blue.fingerprint(), address).await, CertificateRefusal::UnknownAuthority);
}

#[tokio::test]
async fn a_server_that_does_not_show_its_authority_is_not_believed() {
    let blue = cell("blue");
    let identity = ash(&blue);
    let address = impostor(&identity, vec![identity.certificate().clone()]).await;
    assert_eq!(refused(blue.fingerprint(), address).await, CertificateRefusal::WrongAuthority);
}

#[tokio::test]
async fn the_authority_itself_is_not_a_node() {
    let blue = cell("blue");
    let parts = blue.to_parts();
    let identity = ash(&blue).with_key_for_tests(parts.key);
    let chain = vec![blue.certificate().clone(), blue.certificate().clone()];
    let address = impostor(&identity, chain).await;
    let refusal = refused(blue.fingerprint(), address).await;
    assert!(
        matches!(refusal, CertificateRefusal::Unacceptable | CertificateRefusal::Nameless),
        "{refusal:?}"
    );
}
