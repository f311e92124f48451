//! What a client's connection is doing, so that a slow one can be closed and an idle one evicted. It costs one timer per
//! connection, which is checked when it fires, not one per request.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::clock::{self, Moment};
use crate::limits::RouterLimits;

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
}

impl Activity {
    pub(crate) fn new(now: Moment) -> Self {
        let activity = Self::default();
        activity.moved(now);
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
    pub(crate) fn greeted(&self) {
        self.head_began.store(0, Relaxed);
    }

    pub(crate) fn begin(&self) {
        self.busy.fetch_add(1, Relaxed);
        self.head_began.store(0, Relaxed);
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

    pub(crate) fn idle_since(&self) -> Moment {
        Moment(self.idle_since.load(Relaxed))
    }

    /// When its request, or the request head it is sending, times out; none while it is idle.
    fn deadline(&self, limits: &RouterLimits) -> Option<Moment> {
        if self.is_busy() {
            return Some(self.last_moved().after(limits.idle));
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

    /// Returns once it has been idle for the keep-alive timeout.
    pub(crate) async fn keep_alive_ends(&self, limits: &RouterLimits) {
        loop {
            let idle = clock::now().since(self.idle_since());
            if !self.is_busy() && idle >= limits.keep_alive {
                return;
            }
            let left = limits.keep_alive.saturating_sub(idle);
            // With a request in flight the idle time starts when it ends.
            tokio::time::sleep(if left.is_zero() { limits.keep_alive } else { left }).await;
        }
    }
}
