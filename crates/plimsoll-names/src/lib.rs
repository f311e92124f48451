//! Services find each other by name, wherever their replicas run.
//!
//! Each network of a node has addresses that no container is given ([`Bridge::virtual_block`]). Two of them are resolvers
//! and the others stand for services: who asks for `db` is told such an address, and what it sends there, at whichever
//! port, is carried to a healthy replica of `db` by the router. An address stands for the same service for as long as the
//! network is there, so that nobody needs to ask twice.
//!
//! [`message`] is the form of questions and answers, [`resolver`] answers them, [`capture`] takes connections,
//! [`directory`] says who is called what, [`places`] which address stands for whom, and [`host`] is what the kernel is
//! told. What leads to a replica, and through which node, is the router's business.

mod capture;
pub mod directory;
mod host;
mod message;
mod places;
mod resolver;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_router::Router;
use plimsoll_runtime::{Block, BoxFuture, Bridge, Names};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Mutex as Turn, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

pub use directory::{Directory, Neighbours};
use host::{Entry, Host};
use places::Places;

/// How long a network that was just opened may wait for a directory that knows of it.
const LEARN: Duration = Duration::from_secs(1);

/// How long connections may wait for a daemon that takes over from another to find its way.
const SETTLE: Duration = Duration::from_secs(12);

/// How often it is looked whether the kernel still does what it was told: whoever loads a firewall's rules anew may have
/// thrown ours away.
const LOOK: Duration = Duration::from_secs(20);

/// Answers for names on the networks of this node. Clones are the same.
#[derive(Debug, Clone)]
pub struct Answering(Arc<Inner>);

struct Inner {
    router: watch::Sender<Option<Router>>,
    directory: watch::Sender<Arc<Directory>>,
    places: Mutex<Places>,
    /// One opens or closes at a time.
    bridges: Turn<BTreeMap<String, Opened>>,
    /// The addresses of those that are open.
    open: watch::Sender<BTreeMap<String, Block>>,
    host: Host,
    /// Where name servers of this host are written down.
    root: PathBuf,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("host", &self.host).finish_non_exhaustive()
    }
}

/// A network on which names are answered.
#[derive(Debug)]
struct Opened {
    bridge: Bridge,
    entry: Entry,
    tasks: [AbortHandle; 3],
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Answering {
    /// `file` is where it is kept which address stands for whom. `owner` tells this daemon's rules from those of others
    /// on the host. An error says in a sentence why this host cannot do it.
    pub async fn new(file: &Path, owner: &str) -> Result<Self, String> {
        let host = Host::new(owner);
        host.check().await?;
        let places = Places::read(file);
        let inner = Inner {
            router: watch::Sender::default(),
            directory: watch::Sender::default(),
            places: Mutex::new(places),
            bridges: Turn::default(),
            open: watch::Sender::default(),
            host,
            root: PathBuf::from("/"),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Who carries what is sent to services. Until it is known, connections wait for a while.
    pub fn carried_by(&self, router: Router) {
        self.0.router.send_replace(Some(router));
    }

    /// Goes by this directory from now on.
    pub fn feed(&self, directory: Directory) {
        self.0.directory.send_replace(Arc::new(directory));
    }

    /// The networks on which names are answered, as that changes.
    pub fn open_networks(&self) -> watch::Receiver<BTreeMap<String, Block>> {
        self.0.open.subscribe()
    }

    /// The address that stands for a service on a network; none if the network is not open, or has none left.
    pub fn stands_for(&self, network: &str, service: &str) -> Option<Ipv4Addr> {
        self.0.address(network, service)
    }

    /// Sees to it that the kernel keeps doing what it was told, for as long as it is polled.
    pub async fn watch(&self) {
        loop {
            sleep(LOOK).await;
            let bridges = self.0.bridges.lock().await;
            if bridges.is_empty() {
                continue;
            }
            let told = self.0.host.tell_again(bridges.values().map(|opened| &opened.entry)).await;
            if let Err(why) = told {
                tracing::warn!(why, "names of services may not be answered");
            }
        }
    }
}

impl Names for Answering {
    fn open<'a>(&'a self, bridge: &'a Bridge) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let mut bridges = self.0.bridges.lock().await;
            if bridges.get(&bridge.name).is_some_and(|opened| opened.bridge == *bridge) {
                return Ok(());
            }
            let opened = self.0.begin(bridge).await?;
            let before = bridges.insert(bridge.name.clone(), opened);
            if let Err(why) = self.0.told(&bridges).await {
                bridges.remove(&bridge.name);
                return Err(why);
            }
            drop((before, bridges));
            self.0.open.send_modify(|open| {
                open.insert(bridge.name.clone(), bridge.virtual_block);
            });
            // A directory that does not come leaves names unanswered, and not the container unstarted.
            self.0.until_known(&bridge.name).await;
            Ok(())
        })
    }

