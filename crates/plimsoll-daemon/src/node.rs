//! A node from its first to its last moment: opens its data directory, starts the log, the runtime, the loops and the
//! API, in this order, and ends them in the other. Replicas outlive it.
//!
//! ```text
//! store/     the replicated log, and the lock on all of this
//! lock       in place of it where the log is on an etcd
//! tls/       this node's key and certificate
//! term       the newest term whose orders it has taken
//! node.json  who this node is and what runs its containers
//! servers.json  who held the log when this node last heard of it
//! process/   what the process runtime keeps
//! docker/    configs and secrets that containers have mounted
//! names.json  the virtual IPs of services
//! processes.json  the first process of each container, by which it is known to run on while its engine is down
//! certificates/  those of routes with `tls: files`, which somebody else puts there
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use plimsoll_dns::ServiceDns;
use plimsoll_kernel::Policy;
use plimsoll_model::access::Digest;
use plimsoll_model::level::VERSION;
use plimsoll_model::{CellId, NodeFacts, NodeId, Zone};
use plimsoll_router::sockets::{SharedSocket, SocketName, Sockets};
use plimsoll_router::{AddressBlock, RouterLimits};
use plimsoll_runtime::pressure::HostInfo;
use plimsoll_runtime::{Block, BoxFuture, Description};
use plimsoll_store::Incarnation;
use plimsoll_store::keys::UnlockKey;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::acme::{self, AcmeChoice};
use crate::agent::Agent;
use crate::api::{self, ApiServer, Listen, TcpListen};
use crate::cell::log::CellLog;
use crate::cell::quorum;
use crate::context::{NodeContext, now};
use crate::dispatcher::{self, Dispatch};
use crate::fleet::Coordinator;
use crate::fleet_link;
use crate::heartbeat::Pulse;
use crate::link::reach::Reach;
use crate::link::{Fence, Report};
use crate::peer_api::{self, PeerApi};
use crate::renewal::Renewal;
use crate::routing::{Entrances, Listens, Routing};
use crate::{heartbeat, leader, link, sampler};
use plimsoll_peer::pki::{Credentials, JoinAddress};
use plimsoll_peer::{PeerClient, RaftNetwork};

mod bootstrap;
mod data_dir;
mod error;
mod etcd;
pub mod etcd_seal;
mod membership;
pub mod migration;
mod name;
mod node_file;
mod part;
mod peer_port;
mod plane;
pub mod recovery;
mod runtime;

use bootstrap::OpenedLog;
pub use error::Error;
pub use etcd::{EngineKind, EtcdOptions, Password};
use node_file::NodeFile;
use part::{MayEnd, Part};
use peer_port::{PeerPort, PortToOpen, expects_others};
pub use plane::{DataPlane, LINGER};

/// How long a node that needs no token may take to be taken in before it says that it is up all the same.
const TAKEN_IN: Duration = Duration::from_secs(5);

/// How long sockets that another process handed over are kept though nobody has asked for them: whoever would has long
/// begun to.
const UNCLAIMED: Duration = Duration::from_secs(30);

/// How long the loops may take to end.
const STOP: Duration = Duration::from_secs(5);

