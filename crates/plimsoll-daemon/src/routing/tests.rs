use std::net::IpAddr;

use plimsoll_model::spec::{Replay, RouteSpec};
use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, service_key, spread};
use plimsoll_model::{Change, MoveCause, ObservedState, ServiceName, ServiceSpec, Writer};
use plimsoll_peer::DialOptions;
use plimsoll_router::{HELD_ANSWER, MemberState, PoolKey};

use super::*;

mod running;
mod served;

const ASH: &str = "10.0.0.1";

/// Two nodes, and a replica of the shop on each that runs; both know where their own is reached.
fn shop(spec: &ServiceSpec) -> Cell {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let mut cell = cell.deploy("shop", [("web", spec.clone())]);
    for (replica, node) in [("shop/web/1", "ash"), ("shop/web/2", "birch")] {
        let (replica, node) = (replica_id(replica), node_id(node));
        cell.change(Writer::Scheduler, Change::Place { replica, node, spec: spec.hash });
    }
    cell.obey()
}

/// What ash is asked for, which reaches all its containers at one address.
fn asked(cell: &Cell) -> NodeRouterConfig {
    let address: IpAddr = ASH.parse().unwrap();
    let held = cell.state.replicas().flat_map(|(id, replica)| {
        let own = replica.holds().filter(|held| held.node == node_id("ash"));
        own.map(move |held| ((id.clone(), held.generation), address)).collect::<Vec<_>>()
    });
    wanted(&Endpoints::of(&cell.state, None), &node_id("ash"), &held.collect(), &Open::new())
}

/// Each container behind a port of the shop, as in `1/1 at 10.0.0.1:80: in`.
fn pool(asked: &NodeRouterConfig, port: u16) -> Vec<String> {
    let members = asked.wanted.pools.get(&PoolKey::new("shop/web", port));
    let shown = |member: &plimsoll_router::PoolMember| {
        let state = match member.state {
            MemberState::Joining => "joining".to_owned(),
            MemberState::Ready => "in".to_owned(),
            MemberState::Draining { grace } => format!("draining {grace:?}"),
        };
        let (replica, generation) = (&member.replica, member.generation);
        format!("{replica} of {generation} at {}: {state}", member.target)
    };
    members.into_iter().flat_map(|members| members.iter()).map(shown).collect()
}

fn succeed(cell: &mut Cell, replica: &str, node: &str, spec: &ServiceSpec) {
    let (replica, node, cause) = (replica_id(replica), node_id(node), MoveCause::Outdated);
    cell.change(Writer::Scheduler, Change::Succeed { replica, node, spec: spec.hash, cause });
}

#[test]
fn a_router_is_told_whose_requests_are_not_replayed() {
    let spec = spread(2).published(8080, 80);
    assert!(asked(&shop(&spec)).wanted.without_replay.is_empty());
    let spec = ServiceSpec { replay: Replay::Off, ..spec };
    assert_eq!(asked(&shop(&spec)).wanted.without_replay, ["shop/web".into()].into());
}

#[test]
fn a_port_leads_to_the_replicas_here_and_through_other_nodes() {
    let asked = asked(&shop(&spread(2).published(8080, 80)));
    assert_eq!(
        pool(&asked, 80),
        ["shop-web-1 of 1 at 10.0.0.1:80: in", "shop-web-2 of 2 at node birch: in"]
    );
    let ports: Vec<String> =
        asked.wanted.published.iter().map(|it| format!("{} {}", it.0, it.1)).collect();
    assert_eq!(ports, ["port 8080 shop/web port 80"]);
}

#[test]
fn a_replica_takes_requests_while_it_is_well_and_its_node_is_heard() {
    let spec = spread(2).published(8080, 80);
    let (one, generation) = (replica_id("shop/web/2"), Generation(2));
    for (state, expected) in [
        (ObservedState::Starting, "joining"),
        (ObservedState::Running, "in"),
        (ObservedState::Degraded, "joining"),
        (ObservedState::Failed, "joining"),
    ] {
        let mut cell = shop(&spec);
        cell.report(&one, generation, state, None);
        assert_eq!(
            pool(&asked(&cell), 80)[1],
            format!("shop-web-2 of 2 at node birch: {expected}")
        );
    }
    let down = shop(&spec).down("birch");
    assert_eq!(pool(&asked(&down), 80)[1], "shop-web-2 of 2 at node birch: joining");
}

