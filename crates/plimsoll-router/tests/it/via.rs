//! Upstreams on another node, through a tunnel between two routers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use plimsoll_router::{
    MemberState, NoTunnel, PoolKey, PoolMember, Protocol, RemoteUpstream, Router, RouterConfig,
    RouterLimits, Tunnel, TunnelFuture, UpstreamTarget,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::kit::{Bench, PATIENCE, echo, inside, text, web};
use crate::udp;

/// Opens streams to another router of this process, as the daemons do between nodes.
pub(crate) struct Between {
    pub(crate) far: Router,
    pub(crate) opened: AtomicUsize,
}

impl Tunnel for Between {
    fn open(&self, far: RemoteUpstream) -> TunnelFuture<'_> {
        Box::pin(async move {
            self.opened.fetch_add(1, Relaxed);
            assert_eq!(&*far.node, "birch");
            let arrival = self.far.accept_tunnel(&far.upstream, far.protocol).await;
            let refused = |error| io::Error::new(io::ErrorKind::ConnectionRefused, error);
            let arrival = arrival.map_err(refused)?;
            let (here, mut there): (DuplexStream, DuplexStream) = tokio::io::duplex(16 << 10);
            tokio::spawn(async move { arrival.carry(&mut there).await });
            Ok(Box::new(here) as _)
        })
    }
}

/// A tunnel to a node that runs these.
pub(crate) fn between(members: &[PoolMember]) -> Arc<Between> {
    let far = Router::new(RouterLimits::default(), Arc::new(NoTunnel));
    far.update(&RouterConfig {
        pools: [(web(), members.into())].into(),
        ..RouterConfig::default()
    });
    Arc::new(Between { far, opened: AtomicUsize::new(0) })
}

pub(crate) fn via(replica: &str) -> PoolMember {
    let target = UpstreamTarget::Via { node: "birch".into() };
    PoolMember {
        replica: replica.into(),
        generation: 1,
        target,
        state: MemberState::Ready,
        proxied: Arc::default(),
    }
}

#[tokio::test]
async fn a_published_port_leads_to_a_replica_on_another_node() {
    let tunnel = between(&[inside("web-1", echo("A").await)]);
    let bench =
        Bench::with(Protocol::Tcp, RouterLimits::default(), tunnel.clone(), &[via("web-1")]);
    let mut client = bench.connect().await;
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    let mut all = String::new();
    client.read_to_string(&mut all).await.unwrap();
    assert_eq!((all.as_str(), tunnel.opened.load(Relaxed)), ("Ahello", 1));
}

#[tokio::test]
async fn a_replica_that_its_node_no_longer_has_is_left_for_another() {
    let tunnel = between(&[]);
    let members = [via("web-1"), inside("web-2", echo("B").await)];
    let bench = Bench::with(Protocol::Tcp, RouterLimits::default(), tunnel.clone(), &members);
    for _ in 0..10 {
        assert_eq!(text(&mut bench.connect().await, 1).await, "B");
    }
    assert!((1..10).contains(&tunnel.opened.load(Relaxed)), "it was left out after failing");
}

/// A node that answers nothing, or that cannot be reached.
struct Lost {
    fails: AtomicBool,
    opened: AtomicUsize,
}