/// How a node is started. What is left out, it finds out or remembers from the last time.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    pub data_dir: PathBuf,
    pub name: Option<NodeId>,
    pub cell_id: Option<CellId>,
    pub runtime: Option<RuntimeKind>,
    pub docker_socket: Option<PathBuf>,
    pub socket: PathBuf,
    /// The group of the host that may use the socket beside root and the daemon's own user, by name or number.
    pub socket_group: Option<String>,
    pub listen: Option<SocketAddr>,
    /// Where other nodes reach this one.
    pub address: Option<String>,
    /// The cell to join, for a node that is of none yet.
    pub join: Option<JoinAddress>,
    pub zone: Option<Zone>,
    pub labels: BTreeMap<String, String>,
    /// What the keys of its store are kept under, if anything.
    pub unlock: Option<UnlockKey>,
    /// What keeps the log.
    pub engine: Option<EngineKind>,
    pub etcd: EtcdOptions,
    /// Where it takes HTTP requests for routes, in the clear and under TLS; nowhere if neither is said.
    pub http: Option<SocketAddr>,
    pub https: Option<SocketAddr>,
    /// Proxies in front of this node, whose forwarding headers are believed.
    pub trusted_proxies: Vec<AddressBlock>,
    /// Whom the cell asks for certificates of routes with `tls: auto`.
    pub acme: AcmeChoice,
    /// What networks of containers take their addresses from.
    pub address_pool: Option<Block>,
    /// Directories below which anybody who may deploy may bind; whatever else is bound is an admin's to ask for.
    pub bind_roots: BTreeSet<String>,
    pub policy: Policy,
    /// Where this host's counters are, if not at `/`.
    pub host: Option<PathBuf>,
    /// What makes it a node of a coordinator, which runs no containers.
    pub coordinator: Option<Arc<dyn Coordinator>>,
}

impl NodeOptions {
    fn host_root(&self) -> PathBuf {
        self.host.clone().unwrap_or_else(|| PathBuf::from("/"))
    }
}

/// What runs this node's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    Docker,
    Process,
    /// Nothing runs them: for measuring a daemon, and not among what can be typed.
    Fake,
    /// There are none: this node is a coordinator's.
    None,
}

impl RuntimeKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Process => "process",
            Self::Fake => "fake",
            Self::None => "none",
        }
    }
}

/// A node that runs.
#[derive(Debug)]
pub struct RunningNode {
    cell: NodeContext,
    log: CellLog,
    kind: RuntimeKind,
    description: Option<Description>,
    address: Option<SocketAddr>,
    token: Option<PathBuf>,
    shutdown: watch::Sender<bool>,
    tasks: JoinSet<()>,
    /// What of it has ended unasked.
    ended: watch::Sender<Option<&'static str>>,
    sockets: Sockets,
    /// None where nothing is routed.
    routing: Option<Arc<Routing>>,
    plane: DataPlane,
    pulse: Pulse,
}

/// Where the log of a data directory lies.
pub fn store_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

/// What this host's node is called where nobody says.
pub fn default_name() -> Result<NodeId, Error> {
    let host = HostInfo::read(Path::new("/")).ok_or(Error::Host)?;
    name::node(&NodeOptions::default(), None, host.hostname.as_deref())
}

/// Names the node of a data directory that was restored, before its first start.
pub fn remember(data_dir: &Path, name: &NodeId) -> Result<(), Error> {
    let (name, incarnation) = (name.clone(), Incarnation::default());
    NodeFile { name, runtime: None, joined: None, join_token: None, incarnation, etcd: None }
        .write(data_dir)
}

/// What leads into a node and out of it.
struct NodeEndpoints {
    client: PeerClient,
    server: ApiServer,
    peers: PeerPort,
    names: Option<ServiceDns>,
}

impl RunningNode {
    pub async fn start(options: NodeOptions) -> Result<Self, Error> {
        Self::start_on(options, Sockets::default()).await
    }

    /// Whether a node could start with these options, as far as that can be known while another process is that node.
    pub fn check(options: &NodeOptions) -> Result<(), Error> {
        let memory = NodeFile::read(&options.data_dir)?;
        let host = HostInfo::read(&options.host_root()).ok_or(Error::Host)?;
        name::node(options, memory.as_ref(), host.hostname.as_deref())?;
        name::address(options)?;
        etcd::choose(options, memory.as_ref())?;
        Ok(())
    }

