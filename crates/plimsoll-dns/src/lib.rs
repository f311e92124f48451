//! Service discovery: containers find services by name, wherever their replicas run.
//!
//! Each network of a node has addresses that no container is given ([`Bridge::virtual_block`]). Two of them are DNS
//! resolvers and the others are virtual IPs of services: a query for `db` is answered with the virtual IP of `db`, and
//! connections to it, at any port, are redirected to the router, which carries them to a healthy replica. A virtual IP
//! belongs to the same service for as long as the network exists, so that clients may cache it.
//!
//! [`message`] reads and writes DNS messages, [`resolver`] answers them, [`redirect`] accepts redirected connections,
//! [`directory`] holds the names of each network, [`virtual_ips`] the assigned addresses, and [`firewall`] the rules of
//! the kernel. How a replica is reached, and through which node, is up to the router.

pub mod directory;
mod firewall;
mod listen;
mod message;
mod redirect;
mod resolver;
mod virtual_ips;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_router::Router;
use plimsoll_runtime::{Block, BoxFuture, Bridge, Names};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

pub use directory::{Directory, NetworkNames};
pub use firewall::KernelPart;
use firewall::{Firewall, NetworkRules};
use resolver::Recursion;
use virtual_ips::VirtualIps;

/// How long to wait for a directory that includes a network that was just opened.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long connections wait for the router of a daemon that takes over from another.
const ROUTER_TIMEOUT: Duration = Duration::from_secs(12);

/// How often the kernel is compared with what should be in it: whoever reloads the host's firewall may have flushed it.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// Service discovery on the networks of this node. Clones share one state.
#[derive(Debug, Clone)]
pub struct ServiceDns(Arc<DnsInner>);

struct DnsInner {
    router: watch::Sender<Option<Router>>,
    directory: watch::Sender<Arc<Directory>>,
    virtual_ips: Mutex<VirtualIps>,
    /// By the engine's id for them: a network that is gone must not take away what another has by now. They are opened and
    /// closed one at a time.
    networks: AsyncMutex<BTreeMap<String, ServedNetwork>>,
    /// Networks that could not be opened, to be tried again.
    unopened: Mutex<BTreeMap<String, Bridge>>,
    /// The virtual addresses of the networks that are open, by their names.
    open: watch::Sender<BTreeMap<String, Block>>,
    firewall: Firewall,
    /// How often each part of the kernel's rules was put back.
    repairs: Mutex<BTreeMap<KernelPart, u64>>,
    /// The file system in which the host's name servers are configured.
    root: PathBuf,
}

impl fmt::Debug for DnsInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnsInner").field("firewall", &self.firewall).finish_non_exhaustive()
    }
}

/// A network with its resolvers and its listener for redirected connections.
#[derive(Debug)]
struct ServedNetwork {
    bridge: Bridge,
    rules: NetworkRules,
    tasks: Vec<AbortHandle>,
}

