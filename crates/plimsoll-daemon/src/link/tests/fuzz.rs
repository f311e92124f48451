//! What nodes say to each other, broken at random: from a node that has gone mad to its leader, and the other way round. The
//! link ends or goes on; decisions, views and the router are made of whatever got through.

use std::collections::BTreeSet;

use plimsoll_fuzz::{Mutator, Vigil, length, seed};
use plimsoll_kernel::endpoints::{EndpointState, ListenAddress, ReplicaEndpoint, ServiceEndpoints};
use plimsoll_kernel::{Leader, LeaderStep};
use plimsoll_model::access::Digest;
use plimsoll_model::spec::{Protocol, RouteSpec, Tls};
use plimsoll_model::testkit::service_key;
use plimsoll_model::{Bytes, MilliCpus, Millis, Pressure, Revision, Timestamp};
use plimsoll_router::{NoTunnel, Router, RouterLimits};
use plimsoll_runtime::VolumeRef;
use plimsoll_runtime::pressure::{PressureReading, Share, Stalls};
use tokio::time::Instant;

use super::*;
use crate::authorities::AuthorityFeed;
use crate::context::now;
use crate::dispatcher::Assignments;
use crate::ingress_status::IngressStatus;
use crate::measurements::FailedChecks;
use crate::route_certificates::{CertificateFeed, RouteCertificates};
use crate::routing::router_config::{Addresses, Open, wanted};
use crate::views::{Responder, Source};
use crate::volume_orders::VolumeOrders;
use frame::{Cleared, Declared, Served};

/// So long may one broken conversation take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both ends of a conversation, of which one says this in two pieces and listens to whatever it is answered.
async fn converse<T>(input: &[u8], hears: impl AsyncFnOnce(Pipe) -> T) -> T {
    let (Pipe { to, mut from }, other) = pipes();
    let (first, second) = input.split_at(input.len() / 2);
    let speaks = async {
        // Who has heard enough hangs up.
        for piece in [first, second] {
            let _ = to.send(piece.to_vec()).await;
        }
        drop(to);
        while from.recv().await.is_some() {}
    };
    let both = async { tokio::join!(hears(other), speaks).0 };
    timeout(PATIENCE, both).await.expect("a conversation of a few bytes ends")
}

/// What a node may say, each with the greeting before it.
fn from_a_node() -> Vec<Vec<u8>> {
    let mut facts = cpus(4).label("disk", "ssd");
    facts.address = Some("10.0.0.2:7117".to_owned());
    let listeners = HttpListeners { http: true, https: true };
    let (node, facts) = (node_id("birch"), Box::new(facts));
    let greeting = Up::Hello { version: VERSION, node, seen: Term(1), facts, listeners };
    let key = (replica_id(WEB), Generation(1));
    let pressure = Pressure::of(1, 4);
    let reading = PressureReading {
        cpu: Some(Share { used: MilliCpus(1_000), pressure }),
        memory: Some(Share { used: Bytes(1 << 30), pressure }),
        stalls: Stalls::default(),
    };
    let measured = NodeMeasurement {
        reading: Some(reading),
        version: Some("0.1.0".to_owned()),
        ..NodeMeasurement::default()
    };
    let replica = ReplicaMeasurement {
        cpu: Some(MilliCpus(100)),
        memory: Some(Bytes(1 << 20)),
        failures: 2,
        next_try: Some(Timestamp(9)),
        address: Some("172.17.0.2".parse().unwrap()),
        failed_checks: Some(FailedChecks::new(3, "no".to_owned())),
    };
    let beat = Up::Beat {
        node: Box::new(measured),
        measured: Some(Millis(5)),
        replicas: vec![(key, replica)],
    };
    let code = Some(ObservedCode::Unhealthy { output: "no".to_owned() });
    let (replica, generation) = (replica_id(WEB), Generation(1));
    let degraded = Seen { replica, generation, state: ObservedState::Degraded, code };
    let deployment = DeploymentName::new("shop").unwrap();
    let shop = deployment.clone();
    let served =
        Served { replica: replica_id(WEB), asked_by: "ann".to_owned(), through: node_id("ash") };
    let reports = vec![
        seen(WEB, 1, ObservedState::Running),
        Report::Seen(degraded),
        Report::Cleared(Cleared { deployment, revision: Revision(1) }),
        Report::Served(served),
        Report::VolumeRemoved { volume: VolumeRef::new(&shop, "shop_d"), order: Generation(1) },
        Report::VolumesCopied { deployment: shop, order: Generation(1), error: None },
        Report::Followed { epoch: 1 },
        Report::Declared(Declared {
            service: replica_id(WEB).service,
            spec: spread(1).hash,
            paths: ["/data".to_owned()].into(),
        }),
    ];
    let reports = Up::Reports { seq: 1, reports };
    [vec![&greeting], vec![&greeting, &beat, &beat], vec![&greeting, &reports, &beat]]
        .map(|words| words.into_iter().flat_map(encode).collect())
        .to_vec()
}