    /// In the place of another process, which handed these sockets over and routes until this node [does](Self::opened).
    pub async fn start_on(options: NodeOptions, sockets: Sockets) -> Result<Self, Error> {
        let dir = &options.data_dir;
        let memory = NodeFile::read(dir)?;
        data_dir::prepare(&options, memory.as_ref())?;
        let kind = runtime::choose(&options, memory.as_ref()).await?;
        data_dir::open_to_services(&options, kind)?;
        let host = HostInfo::read(&options.host_root()).ok_or(Error::Host)?;
        let name = name::node(&options, memory.as_ref(), host.hostname.as_deref())?;
        let (address, listen) = name::address(&options)?;
        let facts = NodeFacts {
            zone: options.zone.clone(),
            labels: options.labels.clone(),
            api: name::api(options.listen.filter(|it| it.port() > 0), Some(&address)),
            address: Some(address),
            version: VERSION.to_owned(),
            ..host.facts
        };

        membership::check(&options, memory.as_ref(), &name).await?;
        // Its lock is on the whole directory: from here on no other plimsoll uses it.
        let opened_log = OpenedLog::take(&options, memory.as_ref(), &name, &facts).await?;
        let engine = opened_log.log.engine();
        let started =
            Self::start_with_log(options, kind, name, listen, facts, (opened_log, sockets)).await;
        if started.is_err() {
            // Others must not wait for a server that leads and never came to anything.
            let _ = engine.shutdown().await;
        }
        started
    }

    /// Everything but the log, which is there.
    async fn start_with_log(
        options: NodeOptions,
        kind: RuntimeKind,
        name: NodeId,
        listen: SocketAddr,
        mut facts: NodeFacts,
        (opened_log, sockets): (OpenedLog, Sockets),
    ) -> Result<Self, Error> {
        let dir = &options.data_dir;
        let OpenedLog { log, joined, join_token, etcd } = opened_log;
        let engine = log.engine();
        let cell_id = engine.machine().read(|state| state.cell_id().clone());
        let opened = runtime::open(&options, kind, cell_id, &name).await?;
        let runtime::OpenRuntime { runtime, names } = opened;
        facts.runtime = runtime::facts(&options, kind, runtime.as_ref()).await;
        let has_joined = joined.is_some();
        let (incarnation, name_kept) = (log.incarnation(), name.clone());
        let runtime_kept = Some(kind);
        let memory = NodeFile {
            name: name_kept,
            runtime: runtime_kept,
            joined,
            join_token,
            incarnation,
            etcd,
        };
        memory.write(dir)?;

        let servers = Arc::new(bootstrap::servers(dir)?);
        let mut cell = NodeContext::new(engine, runtime, name, servers, options.policy);
        cell.coordinator.clone_from(&options.coordinator);
        let identity = bootstrap::identity(&cell, &log, dir, &facts, has_joined).await?;
        let key = identity.key_digest()?;
        // One process has one key.
        let _ = cell.key.set(key);
        let credentials = Credentials::new(&identity)?;
        let client = PeerClient::new(credentials.clone());
        // The log has connections of its own: a stream that nobody reads must not hold it up.
        log.reach(|| RaftNetwork::new(PeerClient::new(credentials.clone())));

        let (shutdown, stop) = watch::channel(false);
        let mut node = Self {
            cell,
            log,
            kind,
            description: None,
            address: None,
            token: None,
            shutdown,
            tasks: JoinSet::new(),
            ended: watch::Sender::new(None),
            sockets,
            routing: None,
            plane: DataPlane::default(),
            pulse: Pulse::default(),
        };
        let is_asked_for = options.address.is_some() || has_joined;
        let peers = node.open_peer_port(listen, &credentials, is_asked_for)?;
        let server = node.open_api(&options, &credentials).await?;
        // Where the port was left to the system, it is known only now.
        facts.api = name::api(node.address, facts.address.as_deref());
        server.reach(client.clone());
        let endpoints = NodeEndpoints { client: client.clone(), server, peers, names };
        let reports = node.begin(&options, facts, key, endpoints, &stop)?;
        let renewal = Renewal::new(node.cell.clone(), dir.clone(), identity, client, reports);
        node.guard("certificate renewal", renewal.run(stop.clone()));
        node.close_unclaimed(stop);
        // An engine that hangs holds this up, and by now nothing else.
        node.description = node.cell.runtime.describe().await.ok();
        node.until_taken_in(key).await;
        Ok(node)
    }