impl Tunnel for Lost {
    fn open(&self, _: RemoteUpstream) -> TunnelFuture<'_> {
        self.opened.fetch_add(1, Relaxed);
        Box::pin(async {
            if self.fails.load(Relaxed) {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn a_node_that_falls_silent_holds_up_one_connection_for_a_moment_and_no_other() {
    let tunnel = Arc::new(Lost { fails: AtomicBool::new(false), opened: AtomicUsize::new(0) });
    let members = [via("web-1"), inside("web-2", echo("B").await)];
    let late = Duration::from_millis(100);
    let limits = RouterLimits { late, ..RouterLimits::default() };
    let bench = Bench::with(Protocol::Tcp, limits, tunnel.clone(), &members);
    let (began, mut waited) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(1) {
        let asked = Instant::now();
        assert_eq!(text(&mut bench.connect().await, 1).await, "B");
        waited += usize::from(asked.elapsed() >= late);
    }
    assert_eq!(waited, 1, "who came first");
    let opened = tunnel.opened.load(Relaxed);
    assert_eq!(opened, 2, "and one trial, which nobody waits for, goes on");
}

#[tokio::test]
async fn where_there_is_no_other_a_node_is_waited_for_as_long_as_it_may_take() {
    let tunnel = Arc::new(Lost { fails: AtomicBool::new(false), opened: AtomicUsize::new(0) });
    let limits = RouterLimits {
        late: Duration::from_millis(1),
        connect_via: Duration::from_millis(300),
        tries: 1,
        ..RouterLimits::default()
    };
    let bench = Bench::with(Protocol::Tcp, limits, tunnel, &[via("web-1")]);
    let (mut client, began) = (bench.connect().await, Instant::now());
    let end = timeout(PATIENCE, client.read(&mut [0; 1])).await.expect("in time");
    assert!(matches!(end, Ok(0) | Err(_)));
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
}

/// Nodes that are there and take their time, as all do on a machine that is too busy.
struct Slow(Arc<Between>);

impl Tunnel for Slow {
    fn open(&self, far: RemoteUpstream) -> TunnelFuture<'_> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            self.0.open(far).await
        })
    }
}

#[tokio::test]
async fn where_all_are_late_the_last_that_is_tried_is_waited_for() {
    let names: Vec<String> = (0..8).map(|number| format!("web-{number}")).collect();
    let near = echo("A").await;
    let far: Vec<PoolMember> = names.iter().map(|name| inside(name, near)).collect();
    let members: Vec<PoolMember> = names.iter().map(|name| via(name)).collect();
    let limits = RouterLimits { late: Duration::from_millis(50), ..RouterLimits::default() };
    let bench = Bench::with(Protocol::Tcp, limits, Arc::new(Slow(between(&far))), &members);
    for _ in 0..5 {
        assert_eq!(text(&mut bench.connect().await, 1).await, "A");
    }
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_is_left_with_all_its_replicas_at_once() {
    let tunnel = Arc::new(Lost { fails: AtomicBool::new(true), opened: AtomicUsize::new(0) });
    let mut members: Vec<_> = (0..50).map(|number| via(&format!("far-{number}"))).collect();
    members.push(inside("near", echo("B").await));
    let bench = Bench::with(Protocol::Tcp, RouterLimits::default(), tunnel.clone(), &members);
    for _ in 0..20 {
        assert_eq!(text(&mut bench.connect().await, 1).await, "B");
    }
    assert_eq!(tunnel.opened.load(Relaxed), 1, "one was enough to know");
}

#[tokio::test]
async fn a_connection_ends_on_both_nodes_when_the_replica_leaves_its_own() {
    let tunnel = between(&[inside("web-1", echo("A").await)]);
    let bench =
        Bench::with(Protocol::Tcp, RouterLimits::default(), tunnel.clone(), &[via("web-1")]);
    let mut client = bench.connect().await;
    assert_eq!(text(&mut client, 1).await, "A");
    tunnel.far.update(&RouterConfig::default());
    let end = timeout(PATIENCE, client.read(&mut [0; 1])).await.expect("in time");
    assert!(matches!(end, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_node_that_has_yet_to_learn_of_a_stop_is_turned_away_and_tries_another() {
    let tunnel = between(&[inside("web-1", echo("A").await)]);
    let members = [via("web-1"), inside("web-2", echo("B").await)];
    let bench = Bench::with(Protocol::Tcp, RouterLimits::default(), tunnel.clone(), &members);
    let mut under_way = Vec::new();
    while under_way.is_empty() {
        let mut client = bench.connect().await;
        if text(&mut client, 1).await == "A" {
            under_way.push(client);
        }
    }
    let far = tunnel.far.clone();
    let quiet = tokio::spawn(async move { far.drained("web-1", 1, PATIENCE).await });
    let upstream = tunnel.far.table().upstreams().next().unwrap().clone();
    crate::kit::eventually("it takes nothing new", || async {
        upstream.begin_if_open().is_none().then_some(())
    })
    .await;
    for _ in 0..20 {
        assert_eq!(text(&mut bench.connect().await, 1).await, "B");
    }
    assert!(!quiet.is_finished(), "what was under way goes on");
    under_way.clear();
    assert!(quiet.await.unwrap(), "and may end");
}

#[tokio::test]
async fn datagrams_keep_their_borders_on_the_way() {
    let tunnel = between(&[inside("dns-1", udp::echo("A").await)]);
    let bench =
        Bench::with(Protocol::Udp, RouterLimits::default(), tunnel.clone(), &[via("dns-1")]);
    let client = udp::Client::new(&bench).await;
    let met = client.ask("one").await;
    for length in [0, 1, 1_400, 60_000] {
        assert_eq!(client.ask(&"x".repeat(length)).await, met, "{length} bytes");
    }
    assert_eq!(tunnel.opened.load(Relaxed), 1, "one session, one stream");
}

#[tokio::test]
async fn one_pool_leads_to_any_port_of_a_container_here_and_elsewhere() {
    let service = PoolKey::any("shop/db");
    let (one, two) = (echo("A").await, echo("B").await);
    let all_ports = |target| PoolMember { target, ..via("db-1") };
    let here = all_ports(UpstreamTarget::Local((one.ip(), 0).into()));
    let tunnel = between(&[]);
    tunnel.far.update(&RouterConfig {
        pools: [(service.clone(), [here].into())].into(),
        ..RouterConfig::default()
    });
    let near = Router::new(RouterLimits::default(), Arc::new(NoTunnel));
    near.update(&RouterConfig {
        pools: [(service.clone(), [all_ports(UpstreamTarget::Local((one.ip(), 0).into()))].into())]
            .into(),
        ..RouterConfig::default()
    });
    let far = Router::new(RouterLimits::default(), tunnel.clone());
    far.update(&RouterConfig {
        pools: [(service.clone(), [via("db-1")].into())].into(),
        ..RouterConfig::default()
    });
    let silent = deaf_port().await;
    for router in [near, far] {
        for (port, name) in [(one.port(), "A"), (two.port(), "B"), (one.port(), "A")] {
            let mut client = taken(&router, &service, port).await;
            assert_eq!(text(&mut client, 1).await, name);
            // Nobody listens there, and the others are as well as before.
            let mut refused = taken(&router, &service, silent).await;
            let end = timeout(PATIENCE, refused.read(&mut [0; 1])).await.expect("in time");
            assert!(end.is_err(), "a reset, as from a port that nobody listens on");
        }
    }
}

/// A port that nobody listens on.
async fn deaf_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// A client whose connection the router carries to that port of the service.
async fn taken(router: &Router, service: &PoolKey, port: u16) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (router, service) = (router.clone(), service.clone());
    let (accepted, _) = listener.accept().await.unwrap();
    tokio::spawn(async move { router.carry(accepted, &service, port).await });
    client
}
