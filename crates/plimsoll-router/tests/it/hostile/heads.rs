//! Headers that lie: about who asks, for whom, and which of them belong to this hop.

use plimsoll_router::{AddressBlock, RouterLimits};

use crate::http::kit::{Server, Site, mirror};
use crate::kit::inside;

/// What an upstream sees of a request with these fields: its lines but for the first, sorted.
async fn seen(limits: RouterLimits, fields: &str) -> Vec<String> {
    let server = Server::new(mirror).await;
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    let heard = site.ask(&format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")).await;
    assert_eq!(heard.status, 200, "{fields}: {}", heard.body);
    let mut lines: Vec<String> = heard.body.lines().skip(1).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

fn direct() -> Vec<String> {
    let lines = [
        "host: a.example",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: a.example",
        "x-forwarded-proto: http",
    ];
    lines.map(str::to_owned).to_vec()
}

#[tokio::test]
async fn a_connection_header_cannot_take_the_host_away() {
    for named in ["host", "Host, close", "x-mine, HOST"] {
        let fields = format!("Connection: {named}\r\n");
        assert_eq!(seen(RouterLimits::default(), &fields).await, direct(), "{named}");
    }
}

#[tokio::test]
async fn a_connection_header_cannot_take_away_what_the_router_says_of_the_client() {
    let fields = "Connection: x-forwarded-for, x-forwarded-host, x-forwarded-proto\r\n";
    assert_eq!(seen(RouterLimits::default(), fields).await, direct());
}

#[tokio::test]
async fn a_stranger_cannot_say_who_asks() {
    for forged in [
        "X-Forwarded-For: 10.0.0.1",
        "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2",
        "x-forwarded-proto: https\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Ssl: on",
        "X-Forwarded-Host: bank.example\r\nX-Forwarded-Server: bank.example",
        "X-Forwarded-Prefix: /admin",
        "Forwarded: for=10.0.0.1;proto=https",
        "X-Real-IP: 10.0.0.1",
        // Servers that turn names into variables read these as the names above.
        "X_Forwarded_For: 10.0.0.1\r\nX-Forwarded_Proto: https\r\nX_Real_IP: 10.0.0.1",
    ] {
        assert_eq!(
            seen(RouterLimits::default(), &format!("{forged}\r\n")).await,
            direct(),
            "{forged}"
        );
    }
}

#[tokio::test]
async fn a_host_that_is_none_is_refused() {
    let server = Server::new(mirror).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    for host in ["a/b.example", "a.example, b.example", "me@a.example", "a b", "a\"b", "a#b", "a?b"]
    {
        let heard = site.ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!(heard.status, 400, "{host}: {}", heard.body);
    }
    let heard = site.ask("GET http://me@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert_eq!(heard.status, 400, "{}", heard.body);
    let heard = site.ask("GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
    assert!(heard.body.contains("\nhost: a.example\n"), "the target's host counts: {}", heard.body);
    for host in ["a_b.example", "[::1]:80", "1.2.3.4:8080", ""] {
        let heard = site.ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!(heard.status, 200, "{host}: {}", heard.body);
    }
}

#[tokio::test]
async fn a_trusted_proxy_says_who_asks_and_joins_the_list() {
    let loopback = "127.0.0.0/8".parse::<AddressBlock>().unwrap();
    let limits = RouterLimits {
        trusted_proxies: [loopback].into_iter().collect(),
        ..RouterLimits::default()
    };
    let fields = "X-Forwarded-For: 10.0.0.1, 10.0.0.2\r\nX-Forwarded-Proto: https\r\n\
                  X-Forwarded-Host: shop.example\r\nX-Forwarded-For: 10.0.0.3\r\nX-Real-IP: 10.0.0.1\r\n";
    assert_eq!(
        seen(limits.clone(), fields).await,
        [
            "host: a.example",
            "x-forwarded-for: 10.0.0.1, 10.0.0.2, 10.0.0.3, 127.0.0.1",
            "x-forwarded-host: shop.example",
            "x-forwarded-proto: https",
            "x-real-ip: 10.0.0.1",
        ]
    );
    assert_eq!(seen(limits, "").await, direct(), "what it leaves out is as it was seen");
}
