//! Requests that were broken at random, at routes and at published ports: nothing panics, memory stays bounded, and an upstream
//! is never made to see a request that the router did not see.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_fuzz::{Vigil, length, seed};
use plimsoll_router::{Protocol, RouterLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::http::kit::Site;
use crate::kit::{Bench, address, connect, eventually, inside, resident};

mod cases;
mod oracle;

use cases::Cases;
use oracle::{Seen, is_one_safe_request};

/// How many connections are made at once.
const LANES: u64 = 8;

/// What the process may grow by: clients, routers and upstreams are one process here.
const GROWTH: usize = 48 << 20;

/// How long a client waits for more of an answer: most cases have none.
const SILENCE: Duration = Duration::from_millis(15);

/// Says these bytes in pieces, and listens until nothing more comes.
async fn say(to: SocketAddr, pieces: &[Vec<u8>]) {
    let mut client = connect(to).await;
    client.set_nodelay(true).unwrap();
    for piece in pieces {
        if client.write_all(piece).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    let mut space = vec![0; 4_096];
    while let Ok(Ok(1..)) = timeout(SILENCE, client.read(&mut space)).await {}
}

/// Runs so many lanes at once for as long as the test may take, and says how many cases there were.
async fn in_lanes<F>(lane: impl Fn(u64, Instant) -> F) -> usize
where
    F: Future<Output = usize> + Send + 'static,
{
    let end = Instant::now() + length(2);
    let lanes: Vec<_> = (0..LANES).map(|number| tokio::spawn(lane(number, end))).collect();
    let mut count = 0;
    for lane in lanes {
        count += lane.await.unwrap();
    }
    count
}

/// An upstream that reads requests as it was taught to, notes what it must not see, and answers each.
async fn reader(seen: Arc<Mutex<Vec<String>>>) -> SocketAddr {
    let at = address();
    let listener = TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(oracle::read_requests(stream, Arc::clone(&seen)));
        }
    });
    at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_broken_request_at_a_route_smuggles_another_or_breaks_the_router() {
    assert!(matches!(oracle::read_head(b"GET /smuggled HTTP/1.1\r\nhost: a"), Seen::Wrong(_)));
    let (vigil, wrong) = (Vigil::begin("routes"), Arc::new(Mutex::new(Vec::new())));
    let upstream = reader(Arc::clone(&wrong)).await;
    let site = Arc::new(Site::new(RouterLimits::default(), &[inside("web-1", upstream)]).await);
    say(site.at, &[b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()]).await;
    let before = resident();
    let count = in_lanes(|number, end| {
        let (at, wrong) = (site.at, Arc::clone(&wrong));
        async move {
            let mut cases = Cases::new(seed().wrapping_mul(LANES).wrapping_add(number));
            let mut count = 0;
            while Instant::now() < end && wrong.lock().unwrap().is_empty() {
                say(at, &cases.next_pieces()).await;
                count += 1;
            }
            count
        }
    })
    .await;
    let wrong = wrong.lock().unwrap().clone();
    assert!(wrong.is_empty(), "seed {}: {wrong:?}", seed());
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH, "grown by {} MiB in {count} cases", grown >> 20);
    assert_eq!(site.get("/").await.status, 200, "after {count} cases");
    let proxied: u64 = site.router.metrics().routes[0].classes.iter().sum();
    assert!(count > 20 && proxied > 1, "{count} cases, {proxied} of them requests");
    vigil.end(count);
}

/// What the upstreams of a lane were sent, one entry a connection, and how many of these have ended.
type Taken = Arc<Mutex<(Vec<Vec<u8>>, usize)>>;

/// An upstream that takes what it is sent, and then answers or dies.
async fn taker(taken: Taken, answer: &'static [u8]) -> SocketAddr {
    let at = address();
    let listener = TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(take(stream, Arc::clone(&taken), answer));
        }
    });
    at
}

async fn take(mut stream: TcpStream, taken: Taken, answer: &'static [u8]) {
    let is_half = !answer.ends_with(b"ok");
    let mut space = vec![0; 64 << 10];
    let (mut all, mut has_answered) = (Vec::new(), false);
    while let Ok(count @ 1..) = stream.read(&mut space).await {
        all.extend_from_slice(&space[..count]);
        if all.ends_with(b"\r\n\r\n") && !has_answered {
            has_answered = true;
            if stream.write_all(answer).await.is_err() || is_half {
                break;
            }
        }
    }
    let mut taken = taken.lock().unwrap();
    taken.0.push(all);
    taken.1 += 1;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_broken_request_at_a_published_port_arrives_changed_or_twice_unless_it_is_safe() {
    let vigil = Vigil::begin("published ports");
    let before = resident();
    let count = in_lanes(|number, end| async move {
        let taken = Taken::default();
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let members = [
            inside("web-1", taker(Arc::clone(&taken), b"HTTP/1.1 200 OK\r\nCont").await),
            inside("web-2", taker(Arc::clone(&taken), whole).await),
        ];
        let bench = Bench::new(Protocol::Tcp, RouterLimits::default(), &members);
        let mut cases = Cases::new(seed().wrapping_mul(LANES).wrapping_add(number));
        let (mut count, mut before) = (0, 0);
        while Instant::now() < end {
            let pieces = cases.next_pieces();
            let sent = pieces.concat();
            say(bench.at.address, &pieces).await;
            // Each client leads to a connection at least, and all have ended when they are as many as were made.
            let ended = eventually("all connections have ended", || {
                let (taken, router) = (Arc::clone(&taken), bench.router.clone());
                async move {
                    let is_free = router.all_disconnected(SILENCE).await;
                    let made = router.metrics().upstreams;
                    let made: u64 = made.iter().map(|upstream| upstream.connections).sum();
                    let ended = taken.lock().unwrap().1;
                    (is_free && ended > before && ended as u64 == made).then_some(ended)
                }
            })
            .await;
            before = ended;
            let taken = std::mem::take(&mut taken.lock().unwrap().0);
            let taken: Vec<_> = taken.into_iter().filter(|bytes| !bytes.is_empty()).collect();
            for bytes in &taken {
                assert!(
                    sent.starts_with(bytes),
                    "{:?}",
                    [&sent, bytes].map(|it| it.escape_ascii().to_string())
                );
            }
            assert!(
                taken.len() < 2 || is_one_safe_request(&taken[0]),
                "sent to {} upstreams: {}",
                taken.len(),
                sent.escape_ascii()
            );
            count += 1;
        }
        count
    })
    .await;
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH, "grown by {} MiB in {count} cases", grown >> 20);
    assert!(count > 20, "{count} cases");
    vigil.end(count);
}
