//! How often this process has started its control plane over, which outlives each of them.

use std::sync::atomic::{AtomicU64, Ordering};

static RESTARTS: AtomicU64 = AtomicU64::new(0);

/// Notes that this process starts its control plane over, after a panic or a failure of the log.
pub fn count() {
    RESTARTS.fetch_add(1, Ordering::Relaxed);
}

/// How often it has: each is a bug or a bad disk.
pub fn so_far() -> u64 {
    RESTARTS.load(Ordering::Relaxed)
}
