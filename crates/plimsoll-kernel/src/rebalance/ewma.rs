//! A mean in which what is older counts for less, by how long ago it was and not by how many samples came since. Whole
//! numbers throughout, the exponential included, so that every machine computes the same.

use plimsoll_model::{Millis, NodePressure, Pressure, Timestamp};

/// One, in the fixed point of weights. Binary, because thousands of means are fed in a cycle and a shift is cheaper than a
/// division.
const ONE: u64 = 1 << SHIFT;
const SHIFT: u32 = 48;

/// 1/e in that fixed point.
const ONE_OVER_E: u64 = 103_548_857_136_061;

/// Beyond so many windows nothing of the past is left.
const FORGOTTEN: u64 = 34;

/// A millionth of a share, in the fixed point of means: values are kept finer than they are told.
const FINE: u64 = 1_000_000;

/// A smoothed share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ewma {
    /// In [`FINE`] parts of a millionth.
    value: u64,
    at: Timestamp,
}

impl Ewma {
    /// The first sample is all there is.
    pub fn seed(at: Timestamp, sample: Pressure) -> Self {
        Self { value: fine(sample), at }
    }

    /// As it was when someone wrote it down, in millionths of a millionth.
    pub fn recall(at: Timestamp, fine: u64) -> Self {
        Self { value: fine, at }
    }

    /// Takes in a sample. One from the past changes nothing: time never runs backwards.
    pub fn feed(&mut self, at: Timestamp, sample: Pressure, window: Millis) {
        self.take_in(at, sample, &mut Decay::new(window));
    }

    pub(super) fn take_in(&mut self, at: Timestamp, sample: Pressure, decay: &mut Decay) {
        if at <= self.at {
            return;
        }
        self.value = faded(self.value, fine(sample), decay.after(at.since(self.at)));
        self.at = at;
    }

    /// Rises with the mean at once, and falls towards it slowly.
    pub(super) fn peak_of(&mut self, mean: &Self, decay: &mut Decay) {
        if mean.at > self.at {
            self.value = faded(self.value, mean.value, decay.after(mean.at.since(self.at)));
            self.at = mean.at;
        }
        self.value = self.value.max(mean.value);
    }

    /// What was moved away or here is counted at once, and not only once it has come through.
    pub fn shift(&mut self, by: i64) {
        let amount = by.unsigned_abs().saturating_mul(FINE);
        self.value = if by < 0 {
            self.value.saturating_sub(amount)
        } else {
            self.value.saturating_add(amount)
        };
    }

    pub fn value(&self) -> Pressure {
        let millionths = (self.value.saturating_add(FINE / 2)) / FINE;
        Pressure::from_millionths(u32::try_from(millionths).unwrap_or(u32::MAX))
    }

    /// All of it, in millionths of a millionth: what [`recall`](Self::recall) takes.
    pub fn fine(&self) -> u64 {
        self.value
    }

    /// When it last took in a sample.
    pub fn at(&self) -> Timestamp {
        self.at
    }
}

/// The smoothed pressure of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmoothedPressure {
    pub cpu: Ewma,
    pub memory: Ewma,
}

impl SmoothedPressure {
    pub(super) fn seed(at: Timestamp, sample: NodePressure) -> Self {
        Self { cpu: Ewma::seed(at, sample.cpu), memory: Ewma::seed(at, sample.memory) }
    }

    pub(super) fn take_in(&mut self, at: Timestamp, sample: NodePressure, decay: &mut Decay) {
        self.cpu.take_in(at, sample.cpu, decay);
        self.memory.take_in(at, sample.memory, decay);
    }

    pub(super) fn peak_of(&mut self, mean: &Self, decay: &mut Decay) {
        self.cpu.peak_of(&mean.cpu, decay);
        self.memory.peak_of(&mean.memory, decay);
    }

    pub(super) fn give(&mut self, off: NodePressure) {
        self.cpu.shift(-i64::from(off.cpu.millionths()));
        self.memory.shift(-i64::from(off.memory.millionths()));
    }

    pub(super) fn take(&mut self, on: NodePressure) {
        self.cpu.shift(i64::from(on.cpu.millionths()));
        self.memory.shift(i64::from(on.memory.millionths()));
    }

    pub fn value(&self) -> NodePressure {
        NodePressure { cpu: self.cpu.value(), memory: self.memory.value() }
    }

    /// When it last took in a sample.
    pub fn at(&self) -> Timestamp {
        self.cpu.at()
    }
}

fn fine(sample: Pressure) -> u64 {
    u64::from(sample.millionths()) * FINE
}

fn wide(one: u64, other: u64) -> u128 {
    u128::from(one) * u128::from(other)
}

fn narrow(product: u128) -> u64 {
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// How much of the past is left after a span. Nodes report at about the same pace, so the last answer is kept.
#[derive(Debug, Clone, Copy)]
pub struct Decay {
    window: Millis,
    last: (Millis, u64),
}

impl Decay {
    pub fn new(window: Millis) -> Self {
        Self { window, last: (Millis(0), ONE) }
    }

    pub(super) fn after(&mut self, span: Millis) -> u64 {
        if self.last.0 != span {
            self.last = (span, exp_minus(span, self.window));
        }
        self.last.1
    }
}

/// The mean of what was and a sample, by how much is left of what was.
pub(super) fn faded(before: u64, sample: u64, kept: u64) -> u64 {
    let sum = wide(before, kept) + wide(sample, ONE - kept);
    narrow((sum + u128::from(ONE / 2)) >> SHIFT)
}

/// `exp(-span / window)`: whole windows by repeated multiplication, the rest by its series.
fn exp_minus(span: Millis, window: Millis) -> u64 {
    let window = window.0.max(1);
    let (whole, rest) = (span.0 / window, span.0 % window);
    if whole >= FORGOTTEN {
        return 0;
    }
    let times = |one: u64, other: u64| narrow((wide(one, other) + u128::from(ONE / 2)) >> SHIFT);
    let past = (0..whole).fold(ONE, |product, _| times(product, ONE_OVER_E));
    let x = narrow(wide(rest, ONE) / u128::from(window));
    // 1 - x + x²/2 - x³/6 …: below one each term is smaller than the one before, and soon nothing.
    let (mut sum, mut term, mut nth) = (ONE, ONE, 1);
    loop {
        term = times(term, x) / nth;
        if term == 0 {
            return times(past, sum);
        }
        sum = if nth % 2 == 1 { sum - term } else { sum + term };
        nth += 1;
    }
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
    fn the_exponential_is_right_to_twelve_digits_and_the_same_everywhere() {
        for (millis, window, digits) in [
            (30_000, 300_000, 904_837_418_036_u64),
            (299_999, 300_000, 367_880_667_438),
            (300_000, 300_000, 367_879_441_171),
            (1_234_567, 300_000, 16_322_294_690),
            (1, 300_000, 999_996_666_672),
            (7, 0, 911_881_966),
        ] {
            let kept = exp_minus(Millis(millis), Millis(window));
            let found = narrow((wide(kept, 1_000_000_000_000) + u128::from(ONE / 2)) >> SHIFT);
            assert!(found.abs_diff(digits) <= 1, "{millis} of {window}: {found}");
        }
        assert_eq!(exp_minus(Millis(30_000), Millis(300_000)), 254_689_091_168_603);
    }

    #[test]
    fn what_was_written_down_is_recalled_to_the_last_digit() {
        let mut mean = Ewma::seed(at(0), Pressure::percent(37));
        mean.feed(at(31), Pressure::percent(93), WINDOW);
        assert_eq!(Ewma::recall(mean.at(), mean.fine()), mean);
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
