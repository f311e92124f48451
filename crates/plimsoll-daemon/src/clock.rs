//! What time it is, for decisions and for the audit. It follows the machine's clock and never jumps with it: whoever sets
//! that by an hour has not kept every node silent for an hour.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderName;
use plimsoll_model::Timestamp;

/// By this part of the time that passes it runs faster or slower until it is right again.
const CATCH_UP: i128 = 10;

/// A clock that is off by more was never set before: it is believed at once.
const NEVER_SET: Duration = Duration::from_hours(24);

/// The time by the clock of this node. Others' may differ; decisions compare no two clocks.
pub fn now() -> Timestamp {
    static CLOCK: LazyLock<(Instant, Mutex<MonotonicClock>)> =
        LazyLock::new(|| (Instant::now(), Mutex::new(MonotonicClock::started(wall()))));
    let (started, clock) = &*CLOCK;
    // What it holds is right at every moment, also where somebody panicked.
    let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
    let told = clock.tell(started.elapsed(), wall());
    Timestamp(u64::try_from(told.as_millis()).unwrap_or(u64::MAX))
}

/// What `/healthz` says of the machine's clock, for who compares clocks.
pub const CLOCK: HeaderName = HeaderName::from_static("plimsoll-clock");

/// The time as the machine has it, which other machines can be compared with; it may jump.
pub fn machine_time() -> Timestamp {
    Timestamp(u64::try_from(wall().as_millis()).unwrap_or(u64::MAX))
}

/// Since 1970, as the machine has it.
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[derive(Debug)]
struct MonotonicClock {
    /// When it was last asked, since it was started.
    at: Duration,
    /// What it said.
    told: Duration,
}

impl MonotonicClock {
    fn started(wall: Duration) -> Self {
        Self { at: Duration::ZERO, told: wall }
    }

    fn tell(&mut self, at: Duration, wall: Duration) -> Duration {
        let passed = at.saturating_sub(self.at);
        let right = self.told + passed;
        let [passed, ahead] = [passed, NEVER_SET].map(micros);
        let off = micros(wall) - micros(right);
        let by =
            if off.abs() > ahead { off } else { off.clamp(-passed / CATCH_UP, passed / CATCH_UP) };
        self.at = self.at.max(at);
        self.told = Duration::from_micros(u64::try_from(micros(right) + by).unwrap_or(0));
        self.told
    }
}

fn micros(span: Duration) -> i128 {
    i128::try_from(span.as_micros()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn day(nth: u64) -> Duration {
        Duration::from_hours(24 * nth)
    }

    #[test]
    fn it_goes_with_a_clock_that_is_right() {
        let mut clock = MonotonicClock::started(day(20_000));
        for second in 1..100 {
            let passed = SECOND * second;
            assert_eq!(clock.tell(passed, day(20_000) + passed), day(20_000) + passed);
        }
    }

    #[test]
    fn a_clock_that_is_set_by_an_hour_is_followed_slowly_and_in_the_end_met() {
        for is_ahead in [true, false] {
            let start = day(20_000);
            let mut clock = MonotonicClock::started(start);
            let set = |passed: Duration| {
                if is_ahead { start + passed + HOUR } else { (start + passed).saturating_sub(HOUR) }
            };
            let mut last = start;
            for second in 1..36_000 {
                let told = clock.tell(SECOND * second, set(SECOND * second));
                let step = told.checked_sub(last).expect("it never runs backwards");
                assert!((900..=1_100).contains(&step.as_millis()), "{step:?}");
                last = told;
            }
            let passed = SECOND * 36_100;
            assert_eq!(clock.tell(passed, set(passed)), set(passed));
        }
    }

    #[test]
    fn however_often_it_is_asked_it_catches_up_as_fast() {
        let start = day(20_000);
        let mut clock = MonotonicClock::started(start);
        let mut told = start;
        for milli in 1..=10_000 {
            let passed = Duration::from_millis(milli);
            told = clock.tell(passed, start + passed + HOUR);
        }
        assert_eq!(told, start + SECOND * 11);
    }

    #[test]
    fn a_clock_that_was_never_set_before_is_believed_at_once() {
        let mut clock = MonotonicClock::started(SECOND * 5);
        assert_eq!(clock.tell(SECOND, day(20_000)), day(20_000));
        assert_eq!(clock.tell(SECOND * 2, day(20_000) + SECOND), day(20_000) + SECOND);
    }
}