    /// A node that was taken in with a token, or founded its cell, is of it. Any other is once the leader has met it.
    async fn until_taken_in(&self, key: Digest) {
        if !self.log.takes_certificates() {
            return;
        }
        let machine = self.cell.engine.machine();
        let is_in = || {
            let own = machine.read(|state| state.node(&self.cell.node).and_then(|node| node.key));
            own == Some(key)
        };
        let mut applied = machine.applied();
        let taken_in = async { while !is_in() && applied.changed().await.is_ok() {} };
        if tokio::time::timeout(TAKEN_IN, taken_in).await.is_err() {
            tracing::warn!(
                "the leader has not taken this node in yet: see that the two reach each other, and that no other node has \
                 this one's name"
            );
        }
    }

    /// A node that is alone can do without, and does unless it is asked for; one that has others, or may lead any that come,
    /// must hear them.
    fn open_peer_port(
        &self,
        address: SocketAddr,
        credentials: &Credentials,
        is_asked_for: bool,
    ) -> Result<PeerPort, Error> {
        let engine = &self.cell.engine;
        let (credentials, sockets) = (credentials.clone(), self.sockets.clone());
        let port = PortToOpen { address, credentials, sockets };
        let is_needed = self.log.takes_certificates() || engine.members().len() > 1;
        let is_expecting = engine.machine().read(|state| expects_others(state, now()));
        if !is_needed && !is_asked_for && !is_expecting {
            return Ok(PeerPort::Shut(port));
        }
        match port.open() {
            Ok(server) => Ok(PeerPort::Open(server)),
            Err(source) if is_needed => Err(Error::Peers { address, source }),
            Err(error) => {
                tracing::warn!(%address, %error, "cannot bind the peer port: other nodes cannot join; \
                    choose another with --address");
                Ok(PeerPort::Absent)
            }
        }
    }

    async fn open_api(
        &mut self,
        options: &NodeOptions,
        credentials: &Credentials,
    ) -> Result<ApiServer, Error> {
        let tcp =
            options.listen.map(|address| TcpListen { address, credentials: credentials.clone() });
        let listen = Listen {
            socket: options.socket.clone(),
            group: options.socket_group.clone(),
            tcp,
            data_dir: options.data_dir.clone(),
            sockets: self.sockets.clone(),
        };
        let server = ApiServer::bind(self.cell.clone(), &listen).await?;
        self.address = server.tcp_address();
        self.token = self.address.map(|_| api::token_file(&options.data_dir));
        Ok(server)
    }

