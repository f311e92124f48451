//! As much of the crate of this name as openraft needs, in 530 bytes a histogram and without a table.

use std::fmt;
use std::marker::PhantomData;

/// Values of up to 64 binary digits, and zero.
const BUCKETS: usize = u64::BITS as usize + 1;

/// Counts by powers of two: bucket `n` has the values of `n` binary digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    counts: [u64; BUCKETS],
    data: PhantomData<T>,
}

/// What a histogram says of its values; each is rounded up to the end of its bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PercentileStats {
    pub samples: u64,
    pub p0_1: u64,
    pub p1: u64,
    pub p5: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
}

/// Histograms with their names, a line each.
#[derive(Debug, Clone)]
pub struct AsciiChart<T = ()>(Vec<(String, Histogram<T>)>);

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], data: PhantomData }
    }
}

impl<T> Histogram<T> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    pub fn record_n(&mut self, value: u64, count: u64) {
        let digits = u64::BITS - value.leading_zeros();
        self.counts[digits as usize] += count;
    }

    pub fn percentile_stats(&self) -> PercentileStats {
        let samples: u64 = self.counts.iter().sum();
        let at = |per_mille: u64| self.value_at((samples * per_mille).div_ceil(1000));
        PercentileStats {
            samples,
            p0_1: at(1),
            p1: at(10),
            p5: at(50),
            p10: at(100),
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p99_9: at(999),
        }
    }

    /// The greatest value that the `rank`-th sample can have had.
    fn value_at(&self, rank: u64) -> u64 {
        let mut seen = 0;
        let digits = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank.max(1)
        });
        match digits {
            None | Some(0) => 0,
            Some(digits) => u64::MAX >> (BUCKETS - 1 - digits),
        }
    }
}

impl<T> AsciiChart<T> {
    #[expect(clippy::new_without_default, reason = "openraft asks for `new` alone")]
    pub fn new() -> Self {
        Self(Vec::new())
    }

    pub fn add(mut self, name: &str, histogram: Histogram<T>) -> Self {
        self.0.push((name.to_owned(), histogram));
        self
    }
}

impl<T> fmt::Display for AsciiChart<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, histogram)| {
            writeln!(f, "{name:>24} {}", histogram.percentile_stats())
        })
    }
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, p50, p90, p99, .. } = self;
        write!(f, "n={samples} p50<={p50} p90<={p90} p99<={p99}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_end_of_the_bucket_its_sample_fell_in() {
        let mut histogram = Histogram::<()>::new();
        assert_eq!(histogram.percentile_stats(), PercentileStats::default());
        histogram.record_n(5, 9);
        histogram.record(u64::MAX);
        let stats = histogram.percentile_stats();
        assert_eq!((stats.samples, stats.p50, stats.p90, stats.p99), (10, 7, 7, u64::MAX));
        histogram.record_n(0, 90);
        assert_eq!(histogram.percentile_stats().p50, 0);
    }
}
