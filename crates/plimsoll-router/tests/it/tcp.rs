//! Published TCP ports.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use plimsoll_router::{MemberState, PoolKey, Protocol, Router, RouterConfig, RouterLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::kit::{
    Bench, PATIENCE, address, draining, echo, eventually, inside, member, resident, text,
};

fn bench(members: &[plimsoll_router::PoolMember]) -> Bench {
    Bench::new(Protocol::Tcp, RouterLimits::default(), members)
}

#[tokio::test]
async fn bytes_go_both_ways_and_each_side_may_end_first() {
    let bench = bench(&[inside("web-1", echo("A").await)]);
    let mut client = bench.connect().await;
    assert_eq!(text(&mut client, 1).await, "A");
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "hello", "what was under way when one side ended still arrives");
}

#[tokio::test]
async fn large_transfers_arrive_whole_both_ways_at_once() {
    const SIZE: usize = 32 << 20;
    let bench = bench(&[inside("web-1", echo("").await)]);
    let (mut from, mut to) = bench.connect().await.into_split();
    let sent: Vec<u8> = (0..SIZE).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
    let copy = sent.clone();
    let writing = tokio::spawn(async move {
        to.write_all(&copy).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut received = Vec::with_capacity(SIZE);
    from.read_to_end(&mut received).await.unwrap();
    writing.await.unwrap();
    assert!(received == sent, "{} of {SIZE} bytes", received.len());
    let upstream = &bench.router.table().upstreams().next().unwrap().clone();
    let reading = plimsoll_router::metrics::read(&bench.router.table()).upstreams;
    assert_eq!((reading[0].sent, reading[0].received), (SIZE as u64, SIZE as u64));
    eventually("nothing is in flight", || async { (upstream.in_flight() == 0).then_some(()) })
        .await;
}

#[tokio::test]
async fn a_slow_reader_costs_no_more_than_a_chunk() {
    let bench = bench(&[inside("web-1", flood().await)]);
    let _stalled = bench.connect().await;
    let before = resident();
    let mut other = bench.connect().await;
    let mut space = vec![0; 1 << 20];
    for _ in 0..64 {
        other.read_exact(&mut space).await.unwrap();
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "grown by {grown} bytes");
}

/// Sends as fast as is taken.
async fn flood() -> SocketAddr {
    let at = address();
    let listener = TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let chunk = vec![7; 64 << 10];
                while stream.write_all(&chunk).await.is_ok() {}
            });
        }
    });
    at
}

#[tokio::test]
async fn a_connection_that_is_refused_goes_to_another_upstream() {
    let dead = address();
    let bench = bench(&[inside("web-1", dead), inside("web-2", echo("B").await)]);
    for _ in 0..20 {
        let mut client = bench.connect().await;
        assert_eq!(text(&mut client, 1).await, "B");
    }
    let table = bench.router.table();
    let readings = plimsoll_router::metrics::read(&table).upstreams;
    let errors: u64 = readings.iter().map(|reading| reading.connect_errors).sum();
    assert!((1..20).contains(&errors), "it was left out after failing: {errors}");
}

