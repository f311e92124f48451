//! One replica's port, which outlives tables: its requests in flight, whether it is ejected, when it joined, and whether it
//! drains. Decisions take the time as an argument; who connects notes whether that succeeded.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{self, Moment};
use crate::http::UpstreamConnections;
use crate::metrics::UpstreamMeter;

/// How long an upstream is ejected after its first failed connection. Doubled by each probe that fails.
const FIRST_EJECTION: Duration = Duration::from_millis(250);

/// The longest ejection: an upstream that recovered is found within this.
const LONGEST_EJECTION: Duration = Duration::from_secs(8);

/// How long a new upstream takes to get its full share. Caches fill and code is compiled in the first seconds.
pub const SLOW_START: Duration = Duration::from_secs(10);

/// The full weight, and the weight that a new upstream starts with.
pub const FULL_WEIGHT: u32 = 1_000;
const FIRST_WEIGHT: u32 = 100;

/// Which replica's port this is. Another generation is another upstream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamKey {
    pub replica: Arc<str>,
    pub generation: u64,
    pub port: u16,
}

impl fmt::Display for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (generation {}) port {}", self.replica, self.generation, self.port)
    }
}

impl UpstreamKey {
    /// Another port of the same container.
    pub(crate) fn at(&self, port: u16) -> Self {
        Self { replica: Arc::clone(&self.replica), generation: self.generation, port }
    }

    /// The address of a port of its container, given the address of its own. They may differ where ports of the container
    /// are mapped; only an upstream for any port is asked for others.
    pub(crate) fn address(&self, own: SocketAddr, port: u16) -> SocketAddr {
        if port == self.port { own } else { SocketAddr::new(own.ip(), port) }
    }
}

/// How an upstream is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UpstreamTarget {
    /// An address that this node can connect to.
    Local(SocketAddr),
    /// Through a tunnel to its node, which knows the upstream by its key.
    Via { node: Arc<str> },
}

impl fmt::Display for UpstreamTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(address) => write!(f, "{address}"),
            Self::Via { node } => write!(f, "node {node}"),
        }
    }
}

/// The state of a pool member, as the router is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// Not healthy yet: gets no requests.
    Joining,
    Ready,
    /// Gets no new requests. Those in flight may end within the grace period, and are cut off after it.
    Draining {
        grace: Duration,
    },
}

/// The state of an upstream, for those who are connected to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamState {
    Joining,
    Ready,
    /// Connections that are still open then are cut off.
    Draining {
        until: Moment,
    },
    Gone,
}

/// One replica's port.
pub struct Upstream {
    key: UpstreamKey,
    target: UpstreamTarget,
    proxied: Arc<[u16]>,
    in_flight: AtomicU32,
    failures: AtomicU32,
    ejected_until: AtomicU64,
    joined: AtomicU64,
    state: watch::Sender<UpstreamState>,
    /// It is stopping, and refuses tunnels of other nodes too.
    is_closed: AtomicBool,
    pub(crate) meter: UpstreamMeter,
    pub(crate) connections: UpstreamConnections,
}

impl Upstream {
    pub fn new(key: UpstreamKey, target: UpstreamTarget, proxied: Arc<[u16]>) -> Self {
        Self {
            key,
            target,
            proxied,
            in_flight: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            state: watch::Sender::new(UpstreamState::Joining),
            is_closed: AtomicBool::new(false),
            meter: UpstreamMeter::default(),
            connections: UpstreamConnections::default(),
        }
    }

    pub fn key(&self) -> &UpstreamKey {
        &self.key
    }

    pub fn target(&self) -> &UpstreamTarget {
        &self.target
    }

    /// The ports of its container at which connections begin with the address of their client.
    pub fn proxied(&self) -> &[u16] {
        &self.proxied
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(SeqCst)
    }

    pub fn state(&self) -> UpstreamState {
        *self.state.borrow()
    }

    /// Takes the configured state; none if it is not configured any more. A drain that is cancelled leaves no trace, and one
    /// that goes on keeps its deadline.
    pub fn set_state(&self, state: Option<MemberState>, now: Moment) {
        self.state.send_if_modified(|current| {
            let next = match (state, *current) {
                (None, _) => UpstreamState::Gone,
                (Some(MemberState::Joining), _) => UpstreamState::Joining,
                (Some(MemberState::Ready), _) => UpstreamState::Ready,
                (Some(MemberState::Draining { grace }), UpstreamState::Draining { until }) => {
                    UpstreamState::Draining { until: until.min(now.after(grace)) }
                }
                (Some(MemberState::Draining { grace }), _) => {
                    UpstreamState::Draining { until: now.after(grace) }
                }
            };
            if next == UpstreamState::Ready && matches!(*current, UpstreamState::Joining) {
                self.joined.store(now.0, Relaxed);
            }
            let is_new = next != *current;
            *current = next;
            is_new
        });
        if self.is_kept() {
            self.is_closed.store(false, SeqCst);
        } else {
            // Idle connections are closed first, so that no request is sent on one that the upstream closes.
            self.connections.clear();
        }
    }

