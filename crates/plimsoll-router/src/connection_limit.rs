//! The limit on clients that are connected at once: one more evicts the connection that has been idle longest.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::activity::Activity;
use crate::clock;

/// How many connections are compared to find the one that has been idle longest: nearly the longest of all, at the price of
/// a few.
const SAMPLE: usize = 64;

/// One connected client.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    pub(crate) activity: Activity,
    evict: Notify,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlot {
    /// Returns once the connection is to be closed in favour of another client.
    pub(crate) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

/// All connections of clients.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    count: u32,
    free: Arc<Semaphore>,
    taken: Mutex<Vec<Weak<ConnectionSlot>>>,
}

impl ConnectionLimit {
    pub(crate) fn new(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX >> 3);
        Self { count, free: Arc::new(Semaphore::new(count as usize)), taken: Mutex::default() }
    }

    /// Returns once no client is connected.
    pub(crate) async fn all_free(&self) {
        let _all = self.free.acquire_many(self.count).await.expect("the semaphore is never closed");
    }

    /// A slot for one more client; if there is none, an idle connection is evicted.
    pub(crate) async fn acquire(&self, roll: u64) -> Arc<ConnectionSlot> {
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(roll).await,
        };
        let activity = Activity::new(clock::now());
        let slot = Arc::new(ConnectionSlot { activity, evict: Notify::new(), _permit: permit });
        let mut taken = self.taken.lock().expect("no holder panics");
        if taken.len() == taken.capacity() {
            taken.retain(|slot| slot.strong_count() > 0);
        }
        taken.push(Arc::downgrade(&slot));
        slot
    }

    async fn wait(&self, mut roll: u64) -> OwnedSemaphorePermit {
        /// If no connection is idle yet, look again after this.
        const RETRY: Duration = Duration::from_millis(20);
        loop {
            if let Some(slot) = self.idlest(roll) {
                slot.evict.notify_one();
            }
            let free = Arc::clone(&self.free).acquire_owned();
            if let Ok(permit) = tokio::time::timeout(RETRY, free).await {
                return permit.expect("the semaphore is never closed");
            }
            roll = roll.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        }
    }

    /// The connection of a sample that has been idle longest.
    fn idlest(&self, roll: u64) -> Option<Arc<ConnectionSlot>> {
        let taken = self.taken.lock().expect("no holder panics");
        let first = usize::try_from(roll % taken.len().max(1) as u64).unwrap_or(0);
        let (before, after) = taken.split_at(first.min(taken.len()));
        let slots = after.iter().chain(before).filter_map(Weak::upgrade);
        slots
            .filter(|slot| !slot.activity.is_busy())
            .take(SAMPLE)
            .min_by_key(|slot| slot.activity.idle_since())
    }
}
