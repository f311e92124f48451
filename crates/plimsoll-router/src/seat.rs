//! A client's place among the connections: what it is doing, so that one that dawdles can be told to go, and one that is
//! idle can make room. It costs one timer a connection that is looked at when it rings, not one a request.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::clock::{self, Moment};
use crate::limits::Limits;

/// Of so many seats the one that has been idle longest makes room: nearly the longest of all, at the price of a few.
const SAMPLE: usize = 64;

/// What a connection is doing.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// When something last moved on it.
    moved: AtomicU64,
    /// When its last request ended, or it began.
    idle_since: AtomicU64,
    /// When the head that it is sending began; zero between heads.
    head_began: AtomicU64,
    /// Requests, or tunnels, under way.
    busy: AtomicU32,
}

impl Activity {
    fn new(now: Moment) -> Self {
        let activity = Self::default();
        activity.moved(now);
        activity.idle_since.store(now.0, Relaxed);
        activity
    }

    pub(crate) fn moved(&self, now: Moment) {
        self.moved.store(now.0, Relaxed);
    }

    /// Bytes came in of which, outside of a request, a head is made.
    pub(crate) fn received(&self, now: Moment) {
        self.moved(now);
        if self.busy.load(Relaxed) == 0 && self.head_began.load(Relaxed) == 0 {
            // Zero says that none began, so the first millisecond of a process is its second.
            self.head_began.store(now.0.max(1), Relaxed);
        }
    }

    /// What came in was not a head after all.
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

    fn idle_since(&self) -> Moment {
        Moment(self.idle_since.load(Relaxed))
    }

    /// By when something must have moved in its request, or its head must have come; none while it is idle.
    fn deadline(&self, limits: &Limits) -> Option<Moment> {
        if self.is_busy() {
            return Some(self.last_moved().after(limits.idle));
        }
        match self.head_began.load(Relaxed) {
            0 => None,
            began => Some(Moment(began).after(limits.header_read)),
        }
    }

    /// Returns once it has not. It is looked at as often as a head may take, because one may begin at any time.
    pub(crate) async fn dawdles(&self, limits: &Limits) {
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

    /// Returns once it has been idle for as long as it may.
    pub(crate) async fn is_done(&self, limits: &Limits) {
        loop {
            let idle = clock::now().since(self.idle_since());
            if !self.is_busy() && idle >= limits.keep_alive {
                return;
            }
            let left = limits.keep_alive.saturating_sub(idle);
            // Under way, it will have been idle for nothing when it ends.
            tokio::time::sleep(if left.is_zero() { limits.keep_alive } else { left }).await;
        }
    }
}

/// One connected client.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) activity: Activity,
    leave: Notify,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    /// Returns once it is asked to make room.
    pub(crate) async fn is_wanted_back(&self) {
        self.leave.notified().await;
    }
}

/// All seats.
#[derive(Debug)]
pub(crate) struct Seats {
    count: u32,
    free: Arc<Semaphore>,
    taken: Mutex<Vec<std::sync::Weak<Seat>>>,
}

impl Seats {
    pub(crate) fn new(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX >> 3);
        Self { count, free: Arc::new(Semaphore::new(count as usize)), taken: Mutex::default() }
    }

    /// Returns once nobody is seated.
    pub(crate) async fn all_free(&self) {
        let _all = self.free.acquire_many(self.count).await.expect("seats are never closed");
    }

    /// A seat; if there is none, an idle client is asked to give up its own.
    pub(crate) async fn take(&self, roll: u64) -> Arc<Seat> {
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(roll).await,
        };
        let activity = Activity::new(clock::now());
        let seat = Arc::new(Seat { activity, leave: Notify::new(), _permit: permit });
        let mut taken = self.taken.lock().expect("no holder panics");
        if taken.len() == taken.capacity() {
            taken.retain(|seat| seat.strong_count() > 0);
        }
        taken.push(Arc::downgrade(&seat));
        seat
    }

    async fn wait(&self, mut roll: u64) -> OwnedSemaphorePermit {
        /// Nobody may be idle just now: then it is asked again.
        const AGAIN: Duration = Duration::from_millis(20);
        loop {
            if let Some(seat) = self.idlest(roll) {
                seat.leave.notify_one();
            }
            let free = Arc::clone(&self.free).acquire_owned();
            if let Ok(permit) = tokio::time::timeout(AGAIN, free).await {
                return permit.expect("seats are never closed");
            }
            roll = roll.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        }
    }

    /// Of some, the one that has been idle longest.
    fn idlest(&self, roll: u64) -> Option<Arc<Seat>> {
        let taken = self.taken.lock().expect("no holder panics");
        let first = usize::try_from(roll % taken.len().max(1) as u64).unwrap_or(0);
        let (before, after) = taken.split_at(first.min(taken.len()));
        let seats = after.iter().chain(before).filter_map(std::sync::Weak::upgrade);
        seats
            .filter(|seat| !seat.activity.is_busy())
            .take(SAMPLE)
            .min_by_key(|seat| seat.activity.idle_since())
    }
}
