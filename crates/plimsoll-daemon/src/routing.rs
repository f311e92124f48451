//! Published ports and HTTP routes: every node takes what comes for them and hands it to a healthy replica, wherever that
//! runs.
//!
//! A [`Chart`] of all that leads to replicas is read off the state, or told by the leader where a node does not hold it.
//! [`wanted()`] says what this node's router makes of it, and [`Routing::run`] feeds the router whenever the chart or a
//! container's address changes. Between nodes bytes travel in tunnels: [`tunnel`] opens them and [`arrivals`] receives
//! them. Which replica gets a connection, and when another is tried, is settled in `plimsoll-router`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_model::{Generation, ReplicaId, ServiceKey};
use plimsoll_router::metrics::Reading;
use plimsoll_router::{Door, Explanation, Limits, Published, Router, Standing, Tls, UpstreamKey};
use plimsoll_runtime::BoxFuture;
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub mod arrivals;
pub mod certificates;
pub mod chart;
pub mod ruling;
pub mod tunnel;
pub mod wanted;

#[cfg(test)]
mod tests;

pub use chart::Chart;
pub use wanted::{Addresses, Asked, wanted, wanted_by_others};

use crate::agent::Traffic;
use crate::cell::{Cell, now};
use crate::cluster::authority;
use crate::peer::Client;
use crate::soft::Facts;
use certificates::Certificates;
use tunnel::Tunnels;

/// How long a change waits for others before the router is fed: they come in batches, and each is a whole table.
const GATHER: Duration = Duration::from_millis(5);

/// How long a container is kept after it left this node's table, for the other nodes to learn of it as well. They
/// apply the same entry of the log within milliseconds of each other.
const MOMENT: Duration = Duration::from_millis(200);

/// How long requests that are under way may take to end when the daemon does.
const GOODBYE: Duration = Duration::from_secs(2);

/// Whether this node listens on published ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listens {
    Yes,
    /// A process binds its own ports, so there is nothing to stand before.
    No,
}

/// Where this node takes HTTP requests for routes.
#[derive(Debug, Default)]
pub struct Entrances {
    pub plain: Option<TcpListener>,
    pub secure: Option<TcpListener>,
}

impl Entrances {
    fn is_empty(&self) -> bool {
        self.plain.is_none() && self.secure.is_none()
    }
}

/// This node's router, and what feeds it.
#[derive(Debug)]
pub struct Routing {
    cell: Cell,
    router: Router,
    certificates: Mutex<Certificates>,
    /// Says that the router has another table.
    fed: watch::Sender<()>,
    /// What other nodes asked for on this one while it has no chart and so knows nothing of services.
    others: watch::Sender<BTreeSet<UpstreamKey>>,
}

impl Routing {
    /// `certificates` is the directory of those that come as files.
    pub fn new(cell: Cell, client: &Client, certificates: PathBuf) -> Self {
        // Connections of their own: a tunnel that nobody reads holds up no order and no report.
        let tunnels = Tunnels { soft: Arc::clone(&cell.soft), client: client.for_tunnels() };
        let router = Router::new(Limits::of_this_process(), Arc::new(tunnels));
        let (fed, others) = (watch::Sender::default(), watch::Sender::default());
        let certificates = Mutex::new(Certificates::new(certificates));
        Self { cell, router, certificates, fed, others }
    }

    /// Where a request goes from here; none, if no route is for it.
    pub fn explain(&self, host: &str, path: &str) -> Option<Explanation> {
        self.router.explain(host, path)
    }

    /// What this node's router has counted.
    pub fn read(&self) -> Reading {
        self.router.read()
    }

    /// Feeds the router until told to stop, and has it listen. Requests that are under way then get a moment to end.
    pub async fn run(
        self: Arc<Self>,
        listens: Listens,
        entrances: Entrances,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let has_entrance = !entrances.is_empty();
        let serving = self.serve(entrances, shutdown.clone());
        let publish = async {
            match listens {
                Listens::Yes => self.router.publish().await,
                Listens::No => std::future::pending().await,
            }
        };
        let looping = async {
            tokio::select! {
                () = self.feed(listens) => {}
                () = publish => {}
                () = self.router.sweep() => {}
                _ = shutdown.wait_for(|stop| *stop) => {}
            }
        };
        tokio::join!(looping, serving);
        if has_entrance {
            self.router.parted(GOODBYE).await;
        }
    }

    async fn serve(&self, entrances: Entrances, ending: watch::Receiver<bool>) {
        let Entrances { plain, secure } = entrances;
        let port = |listener: &TcpListener| Some(listener.local_addr().ok()?.port());
        let secure_port = secure.as_ref().and_then(port);
        let at = |listener, door| {
            let ending = ending.clone();
            async move {
                if let Some(listener) = listener {
                    self.router.serve(listener, door, ending).await;
                }
            }
        };
        tokio::join!(at(plain, Door::Plain { secure_port }), at(secure, Door::Secure));
    }