#[tokio::test]
async fn with_nobody_there_the_client_is_told_so_by_a_reset() {
    for members in [vec![], vec![inside("web-1", address())]] {
        let bench = bench(&members);
        let mut client = bench.connect().await;
        let read = timeout(PATIENCE, client.read(&mut [0; 1])).await.expect("at once");
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn what_leaves_gets_nothing_new_and_ends_what_it_has_within_its_grace() {
    let (a, b) = (echo("A").await, echo("B").await);
    let bench = bench(&[inside("web-1", a)]);
    let mut old = bench.connect().await;
    assert_eq!(text(&mut old, 1).await, "A");

    let grace = Duration::from_millis(600);
    let began = Instant::now();
    bench.update(&[draining("web-1", a, grace), inside("web-2", b)]);
    for _ in 0..10 {
        assert_eq!(text(&mut bench.connect().await, 1).await, "B");
    }
    old.write_all(b"x").await.unwrap();
    assert_eq!(text(&mut old, 1).await, "x", "it goes on");
    let cut = timeout(PATIENCE, old.read(&mut [0; 1])).await.expect("in time");
    assert_eq!(cut.unwrap_err().kind(), ErrorKind::ConnectionReset, "a cut is not an end");
    assert!(began.elapsed() >= grace, "after {:?}", began.elapsed());
}

#[tokio::test]
async fn what_is_gone_is_cut_at_once() {
    let a = echo("A").await;
    let bench = bench(&[inside("web-1", a)]);
    let mut client = bench.connect().await;
    assert_eq!(text(&mut client, 1).await, "A");
    bench.update(&[]);
    let cut = timeout(PATIENCE, client.read(&mut [0; 1])).await.expect("in time");
    assert_eq!(cut.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_replica_that_is_not_healthy_yet_gets_nothing() {
    let (a, b) = (echo("A").await, echo("B").await);
    let bench = bench(&[inside("web-1", a), member("web-2", 1, b, MemberState::Joining)]);
    for _ in 0..20 {
        assert_eq!(text(&mut bench.connect().await, 1).await, "A");
    }
}

#[tokio::test]
async fn a_port_that_somebody_holds_is_in_trouble_until_it_is_free() {
    let bench = bench(&[]);
    eventually("it listens", || async { TcpStream::connect(bench.at.address).await.ok() }).await;
    let second = Bench::new(Protocol::Tcp, RouterLimits::default(), &[]);
    let mut at = second.at;
    at.address = bench.at.address;
    let wanted =
        RouterConfig { published: [(at, crate::kit::web())].into(), ..RouterConfig::default() };
    second.router.update(&wanted);
    let trouble = eventually("it is in trouble", || {
        let trouble = second.router.bind_errors().borrow().get(&at).cloned();
        async { trouble }
    })
    .await;
    assert!(trouble.starts_with(&format!("cannot listen on {at}: ")), "{trouble}");
    drop(bench);
    eventually("it is out of trouble", || {
        let is_fine = second.router.bind_errors().borrow().is_empty();
        async move { is_fine.then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn a_port_that_is_no_longer_published_is_closed_and_its_connections_go_on() {
    let a = echo("A").await;
    let bench = bench(&[inside("web-1", a)]);
    let mut client = bench.connect().await;
    assert_eq!(text(&mut client, 1).await, "A");
    bench.router.update(&RouterConfig {
        pools: [(crate::kit::web(), [inside("web-1", a)].into())].into(),
        ..RouterConfig::default()
    });
    eventually("nobody listens", || async { TcpStream::connect(bench.at.address).await.err() })
        .await;
    client.write_all(b"still").await.unwrap();
    assert_eq!(text(&mut client, 5).await, "still");
}

#[tokio::test]
async fn an_upstream_that_does_not_accept_costs_each_of_the_first_one_wait_and_no_other() {
    let (deaf, _full) = crate::kit::deaf().await;
    let limits = RouterLimits { connect: Duration::from_millis(300), ..RouterLimits::default() };
    let members = [inside("web-1", deaf), inside("web-2", echo("B").await)];
    let bench = Bench::new(Protocol::Tcp, limits, &members);
    let errors =
        || bench.router.metrics().upstreams.iter().map(|one| one.connect_errors).sum::<u64>();
    while errors() == 0 {
        assert_eq!(text(&mut bench.connect().await, 1).await, "B");
    }
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(text(&mut bench.connect().await, 1).await, "B");
    }
    assert!(began.elapsed() < Duration::from_millis(250), "it was not left out");
}

/// A server that reads what it is sent, says this of an answer, and is gone.
async fn dies_saying(word: &'static str) -> SocketAddr {
    dies_at(address(), word).await
}

async fn dies_at(at: SocketAddr, word: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1_024]).await;
                let _ = stream.write_all(word.as_bytes()).await;
            });
        }
    });
    at
}

