//! One replica's port, as the router knows it while tables come and go: how much is under way, whether connections to it
//! fail just now, since when it takes part, and whether it is on its way out. Decisions about it take the time as an
//! argument; whoever connects tells how it went.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{self, Moment};
use crate::http::Links;
use crate::metrics::UpstreamMeter;

/// How long after the first failed connection an upstream is tried again. Doubled by each trial that fails.
const FIRST_EJECTION: Duration = Duration::from_millis(250);

/// The longest that nobody tries an upstream: one that came back is found within this.
const LONGEST_EJECTION: Duration = Duration::from_secs(8);

/// How long a new upstream takes to get its full share. Caches fill and code is compiled in the first seconds.
pub const SLOW_START: Duration = Duration::from_secs(10);

/// A whole share of the requests, and the least that a newcomer begins with.
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
    /// The same container's, at another port.
    pub(crate) fn at(&self, port: u16) -> Self {
        Self { replica: Arc::clone(&self.replica), generation: self.generation, port }
    }

    /// Where a port of its container is, given where its own is. The two may differ where the container's ports lead
    /// elsewhere; only one that stands for all ports is asked for others.
    pub(crate) fn address(&self, own: SocketAddr, port: u16) -> SocketAddr {
        if port == self.port { own } else { SocketAddr::new(own.ip(), port) }
    }
}

/// How an upstream is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// An address that this node can connect to.
    Local(SocketAddr),
    /// Through the daemon of the node it runs on, which knows the upstream by its key.
    Via { node: Arc<str> },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(address) => write!(f, "{address}"),
            Self::Via { node } => write!(f, "node {node}"),
        }
    }
}

/// What the router is told of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Known, but not healthy yet: nothing is sent there.
    Joining,
    In,
    /// Takes nothing new. What is under way may end within the grace and is cut off after it.
    Draining {
        grace: Duration,
    },
}

/// How an upstream stands, for those who are connected to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Joining,
    In,
    /// Everything still open then is cut.
    Draining {
        until: Moment,
    },
    Gone,
}

/// See the module's own words.
pub struct Upstream {
    key: UpstreamKey,
    target: Target,
    in_flight: AtomicU32,
    failures: AtomicU32,
    ejected_until: AtomicU64,
    joined: AtomicU64,
    standing: watch::Sender<Standing>,
    /// It is about to stop, and not even other nodes' streams are taken for it.
    is_closed: AtomicBool,
    pub(crate) meter: UpstreamMeter,
    pub(crate) links: Links,
}

impl Upstream {
    pub fn new(key: UpstreamKey, target: Target) -> Self {
        Self {
            key,
            target,
            in_flight: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            standing: watch::Sender::new(Standing::Joining),
            is_closed: AtomicBool::new(false),
            meter: UpstreamMeter::default(),
            links: Links::default(),
        }
    }

    pub fn key(&self) -> &UpstreamKey {
        &self.key
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(SeqCst)
    }

    pub fn standing(&self) -> Standing {
        *self.standing.borrow()
    }

    /// Takes note of what it was told. A drain that was called off leaves nothing behind, and one that goes on keeps
    /// the end it began with.
    pub fn settle(&self, state: Option<State>, now: Moment) {
        self.standing.send_if_modified(|standing| {
            let next = match (state, *standing) {
                (None, _) => Standing::Gone,
                (Some(State::Joining), _) => Standing::Joining,
                (Some(State::In), _) => Standing::In,
                (Some(State::Draining { grace }), Standing::Draining { until }) => {
                    Standing::Draining { until: until.min(now.after(grace)) }
                }
                (Some(State::Draining { grace }), _) => {
                    Standing::Draining { until: now.after(grace) }
                }
            };
            if next == Standing::In && matches!(*standing, Standing::Joining) {
                self.joined.store(now.0, Relaxed);
            }
            let is_new = next != *standing;
            *standing = next;
            is_new
        });
        if self.is_kept() {
            self.is_closed.store(false, SeqCst);
        } else {
            // Idle connections are ours to close first, so that no request is sent on one that the upstream closes.
            self.links.clear();
        }
    }

