//! What a client's connection is doing, so that a slow one can be closed and an idle one evicted. It costs one timer per
//! connection, which is checked when it fires, not one per request.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::limits::RouterLimits;

/// When a connection that is carried as it is may be evicted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvictionLimits {
    /// Once it was quiet for this long.
    pub(crate) quiet: Duration,
    /// The same while nobody has said anything on it.
    pub(crate) mute: Duration,
}

/// What a connection is doing.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// When bytes were last sent or received.
    moved: AtomicU64,
    /// When its last request ended, or when it was accepted.
    idle_since: AtomicU64,
    /// When the request head that it is sending began; zero between heads.
    head_began: AtomicU64,
    /// Requests and tunnels in flight.
    busy: AtomicU32,
    /// Whether it is carried as it is, for as long as it lasts: nobody knows what its silence means.
    is_carried: AtomicBool,
    /// Whether it speaks HTTP/2, where bytes may be control frames and only parts of bodies count.
    has_frames: AtomicBool,
}

impl Activity {
    pub(crate) fn new(now: Moment) -> Self {
        let activity = Self::default();
        // Before it was accepted: so nothing has been said on it since.
        activity.moved(Moment(now.0.saturating_sub(1)));
        activity.idle_since.store(now.0, Relaxed);
        activity
    }

    pub(crate) fn moved(&self, now: Moment) {
        self.moved.store(now.0, Relaxed);
    }

    /// Bytes were received; outside of a request they are part of a request head.
    pub(crate) fn received(&self, now: Moment) {
        self.moved(now);
        if self.busy.load(Relaxed) == 0 && self.head_began.load(Relaxed) == 0 {
            // Zero means that none began, so the first millisecond counts as the second.
            self.head_began.store(now.0.max(1), Relaxed);
        }
    }

    /// What was received was not a request head: the preface of HTTP/2.
    fn greeted(&self) {
        self.head_began.store(0, Relaxed);
    }

    pub(crate) fn begin(&self) {
        self.busy.fetch_add(1, Relaxed);
        self.head_began.store(0, Relaxed);
        self.body_moved();
    }

    /// A part of a body was sent or received. On HTTP/1 the bytes themselves are noted.
    pub(crate) fn body_moved(&self) {
        if self.has_frames.load(Relaxed) {
            self.moved(clock::now());
        }
    }

    pub(crate) fn end(&self) {
        let now = clock::now();
        self.moved(now);
        self.idle_since.store(now.0, Relaxed);
        self.busy.fetch_sub(1, Relaxed);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Relaxed) > 0
    }

    pub(crate) fn last_moved(&self) -> Moment {
        Moment(self.moved.load(Relaxed))
    }

    fn idle_since(&self) -> Moment {
        Moment(self.idle_since.load(Relaxed))
    }

    /// The connection is carried as it is from now on.
    pub(crate) fn carry(&self) {
        self.begin();
        self.is_carried.store(true, Relaxed);
    }

    /// The connection speaks HTTP/2 from now on.
    pub(crate) fn speaks_frames(&self) {
        self.greeted();
        self.has_frames.store(true, Relaxed);
    }

    /// Since when it may be evicted: an HTTP connection while it has no request, a carried one once it was quiet for a while.
    /// One on which nobody has said anything yet is no better than an HTTP connection that sends no request.
    pub(crate) fn evictable_since(&self, now: Moment, limits: EvictionLimits) -> Option<Moment> {
        if self.is_carried.load(Relaxed) {
            let moved = self.last_moved();
            let is_mute = moved < self.idle_since();
            let limit = if is_mute { limits.mute } else { limits.quiet };
            return (now.since(moved) >= limit).then_some(moved);
        }
        (!self.is_busy()).then(|| self.idle_since())
    }

    /// Returns once no bytes were sent or received for that long.
    pub(crate) async fn is_quiet_for(&self, limit: Duration) {
        loop {
            let idle = clock::now().since(self.last_moved());
            if idle >= limit {
                return;
            }
            tokio::time::sleep(limit.saturating_sub(idle)).await;
        }
    }

    /// Returns once no request was in flight for that long.
    pub(crate) async fn is_free_for(&self, limit: Duration) {
        loop {
            let idle = clock::now().since(self.idle_since());
            if !self.is_busy() && idle >= limit {
                return;
            }
            let left = limit.saturating_sub(idle);
            // With a request in flight the idle time starts when it ends.
            tokio::time::sleep(if left.is_zero() { limit } else { left }).await;
        }
    }

    /// When its request, or the request head it is sending, times out; none while it is idle.
    fn deadline(&self, limits: &RouterLimits) -> Option<Moment> {
        if self.is_busy() {
            let is_http1 = !self.has_frames.load(Relaxed);
            return Some(self.last_moved().after(if is_http1 {
                limits.idle
            } else {
                limits.tunnel_idle
            }));
        }
        match self.head_began.load(Relaxed) {
            0 => None,
            began => Some(Moment(began).after(limits.header_read)),
        }
    }

    /// Returns once that has passed. Checked as often as a head may take, because one may begin at any time.
    pub(crate) async fn times_out(&self, limits: &RouterLimits) {
        loop {
            let now = clock::now();
            let left = match self.deadline(limits) {
                Some(deadline) if deadline <= now => return,
                Some(deadline) => deadline.since(now).min(limits.header_read),
                None => limits.header_read,
            };
            tokio::time::sleep(left).await;
        }
    }
}
