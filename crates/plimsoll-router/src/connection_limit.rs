//! The limits on clients that are connected at once, on the node, at one port and from one source. One more evicts the
//! connection that has been idle longest; a source that has its share and is idle nowhere is refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

use crate::activity::{Activity, EvictionLimits};
use crate::clock::{self, Moment};
use crate::limits::RouterLimits;
use crate::trusted_proxies::{Source, TrustedProxies};

/// How many connections are compared to find the one that has been idle longest: nearly the longest of all, at the price of
/// a few.
const SAMPLE: usize = 64;

/// From this part of its share on, in quarters, each new connection of a source evicts an idle one of the same source. An
/// evicted connection takes a moment to close, and what is left of the share is that moment.
const CROWDED_QUARTERS: usize = 3;

/// How often at most refused connections are logged: whoever causes them must not fill the log as well.
const REFUSALS_LOGGED: Duration = Duration::from_secs(10);

/// What a connection is for, which tells when it may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionUse {
    Http,
    /// Carried as it is.
    Carried,
}

/// One connected client.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    pub(crate) activity: Activity,
    evict: Notify,
    is_evicted: AtomicBool,
    _source: SourcePermit,
    _port: Option<OwnedSemaphorePermit>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlot {
    /// Returns once the connection is to be closed in favour of another client.
    pub(crate) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

/// Connections among which one is evicted.
#[derive(Debug, Default)]
struct Evictable(Vec<Weak<ConnectionSlot>>);

impl Evictable {
    fn push(&mut self, slot: &Arc<ConnectionSlot>) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|slot| slot.strong_count() > 0);
        }
        self.0.push(Arc::downgrade(slot));
    }

    /// Evicts the connection of a sample that has been idle longest. Says whether one was idle.
    fn evict_one(&self, roll: u64, limits: EvictionLimits) -> bool {
        let now = clock::now();
        let first = usize::try_from(roll % self.0.len().max(1) as u64).unwrap_or(0);
        let (before, after) = self.0.split_at(first.min(self.0.len()));
        let slots = after.iter().chain(before).filter_map(Weak::upgrade);
        let idle = slots.filter(|slot| !slot.is_evicted.load(Relaxed)).filter_map(|slot| {
            let since = slot.activity.evictable_since(now, limits)?;
            Some((since, slot))
        });
        let longest = idle.take(SAMPLE).min_by_key(|(since, _)| *since);
        if let Some((_, slot)) = &longest {
            slot.is_evicted.store(true, Relaxed);
            slot.evict.notify_one();
        }
        longest.is_some()
    }
}

/// The connections of each source that has any.
#[derive(Debug, Default)]
struct Sources(Mutex<HashMap<Source, SourceConnections>>);

#[derive(Debug, Default)]
struct SourceConnections {
    count: usize,
    slots: Evictable,
}

/// One connection in the share of its source; trusted proxies have none.
#[derive(Debug)]
pub(crate) struct SourcePermit(Option<(Arc<Sources>, Source)>);

impl Drop for SourcePermit {
    fn drop(&mut self) {
        let Some((sources, source)) = &self.0 else { return };
        let mut all = sources.0.lock().expect("no holder panics");
        if let Some(connections) = all.get_mut(source) {
            connections.count -= 1;
            if connections.count == 0 {
                all.remove(source);
            }
        }
    }
}

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct PortShare {
    free: Arc<Semaphore>,
    slots: Mutex<Evictable>,
}

/// All connections of clients.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    count: u32,
    free: Arc<Semaphore>,
    reserve: u32,
    reserved: Arc<Semaphore>,
    slots: Mutex<Evictable>,
    sources: Arc<Sources>,
    source_share: usize,
    port_share: u32,
    eviction: EvictionLimits,
    trusted: TrustedProxies,
    refusal_logged: AtomicU64,
}

/// As many permits as a semaphore can have of this count.
fn permits(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX >> 3)
}

fn semaphore(permits: u32) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits as usize))
}

impl ConnectionLimit {
    pub(crate) fn new(limits: &RouterLimits) -> Self {
        let (count, reserve) = (permits(limits.connections), permits(limits.reserved_connections));
        Self {
            count,
            free: semaphore(count),
            reserve,
            reserved: semaphore(reserve),
            slots: Mutex::default(),
            sources: Arc::default(),
            source_share: limits.source_connections,
            port_share: permits(limits.port_connections),
            eviction: EvictionLimits { quiet: limits.carried_quiet, mute: limits.header_read },
            trusted: limits.trusted_proxies.clone(),
            refusal_logged: AtomicU64::new(0),
        }
    }

    /// The share of a port that is listened on from now on.
    pub(crate) fn port(&self) -> PortShare {
        PortShare { free: semaphore(self.port_share), slots: Mutex::default() }
    }

    /// Returns once no client is connected.
    pub(crate) async fn all_free(&self) {
        let (all, reserved) = tokio::join!(
            self.free.acquire_many(self.count),
            self.reserved.acquire_many(self.reserve)
        );
        let _all = (
            all.expect("the semaphore is never closed"),
            reserved.expect("the semaphore is never closed"),
        );
    }

