//! Clients that take connections from others: of one source, at one port, and from outside.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use plimsoll_router::{AddressBlock, PoolKey, Protocol, RouterConfig, RouterLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::http::kit::{Client, Server, Site, hear, mirror};
use crate::kit::{Bench, PATIENCE, address, echo, eventually, inside, published, text, web};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A connection from this host of the loopback network.
async fn from(host: u8, to: SocketAddr) -> TcpStream {
    eventually("somebody listens", || async move {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, host), 0).into()).unwrap();
        socket.connect(to).await.ok()
    })
    .await
}

/// Whether the connection leads to the upstream, which says one letter first.
async fn is_carried(client: &mut TcpStream) -> bool {
    match timeout(PATIENCE, client.read(&mut [0; 1])).await.expect("carried or reset") {
        Ok(count) => count == 1,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            false
        }
    }
}

#[tokio::test]
async fn one_source_cannot_take_all_connections_of_a_port() {
    let limits =
        RouterLimits { connections: 40, source_connections: 10, ..RouterLimits::default() };
    let bench = Bench::new(Protocol::Tcp, limits, &[inside("web-1", echo("A").await)]);
    let mut greedy = Vec::new();
    let mut carried = 0;
    for _ in 0..60 {
        let mut client = from(2, bench.at.address).await;
        carried += usize::from(is_carried(&mut client).await);
        greedy.push(client);
    }
    assert_eq!(carried, 10, "its share");
    for _ in 0..5 {
        assert!(is_carried(&mut from(3, bench.at.address).await).await, "another is served");
    }
    drop(greedy);
    eventually("its share is free again", || async {
        is_carried(&mut from(2, bench.at.address).await).await.then_some(())
    })
    .await;
}

#[tokio::test]
async fn one_source_evicts_its_own_idle_connections_first() {
    let server = Server::new(mirror).await;
    let limits =
        RouterLimits { connections: 100, source_connections: 20, ..RouterLimits::default() };
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    let mut other = from(3, site.at).await;
    other.write_all(GET.as_bytes()).await.unwrap();
    assert_eq!(hear(&mut other).await.status, 200);
    let mut greedy = Vec::new();
    for round in 0..100 {
        let mut client = Client(tokio::io::BufReader::new(from(2, site.at).await));
        assert_eq!(client.ask(GET).await.status, 200, "round {round}");
        greedy.push(client);
    }
    other.write_all(GET.as_bytes()).await.unwrap();
    assert_eq!(hear(&mut other).await.status, 200, "and nobody else's");
}

#[tokio::test]
async fn whoever_shares_an_address_with_idle_connections_is_never_refused() {
    let server = Server::new(mirror).await;
    let limits =
        RouterLimits { connections: 200, source_connections: 20, ..RouterLimits::default() };
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    let mut idle = Vec::new();
    for round in 0..20 {
        // Far more at once than its share, so that those that are evicted have no time to close.
        for _ in 0..50 {
            idle.push(from(2, site.at).await);
        }
        let mut client = Client(tokio::io::BufReader::new(from(2, site.at).await));
        assert_eq!(client.ask(GET).await.status, 200, "round {round}");
    }
}

#[tokio::test]
async fn connections_on_which_nobody_has_spoken_make_room_for_others_of_their_source() {
    let limits = RouterLimits {
        connections: 40,
        source_connections: 10,
        header_read: Duration::from_millis(100),
        ..RouterLimits::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    // It echoes, and says nothing first.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    let bench = Bench::new(Protocol::Tcp, limits, &[inside("web-1", upstream)]);
    let mut spoken = from(2, bench.at.address).await;
    spoken.write_all(b"A").await.unwrap();
    assert_eq!(text(&mut spoken, 1).await, "A");
    let mut mute = Vec::new();
    for _ in 0..9 {
        mute.push(from(2, bench.at.address).await);
    }
    eventually("one more is served", || async {
        let mut client = from(2, bench.at.address).await;
        client.write_all(b"B").await.ok()?;
        (client.read_u8().await.ok()? == b'B').then_some(())
    })
    .await;
    spoken.write_all(b"C").await.unwrap();
    assert_eq!(text(&mut spoken, 1).await, "C", "who has spoken stays");
}

#[tokio::test]
async fn a_trusted_proxy_stands_for_many_clients() {
    let proxy = "127.0.0.2".parse::<AddressBlock>().unwrap();
    let limits = RouterLimits {
        source_connections: 5,
        trusted_proxies: [proxy].into_iter().collect(),
        ..RouterLimits::default()
    };
    let bench = Bench::new(Protocol::Tcp, limits, &[inside("web-1", echo("A").await)]);
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = from(2, bench.at.address).await;
        assert!(is_carried(&mut client).await);
        clients.push(client);
    }
}

