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
//! names.json  which addresses stand for which services
//! certificates/  those of routes with `tls: files`, which somebody else puts there
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_kernel::Policy;
use plimsoll_model::access::Digest;
use plimsoll_model::level::VERSION;
use plimsoll_model::{ClusterId, NodeFacts, NodeId, Zone};
use plimsoll_names::Answering;
use plimsoll_router::sockets::{Held, Name, Sockets};
use plimsoll_runtime::pressure::Host;
use plimsoll_runtime::{Block, BoxFuture, Description, chain};
use plimsoll_store::Incarnation;
use plimsoll_store::embedded::OpenError;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::agent::Agent;
use crate::api::{self, Listen, Server};
use crate::cell::{Cell, WriteError};
use crate::cluster::gate::{self, Gate};
use crate::cluster::log::Log;
use crate::cluster::reach::Reach;
use crate::cluster::{join, quorum};
use crate::link::Fence;
use crate::orders::Dispatch;
use crate::peer::{self, Client, Limits, RaftNetwork};
use crate::pki::{self, Credentials, JoinAddress};
use crate::routing::{Entrances, Listens, Routing};
use crate::sampler::Pace;
use crate::soft::Soft;
use crate::{leader, link, renewal, sampler};

mod etcd;
mod memory;
pub mod migration;
mod name;
mod plane;
mod runtime;
mod seat;

pub use etcd::{EngineKind, EtcdOptions, Password};
use memory::Memory;
pub use plane::{DataPlane, LINGER};
use seat::Seat;

/// How long a node that needs no token may take to be taken in before it says that it is up all the same.
const TAKEN_IN: Duration = Duration::from_secs(5);

/// How long sockets that another process handed over are kept though nobody has asked for them: whoever would has long
/// begun to.
const UNCLAIMED: Duration = Duration::from_secs(30);

/// How long the loops may take to end.
const STOP: Duration = Duration::from_secs(5);

/// How a node is started. What is left out, it finds out or remembers from the last time.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub data_dir: PathBuf,
    pub name: Option<NodeId>,
    pub cluster: Option<ClusterId>,
    pub runtime: Option<Kind>,
    pub docker_socket: Option<PathBuf>,
    pub socket: PathBuf,
    pub listen: Option<SocketAddr>,
    /// Where other nodes reach this one.
    pub address: Option<String>,
    /// The cell to join, for a node that is of none yet.
    pub join: Option<JoinAddress>,
    pub zone: Option<Zone>,
    pub labels: BTreeMap<String, String>,
    /// What keeps the log.
    pub engine: Option<EngineKind>,
    pub etcd: EtcdOptions,
    /// Where it takes HTTP requests for routes, in the clear and under TLS; nowhere if neither is said.
    pub http: Option<SocketAddr>,
    pub https: Option<SocketAddr>,
    /// What networks of containers take their addresses from.
    pub address_pool: Option<Block>,
    pub pace: Pace,
    /// Where this host's counters are, if not at `/`.
    pub host: Option<PathBuf>,
}

impl Options {
    fn host_root(&self) -> PathBuf {
        self.host.clone().unwrap_or_else(|| PathBuf::from("/"))
    }
}

/// What runs this node's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Docker,
    Process,
    /// Nothing runs them: for measuring a daemon, and not among what can be typed.
    Fake,
}