    fn close<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut bridges = self.0.bridges.lock().await;
            let Some(opened) = bridges.remove(name) else { return };
            self.0.open.send_modify(|open| {
                open.remove(name);
            });
            self.0.places().forget(name);
            self.0.host.unroute(&opened.entry).await;
            if let Err(why) = self.0.told(&bridges).await {
                tracing::debug!(why, "rules of a network that is gone may be left");
            }
        })
    }
}

impl Inner {
    /// Returns once the directory knows of the network, or has had its time.
    async fn until_known(&self, network: &str) {
        let mut directory = self.directory.subscribe();
        let is_known = |known: &Arc<Directory>| known.is_for(network);
        let _ = timeout(LEARN, directory.wait_for(is_known)).await;
    }

    /// The router, once there is one.
    async fn router(&self) -> Option<Router> {
        let mut router = self.router.subscribe();
        let known = timeout(SETTLE, router.wait_for(Option::is_some)).await;
        known.ok()?.ok()?.clone()
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().expect("no holder panics")
    }

    fn address(&self, network: &str, service: &str) -> Option<Ipv4Addr> {
        let block = *self.open.borrow().get(network)?;
        let directory = self.directory.borrow().clone();
        let is_known = |other: &str| directory.has(network, other);
        let (first, last) = (Bridge::FIRST_SERVICE, block.last() - 1);
        let place = self.places().of(network, service, first..=last, is_known)?;
        block.at(place)
    }

    /// Who the address stands for.
    fn service(&self, bridge: &Bridge, address: Ipv4Addr) -> Option<Arc<str>> {
        let place = address.to_bits().checked_sub(bridge.virtual_block.at(0)?.to_bits())?;
        self.places().at(&bridge.name, place)
    }

    async fn told(&self, bridges: &BTreeMap<String, Opened>) -> Result<(), String> {
        self.host.tell(bridges.values().map(|opened| &opened.entry)).await
    }

    /// Listens on the host's side of a network.
    async fn begin(self: &Arc<Self>, bridge: &Bridge) -> Result<Opened, String> {
        let bound = async {
            let listener = TcpListener::bind((bridge.gateway, 0)).await?;
            let open = UdpSocket::bind((bridge.gateway, 0)).await?;
            let strict = UdpSocket::bind((bridge.gateway, 0)).await?;
            io::Result::Ok((listener, open, strict))
        };
        let bound = bound.await;
        let (listener, open, strict) =
            bound.map_err(|error| format!("cannot listen on {}: {error}", bridge.gateway))?;
        let port = |address: io::Result<std::net::SocketAddr>| {
            address.map(|at| at.port()).map_err(|error| error.to_string())
        };
        let entry = Entry {
            interface: bridge.interface.clone(),
            block: bridge.virtual_block,
            streams: port(listener.local_addr())?,
            resolvers: [
                (bridge.resolver(), port(open.local_addr())?),
                (bridge.strict_resolver(), port(strict.local_addr())?),
            ],
        };
        self.host.route(&entry).await?;
        let shared = Arc::new(bridge.clone());
        let spawn = |socket, asks| {
            let (inner, bridge) = (Arc::clone(self), Arc::clone(&shared));
            tokio::spawn(resolver::serve(inner, bridge, Arc::new(socket), asks)).abort_handle()
        };
        let tasks = [
            spawn(open, resolver::Asks::Others),
            spawn(strict, resolver::Asks::Nobody),
            tokio::spawn(capture::serve(Arc::clone(self), Arc::clone(&shared), listener))
                .abort_handle(),
        ];
        Ok(Opened { bridge: bridge.clone(), entry, tasks })
    }
}
