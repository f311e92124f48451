//! Paths that mean one thing to the router and another to a service.

use std::sync::Arc;

use plimsoll_router::{NoTunnel, PoolKey, RouteConfig, RouterConfig, RouterLimits};

use crate::http::kit::{Server, Site, everything, full, mirror};
use crate::kit::{inside, web};

/// `/` leads to a service that echoes, and `/admin` to one that says so.
async fn site() -> (Site, [Server; 2]) {
    let (open, guarded) = (Server::new(mirror).await, Server::new(admin).await);
    let site = Site::new(RouterLimits::default(), &[]).await;
    let admin = PoolKey::new("shop/admin", 80);
    let below = RouteConfig { path: "/admin".to_owned(), pool: admin.clone(), ..everything() };
    let stripped = RouteConfig { path: "/api".to_owned(), strip_path: true, ..everything() };
    site.router.update(&RouterConfig {
        pools: [
            (web(), [inside("web-1", open.at)].into()),
            (admin, [inside("admin-1", guarded.at)].into()),
        ]
        .into(),
        routes: vec![everything(), below, stripped],
        ..RouterConfig::default()
    });
    (site, [open, guarded])
}

async fn admin(
    request: hyper::Request<hyper::body::Incoming>,
) -> hyper::Response<crate::http::kit::Body> {
    hyper::Response::new(full(format!("admin {}\n", request.uri())))
}

#[tokio::test]
async fn a_path_with_dot_segments_is_refused_in_every_spelling() {
    let (site, _servers) = site().await;
    for path in [
        "/a/../admin",
        "/..",
        "/.",
        "/a/./admin",
        "/a/..",
        "/a/%2e%2e/admin",
        "/a/%2E./admin",
        "/a/.%2e/admin",
        "/a/..%2fadmin",
        "/a%2f..%2Fadmin",
        "/a/..\\admin",
        "/a/..%5cadmin",
        "/a/..;/admin",
        "/a/..;x=y/admin",
        "/api/../admin",
        "/api/..%2fadmin",
    ] {
        let heard = site.get(path).await;
        let text = format!("400 the path {path} has dot segments\n");
        assert_eq!((heard.status, heard.body), (400, text), "{path}");
    }
}

#[tokio::test]
async fn one_path_in_many_spellings_has_one_route_and_its_service_sees_what_was_matched() {
    let (site, _servers) = site().await;
    for (path, line) in [
        ("/admin/x", "admin /admin/x"),
        ("//admin", "admin /admin"),
        ("///admin//x?a=//b/../c", "admin /admin/x?a=//b/../c"),
        ("/%61dmin", "admin /admin"),
        ("/%61%64%6D%69%6e/%7Ex", "admin /admin/~x"),
        ("/api//evil.example/", "GET /evil.example/ HTTP/1.1"),
        ("//api/x", "GET /x HTTP/1.1"),
        ("/a//b", "GET /a/b HTTP/1.1"),
        ("/...", "GET /... HTTP/1.1"),
        ("/.well-known/x", "GET /.well-known/x HTTP/1.1"),
        ("/a..b/..c/d..", "GET /a..b/..c/d.. HTTP/1.1"),
        // A slash that is encoded is no separator, and stays encoded.
        ("/admin%2fx", "GET /admin%2fx HTTP/1.1"),
        ("/a%2Fb%20c%25zz%", "GET /a%2Fb%20c%25zz%25 HTTP/1.1"),
        ("/%%32e%%32e/admin", "GET /%252e%252e/admin HTTP/1.1"),
        // What is encoded twice is encoded once to whoever decodes it.
        ("/%252e%252e/admin", "GET /%252e%252e/admin HTTP/1.1"),
    ] {
        let heard = site.get(path).await;
        assert_eq!(heard.body.lines().next(), Some(line), "{path}");
    }
}

#[tokio::test]
async fn a_host_cannot_redirect_elsewhere() {
    let routes = vec![RouteConfig {
        host: Some("*.example.org".to_owned()),
        tls: plimsoll_router::RouteTls::Internal,
        ..everything()
    }];
    let site = Site::with(RouterLimits::default(), Arc::new(NoTunnel), routes, &[]).await;
    let heard = site.ask("GET / HTTP/1.1\r\nHost: evil.example/x.example.org\r\n\r\n").await;
    assert_eq!((heard.status, heard.field("location")), (400, None));
}
