//! This node's time as the kernel counts it. It starts at the wall clock and then only goes forward, at the pace of
//! tokio's clock: a wall clock that jumps must not hasten or hold up a retry, and tests can pause it.

use std::time::Duration;

use plimsoll_model::{Millis, Timestamp};
use tokio::time::Instant;

use crate::context;

#[derive(Debug, Clone, Copy)]
pub(super) struct AgentClock {
    began: Instant,
    at: Timestamp,
}

impl AgentClock {
    pub(super) fn start() -> Self {
        Self { began: Instant::now(), at: context::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.plus(Millis(elapsed))
    }

    /// A millisecond late rather than early, since parts of one are lost on the way.
    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        self.began + Duration::from_millis(at.since(self.at).0 + 1)
    }
}
