use super::*;

fn member(replica: &str, generation: u64, state: MemberState) -> PoolMember {
    let octet = u8::try_from(generation).expect("a small number");
    let target = UpstreamTarget::Local(([127, 0, 0, octet], 80).into());
    PoolMember { replica: replica.into(), generation, target, state, proxied: Arc::default() }
}

fn web() -> PoolKey {
    PoolKey::new("shop/web", 80)
}

fn pools(members: &[PoolMember]) -> RouterConfig {
    RouterConfig { pools: [(web(), members.into())].into(), ..RouterConfig::default() }
}

fn route(host: Option<&str>, path: &str, service: &str) -> RouteConfig {
    RouteConfig {
        host: host.map(str::to_owned),
        path: path.to_owned(),
        strip_path: false,
        pool: PoolKey::new(service, 80),
        tls: RouteTls::Off,
    }
}

fn routed(routes: &[RouteConfig]) -> RoutingTable {
    RoutingTable::default()
        .next(&RouterConfig { routes: routes.to_vec(), ..RouterConfig::default() })
}

fn service_of(table: &RoutingTable, host: &str, path: &str) -> String {
    let route = table.route(host, path);
    route.map_or_else(|| "none".to_owned(), |route| route.spec.pool.service.to_string())
}

#[test]
fn the_most_specific_host_with_a_fitting_path_answers() {
    let table = routed(&[
        route(None, "/", "any"),
        route(Some("*.example"), "/", "wild"),
        route(Some("*.shop.example"), "/", "wilder"),
        route(Some("a.shop.example"), "/", "exact"),
        route(Some("narrow.example"), "/only", "narrow"),
    ]);
    for (case, host, path, service) in [
        ("the name itself", "a.shop.example", "/", "exact"),
        ("whatever its case", "A.Shop.EXAMPLE", "/", "exact"),
        ("and its final dot", "a.shop.example.", "/", "exact"),
        ("the longest suffix", "b.shop.example", "/", "wilder"),
        ("however deep", "x.y.shop.example", "/", "wilder"),
        ("a suffix is not below itself", "shop.example", "/", "wild"),
        ("nor is it what ends alike", "workshop.example", "/", "wild"),
        ("a name without such a path leaves it to others", "narrow.example", "/x", "wild"),
        ("all others", "elsewhere.test", "/", "any"),
        ("no name at all", "", "/", "any"),
    ] {
        assert_eq!(service_of(&table, host, path), service, "{case}");
    }
}

#[test]
fn without_a_route_for_all_hosts_a_stranger_has_none() {
    let table = routed(&[route(Some("a.example"), "/api", "api")]);
    for (host, path) in [("b.example", "/api"), ("a.example", "/"), ("", "/api")] {
        assert_eq!(service_of(&table, host, path), "none", "{host} {path}");
    }
}

#[test]
fn the_longest_prefix_wins_and_ends_at_a_segments_border() {
    let table = routed(&[
        route(None, "/", "root"),
        route(None, "/api", "api"),
        route(None, "/api/v2", "v2"),
        route(None, "/files/", "files"),
    ]);
    for (path, service) in [
        ("/", "root"),
        ("/api", "api"),
        ("/api/", "api"),
        ("/api/v1", "api"),
        ("/apis", "root"),
        ("/api/v2", "v2"),
        ("/api/v2/x", "v2"),
        ("/api/v22", "api"),
        ("/files", "root"),
        ("/files/a", "files"),
        ("*", "none"),
    ] {
        assert_eq!(service_of(&table, "h", path), service, "{path}");
    }
}

#[test]
fn only_what_is_in_takes_requests() {
    let grace = Duration::from_secs(1);
    let table = RoutingTable::default().next(&pools(&[
        member("web-1", 1, MemberState::Ready),
        member("web-2", 2, MemberState::Joining),
        member("web-3", 3, MemberState::Draining { grace }),
    ]));
    let pool = table.pool(&web()).unwrap();
    let members: Vec<_> = pool.members().iter().map(|one| &*one.key().replica).collect();
    assert_eq!((members, pool.all().len()), (vec!["web-1"], 3));
}

#[test]
fn a_replica_is_routed_at_one_generation() {
    let both = [member("web-1", 4, MemberState::Ready), member("web-1", 7, MemberState::Ready)];
    let table = RoutingTable::default().next(&pools(&both));
    let pool = table.pool(&web()).unwrap();
    let generations: Vec<_> = pool.members().iter().map(|one| one.key().generation).collect();
    assert_eq!(generations, [7]);
    assert!(matches!(pool.all()[0].1, MemberState::Draining { .. }), "the older one ends in peace");
    let joining =
        [member("web-1", 4, MemberState::Ready), member("web-1", 7, MemberState::Joining)];
    let table = table.next(&pools(&joining));
    let members = table.pool(&web()).unwrap().members();
    assert_eq!(members[0].key().generation, 4, "a newer one that is not healthy changes nothing");
}

