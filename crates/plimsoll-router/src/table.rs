//! The routing table: which port and which host and path lead to which upstreams. A table is never changed; the next one
//! is made from what is wanted and from the one before, and shares with it every pool that stayed as it was and every
//! upstream that stayed at all, so that what is known of an upstream outlives tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::sign::CertifiedKey;

use crate::clock::Moment;
use crate::metrics::RouteMeter;
use crate::upstream::{State, Target, Upstream, UpstreamKey};

mod hosts;
#[cfg(test)]
mod tests;

use hosts::Hosts;
pub use hosts::bare_host;

/// How long the older of two generations has, where both are said to be in: a replica is routed at one.
const SUPERSEDED_GRACE: Duration = Duration::from_secs(10);

/// What stands for a port of a pool whose upstreams are connected to at whichever port a client asks for.
pub(crate) const ANY: u16 = 0;

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
        Self::new(service, ANY)
    }

    pub fn is_any(&self) -> bool {
        self.port == ANY
    }
}

impl fmt::Display for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            ANY => write!(f, "{} any port", self.service),
            port => write!(f, "{} port {port}", self.service),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// Where this node listens for a published port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Published {
    pub address: SocketAddr,
    pub protocol: Protocol,
}

/// `port 8080`, `port 53/udp`, or with the address it is to be bound to.
impl fmt::Display for Published {
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

/// One upstream of a pool, as the router is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub replica: Arc<str>,
    pub generation: u64,
    pub target: Target,
    pub state: State,
}

/// Where a route's certificate comes from. The certificates themselves are in [`Wanted::certificates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Tls {
    #[default]
    Off,
    Internal,
    Files,
}

/// Requests for a host and path, and where they go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteSpec {
    /// `shop.example`, `*.shop.example`, or none for every host.
    pub host: Option<String>,
    /// A prefix that begins with `/` and ends at a segment's border.
    pub path: String,
    /// Whether the service sees the request without the prefix.
    pub strip_path: bool,
    pub pool: PoolKey,
    pub tls: Tls,
}

/// All that the router is asked to do.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Kept by whoever feeds the router: a pool handed in again as the same slice is not even looked at.
    pub pools: BTreeMap<PoolKey, Arc<[Member]>>,
    pub published: BTreeMap<Published, PoolKey>,
    pub routes: Vec<RouteSpec>,
    /// By host, as routes name them.
    pub certificates: BTreeMap<String, Arc<CertifiedKey>>,
}

/// A port of a service and the upstreams behind it.
#[derive(Debug)]
pub struct Pool {
    key: PoolKey,
    wanted: Arc<[Member]>,
    /// In the order of `wanted`, with what each is told.
    all: Vec<(Arc<Upstream>, State)>,
    members: Vec<Arc<Upstream>>,
}

impl Pool {
    pub fn key(&self) -> &PoolKey {
        &self.key
    }

    /// Those that take requests.
    pub fn members(&self) -> &[Arc<Upstream>] {
        &self.members
    }

    /// All of them, with what the router makes of each.
    pub fn all(&self) -> &[(Arc<Upstream>, State)] {
        &self.all
    }

    fn new(key: &PoolKey, wanted: &Arc<[Member]>, before: Option<&Self>) -> Self {
        let newest = newest(wanted);
        let mut all = Vec::with_capacity(wanted.len());
        for member in wanted.iter() {
            let upstream = before.and_then(|pool| pool.find(member)).map_or_else(
                || Arc::new(Upstream::new(member.key(key.port), member.target.clone())),
                Arc::clone,
            );
            let is_newest = newest.get(&member.replica).is_none_or(|g| *g == member.generation);
            let state = match member.state {
                State::In if !is_newest => State::Draining { grace: SUPERSEDED_GRACE },
                state => state,
            };
            all.push((upstream, state));
        }
        let is_in = |(upstream, state): &(Arc<Upstream>, State)| {
            (*state == State::In).then(|| Arc::clone(upstream))
        };
        let members = all.iter().filter_map(is_in).collect();
        Self { key: key.clone(), wanted: Arc::clone(wanted), all, members }
    }

    /// The upstream that this member was before: the same generation of the same replica at the same place.
    fn find(&self, member: &Member) -> Option<&Arc<Upstream>> {
        let is_same = |upstream: &Arc<Upstream>| {
            let key = upstream.key();
            key.replica == member.replica
                && key.generation == member.generation
                && *upstream.target() == member.target
        };
        self.all.iter().map(|(upstream, _)| upstream).find(|upstream| is_same(upstream))
    }
}

impl Member {
    fn key(&self, port: u16) -> UpstreamKey {
        UpstreamKey { replica: Arc::clone(&self.replica), generation: self.generation, port }
    }
}

/// The newest generation of each replica that is in.
fn newest(members: &[Member]) -> BTreeMap<&Arc<str>, u64> {
    let mut newest = BTreeMap::new();
    for member in members.iter().filter(|member| member.state == State::In) {
        let generation = newest.entry(&member.replica).or_insert(member.generation);
        *generation = member.generation.max(*generation);
    }
    newest
}

