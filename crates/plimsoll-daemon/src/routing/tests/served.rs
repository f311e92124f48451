//! A node that holds the log and serves routes, in the clear and under TLS.

use std::net::SocketAddr;

use plimsoll_kernel::Policy;
use plimsoll_model::access::Authority as StoredAuthority;
use plimsoll_model::spec::{RouteSpec, Tls};
use plimsoll_model::testkit::{cpus, node_id, replica_id, spread};
use plimsoll_model::{
    CellId, Change, DeploymentName, Generation, Observation, ObservedState, ServiceName, Writer,
};
use plimsoll_runtime::FakeRuntime;
use plimsoll_store::Embedded;
use plimsoll_store::embedded::EmbeddedConfig;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::super::*;
use plimsoll_peer::pki::{Authority, testkit};

const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    routing: Arc<Routing>,
    authority: Authority,
    plain: SocketAddr,
    secure: SocketAddr,
    stop: watch::Sender<RouterStage>,
    running: tokio::task::JoinHandle<()>,
    _dir: TempDir,
}

fn route(host: &str, path: &str, port: u16, tls: Tls) -> RouteSpec {
    let (host, path) = (Some(host.to_owned()), path.to_owned());
    let service = ServiceName::new("web").unwrap();
    RouteSpec { host, path, strip_path: true, service, port, tls }
}

/// Says which path it was asked for.
async fn container() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if !matches!(client.read(&mut byte).await, Ok(1)) {
                        return;
                    }
                    head.extend(byte);
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{path}",
                    path.len()
                );
                let _ = client.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

/// Ash alone, and a shop of one replica that runs.
async fn bench() -> Bench {
    let (dir, cell_id) = (TempDir::new().unwrap(), CellId::new("blue").unwrap());
    let engine = Embedded::start(EmbeddedConfig::alone(dir.path(), cell_id.clone())).await.unwrap();
    let cell = NodeContext::new(
        engine,
        Arc::new(FakeRuntime::new(cell_id)),
        node_id("ash"),
        Arc::default(),
        Policy::default(),
    );
    let authority = testkit::cell("blue");
    let credentials = authority.node("ash");
    let (container, parts) = (container().await, authority.to_parts());
    let spec = spread(1);
    let routes = vec![
        route("shop.example", "/api", container.port(), Tls::Off),
        route("safe.example", "/", container.port(), Tls::Internal),
        route("files.example", "/", container.port(), Tls::Files),
    ];
    let observed = |state| {
        let (replica, generation) = (replica_id("shop/web/1"), Generation(1));
        let observation = Observation { state, code: None, at: now() };
        Change::Observe { replica, generation, observation }
    };
    let kept = StoredAuthority { certificate: parts.certificate, key: parts.key };
    for (writer, change) in [
        (Writer::Operator, Change::PutNode { node: node_id("ash"), facts: cpus(4) }),
        (
            Writer::Operator,
            Change::Found {
                authority: kept,
                node: node_id("ash"),
                key: plimsoll_model::access::Digest([7; 32]),
            },
        ),
        (
            Writer::Operator,
            Change::Deploy {
                deployment: DeploymentName::new("shop").unwrap(),
                services: [(ServiceName::new("web").unwrap(), Arc::new(spec.clone()))].into(),
                routes,
            },
        ),
        (
            Writer::Scheduler,
            Change::Place {
                replica: replica_id("shop/web/1"),
                node: node_id("ash"),
                spec: spec.hash,
            },
        ),
        (Writer::Agent, observed(ObservedState::Starting)),
        (Writer::Agent, observed(ObservedState::Running)),
    ] {
        cell.write(writer, "test", vec![change.free()]).await.unwrap();
    }
    cell.measurements.reach(replica_id("shop/web/1"), Generation(1), Some(container.ip()));
    let listen = || plimsoll_router::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (plain, secure) = (listen(), listen());
    let at = |listener: &TcpListener| listener.local_addr().unwrap();
    let (plain_at, secure_at) = (at(&plain), at(&secure));
    let client = PeerClient::new(credentials);
    let routing = Arc::new(Routing::new(
        cell,
        &client,
        dir.path().join("certificates"),
        RouterLimits::default(),
        Sockets::default(),
        None,
    ));
    let (stop, stopping) = watch::channel(RouterStage::Open);
    let entrances = Entrances { plain: Some(plain.into()), secure: Some(secure.into()) };
    let running = tokio::spawn(Arc::clone(&routing).run(Listens::No, entrances, stopping));
    Bench { routing, authority, plain: plain_at, secure: secure_at, stop, running, _dir: dir }
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    text
}

