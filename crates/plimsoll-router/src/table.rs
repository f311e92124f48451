//! The routing table: from ports, hosts and paths to upstreams. A table is immutable; the next one is made from the
//! configuration and the one before, and shares with it every unchanged pool and every upstream that stays, so that what is
//! known of an upstream outlives tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::sign::CertifiedKey;

use crate::clock::Moment;
use crate::metrics::{PoolMeter, RouteMeter};
use crate::upstream::{MemberState, Upstream, UpstreamKey, UpstreamTarget};

mod hosts;
#[cfg(test)]
mod tests;

use hosts::HostMap;
pub use hosts::bare_host;

/// The grace period of the older of two generations, where both are configured as ready: a replica is routed at one.
const SUPERSEDED_GRACE: Duration = Duration::from_secs(10);

/// The port of a pool whose upstreams are connected to at the port a client asks for.
pub(crate) const ANY_PORT: u16 = 0;

/// A port of a service: `shop/web` 80.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey {
    pub service: Arc<str>,
    pub port: u16,
}

impl PoolKey {
    pub fn new(service: &str, port: u16) -> Self {
        Self { service: service.into(), port }
    }

    /// All ports of a service.
    pub fn any(service: &str) -> Self {
        Self::new(service, ANY_PORT)
    }

    pub fn is_any(&self) -> bool {
        self.port == ANY_PORT
    }
}

impl fmt::Display for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            ANY_PORT => write!(f, "{} any port", self.service),
            port => write!(f, "{} port {port}", self.service),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// The address and protocol that this node listens on for a published port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublishedPort {
    pub address: SocketAddr,
    pub protocol: Protocol,
}

/// `port 8080`, `port 53/udp`, or with the address it is to be bound to.
impl fmt::Display for PublishedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, protocol } = self;
        if address.ip().is_unspecified() {
            write!(f, "port {}", address.port())?;
        } else {
            write!(f, "{address}")?;
        }
        match protocol {
            Protocol::Tcp => Ok(()),
            Protocol::Udp => f.write_str("/udp"),
        }
    }
}

/// One upstream of a pool, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMember {
    pub replica: Arc<str>,
    pub generation: u64,
    pub target: UpstreamTarget,
    pub state: MemberState,
    /// The ports of its container at which connections begin with the address of their client.
    pub proxied: Arc<[u16]>,
}

/// Where a route's certificate comes from. The certificates themselves are in [`RouterConfig::certificates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RouteTls {
    #[default]
    Off,
    Internal,
    Files,
    Auto,
}

/// The pool of requests for a host and path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteConfig {
    /// `shop.example`, `*.shop.example`, or none for every host.
    pub host: Option<String>,
    /// A prefix that begins with `/` and matches whole segments.
    pub path: String,
    /// Whether the prefix is removed before the request is proxied.
    pub strip_path: bool,
    pub pool: PoolKey,
    pub tls: RouteTls,
}

/// What an ACME authority is going to ask a host for.
#[derive(Debug, Clone)]
pub enum AcmeProof {
    /// A path that ends with the token, answered with the proof.
    Http { token: String, proof: String },
    /// A certificate, to whoever negotiates the protocol for it.
    Tls(Arc<CertifiedKey>),
}

/// The whole configuration of a router.
#[derive(Debug, Clone, Default)]
pub struct RouterConfig {
    /// A pool that is given again as the same slice is not compared.
    pub pools: BTreeMap<PoolKey, Arc<[PoolMember]>>,
    pub published: BTreeMap<PublishedPort, PoolKey>,
    pub routes: Vec<RouteConfig>,
    /// By host, as routes name them.
    pub certificates: BTreeMap<String, Arc<CertifiedKey>>,
    /// By host: what an authority asks for before it issues a certificate.
    pub challenges: BTreeMap<String, AcmeProof>,
    /// Services whose TCP connections are relayed as they are: no request on them is replayed.
    pub without_replay: BTreeSet<Arc<str>>,
}

/// A port of a service and the upstreams behind it.
#[derive(Debug)]
pub struct Pool {
    key: PoolKey,
    configured: Arc<[PoolMember]>,
    /// In the order of `configured`, with the state of each.
    all: Vec<(Arc<Upstream>, MemberState)>,
    members: Vec<Arc<Upstream>>,
    replays: bool,
    pub(crate) meter: Arc<PoolMeter>,
}

impl Pool {
    pub fn key(&self) -> &PoolKey {
        &self.key
    }

    /// Those that are ready.
    pub fn members(&self) -> &[Arc<Upstream>] {
        &self.members
    }