#[test]
fn what_is_known_of_an_upstream_outlives_tables() {
    let now = Moment(100_000);
    let first = RoutingTable::default().next(&pools(&[member("web-1", 1, MemberState::Ready)]));
    let upstream = Arc::clone(&first.pool(&web()).unwrap().members()[0]);
    let _under_way = upstream.begin();
    upstream.note_failure(now);
    let second = first.next(&pools(&[
        member("web-2", 2, MemberState::Ready),
        member("web-1", 1, MemberState::Ready),
    ]));
    let kept = &second.pool(&web()).unwrap().members()[1];
    assert!(Arc::ptr_eq(kept, &upstream));
    assert_eq!((kept.in_flight(), kept.is_ejected(now)), (1, true));
}

#[test]
fn a_new_generation_or_place_is_a_new_upstream() {
    let first = RoutingTable::default().next(&pools(&[member("web-1", 1, MemberState::Ready)]));
    let old = &first.pool(&web()).unwrap().members()[0];
    let mut elsewhere = member("web-1", 1, MemberState::Ready);
    elsewhere.target = UpstreamTarget::Via { node: "ash".into() };
    for (case, next) in
        [("generation", member("web-1", 2, MemberState::Ready)), ("place", elsewhere)]
    {
        let second = first.next(&pools(&[next]));
        assert!(!Arc::ptr_eq(&second.pool(&web()).unwrap().members()[0], old), "{case}");
    }
}

#[test]
fn a_pool_that_stayed_as_it_was_is_the_same_pool() {
    let wanted = pools(&[member("web-1", 1, MemberState::Ready)]);
    let first = RoutingTable::default().next(&wanted);
    for (case, again) in [
        ("the same slice", wanted),
        ("equal members", pools(&[member("web-1", 1, MemberState::Ready)])),
    ] {
        let second = first.next(&again);
        assert!(Arc::ptr_eq(first.pool(&web()).unwrap(), second.pool(&web()).unwrap()), "{case}");
    }
}

#[test]
fn the_counters_of_a_route_outlive_tables() {
    let routes = [route(Some("*.a.example"), "/x", "one")];
    let first = routed(&routes);
    first.routes().next().unwrap().meter.classes.note(200);
    let second = first.next(&RouterConfig {
        routes: vec![route(Some("*.a.example"), "/x", "two")],
        ..RouterConfig::default()
    });
    assert_eq!(second.routes().next().unwrap().meter.classes.read()[1], 1);
}

#[test]
fn upstreams_are_told_how_they_stand_and_a_drain_keeps_its_end() {
    use crate::upstream::UpstreamState;
    let (now, grace) = (Moment(5_000), Duration::from_secs(3));
    let empty = RoutingTable::default();
    let first = empty.next(&pools(&[member("web-1", 1, MemberState::Ready)]));
    first.set_states(&empty, now);
    let upstream = Arc::clone(&first.pool(&web()).unwrap().members()[0]);
    assert_eq!(upstream.state(), UpstreamState::Ready);

    let draining = pools(&[member("web-1", 1, MemberState::Draining { grace })]);
    let second = first.next(&draining);
    second.set_states(&first, now);
    let until = Moment(8_000);
    assert_eq!(upstream.state(), UpstreamState::Draining { until });

    let third = second.next(&pools(&[
        member("web-1", 1, MemberState::Draining { grace }),
        member("web-2", 2, MemberState::Ready),
    ]));
    third.set_states(&second, Moment(7_000));
    assert_eq!(upstream.state(), UpstreamState::Draining { until }, "said twice, begun once");

    let fourth = third.next(&pools(&[member("web-2", 2, MemberState::Ready)]));
    fourth.set_states(&third, Moment(7_500));
    assert_eq!(upstream.state(), UpstreamState::Gone);
    RoutingTable::default().set_states(&fourth, Moment(8_000));
    let last = &fourth.pool(&web()).unwrap().members()[0];
    assert_eq!(last.state(), UpstreamState::Gone, "a pool that is gone takes its upstreams along");
}

#[test]
fn a_route_to_a_service_without_replicas_has_an_empty_pool() {
    let table = routed(&[route(None, "/", "shop/web")]);
    assert!(table.route("h", "/").unwrap().pool.members().is_empty());
}

#[test]
fn the_port_is_no_part_of_the_host() {
    for (authority, host) in [
        ("a.example:80", "a.example"),
        ("a.example", "a.example"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
    ] {
        assert_eq!(bare_host(authority), host);
    }
}
