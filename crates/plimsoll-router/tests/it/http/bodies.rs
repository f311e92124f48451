//! Bodies pass as they come, however large, in bounded memory.

use std::time::Duration;

use plimsoll_router::RouterLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::kit::{Server, Site, by_hand, echo, head_of};
use crate::kit::{inside, resident};

/// How much a body test sends; `PLIMSOLL_TEST_BODY_MIB` says otherwise.
fn mebibytes() -> usize {
    let asked = std::env::var("PLIMSOLL_TEST_BODY_MIB").ok();
    asked.map_or(512, |count| count.parse().unwrap())
}

/// What the whole process may grow by while a body passes: client, router and upstream are one process here.
const GROWTH: usize = 24 << 20;

#[tokio::test]
async fn a_huge_body_passes_both_ways_in_bounded_memory() {
    let server = Server::new(echo).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let (mut from, mut to) = site.client().await.0.into_inner().into_split();
    let chunk = vec![b'x'; 1 << 20];
    let length = mebibytes() << 20;
    let before = resident();
    let writing = tokio::spawn(async move {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        to.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..mebibytes() {
            to.write_all(&chunk).await.unwrap();
        }
        to
    });
    let mut space = vec![0; 1 << 20];
    let (mut received, mut most) = (0, 0);
    while received < length {
        let count = from.read(&mut space).await.unwrap();
        assert!(count > 0, "it ended after {received} bytes");
        received += count;
        most = most.max(resident());
    }
    writing.await.unwrap();
    let grown = most.saturating_sub(before);
    assert!(grown < GROWTH, "grown by {} MiB", grown >> 20);
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_upstream_and_nobody_else() {
    let (at, _) = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let chunk = vec![b'x'; 1 << 20];
        while stream.write_all(&chunk).await.is_ok() {}
    })
    .await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    let before = resident();
    let mut stalled = Vec::new();
    for _ in 0..16 {
        let mut client = site.client().await;
        client.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        stalled.push(client);
    }
    let mut reader = site.client().await;
    reader.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut space = vec![0; 1 << 20];
    for _ in 0..64 {
        reader.0.read_exact(&mut space).await.unwrap();
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 2 * GROWTH, "grown by {} MiB", grown >> 20);
}

#[tokio::test]
async fn parts_of_an_answer_arrive_as_they_are_made() {
    let (at, _) = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
        stream.write_all(head).await.unwrap();
        // The rest comes only when the client has answered the first part.
        let mut word = [0; 12];
        stream.read_exact(&mut word).await.unwrap();
        stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.unwrap();
    })
    .await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    let mut client = site.client().await;
    client.say("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\r\n") {
        seen.push(client.0.read_u8().await.unwrap());
    }
    client.say("7\r\nI heard\r\n0\r\n\r\n").await;
    while !seen.ends_with(b"0\r\n\r\n") {
        seen.push(client.0.read_u8().await.unwrap());
    }
    assert!(String::from_utf8(seen).unwrap().contains("6\r\nsecond\r\n"));
}

#[tokio::test]
async fn a_long_answer_that_breaks_off_breaks_off_for_the_client_too() {
    let (at, _) = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf").await.unwrap();
    })
    .await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    let mut client = site.client().await;
    client.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut all = Vec::new();
    let _ = client.0.read_to_end(&mut all).await;
    assert!(all.ends_with(b"half"), "not one byte was made up");
}

#[tokio::test]
async fn a_long_upload_does_not_count_against_the_upstreams_time_to_answer() {
    let server = Server::new(echo_after).await;
    let limits =
        RouterLimits { response_head: Duration::from_millis(400), ..RouterLimits::default() };
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    let mut client = site.client().await;
    client.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n").await;
    for _ in 0..10 {
        client.say("x").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(client.hear().await.body, "10 bytes");
}

async fn echo_after(
    request: hyper::Request<hyper::body::Incoming>,
) -> hyper::Response<super::kit::Body> {
    use http_body_util::BodyExt;
    let body = request.into_body().collect().await.unwrap().to_bytes();
    hyper::Response::new(super::kit::full(format!("{} bytes", body.len())))
}