/// Clients of many sources, of whom so many are carried.
async fn crowd(at: SocketAddr, carried: usize) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for host in 10..40 {
        crowd.push(from(host, at).await);
    }
    for client in &mut crowd[..carried] {
        assert_eq!(text(client, 1).await, "A");
    }
    crowd
}

#[tokio::test]
async fn one_port_cannot_take_all_connections_of_the_node() {
    let limits = RouterLimits { connections: 12, port_connections: 8, ..RouterLimits::default() };
    let members = [inside("web-1", echo("A").await)];
    let bench = Bench::new(Protocol::Tcp, limits, &members);
    let other = published(address(), Protocol::Tcp);
    bench.router.update(&RouterConfig {
        pools: [(web(), members.as_slice().into())].into(),
        published: [(bench.at, web()), (other, web())].into(),
        ..RouterConfig::default()
    });
    let mut crowd = crowd(bench.at.address, 8).await;
    let mut elsewhere = from(2, other.address).await;
    assert_eq!(text(&mut elsewhere, 1).await, "A", "another port has room");
    let waits = timeout(Duration::from_millis(200), crowd[8].read_u8()).await;
    assert!(waits.is_err(), "the ninth waits for one of the eight");
    drop(crowd.drain(..8));
    assert_eq!(text(&mut crowd[0], 1).await, "A", "and has its turn");
}

#[tokio::test]
async fn services_reach_each_other_by_name_however_many_clients_come_from_outside() {
    let upstream = echo("A").await;
    let members = [inside("web-1", upstream)];
    let limits =
        RouterLimits { connections: 8, reserved_connections: 2, ..RouterLimits::default() };
    let bench = Bench::new(Protocol::Tcp, limits, &members);
    let any = PoolKey::any("shop/web");
    bench.router.update(&RouterConfig {
        pools: [(web(), members.as_slice().into()), (any.clone(), members.as_slice().into())]
            .into(),
        published: [(bench.at, web())].into(),
        ..RouterConfig::default()
    });
    let _crowd = crowd(bench.at.address, 8).await;
    let mut inside = Vec::new();
    for _ in 0..2 {
        let listener = TcpListener::bind(address()).await.unwrap();
        let mut client = from(3, listener.local_addr().unwrap()).await;
        let (accepted, peer) = listener.accept().await.unwrap();
        assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 3]));
        let (router, any, port) = (bench.router.clone(), any.clone(), upstream.port());
        tokio::spawn(async move { router.carry(accepted, &any, port).await });
        assert_eq!(text(&mut client, 1).await, "A");
        inside.push(client);
    }
}

#[tokio::test]
async fn a_quiet_connection_makes_room_where_there_is_none_and_a_busy_one_does_not() {
    let limits = RouterLimits {
        connections: 2,
        carried_quiet: Duration::from_secs(1),
        ..RouterLimits::default()
    };
    let bench = Bench::new(Protocol::Tcp, limits, &[inside("web-1", echo("A").await)]);
    let (mut quiet, mut busy) = (from(2, bench.at.address).await, from(3, bench.at.address).await);
    assert_eq!((text(&mut quiet, 1).await, text(&mut busy, 1).await), ("A".into(), "A".into()));
    let talking = tokio::spawn(async move {
        for _ in 0..80 {
            busy.write_all(b"x").await.unwrap();
            assert_eq!(text(&mut busy, 1).await, "x");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut new = from(4, bench.at.address).await;
    assert_eq!(text(&mut new, 1).await, "A");
    let cut = timeout(PATIENCE, quiet.read(&mut [0; 1])).await.expect("in time");
    assert_eq!(cut.unwrap_err().kind(), ErrorKind::ConnectionReset, "a cut is not an end");
    talking.await.unwrap();
}
