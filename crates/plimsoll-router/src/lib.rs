//! The data plane of a node: published ports and HTTP routes, to healthy replicas wherever they run.
//!
//! It is given a [`RouterConfig`]: the published ports, the routes, and the upstreams of each. It knows neither the cell nor
//! the log nor the runtime, and keeps the last configuration when no new one comes. Whether a replica is healthy is decided
//! elsewhere; whether it can be connected to is found out here.

mod activity;
mod clock;
mod connect;
mod connection_limit;
mod core;
mod explain;
mod http;
mod http_replay;
mod inbound_tunnel;
mod limits;
pub mod metrics;
mod pool;
mod ports;
mod proxy_protocol;
mod relay;
pub mod sockets;
mod table;
mod tcp;
mod trusted_proxies;
mod tunnel;
mod udp;
mod upstream;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use clock::Moment;
pub use explain::{RouteExplanation, UpstreamStatus, explain};
pub use http::HttpListenerKind;
pub use inbound_tunnel::{InboundTunnel, InboundTunnelError};
pub use limits::{HELD_ANSWER, RouterLimits};
pub use pool::{pick, pick_local_first};
pub use sockets::Sockets;
pub use table::{
    AcmeProof, Pool, PoolKey, PoolMember, Protocol, PublishedPort, RouteConfig, RouteEntry,
    RouteTls, RouterConfig, RoutingTable, bare_host,
};
pub use tcp::bind;
pub use trusted_proxies::{AddressBlock, AddressBlockError, TrustedProxies};
pub use tunnel::{
    ByteStream, NoTunnel, RemoteUpstream, Tunnel, TunnelFuture, receive_datagram, send_datagram,
};
pub use upstream::{
    FULL_WEIGHT, InFlight, MemberState, SLOW_START, Upstream, UpstreamKey, UpstreamState,
    UpstreamTarget,
};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{interval, sleep, timeout};

use crate::core::RouterCore;
use crate::sockets::SharedSocket;

/// How far the shutdown of a router has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouterStage {
    #[default]
    Open,
    /// Accepts no connections, because another process listens by now. Open connections are drained without losing a
    /// request, however long that takes.
    HandingOver,
    /// Accepts no connections; open ones are closed after the request in flight.
    Closing,
}

/// Returns once no more connections are to be accepted, or nobody is left to say so.
pub(crate) async fn stops_accepting(mut stage: watch::Receiver<RouterStage>) {
    let _ = stage.wait_for(|stage| *stage != RouterStage::Open).await;
}

/// A node's router. Clones are the same router.
#[derive(Debug, Clone)]
pub struct Router {
    core: Arc<RouterCore>,
    /// One update at a time: each table is made from the one before.
    updating: Arc<Mutex<()>>,
}

impl Router {
    pub fn new(limits: RouterLimits, tunnel: Arc<dyn Tunnel>) -> Self {
        Self::with_sockets(limits, tunnel, Sockets::default())
    }

    /// A router that uses these sockets for the addresses they are bound to.
    pub fn with_sockets(limits: RouterLimits, tunnel: Arc<dyn Tunnel>, sockets: Sockets) -> Self {
        Self { core: Arc::new(RouterCore::new(limits, tunnel, sockets)), updating: Arc::default() }
    }

    /// Routes by this configuration from now on. When this returns, no new request is sent to an upstream that is not ready.
    pub fn update(&self, config: &RouterConfig) {
        let _one = self.updating.lock().expect("no holder panics");
        let before = self.core.table.load_full();
        let next = Arc::new(before.next(config));
        // Upstreams are told that they drain once no request is sent to them any more.
        self.core.table.store(Arc::clone(&next));
        next.set_states(&before, clock::now());
        self.core.swapped.send_replace(());
    }

    pub fn table(&self) -> Arc<RoutingTable> {
        self.core.table.load_full()
    }

    /// Where a request for this host and path is routed, and why; none if no route matches.
    pub fn explain(&self, host: &str, path: &str) -> Option<RouteExplanation> {
        explain(&self.table(), host, path, clock::now())
    }

    /// The counters as they are now.
    pub fn metrics(&self) -> metrics::RouterReading {
        metrics::read(&self.table())
    }

    /// Listens on published ports while the stage is open and this is polled. Accepted connections outlive it; UDP sessions
    /// that wait for an answer are waited for, unless it is closing.
    pub async fn publish(&self, stage: watch::Receiver<RouterStage>) {
        ports::run(Arc::clone(&self.core), stage).await;
    }

    /// Proxies a connection that was accepted elsewhere to a port of a service, by the pool of all its ports (see
    /// [`PoolKey::any`]). If the service has no replica the connection is reset, as by a closed port.
    pub async fn carry(&self, client: TcpStream, service: &PoolKey, port: u16) {
        tcp::carry_to(&self.core, service, port, client).await;
    }

    /// Serves HTTP routes on a listener (see [`bind`]) while the stage is open.
    pub async fn serve(
        &self,
        listener: impl Into<SharedSocket<TcpListener>>,
        kind: HttpListenerKind,
        stage: watch::Receiver<RouterStage>,
    ) {
        http::serve(Arc::clone(&self.core), listener.into(), kind, stage).await;
    }

    /// Closes connections to upstreams that have been idle for a while, for as long as it is polled.
    pub async fn sweep(&self) {
        let mut ticks = interval(self.core.limits.kept_for);
        loop {
            ticks.tick().await;
            let (table, now) = (self.table(), clock::now());
            table
                .upstreams()
                .for_each(|upstream| upstream.connections.sweep(&self.core.limits, now));
        }
    }

    /// Published ports that cannot be bound, and why, as that changes.
    pub fn bind_errors(&self) -> watch::Receiver<BTreeMap<PublishedPort, String>> {
        self.core.bind_errors.subscribe()
    }

    /// Connects to an upstream of this node for a tunnel from another node.
    pub async fn accept_tunnel(
        &self,
        key: &UpstreamKey,
        protocol: Protocol,
    ) -> Result<InboundTunnel, InboundTunnelError> {
        inbound_tunnel::accept(&self.core, key, protocol).await
    }

    /// Waits until no request is in flight to this generation of a replica, up to the timeout, and says whether none is.
    /// Tunnels that other nodes still open to it are refused from now on, unless it becomes ready again. A replica that is
    /// out of the table and stopped after this loses no request; one that is stopped at once loses requests it has not read,
    /// and of those the ones that cannot be retried fail.
    pub async fn drained(&self, replica: &str, generation: u64, patience: Duration) -> bool {
        /// Requests mostly end within milliseconds, and nothing reports it.
        const POLL: Duration = Duration::from_millis(2);
        let is_this = |one: &&Arc<Upstream>| {
            *one.key().replica == *replica && one.key().generation == generation
        };
        let watched: Vec<_> = self.table().upstreams().filter(is_this).cloned().collect();
        for upstream in &watched {
            upstream.close();
        }
        let quiet = async {
            while watched.iter().any(|upstream| upstream.in_flight() > 0) {
                sleep(POLL).await;
            }
        };
        timeout(patience, quiet).await.is_ok()
    }

    /// Waits until no client is connected, up to the grace period, and says whether none is.
    pub async fn all_disconnected(&self, grace: Duration) -> bool {
        timeout(grace, self.core.connection_limit.all_free()).await.is_ok()
    }
}
