use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_model::Millis;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::OperatorDoor;
use crate::pki::testkit::{cell, now};
use crate::pki::{Credentials, Fingerprint, NODE_LIFETIME, operator_client_config};

/// A door that says hello to whoever passes.
async fn door(credentials: &Credentials) -> SocketAddr {
    let door = OperatorDoor::new(credentials).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, remote)) = listener.accept().await {
            let door = door.clone();
            tokio::spawn(async move {
                if let Some(mut stream) = door.receive(stream, remote).await {
                    let _ = stream.0.write_all(b"hello").await;
                    let _ = stream.0.shutdown().await;
                }
            });
        }
    });
    address
}

/// What is said there, and the certificate that was shown.
async fn visit(address: SocketAddr, tls: Arc<ClientConfig>) -> std::io::Result<(String, Vec<u8>)> {
    let stream = TcpStream::connect(address).await?;
    let name = "node.plimsoll.internal".try_into().unwrap();
    let mut stream = TlsConnector::from(tls).connect(name, stream).await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    Ok((said, shown))
}

#[tokio::test]
async fn an_operator_believes_any_of_the_authorities_they_know_and_no_other() {
    let (blue, other) = (cell("blue"), cell("blue"));
    let address = door(&blue.node("ash")).await;
    for (prints, is_believed) in [
        (vec![blue.fingerprint()], true),
        (vec![other.fingerprint(), blue.fingerprint()], true),
        (vec![other.fingerprint()], false),
        (vec![Fingerprint::of(b"nobody")], false),
        (vec![], false),
    ] {
        let visited = visit(address, operator_client_config(&prints).unwrap()).await;
        assert_eq!(visited.is_ok(), is_believed, "{prints:?}");
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_from_the_next_connection_on() {
    let blue = cell("blue");
    let identity = blue.identity("ash", now(), Millis::minutes(60));
    let credentials = Credentials::new(&identity).unwrap();
    let address = door(&credentials).await;
    let tls = operator_client_config(&[blue.fingerprint()]).unwrap();
    assert_eq!(visit(address, Arc::clone(&tls)).await.unwrap().1, identity.certificate().to_vec());
    let (key, csr) = identity.another().unwrap();
    let node = crate::pki::testkit::node("ash");
    let certificate = blue.issue(&csr, &node, now(), NODE_LIFETIME).unwrap();
    let renewed = crate::pki::Identity::new(key, certificate, blue.certificate().clone()).unwrap();
    credentials.renew(&renewed).unwrap();
    let (said, shown) = visit(address, tls).await.unwrap();
    assert_eq!((said.as_str(), shown), ("hello", renewed.certificate().to_vec()));
}

#[tokio::test]
async fn a_request_in_the_clear_is_told_where_to_go() {
    let blue = cell("blue");
    let address = door(&blue.node("ash")).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("POST /v1/x HTTP/1.1\r\ncontent-length: 99999\r\n\r\n{}", "x".repeat(9_999));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("plimsoll login"), "{answer}");
    assert!(!answer.contains("hello"), "{answer}");
}