/// All that is answered to this on a connection.
async fn answered(mut client: TcpStream, words: &str) -> String {
    client.write_all(words.as_bytes()).await.unwrap();
    let mut all = String::new();
    let _ = timeout(PATIENCE, client.read_to_string(&mut all)).await.expect("in time");
    all
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn replays(router: &Router) -> u64 {
    router.metrics().pools.iter().map(|pool| pool.replays).sum()
}

#[tokio::test]
async fn a_safe_request_is_replayed_if_its_upstream_dies_before_it_answers_and_that_is_counted() {
    let members = [inside("web-1", dies_saying("").await), inside("web-2", dies_saying("B").await)];
    let bench = bench(&members);
    for _ in 0..20 {
        assert_eq!(answered(bench.connect().await, GET).await, "B");
    }
    let counted = replays(&bench.router);
    assert!((1..=20).contains(&counted), "{counted} of 20");
    let mut lost = 0;
    for _ in 0..40 {
        let words = GET.replace("GET", "POST");
        lost += usize::from(answered(bench.connect().await, &words).await.is_empty());
    }
    assert!(lost > 0, "what changes something is not replayed");
    assert_eq!(replays(&bench.router), counted);
    bench.update(&members[1..]);
    assert_eq!(replays(&bench.router), counted, "a counter outlives its table");
}

#[tokio::test]
async fn a_service_without_replays_is_relayed_as_it_is_at_ports_and_by_name() {
    // Two containers that listen on the same port, as the replicas of a service do.
    let one = address();
    let SocketAddr::V4(v4) = one else { panic!("loopback is IPv4") };
    let other = (Ipv4Addr::from_bits(v4.ip().to_bits() ^ 0x80_0000), one.port()).into();
    let (one, other) = (dies_at(one, "").await, dies_at(other, "B").await);
    let members = [inside("web-1", one), inside("web-2", other)];
    let bench = bench(&members);
    let any = PoolKey::any("shop/web");
    let update = |without_replay| {
        let pools = [crate::kit::web(), any.clone()].map(|key| (key, members.as_slice().into()));
        bench.router.update(&RouterConfig {
            pools: pools.into(),
            published: [(bench.at, crate::kit::web())].into(),
            without_replay,
            ..RouterConfig::default()
        });
    };
    let by_name = async || {
        let listener = TcpListener::bind(address()).await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let (router, any, port) = (bench.router.clone(), any.clone(), one.port());
        tokio::spawn(async move { router.carry(accepted, &any, port).await });
        answered(client, GET).await
    };
    update(["shop/web".into()].into());
    let mut lost = [0, 0];
    for _ in 0..40 {
        lost[0] += usize::from(answered(bench.connect().await, GET).await.is_empty());
        lost[1] += usize::from(by_name().await.is_empty());
    }
    assert!(lost.iter().all(|lost| (1..40).contains(lost)), "{lost:?}");
    assert_eq!(replays(&bench.router), 0);
    update([].into());
    for _ in 0..20 {
        assert_eq!(answered(bench.connect().await, GET).await, "B");
        assert_eq!(by_name().await, "B");
    }
    assert!(replays(&bench.router) > 0, "it is on again");
}

#[tokio::test]
async fn an_answer_that_has_begun_is_never_begun_again() {
    let members =
        [inside("web-1", dies_saying("A").await), inside("web-2", dies_saying("B").await)];
    let bench = bench(&members);
    for _ in 0..20 {
        let mut client = bench.connect().await;
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut all = String::new();
        let _ = timeout(PATIENCE, client.read_to_string(&mut all)).await.expect("in time");
        assert_eq!(all.len(), 1, "{all}");
    }
}

#[tokio::test]
async fn half_of_a_small_answer_is_as_good_as_none() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let members =
        [inside("web-1", dies_saying(half).await), inside("web-2", dies_saying(whole).await)];
    let bench = bench(&members);
    for _ in 0..20 {
        let mut client = bench.connect().await;
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut all = String::new();
        let _ = timeout(PATIENCE, client.read_to_string(&mut all)).await.expect("in time");
        assert_eq!(all, whole);
    }
}
