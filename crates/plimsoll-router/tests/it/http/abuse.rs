//! Clients that mean harm, or only dawdle: bounded in time, number and memory, and nobody else notices.

use std::time::Duration;

use plimsoll_router::RouterLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::kit::{Client, Server, Site, by_hand, head_of, mirror};
use crate::kit::{PATIENCE, connect, inside, resident};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

async fn site(limits: RouterLimits) -> Site {
    let server = Server::new(mirror).await;
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    // It lives as long as the test.
    std::mem::forget(server);
    site
}

/// How long it takes until the router ends the connection.
async fn ended(client: &mut Client) -> Duration {
    let began = Instant::now();
    let mut rest = Vec::new();
    let end = timeout(PATIENCE, client.0.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "it was not ended");
    began.elapsed()
}

#[tokio::test]
async fn a_head_that_trickles_in_is_cut_off_and_others_are_served_meanwhile() {
    let limits =
        RouterLimits { header_read: Duration::from_millis(500), ..RouterLimits::default() };
    let site = site(limits).await;
    let began = Instant::now();
    let mut loris: Vec<Client> = Vec::new();
    for _ in 0..200 {
        let mut client = site.client().await;
        client.say("GET / HTTP/1.1\r\nHost: a\r\nX-").await;
        loris.push(client);
    }
    let trickling = tokio::spawn(async move {
        let mut cut = 0;
        while cut < loris.len() {
            cut = 0;
            for client in &mut loris {
                cut += usize::from(client.0.write_all(b"x").await.is_err());
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    let mut served = 0;
    while !trickling.is_finished() {
        assert_eq!(site.get("/").await.status, 200);
        served += 1;
        assert!(began.elapsed() < PATIENCE, "they are still there");
    }
    trickling.await.unwrap();
    assert!(served > 0 && began.elapsed() >= Duration::from_millis(500));
}

#[tokio::test]
async fn a_client_that_says_nothing_or_no_more_is_let_go() {
    let limits = RouterLimits {
        keep_alive: Duration::from_millis(300),
        header_read: Duration::from_millis(100),
        ..RouterLimits::default()
    };
    let site = site(limits).await;
    let mut silent = site.client().await;
    assert!(ended(&mut silent).await >= Duration::from_millis(200));
    let mut done = site.client().await;
    assert_eq!(done.ask(GET).await.status, 200);
    assert!(ended(&mut done).await >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_request_on_which_nothing_moves_is_cut_off() {
    let (at, _) = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let limits = RouterLimits { idle: Duration::from_millis(300), ..RouterLimits::default() };
    let site = Site::new(limits, &[inside("web-1", at)]).await;
    let mut client = site.client().await;
    client.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nsome").await;
    ended(&mut client).await;
    let upstream = site.router.table().upstreams().next().unwrap().clone();
    crate::kit::eventually("nothing is in flight", || async {
        (upstream.in_flight() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_in_bounded_memory() {
    let site = site(RouterLimits::default()).await;
    let before = resident();
    for (case, field) in [
        ("one field without end", "X-Bomb: ".to_owned() + &"x".repeat(10 << 20)),
        ("fields without end", "X: y\r\n".repeat(1 << 20)),
    ] {
        let mut client = site.client().await;
        client.say("GET / HTTP/1.1\r\nHost: a\r\n").await;
        // It may be refused before all is sent.
        let _ = client.0.write_all(field.as_bytes()).await;
        let mut heard = vec![0; 512];
        let count = timeout(PATIENCE, client.0.read(&mut heard)).await.expect("in time");
        // A reset overtakes the answer if more was on its way.
        if let Ok(count) = count {
            let text = String::from_utf8_lossy(&heard[..count]).into_owned();
            assert!(text.starts_with("HTTP/1.1 431 "), "{case}: {text}");
        }
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 24 << 20, "grown by {} MiB", grown >> 20);
    assert_eq!(site.get("/").await.status, 200);
}

#[tokio::test]
async fn too_many_fields_are_refused() {
    let site = site(RouterLimits::default()).await;
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(200));
    assert_eq!(site.ask(&head).await.status, 431);
}

#[tokio::test]
async fn an_upstream_whose_head_is_too_large_is_not_believed() {
    let (at, _) = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        let bomb = format!("HTTP/1.1 200 OK\r\nX-Bomb: {}", "x".repeat(10 << 20));
        let _ = stream.write_all(bomb.as_bytes()).await;
    })
    .await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    assert_eq!(site.get("/").await.status, 502);
}

#[tokio::test]
async fn idle_connections_make_room_for_those_who_ask() {
    let limits = RouterLimits { connections: 100, ..RouterLimits::default() };
    let site = site(limits).await;
    let mut idle = Vec::new();
    for round in 0..5 {
        for _ in 0..100 {
            idle.push(site.client().await);
        }
        let heard = timeout(PATIENCE, site.get("/")).await;
        assert_eq!(heard.expect("in time").status, 200, "round {round}");
    }
}

#[tokio::test]
async fn a_client_that_is_served_is_never_asked_to_make_room() {
    let server = Server::new(|_| async {
        sleep(Duration::from_millis(500)).await;
        hyper::Response::new(super::kit::full("still here"))
    })
    .await;
    let limits = RouterLimits { connections: 10, ..RouterLimits::default() };
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    let mut busy = site.client().await;
    busy.say(GET).await;
    let upstream = site.router.table().upstreams().next().unwrap().clone();
    crate::kit::eventually("it is under way", || async {
        (upstream.in_flight() == 1).then_some(())
    })
    .await;
    let mut others = Vec::new();
    for _ in 0..50 {
        others.push(site.client().await);
    }
    assert_eq!(busy.hear().await.body, "still here");
}

#[tokio::test]
async fn idle_connections_cost_little() {
    const COUNT: usize = 4_000;
    let site = site(RouterLimits::default()).await;
    let mut idle = Vec::with_capacity(COUNT);
    assert_eq!(site.get("/").await.status, 200);
    let before = resident();
    for _ in 0..COUNT {
        idle.push(connect(site.at).await);
    }
    assert_eq!(site.get("/").await.status, 200);
    let each = resident().saturating_sub(before) / COUNT;
    assert!(each < 8 << 10, "{each} bytes for each, the client's end included");
}

#[tokio::test]
async fn what_is_not_http_is_turned_away() {
    let site = site(RouterLimits::default()).await;
    for junk in
        ["\x16\x03\x01\x02\x00", "PRI * HTTP/2.0\r\n\r\nNO\r\n\r\n", "\r\n\r\n\r\nfoo\r\n\r\n"]
    {
        let mut client = site.client().await;
        client.say(junk).await;
        client.0.shutdown().await.unwrap();
        ended(&mut client).await;
    }
    assert_eq!(site.get("/").await.status, 200);
}

#[tokio::test]
async fn a_request_with_two_lengths_reaches_the_upstream_with_one() {
    let server = Server::new(super::kit::echo).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    for fields in [
        "Content-Length: 30\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 30",
    ] {
        let mut client = site.client().await;
        let smuggled = "5\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        client.say(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{smuggled}")).await;
        let heard = client.hear().await;
        assert!(heard.body == "hello" || heard.status == 400, "{heard:?}");
    }
}

#[tokio::test]
async fn a_crowd_that_comes_at_once_is_served_also_where_the_queue_is_small() {
    // A server whose queue holds few, and which takes its time for each.
    let (at, socket) = (crate::kit::address(), tokio::net::TcpSocket::new_v4().unwrap());
    socket.bind(at).unwrap();
    let listener = socket.listen(100).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            sleep(Duration::from_millis(1)).await;
            tokio::spawn(async move {
                while head_of(&mut stream).await.is_some() {
                    let _ =
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
                }
            });
        }
    });
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    let mut crowd = Vec::new();
    for _ in 0..400 {
        crowd.push(site.client().await);
    }
    for client in &mut crowd {
        client.say(GET).await;
    }
    for client in &mut crowd {
        assert_eq!(client.hear().await.status, 200);
    }
    let upstream = &site.router.metrics().upstreams[0];
    assert!(upstream.connections < 400, "{} for 400 requests", upstream.connections);
}
