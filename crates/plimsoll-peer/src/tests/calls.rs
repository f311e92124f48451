use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Method, Request, StatusCode};
use plimsoll_store::embedded::Sender;
use plimsoll_store::embedded::network::Network as _;
use plimsoll_store::{Peer, ServerId};
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::kit::{MAX_BODY, PATIENCE, Served, ask, text, watchful};
use crate::pki::testkit::{cell, node};
use crate::{Error, Limits, PeerClient, PeerServer, RaftNetwork, Target, raft_router};

#[tokio::test]
async fn many_calls_share_one_connection() {
    let blue = cell("blue");
    let ash = Served::with(&blue.node("ash"), Limits { nodes: 1, ..Limits::default() });
    let client = PeerClient::new(blue.node("birch"));
    let mut calls = JoinSet::new();
    // More than may be under way at once on one connection: the rest wait their turn.
    for call in 0..1_000_u32 {
        let (client, target) = (client.clone(), ash.target.clone());
        calls.spawn(async move {
            let body = Bytes::from(call.to_string().repeat(500));
            let answer = client.call(&target, Method::POST, "/echo", body.clone(), PATIENCE).await;
            assert_eq!(answer.unwrap().good().unwrap(), body);
        });
    }
    while let Some(called) = calls.join_next().await {
        called.unwrap();
    }
}

#[tokio::test]
async fn large_bodies_come_back_as_they_went_and_too_large_ones_are_refused() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let client = PeerClient::new(blue.node("birch"));
    let bytes: Vec<u8> = (0..MAX_BODY).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let bytes = Bytes::from(bytes);
    let call = |body| client.call(&ash.target, Method::POST, "/echo", body, PATIENCE);
    assert_eq!(call(bytes.clone()).await.unwrap().good().unwrap(), bytes);
    let longer = [&bytes[..], b"!"].concat().into();
    let error = call(longer).await.unwrap().good().unwrap_err();
    let Error::Answered { status, .. } = error else { panic!("{error:?}") };
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_call_that_is_given_up_frees_its_stream() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let client = PeerClient::new(blue.node("birch"));
    // Twice as many as may be open at once.
    for _ in 0..4 {
        let mut calls = JoinSet::new();
        for _ in 0..512 {
            let (client, target) = (client.clone(), ash.target.clone());
            calls.spawn(async move { ask(&client, &target, "/wait").await.map(|_| ()) });
        }
        ash.until_waiting(512).await;
        drop(calls);
        ash.until_waiting(0).await;
    }
    let within = Duration::from_millis(50);
    let late = client.call(&ash.target, Method::GET, "/wait", Bytes::new(), within).await;
    assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
    ash.until_waiting(0).await;
    assert_eq!(text(&client, &ash.target, "/known").await, "birch");
}

#[tokio::test]
async fn bytes_stream_in_both_directions_until_either_side_ends() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let client = PeerClient::new(blue.node("birch"));
    let opened =
        client.stream(&ash.target, Method::POST, "/pass", HeaderMap::new(), PATIENCE).await;
    let mut stream = opened.unwrap();
    assert_eq!(stream.status, StatusCode::OK);
    for said in ["one", "two", "three"] {
        assert!(stream.sender.send(said.into()).await);
        assert_eq!(stream.receiver.next().await.unwrap().unwrap(), said);
    }
    drop(stream.sender);
    assert_eq!(stream.receiver.next().await.unwrap(), None);
    // Who stops listening is not sent to any longer.
    let opened =
        client.stream(&ash.target, Method::POST, "/pass", HeaderMap::new(), PATIENCE).await;
    let stream = opened.unwrap();
    drop(stream.receiver);
    tokio::time::timeout(PATIENCE, stream.sender.closed()).await.unwrap();
    assert!(!stream.sender.send("anybody?".into()).await);
}

#[tokio::test]
async fn a_request_of_somebody_else_is_passed_on_without_what_concerns_its_connection() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let client = PeerClient::new(blue.node("birch"));
    let request = Request::post("http://example.org/echo?a=b")
        .header(HOST, "example.org")
        .header(CONNECTION, "keep-alive, x-hop")
        .header("x-hop", "1")
        .header("keep-alive", "timeout=5")
        .header(CONTENT_TYPE, "text/plain")
        .body(Body::from("hello"));
    let answer = client.forward(&ash.target, request.unwrap(), PATIENCE).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
}

