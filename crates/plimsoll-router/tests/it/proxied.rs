//! Services that are told who their clients are, by the PROXY protocol.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use plimsoll_router::{
    NoTunnel, PoolKey, PoolMember, Protocol, Router, RouterConfig, RouterLimits, UpstreamTarget,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::kit::{Bench, PATIENCE, address, eventually, inside, web};
use crate::via::{between, via};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn bench(members: &[PoolMember]) -> Bench {
    Bench::new(Protocol::Tcp, RouterLimits::default(), members)
}

/// It is told of its clients at these ports.
fn told(member: PoolMember, ports: &[u16]) -> PoolMember {
    PoolMember { proxied: ports.into(), ..member }
}

fn here(replica: &str, at: SocketAddr) -> PoolMember {
    told(inside(replica, at), &[web().port])
}

/// A server that gives away all that comes on each of its connections, answers what follows the header with this, and ends.
async fn server(answer: &'static str) -> (SocketAddr, mpsc::UnboundedReceiver<Vec<u8>>) {
    let at = address();
    let listener = TcpListener::bind(at).await.unwrap();
    let (give, given) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let give = give.clone();
            tokio::spawn(async move {
                let (mut all, mut piece) = (Vec::new(), [0; 1_024]);
                while !all.ends_with(b"\r\n\r\n") || all.len() < 20 {
                    match stream.read(&mut piece).await {
                        Ok(0) | Err(_) => break,
                        Ok(length) => all.extend_from_slice(&piece[..length]),
                    }
                }
                let _ = give.send(all);
                stream.write_all(answer.as_bytes()).await
            });
        }
    });
    (at, given)
}

/// The header that a server must get from this client, and then its bytes.
fn expected(src: SocketAddr, dst: SocketAddr, bytes: &str) -> Vec<u8> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (src, dst) else { panic!("IPv4") };
    let mut all = [SIGNATURE, &[0x21, 0x11, 0, 12]].concat();
    all.extend([from.ip().octets(), to.ip().octets()].concat());
    all.extend([from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
    all.extend(bytes.as_bytes());
    all
}

async fn answered(client: &mut TcpStream, words: &str) -> String {
    client.write_all(words.as_bytes()).await.unwrap();
    let mut all = String::new();
    let _ = timeout(PATIENCE, client.read_to_string(&mut all)).await.expect("in time");
    all
}

#[tokio::test]
async fn a_server_is_told_of_its_client_wherever_it_runs() {
    for is_far in [false, true] {
        let (at, mut given) = server("ok").await;
        // The far node adds nothing: it does not know the client.
        let tunnel = between(&[here("web-1", at)]);
        let member = if is_far { told(via("web-1"), &[web().port]) } else { here("web-1", at) };
        let bench = Bench::with(Protocol::Tcp, RouterLimits::default(), tunnel, &[member]);
        let mut client = bench.connect().await;
        let src = client.local_addr().unwrap();
        assert_eq!(answered(&mut client, GET).await, "ok", "far: {is_far}");
        assert_eq!(given.recv().await.unwrap(), expected(src, bench.at.address, GET), "{is_far}");
    }
}

#[tokio::test]
async fn a_client_cannot_say_that_it_is_somebody_else() {
    let (at, mut given) = server("ok").await;
    let bench = bench(&[here("web-1", at)]);
    let mut client = bench.connect().await;
    let forged = "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\nGET / HTTP/1.1\r\n\r\n";
    let src = client.local_addr().unwrap();
    answered(&mut client, forged).await;
    let all = given.recv().await.unwrap();
    assert_eq!(all, expected(src, bench.at.address, forged), "its own words come after ours");
}

#[tokio::test]
async fn nobody_is_told_who_did_not_ask_and_at_no_other_port() {
    let (at, mut given) = server("ok").await;
    for member in [inside("web-1", at), told(inside("web-1", at), &[81])] {
        let bench = bench(&[member]);
        answered(&mut bench.connect().await, GET).await;
        assert_eq!(given.recv().await.unwrap(), GET.as_bytes());
    }
}

#[tokio::test]
async fn a_replayed_request_comes_after_the_header_again() {
    let (lost, mut first) = server("").await;
    let (kept, mut second) = server("B").await;
    let bench = bench(&[here("web-1", lost), here("web-2", kept)]);
    let mut replays = 0;
    while replays < 3 {
        let mut client = bench.connect().await;
        let src = client.local_addr().unwrap();
        assert_eq!(answered(&mut client, GET).await, "B");
        let whole = expected(src, bench.at.address, GET);
        assert_eq!(second.recv().await.unwrap(), whole);
        while let Ok(all) = first.try_recv() {
            assert_eq!(all, whole, "the attempt before");
            replays += 1;
        }
    }
    let counted: u64 = bench.router.metrics().pools.iter().map(|pool| pool.replays).sum();
    assert_eq!(counted, replays);
}

/// During a rollout that asks for it, old replicas must not get what they do not expect.
#[tokio::test]
async fn while_it_is_switched_on_each_replica_gets_what_it_asks_for() {
    let (old, mut plain) = server("ok").await;
    let (new, mut told) = server("ok").await;
    let bench = bench(&[inside("web-1", old), here("web-2", new)]);
    let (mut of_old, mut of_new) = (0, 0);
    while of_old == 0 || of_new == 0 {
        let mut client = bench.connect().await;
        let src = client.local_addr().unwrap();
        answered(&mut client, GET).await;
        tokio::select! {
            all = plain.recv() => {
                assert_eq!(all.unwrap(), GET.as_bytes());
                of_old += 1;
            }
            all = told.recv() => {
                assert_eq!(all.unwrap(), expected(src, bench.at.address, GET));
                of_new += 1;
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_speaks_first_need_not_wait_for_its_client() {
    let at = address();
    let listener = TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut header = [0; 28];
        stream.read_exact(&mut header).await.unwrap();
        stream.write_all(b"220 ready\r\n").await.unwrap();
        let _ = stream.read(&mut [0]).await;
    });
    let bench = bench(&[here("smtp-1", at)]);
    assert_eq!(crate::kit::text(&mut bench.connect().await, 11).await, "220 ready\r\n");
}

#[tokio::test]
async fn by_its_name_a_service_is_told_at_that_port_alone() {
    let (one, mut proxied) = server("ok").await;
    let (two, mut plain) = server("ok").await;
    let service = PoolKey::any("shop/web");
    let target = UpstreamTarget::Local((one.ip(), 0).into());
    let member = PoolMember { target, ..told(inside("web-1", one), &[one.port()]) };
    let router = Router::new(RouterLimits::default(), Arc::new(NoTunnel));
    router.update(&RouterConfig {
        pools: [(service.clone(), [member].into())].into(),
        ..RouterConfig::default()
    });
    let by_name = async |port| {
        let listener = TcpListener::bind(address()).await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(at).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let (router, service) = (router.clone(), service.clone());
        tokio::spawn(async move { router.carry(accepted, &service, port).await });
        answered(&mut client, GET).await;
        (client.local_addr().unwrap(), SocketAddr::new(at.ip(), port))
    };
    let (src, dst) = by_name(one.port()).await;
    assert_eq!(proxied.recv().await.unwrap(), expected(src, dst, GET));
    by_name(two.port()).await;
    assert_eq!(plain.recv().await.unwrap(), GET.as_bytes());
}

/// A real server that takes nothing else: Debian's haproxy, which answers with the addresses that it was told.
struct HaProxy {
    process: Child,
    config: std::path::PathBuf,
    at: SocketAddr,
}

impl HaProxy {
    /// None where it is not installed.
    async fn start() -> Option<Self> {
        let at = address();
        let mut text = "defaults\n  mode http\n  timeout client 20s\n  timeout server 20s\n  timeout connect 5s\n".to_owned();
        let told = "%[src] %[src_port] %[dst] %[dst_port]";
        write!(
            text,
            "frontend f\n  bind {at} accept-proxy\n  http-request return status 200 content-type text/plain lf-string \"{told}\"\n"
        )
        .unwrap();
        let name = format!("plimsoll-proxied-{}.cfg", std::process::id());
        let config = std::env::temp_dir().join(name);
        fs::write(&config, text).unwrap();
        let mut command = Command::new("haproxy");
        command.args(["-db", "-q", "-f"]).arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("skipped: haproxy is not installed");
                return None;
            }
            Err(error) => panic!("haproxy: {error}"),
        };
        let started = Self { process, config, at };
        eventually("haproxy listens", || async { TcpStream::connect(at).await.ok() }).await;
        Some(started)
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait(), fs::remove_file(&self.config));
    }
}

