//! A mean in which what is older counts for less, by how long ago it was and not by how many samples came since. Whole
//! numbers throughout, the exponential included, so that every machine computes the same.

use plimsoll_model::{Millis, Pressure, Timestamp};

/// One, in the fixed point of weights: twelve digits.
const ONE: i128 = 1_000_000_000_000;

/// 1/e in that fixed point.
const ONE_OVER_E: i128 = 367_879_441_171;

/// Beyond so many windows nothing of the past is left in twelve digits.
const FORGOTTEN: u64 = 28;

/// A millionth of a share, in the fixed point of means: values are kept finer than they are told.
const FINE: i128 = 1_000_000;

/// A smoothed share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ewma {
    /// In [`FINE`] parts of a millionth.
    value: i128,
    at: Timestamp,
}

impl Ewma {
    /// The first sample is all there is.
    pub fn seed(at: Timestamp, sample: Pressure) -> Self {
        Self { value: fine(sample), at }
    }

    /// Takes in a sample. One from the past changes nothing: time never runs backwards.
    pub fn feed(&mut self, at: Timestamp, sample: Pressure, window: Millis) {
        if at <= self.at {
            return;
        }
        let kept = exp_minus(at.since(self.at), window);
        self.value = (self.value * kept + fine(sample) * (ONE - kept) + ONE / 2) / ONE;
        self.at = at;
    }

    /// What was moved away or here is counted at once, and not only once it has come through.
    pub fn shift(&mut self, by: i64) {
        self.value = (self.value + i128::from(by) * FINE).max(0);
    }

    pub fn value(&self) -> Pressure {
        let millionths = (self.value + FINE / 2) / FINE;
        Pressure::from_millionths(u32::try_from(millionths).unwrap_or(u32::MAX))
    }

    /// When it last took in a sample.
    pub fn at(&self) -> Timestamp {
        self.at
    }
}

fn fine(sample: Pressure) -> i128 {
    i128::from(sample.millionths()) * FINE
}

/// `exp(-span / window)`, in twelve digits: whole windows by repeated multiplication, the rest by its series.
fn exp_minus(span: Millis, window: Millis) -> i128 {
    let window = window.0.max(1);
    let (whole, rest) = (span.0 / window, span.0 % window);
    if whole >= FORGOTTEN {
        return 0;
    }
    let mut product = ONE;
    for _ in 0..whole {
        product = (product * ONE_OVER_E + ONE / 2) / ONE;
    }
    let x = (i128::from(rest) * ONE) / i128::from(window);
    // 1 - x + x²/2 - x³/6 …: below one each term is smaller than the one before, and soon nothing.
    let (mut sum, mut term, mut nth) = (ONE, ONE, 1);
    while term != 0 {
        term = -(term * x) / (ONE * nth);
        sum += term;
        nth += 1;
    }
    (product * sum + ONE / 2) / ONE
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Millis = Millis::minutes(5);

    fn at(seconds: u64) -> Timestamp {
        Timestamp(1_000_000 + seconds * 1_000)
    }

    #[test]
    fn one_window_after_a_step_it_has_come_63_per_cent_of_the_way() {
        let mut mean = Ewma::seed(at(0), Pressure::ZERO);
        mean.feed(at(300), Pressure::FULL, WINDOW);
        assert_eq!(mean.value().millionths(), 632_121);
    }

    #[test]
    fn one_high_sample_after_nine_low_ones_moves_it_a_little() {
        let mut mean = Ewma::seed(at(0), Pressure::percent(20));
        for nth in 1..9 {
            mean.feed(at(nth * 30), Pressure::percent(20), WINDOW);
        }
        mean.feed(at(270), Pressure::FULL, WINDOW);
        assert_eq!(mean.value().millionths(), 276_130);
    }

    #[test]
    fn a_sample_from_the_past_changes_nothing() {
        let mut mean = Ewma::seed(at(60), Pressure::percent(40));
        let before = mean;
        mean.feed(at(30), Pressure::FULL, WINDOW);
        mean.feed(at(60), Pressure::FULL, WINDOW);
        assert_eq!(mean, before);
    }

    #[test]
    fn after_a_long_silence_only_the_new_sample_counts() {
        let mut mean = Ewma::seed(at(0), Pressure::FULL);
        mean.feed(at(86_400), Pressure::percent(10), WINDOW);
        assert_eq!(mean.value(), Pressure::percent(10));
    }

    #[test]
    fn many_small_steps_come_to_the_same_as_one() {
        let (mut small, mut large) =
            (Ewma::seed(at(0), Pressure::ZERO), Ewma::seed(at(0), Pressure::ZERO));
        for second in 1..=600 {
            small.feed(at(second), Pressure::percent(80), WINDOW);
        }
        large.feed(at(600), Pressure::percent(80), WINDOW);
        let apart = small.value().millionths().abs_diff(large.value().millionths());
        assert!(apart <= 1, "{apart}");
    }

    #[test]
    fn what_was_moved_is_counted_at_once_and_never_below_nothing() {
        let mut mean = Ewma::seed(at(0), Pressure::percent(96));
        mean.shift(-240_000);
        assert_eq!(mean.value(), Pressure::percent(72));
        mean.shift(-900_000);
        assert_eq!(mean.value(), Pressure::ZERO);
    }
}
