//! What a request and its answer look like on the other side, and what is said when nobody answers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use plimsoll_router::{NoTunnel, RouteConfig, RouterLimits, RouterStage, metrics};
use tokio::io::AsyncWriteExt;

use super::kit::{Server, Site, by_hand, everything, head_of, mirror};
use crate::kit::{address, draining, eventually, inside};
use crate::via::{between, via};

fn route(host: Option<&str>, path: &str, strip_path: bool) -> RouteConfig {
    let host = host.map(str::to_owned);
    RouteConfig { host, path: path.to_owned(), strip_path, ..everything() }
}

#[tokio::test]
async fn an_upstream_sees_the_request_and_who_asks() {
    let server = Server::new(mirror).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let heard = site.ask("GET /x?y=1 HTTP/1.1\r\nHost: a.example:80\r\nAccept: */*\r\nConnection: x-mine\r\nX-Mine: 1\r\nTE: gzip\r\n\r\n").await;
    assert_eq!(heard.status, 200);
    let from = site.at.ip().to_string();
    let mut lines: Vec<_> = heard.body.lines().collect();
    assert_eq!(lines.remove(0), "GET /x?y=1 HTTP/1.1");
    lines.sort_unstable();
    let client = lines.iter().find(|line| line.starts_with("x-forwarded-for: 127.")).unwrap();
    assert!(!from.is_empty() && !client.is_empty());
    let others: Vec<_> = lines.iter().filter(|line| !line.starts_with("x-forwarded-for")).collect();
    assert_eq!(
        others,
        [
            &"accept: */*",
            &"host: a.example:80",
            &"x-forwarded-host: a.example:80",
            &"x-forwarded-proto: http"
        ]
    );
}

#[tokio::test]
async fn a_prefix_is_stripped_where_the_route_says_so() {
    let server = Server::new(mirror).await;
    let routes = vec![route(None, "/api", true), route(None, "/raw", false)];
    let site = Site::with(
        RouterLimits::default(),
        Arc::new(NoTunnel),
        routes,
        &[inside("web-1", server.at)],
    )
    .await;
    for (path, seen) in [
        ("/api", "/"),
        ("/api/", "/"),
        ("/api/a/b?c=d", "/a/b?c=d"),
        ("/api?q", "/?q"),
        ("/raw/x", "/raw/x"),
    ] {
        let heard = site.get(path).await;
        assert_eq!(heard.body.lines().next(), Some(&*format!("GET {seen} HTTP/1.1")), "{path}");
        let has_prefix = heard.body.contains("x-forwarded-prefix: /api\n");
        assert_eq!(has_prefix, path.starts_with("/api"), "{path}");
    }
}

#[tokio::test]
async fn the_router_says_why_nobody_answers() {
    let late = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
        std::future::pending::<()>().await;
    });
    let broken = by_hand(|mut stream, _| async move {
        head_of(&mut stream).await;
    });
    let limits =
        RouterLimits { response_head: Duration::from_millis(300), ..RouterLimits::default() };
    for (case, members, status, text) in [
        ("nobody", vec![], 503, "503 no replica of shop/web is healthy\n"),
        (
            "refused",
            vec![inside("web-1", address())],
            503,
            "503 cannot connect to any replica of shop/web (1 tried)\n",
        ),
        (
            "broken",
            vec![inside("web-1", broken.await.0)],
            502,
            "502 the replica of shop/web closed the connection without a response\n",
        ),
        (
            "late",
            vec![inside("web-1", late.await.0)],
            504,
            "504 the replica of shop/web sent no response within 0 s\n",
        ),
    ] {
        let site = Site::new(limits.clone(), &members).await;
        let heard = site.get("/").await;
        assert_eq!((heard.status, heard.body.as_str()), (status, text), "{case}");
        let reading = metrics::read(&site.router.table());
        assert_eq!((reading.routes[0].unserved, reading.routes[0].classes[4]), (1, 1), "{case}");
    }
}