    async fn feed(&self, listens: Listens) {
        let mut applied = self.cell.engine.machine().applied();
        let (mut moved, mut troubles) = (self.cell.soft.moved(), self.router.troubles());
        let (mut others, mut charts) = (self.others.subscribe(), self.cell.soft.charts());
        loop {
            applied.mark_unchanged();
            moved.mark_unchanged();
            others.mark_unchanged();
            self.draw();
            let chart = charts.borrow_and_update().clone();
            let mut asked = self.asked(chart.as_deref());
            asked.wanted.certificates = self.certify(chart.as_deref());
            let has_certificates = asked.wanted.routes.iter().any(|it| it.tls != Tls::Off);
            self.router.feed(&asked.wanted);
            self.fed.send_replace(());
            if listens == Listens::Yes {
                let troubles = troubles.borrow_and_update();
                tell(&mut self.cell.soft.facts(), &asked, &troubles);
            }
            let is_over = tokio::select! {
                changed = applied.changed() => changed.is_err(),
                changed = moved.changed() => changed.is_err(),
                changed = others.changed() => changed.is_err(),
                changed = charts.changed() => changed.is_err(),
                changed = troubles.changed() => changed.is_err(),
                () = sleep(certificates::LOOK), if has_certificates => false,
            };
            if is_over {
                return;
            }
            sleep(GATHER).await;
        }
    }

    /// Makes the chart of this node's log, if it holds it; else the leader's word stands.
    fn draw(&self) {
        if self.cell.holds_log() {
            let before = self.cell.soft.chart();
            let draw = |state: &plimsoll_model::State| Chart::of(state, before.as_deref());
            self.cell.soft.chart_is(self.cell.engine.machine().read(draw));
        }
    }

    /// The certificates of the chart's routes. Which are missing is said.
    fn certify(&self, chart: Option<&Chart>) -> BTreeMap<String, Arc<CertifiedKey>> {
        let routes = chart.into_iter().flat_map(|chart| chart.routes.values());
        let routes = routes.flat_map(|routes| routes.iter());
        let authority = || authority(&self.cell).ok().flatten();
        let mut certificates = self.certificates.lock().expect("no holder panics");
        let (shown, missing) = certificates.keep(routes, authority, now());
        let before = std::mem::replace(&mut self.cell.soft.facts().certificates, missing.clone());
        for (host, why) in missing.iter().filter(|(host, _)| !before.contains_key(*host)) {
            tracing::warn!(host, why, "a route is not served here");
        }
        shown
    }

    fn asked(&self, chart: Option<&Chart>) -> Asked {
        let addresses = addresses(&self.cell.soft.facts());
        if let Some(chart) = chart {
            return wanted(chart, &self.cell.node, &addresses);
        }
        let is_here = |key: &UpstreamKey| {
            let mut here = addresses.keys();
            here.any(|(id, g)| g.0 == key.generation && id.to_string() == *key.replica)
        };
        self.others.send_if_modified(|others| {
            others.retain(is_here);
            false
        });
        wanted_by_others(&self.others.borrow(), &addresses)
    }

    /// Whether requests are sent to this container from here; none if this node's router does not know it.
    fn is_in(&self, replica: &str, generation: Generation) -> Option<bool> {
        let table = self.router.table();
        let mut all = table.upstreams().filter(|upstream| {
            let key = upstream.key();
            *key.replica == *replica && key.generation == generation.0
        });
        let first = all.next()?;
        Some(all.chain([first]).any(|upstream| upstream.standing() == Standing::In))
    }

    /// Returns once nothing is sent to this container from here any more.
    pub async fn has_left(&self, replica: &str, generation: Generation) {
        let mut fed = self.fed.subscribe();
        while self.is_in(replica, generation) == Some(true) {
            if fed.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Traffic for Routing {
    fn parted<'a>(
        &'a self,
        replica: &'a ReplicaId,
        generation: Generation,
        patience: Duration,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let name = replica.to_string();
            let is_alone = self.cell.soft.chart().is_some_and(|chart| chart.nodes.len() < 2);
            if is_alone || self.is_in(&name, generation).is_none() {
                return;
            }
            let parting = async {
                self.has_left(&name, generation).await;
                sleep(MOMENT).await;
                self.router.is_quiet(&name, generation.0, patience).await
            };
            if !timeout(patience, parting).await.unwrap_or(false) {
                tracing::info!(%replica, "stops with connections open: they took longer than its grace");
            }
        })
    }
}

/// Where this node's containers are reached.
fn addresses(facts: &Facts) -> Addresses {
    let reached = facts.replicas.iter();
    reached.filter_map(|(key, fact)| Some((key.clone(), fact.address?))).collect()
}

/// Says which ports this node does not listen on for their services, and why.
fn tell(facts: &mut Facts, asked: &Asked, troubles: &BTreeMap<Published, String>) {
    let late = asked.late.iter().map(|((service, at), owner)| {
        ((service.clone(), at.address), format!("{at} is published by {owner} already"))
    });
    let unbound = troubles.iter().filter_map(|(at, text)| {
        let service: &ServiceKey = asked.owners.get(at)?;
        Some(((service.clone(), at.address), text.clone()))
    });
    facts.ports = late.chain(unbound).collect();
}