impl Drop for ServedNetwork {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl ServiceDns {
    /// `file` keeps the assigned virtual IPs. `owner` tells this daemon's firewall rules from those of other daemons on
    /// the host. An error says in a sentence why this host cannot do it.
    pub async fn new(file: &Path, owner: &str) -> Result<Self, String> {
        let firewall = Firewall::new(owner);
        firewall.check().await?;
        let virtual_ips = VirtualIps::read(file);
        let inner = DnsInner {
            router: watch::Sender::default(),
            directory: watch::Sender::default(),
            virtual_ips: Mutex::new(virtual_ips),
            networks: AsyncMutex::default(),
            unopened: Mutex::default(),
            open: watch::Sender::default(),
            firewall,
            repairs: Mutex::default(),
            root: PathBuf::from("/"),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The router that carries connections to virtual IPs. Until it is set, connections wait for a while.
    pub fn set_router(&self, router: Router) {
        self.0.router.send_replace(Some(router));
    }

    /// Answers from this directory from now on.
    pub fn set_directory(&self, directory: Directory) {
        self.0.directory.send_replace(Arc::new(directory));
    }

    /// The networks that are open and their virtual addresses, as they change.
    pub fn open_networks(&self) -> watch::Receiver<BTreeMap<String, Block>> {
        self.0.open.subscribe()
    }

    /// The virtual IP of a service on a network; none if the network is not open, or has no address left.
    pub fn virtual_ip(&self, network: &str, service: &str) -> Option<Ipv4Addr> {
        self.0.virtual_ip(network, service)
    }

    /// How often something was found missing in the kernel and put back, since this daemon started.
    pub fn repairs(&self) -> Vec<(KernelPart, u64)> {
        let repairs = self.0.repairs.lock().expect("no holder panics");
        KernelPart::ALL.map(|part| (part, repairs.get(&part).copied().unwrap_or(0))).into()
    }

    /// Keeps routes, rules and listeners as they should be, for as long as it is polled.
    pub async fn watch_kernel(&self) {
        loop {
            sleep(CHECK_INTERVAL).await;
            if let Err(why) = self.reconcile().await {
                tracing::warn!(
                    why,
                    "cannot repair the rules for virtual IPs: service names may not resolve"
                );
            }
        }
    }

    /// Compares what is there with what should be, and puts back what is missing.
    pub async fn reconcile(&self) -> Result<(), String> {
        let unopened: Vec<Bridge> = self.0.unopened().values().cloned().collect();
        for bridge in unopened {
            if let Err(why) = self.open(&bridge).await {
                tracing::debug!(why, network = bridge.name, "still cannot serve names");
            }
        }
        let mut networks = self.0.networks.lock().await;
        if networks.is_empty() {
            return Ok(());
        }
        let mut repaired = self.0.listen_again(&mut networks).await?;
        let rules: Vec<&NetworkRules> = networks.values().map(|network| &network.rules).collect();
        if repaired.is_empty() {
            repaired = self.0.firewall.reconcile(&rules).await?;
        } else {
            // They listen on other ports from here on.
            self.0.apply_rules(&networks).await?;
        }
        drop(networks);
        if !repaired.is_empty() {
            let parts: Vec<&str> = repaired.iter().map(|part| part.word()).collect();
            let parts = parts.join(", ");
            tracing::warn!(parts, "something removed what service names need; it is back");
        }
        let mut repairs = self.0.repairs.lock().expect("no holder panics");
        for part in repaired {
            *repairs.entry(part).or_default() += 1;
        }
        Ok(())
    }
}

impl Names for ServiceDns {
    fn open<'a>(&'a self, bridge: &'a Bridge) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let mut networks = self.0.networks.lock().await;
            if networks.get(&bridge.id).is_some_and(|network| network.bridge == *bridge) {
                return Ok(());
            }
            let network = match self.0.listen(bridge).await {
                Ok(network) => network,
                Err(why) => {
                    self.0.unopened().insert(bridge.id.clone(), bridge.clone());
                    return Err(why);
                }
            };
            let before = networks.insert(bridge.id.clone(), network);
            if let Err(why) = self.0.apply_rules(&networks).await {
                networks.remove(&bridge.id);
                self.0.unopened().insert(bridge.id.clone(), bridge.clone());
                return Err(why);
            }
            self.0.unopened().remove(&bridge.id);
            drop((before, networks));
            self.0.open.send_modify(|open| {
                open.insert(bridge.name.clone(), bridge.virtual_block);
            });
            // Without a directory names do not resolve, but the container starts.
            self.0.wait_for_directory(&bridge.name).await;
            Ok(())
        })
    }

    fn close<'a>(&'a self, bridge: &'a Bridge) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut networks = self.0.networks.lock().await;
            self.0.unopened().remove(&bridge.id);
            let Some(network) = networks.remove(&bridge.id) else { return };
            let name = network.bridge.name.as_str();
            // Another network may have its name by now, as after a deployment was deleted and applied again.
            let heir = networks.values().find(|other| other.bridge.name == name);
            let heir = heir.map(|other| other.bridge.virtual_block);
            self.0.open.send_modify(|open| {
                match heir {
                    Some(block) => open.insert(name.to_owned(), block),
                    None => open.remove(name),
                };
            });
            if heir.is_none() {
                self.0.virtual_ips().forget(name);
            }
            // Engines give the addresses of a removed network to the next one at once.
            if !networks.values().any(|other| other.rules.block == network.rules.block) {
                self.0.firewall.unroute(&network.rules).await;
            }
            if let Err(why) = self.0.apply_rules(&networks).await {
                tracing::debug!(why, network = name, "cannot remove firewall rules");
            }
        })
    }
}

impl DnsInner {
    /// Returns once the directory includes the network, or the timeout has passed.
    async fn wait_for_directory(&self, network: &str) {
        let mut directory = self.directory.subscribe();
        let is_known = |known: &Arc<Directory>| known.is_for(network);
        let _ = timeout(DIRECTORY_TIMEOUT, directory.wait_for(is_known)).await;
    }

