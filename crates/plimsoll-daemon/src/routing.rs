//! Published ports and HTTP routes: every node takes what comes for them and hands it to a healthy replica, wherever that
//! runs.
//!
//! A [`Endpoints`] of all that leads to replicas is read off the state, or told by the leader where a node does not hold it.
//! [`wanted()`] says what this node's router makes of it, and [`Routing::run`] feeds the router whenever the endpoints or a
//! container's address changes. Between nodes bytes travel in tunnels: [`tunnel`] opens them and [`arrivals`] receives
//! them. Which replica gets a connection, and when another is tried, is settled in `plimsoll-router`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_dns::{Directory, KernelPart, ServiceDns};
use plimsoll_kernel::endpoints::Endpoints;
use plimsoll_model::{Event, Generation, NodeId, ReplicaId, ServiceKey};
use plimsoll_router::metrics::RouterReading;
use plimsoll_router::sockets::{SharedSocket, Sockets};
use plimsoll_router::{
    AcmeProof, HttpListenerKind, PublishedPort, RouteExplanation, RouteTls, Router, RouterLimits,
    RouterStage, UpstreamKey, UpstreamState,
};
use plimsoll_runtime::BoxFuture;
use plimsoll_store::Watcher;
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub mod arrivals;
pub mod certificates;
pub mod naming;
mod port_holder;
pub mod router_config;
pub mod tunnel;
mod warm_up;

#[cfg(test)]
mod tests;

pub use router_config::{Addresses, NodeRouterConfig, Open, wanted, wanted_by_others};

use crate::agent::Traffic;
use crate::cell::authority;
use crate::context::{NodeContext, now};
use crate::ingress_status::IngressStatus;
use crate::measurements::Measurements;
use crate::route_certificates::RouteCertificates;
use certificates::Certificates;
use plimsoll_peer::PeerClient;
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
    pub plain: Option<SharedSocket<TcpListener>>,
    pub secure: Option<SharedSocket<TcpListener>>,
}

impl Entrances {
    fn is_empty(&self) -> bool {
        self.plain.is_none() && self.secure.is_none()
    }
}

/// This node's router, and what feeds it.
#[derive(Debug)]
pub struct Routing {
    cell: NodeContext,
    router: Router,
    certificates: Mutex<Certificates>,
    /// Who answers for names of services on this node; none where nobody can.
    names: Option<ServiceDns>,
    /// Says that the router has another table.
    fed: watch::Sender<()>,
    /// What other nodes asked for on this one while it has no endpoints and so knows nothing of services.
    others: watch::Sender<BTreeSet<UpstreamKey>>,
    sockets: Sockets,
    /// Whether clients are let in yet.
    open: watch::Sender<bool>,
}

impl Routing {
    /// `certificates` is the directory of those that come as files.
    pub fn new(
        cell: NodeContext,
        client: &PeerClient,
        certificates: PathBuf,
        limits: RouterLimits,
        sockets: Sockets,
        names: Option<ServiceDns>,
    ) -> Self {
        // Connections of their own: a tunnel that nobody reads holds up no order and no report.
        let tunnels = Tunnels { endpoints: cell.endpoints.clone(), client: client.for_tunnels() };
        let router = Router::with_sockets(limits, Arc::new(tunnels), sockets.clone());
        let (fed, others) = (watch::Sender::default(), watch::Sender::default());
        let certificates = Mutex::new(Certificates::new(certificates));
        let open = watch::Sender::default();
        Self { cell, router, certificates, names, fed, others, sockets, open }
    }

    /// Where a request goes from here; none, if no route is for it.
    pub fn explain(&self, host: &str, path: &str) -> Option<RouteExplanation> {
        self.router.explain(host, path)
    }

    /// How often each part of what service names need was put back into the kernel; none where engines answer for names.
    pub fn name_repairs(&self) -> Option<Vec<(KernelPart, u64)>> {
        self.names.as_ref().map(ServiceDns::repairs)
    }

    /// What this node's router has counted.
    pub fn read(&self) -> RouterReading {
        self.router.metrics()
    }

    /// Feeds the router, and has it listen while the stage is open. Requests that are under way then get a moment to end;
    /// where somebody else has taken over, it returns when all clients have left.
    pub async fn run(
        self: Arc<Self>,
        listens: Listens,
        entrances: Entrances,
        stage: watch::Receiver<RouterStage>,
    ) {
        tokio::select! {
            () = self.feed(listens) => {}
            () = self.router.sweep() => {}
            () = self.watch_names(stage.clone()) => {}
            () = self.let_in(listens, entrances, stage) => {}
        }
    }

