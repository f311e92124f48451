//! Routes: applied with their deployment, refused where they cannot be, told and explained.

use expect_test::expect;
use plimsoll_api::view::{Apply, ReasonCode, Rollback, RouteQuery};
use plimsoll_model::spec::{RouteSpec, Tls};
use plimsoll_model::testkit::spread;
use plimsoll_model::{ObservedState, ServiceName, ServiceSpec};

use super::support::{Daemon, apply, daemon, said};

fn route(host: &str, path: &str, service: &str) -> RouteSpec {
    RouteSpec {
        host: Some(host.to_owned()),
        path: path.to_owned(),
        strip_path: false,
        service: ServiceName::new(service).unwrap(),
        port: 80,
        tls: Tls::Off,
    }
}

fn routed<const N: usize>(services: [(&str, ServiceSpec); N], routes: Vec<RouteSpec>) -> Apply {
    Apply { routes, ..apply(services) }
}

/// Every route in a line.
async fn told(daemon: &Daemon) -> Vec<String> {
    let routes = daemon.client.routes().await.unwrap();
    let line = |it: &plimsoll_api::view::Route| {
        let host = it.host.as_deref().unwrap_or("*");
        format!("{host}{} {}/{}:{} {}", it.path, it.deployment, it.service, it.port, it.taking)
    };
    routes.iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_of_another_deployment_or_to_nothing_is_refused_and_nothing_is_written() {
    let daemon = daemon().await;
    let client = &daemon.client;
    let shop = routed([("web", spread(1))], vec![route("shop.example", "/", "web")]);
    client.apply("shop", &shop).await.unwrap();
    let blog = routed([("app", spread(1))], vec![route("Shop.Example", "/", "app")]);
    expect![[r"
        route_taken: the route shop.example/ is shop's already
        hint: choose another host or path, or remove it from shop first: every node serves all routes"]]
    .assert_eq(&said(client.apply("blog", &blog).await));
    assert!(said(client.dry_run("blog", &blog).await).starts_with("route_taken"));
    assert!(client.deployment("blog").await.is_err(), "nothing of it was written");

    let without = routed([("app", spread(1))], vec![route("shop.example", "/", "web")]);
    expect![[r#"
        route_nowhere: the route shop.example/ leads to "web", and there is no such service
        hint: let the route lead to a service of the same file, or remove it"#]]
    .assert_eq(&said(client.apply("shop", &without).await));
    let bad = routed([("app", spread(1))], vec![route("a b", "/", "app")]);
    assert!(said(client.apply("blog", &bad).await).starts_with("bad_route"));
    assert_eq!(told(&daemon).await, ["shop.example/ shop/web:80 0"]);

    client.delete("shop", false).await.unwrap();
    assert_eq!(told(&daemon).await, [""; 0], "routes go with their deployment");
    client.apply("blog", &blog).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_are_part_of_a_revision_and_come_back_with_it() {
    let daemon = daemon().await;
    let client = &daemon.client;
    let old = routed([("web", spread(1))], vec![route("shop.example", "/old", "web")]);
    let new = routed([("web", spread(1))], vec![route("shop.example", "/new", "web")]);
    let first = client.apply("shop", &old).await.unwrap();
    let warned = first.warnings.iter().find(|warning| warning.word == ReasonCode::RoutesNotServed);
    assert_eq!(warned.map(|it| it.text.as_str()), Some("it was started without --http"));
    assert_eq!((first.revision, client.apply("shop", &old).await.unwrap().revision), (1, 1));
    let planned = client.dry_run("shop", &new).await.unwrap();
    assert_eq!(
        planned.routes,
        ["- shop.example/old → web port 80", "+ shop.example/new → web port 80"]
    );
    assert_eq!(client.apply("shop", &new).await.unwrap().revision, 2);
    let scale = plimsoll_api::view::Scale { services: [("web".to_owned(), 2)].into() };
    client.scale("shop", &scale).await.unwrap();
    assert_eq!(told(&daemon).await, ["shop.example/new shop/web:80 0"], "scaling leaves them");
    client.rollback("shop", &Rollback { to: Some(1) }).await.unwrap();
    assert_eq!(told(&daemon).await, ["shop.example/old shop/web:80 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_explained_with_every_container_that_could_have_it() {
    let daemon = daemon().await;
    let client = &daemon.client;
    let routes = vec![route("shop.example", "/", "web"), route("shop.example", "/api", "web")];
    client.apply("shop", &routed([("web", spread(2))], routes)).await.unwrap();
    daemon.settle().await;
    daemon.report("shop/web/2", ObservedState::Degraded, None).await;
    let query = |path: &str| RouteQuery { host: "shop.example:80".into(), path: path.into() };
    let explained = client.explain_route(&query("/api/x")).await.unwrap();
    assert_eq!((explained.route.path.as_str(), explained.route.taking), ("/api", 1));
    let said_of = explained.containers.iter().map(|one| {
        let takes = if one.takes_requests { "takes requests" } else { "does not" };
        format!("{} {takes}: {} ({})", one.replica, one.reason.text, one.reason.word)
    });
    assert_eq!(
        said_of.collect::<Vec<_>>(),
        [
            "shop-web-1 takes requests: running and healthy (takes_requests)",
            "shop-web-2 does not: degraded (degraded)"
        ]
    );
    assert_eq!(client.explain_route(&query("/apix")).await.unwrap().route.path, "/");
    let other = RouteQuery { host: "chop.example".into(), path: "/".into() };
    expect![[r#"
        no_such_route: no route is for host chop.example, path /
        hint: did you mean shop.example/ or shop.example/api?"#]]
    .assert_eq(&said(client.explain_route(&other).await));
}
