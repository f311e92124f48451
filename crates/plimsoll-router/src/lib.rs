//! The data plane of a node: published ports and HTTP routes, to healthy replicas wherever they run.
//!
//! It is fed [`Wanted`]: which ports and routes there are, and which upstreams stand behind each. It knows neither the
//! cell nor the log nor the runtime, and goes on with the last table it was given when nobody feeds it. Whether a replica
//! is healthy is settled elsewhere; whether it can be reached just now is settled here.

mod arrive;
mod clock;
mod connect;
mod core;
mod explain;
mod http;
mod limits;
pub mod metrics;
mod opening;
mod pool;
mod ports;
mod relay;
mod seat;
pub mod sockets;
mod table;
mod tcp;
mod tunnel;
mod udp;
mod upstream;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use arrive::{Arrival, ArriveError};
pub use clock::Moment;
pub use explain::{Explanation, Verdict, explain};
pub use http::Door;
pub use limits::Limits;
pub use pool::{pick, pick_near};
pub use sockets::Sockets;
pub use table::{
    Member, Pool, PoolKey, Protocol, Published, Route, RouteSpec, Table, Tls, Wanted, bare_host,
};
pub use tcp::bind;
pub use tunnel::{Far, NoTunnel, Opening, Stream, Tunnel, receive_datagram, send_datagram};
pub use upstream::{
    FULL_WEIGHT, InFlight, SLOW_START, Standing, State, Target, Upstream, UpstreamKey,
};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{interval, sleep, timeout};

use crate::core::Core;
use crate::sockets::Held;

/// How far a router is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    #[default]
    Open,
    /// Nobody new is let in, since somebody else listens by now; who is inside is led out without losing anything, and may
    /// take its time.
    Leaving,
    /// Nobody new is let in; who is inside is let go after the request under way.
    Closing,
}

/// Returns once nobody new is to be let in. Who could say so and is gone has said it.
pub(crate) async fn is_over(mut stage: watch::Receiver<Stage>) {
    let _ = stage.wait_for(|stage| *stage != Stage::Open).await;
}

/// A node's router. Clones are the same router.
#[derive(Debug, Clone)]
pub struct Router {
    core: Arc<Core>,
    /// One feeder at a time: each table is made from the one before.
    feeding: Arc<Mutex<()>>,
}

impl Router {
    pub fn new(limits: Limits, tunnel: Arc<dyn Tunnel>) -> Self {
        Self::on(limits, tunnel, Sockets::default())
    }

    /// One that listens on these sockets where they are what it is to listen on.
    pub fn on(limits: Limits, tunnel: Arc<dyn Tunnel>, sockets: Sockets) -> Self {
        Self { core: Arc::new(Core::new(limits, tunnel, sockets)), feeding: Arc::default() }
    }

    /// Does from now on what is wanted. When this returns, nothing new is sent to what is not in.
    pub fn feed(&self, wanted: &Wanted) {
        let _one = self.feeding.lock().expect("no holder panics");
        let before = self.core.table.load_full();
        let next = Arc::new(before.next(wanted));
        // Upstreams hear that they leave once no one is sent to them any more.
        self.core.table.store(Arc::clone(&next));
        next.settle(&before, clock::now());
        self.core.swapped.send_replace(());
    }

    pub fn table(&self) -> Arc<Table> {
        self.core.table.load_full()
    }

    /// Why a request for this host and path goes where it goes; none, if there is no route for it.
    pub fn explain(&self, host: &str, path: &str) -> Option<Explanation> {
        explain(&self.table(), host, path, clock::now())
    }

    /// What was counted so far.
    pub fn read(&self) -> metrics::Reading {
        metrics::read(&self.table())
    }

    /// Listens on published ports while the stage is open and this is polled. Connections that were let in outlive it;
    /// clients of UDP that wait for an answer are waited for, unless it is closing.
    pub async fn publish(&self, stage: watch::Receiver<Stage>) {
        ports::run(Arc::clone(&self.core), stage).await;
    }

    /// Carries a connection that was accepted elsewhere to a port of a service, by the pool of all its ports (see
    /// [`PoolKey::any`]). If nobody is there it is reset, as by a port that nobody listens on.
    pub async fn carry(&self, client: TcpStream, service: &PoolKey, port: u16) {
        tcp::carry_to(&self.core, service, port, client).await;
    }

    /// Lets clients in at a door (see [`bind`]) while the stage is open, and serves them HTTP routes.
    pub async fn serve(
        &self,
        listener: impl Into<Held<TcpListener>>,
        door: Door,
        stage: watch::Receiver<Stage>,
    ) {
        http::serve(Arc::clone(&self.core), listener.into(), door, stage).await;
    }

    /// Closes connections to upstreams that nobody has used for a while, for as long as it is polled.
    pub async fn sweep(&self) {
        let mut ticks = interval(self.core.limits.kept_for);
        loop {
            ticks.tick().await;
            let (table, now) = (self.table(), clock::now());
            table.upstreams().for_each(|upstream| upstream.links.sweep(&self.core.limits, now));
        }
    }

    /// Published ports that cannot be listened on, and why, as that changes.
    pub fn troubles(&self) -> watch::Receiver<BTreeMap<Published, String>> {
        self.core.troubles.subscribe()
    }

    /// Connects to an upstream of this node for another one.
    pub async fn arrive(
        &self,
        key: &UpstreamKey,
        protocol: Protocol,
    ) -> Result<Arrival, ArriveError> {
        arrive::arrive(&self.core, key, protocol).await
    }

    /// Waits until nothing is under way to this generation of a replica, but no longer than that; says whether nothing is.
    /// Streams that other nodes still open to it are turned away from now on, unless it comes to be in again.
    /// A replica that is out of the table, and stopped after this, loses no request; one that is stopped at once loses what
    /// it has not read yet, and what of that may not be said twice is lost.
    pub async fn is_quiet(&self, replica: &str, generation: u64, patience: Duration) -> bool {
        /// Requests end by themselves, mostly within milliseconds, and nobody is told.
        const LOOK: Duration = Duration::from_millis(2);
        let is_this = |one: &&Arc<Upstream>| {
            *one.key().replica == *replica && one.key().generation == generation
        };
        let watched: Vec<_> = self.table().upstreams().filter(is_this).cloned().collect();
        for upstream in &watched {
            upstream.close();
        }
        let quiet = async {
            while watched.iter().any(|upstream| upstream.in_flight() > 0) {
                sleep(LOOK).await;
            }
        };
        timeout(patience, quiet).await.is_ok()
    }

    /// Waits until no client is connected any more, but no longer than that; says whether they are all gone.
    pub async fn parted(&self, grace: Duration) -> bool {
        timeout(grace, self.core.seats.all_free()).await.is_ok()
    }
}