/// The status, and what is said after the head.
fn said(answer: &str) -> (&str, &str) {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    (status, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body))
}

impl Bench {
    async fn plain(&self, host: &str, path: &str) -> String {
        ask(TcpStream::connect(self.plain).await.unwrap(), host, path).await
    }

    /// None, if there is no certificate that a client who trusts the cell takes for the host.
    async fn secure(&self, host: &str, path: &str) -> Option<String> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.secure).await.unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
        Some(ask(stream, host, path).await)
    }

    async fn until_served(&self) {
        let begun = Instant::now();
        while said(&self.plain("shop.example", "/api").await).0 != "200" {
            assert!(begun.elapsed() < PATIENCE, "it is never served");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_of_the_state_are_served_in_the_clear_and_under_tls() {
    let bench = bench().await;
    bench.until_served().await;
    assert_eq!(said(&bench.plain("shop.example", "/api/v1").await), ("200", "/v1"));
    assert_eq!(said(&bench.plain("shop.example", "/other").await).0, "404");
    assert_eq!(said(&bench.plain("other.example", "/api").await).0, "404");
    let answer = bench.secure("safe.example", "/x").await.expect("the cell vouches for it");
    assert_eq!(said(&answer), ("200", "/x"));
    assert_eq!(bench.secure("shop.example", "/api").await, None, "it has no certificate");
    assert_eq!(bench.secure("files.example", "/").await, None, "its files are missing");
    let sent_on = bench.plain("safe.example", "/x").await;
    let to = format!("https://safe.example:{}/x", bench.secure.port());
    assert!(said(&sent_on).0.starts_with('3') && sent_on.contains(&to), "{sent_on}");
    let missing = bench.routing.cell.ingress.lock().missing_certificates.clone();
    assert_eq!(missing.keys().collect::<Vec<_>>(), ["files.example"], "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_router_counts_and_does_can_be_asked() {
    let bench = bench().await;
    bench.until_served().await;
    bench.plain("shop.example", "/api/x").await;
    let reading = bench.routing.read();
    let of = |host: &str| reading.routes.iter().find(|it| it.route.host.as_deref() == Some(host));
    assert!(of("shop.example").unwrap().classes[1] >= 2, "{reading:?}");
    assert_eq!(of("safe.example").unwrap().classes, [0; 5]);
    let explained = bench.routing.explain("shop.example:80", "/api/x").unwrap();
    assert_eq!(explained.upstreams.len(), 1);
    assert!(bench.routing.explain("shop.example", "/").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_goes_with_its_deployment_is_served_no_more() {
    let bench = bench().await;
    bench.until_served().await;
    let change = Change::Undeploy { deployment: DeploymentName::new("shop").unwrap() };
    let written = bench.routing.cell.write(Writer::Operator, "test", vec![change.free()]);
    written.await.unwrap();
    let begun = Instant::now();
    while said(&bench.plain("shop.example", "/api").await).0 != "404" {
        assert!(begun.elapsed() < PATIENCE, "it is served still");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_ends_lets_go_of_its_clients() {
    let bench = bench().await;
    bench.until_served().await;
    let _idle = TcpStream::connect(bench.plain).await.unwrap();
    let begun = Instant::now();
    bench.stop.send_replace(RouterStage::Closing);
    bench.running.await.unwrap();
    assert!(begun.elapsed() < PATIENCE / 2);
    assert!(TcpStream::connect(bench.plain).await.is_err(), "nobody new is let in");
}