/// Why a node does not start. Nothing was changed, and nothing that runs was touched.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is damaged: {why}", path.display())]
    Memory { path: PathBuf, why: String },
    #[error("{} belongs to node {found}, not to {wanted}; leave out --name, or choose another --data-dir", dir.display())]
    OtherNode { dir: PathBuf, found: NodeId, wanted: NodeId },
    #[error("{hostname:?} cannot be the name of a node ({why}); choose one with --name")]
    Name { hostname: String, why: String },
    #[error("cannot read this host's processors and memory from /proc")]
    Host,
    #[error(
        "no Docker Engine was found; start it, name its socket with --docker-socket, or use --runtime process"
    )]
    NoEngine,
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("{}", chain(.0))]
    Runtime(#[from] plimsoll_runtime::Error),
    #[error("this node cannot write to its own log")]
    Write(#[from] WriteError),
    #[error(transparent)]
    Api(#[from] api::BindError),
    #[error("--address: {0}")]
    Address(String),
    #[error("{0}")]
    Unfit(String),
    #[error(
        "{} is of the {found} engine; use it without --engine, or see `plimsoll migrate --from {found} --to {wanted}`",
        dir.display()
    )]
    OtherEngine { dir: PathBuf, found: &'static str, wanted: &'static str },
    #[error(transparent)]
    Etcd(plimsoll_etcd::Error),
    #[error(transparent)]
    EtcdStart(#[from] plimsoll_store_etcd::StartError),
    #[error("cannot join the cell")]
    Join(#[from] join::Error),
    #[error(transparent)]
    Identity(#[from] pki::Error),
    #[error("cannot listen for other nodes on {address}")]
    Peers { address: SocketAddr, source: io::Error },
    #[error("cannot listen for {what} on {address}; choose another with --{what}, or leave it out")]
    Entrance { what: &'static str, address: SocketAddr, source: io::Error },
}

/// A node that runs.
#[derive(Debug)]
pub struct Node {
    cell: Cell,
    log: Log,
    kind: Kind,
    description: Option<Description>,
    address: Option<SocketAddr>,
    token: Option<PathBuf>,
    shutdown: watch::Sender<bool>,
    tasks: JoinSet<()>,
    sockets: Sockets,
    /// None where nothing is routed.
    routing: Option<Arc<Routing>>,
    plane: DataPlane,
}

/// Where the log of a data directory lies.
pub fn store_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

/// What this host's node is called where nobody says.
pub fn default_name() -> Result<NodeId, Error> {
    let host = Host::read(Path::new("/")).ok_or(Error::Host)?;
    name::node(&Options::default(), None, host.hostname.as_deref())
}

/// Names the node of a data directory that was restored, before its first start.
pub fn remember(data_dir: &Path, name: &NodeId) -> Result<(), Error> {
    let (name, incarnation) = (name.clone(), Incarnation::default());
    Memory { name, runtime: None, joined: None, incarnation, etcd: None }.write(data_dir)
}

/// What leads into a node and out of it.
struct Doors {
    client: Client,
    server: Server,
    /// None where the port is not to be had.
    peers: Option<peer::Server>,
    names: Option<Answering>,
}

impl Node {
    pub async fn start(options: Options) -> Result<Self, Error> {
        Self::start_on(options, Sockets::default()).await
    }

    /// Whether a node could start with these options, as far as that can be known while another process is that node.
    pub fn check(options: &Options) -> Result<(), Error> {
        let memory = Memory::read(&options.data_dir)?;
        let host = Host::read(&options.host_root()).ok_or(Error::Host)?;
        name::node(options, memory.as_ref(), host.hostname.as_deref())?;
        name::address(options)?;
        etcd::choose(options, memory.as_ref())?;
        Ok(())
    }

    /// In the place of another process, which handed these sockets over and routes until this node [does](Self::opened).
    pub async fn start_on(options: Options, sockets: Sockets) -> Result<Self, Error> {
        let dir = &options.data_dir;
        prepare(dir)?;
        let memory = Memory::read(dir)?;
        let host = Host::read(&options.host_root()).ok_or(Error::Host)?;
        let name = name::node(&options, memory.as_ref(), host.hostname.as_deref())?;
        let (address, listen) = name::address(&options)?;
        let facts = NodeFacts {
            zone: options.zone.clone(),
            labels: options.labels.clone(),
            address: Some(address),
            version: VERSION.to_owned(),
            ..host.facts
        };

        // Its lock is on the whole directory: from here on no other plimsoll uses it.
        let seat = Seat::take(&options, memory.as_ref(), &name, &facts).await?;
        let engine = seat.log.engine();
        let started = Self::furnish(options, memory, name, listen, facts, (seat, sockets)).await;
        if started.is_err() {
            // Others must not wait for a server that leads and never came to anything.
            let _ = engine.shutdown().await;
        }
        started
    }

    /// Everything but the log, which is there.
    async fn furnish(
        options: Options,
        memory: Option<Memory>,
        name: NodeId,
        listen: SocketAddr,
        facts: NodeFacts,
        (seat, sockets): (Seat, Sockets),
    ) -> Result<Self, Error> {
        let dir = &options.data_dir;
        let Seat { log, joined, etcd } = seat;
        let engine = log.engine();
        let cluster = engine.machine().read(|state| state.cluster().clone());
        let opened = runtime::open(&options, memory.as_ref(), cluster, &name).await?;
        let runtime::Opened { kind, runtime, names } = opened;
        let has_joined = joined.is_some();
        let (incarnation, name_kept) = (log.incarnation(), name.clone());
        Memory { name: name_kept, runtime: Some(kind), joined, incarnation, etcd }.write(dir)?;

        let (soft, servers) = (Arc::new(Soft::default()), Arc::new(seat::servers(dir)?));
        let cell = Cell { engine, runtime, node: name, soft, servers };
        let identity = seat::identity(&cell, &log, dir, &facts, has_joined).await?;
        let key = identity.key_digest()?;
        let credentials = Credentials::new(&identity)?;
        let client = Client::new(credentials.clone());
        // The log has connections of its own: a stream that nobody reads must not hold it up.
        log.reach(|| RaftNetwork::new(Client::new(credentials.clone())));

        let description = cell.runtime.describe().await.ok();
        let (shutdown, stop) = watch::channel(false);
        let mut node = Self {
            cell,
            log,
            kind,
            description,
            address: None,
            token: None,
            shutdown,
            tasks: JoinSet::new(),
            sockets,
            routing: None,
            plane: DataPlane::default(),
        };
        let peers = node.open_peer_port(listen, &credentials)?;
        let server = node.open_api(&options).await?;
        server.reach(client.clone());
        let doors = Doors { client: client.clone(), server, peers, names };
        node.begin(&options, facts, key, doors, &stop)?;
        let cell = node.cell.clone();
        let renewal = renewal::run(cell, dir.clone(), identity, client, credentials, stop.clone());
        node.tasks.spawn(renewal);
        node.close_unclaimed(stop);
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

    /// A node that is alone can do without; one that has others, or may lead any that come, must hear them.
    fn open_peer_port(
        &self,
        listen: SocketAddr,
        credentials: &Credentials,
    ) -> Result<Option<peer::Server>, Error> {
        let is_needed = self.log.takes_certificates() || self.cell.engine.members().len() > 1;
        let bound = self.sockets.tcp(listen, peer::listen).and_then(|listener| {
            let server = peer::Server::on(listener, credentials, Limits::default());
            server.map_err(io::Error::other)
        });
        match bound {
            Ok(server) => Ok(Some(server)),
            Err(source) if is_needed => Err(Error::Peers { address: listen, source }),
            Err(error) => {
                tracing::warn!(address = %listen, %error, "no other node can join: the port is not to be had; \
                    choose another with --address");
                Ok(None)
            }
        }
    }

    async fn open_api(&mut self, options: &Options) -> Result<Server, Error> {
        let listen = Listen {
            socket: options.socket.clone(),
            tcp: options.listen,
            data_dir: options.data_dir.clone(),
            sockets: self.sockets.clone(),
        };
        let server = Server::bind(self.cell.clone(), &listen).await?;
        self.address = server.tcp_address();
        self.token = self.address.map(|_| api::token_file(&options.data_dir));
        Ok(server)
    }

    fn begin(
        &mut self,
        options: &Options,
        facts: NodeFacts,
        key: Digest,
        doors: Doors,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let (cell, policy) = (self.cell.clone(), Policy::default());
        let Doors { client, server, peers, names } = doors;
        let log = self.log.clone();
        let own_key = log.takes_certificates().then_some(key);
        let path = options.data_dir.join("term");
        let fence = Fence::open(path.clone());
        let fence = fence.map_err(|source| Error::Io { action: "read", path, source })?;
        let dispatch = Dispatch::start(Arc::clone(cell.engine.machine()));

        let routing = self.open_routing(options, &client, names)?;
        server.beside(Arc::clone(&routing));
        self.routing = Some(Arc::clone(&routing));
        if let Some(peers) = peers {
            let host = link::Host { cell: cell.clone(), dispatch: Arc::clone(&dispatch) };
            let gate = Gate {
                cell: cell.clone(),
                log: log.clone(),
                client: client.clone(),
                host,
                routing: Some(Arc::clone(&routing)),
            };
            let router = gate::router(Arc::new(gate), server.for_peers());
            self.tasks.spawn(peers.serve_beside(router, stop.clone(), self.plane.stay()));
        }
        self.tasks.spawn(server.run(stopped(stop.clone())));
        self.tasks.spawn(log.keep_seats(cell.clone(), key, stop.clone()));
        self.tasks.spawn(quorum::run(cell.clone(), client.clone(), stop.clone()));

        let (reports, seen) = mpsc::unbounded_channel();
        let (orders, told) = mpsc::channel(1);
        let ends = link::Ends { orders, reports: seen, facts, key: own_key };
        let reach = Arc::new(Reach(client));
        self.tasks.spawn(link::run(cell.clone(), dispatch, reach, fence, ends, stop.clone()));
        let agent = Agent::new(&cell, policy, reports).beside_traffic(routing);
        self.tasks.spawn(agent.run(told, stop.clone()));
        let (root, pace) = (options.host_root(), options.pace);
        self.tasks.spawn(sampler::run(cell.clone(), root, own_key, pace, stop.clone()));
        self.tasks.spawn(leader::run(cell, policy, pace, stop.clone()));
        Ok(())
    }

    /// What leads to this node's replicas and, where it listens on published ports, to all others.
    fn open_routing(
        &mut self,
        options: &Options,
        client: &Client,
        names: Option<Answering>,
    ) -> Result<Arc<Routing>, Error> {
        let listens = match self.kind {
            Kind::Docker => Listens::Yes,
            Kind::Process | Kind::Fake => Listens::No,
        };
        let entrances = Entrances {
            plain: self.entrance("http", options.http)?,
            secure: self.entrance("https", options.https)?,
        };
        self.cell.soft.facts().entrances = (options.http.is_some(), options.https.is_some());
        let certificates = options.data_dir.join("certificates");
        let (cell, sockets) = (self.cell.clone(), self.sockets.clone());
        let routing = Arc::new(Routing::new(cell, client, certificates, sockets, names));
        let stage = self.plane.stage();
        self.plane.spawn(Arc::clone(&routing).run(listens, entrances, stage));
        Ok(routing)
    }

    fn entrance(
        &self,
        what: &'static str,
        address: Option<SocketAddr>,
    ) -> Result<Option<Held<TcpListener>>, Error> {
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
                    () = sleep(UNCLAIMED) => sockets.close_rest(),
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

    pub fn cell(&self) -> &Cell {
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

    /// Ends the daemon. Replicas run on.
    pub async fn stop(mut self) {
        // While all doors are open: what comes meanwhile is passed on to the next leader, and links end by themselves.
        self.log.hand_over().await;
        self.plane.close();
        self.end(Whole::Yes).await;
    }

    /// Ends the daemon but for what carries clients, so that another can start on the same data directory: it has all that
    /// this one listens on, where whoever comes waits for it.
    pub async fn hand_over(mut self) -> (DataPlane, Vec<(Name, OwnedFd)>) {
        self.log.hand_over().await;
        self.sockets.keep();
        self.end(Whole::No).await;
        self.log.let_go();
        (self.plane, self.sockets.give())
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
            tracing::warn!("something of this daemon does not end; leaving it");
            self.tasks.abort_all();
        }
        if let Err(error) = self.cell.engine.shutdown().await {
            tracing::warn!(%error, "the log did not close well; the next start repairs it");
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

/// Services may run as other users, who have to pass through.
fn prepare(dir: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let result = std::fs::DirBuilder::new().recursive(true).mode(0o711).create(dir);
    result.map_err(|source| Error::Io { action: "create", path: dir.to_owned(), source })
}
