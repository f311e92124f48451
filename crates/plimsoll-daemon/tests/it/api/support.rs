//! A daemon with nothing but its API, and a client of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::client::{Client, Endpoint, Error};
use plimsoll_api::view::{Applied, Apply, Problem};
use plimsoll_daemon::NodeContext;
use plimsoll_daemon::api::{ApiServer, Listen, TcpListen};
use plimsoll_daemon::context::now;
use plimsoll_kernel::place::Roster;
use plimsoll_kernel::{Policy, Scope, Signals, reconcile};
use plimsoll_model::testkit::{cpus, node_id, replica_id};
use plimsoll_model::{
    CellId, Change, Generation, Guarded, Observation, ObservedCode, ObservedState, ReplicaId,
    ServiceName, ServiceSpec, Timestamp, Writer,
};
use plimsoll_peer::pki::operator_client_config;
use plimsoll_peer::pki::testkit::cell as pki;
use plimsoll_router::Sockets;
use plimsoll_runtime::{FakeRuntime, LogLine, Output, Runtime, StartRequest, Tag};
use plimsoll_store::embedded::{Embedded, EmbeddedConfig};
use plimsoll_store::{Engine, Founding, Leadership};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::faulty_engine::FaultyEngine;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Daemon {
    pub(super) cell: NodeContext,
    pub(super) client: Client,
    pub(super) runtime: Arc<FakeRuntime>,
    pub(super) listen: Listen,
    pub(super) tcp: Option<std::net::SocketAddr>,
    /// How its certificate is recognised.
    pub(super) tls: Arc<ClientConfig>,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

/// A cell of one node, `ash`, with four processors.
pub(super) async fn daemon() -> Daemon {
    start(false).await
}

pub(super) async fn daemon_on_tcp() -> Daemon {
    start(true).await
}

/// A server that waits to be taken into a cell, and so has no leader.
pub(super) async fn daemon_without_a_leader() -> Daemon {
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig { founding: Founding::Join, ..config(&dir) };
    let engine = Embedded::start(config).await.unwrap();
    serve(dir, engine, false, None).await
}

/// A daemon that could speak to other nodes, on a log that fails when it is told to.
pub(super) async fn daemon_with_faults() -> (Daemon, Arc<FaultyEngine>) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(FaultyEngine::new(leader(&dir).await));
    let peers = Some(plimsoll_peer::PeerClient::new(pki("test").node("ash")));
    (serve(dir, Arc::clone(&engine) as _, true, peers).await, engine)
}

async fn start(on_tcp: bool) -> Daemon {
    let dir = tempfile::tempdir().unwrap();
    let engine = leader(&dir).await;
    let daemon = serve(dir, engine, on_tcp, None).await;
    let join = Change::PutNode { node: node_id("ash"), facts: cpus(4) };
    daemon.write(Writer::Operator, vec![join.free()]).await;
    daemon
}

async fn leader(dir: &tempfile::TempDir) -> Arc<Embedded> {
    let engine = Embedded::start(config(dir)).await.unwrap();
    let leads = |leadership: &Leadership| leadership.is_me;
    within(engine.leadership().wait_for(leads)).await.unwrap();
    engine
}

fn config(dir: &tempfile::TempDir) -> EmbeddedConfig {
    EmbeddedConfig::alone(dir.path().join("data"), CellId::new("test").unwrap())
}

async fn serve(
    dir: tempfile::TempDir,
    engine: Arc<dyn Engine>,
    on_tcp: bool,
    peers: Option<plimsoll_peer::PeerClient>,
) -> Daemon {
    let (cell_id, data_dir) = (CellId::new("test").unwrap(), dir.path().join("data"));
    let runtime = Arc::new(FakeRuntime::new(cell_id));
    let (over, policy) = (Arc::clone(&runtime) as _, Policy::default());
    let cell = NodeContext::new(engine, over, node_id("ash"), Arc::default(), policy);
    let socket = dir.path().join("plimsoll.sock");
    let authority = pki("test");
    let tcp = on_tcp.then(|| TcpListen {
        address: "127.0.0.1:0".parse().unwrap(),
        credentials: authority.node("ash"),
    });
    let listen =
        Listen { socket: socket.clone(), group: None, tcp, data_dir, sockets: Sockets::default() };
    let server = ApiServer::bind(cell.clone(), &listen).await.unwrap();
    if let Some(peers) = peers {
        server.reach(peers);
    }
    let tcp = server.tcp_address();
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(server.run(async { drop(stopped.await) }));
    let client = Client::new(Endpoint::Unix(socket));
    let (stop, running) = (Some(stop), Some(running));
    let tls = operator_client_config(&[authority.fingerprint()]).unwrap();
    Daemon { cell, client, runtime, listen, tcp, tls, stop, running, _dir: dir }
}

/// Fails the test where it would wait for ever.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

impl Daemon {
    /// The way over the network, with this token if there is one.
    pub(super) fn by_tcp(&self, token: Option<&str>) -> Client {
        let addresses = vec![self.tcp.unwrap().to_string()];
        let client = Client::new(Endpoint::Https { addresses, tls: Some(Arc::clone(&self.tls)) });
        match token {
            Some(token) => client.with_token(token),
            None => client,
        }
    }