#[test]
fn a_replica_here_without_an_address_is_left_out() {
    let cell = shop(&spread(2).published(8080, 80));
    let endpoints = Endpoints::of(&cell.state, None);
    let asked = wanted(&endpoints, &node_id("ash"), &Addresses::new(), &Open::new());
    assert_eq!(pool(&asked, 80), ["shop-web-2 of 2 at node birch: in"]);
}

#[test]
fn a_move_hands_over_when_it_ends_and_what_leaves_drains() {
    let spec = spread(2).published(8080, 80);
    let mut cell = shop(&spec);
    succeed(&mut cell, "shop/web/1", "birch", &spec);
    let cell = cell.obey();
    assert_eq!(
        pool(&asked(&cell), 80)[..2],
        ["shop-web-1 of 1 at 10.0.0.1:80: in", "shop-web-1 of 3 at node birch: joining"],
        "one generation of a replica at a time"
    );
    let mut cell = cell;
    cell.change(Writer::Scheduler, Change::Promote { replica: replica_id("shop/web/1") });
    assert_eq!(
        pool(&asked(&cell), 80)[..2],
        ["shop-web-1 of 3 at node birch: in", "shop-web-1 of 1 at 10.0.0.1:80: draining 10s"]
    );
    let cell = cell.obey();
    assert_eq!(pool(&asked(&cell), 80)[0], "shop-web-1 of 3 at node birch: in");
    assert_eq!(pool(&asked(&cell), 80).len(), 2, "what has stopped is gone");
}

#[test]
fn a_successor_serves_at_once_where_its_original_does_not() {
    let spec = spread(2).published(8080, 80);
    let mut cell = shop(&spec);
    succeed(&mut cell, "shop/web/1", "birch", &spec);
    let mut cell = cell.obey();
    cell.report(&replica_id("shop/web/1"), Generation(1), ObservedState::Degraded, None);
    assert_eq!(
        pool(&asked(&cell), 80)[..2],
        ["shop-web-1 of 1 at 10.0.0.1:80: joining", "shop-web-1 of 3 at node birch: in"]
    );
}

#[test]
fn a_port_leads_to_the_old_target_until_someone_serves_the_new_one() {
    let (old, new) = (spread(2).published(8080, 80), spread(2).published(8080, 81));
    let mut cell = shop(&old).deploy("shop", [("web", new.clone())]);
    let lead = |cell: &Cell| asked(cell).wanted.published.into_values().next().unwrap().port;
    assert_eq!(lead(&cell), 80);
    succeed(&mut cell, "shop/web/1", "ash", &new);
    assert_eq!(lead(&cell), 80);
    let mut cell = cell.obey();
    cell.change(Writer::Scheduler, Change::Promote { replica: replica_id("shop/web/1") });
    assert_eq!(lead(&cell), 81);
    assert_eq!(pool(&asked(&cell), 81), ["shop-web-1 of 3 at 10.0.0.1:81: in"]);
}

#[test]
fn what_a_deleted_service_still_has_under_way_may_end() {
    let mut cell = shop(&spread(2).published(8080, 80)).undeploy("shop");
    for replica in ["shop/web/1", "shop/web/2"] {
        cell.change(Writer::Scheduler, Change::Retire { replica: replica_id(replica) });
    }
    let asked = asked(&cell);
    assert_eq!(asked.wanted.published.len(), 0);
    assert_eq!(pool(&asked, 80)[0], "shop-web-1 of 1 at 10.0.0.1:80: draining 10s");
}