    fn begin(
        &mut self,
        options: &NodeOptions,
        facts: NodeFacts,
        key: Digest,
        endpoints: NodeEndpoints,
        stop: &watch::Receiver<bool>,
    ) -> Result<mpsc::UnboundedSender<Report>, Error> {
        let cell = self.cell.clone();
        let NodeEndpoints { client, server, peers, names } = endpoints;
        let log = self.log.clone();
        let own_key = log.takes_certificates().then_some(key);
        let path = options.data_dir.join("term");
        let fence = Fence::open(path.clone());
        let fence = fence.map_err(|source| Error::Io { action: "read", path, source })?;
        let machine = Arc::clone(cell.engine.machine());
        let dispatch = Dispatch::start_with(machine, self.part("dispatcher", MayEnd::Yes));

        let (reports, seen) = mpsc::unbounded_channel();
        let routing = self.open_routing(options, &client, names)?;
        server.beside(Arc::clone(&routing));
        self.routing = Some(Arc::clone(&routing));
        let host = link::LinkServer { cell: cell.clone(), dispatch: Arc::clone(&dispatch) };
        let gate = PeerApi {
            cell: cell.clone(),
            log: log.clone(),
            client: client.clone(),
            host,
            routing: Some(Arc::clone(&routing)),
            reports: reports.clone(),
            limiter: Mutex::default(),
        };
        let router = peer_api::router(Arc::new(gate), server.for_peers());
        self.serve_peers(peers, router, stop.clone());
        self.guard("API", server.run(stopped(stop.clone())));
        self.guard("membership", log.keep_seats(cell.clone(), key, stop.clone()));
        self.guard("quorum check", quorum::run(cell.clone(), client.clone(), stop.clone()));

        self.keep(
            "heartbeat",
            heartbeat::run(cell.clone(), own_key, self.pulse.clone(), stop.clone()),
        );
        let (orders, told) = dispatcher::slot();
        let ends = link::Ends { orders, reports: seen, facts, key: own_key };
        // On connections of its own: a stream that nobody reads must not hold up a heartbeat.
        let reach = Arc::new(Reach(client.apart()));
        self.keep("link", link::run(cell.clone(), dispatch, reach, fence, ends, stop.clone()));
        let bind_roots = options.bind_roots.iter().map(PathBuf::from).collect();
        let agent = Agent::new(&cell, reports.clone())
            .beside_traffic(routing)
            .with_bind_roots(bind_roots)
            .with_peers(client.clone())
            .with_data_dir(&options.data_dir);
        self.keep("agent", agent.run(told, stop.clone()));
        let root = options.host_root();
        self.keep("sampler", sampler::run(cell.clone(), root, stop.clone()));
        let acme = acme::run(cell.clone(), client, options.acme.clone(), stop.clone());
        self.guard("certificates", acme);
        self.guard("fleet link", fleet_link::run(cell.clone(), stop.clone()));
        self.guard("leader", leader::run(cell, stop.clone()));
        Ok(reports)
    }

    fn serve_peers(&mut self, peers: PeerPort, router: Router, stop: watch::Receiver<bool>) {
        let (machine, stay) = (Arc::clone(self.cell.engine.machine()), self.plane.stay());
        self.guard("peer port", async move {
            let opened = tokio::select! {
                opened = peers.opened(&machine) => opened,
                () = stopped(stop.clone()) => None,
            };
            if let Some(server) = opened {
                server.serve_beside(router, stop, stay).await;
            }
        });
    }

    /// Runs a part that the node cannot be without, and notes when it ends unasked.
    fn keep(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        let kept = self.part(name, MayEnd::No);
        self.tasks.spawn(kept.run(part));
    }

    /// Runs a part that may end by itself, as with the log that it serves, and notes when it panics.
    fn guard(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        let kept = self.part(name, MayEnd::Yes);
        self.tasks.spawn(kept.run(part));
    }

    fn part(&self, name: &'static str, may_end: MayEnd) -> Part {
        let (ended, stop) = (self.ended.clone(), self.shutdown.subscribe());
        Part { name, may_end, ended, stop }
    }

    /// What leads to this node's replicas and, where it listens on published ports, to all others.
    fn open_routing(
        &mut self,
        options: &NodeOptions,
        client: &PeerClient,
        names: Option<ServiceDns>,
    ) -> Result<Arc<Routing>, Error> {
        let listens = match self.kind {
            RuntimeKind::Docker => Listens::Yes,
            RuntimeKind::Process | RuntimeKind::Fake | RuntimeKind::None => Listens::No,
        };
        let entrances = Entrances {
            plain: self.entrance("http", options.http)?,
            secure: self.entrance("https", options.https)?,
        };
        {
            let mut ingress = self.cell.ingress.lock();
            ingress.serves_http = options.http.is_some();
            ingress.serves_https = options.https.is_some();
        }
        let certificates = options.data_dir.join("certificates");
        let (cell, sockets) = (self.cell.clone(), self.sockets.clone());
        let limits = RouterLimits {
            trusted_proxies: options.trusted_proxies.iter().copied().collect(),
            ..RouterLimits::of_this_process()
        };
        let routing = Arc::new(Routing::new(cell, client, certificates, limits, sockets, names));
        let stage = self.plane.stage();
        let kept = self.part("router", MayEnd::Yes);
        self.plane.spawn(kept.run(Arc::clone(&routing).run(listens, entrances, stage)));
        Ok(routing)
    }