    /// All of them, with the state of each.
    pub fn all(&self) -> &[(Arc<Upstream>, MemberState)] {
        &self.all
    }

    /// Whether an unanswered request on a TCP connection to it is replayed.
    pub fn replays(&self) -> bool {
        self.replays
    }

    fn new(
        key: &PoolKey,
        configured: &Arc<[PoolMember]>,
        replays: bool,
        before: Option<&Self>,
    ) -> Self {
        let newest = newest(configured);
        let mut all = Vec::with_capacity(configured.len());
        for member in configured.iter() {
            let upstream = before
                .and_then(|pool| pool.find(member))
                .map_or_else(|| Arc::new(member.upstream(key.port)), Arc::clone);
            let is_newest = newest.get(&member.replica).is_none_or(|g| *g == member.generation);
            let state = match member.state {
                MemberState::Ready if !is_newest => {
                    MemberState::Draining { grace: SUPERSEDED_GRACE }
                }
                state => state,
            };
            all.push((upstream, state));
        }
        let is_in = |(upstream, state): &(Arc<Upstream>, MemberState)| {
            (*state == MemberState::Ready).then(|| Arc::clone(upstream))
        };
        let members = all.iter().filter_map(is_in).collect();
        let (key, configured) = (key.clone(), Arc::clone(configured));
        let meter = before.map_or_else(Arc::default, |pool| Arc::clone(&pool.meter));
        Self { key, configured, all, members, replays, meter }
    }

    /// The upstream of this member before: the same generation of the same replica with the same target, told the same of its clients.
    fn find(&self, member: &PoolMember) -> Option<&Arc<Upstream>> {
        let is_same = |upstream: &Arc<Upstream>| {
            let key = upstream.key();
            key.replica == member.replica
                && key.generation == member.generation
                && *upstream.target() == member.target
                && *upstream.proxied() == *member.proxied
        };
        self.all.iter().map(|(upstream, _)| upstream).find(|upstream| is_same(upstream))
    }
}

impl PoolMember {
    fn upstream(&self, port: u16) -> Upstream {
        let (replica, generation) = (Arc::clone(&self.replica), self.generation);
        let key = UpstreamKey { replica, generation, port };
        Upstream::new(key, self.target.clone(), Arc::clone(&self.proxied))
    }
}

/// The newest ready generation of each replica.
fn newest(members: &[PoolMember]) -> BTreeMap<&Arc<str>, u64> {
    let mut newest = BTreeMap::new();
    for member in members.iter().filter(|member| member.state == MemberState::Ready) {
        let generation = newest.entry(&member.replica).or_insert(member.generation);
        *generation = member.generation.max(*generation);
    }
    newest
}

/// A route with its pool.
#[derive(Debug)]
pub struct RouteEntry {
    pub spec: RouteConfig,
    pub pool: Arc<Pool>,
    pub meter: Arc<RouteMeter>,
}

/// The routing table.
#[derive(Debug, Default)]
pub struct RoutingTable {
    pools: BTreeMap<PoolKey, Arc<Pool>>,
    published: BTreeMap<PublishedPort, Arc<Pool>>,
    routes: HostMap<Vec<Arc<RouteEntry>>>,
    certificates: HostMap<Arc<CertifiedKey>>,
    challenges: HostMap<AcmeProof>,
}

impl RoutingTable {
    /// The table of a configuration. What it shares with this one is not touched; the states of upstreams are set by
    /// [`RoutingTable::set_states`], once the new table is in use.
    pub fn next(&self, config: &RouterConfig) -> Self {
        let mut pools = BTreeMap::new();
        for (key, members) in &config.pools {
            pools.insert(key.clone(), self.next_pool(key, members, config));
        }
        let leading =
            config.routes.iter().map(|route| &route.pool).chain(config.published.values());
        for key in leading {
            // A service without replicas is an empty pool, which is answered with an error.
            if !pools.contains_key(key) {
                pools.insert(key.clone(), self.next_pool(key, &Arc::default(), config));
            }
        }
        let published = config.published.iter();
        let published = published.map(|(at, key)| (*at, Arc::clone(&pools[key]))).collect();
        let routes = self.next_routes(&config.routes, &pools);
        let certificates = config.certificates.iter();
        let certificates = certificates.map(|(host, key)| (Some(host.as_str()), Arc::clone(key)));
        let challenges = config.challenges.iter();
        let challenges = challenges.map(|(host, proof)| (Some(host.as_str()), proof.clone()));
        let (certificates, challenges) = (certificates.collect(), challenges.collect());
        Self { pools, published, routes, certificates, challenges }
    }

