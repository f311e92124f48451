//! Connections that become something else.

use std::time::Duration;

use hyper::header::{CONNECTION, UPGRADE};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use plimsoll_router::{RouterLimits, RouterStage, metrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::kit::{Body, Client, Server, Site, full};
use crate::kit::{PATIENCE, draining, eventually, inside, text};

const UPGRADE_HEAD: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Becomes a stream that sends back what it hears; on another path it declines.
async fn socket(mut request: Request<hyper::body::Incoming>) -> Response<Body> {
    if request.uri().path() != "/chat" {
        return Response::new(full("plain"));
    }
    assert_eq!(request.headers()[UPGRADE], "websocket");
    assert!(request.headers().contains_key("sec-websocket-key"));
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(&mut request).await.unwrap();
        let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded));
        tokio::io::copy(&mut from, &mut to).await?;
        to.shutdown().await
    });
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, "upgrade".parse().unwrap());
    response.headers_mut().insert(UPGRADE, "websocket".parse().unwrap());
    response
}

async fn opened(site: &Site) -> Client {
    let mut client = site.client().await;
    let heard = client.ask(UPGRADE_HEAD).await;
    assert_eq!(heard.status, 101);
    assert_eq!(heard.field("upgrade"), Some("websocket"));
    assert_eq!(heard.field("connection"), Some("upgrade"));
    client
}

#[tokio::test]
async fn a_websocket_echoes_and_ends_with_either_side() {
    let server = Server::new(socket).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut client = opened(&site).await;
    for word in ["hello", "again", "x".repeat(100_000).as_str()] {
        client.say(word).await;
        assert_eq!(text(&mut client.0, word.len()).await, word);
    }
    let reading = metrics::read(&site.router.table());
    assert_eq!((reading.routes[0].tunnels, reading.upstreams[0].in_flight), (1, 1));
    client.0.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, client.0.read_to_end(&mut rest)).await.expect("in time").unwrap();
    eventually("nothing is in flight", || {
        let in_flight = metrics::read(&site.router.table()).upstreams[0].in_flight;
        async move { (in_flight == 0).then_some(()) }
    })
    .await;
    assert!(site.router.all_disconnected(PATIENCE).await, "its seat is free");
}

#[tokio::test]
async fn an_upstream_may_decline() {
    let server = Server::new(socket).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut client = site.client().await;
    let heard = client.ask(&UPGRADE_HEAD.replace("/chat", "/other")).await;
    assert_eq!((heard.status, heard.body.as_str()), (200, "plain"));
}

#[tokio::test]
async fn a_tunnel_is_cut_when_the_grace_of_its_upstream_is_over() {
    let server = Server::new(socket).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut client = opened(&site).await;
    site.update(&[draining("web-1", server.at, Duration::from_millis(300))]);
    client.say("still").await;
    assert_eq!(text(&mut client.0, 5).await, "still");
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, client.0.read_to_end(&mut rest)).await.expect("in time");
}

#[tokio::test]
async fn a_tunnel_may_be_silent_for_longer_than_a_request_but_not_for_ever() {
    let server = Server::new(socket).await;
    let limits = RouterLimits {
        idle: Duration::from_millis(50),
        keep_alive: Duration::from_millis(50),
        tunnel_idle: Duration::from_millis(600),
        ..RouterLimits::default()
    };
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    let mut client = opened(&site).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    client.say("still").await;
    assert_eq!(text(&mut client.0, 5).await, "still");
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, client.0.read_to_end(&mut rest)).await.expect("in time");
}

#[tokio::test]
async fn a_connection_does_not_become_one_that_passes_by_the_routes() {
    let server = Server::new(super::kit::mirror).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let answer = site.ask(head).await;
    assert_eq!(answer.status, 200);
    for word in ["upgrade", "http2-settings"] {
        assert!(!answer.body.contains(word), "{answer:?}");
    }
}

#[tokio::test]
async fn a_websocket_stays_open_when_somebody_else_takes_over() {
    let server = Server::new(socket).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut client = opened(&site).await;
    site.stage.send_replace(RouterStage::HandingOver);
    eventually("nobody is let in any more", || async {
        tokio::net::TcpStream::connect(site.at).await.err()
    })
    .await;
    client.say("still here").await;
    assert_eq!(text(&mut client.0, 10).await, "still here");
    assert!(!site.router.all_disconnected(Duration::ZERO).await, "and is waited for");
    drop(client);
    assert!(site.router.all_disconnected(PATIENCE).await);
}
