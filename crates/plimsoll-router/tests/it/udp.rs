//! Published UDP ports.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_router::{Protocol, RouterLimits, RouterStage};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::kit::{Bench, address, eventually, inside};

/// Answers each datagram with its name, whom it came from, and what it said.
pub(crate) async fn echo(name: &'static str) -> SocketAddr {
    let at = address();
    let socket = UdpSocket::bind(at).await.unwrap();
    tokio::spawn(async move {
        let mut space = vec![0; 65_535];
        while let Ok((length, from)) = socket.recv_from(&mut space).await {
            let said = String::from_utf8_lossy(&space[..length]);
            let answer = format!("{name} {} {said}", from.port());
            let _ = socket.send_to(answer.as_bytes(), from).await;
        }
    });
    at
}

pub(crate) struct Client(UdpSocket);

impl Client {
    pub(crate) async fn new(bench: &Bench) -> Self {
        let socket = UdpSocket::bind(address()).await.unwrap();
        socket.connect(bench.at.address).await.unwrap();
        Self(socket)
    }

    /// Says it until it is answered, as one does with datagrams: name, port, echo.
    pub(crate) async fn ask(&self, what: &str) -> (String, String) {
        let answer = eventually("it is answered", || async {
            self.0.send(what.as_bytes()).await.ok()?;
            let mut space = vec![0; 65_535];
            let heard = timeout(Duration::from_millis(200), self.0.recv(&mut space)).await;
            let length = heard.ok()?.ok()?;
            Some(String::from_utf8_lossy(&space[..length]).into_owned())
        })
        .await;
        let mut words = answer.splitn(3, ' ');
        let (name, port) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        assert_eq!(words.next(), Some(what));
        (name, port)
    }
}

fn bench(limits: RouterLimits, members: &[plimsoll_router::PoolMember]) -> Bench {
    Bench::new(Protocol::Udp, limits, members)
}

#[tokio::test]
async fn a_client_keeps_its_upstream_and_others_have_sessions_of_their_own() {
    let members = [inside("dns-1", echo("A").await), inside("dns-2", echo("B").await)];
    let bench = bench(RouterLimits::default(), &members);
    let first = Client::new(&bench).await;
    let met = first.ask("one").await;
    for _ in 0..20 {
        assert_eq!(first.ask("again").await, met, "the same session");
    }
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..12 {
        let other = Client::new(&bench).await.ask("me too").await;
        assert_ne!(other.1, met.1, "a session of its own");
        names.insert(other.0);
    }
    assert_eq!(names.len(), 2, "both serve");
}

#[tokio::test]
async fn a_quiet_session_ends_and_the_next_datagram_begins_another() {
    let limits = RouterLimits { udp_idle: Duration::from_millis(80), ..RouterLimits::default() };
    let bench = bench(limits, &[inside("dns-1", echo("A").await)]);
    let client = Client::new(&bench).await;
    let before = client.ask("one").await;
    let upstream = bench.router.table().upstreams().next().unwrap().clone();
    eventually("it has ended", || async { (upstream.in_flight() == 0).then_some(()) }).await;
    assert_ne!(client.ask("two").await.1, before.1);
}

#[tokio::test]
async fn sessions_are_bounded_and_the_quietest_makes_room() {
    let limits = RouterLimits { udp_sessions: 8, ..RouterLimits::default() };
    let bench = bench(limits, &[inside("dns-1", echo("A").await)]);
    let regular = Client::new(&bench).await;
    let met = regular.ask("here").await;
    let upstream = bench.router.table().upstreams().next().unwrap().clone();
    for _ in 0..50 {
        Client::new(&bench).await.ask("passing by").await;
        assert!(upstream.in_flight() <= 9, "{}", upstream.in_flight());
        assert_eq!(regular.ask("still here").await, met, "who speaks is not the quietest");
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_left_for_another() {
    let members = [inside("dns-1", address()), inside("dns-2", echo("B").await)];
    let bench = bench(RouterLimits::default(), &members);
    for _ in 0..6 {
        assert_eq!(Client::new(&bench).await.ask("who?").await.0, "B");
    }
}

#[tokio::test]
async fn a_session_moves_on_when_its_upstream_is_gone() {
    let (a, b) = (echo("A").await, echo("B").await);
    let bench = bench(RouterLimits::default(), &[inside("dns-1", a)]);
    let client = Client::new(&bench).await;
    assert_eq!(client.ask("one").await.0, "A");
    bench.update(&[inside("dns-2", b)]);
    eventually("it moved on", || async { (client.ask("two").await.0 == "B").then_some(()) }).await;
}

#[tokio::test]
async fn who_was_heard_before_somebody_else_took_over_still_gets_its_answer() {
    let (at, limits) = (address(), RouterLimits::default());
    let server = UdpSocket::bind(at).await.unwrap();
    let mut bench = bench(limits, &[inside("dns-1", at)]);
    let client = Client::new(&bench).await;
    let mut space = [0; 100];
    let (length, from) = eventually("it is heard", || async {
        client.0.send(b"slow one").await.ok()?;
        let heard = timeout(Duration::from_millis(200), server.recv_from(&mut [0; 100])).await;
        heard.ok()?.ok()
    })
    .await;
    assert_eq!(length, 8);
    bench.stage.send_replace(RouterStage::HandingOver);
    server.send_to(b"here it is", from).await.unwrap();
    let heard = timeout(crate::kit::PATIENCE, client.0.recv(&mut space)).await;
    assert_eq!(&space[..heard.expect("in time").unwrap()], b"here it is");
    bench.stage.send_replace(RouterStage::Closing);
    let ended = timeout(crate::kit::PATIENCE, &mut bench.listening).await;
    assert!(ended.is_ok(), "a router that closes waits for nobody");
}
