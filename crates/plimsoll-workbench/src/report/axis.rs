//! Axes whose ticks fall on round numbers, of hours and days as well as of tens.

use std::ops::Range;

use plimsoll_model::Millis;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// What people divide time by.
const TIME_STEPS: [u64; 25] = [
    1_000,
    2_000,
    5_000,
    10_000,
    15_000,
    30_000,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    5 * DAY,
    10 * DAY,
    20 * DAY,
    30 * DAY,
    60 * DAY,
    90 * DAY,
];

/// From zero to `end`, with these ticks.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) end: f64,
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    pub(super) fn time(length: Millis) -> Self {
        let fits = |step: &&u64| length.0 / **step <= 12;
        let step = *TIME_STEPS.iter().find(fits).unwrap_or(&TIME_STEPS[TIME_STEPS.len() - 1]);
        let ticks = (0..=length.0 / step).map(|n| plain(n * step)).collect();
        Self { end: plain(length.0.max(1)), ticks }
    }

    /// Up to at least `most`, in steps of whole numbers.
    pub(super) fn count(most: u64) -> Self {
        let decades = (0..18).map(|power| 10_u64.pow(power));
        let steps = decades.flat_map(|ten| [ten, 2 * ten, 5 * ten]);
        let step = steps.into_iter().find(|step| most / step <= 5).unwrap_or(most.max(1));
        let top = most.max(1).div_ceil(step);
        Self { end: plain(top * step), ticks: (0..=top).map(|n| plain(n * step)).collect() }
    }

    /// Shares of a node, in steps of hundredths.
    pub(super) fn share(most: f64) -> Self {
        let step = [0.05, 0.1, 0.25, 0.5, 1.0].into_iter().find(|step| most / step <= 5.0);
        let step = step.unwrap_or((most / 5.0).ceil());
        let top = (most / step).ceil().max(1.0);
        let mut ticks = vec![0.0];
        while ticks.len() < 8 && ticks[ticks.len() - 1] + step / 2.0 < top * step {
            ticks.push(ticks[ticks.len() - 1] + step);
        }
        Self { end: top * step, ticks }
    }
}

/// Counts and milliseconds stay far below the 2^52 that `f64` holds exactly.
#[expect(clippy::cast_precision_loss, reason = "said above")]
pub(super) fn plain(n: u64) -> f64 {
    n as f64
}

impl Ranged for Axis {
    type ValueType = f64;
    type FormatOption = DefaultFormatting;

    #[expect(clippy::cast_possible_truncation, reason = "a pixel lies within the limits given")]
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value / self.end).clamp(0.0, 1.0);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_fall_on_round_numbers() {
        let times = |minutes| {
            let axis = Axis::time(Millis::minutes(minutes));
            let ticks = axis.ticks.iter().map(|tick| tick / 60_000.0);
            ticks.map(|minutes| minutes.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(times(60), "0 5 10 15 20 25 30 35 40 45 50 55 60");
        assert_eq!(times(120), "0 10 20 30 40 50 60 70 80 90 100 110 120");
        assert_eq!(times(24 * 60), "0 120 240 360 480 600 720 840 960 1080 1200 1320 1440");
        assert_eq!(Axis::count(7).ticks, [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(Axis::count(0).ticks, [0.0, 1.0]);
        assert_eq!(Axis::share(0.83).ticks, [0.0, 0.25, 0.5, 0.75, 1.0]);
    }
}
