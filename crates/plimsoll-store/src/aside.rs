//! Work that takes long, or waits for the state, beside the tasks that share its thread: while it lasts, elections and
//! heartbeats must go on. With as many threads as processors, two who wait are enough to stop them all.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does it here, and has another thread take up the other tasks of this one. Where there is but one thread, by choice, they
/// wait.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