    pub(super) async fn connect_tls(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.tcp.unwrap()).await.unwrap();
        let name = "node.plimsoll.internal".try_into().unwrap();
        TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await.unwrap()
    }

    pub(super) async fn apply<const N: usize>(
        &self,
        name: &str,
        services: [(&str, ServiceSpec); N],
    ) -> Applied {
        self.client.apply(name, &apply(services)).await.unwrap()
    }

    pub(super) async fn write(&self, writer: Writer, batch: Vec<Guarded>) {
        self.cell.write(writer, "test", batch).await.unwrap();
    }

    /// One pass of the scheduler. Returns whether it decided anything.
    pub(super) async fn pass(&self) -> bool {
        let policy = Policy::default();
        let batch = self.cell.engine.machine().read(|state| {
            let mut roster = Roster::new(state, &Signals::default(), &policy);
            reconcile(state, &mut roster, &policy, Scope::All, now()).batch
        });
        let has_decided = !batch.is_empty();
        if has_decided {
            self.write(Writer::Scheduler, batch).await;
        }
        has_decided
    }

    /// What should run runs, and what leaves has stopped.
    pub(super) async fn obey(&self) {
        let held: Vec<(ReplicaId, Generation, ObservedState)> =
            self.cell.engine.machine().read(|state| {
                let held = state.replicas().flat_map(|(id, replica)| {
                    let leaves = |generation| {
                        replica.leaving.iter().any(|leaving| leaving.generation == generation)
                    };
                    let reports = replica.holds().map(|held| {
                        let stops = leaves(held.generation);
                        let state =
                            if stops { ObservedState::Stopped } else { ObservedState::Running };
                        (id.clone(), held.generation, state)
                    });
                    reports.collect::<Vec<_>>()
                });
                held.collect()
            });
        let reports = held.into_iter().map(|(replica, generation, state)| {
            let observation = Observation { state, code: None, at: Timestamp(0) };
            Change::Observe { replica, generation, observation }.free()
        });
        self.write(Writer::Agent, reports.collect()).await;
    }

    /// Passes and obeys until there is nothing left to do.
    pub(super) async fn settle(&self) {
        for _ in 0..50 {
            let has_decided = self.pass().await;
            self.obey().await;
            if !has_decided {
                return;
            }
        }
        panic!("it does not settle");
    }

    pub(super) async fn report(&self, id: &str, state: ObservedState, code: Option<ObservedCode>) {
        let (replica, generation) = (replica_id(id), self.generation(id));
        let observation = Observation { state, code, at: Timestamp(0) };
        let change = Change::Observe { replica, generation, observation };
        self.write(Writer::Agent, vec![change.free()]).await;
    }

    /// The generation of the replica's assignment; `shop/web/1`.
    pub(super) fn generation(&self, id: &str) -> Generation {
        let id = replica_id(id);
        self.cell
            .engine
            .machine()
            .read(|state| state.replica(&id).unwrap().assignment.as_ref().unwrap().generation)
    }

    pub(super) fn tag(&self, id: &str) -> Tag {
        let (replica, generation) = (replica_id(id), self.generation(id));
        Tag { cell_id: CellId::new("test").unwrap(), replica, generation }
    }

    /// Starts the replica's container in the runtime.
    pub(super) async fn start(&self, id: &str) {
        let tag = self.tag(id);
        let container = self.cell.engine.machine().read(|state| {
            let service = state.service(&tag.replica.service).unwrap();
            Arc::new(service.desired().unwrap().container.clone())
        });
        self.runtime.start(&StartRequest::new(tag, container)).await.unwrap();
    }

    pub(super) fn print(&self, id: &str, at: u64, text: &str) {
        let (at, text) = (Timestamp(at), text.as_bytes().to_vec());
        self.runtime.print(&self.tag(id), LogLine { at, from: Output::Stdout, text });
    }

    /// Ends the daemon's API and returns once it has.
    pub(super) async fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        within(self.running.take().unwrap()).await.unwrap();
    }

    /// Ends all of it, its log too, so that nothing of it stays in memory.
    pub(super) async fn end(mut self) {
        self.stop().await;
        within(self.cell.engine.shutdown()).await.unwrap();
    }

    /// What comes back for exactly these bytes: the status, and the body.
    pub(super) async fn raw(&self, request: impl AsRef<[u8]>) -> (u16, String) {
        let mut stream = UnixStream::connect(&self.listen.socket).await.unwrap();
        // A server that has heard enough may hang up before all is said.
        let _ = stream.write_all(request.as_ref()).await;
        let mut answer = Vec::new();
        within(stream.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.listen.socket.clone()
    }
}

pub(super) fn apply<const N: usize>(services: [(&str, ServiceSpec); N]) -> Apply {
    let services: BTreeMap<ServiceName, ServiceSpec> =
        services.into_iter().map(|(name, spec)| (ServiceName::new(name).unwrap(), spec)).collect();
    Apply { services, routes: Vec::new(), expect: None }
}

/// What the daemon said no with.
pub(super) fn problem<T: std::fmt::Debug>(answer: Result<T, Error>) -> Problem {
    match answer {
        Err(Error::Problem(problem)) => problem,
        other => panic!("not a problem: {other:?}"),
    }
}

/// A problem as people read it.
pub(super) fn said<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    let problem = problem(answer);
    let hint = problem.hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    format!("{}: {}{hint}", problem.code, problem.message)
}
