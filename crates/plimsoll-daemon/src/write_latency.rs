//! How long writes take to be durable, counted in buckets: what a histogram of Prometheus is made of.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Written by whoever writes, read by whoever asks; a reader may see one write in the sum and not yet in its bucket.
#[derive(Debug, Default)]
pub struct WriteLatency {
    buckets: [AtomicU64; WriteLatency::BOUNDS_MS.len()],
    count: AtomicU64,
    sum_micros: AtomicU64,
}

/// As of a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyCounts {
    pub buckets: [u64; WriteLatency::BOUNDS_MS.len()],
    pub count: u64,
    pub sum_micros: u64,
}

impl WriteLatency {
    /// From a fast disk to one on which elections are in danger.
    pub const BOUNDS_MS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000];

    pub fn note(&self, took: Duration) {
        let millis = took.as_millis();
        let bucket = Self::BOUNDS_MS.iter().position(|bound| millis < u128::from(*bound));
        if let Some(bucket) = bucket {
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts {
            buckets: std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed)),
            count: self.count.load(Ordering::Relaxed),
            sum_micros: self.sum_micros.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_in_the_first_bucket_that_holds_it() {
        let latency = WriteLatency::default();
        for micros in [300, 1_000, 30_000, 9_000_000] {
            latency.note(Duration::from_micros(micros));
        }
        let counts = latency.counts();
        assert_eq!(counts.buckets, [1, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!((counts.count, counts.sum_micros), (4, 9_031_300));
    }
}
