//! How much the log has grown since the last snapshot, in bytes: openraft counts entries, and a few thousand large ones are
//! more than a start should read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use openraft::async_runtime::WatchReceiver;
use openraft::{Raft, RaftMetrics};
use tokio::sync::Notify;

use super::KEPT_BYTES;
use super::state::StateMachine;
use super::store::WeakLogStore;
use super::types::Types;

/// What the log counts, and whoever makes snapshots is told.
#[derive(Debug, Default)]
pub(crate) struct LogGrowth {
    /// Since the last snapshot.
    bytes: AtomicU64,
    /// Of the last snapshot.
    snapshot: AtomicU64,
    limit: AtomicU64,
    due: Notify,
}

impl LogGrowth {
    /// Entries were written.
    pub(crate) fn add(&self, bytes: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let limit = self.limit.load(Ordering::Relaxed);
        // A large state is not written down more often than the log makes it worth.
        if limit > 0 && bytes >= limit.max(self.snapshot.load(Ordering::Relaxed)) {
            self.due.notify_one();
        }
    }

    /// A snapshot of so many bytes was written.
    pub(crate) fn begin_anew(&self, snapshot: u64) {
        self.hold(snapshot);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// There is a snapshot of so many bytes.
    pub(crate) fn hold(&self, snapshot: u64) {
        self.snapshot.store(snapshot, Ordering::Relaxed);
    }

    /// From now on a snapshot is due after so many bytes.
    pub(crate) fn limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        self.add(0);
    }

    /// Has snapshots made when the log has grown, until openraft ends.
    pub(crate) fn follow(self: Arc<Self>, raft: Raft<Types, StateMachine>, store: WeakLogStore) {
        tokio::spawn(async move {
            // These change with leaders and members alone; all of the metrics change with every heartbeat.
            let mut server = raft.server_metrics();
            loop {
                tokio::select! {
                    () = self.due.notified() => {}
                    changed = server.changed() => match changed {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                }
                if make(&raft, &store).await.is_none() {
                    return;
                }
            }
        });
    }
}

/// Makes a snapshot, and drops what of the log is more than a server that was away for a moment needs. None: it has ended.
async fn make(raft: &Raft<Types, StateMachine>, store: &WeakLogStore) -> Option<()> {
    let target = raft.metrics().borrow_watched().last_applied?.index;
    raft.trigger().snapshot().await.ok()?;
    let is_there = move |metrics: &RaftMetrics<Types>| {
        metrics.running_state.is_err()
            || metrics.snapshot.as_ref().is_some_and(|id| id.index >= target)
    };
    raft.wait(None).metrics(is_there, "a snapshot by bytes").await.ok()?;
    let held = raft.metrics().borrow_watched().snapshot?.index;
    let kept = store.first_within(KEPT_BYTES)?;
    if let Some(last) = kept.checked_sub(1) {
        raft.trigger().purge_log(last.min(held)).await.ok()?;
    }
    Some(())
}
