//! A node without the log, whose router listens by what its leader tells it.

use std::net::SocketAddr;

use plimsoll_kernel::Policy;
use plimsoll_model::spec::Protocol;
use plimsoll_model::testkit::{node_id, replica_id, service_key};
use plimsoll_model::{CellId, Generation, Millis};
use plimsoll_runtime::FakeRuntime;
use plimsoll_store::embedded::{EmbeddedConfig, Founding};
use plimsoll_store::{Embedded, ServerId};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::super::*;
use crate::agent::Traffic;
use plimsoll_kernel::endpoints::{EndpointState, ListenAddress, ReplicaEndpoint, ServiceEndpoints};
use plimsoll_peer::PeerClient;
use plimsoll_peer::pki::testkit;

const WEB: &str = "shop/web/1";

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    routing: Arc<Routing>,
    /// Where the shop is published.
    at: SocketAddr,
    /// Where its container listens.
    container: SocketAddr,
    _stop: watch::Sender<RouterStage>,
    _dir: TempDir,
}

/// Elm runs a container that greets, and says back what it is told.
async fn bench() -> Bench {
    let (dir, cell_id) = (TempDir::new().unwrap(), CellId::new("test").unwrap());
    let joining = EmbeddedConfig {
        server: ServerId(9),
        founding: Founding::Join,
        ..EmbeddedConfig::alone(dir.path(), cell_id.clone())
    };
    let cell = NodeContext::new(
        Embedded::start(joining).await.unwrap(),
        Arc::new(FakeRuntime::new(cell_id)),
        node_id("elm"),
        Arc::default(),
        Policy::default(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let container = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = client.write_all(b"afloat").await;
                let (mut from, mut to) = client.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    cell.measurements.reach(replica_id(WEB), Generation(7), Some(container.ip()));
    // Somebody else may take it meanwhile, who would have to be very quick.
    let at = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = PeerClient::new(testkit::cell("blue").node("elm"));
    let routing = Arc::new(Routing::new(
        cell,
        &client,
        dir.path().join("certificates"),
        RouterLimits::default(),
        Sockets::default(),
        None,
    ));
    let (stop, stopping) = watch::channel(RouterStage::Open);
    tokio::spawn(Arc::clone(&routing).run(Listens::Yes, Entrances::default(), stopping));
    Bench { routing, at, container, _stop: stop, _dir: dir }
}

impl Bench {
    /// The leader says how the container stands, and that there is another node.
    fn told(&self, state: EndpointState) {
        let container = ReplicaEndpoint {
            replica: replica_id(WEB),
            generation: Generation(7),
            node: node_id("elm"),
            state,
            ports: [self.container.port()].into(),
            proxied: [].into(),
        };
        let place = ListenAddress { address: self.at, protocol: Protocol::Tcp };
        let published = [(place, self.container.port())].into();
        let listing = ServiceEndpoints {
            published,
            replicas: vec![container],
            ..ServiceEndpoints::default()
        };
        let nodes = ["ash", "elm"].map(|node| (node_id(node), format!("{node}:7117")));
        let services = [(service_key("shop/web"), Arc::new(listing))].into();
        let endpoints = Endpoints { services, nodes: nodes.into(), ..Endpoints::default() };
        let feed = &self.routing.cell.endpoints;
        feed.update(endpoints.since(feed.latest().as_deref()));
    }

    /// A connection on which the container has greeted.
    async fn connected(&self) -> Option<TcpStream> {
        let mut client = TcpStream::connect(self.at).await.ok()?;
        let mut greeting = [0; 6];
        client.read_exact(&mut greeting).await.ok()?;
        (greeting == *b"afloat").then_some(client)
    }

    async fn until(&self, is_served: bool) {
        let begun = Instant::now();
        while self.connected().await.is_some() != is_served {
            assert!(begun.elapsed() < PATIENCE, "never: served {is_served}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_log_listens_and_leads_as_its_leader_tells_it() {
    let bench = bench().await;
    assert!(bench.connected().await.is_none(), "nobody has told it anything");
    bench.told(EndpointState::Ready);
    bench.until(true).await;
    bench.told(EndpointState::NotReady);
    bench.until(false).await;
    bench.told(EndpointState::Ready);
    bench.until(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leaves_is_left_alone_until_it_is_quiet() {
    let bench = bench().await;
    bench.told(EndpointState::Ready);
    bench.until(true).await;
    let mut open = bench.connected().await.unwrap();
    let routing = Arc::clone(&bench.routing);
    let parting = tokio::spawn(async move {
        routing.parted(&replica_id(WEB), Generation(7), PATIENCE).await;
    });
    sleep(MOMENT * 2).await;
    assert!(!parting.is_finished(), "it takes requests still");
    bench.told(EndpointState::Draining { grace: Millis::seconds(60) });
    bench.until(false).await;
    sleep(MOMENT * 2).await;
    assert!(!parting.is_finished(), "one is under way");
    open.write_all(b"still here").await.unwrap();
    let mut said = [0; 10];
    open.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"still here", "and goes on");
    let begun = Instant::now();
    drop(open);
    parting.await.unwrap();
    assert!(begun.elapsed() < PATIENCE / 2, "no longer than that");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_longer_for_requests_than_the_grace() {
    let bench = bench().await;
    bench.told(EndpointState::Ready);
    bench.until(true).await;
    let _open = bench.connected().await.unwrap();
    bench.told(EndpointState::Draining { grace: Millis::seconds(60) });
    bench.until(false).await;
    let patience = Duration::from_millis(500);
    let begun = Instant::now();
    bench.routing.parted(&replica_id(WEB), Generation(7), patience).await;
    assert!((patience..PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}