/// What it was told, as it answers.
fn body(answer: &str) -> &str {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
    answer.rsplit("\r\n\r\n").next().unwrap()
}

#[tokio::test]
async fn a_real_server_sees_its_clients_of_both_kinds() {
    let Some(haproxy) = HaProxy::start().await else { return };
    let mut direct = TcpStream::connect(haproxy.at).await.unwrap();
    assert_eq!(answered(&mut direct, GET).await, "", "it takes nobody without a header");
    let bench = bench(&[here("web-1", haproxy.at)]);
    for number in 1..20 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 9, 9, number], 0))).unwrap();
        crate::kit::connect(bench.at.address).await;
        let mut client = socket.connect(bench.at.address).await.unwrap();
        let src = client.local_addr().unwrap();
        let answer = answered(&mut client, GET).await;
        let (from, to) = (src, bench.at.address);
        let told = format!("{} {} {} {}", from.ip(), from.port(), to.ip(), to.port());
        assert_eq!(body(&answer), told);
    }
    // Every published port listens for both kinds, and sees both as the newer one.
    let port = TcpListener::bind("[::]:0").await.unwrap().local_addr().unwrap().port();
    let at = plimsoll_router::PublishedPort {
        address: (Ipv6Addr::UNSPECIFIED, port).into(),
        protocol: Protocol::Tcp,
    };
    bench.router.update(&RouterConfig {
        pools: [(web(), [here("web-1", haproxy.at)].into())].into(),
        published: [(at, web())].into(),
        ..RouterConfig::default()
    });
    for ip in ["127.0.0.1", "::1"] {
        let mut client =
            crate::kit::connect((ip.parse::<std::net::IpAddr>().unwrap(), port).into()).await;
        let src = client.local_addr().unwrap();
        let answer = answered(&mut client, GET).await;
        assert_eq!(body(&answer), format!("{ip} {} {ip} {port}", src.port()));
    }
}