    fn next_pool(
        &self,
        key: &PoolKey,
        members: &Arc<[PoolMember]>,
        config: &RouterConfig,
    ) -> Arc<Pool> {
        let replays = !config.without_replay.contains(&key.service);
        let before = self.pools.get(key);
        let is_same = |pool: &&Arc<Pool>| {
            pool.replays == replays
                && (Arc::ptr_eq(&pool.configured, members) || pool.configured == *members)
        };
        before.filter(is_same).map_or_else(
            || Arc::new(Pool::new(key, members, replays, before.map(Arc::as_ref))),
            Arc::clone,
        )
    }

    fn next_routes(
        &self,
        wanted: &[RouteConfig],
        pools: &BTreeMap<PoolKey, Arc<Pool>>,
    ) -> HostMap<Vec<Arc<RouteEntry>>> {
        let mut routes = HostMap::<Vec<Arc<RouteEntry>>>::default();
        for spec in wanted {
            let meter = self.route_at(spec.host.as_deref(), &spec.path);
            let meter = meter.map_or_else(Arc::default, |route| Arc::clone(&route.meter));
            let pool = Arc::clone(&pools[&spec.pool]);
            let route = Arc::new(RouteEntry { spec: spec.clone(), pool, meter });
            routes.entry(spec.host.as_deref()).push(route);
        }
        // The longest prefix first; equal ones are refused before they get here.
        routes.each(|paths| paths.sort_by_key(|route| std::cmp::Reverse(route.spec.path.len())));
        routes
    }

    /// Sets the state of every upstream of this table, and of those that only the table before had.
    pub fn set_states(&self, before: &Self, now: Moment) {
        for (key, pool) in &self.pools {
            let old = before.pools.get(key);
            if old.is_some_and(|old| Arc::ptr_eq(old, pool)) {
                continue;
            }
            for (upstream, state) in &pool.all {
                upstream.set_state(Some(*state), now);
            }
            for (upstream, _) in old.into_iter().flat_map(|old| &old.all) {
                if !pool.all.iter().any(|(kept, _)| Arc::ptr_eq(kept, upstream)) {
                    upstream.set_state(None, now);
                }
            }
        }
        for (_, pool) in before.pools.iter().filter(|(key, _)| !self.pools.contains_key(key)) {
            for (upstream, _) in &pool.all {
                upstream.set_state(None, now);
            }
        }
    }

    /// The route of a request: the most specific host with a matching path, and of its paths the longest.
    pub fn route(&self, host: &str, path: &str) -> Option<&Arc<RouteEntry>> {
        self.routes.find(host, |paths| paths.iter().find(|route| is_below(path, &route.spec.path)))
    }

    /// The route with exactly this host pattern and path.
    fn route_at(&self, host: Option<&str>, path: &str) -> Option<&Arc<RouteEntry>> {
        self.routes.get(host)?.iter().find(|route| route.spec.path == path)
    }

    pub fn routes(&self) -> impl Iterator<Item = &Arc<RouteEntry>> {
        self.routes.iter().flatten()
    }

    pub fn certificate(&self, host: &str) -> Option<&Arc<CertifiedKey>> {
        self.certificates.find(host, Some)
    }

    /// What an authority asks exactly this host for.
    pub(crate) fn challenge(&self, host: &str) -> Option<&AcmeProof> {
        self.challenges.get(Some(host))
    }

    /// Whether exactly this host has a route with certificates of this kind.
    pub(crate) fn has_tls(&self, host: &str, tls: RouteTls) -> bool {
        let routes = self.routes.get(Some(host)).into_iter().flatten();
        routes.into_iter().any(|route| route.spec.tls == tls)
    }

    pub fn published(&self) -> impl Iterator<Item = (PublishedPort, &Arc<Pool>)> {
        self.published.iter().map(|(at, pool)| (*at, pool))
    }

    pub fn published_pool(&self, at: PublishedPort) -> Option<&Arc<Pool>> {
        self.published.get(&at)
    }

    pub fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.values()
    }

    pub fn pool(&self, key: &PoolKey) -> Option<&Arc<Pool>> {
        self.pools.get(key)
    }

    /// Every upstream, once.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        let mut seen = BTreeSet::new();
        let all = self.pools.values().flat_map(|pool| &pool.all).map(|(upstream, _)| upstream);
        all.filter(move |upstream| seen.insert(Arc::as_ptr(upstream)))
    }
}

/// Whether the path is the prefix or lies below it.
fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'))
}