/// A route with its pool at hand.
#[derive(Debug)]
pub struct Route {
    pub spec: RouteSpec,
    pub pool: Arc<Pool>,
    pub meter: Arc<RouteMeter>,
}

/// See the module's own words.
#[derive(Debug, Default)]
pub struct Table {
    pools: BTreeMap<PoolKey, Arc<Pool>>,
    published: BTreeMap<Published, Arc<Pool>>,
    routes: Hosts<Vec<Arc<Route>>>,
    certificates: Hosts<Arc<CertifiedKey>>,
}

impl Table {
    /// The table that does what is wanted. What it shares with this one stays as it is; telling upstreams how they
    /// stand is left to [`Table::settle`], once the new table is in use.
    pub fn next(&self, wanted: &Wanted) -> Self {
        let mut pools = BTreeMap::new();
        for (key, members) in &wanted.pools {
            pools.insert(key.clone(), self.next_pool(key, members));
        }
        let leading =
            wanted.routes.iter().map(|route| &route.pool).chain(wanted.published.values());
        for key in leading {
            // A service without replicas is a pool without members: it answers that nobody is there.
            if !pools.contains_key(key) {
                pools.insert(key.clone(), self.next_pool(key, &Arc::default()));
            }
        }
        let published = wanted.published.iter();
        let published = published.map(|(at, key)| (*at, Arc::clone(&pools[key]))).collect();
        let routes = self.next_routes(&wanted.routes, &pools);
        let certificates = wanted.certificates.iter();
        let certificates = certificates.map(|(host, key)| (Some(host.as_str()), Arc::clone(key)));
        Self { routes, published, certificates: certificates.collect(), pools }
    }

    fn next_pool(&self, key: &PoolKey, members: &Arc<[Member]>) -> Arc<Pool> {
        let before = self.pools.get(key);
        match before {
            Some(pool) if Arc::ptr_eq(&pool.wanted, members) || pool.wanted == *members => {
                Arc::clone(pool)
            }
            _ => Arc::new(Pool::new(key, members, before.map(Arc::as_ref))),
        }
    }

    fn next_routes(
        &self,
        wanted: &[RouteSpec],
        pools: &BTreeMap<PoolKey, Arc<Pool>>,
    ) -> Hosts<Vec<Arc<Route>>> {
        let mut routes = Hosts::<Vec<Arc<Route>>>::default();
        for spec in wanted {
            let meter = self.route_at(spec.host.as_deref(), &spec.path);
            let meter = meter.map_or_else(Arc::default, |route| Arc::clone(&route.meter));
            let pool = Arc::clone(&pools[&spec.pool]);
            let route = Arc::new(Route { spec: spec.clone(), pool, meter });
            routes.entry(spec.host.as_deref()).push(route);
        }
        // The longest prefix first; of equal ones, which are refused before they come here, the first.
        routes.each(|paths| paths.sort_by_key(|route| std::cmp::Reverse(route.spec.path.len())));
        routes
    }

    /// Tells every upstream of this table how it stands, and those that only the one before had that they are gone.
    pub fn settle(&self, before: &Self, now: Moment) {
        for (key, pool) in &self.pools {
            let old = before.pools.get(key);
            if old.is_some_and(|old| Arc::ptr_eq(old, pool)) {
                continue;
            }
            for (upstream, state) in &pool.all {
                upstream.settle(Some(*state), now);
            }
            for (upstream, _) in old.into_iter().flat_map(|old| &old.all) {
                if !pool.all.iter().any(|(kept, _)| Arc::ptr_eq(kept, upstream)) {
                    upstream.settle(None, now);
                }
            }
        }
        for (_, pool) in before.pools.iter().filter(|(key, _)| !self.pools.contains_key(key)) {
            for (upstream, _) in &pool.all {
                upstream.settle(None, now);
            }
        }
    }

    /// The route of a request: the most specific host that has a fitting path, and of its paths the longest.
    pub fn route(&self, host: &str, path: &str) -> Option<&Arc<Route>> {
        self.routes.find(host, |paths| paths.iter().find(|route| is_below(path, &route.spec.path)))
    }

    /// Every route that is asked for in exactly these words.
    fn route_at(&self, host: Option<&str>, path: &str) -> Option<&Arc<Route>> {
        self.routes.get(host)?.iter().find(|route| route.spec.path == path)
    }

    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter().flatten()
    }

    pub fn certificate(&self, host: &str) -> Option<&Arc<CertifiedKey>> {
        self.certificates.find(host, Some)
    }

    pub fn published(&self) -> impl Iterator<Item = (Published, &Arc<Pool>)> {
        self.published.iter().map(|(at, pool)| (*at, pool))
    }

    pub fn published_pool(&self, at: Published) -> Option<&Arc<Pool>> {
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