#[tokio::test]
async fn a_request_without_a_route_is_told_so_also_in_json() {
    let routes = vec![route(Some("a.example"), "/", false)];
    let site = Site::with(RouterLimits::default(), Arc::new(NoTunnel), routes, &[]).await;
    let heard = site.ask("GET /x HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
    assert_eq!((heard.status, heard.body.as_str()), (404, "404 no route for b.example/x\n"));
    let heard =
        site.ask("GET /x HTTP/1.1\r\nHost: b.example\r\nAccept: application/json\r\n\r\n").await;
    assert_eq!(heard.field("content-type"), Some("application/problem+json"));
    assert_eq!(
        heard.body,
        "{\"type\":\"about:blank\",\"title\":\"Not Found\",\"status\":404,\"code\":\"no_route\",\"detail\":\"no route for b.example/x\"}\n"
    );
}

#[tokio::test]
async fn a_request_that_names_no_host_or_two_is_refused() {
    let server = Server::new(mirror).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    for (case, head, status) in [
        ("none", "GET / HTTP/1.1\r\n\r\n", 400),
        ("two", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("none was needed then", "GET / HTTP/1.0\r\n\r\n", 200),
        ("a proxy of another kind", "CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    ] {
        assert_eq!(site.ask(head).await.status, status, "{case}");
    }
}

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let server = Server::new(mirror).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut client = site.client().await;
    for _ in 0..50 {
        let heard = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(heard.status, 200);
    }
    assert_eq!(server.connections.load(Relaxed), 1);
    let reading = metrics::read(&site.router.table());
    assert_eq!(reading.upstreams[0].classes, [0, 50, 0, 0, 0]);
    assert_eq!(reading.routes[0].latency.counts.iter().sum::<u64>(), 50);
    eventually("nothing is in flight", || {
        let in_flight = metrics::read(&site.router.table()).upstreams[0].in_flight;
        async move { (in_flight == 0).then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn idle_connections_to_an_upstream_are_closed_after_a_while_and_when_it_leaves() {
    let server = Server::new(mirror).await;
    let limits = RouterLimits { kept_for: Duration::from_millis(50), ..RouterLimits::default() };
    let members = [inside("web-1", server.at)];
    let site = Site::new(limits, &members).await;
    let sweeping = site.router.clone();
    tokio::spawn(async move { sweeping.sweep().await });
    site.get("/").await;
    eventually("it is closed", || async { (open_to(server.at) == 0).then_some(()) }).await;

    let slow = Site::new(RouterLimits::default(), &members).await;
    slow.get("/").await;
    assert!(open_to(server.at) > 0, "it is kept");
    slow.update(&[draining("web-1", server.at, Duration::from_mins(1))]);
    eventually("it is closed", || async { (open_to(server.at) == 0).then_some(()) }).await;
}

/// Connections that are open to that address, as the kernel lists them.
fn open_to(at: std::net::SocketAddr) -> usize {
    let std::net::IpAddr::V4(ip) = at.ip() else { panic!("loopback of version 4") };
    let there = format!("{:08X}:{:04X}", u32::from(ip).swap_bytes(), at.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields[2] == there && fields[3] == "01").count()
}

#[tokio::test]
async fn an_answer_to_head_and_answers_without_content_keep_their_length() {
    let (at, _) = by_hand(|mut stream, _| async move {
        while let Some(head) = head_of(&mut stream).await {
            let answer = if head.starts_with("HEAD") {
                "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n"
            } else {
                "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"
            };
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", at)]).await;
    let mut client = site.client().await;
    client.say("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut all = vec![0; 400];
    let mut length = 0;
    while !all[..length].windows(3).any(|part| part == b"\"x\"") {
        length += tokio::io::AsyncReadExt::read(&mut client.0, &mut all[length..]).await.unwrap();
    }
    let text = String::from_utf8_lossy(&all[..length]).to_ascii_lowercase();
    assert!(text.contains("content-length: 12345\r\n"), "{text}");
    assert!(text.contains("304 not modified"), "{text}");
}

#[tokio::test]
async fn a_route_leads_to_a_replica_on_another_node() {
    let server = Server::new(mirror).await;
    let tunnel = between(&[inside("web-1", server.at)]);
    let site =
        Site::with(RouterLimits::default(), tunnel.clone(), vec![everything()], &[via("web-1")])
            .await;
    for _ in 0..10 {
        assert_eq!(site.get("/").await.status, 200);
    }
    assert_eq!(tunnel.opened.load(Relaxed), 1, "streams between nodes are kept as well");
}

#[tokio::test]
async fn a_router_that_ends_lets_requests_end_first() {
    let server = Server::new(|_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        hyper::Response::new(super::kit::full("late but here"))
    })
    .await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut idle = site.client().await;
    assert_eq!(idle.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    let mut busy = site.client().await;
    busy.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let upstream = site.router.table().upstreams().next().unwrap().clone();
    eventually("it is under way", || async { (upstream.in_flight() == 1).then_some(()) }).await;
    site.stage.send_replace(RouterStage::Closing);
    assert_eq!(busy.hear().await.body, "late but here");
    assert!(site.router.all_disconnected(crate::kit::PATIENCE).await, "and then all are gone");
    assert!(tokio::net::TcpStream::connect(site.at).await.is_err(), "nobody is let in any more");
}

#[tokio::test]
async fn what_is_under_way_when_an_upstream_leaves_has_its_grace() {
    let server = Server::new(|request| async move {
        let pause = if request.uri().path() == "/slow" { 60_000 } else { 300 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        hyper::Response::new(super::kit::full("done"))
    })
    .await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let (mut quick, mut slow) = (site.client().await, site.client().await);
    quick.say("GET /quick HTTP/1.1\r\nHost: a\r\n\r\n").await;
    slow.say("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let upstream = site.router.table().upstreams().next().unwrap().clone();
    eventually("both are under way", || async { (upstream.in_flight() == 2).then_some(()) }).await;
    site.update(&[draining("web-1", server.at, Duration::from_secs(1))]);
    assert_eq!(quick.hear().await.body, "done");
    assert_eq!(
        slow.hear().await.status,
        502,
        "cut, and not tried on an upstream that is not there"
    );
}

#[tokio::test]
async fn a_router_that_somebody_else_takes_over_from_closes_no_connection_that_it_has_not_told() {
    let server = Server::new(mirror).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let (mut idle, mut speaking) = (site.client().await, site.client().await);
    for client in [&mut idle, &mut speaking] {
        let before = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!((before.status, before.field("connection")), (200, None));
    }
    speaking.say("GET / HT").await;
    site.stage.send_replace(RouterStage::HandingOver);
    eventually("nobody is let in any more", || async {
        tokio::net::TcpStream::connect(site.at).await.err()
    })
    .await;
    for (client, rest) in [(&mut idle, "GET / HTTP/1.1"), (&mut speaking, "TP/1.1")] {
        let last = client.ask(&format!("{rest}\r\nHost: a\r\n\r\n")).await;
        assert_eq!((last.status, last.field("connection")), (200, Some("close")));
    }
    assert!(site.router.all_disconnected(crate::kit::PATIENCE).await, "and then all are gone");
}