    /// The router, once there is one.
    async fn router(&self) -> Option<Router> {
        let mut router = self.router.subscribe();
        let known = timeout(ROUTER_TIMEOUT, router.wait_for(Option::is_some)).await;
        known.ok()?.ok()?.clone()
    }

    fn virtual_ips(&self) -> std::sync::MutexGuard<'_, VirtualIps> {
        self.virtual_ips.lock().expect("no holder panics")
    }

    fn virtual_ip(&self, network: &str, service: &str) -> Option<Ipv4Addr> {
        let block = *self.open.borrow().get(network)?;
        let directory = self.directory.borrow().clone();
        let is_known = |other: &str| directory.has(network, other);
        let (first, last) = (Bridge::FIRST_SERVICE, block.last() - 1);
        let offset = self.virtual_ips().assign(network, service, first..=last, is_known)?;
        block.at(offset)
    }

    /// The service of a virtual IP.
    fn service(&self, bridge: &Bridge, address: Ipv4Addr) -> Option<Arc<str>> {
        let offset = address.to_bits().checked_sub(bridge.virtual_block.at(0)?.to_bits())?;
        self.virtual_ips().service_at(&bridge.name, offset)
    }

    fn unopened(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Bridge>> {
        self.unopened.lock().expect("no holder panics")
    }

    /// Serves the networks again of which a task has ended.
    async fn listen_again(
        self: &Arc<Self>,
        networks: &mut BTreeMap<String, ServedNetwork>,
    ) -> Result<Vec<KernelPart>, String> {
        let mut repaired = Vec::new();
        for network in networks.values_mut() {
            if network.tasks.iter().any(AbortHandle::is_finished) {
                *network = self.listen(&network.bridge).await?;
                repaired.push(KernelPart::Listener);
            }
        }
        Ok(repaired)
    }

    async fn apply_rules(&self, networks: &BTreeMap<String, ServedNetwork>) -> Result<(), String> {
        self.firewall.apply(networks.values().map(|network| &network.rules)).await
    }

    /// Listens on the host's side of a network.
    async fn listen(self: &Arc<Self>, bridge: &Bridge) -> Result<ServedNetwork, String> {
        let bound = || {
            let listener = listen::tcp(bridge.gateway)?;
            let open = listen::udp(bridge.gateway, 0)?;
            let strict = listen::udp(bridge.gateway, 0)?;
            let from_host = if bridge.is_asked_from_host {
                vec![
                    (listen::udp(bridge.resolver(), resolver::PORT)?, Recursion::Forward),
                    (listen::udp(bridge.strict_resolver(), resolver::PORT)?, Recursion::Refuse),
                ]
            } else {
                Vec::new()
            };
            io::Result::Ok((listener, open, strict, from_host))
        };
        let (listener, open, strict, from_host) =
            bound().map_err(|error| format!("cannot listen on {}: {error}", bridge.gateway))?;
        let port = |address: io::Result<std::net::SocketAddr>| {
            address.map(|at| at.port()).map_err(|error| error.to_string())
        };
        let rules = NetworkRules {
            interface: bridge.interface.clone(),
            block: bridge.virtual_block,
            tcp_port: port(listener.local_addr())?,
            resolvers: [
                (bridge.resolver(), port(open.local_addr())?),
                (bridge.strict_resolver(), port(strict.local_addr())?),
            ],
            is_asked_from_host: bridge.is_asked_from_host,
        };
        self.firewall.route(&rules).await?;
        let shared = Arc::new(bridge.clone());
        let spawn = |socket, recursion| {
            let (inner, bridge) = (Arc::clone(self), Arc::clone(&shared));
            tokio::spawn(resolver::serve(inner, bridge, Arc::new(socket), recursion)).abort_handle()
        };
        let sockets = [(open, Recursion::Forward), (strict, Recursion::Refuse)];
        let sockets = sockets.into_iter().chain(from_host);
        let mut tasks: Vec<_> =
            sockets.map(|(socket, recursion)| spawn(socket, recursion)).collect();
        let redirect = redirect::serve(Arc::clone(self), Arc::clone(&shared), listener);
        tasks.push(tokio::spawn(redirect).abort_handle());
        Ok(ServedNetwork { bridge: bridge.clone(), rules, tasks })
    }
}