/// What a leader makes of what it heard: a whole turn, and what it shows to people.
fn decide(cell: &NodeContext) {
    let at = now();
    let measured = cell.measurements.lock().clone();
    cell.engine.machine().read(|state| {
        let mut leader = Leader::new(cell.policy, at);
        for (node, measured) in &measured.nodes {
            leader.heartbeat(node, measured.heard_at.unwrap_or(at));
            leader.sample(node, measured.sample(), at);
        }
        leader.usage(state, measured.usages());
        for step in LeaderStep::TURN {
            leader.decide(step, state, at);
        }
        let endpoints = Endpoints::of(state, None);
        wanted(&endpoints, &cell.node, &Addresses::default(), &Open::default());
        let here = Responder {
            lag: 0,
            heard_ms: None,
            node: cell.node.clone(),
            version: "0.0.0",
            leader: None,
            servers: BTreeSet::new(),
            term: 1,
            applied: 1,
            trouble: None,
            now: at,
        };
        let (ingress, policy) = (&IngressStatus::default(), &cell.policy);
        let source = Source { state, measured: &measured, ingress, policy, here: &here };
        serde_json::to_string(&(source.status(), source.replicas())).unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broken_frame_of_a_node_breaks_its_leader() {
    let bench = bench().await;
    let (birch, corpus) = (node_id("birch"), from_a_node());
    for whole in &corpus {
        let ended = converse(whole, async |pipe| bench.host.serve(&birch, None, pipe).await).await;
        assert!(ended.is_ok(), "{ended:?}");
        decide(&bench.host.cell);
    }
    let vigil = Vigil::begin("link of a node");
    let mut mutator = Mutator::new(seed(), &corpus, &[]);
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < length(4) {
        let input = mutator.next_input();
        let before = bench.state_of("shop/web/2");
        let _ = converse(&input, async |pipe| bench.host.serve(&birch, None, pipe).await).await;
        decide(&bench.host.cell);
        assert_eq!(vigil.panics(), 0, "{}", input.escape_ascii());
        assert_eq!(bench.state_of("shop/web/2"), before, "what another node has");
        count += 1;
    }
    // It leads as before, and hears who has come to its senses.
    for whole in &corpus {
        let ended = converse(whole, async |pipe| bench.host.serve(&birch, None, pipe).await).await;
        assert!(ended.is_ok(), "{ended:?}");
    }
    vigil.end(count);
}

/// What a leader may say.
fn from_a_leader(cell: &NodeContext) -> Vec<Vec<u8>> {
    let term = Term(7);
    let peer = Peer { name: "ash".to_owned(), address: "ash:7117".to_owned() };
    let keys = [("ash".to_owned(), Digest([1; 32]))].into();
    let roll = ServerList { since: 1, servers: vec![peer], keys };
    let assignments = cell.engine.machine().read(|state| {
        Assignments::of(state, &node_id("birch"), &replica_id(WEB)).expect("it runs there")
    });
    let all = [(replica_id(WEB), assignments.clone())].into();
    let some = vec![(replica_id(WEB), Some(assignments)), (replica_id("shop/web/9"), None)];
    let doomed = [(DeploymentName::new("shop").unwrap(), Revision(3))].into();
    let volumes = VolumeOrders { doomed, ..VolumeOrders::default() };
    let service = ServiceName::new("web").unwrap();
    let (path, host) = ("/api".to_owned(), Some("*.shop.example".to_owned()));
    let route = RouteSpec { host, path, strip_path: true, service, port: 80, tls: Tls::Off };
    let address = "0.0.0.0:80".parse().unwrap();
    let endpoint = |generation, state| ReplicaEndpoint {
        replica: replica_id(WEB),
        generation: Generation(generation),
        node: node_id("ash"),
        state,
        ports: [80].into(),
        proxied: [80].into(),
    };
    let draining = EndpointState::Draining { grace: Millis(1_000) };
    let web = ServiceEndpoints {
        published: [(ListenAddress { address, protocol: Protocol::Tcp }, 80)].into(),
        replicas: vec![endpoint(1, EndpointState::Ready), endpoint(2, draining)],
        networks: [("shop_default".to_owned(), ["www".to_owned()].into())].into(),
        datagrams: [53].into(),
        ..ServiceEndpoints::default()
    };
    let update = Endpoints {
        services: [(service_key("shop/web"), Arc::new(web))].into(),
        nodes: [(node_id("ash"), "ash:7117".to_owned())].into(),
        keys: [(node_id("ash"), Digest([1; 32]))].into(),
        routes: [(DeploymentName::new("shop").unwrap(), Arc::new(vec![route]))].into(),
    }
    .since(None);
    let certificates = RouteCertificates::default();
    let words = [
        Down::Orders { term, update: AssignmentUpdate::All(all) },
        Down::Orders { term, update: AssignmentUpdate::Some(some) },
        Down::Orders { term, update: AssignmentUpdate::Volumes(volumes) },
        Down::Written { seq: 1 },
        Down::Endpoints { term, update },
        Down::Certificates { term, certificates },
    ];
    let servers = encode(&Down::Servers { term, roll });
    words.iter().map(|word| [servers.clone(), encode(word)].concat()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broken_frame_of_a_leader_breaks_a_node() {
    let bench = bench().await;
    let corpus = from_a_leader(&bench.host.cell);
    let router = Router::new(RouterLimits::default(), Arc::new(NoTunnel));
    let vigil = Vigil::begin("link of a leader");
    let mut mutator = Mutator::new(seed(), &corpus, &[]);
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < length(4) {
        let is_whole = count < corpus.len();
        let input = if is_whole { corpus[count].clone() } else { mutator.next_input() };
        let cell = NodeContext {
            node: node_id("birch"),
            servers: Arc::default(),
            measurements: SharedMeasurements::default(),
            endpoints: EndpointFeed::default(),
            authorities: AuthorityFeed::default(),
            certificates: CertificateFeed::default(),
            ..bench.host.cell.clone()
        };
        let (orders, mut told) = slot();
        let (_reports, inbox) = mpsc::unbounded_channel();
        let attended = converse(&input, async |pipe| {
            let (mut fence, mut outbox) = (Fence::in_memory(), Outbox::new(inbox));
            agent_side::attend(&cell, &cpus(4), pipe, &mut fence, &orders, &mut outbox).await
        })
        .await;
        assert!(!is_whole || attended.is_ok(), "{attended:?}");
        drop(orders);
        while told.recv().await.is_some() {}
        if let Some(endpoints) = cell.endpoints.latest() {
            let config = wanted(&endpoints, &cell.node, &Addresses::default(), &Open::default());
            router.update(&config.wanted);
            router.explain("a.shop.example", "/api/x");
        }
        let anchors =
            cell.authorities.latest().iter().map(|it| it.anchors().count()).sum::<usize>();
        assert!(anchors <= input.len(), "as many as there were");
        let _ = (cell.any_server(), cell.holds_log());
        assert_eq!(vigil.panics(), 0, "{}", input.escape_ascii());
        count += 1;
    }
    vigil.end(count);
}