    /// The share of requests it may have, out of [`FULL_WEIGHT`].
    pub fn weight(&self, now: Moment) -> u32 {
        let joined = self.joined.load(Relaxed);
        if joined == 0 {
            return FULL_WEIGHT;
        }
        let (age, whole) = (now.since(Moment(joined)), clock::millis(SLOW_START));
        let rise = u64::from(FULL_WEIGHT - FIRST_WEIGHT) * clock::millis(age).min(whole) / whole;
        FIRST_WEIGHT + u32::try_from(rise).unwrap_or(0)
    }

    /// Whether connections to it have failed, and none has been made since.
    pub fn is_suspect(&self) -> bool {
        self.failures.load(Relaxed) != 0
    }

    pub fn is_ejected(&self, now: Moment) -> bool {
        now.0 < self.ejected_until.load(Relaxed)
    }

    pub fn ejected_until(&self) -> Moment {
        Moment(self.ejected_until.load(Relaxed))
    }

    /// A connection could not be made. Those that fail together are one failure.
    pub fn note_failure(&self, now: Moment) {
        self.meter.connect_errors.add(1);
        self.suspect(now);
    }

    /// There is reason to think that no connection could be made.
    pub fn suspect(&self, now: Moment) {
        let until = self.ejected_until.load(Relaxed);
        if now.0 < until {
            return;
        }
        let failures = self.failures.load(Relaxed);
        let next = now.after(pause(failures));
        if self.ejected_until.compare_exchange(until, next.0, Relaxed, Relaxed).is_ok() {
            self.failures.store(failures.saturating_add(1), Relaxed);
        }
    }

    /// Takes it upon the caller to try whether it can be reached again, if that is due; until it is known, it stays out.
    pub fn claim_trial(&self, now: Moment) -> bool {
        let until = self.ejected_until.load(Relaxed);
        let is_due = self.is_suspect() && now.0 >= until;
        let lease = now.after(LONGEST_EJECTION).0;
        is_due && self.ejected_until.compare_exchange(until, lease, Relaxed, Relaxed).is_ok()
    }

    /// A trial has failed.
    pub fn note_failed_trial(&self, now: Moment) {
        self.meter.connect_errors.add(1);
        let failures = self.failures.load(Relaxed);
        self.ejected_until.store(now.after(pause(failures)).0, Relaxed);
        self.failures.store(failures.saturating_add(1), Relaxed);
    }

    /// A connection was made.
    pub fn note_success(&self) {
        // Nearly always so already, and reading costs nothing.
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
            self.ejected_until.store(0, Relaxed);
        }
    }

    /// Counts one connection or request more, until what is returned is dropped.
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, SeqCst);
        InFlight(Arc::clone(self))
    }

    /// The same, unless it is about to stop.
    pub fn begin_if_open(self: &Arc<Self>) -> Option<InFlight> {
        // In this order, and `close` in the other: either this sees that it is closed, or whoever closed it sees this.
        let begun = self.begin();
        (!self.is_closed.load(SeqCst)).then_some(begun)
    }

    /// It is about to stop. Another node may not know yet that it leaves, and what it still sends is turned away, to be
    /// sent elsewhere.
    pub fn close(&self) {
        self.is_closed.store(true, SeqCst);
    }

    /// Returns when what is still open to this upstream must end.
    pub async fn cut(&self) {
        let mut standing = self.standing.subscribe();
        loop {
            let now = *standing.borrow_and_update();
            let changed = match now {
                Standing::Gone => return,
                Standing::Draining { until } => {
                    let end = tokio::time::sleep_until(clock::instant(until));
                    tokio::select! {
                        () = end => return,
                        changed = standing.changed() => changed,
                    }
                }
                Standing::In | Standing::Joining => standing.changed().await,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Whether a connection to it is worth keeping for later.
    pub fn is_kept(&self) -> bool {
        self.standing() == Standing::In
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({} at {}, {:?})", self.key, self.target, self.standing())
    }
}

/// How long an upstream is left alone after so many failures and one more.
fn pause(failures: u32) -> Duration {
    FIRST_EJECTION.saturating_mul(1 << failures.min(16)).min(LONGEST_EJECTION)
}

/// One connection or request under way.
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
