//! What the tests share: addresses of their own, upstreams, and a router that is fed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use plimsoll_router::{
    MemberState, NoTunnel, PoolKey, PoolMember, Protocol, PublishedPort, Router, RouterConfig,
    RouterLimits, RouterStage, Tunnel, UpstreamTarget,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A loopback address that no other test has, and a port that nobody is given by chance.
pub(crate) fn address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 64 + a, b, c)), NEXT.fetch_add(1, Relaxed))
}

pub(crate) fn web() -> PoolKey {
    PoolKey::new("shop/web", 80)
}

pub(crate) fn member(
    replica: &str,
    generation: u64,
    at: SocketAddr,
    state: MemberState,
) -> PoolMember {
    let (replica, target) = (replica.into(), UpstreamTarget::Local(at));
    PoolMember { replica, generation, target, state, proxied: Arc::default() }
}

/// A member that takes requests.
pub(crate) fn inside(replica: &str, at: SocketAddr) -> PoolMember {
    member(replica, 1, at, MemberState::Ready)
}

pub(crate) fn draining(replica: &str, at: SocketAddr, grace: Duration) -> PoolMember {
    member(replica, 1, at, MemberState::Draining { grace })
}

pub(crate) fn published(address: SocketAddr, protocol: Protocol) -> PublishedPort {
    PublishedPort { address, protocol }
}

/// A router with one pool behind one published port.
pub(crate) struct Bench {
    pub(crate) router: Router,
    pub(crate) at: PublishedPort,
    pub(crate) stage: watch::Sender<RouterStage>,
    pub(crate) listening: JoinHandle<()>,
}

impl Bench {
    pub(crate) fn new(protocol: Protocol, limits: RouterLimits, members: &[PoolMember]) -> Self {
        Self::with(protocol, limits, Arc::new(NoTunnel), members)
    }

    pub(crate) fn with(
        protocol: Protocol,
        limits: RouterLimits,
        tunnel: Arc<dyn Tunnel>,
        members: &[PoolMember],
    ) -> Self {
        let router = Router::new(limits, tunnel);
        let at = published(address(), protocol);
        let publishing = router.clone();
        let (stage, stages) = watch::channel(RouterStage::Open);
        let listening = tokio::spawn(async move { publishing.publish(stages).await });
        let bench = Self { router, at, stage, listening };
        bench.update(members);
        bench
    }

    pub(crate) fn update(&self, members: &[PoolMember]) {
        self.router.update(&RouterConfig {
            pools: [(web(), members.into())].into(),
            published: [(self.at, web())].into(),
            ..RouterConfig::default()
        });
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        connect(self.at.address).await
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// A connection, as soon as somebody listens.
pub(crate) async fn connect(to: SocketAddr) -> TcpStream {
    eventually("somebody listens", || async move { TcpStream::connect(to).await.ok() }).await
}

/// What becomes true, as soon as it is.
pub(crate) async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let seen = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("in vain waited until {what}"))
}

/// Says its name, then sends back what it hears, and ends when the other side does.
pub(crate) async fn echo(name: &'static str) -> SocketAddr {
    let at = address();
    let listener = TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                to.write_all(name.as_bytes()).await?;
                tokio::io::copy(&mut from, &mut to).await?;
                to.shutdown().await
            });
        }
    });
    at
}

/// An address whose queue is full and where nobody accepts, with what keeps it so: to connect takes for ever.
pub(crate) async fn deaf() -> (SocketAddr, (TcpListener, Vec<TcpStream>)) {
    let (at, socket) = (address(), TcpSocket::new_v4().unwrap());
    socket.bind(at).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(one)) = timeout(Duration::from_millis(300), TcpStream::connect(at)).await {
        waiting.push(one);
    }
    (at, (listener, waiting))
}

/// The next so many bytes, as text.
pub(crate) async fn text(stream: &mut (impl AsyncRead + Unpin), length: usize) -> String {
    let mut bytes = vec![0; length];
    timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("in time").unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Memory of this process that is in use, in bytes.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}
