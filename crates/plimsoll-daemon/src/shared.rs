//! A value that several loops of a daemon read and write.

use std::sync::{Arc, Mutex, MutexGuard};

/// Every clone is the same value. Hold it briefly: others wait for it. Whoever needs the replicated state as well takes the
/// state first.
#[derive(Debug, Default)]
pub struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("nothing panics while it holds what is shared")
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