    /// Its weight in load balancing, out of [`FULL_WEIGHT`].
    pub fn weight(&self, now: Moment) -> u32 {
        let joined = self.joined.load(Relaxed);
        if joined == 0 {
            return FULL_WEIGHT;
        }
        let (age, whole) = (now.since(Moment(joined)), clock::millis(SLOW_START));
        let rise = u64::from(FULL_WEIGHT - FIRST_WEIGHT) * clock::millis(age).min(whole) / whole;
        FIRST_WEIGHT + u32::try_from(rise).unwrap_or(0)
    }

    /// Whether connecting to it failed, and has not succeeded since.
    pub fn is_suspect(&self) -> bool {
        self.failures.load(Relaxed) != 0
    }

    pub fn is_ejected(&self, now: Moment) -> bool {
        now.0 < self.ejected_until.load(Relaxed)
    }

    pub fn ejected_until(&self) -> Moment {
        Moment(self.ejected_until.load(Relaxed))
    }

    /// Connecting failed. Failures at the same time count as one.
    pub fn note_failure(&self, now: Moment) {
        self.meter.connect_errors.add(1);
        self.eject(now);
    }

    /// Ejects it, because connecting would probably fail.
    pub fn eject(&self, now: Moment) {
        let until = self.ejected_until.load(Relaxed);
        if now.0 < until {
            return;
        }
        let failures = self.failures.load(Relaxed);
        let next = now.after(ejection(failures));
        if self.ejected_until.compare_exchange(until, next.0, Relaxed, Relaxed).is_ok() {
            self.failures.store(failures.saturating_add(1), Relaxed);
        }
    }

    /// Whether the caller is to probe it, which at most one caller is, when it is due. Until the result it stays ejected.
    pub fn claim_probe(&self, now: Moment) -> bool {
        let until = self.ejected_until.load(Relaxed);
        let is_due = self.is_suspect() && now.0 >= until;
        let lease = now.after(LONGEST_EJECTION).0;
        is_due && self.ejected_until.compare_exchange(until, lease, Relaxed, Relaxed).is_ok()
    }

    /// A probe failed.
    pub fn note_failed_probe(&self, now: Moment) {
        self.meter.connect_errors.add(1);
        let failures = self.failures.load(Relaxed);
        self.ejected_until.store(now.after(ejection(failures)).0, Relaxed);
        self.failures.store(failures.saturating_add(1), Relaxed);
    }

    /// Connecting succeeded.
    pub fn note_success(&self) {
        // Nearly always zero already, and reading is cheap.
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
            self.ejected_until.store(0, Relaxed);
        }
    }

    /// Counts a connection or request as in flight until the result is dropped.
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, SeqCst);
        InFlight(Arc::clone(self))
    }

    /// The same, unless it is stopping.
    pub fn begin_if_open(self: &Arc<Self>) -> Option<InFlight> {
        // Counted first, then checked, and `close` in the other order: either this sees that it is closed, or who closed it
        // sees this request.
        let begun = self.begin();
        (!self.is_closed.load(SeqCst)).then_some(begun)
    }

    /// It is stopping. Another node may not know yet that it drains; requests it still sends are refused, and retried
    /// elsewhere.
    pub fn close(&self) {
        self.is_closed.store(true, SeqCst);
    }

    /// Returns when connections that are still open to this upstream must be cut off.
    pub async fn cut(&self) {
        let mut current = self.state.subscribe();
        loop {
            let now = *current.borrow_and_update();
            let changed = match now {
                UpstreamState::Gone => return,
                UpstreamState::Draining { until } => {
                    let end = tokio::time::sleep_until(clock::instant(until));
                    tokio::select! {
                        () = end => return,
                        changed = current.changed() => changed,
                    }
                }
                UpstreamState::Ready | UpstreamState::Joining => current.changed().await,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Whether an idle connection to it is kept.
    pub fn is_kept(&self) -> bool {
        self.state() == UpstreamState::Ready
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({} at {}, {:?})", self.key, self.target, self.state())
    }
}

/// How long an upstream is ejected after this many earlier failures.
fn ejection(failures: u32) -> Duration {
    FIRST_EJECTION.saturating_mul(1 << failures.min(16)).min(LONGEST_EJECTION)
}

/// A connection or request in flight.
#[derive(Debug)]
pub struct InFlight(Arc<Upstream>);

impl InFlight {
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}
