//! How much dearer a step may be and still be taken: a temperature, and a threshold drawn for each step.

use crate::random::Random;

/// Entries of the table of thresholds: a power of two.
const ENTRIES: usize = 4_096;

/// Binary places of an entry before it meets a temperature.
const PLACES: u32 = 12;

/// Binary places of a temperature: where moves cost one each, what matters happens well below one.
pub(crate) const TEMPERATURE_PLACES: u32 = 10;

/// The hottest it gets: beyond it a threshold would not fit in 64 bits.
pub(crate) const MAX_TEMPERATURE: i64 = 1 << 44;

/// Draws `-ln(u)` times a temperature, for even `u`: a step no dearer than that is taken with the probability that
/// simulated annealing gives it, and what is drawn before the step is looked at can turn it away early.
#[derive(Debug)]
pub(crate) struct Thresholds(Vec<i64>);

impl Thresholds {
    pub(crate) fn new() -> Self {
        let entry = |nth: usize| {
            #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
            let u = (nth as f64 + 0.5) / ENTRIES as f64;
            #[expect(clippy::cast_possible_truncation, reason = "nine at most, before scaling")]
            let scaled = (-ln(u) * f64::from(1 << PLACES)) as i64;
            scaled
        };
        Self((0..ENTRIES).map(entry).collect())
    }

    #[inline]
    pub(crate) fn draw(&self, temperature: i64, random: &mut Random) -> i64 {
        let nth = random.draw() >> (64 - ENTRIES.trailing_zeros());
        let entry = self.0[usize::try_from(nth).unwrap_or(0)];
        // An entry is less than 2^16.
        (temperature * entry) >> (PLACES + TEMPERATURE_PLACES)
    }
}

/// The natural logarithm of a number above zero by a series: sums and products are the same on every machine, which a
/// system's own logarithm need not be.
fn ln(mut x: f64) -> f64 {
    let mut halvings = 0.0;
    while x < 0.5 {
        x *= 2.0;
        halvings += 1.0;
    }
    let y = (x - 1.0) / (x + 1.0);
    let (mut power, mut sum, mut n) = (y, 0.0, 1.0);
    while n < 60.0 {
        sum += power / n;
        power *= y * y;
        n += 2.0;
    }
    2.0 * sum - halvings * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_the_logarithm() {
        for x in [1e-4, 0.1, 0.25, 0.5, 0.9, 1.0] {
            assert!((ln(x) - f64::ln(x)).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn thresholds_have_the_temperature_as_their_mean() {
        let (thresholds, mut random) = (Thresholds::new(), Random::new(1));
        let sum: i64 =
            (0..100_000).map(|_| thresholds.draw(1_000 << TEMPERATURE_PLACES, &mut random)).sum();
        assert!((97_000_000..103_000_000).contains(&sum), "{sum}");
    }
}
