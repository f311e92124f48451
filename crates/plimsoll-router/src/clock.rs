//! Monotonic time in milliseconds since this process began to route. Only this module reads a clock.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// A moment of this process, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// This much later, saturating.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// The time since `earlier`; zero if that is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn now() -> Moment {
    Moment(millis(start().elapsed()))
}

/// That moment as an instant, for timers.
pub(crate) fn instant(moment: Moment) -> Instant {
    let wait = moment.since(now()).min(FAR);
    Instant::now() + wait
}

/// Longer than any process runs, and short enough for every timer.
const FAR: Duration = Duration::from_hours(365 * 24);

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}
