//! HTTP/2 by hand: frames that a client of good will never sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use plimsoll_router::RouterLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::http::kit::{Server, Site, by_hand, mirror};
use crate::kit::{PATIENCE, connect, inside, resident};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET / HTTP/2` for `a`: two fields of the static table, and two that are spelt out.
fn get() -> Vec<u8> {
    [&[0x82, 0x86, 0x84][..], &[0x01, 1], b"a"].concat()
}

/// A `POST` to the same.
fn post() -> Vec<u8> {
    [&[0x83, 0x86, 0x84][..], &[0x01, 1], b"a"].concat()
}

/// A connection that speaks HTTP/2, before its first request.
struct Peer(TcpStream);

impl Peer {
    async fn new(site: &Site) -> Self {
        let mut peer = Self(connect(site.at).await);
        peer.0.set_nodelay(true).unwrap();
        peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        peer.send(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        peer
    }

    async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// The next frame: its kind, flags and payload; none once the connection is closed.
    async fn next(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], head[4], payload))
    }

    /// Reads until the router ends the connection, and says with what error it did so, if with any.
    async fn ended(&mut self) -> Option<u32> {
        let reading = async {
            let mut why = None;
            while let Some((kind, _, payload)) = self.next().await {
                if kind == GOAWAY {
                    why = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
                }
            }
            why
        };
        timeout(PATIENCE, reading).await.expect("the router ends the connection")
    }
}

async fn mirrored(limits: RouterLimits) -> (Site, Server) {
    let server = Server::new(mirror).await;
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    (site, server)
}

/// Counts the connections it gets, and never answers.
async fn mute() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    by_hand(|mut stream, _| async move { while stream.read_u8().await.is_ok() {} }).await
}

#[tokio::test]
async fn requests_that_are_reset_in_one_breath_end_the_connection() {
    let (at, reached) = mute().await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    let mut peer = Peer::new(&site).await;
    let mut flood = Vec::new();
    for stream in (1..4_000).step_by(2) {
        flood.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &get()));
        flood.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    let _ = peer.send(&flood).await;
    peer.ended().await;
    let reached = reached.load(Relaxed);
    assert!(reached < 400, "{reached} of 2000 requests reached the upstream");
}

#[tokio::test]
async fn requests_that_are_reset_one_by_one_end_the_connection_too() {
    let (at, reached) = mute().await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    let mut peer = Peer::new(&site).await;
    let mut sent = 0;
    for stream in (1..4_000).step_by(2) {
        let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get());
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        let before = reached.load(Relaxed);
        if peer.send(&ask).await.is_err() {
            break;
        }
        // Each is reset as soon as it has cost the upstream a connection.
        let arrived = async {
            while reached.load(Relaxed) == before {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = timeout(Duration::from_millis(200), arrived).await;
        if peer.send(&reset).await.is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < 600, "{sent} requests were begun and reset on one connection");
    peer.ended().await;
}

#[tokio::test]
async fn a_client_that_cancels_now_and_then_is_not_taken_for_an_attack() {
    let server = Server::new(|request| async move {
        if request.uri().path() == "/late" {
            std::future::pending::<()>().await;
        }
        mirror(request).await
    })
    .await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut peer = Peer::new(&site).await;
    let late = [&[0x82, 0x86, 0x04, 5][..], b"/late", &[0x01, 1], b"a"].concat();
    for round in 0..400_u32 {
        let stream = round * 2 + 1;
        let asked = if round % 3 == 0 { &late } else { &get() };
        peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, asked)).await.unwrap();
        if round % 3 == 0 {
            sleep(Duration::from_millis(2)).await;
            let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
            peer.send(&reset).await.unwrap();
            continue;
        }
        let answered = async {
            while let Some((kind, flags, payload)) = peer.next().await {
                assert_ne!(kind, GOAWAY, "{payload:?}");
                if kind == DATA && flags & END_STREAM != 0 {
                    return true;
                }
            }
            false
        };
        assert!(timeout(PATIENCE, answered).await.expect("in time"), "round {round}");
        let update = frame(8, 0, 0, &4_096_u32.to_be_bytes());
        peer.send(&update).await.unwrap();
    }
}

#[tokio::test]
async fn a_head_that_continues_for_ever_ends_the_connection_in_bounded_memory() {
    let (site, _server) = mirrored(RouterLimits::default()).await;
    for (case, begun, more) in [
        ("of nothing", Vec::new(), Vec::new()),
        ("of one field", vec![0x00, 1, b'x', 0x7f, 0x81, 0xff, 0xff, 0x03], vec![b'y'; 16_384]),
        ("of many fields", get(), [0x00, 1, b'x', 1, b'y'].repeat(3_000)),
        ("of one indexed field", get(), vec![0x82; 16_384]),
    ] {
        let before = resident();
        let mut peer = Peer::new(&site).await;
        peer.send(&frame(HEADERS, END_STREAM, 1, &begun)).await.unwrap();
        let piece = frame(CONTINUATION, 0, 1, &more);
        let mut sent = 0;
        let flood = async {
            while peer.send(&piece).await.is_ok() && sent < 1_000_000 {
                sent += 1
            }
        };
        timeout(PATIENCE, flood).await.expect("the router ends the connection");
        assert!(sent < 100_000, "{case}: {sent} frames were taken");
        let grown = resident().saturating_sub(before);
        assert!(grown < 16 << 20, "{case}: grown by {} MiB", grown >> 20);
    }
    assert_eq!(site.get("/").await.status, 200);
}

#[tokio::test]
async fn a_head_that_is_never_finished_ends_the_connection() {
    let limits = RouterLimits {
        keep_alive: Duration::from_millis(300),
        header_read: Duration::from_millis(300),
        ..RouterLimits::default()
    };
    let (site, _server) = mirrored(limits).await;
    let mut peer = Peer::new(&site).await;
    peer.send(&frame(HEADERS, END_STREAM, 1, &get())).await.unwrap();
    let began = tokio::time::Instant::now();
    peer.ended().await;
    assert!(began.elapsed() < Duration::from_secs(5), "after {:?}", began.elapsed());
}

#[tokio::test]
async fn control_frames_that_nobody_reads_the_answers_of_cost_no_memory() {
    let (site, _server) = mirrored(RouterLimits::default()).await;
    for (kind, payload) in [(PING, &[0; 8][..]), (SETTINGS, &[0, 4, 0, 1, 0, 0])] {
        let mut peer = Peer::new(&site).await;
        let flood = frame(kind, 0, 0, payload).repeat(1_000);
        let before = resident();
        let sending = async {
            for _ in 0..2_000 {
                peer.send(&flood).await?;
            }
            Ok::<(), std::io::Error>(())
        };
        // It is held up, or ended; which of both does not matter.
        let _ = timeout(Duration::from_secs(1), sending).await;
        let grown = resident().saturating_sub(before);
        assert!(grown < 16 << 20, "frame {kind}: grown by {} MiB", grown >> 20);
    }
    assert_eq!(site.get("/").await.status, 200);
}

#[tokio::test]
async fn pings_do_not_keep_a_request_open_on_which_nothing_moves() {
    let (at, _) = mute().await;
    let limits = RouterLimits {
        tunnel_idle: Duration::from_millis(500),
        header_read: Duration::from_millis(300),
        ..RouterLimits::default()
    };
    let site = Site::new(limits, &[inside("web-1", at)]).await;
    let mut peer = Peer::new(&site).await;
    peer.send(&frame(HEADERS, END_HEADERS, 1, &post())).await.unwrap();
    let ping = frame(PING, 0, 0, &[1; 8]);
    let pinging = async {
        while peer.send(&ping).await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(5), pinging).await.expect("it is ended for all its pings");
}

#[tokio::test]
async fn an_http2_request_without_an_authority_keeps_its_host_and_its_path() {
    let (site, _server) = mirrored(RouterLimits::default()).await;
    let field = |name: &str, value: &str| {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
        [&[0, length(name)][..], name, &[length(value)], value].concat()
    };
    for (case, fields) in [
        ("a request", [field("host", "a.example"), field("accept", "*/*")]),
        ("a call", [field("host", "a.example"), field("content-type", "application/grpc")]),
        ("another host", [field(":authority", "a.example"), field("host", "b.example")]),
    ] {
        let mut peer = Peer::new(&site).await;
        let path = [&[0x04, 9][..], b"/shop.Add"].concat();
        let block = [&[0x83, 0x86][..], &path, &fields.concat()].concat();
        peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).await.unwrap();
        let answered = async {
            loop {
                let (kind, _, payload) = peer.next().await.expect("there is an answer");
                if kind == DATA {
                    return String::from_utf8(payload).unwrap();
                }
            }
        };
        let text = timeout(PATIENCE, answered).await.expect("in time");
        let line = text.lines().next().unwrap();
        assert!(line.contains("/shop.Add "), "{case}: {text}");
        assert!(text.contains("x-forwarded-host: a.example\n"), "{case}: {text}");
        assert!(!text.contains("b.example"), "{case}: {text}");
        if line.ends_with("HTTP/1.1") {
            assert!(text.contains("\nhost: a.example\n"), "{case}: {text}");
        } else {
            assert!(line.contains("//a.example/"), "{case}: {text}");
        }
    }
}
