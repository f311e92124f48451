//! Clients and upstreams that take their time, to hold what others need.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use plimsoll_router::{HELD_ANSWER, Protocol, RouterLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use crate::http::kit::{Server, Site, by_hand, head_of, mirror};
use crate::kit::{Bench, PATIENCE, address, echo, inside, text};

/// Reads a whole body before it answers, as most services do.
async fn swallow(
    request: hyper::Request<hyper::body::Incoming>,
) -> hyper::Response<crate::http::kit::Body> {
    use http_body_util::BodyExt;
    let body = request.into_body().collect().await.map(|body| body.to_bytes().len());
    hyper::Response::new(crate::http::kit::full(format!("{body:?}")))
}

fn hurried() -> RouterLimits {
    RouterLimits {
        body_grace: Duration::from_millis(600),
        body_rate: 1_000,
        ..RouterLimits::default()
    }
}

#[tokio::test]
async fn a_body_that_trickles_in_is_cut_off() {
    let server = Server::new(swallow).await;
    let site = Site::new(hurried(), &[inside("web-1", server.at)]).await;
    for framing in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let mut client = site.client().await;
        client.say(&format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")).await;
        let (mut from, mut to) = client.0.into_inner().into_split();
        let trickle = tokio::spawn(async move {
            while to.write_all(b"1\r\nx\r\n").await.is_ok() {
                sleep(Duration::from_millis(50)).await;
            }
        });
        let began = Instant::now();
        let mut heard = [0; 12];
        timeout(PATIENCE, from.read_exact(&mut heard)).await.expect("in time").unwrap();
        assert_eq!(&heard, b"HTTP/1.1 408", "{framing}");
        assert!(began.elapsed() >= Duration::from_millis(500), "after {:?}", began.elapsed());
        drop(from);
        timeout(PATIENCE, trickle).await.expect("and the connection is closed").unwrap();
    }
    let upstream = site.router.table().upstreams().next().unwrap().clone();
    crate::kit::eventually("nothing is in flight", || async {
        (upstream.in_flight() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_body_that_an_upstream_takes_slowly_is_not_too_slow() {
    // Reads nothing for longer than the grace, then all.
    let (at, _) = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        sleep(Duration::from_millis(2_500)).await;
        let mut all = vec![0; 8 << 20];
        stream.read_exact(&mut all).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    })
    .await;
    // A rate that nobody keeps up while the upstream sleeps.
    let limits =
        RouterLimits { body_grace: Duration::from_secs(1), body_rate: 8 << 20, ..hurried() };
    let site = Site::new(limits, &[inside("web-1", at)]).await;
    let mut client = site.client().await;
    client.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n").await;
    client.0.write_all(&vec![b'x'; 8 << 20]).await.unwrap();
    assert_eq!(client.hear().await.body, "ok");
}

#[tokio::test]
async fn a_body_at_the_least_rate_is_served_however_long_it_takes() {
    let server = Server::new(swallow).await;
    // Far less than is sent, so that a busy machine does not matter.
    let limits = RouterLimits { body_rate: 100, ..hurried() };
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    let mut client = site.client().await;
    client.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6000\r\n\r\n").await;
    for _ in 0..30 {
        client.say(&"x".repeat(200)).await;
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(client.hear().await.body, "Ok(6000)");
}

#[tokio::test]
async fn a_carried_connection_on_which_nothing_moves_is_reset_on_both_sides() {
    let limits =
        RouterLimits { carried_idle: Duration::from_millis(400), ..RouterLimits::default() };
    let (at, was_reset) = (address(), Arc::new(AtomicBool::new(false)));
    let listener = TcpListener::bind(at).await.unwrap();
    let noted = Arc::clone(&was_reset);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"A").await;
        let end = stream.read(&mut [0; 1]).await;
        noted.store(end.is_err_and(|it| it.kind() == ErrorKind::ConnectionReset), Relaxed);
    });
    let bench = Bench::new(Protocol::Tcp, limits, &[inside("web-1", at)]);
    let mut client = bench.connect().await;
    assert_eq!(text(&mut client, 1).await, "A");
    let began = Instant::now();
    let cut = timeout(PATIENCE, client.read(&mut [0; 1])).await.expect("in time");
    assert_eq!(cut.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(began.elapsed() >= Duration::from_millis(300), "after {:?}", began.elapsed());
    crate::kit::eventually("the upstream is told as well", || async {
        was_reset.load(Relaxed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_carried_connection_on_which_a_byte_moves_now_and_then_goes_on() {
    let limits =
        RouterLimits { carried_idle: Duration::from_millis(1_500), ..RouterLimits::default() };
    let bench = Bench::new(Protocol::Tcp, limits, &[inside("web-1", echo("A").await)]);
    let mut client = bench.connect().await;
    assert_eq!(text(&mut client, 1).await, "A");
    for _ in 0..14 {
        sleep(Duration::from_millis(150)).await;
        client.write_all(b"x").await.unwrap();
        assert_eq!(text(&mut client, 1).await, "x");
    }
}

/// Answers with half of what it promises, and no more.
async fn half_answer() -> std::net::SocketAddr {
    let talk = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf").await;
        std::future::pending::<()>().await;
    });
    talk.await.0
}

#[tokio::test]
async fn half_an_answer_is_held_for_a_while_and_not_for_ever() {
    let at = half_answer().await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    let bench = Bench::new(Protocol::Tcp, RouterLimits::default(), &[inside("web-1", at)]);
    for (case, mut client) in
        [("a route", site.client().await.0.into_inner()), ("a port", bench.connect().await)]
    {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut heard = Vec::new();
        let began = Instant::now();
        while !heard.ends_with(b"half") {
            let mut byte = [0];
            let read = timeout(PATIENCE, client.read_exact(&mut byte)).await;
            read.unwrap_or_else(|_| panic!("{case}: it is held for ever")).unwrap();
            heard.push(byte[0]);
        }
        assert!(began.elapsed() > HELD_ANSWER / 2, "{case}: after {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off_at_a_route() {
    let (at, _) = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n";
        let _ = stream.write_all(head).await;
        let chunk = vec![b'x'; 1 << 20];
        while stream.write_all(&chunk).await.is_ok() {}
    })
    .await;
    let limits = RouterLimits {
        idle: Duration::from_millis(400),
        header_read: Duration::from_millis(300),
        ..RouterLimits::default()
    };
    let site = Site::new(limits, &[inside("web-1", at)]).await;
    let mut client = site.client().await;
    client.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let upstream = site.router.table().upstreams().next().unwrap().clone();
    crate::kit::eventually("it is under way", || async {
        (upstream.in_flight() == 1).then_some(())
    })
    .await;
    crate::kit::eventually("nothing is in flight", || async {
        (upstream.in_flight() == 0).then_some(())
    })
    .await;
    let server = Server::new(mirror).await;
    site.update(&[inside("web-2", server.at)]);
    assert_eq!(site.get("/").await.status, 200);
}