    async fn let_in(
        &self,
        listens: Listens,
        entrances: Entrances,
        stage: watch::Receiver<RouterStage>,
    ) {
        let mut ending = stage.clone();
        tokio::select! {
            () = self.settle() => {}
            _ = ending.wait_for(|stage| *stage != RouterStage::Open) => return,
        }
        if let Some(names) = &self.names {
            names.set_router(self.router.clone());
        }
        let has_entrance = !entrances.is_empty();
        let publish = async {
            if listens == Listens::Yes {
                self.router.publish(stage.clone()).await;
            }
            let _ = ending.wait_for(|stage| *stage != RouterStage::Open).await;
        };
        tokio::join!(publish, self.serve(entrances, stage.clone()));
        let (all_left, mut closing) = (self.router.all_disconnected(Duration::MAX), stage.clone());
        tokio::select! {
            _ = all_left => return,
            _ = closing.wait_for(|stage| *stage == RouterStage::Closing) => {}
        }
        if has_entrance {
            self.router.all_disconnected(GOODBYE).await;
        }
    }

    async fn serve(&self, entrances: Entrances, stage: watch::Receiver<RouterStage>) {
        let Entrances { plain, secure } = entrances;
        let port = |listener: &SharedSocket<TcpListener>| Some(listener.local_addr().ok()?.port());
        let https_port = secure.as_ref().and_then(port);
        let at = |listener: Option<SharedSocket<TcpListener>>, kind| {
            let stage = stage.clone();
            async move {
                if let Some(listener) = listener {
                    self.router.serve(listener, kind, stage).await;
                }
            }
        };
        tokio::join!(
            at(plain, HttpListenerKind::Plain { https_port }),
            at(secure, HttpListenerKind::Tls)
        );
    }

    /// Looks after names for as long as nobody else does.
    async fn watch_names(&self, mut stage: watch::Receiver<RouterStage>) {
        if let Some(names) = &self.names {
            tokio::select! {
                () = names.watch_kernel() => {}
                _ = stage.wait_for(|stage| *stage != RouterStage::Open) => {}
            }
        }
        std::future::pending().await
    }

    async fn feed(&self, listens: Listens) {
        let mut drawing = Drawing { watcher: self.cell.engine.machine().watch(0), is_own: false };
        let (mut moved, mut troubles) = (self.cell.measurements.moved(), self.router.bind_errors());
        let (mut others, mut latest) = (self.others.subscribe(), self.cell.endpoints.watch());
        let mut given = self.cell.certificates.watch();
        let unopened = watch::Sender::default();
        let open = self.names.as_ref().map(ServiceDns::open_networks);
        let mut open = open.unwrap_or_else(|| unopened.subscribe());
        loop {
            moved.mark_unchanged();
            others.mark_unchanged();
            self.draw(&mut drawing);
            let endpoints = latest.borrow_and_update().clone();
            let opened = open.borrow_and_update().clone();
            let (mut asked, directory) = self.asked(endpoints.as_deref(), &opened);
            let certificates = given.borrow_and_update().clone().unwrap_or_default();
            asked.wanted.certificates = self.certify(endpoints.as_deref(), &certificates);
            let answered;
            (asked.wanted.challenges, answered) = self.prove(&certificates);
            let has_certificates = asked.wanted.routes.iter().any(|it| it.tls != RouteTls::Off);
            self.router.update(&asked.wanted);
            // After the router: an authority is told to ask once every node says that it answers.
            self.cell.ingress.lock().answered_challenges = answered;
            if let (Some(names), Some(directory)) = (&self.names, directory) {
                // After the router, so that what is known by name is led somewhere.
                names.set_directory(directory);
            }
            self.fed.send_replace(());
            if listens == Listens::Yes {
                let troubles = troubles.borrow_and_update();
                let (ingress, node) = (&self.cell.ingress, &self.cell.node);
                tell(&mut ingress.lock(), node, &asked, &troubles, port_holder::holder);
            }
            let is_over = tokio::select! {
                () = self.keep_drawing(&mut drawing) => false,
                changed = open.changed() => changed.is_err(),
                changed = moved.changed() => changed.is_err(),
                changed = others.changed() => changed.is_err(),
                changed = latest.changed() => changed.is_err(),
                changed = given.changed() => changed.is_err(),
                changed = troubles.changed() => changed.is_err(),
                () = sleep(certificates::LOOK), if has_certificates => false,
            };
            if is_over {
                return;
            }
            sleep(GATHER).await;
        }
    }

    /// Brings the endpoints up to the log whenever something was applied to it. Who waits for the endpoints hears of it.
    async fn keep_drawing(&self, drawing: &mut Drawing) {
        loop {
            drawing.watcher.changed().await;
            self.draw(drawing);
        }
    }

    /// Brings the endpoints up to this node's log, if it holds it; else the leader's word stands.
    fn draw(&self, drawing: &mut Drawing) {
        let before = self.cell.endpoints.latest();
        let was_own = std::mem::replace(&mut drawing.is_own, self.cell.holds_log());
        if !drawing.is_own {
            return;
        }
        let known = self.cell.certificates.latest();
        let (endpoints, certificates) = drawing.watcher.look(|state, changes| {
            let fresh = || Some(RouteCertificates::of(state, known.as_deref()));
            match (changes, &before) {
                (Ok(changes), Some(before)) if was_own => {
                    let events = || changes.iter().flat_map(|applied| applied.events.iter());
                    let is_certified = events().any(|event| *event == Event::Certificates);
                    (before.after(state, events()), is_certified.then(fresh).flatten())
                }
                _ => (Endpoints::of(state, before.as_deref()), fresh()),
            }
        });
        self.cell.endpoints.set(endpoints);
        if let Some(certificates) = certificates {
            self.cell.certificates.set(certificates);
        }
    }

