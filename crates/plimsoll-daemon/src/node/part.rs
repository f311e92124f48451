//! A part of a running node: a loop that ends when it is told to, and is noted when it ends unasked.

use tokio::sync::watch;

/// Whether a part may end though nobody told it to. None may panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MayEnd {
    Yes,
    No,
}

/// Dropped with the part it is about, also where that panics.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) may_end: MayEnd,
    pub(super) ended: watch::Sender<Option<&'static str>>,
    pub(super) stop: watch::Receiver<bool>,
}

impl Part {
    pub(super) async fn run(self, part: impl Future<Output = ()>) {
        part.await;
        drop(self);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let is_allowed = self.may_end == MayEnd::Yes && !std::thread::panicking();
        if !is_allowed && !*self.stop.borrow() {
            self.ended.send_replace(Some(self.name));
        }
    }
}
