//! A request is said twice only where that is safe.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use plimsoll_router::{RouterLimits, metrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::kit::{Server, Site, by_hand, head_of, mirror};
use crate::kit::{address, inside};

/// Reads a head and ends without an answer.
async fn mute(mut stream: TcpStream, _: usize) {
    head_of(&mut stream).await;
}

#[tokio::test]
async fn a_connection_that_is_refused_costs_no_request_whatever_it_is() {
    let server = Server::new(mirror).await;
    let members = [inside("web-1", address()), inside("web-2", server.at)];
    let site = Site::new(RouterLimits::default(), &members).await;
    for _ in 0..20 {
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(site.ask(post).await.status, 200);
    }
    let reading = metrics::read(&site.router.table());
    assert!(reading.routes[0].retries >= 1, "one of them met the other first");
}

#[tokio::test]
async fn what_may_be_said_twice_is_said_to_another_when_one_ends_without_an_answer() {
    let (silent, heard) = by_hand(mute).await;
    let server = Server::new(mirror).await;
    let members = [inside("web-1", silent), inside("web-2", server.at)];
    let site = Site::new(RouterLimits::default(), &members).await;
    for _ in 0..20 {
        assert_eq!(site.get("/").await.status, 200);
    }
    assert!(heard.load(Relaxed) >= 1, "one of them met the other first");
}

/// Reads a head and ends in the middle of a short answer.
async fn halting(mut stream: TcpStream, _: usize) {
    head_of(&mut stream).await;
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhal").await;
}

#[tokio::test]
async fn half_of_a_short_answer_is_as_good_as_none() {
    let (halting, heard) = by_hand(halting).await;
    let server = Server::new(mirror).await;
    let members = [inside("web-1", halting), inside("web-2", server.at)];
    let site = Site::new(RouterLimits::default(), &members).await;
    for _ in 0..20 {
        assert_eq!(site.get("/").await.status, 200);
    }
    assert!(heard.load(Relaxed) >= 1, "one of them met the other first");
}

#[tokio::test]
async fn what_may_not_be_said_twice_is_not() {
    let (silent, heard) = by_hand(mute).await;
    let (mute_too, heard_too) = by_hand(mute).await;
    let members = [inside("web-1", silent), inside("web-2", mute_too)];
    let site = Site::new(RouterLimits::default(), &members).await;
    for count in 1..=10 {
        let heard_by_all = || heard.load(Relaxed) + heard_too.load(Relaxed);
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(site.ask(post).await.status, 502);
        assert_eq!(heard_by_all(), count, "each was said once");
    }
}

static BODIES: AtomicUsize = AtomicUsize::new(0);

/// Reads a head and the first bytes of a body, and ends.
async fn taster(mut stream: TcpStream, _: usize) {
    head_of(&mut stream).await;
    let mut some = [0; 4];
    if stream.read_exact(&mut some).await.is_ok() {
        BODIES.fetch_add(1, Relaxed);
    }
}

#[tokio::test]
async fn a_body_that_was_begun_is_not_sent_again() {
    let ((one, heard), (two, heard_too)) = (by_hand(taster).await, by_hand(taster).await);
    let site =
        Site::new(RouterLimits::default(), &[inside("web-1", one), inside("web-2", two)]).await;
    for (count, method) in ["PUT", "POST", "DELETE", "PATCH"].iter().enumerate() {
        let mut client = site.client().await;
        client
            .say(&format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nbody"))
            .await;
        assert_eq!(client.hear().await.status, 502, "{method}");
        assert_eq!(BODIES.load(Relaxed), count + 1, "{method}");
        let heads = heard.load(Relaxed) + heard_too.load(Relaxed);
        assert_eq!(heads, count + 1, "{method}: not even its head");
    }
}

/// Answers once, promises to go on, and ends when it is asked again.
async fn fickle(mut stream: TcpStream, _: usize) {
    head_of(&mut stream).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    head_of(&mut stream).await;
}

#[tokio::test]
async fn a_kept_connection_that_ends_costs_no_request_that_may_be_said_twice() {
    let (at, connections) = by_hand(fickle).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    for _ in 0..20 {
        assert_eq!(site.get("/").await.body, "ok");
    }
    assert!(connections.load(Relaxed) >= 20);
}

#[tokio::test]
async fn tries_are_bounded() {
    let (silent, heard) = by_hand(mute).await;
    let members: Vec<_> = (0..10).map(|n| inside(&format!("web-{n}"), silent)).collect();
    let site = Site::new(RouterLimits { tries: 3, ..RouterLimits::default() }, &members).await;
    assert_eq!(site.get("/").await.status, 502);
    assert_eq!(heard.load(Relaxed), 3);
}

#[tokio::test]
async fn an_upstream_that_is_late_is_not_asked_twice() {
    let (late, heard) = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let members = [inside("web-1", late), inside("web-2", late)];
    let limits =
        RouterLimits { response_head: Duration::from_millis(200), ..RouterLimits::default() };
    let site = Site::new(limits, &members).await;
    assert_eq!(site.get("/").await.status, 504);
    assert_eq!(heard.load(Relaxed), 1);
}