    /// The certificates of the endpoints's routes. Which are missing is said.
    fn certify(
        &self,
        endpoints: Option<&Endpoints>,
        given: &RouteCertificates,
    ) -> BTreeMap<String, Arc<CertifiedKey>> {
        let routes = endpoints.into_iter().flat_map(|endpoints| endpoints.routes.values());
        let routes = routes.flat_map(|routes| routes.iter());
        // A node that is told its certificates has no authority, even if its log had one when it was last read.
        let authority = || self.cell.holds_log().then(|| authority(&self.cell).ok().flatten())?;
        let mut certificates = self.certificates.lock().expect("no holder panics");
        let signer = self.cell.engine.machine().read(|state| {
            state.access().authority.as_ref().map(|signer| signer.certificate.clone())
        });
        certificates.follow(signer);
        let (shown, missing) = certificates.keep(routes, given, authority, now());
        let held = certificates.held();
        drop(certificates);
        let before = {
            let mut ingress = self.cell.ingress.lock();
            ingress.certificates = held;
            std::mem::replace(&mut ingress.missing_certificates, missing.clone())
        };
        for (host, why) in missing.iter().filter(|(host, _)| !before.contains_key(*host)) {
            tracing::warn!(host, why, "a route is not served here");
        }
        shown
    }

    /// What ACME authorities are answered, and which tokens that are.
    fn prove(
        &self,
        given: &RouteCertificates,
    ) -> (BTreeMap<String, AcmeProof>, BTreeMap<String, String>) {
        let mut certificates = self.certificates.lock().expect("no holder panics");
        let proofs = certificates.prove(given);
        (proofs, certificates.answered())
    }

    fn asked(
        &self,
        endpoints: Option<&Endpoints>,
        open: &Open,
    ) -> (NodeRouterConfig, Option<Directory>) {
        let addresses = addresses(&self.cell.measurements.lock());
        if let Some(endpoints) = endpoints {
            let mut asked = wanted(endpoints, &self.cell.node, &addresses, open);
            let directory = self.names.as_ref().map(|names| {
                let virtual_ip = |network: &str, service: &str| names.virtual_ip(network, service);
                naming::listen_for_datagrams(endpoints, open, virtual_ip, &mut asked);
                naming::directory(endpoints, &self.cell.node, &addresses, open)
            });
            return (asked, directory);
        }
        let is_here = |key: &UpstreamKey| {
            let mut here = addresses.keys();
            here.any(|(id, g)| g.0 == key.generation && id.to_string() == *key.replica)
        };
        self.others.send_if_modified(|others| {
            others.retain(is_here);
            false
        });
        (wanted_by_others(&self.others.borrow(), &addresses), None)
    }

    /// Whether requests are sent to this container from here; none if this node's router does not know it.
    fn is_in(&self, replica: &str, generation: Generation) -> Option<bool> {
        let table = self.router.table();
        let mut all = table.upstreams().filter(|upstream| {
            let key = upstream.key();
            *key.replica == *replica && key.generation == generation.0
        });
        let first = all.next()?;
        Some(all.chain([first]).any(|upstream| upstream.state() == UpstreamState::Ready))
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
            let is_alone =
                self.cell.endpoints.latest().is_some_and(|endpoints| endpoints.nodes.len() < 2);
            if self.is_in(&name, generation).is_none() {
                return;
            }
            let parting = async {
                self.has_left(&name, generation).await;
                if !is_alone {
                    sleep(MOMENT).await;
                }
                self.router.drained(&name, generation.0, patience).await
            };
            if !timeout(patience, parting).await.unwrap_or(false) {
                tracing::info!(%replica, "stopped with open connections after its grace period");
            }
        })
    }
}

/// How far the endpoints has come.
struct Drawing {
    watcher: Watcher,
    /// Whether it is of this node's log so far, and not of the leader's word.
    is_own: bool,
}

/// Where this node's containers are reached.
fn addresses(measured: &Measurements) -> Addresses {
    let reached = measured.replicas.iter();
    reached.filter_map(|(key, it)| Some((key.clone(), it.address?))).collect()
}

/// Says which ports this node does not listen on for their services, why, and who holds them.
fn tell(
    ingress: &mut IngressStatus,
    node: &NodeId,
    asked: &NodeRouterConfig,
    troubles: &BTreeMap<PublishedPort, String>,
    holder: impl Fn(&PublishedPort) -> Option<String>,
) {
    let unbound = troubles.iter().filter_map(|(at, text)| {
        let service: &ServiceKey = asked.owners.get(at)?;
        let holder = holder(at).map(|who| format!("; {who} holds it"));
        let text = format!("{node} {text}{}", holder.unwrap_or_default());
        Some(((service.clone(), at.address), text))
    });
    ingress.unbound_ports = unbound.collect();
}