    fn entrance(
        &self,
        what: &'static str,
        address: Option<SocketAddr>,
    ) -> Result<Option<SharedSocket<TcpListener>>, Error> {
        let bind = |address| {
            let bound = self.sockets.tcp(address, plimsoll_router::bind);
            bound.map_err(|source| Error::Entrance { what, address, source })
        };
        address.map(bind).transpose()
    }

    /// A port that another process listened on, and that no service publishes any more, is closed.
    fn close_unclaimed(&mut self, stop: watch::Receiver<bool>) {
        if self.sockets.is_inherited() {
            let sockets = self.sockets.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = sleep(UNCLAIMED) => sockets.close_unused(),
                    () = stopped(stop) => {}
                }
            });
        }
    }

    /// Returns once this node lets clients in. One that takes over from another process first finds its way.
    pub async fn opened(&self) {
        if let Some(routing) = &self.routing {
            routing.opened().await;
        }
    }

    /// By which one knows that it has not hung.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    pub fn cell(&self) -> &NodeContext {
        &self.cell
    }

    /// What leads requests to replicas from here, once it runs.
    pub fn routing(&self) -> Option<&Arc<Routing>> {
        self.routing.as_ref()
    }

    /// What its runtime said of itself; none while it does not answer.
    pub fn runtime(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// Where the API listens on TCP, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The file with the token that the API asks for over TCP; none where it does not listen there.
    pub fn token_file(&self) -> Option<&Path> {
        self.token.as_deref()
    }

    /// Returns once this node cannot write any more, with why. What it knows it still tells; only another start helps.
    pub async fn broken(&self) -> plimsoll_store::Error {
        self.log.broken().await
    }

    /// Returns once a part of this node has ended that nobody told to, with its name: a node without it is none.
    pub async fn is_incomplete(&self) -> &'static str {
        let mut ended = self.ended.subscribe();
        let part = ended.wait_for(Option::is_some).await.ok().and_then(|part| *part);
        part.unwrap_or("node")
    }

    /// Ends the daemon. Replicas keep running.
    pub async fn stop(mut self) {
        // While all doors are open: what comes meanwhile is passed on to the next leader, and links end by themselves.
        self.log.hand_over().await;
        self.plane.close();
        self.end(Whole::Yes).await;
    }

    /// Ends the daemon but for what carries clients, so that another can start on the same data directory: it has all that
    /// this one listens on, where whoever comes waits for it.
    pub async fn hand_over(mut self) -> (DataPlane, Vec<(SocketName, OwnedFd)>) {
        self.log.hand_over().await;
        self.sockets.keep();
        self.end(Whole::No).await;
        self.log.let_go();
        (self.plane, self.sockets.hand_over())
    }

    async fn end(&mut self, whole: Whole) {
        // Nobody may be listening any more, which is what is asked for.
        let _ = self.shutdown.send(true);
        let ended = async {
            while self.tasks.join_next().await.is_some() {}
            if whole == Whole::Yes {
                self.plane.ended().await;
            }
        };
        if tokio::time::timeout(STOP, ended).await.is_err() {
            tracing::warn!("a task does not stop; exiting without it");
            self.tasks.abort_all();
        }
        if let Err(error) = self.cell.engine.shutdown().await {
            tracing::warn!(%error, "cannot close the log cleanly; the next start repairs it");
        }
    }
}

/// Whether what carries clients ends with the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    Yes,
    No,
}

/// A sender that is gone has stopped as well. Boxed, since the compiler cannot follow its lifetimes otherwise.
fn stopped(mut stop: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let _ = stop.wait_for(|stop| *stop).await;
    })
}
