//! What a replica has used, and how fast that is.

use std::time::Instant;

use plimsoll_model::{Bytes, MilliCpus};

/// Processor time in microseconds, counted since some start that nobody needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CpuTime(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Cumulative; a [`Meter`] makes a rate of it.
    pub cpu: CpuTime,
    pub memory: Bytes,
}

/// Makes a rate out of a counter. Silence is not data: without an earlier reading, or with one that the counter has
/// fallen behind, there is no sample.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    last: Option<(Instant, CpuTime)>,
}

impl Meter {
    pub fn read(&mut self, at: Instant, total: CpuTime) -> Option<MilliCpus> {
        let (then, before) = self.last.replace((at, total))?;
        let micros = at.checked_duration_since(then)?.as_micros();
        let used = u128::from(total.0.checked_sub(before.0)?);
        if micros == 0 {
            return None;
        }
        u64::try_from((used * 1_000).div_ceil(micros)).ok().map(MilliCpus)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rate_needs_two_readings_that_follow_each_other() {
        let start = Instant::now();
        for (case, readings, rate) in [
            ("the first reading says nothing", &[(0, 500)][..], None),
            ("half a core for a second", &[(0, 500), (1_000, 500_500)], Some(500)),
            ("two cores for half a second", &[(0, 0), (500, 1_000_000)], Some(2_000)),
            ("an idle second is a sample of zero", &[(0, 9), (1_000, 9)], Some(0)),
            ("a counter that started anew", &[(0, 900_000), (1_000, 10)], None),
            ("the one after it counts again", &[(0, 9_000), (500, 0), (1_500, 250_000)], Some(250)),
            ("no time has passed", &[(5, 0), (5, 10)], None),
        ] {
            let mut meter = Meter::default();
            let mut last = None;
            for (at, total) in readings {
                last = meter.read(start + Duration::from_millis(*at), CpuTime(*total));
            }
            assert_eq!(last, rate.map(MilliCpus), "{case}");
        }
    }
}