    /// Counts a new connection for its source. One that has its share is reset: to wait for its others to end would hold
    /// up everybody else at the port.
    pub(crate) async fn admit(
        &self,
        client: &TcpStream,
        from: IpAddr,
        roll: u64,
    ) -> Option<SourcePermit> {
        if self.trusted.contains(from) {
            return Some(SourcePermit(None));
        }
        let (permit, has_evicted) = self.count(Source::of(from), roll);
        if has_evicted {
            // The one that was evicted runs next and closes, so however fast others come, none is refused for its sake.
            yield_now().await;
        }
        if permit.is_none() {
            self.log_refusal(from);
            let _ = client.set_zero_linger();
        }
        permit
    }

    /// One more of this source, if it has not its share, and whether another was evicted.
    fn count(&self, source: Source, roll: u64) -> (Option<SourcePermit>, bool) {
        let mut all = self.sources.0.lock().expect("no holder panics");
        let connections = all.entry(source).or_default();
        let is_full = connections.count >= self.source_share;
        let is_crowded = connections.count * 4 >= self.source_share * CROWDED_QUARTERS;
        let has_evicted = is_crowded && connections.slots.evict_one(roll, self.eviction);
        if is_full {
            if connections.count == 0 {
                all.remove(&source);
            }
            return (None, has_evicted);
        }
        connections.count += 1;
        (Some(SourcePermit(Some((Arc::clone(&self.sources), source)))), has_evicted)
    }

    fn log_refusal(&self, from: IpAddr) {
        let (now, last) = (clock::now(), self.refusal_logged.load(Relaxed));
        if last == 0 || now.since(Moment(last)) >= REFUSALS_LOGGED {
            self.refusal_logged.store(now.0.max(1), Relaxed);
            let limit = self.source_share;
            tracing::warn!(%from, limit, "refusing connections of a source that has its share");
        }
    }

    /// A slot for one more client of a port; if there is none, an idle connection is evicted.
    pub(crate) async fn acquire(
        &self,
        source: SourcePermit,
        port: &PortShare,
        purpose: ConnectionUse,
        roll: u64,
    ) -> Arc<ConnectionSlot> {
        let at_port = match Arc::clone(&port.free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(&port.slots, [&port.free], roll).await,
        };
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(&self.slots, [&self.free], roll).await,
        };
        let slot = self.slot(source, Some(at_port), permit, purpose);
        port.slots.lock().expect("no holder panics").push(&slot);
        slot
    }

    /// A slot for one more client that asks for a service by its name: those have a reserve, so that what comes from outside
    /// cannot cut services off from each other.
    pub(crate) async fn acquire_by_name(
        &self,
        source: SourcePermit,
        roll: u64,
    ) -> Arc<ConnectionSlot> {
        let free = Arc::clone(&self.free).try_acquire_owned();
        let permit = match free.or_else(|_| Arc::clone(&self.reserved).try_acquire_owned()) {
            Ok(permit) => permit,
            Err(_) => self.wait(&self.slots, [&self.free, &self.reserved], roll).await,
        };
        self.slot(source, None, permit, ConnectionUse::Carried)
    }

    fn slot(
        &self,
        source: SourcePermit,
        port: Option<OwnedSemaphorePermit>,
        permit: OwnedSemaphorePermit,
        purpose: ConnectionUse,
    ) -> Arc<ConnectionSlot> {
        let activity = Activity::new(clock::now());
        if purpose == ConnectionUse::Carried {
            // Before anybody looks for an idle one.
            activity.carry();
        }
        let of_source = source.0.as_ref().map(|(_, source)| *source);
        let slot = Arc::new(ConnectionSlot {
            activity,
            evict: Notify::new(),
            is_evicted: AtomicBool::new(false),
            _source: source,
            _port: port,
            _permit: permit,
        });
        self.slots.lock().expect("no holder panics").push(&slot);
        if let Some(source) = of_source {
            let mut all = self.sources.0.lock().expect("no holder panics");
            if let Some(connections) = all.get_mut(&source) {
                connections.slots.push(&slot);
            }
        }
        slot
    }

    /// Waits for one of these semaphores, and evicts idle connections until there is room.
    async fn wait<const N: usize>(
        &self,
        slots: &Mutex<Evictable>,
        free: [&Arc<Semaphore>; N],
        mut roll: u64,
    ) -> OwnedSemaphorePermit {
        /// If no connection is idle yet, or the evicted one has not closed, look again after this.
        const RETRY: Duration = Duration::from_millis(20);
        loop {
            slots.lock().expect("no holder panics").evict_one(roll, self.eviction);
            for one in &free[1..] {
                if let Ok(permit) = Arc::clone(one).try_acquire_owned() {
                    return permit;
                }
            }
            let first = Arc::clone(free[0]).acquire_owned();
            if let Ok(permit) = tokio::time::timeout(RETRY, first).await {
                return permit.expect("the semaphore is never closed");
            }
            roll = roll.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        }
    }
}