#[test]
fn a_port_that_cannot_be_listened_on_is_said_of_its_service() {
    let cell = cell().deploy("shop", [("web", spread(1).published(8080, 80))]);
    let asked = asked(&cell);
    let at = *asked.owners.keys().next().unwrap();
    assert_eq!(asked.owners[&at], service_key("shop/web"));
    let mut ingress = IngressStatus::default();
    tell(
        &mut ingress,
        &node_id("ash"),
        &asked,
        &BTreeMap::from([(at, "cannot listen on port 8080: no".to_owned())]),
        |_| Some("nginx (pid 812)".to_owned()),
    );
    let ports: Vec<String> = ingress
        .unbound_ports
        .iter()
        .map(|((service, _), text)| format!("{service}: {text}"))
        .collect();
    assert_eq!(ports, ["shop/web: ash cannot listen on port 8080: no; nginx (pid 812) holds it"]);
    let nobody = |_: &PublishedPort| None;
    tell(&mut ingress, &node_id("ash"), &NodeRouterConfig::default(), &BTreeMap::new(), nobody);
    assert!(ingress.unbound_ports.is_empty(), "what is over is not said any more");
}

#[test]
fn a_node_without_endpoints_leads_to_what_others_ask_for_and_it_has() {
    let key =
        |replica: &str, generation, port| UpstreamKey { replica: replica.into(), generation, port };
    let others =
        [key("shop-web-1", 1, 80), key("shop-web-1", 2, 80), key("shop-web-2", 3, 80)].into();
    let here =
        |generation| ((replica_id("shop/web/1"), Generation(generation)), ASH.parse().unwrap());
    let asked = wanted_by_others(&others, &Addresses::from([here(1), here(2), here(4)]));
    let pools: Vec<String> = asked.wanted.pools.keys().map(ToString::to_string).collect();
    assert_eq!(pools, ["shop-web-1 of 1 port 80", "shop-web-1 of 2 port 80"]);
    let targets: Vec<String> =
        asked.wanted.pools.values().map(|members| members[0].target.to_string()).collect();
    assert_eq!(targets, ["10.0.0.1:80", "10.0.0.1:80"]);
}

#[test]
fn what_publishes_nothing_is_reached_at_any_port_from_where_it_or_a_neighbour_runs() {
    let cell = shop(&spread(2));
    let pools = |node: &str, open: &str| -> Vec<String> {
        let open = [(open.to_owned(), "10.208.1.0/24".parse().unwrap())].into();
        let endpoints = Endpoints::of(&cell.state, None);
        let asked = wanted(&endpoints, &node_id(node), &Addresses::default(), &open);
        asked.wanted.pools.keys().map(ToString::to_string).collect()
    };
    assert_eq!(pools("ash", ""), ["shop/web any port"], "it runs here, and others may ask for it");
    assert_eq!(pools("cedar", "shop_default"), ["shop/web any port"], "a neighbour is here");
    assert_eq!(pools("cedar", "blog_default"), [""; 0]);
}

fn route(path: &str, port: u16) -> RouteSpec {
    let service = ServiceName::new("web").unwrap();
    let (host, path) = (Some("shop.example".to_owned()), path.to_owned());
    RouteSpec { host, path, strip_path: true, service, port, tls: plimsoll_model::spec::Tls::Off }
}

/// The shop with routes and without published ports.
fn routed(routes: Vec<RouteSpec>) -> Cell {
    let spec = spread(2);
    let mut cell = shop(&spec).deploy_routed("shop", [("web", spec)], routes);
    cell = cell.obey();
    cell
}

#[test]
fn a_route_leads_to_all_replicas_of_its_service_on_its_port() {
    let asked = asked(&routed(vec![route("/api/", 80), route("/", 81)]));
    let routes: Vec<String> = asked
        .wanted
        .routes
        .iter()
        .map(|it| format!("{:?} {} {}", it.host, it.path, it.pool))
        .collect();
    assert_eq!(
        routes,
        [
            "Some(\"shop.example\") /api shop/web port 80",
            "Some(\"shop.example\") / shop/web port 81"
        ]
    );
    for port in [80, 81] {
        assert_eq!(
            pool(&asked, port),
            [
                format!("shop-web-1 of 1 at 10.0.0.1:{port}: in"),
                "shop-web-2 of 2 at node birch: in".to_owned()
            ]
        );
    }
}

#[test]
fn half_an_answer_is_held_until_a_silent_node_is_known_to_be_gone() {
    let noticed = DialOptions::default().for_tunnels().noticed_within();
    assert!(HELD_ANSWER > noticed + Duration::from_secs(1), "noticed after {noticed:?}");
}
