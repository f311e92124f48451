//! What an ACME authority asks for, and what a stranger gets who asks for it too.

use std::sync::Arc;

use plimsoll_router::{
    AcmeProof, HttpListenerKind, NoTunnel, RouteConfig, RouteTls, Router, RouterConfig,
    RouterLimits, RouterStage,
};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::kit::{Server, Site, everything, mirror};
use super::secure::{certificate, shake};
use crate::kit::{address, inside, web};

fn auto(host: &str) -> RouteConfig {
    RouteConfig { host: Some(host.to_owned()), tls: RouteTls::Auto, ..everything() }
}

#[tokio::test]
async fn a_token_is_answered_before_redirects_and_an_unknown_one_with_404() {
    let server = Server::new(mirror).await;
    let own = RouteConfig { host: Some("own.example".to_owned()), ..everything() };
    let routes = vec![auto("one.example"), own];
    let members = [inside("web-1", server.at)];
    let site = Site::with(RouterLimits::default(), Arc::new(NoTunnel), routes, &members).await;
    let proof = AcmeProof::Http { token: "abc".to_owned(), proof: "abc.thumb".to_owned() };
    site.router.update(&RouterConfig {
        pools: [(web(), members.as_slice().into())].into(),
        routes: site.routes.clone(),
        challenges: [("one.example".to_owned(), proof)].into(),
        ..RouterConfig::default()
    });
    let path = "/.well-known/acme-challenge";
    for (request, host, status) in [
        (format!("GET {path}/abc"), "one.example", 200),
        (format!("GET {path}/abc"), "one.example:80", 200),
        (format!("GET {path}/abc?x=y"), "one.example", 200),
        (format!("POST {path}/abc"), "one.example", 404),
        (format!("GET {path}/abd"), "one.example", 404),
        (format!("GET {path}/"), "one.example", 404),
        (format!("GET {path}/%2e%2e/%2e%2e/abc"), "one.example", 400),
        (format!("GET {path}/abc"), "two.example", 404),
        ("GET /".to_owned(), "one.example", 308),
    ] {
        let method = request.split(' ').next().unwrap_or_default();
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let close = "Connection: close\r\n";
        let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\n{length}{close}\r\n");
        let answer = site.ask(&head).await;
        assert_eq!(answer.status, status, "{request} {host}: {}", answer.body);
        assert_eq!(answer.body == "abc.thumb", status == 200, "{request}");
    }
    let answer = site.ask(&format!("GET {path}/abc HTTP/1.1\r\nHost: own.example\r\n\r\n")).await;
    assert_eq!(answer.status, 200);
    assert_ne!(answer.body, "abc.thumb", "who sees to its own certificates is asked itself");
}

#[tokio::test]
async fn an_authority_gets_its_certificate_and_every_client_the_hosts_own() {
    let router = Router::new(RouterLimits::default(), Arc::new(NoTunnel));
    let at = address();
    let listener = TcpListener::bind(at).await.unwrap();
    let (_stage, stages) = watch::channel(RouterStage::Open);
    let serving = router.clone();
    tokio::spawn(async move { serving.serve(listener, HttpListenerKind::Tls, stages).await });
    let (own, trusts_own) = certificate("one.example");
    let (proof, trusts_proof) = certificate("one.example");
    router.update(&RouterConfig {
        routes: vec![auto("one.example"), auto("two.example")],
        certificates: [("one.example".to_owned(), own)].into(),
        challenges: [("one.example".to_owned(), AcmeProof::Tls(proof))].into(),
        ..RouterConfig::default()
    });
    let asks: &[&[u8]] = &[b"acme-tls/1"];
    let both: &[&[u8]] = &[b"acme-tls/1", b"http/1.1"];
    let (own, proof) = ([trusts_own], [trusts_proof]);
    assert!(shake(at, "one.example", &proof, asks).await.is_ok());
    assert!(shake(at, "one.example", &own, both).await.is_ok(), "a client that offers it too");
    assert!(shake(at, "one.example", &own, &[b"http/1.1"]).await.is_ok());
    assert!(shake(at, "one.example", &own, asks).await.is_err(), "it is not the host's own");
    assert!(shake(at, "two.example", &own, asks).await.is_err(), "nobody asks for it");
}