#[tokio::test]
async fn a_node_that_restarts_is_called_again_without_anybody_doing_something() {
    let blue = cell("blue");
    let client = PeerClient::new(blue.node("birch"));
    let ash = Served::new(&blue.node("ash"));
    let (target, address) = (ash.target.clone(), ash.address);
    assert_eq!(text(&client, &target, "/known").await, "birch");
    ash.end.send(true).unwrap();
    ash.running.await.unwrap();
    let error = ask(&client, &target, "/known").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.is_passing());
    let server = PeerServer::bind(address, &blue.node("ash"), Limits::default()).unwrap();
    let _ash = Served::run(server, &blue.node("ash"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(text(&client, &target, "/known").await, "birch");
}

#[tokio::test]
async fn a_server_that_ends_lets_calls_under_way_finish() {
    let blue = cell("blue");
    let client = PeerClient::new(blue.node("birch"));
    let ash = Served::new(&blue.node("ash"));
    let call = {
        let (client, target) = (client.clone(), ash.target.clone());
        tokio::spawn(async move { text(&client, &target, "/wait").await })
    };
    ash.until_waiting(1).await;
    ash.end.send(true).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    ash.counts.release.notify_waiters();
    assert_eq!(call.await.unwrap(), "released");
    tokio::time::timeout(Duration::from_secs(3), ash.running).await.unwrap().unwrap();
}

/// Passes connections on until it is told to fall silent: then nothing passes, and nothing is closed.
async fn middleman(to: String) -> (String, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (silence, silent) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let (to, mut silent) = (to.clone(), silent.clone());
            tokio::spawn(async move {
                let mut far = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    biased;
                    _ = silent.wait_for(|is| *is) => {}
                    _ = copy_bidirectional(&mut near, &mut far) => return,
                }
                std::future::pending::<()>().await;
            });
        }
    });
    (address, silence)
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_noticed_by_a_waiting_call_and_an_idle_connection() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let (address, silence) = middleman(ash.target.address.clone()).await;
    let target = Target { node: node("ash"), address };
    let client = PeerClient::with(blue.node("birch"), watchful());
    let call = {
        let (client, target) = (client.clone(), target.clone());
        tokio::spawn(async move { ask(&client, &target, "/wait").await })
    };
    ash.until_waiting(1).await;
    silence.send(true).unwrap();
    let began = Instant::now();
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The way is free again; the dead connection is not tried.
    silence.send(false).unwrap();
    assert_eq!(text(&client, &target, "/known").await, "birch");
}

#[tokio::test]
async fn a_server_forgets_a_peer_that_fell_silent() {
    let blue = cell("blue");
    let limits = Limits {
        nodes: 1,
        ping_after: Duration::from_millis(300),
        pong_within: Duration::from_millis(300),
        ..Limits::default()
    };
    let ash = Served::with(&blue.node("ash"), limits);
    let (address, silence) = middleman(ash.target.address.clone()).await;
    let target = Target { node: node("ash"), address };
    let birch = PeerClient::new(blue.node("birch"));
    assert_eq!(text(&birch, &target, "/known").await, "birch");
    silence.send(true).unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let cedar = PeerClient::new(blue.node("cedar"));
    assert_eq!(text(&cedar, &ash.target, "/known").await, "cedar", "its seat is free");
}

#[tokio::test]
async fn nobody_there_and_somebody_else_there_are_told_apart() {
    let blue = cell("blue");
    let client = PeerClient::with(blue.node("birch"), watchful());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let target = Target { node: node("ash"), address };
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    let error = ask(&client, &target, "/who").await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target { address: silent.local_addr().unwrap().to_string(), ..target };
    let within = Duration::from_millis(100);
    let late = client.call(&target, Method::GET, "/who", Bytes::new(), within).await;
    assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
    drop(silent);
    let vacant = Target { node: node("ash"), address: "127.0.0.1:1".to_owned() };
    let error = ask(&client, &vacant, "/who").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let unknown = Target { node: node("ash"), address: String::new() };
    let error = ask(&client, &unknown, "/who").await.unwrap_err();
    assert!(error.is_passing() && !error.may_have_arrived(), "{error:?}");
    assert_eq!(error.to_string(), "nobody knows yet where ash is");
}

#[tokio::test]
async fn the_log_travels_with_the_name_and_the_key_of_the_node_that_sends_it() {
    let blue = cell("blue");
    let server =
        PeerServer::bind("127.0.0.1:0".parse().unwrap(), &blue.node("ash"), Limits::default());
    let server = server.unwrap();
    let peer = Peer { name: "ash".to_owned(), address: server.local_addr().unwrap().to_string() };
    let (_end, ending) = watch::channel(false);
    let birch = blue.node("birch");
    let shown = birch.key().unwrap();
    let answer = move |sender: Sender, message: Bytes| async move {
        let Sender::Node { node, key } = sender else { return Vec::new() };
        assert_eq!(key, shown);
        [node.as_str().as_bytes(), b" said ", &message].concat()
    };
    tokio::spawn(server.serve(raft_router(answer), ending));
    let network = RaftNetwork::new(PeerClient::new(birch));
    let sent = network.send(ServerId(1), &peer, b"vote".to_vec(), PATIENCE).await;
    assert_eq!(sent.unwrap(), b"birch said vote");
    let piece = vec![7; 3 << 20];
    let sent = network.send(ServerId(1), &peer, piece, PATIENCE).await;
    assert_eq!(sent.unwrap().len(), (3 << 20) + b"birch said ".len());
    let other = Peer { name: "cedar".to_owned(), ..peer };
    let error = network.send(ServerId(2), &other, Vec::new(), PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
}
