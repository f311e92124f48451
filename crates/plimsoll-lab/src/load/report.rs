//! What became of requests: how long each took, and why some failed.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// How many failures are kept with their reasons. The rest are counted.
const KEPT: usize = 50;

/// A request that failed.
#[derive(Debug, Clone)]
pub struct RequestFailure {
    pub at: SocketAddr,
    /// Since the load began.
    pub asked: Duration,
    pub took: Duration,
    pub why: String,
}

#[derive(Debug, Default)]
pub struct LoadReport {
    /// Of those that were answered, in microseconds; in order once all are there.
    times: Vec<u32>,
    pub failed: usize,
    pub failures: Vec<RequestFailure>,
    /// How many were answered before it was done.
    pub meanwhile: usize,
    /// The latest, and when they were asked since the load began.
    slowest: Vec<(Duration, Duration)>,
}

impl LoadReport {
    pub(super) fn answered_after(&mut self, asked: Duration, took: Duration) {
        self.times.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        if self.slowest.len() < KEPT || self.slowest.last().is_some_and(|last| took > last.0) {
            let at = self.slowest.partition_point(|one| one.0 >= took);
            self.slowest.insert(at, (took, asked));
            self.slowest.truncate(KEPT);
        }
    }

    pub(super) fn note(&mut self, failure: RequestFailure) {
        self.failed += 1;
        if self.failures.len() < KEPT {
            self.failures.push(failure);
        }
    }

    /// Takes what became of others to be of the same load.
    pub fn merge(&mut self, other: Self) {
        self.meanwhile += other.meanwhile;
        self.add(other);
        self.settle();
    }

    pub(super) fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.truncate(KEPT);
        self.slowest.extend(other.slowest);
    }

    pub(super) fn settle(&mut self) {
        self.times.sort_unstable();
        self.slowest.sort_unstable_by(|a, b| b.cmp(a));
        self.slowest.truncate(KEPT);
    }

    pub fn answered(&self) -> usize {
        self.times.len()
    }

    /// So many of a thousand took no longer.
    pub fn time(&self, per_mille: usize) -> Duration {
        let at = (self.times.len() * per_mille / 1_000).min(self.times.len().saturating_sub(1));
        Duration::from_micros(self.times.get(at).copied().unwrap_or(0).into())
    }

    pub fn worst(&self) -> Duration {
        self.time(1_000)
    }

    /// How many took longer than this.
    pub fn slower_than(&self, limit: Duration) -> usize {
        let limit = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
        self.times.len() - self.times.partition_point(|time| *time <= limit)
    }

    /// The latest answers first, each with how long it took and when it was asked for since the load began.
    pub fn slowest(&self) -> &[(Duration, Duration)] {
        &self.slowest
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answered, failed, meanwhile) = (self.answered(), self.failed, self.meanwhile);
        write!(f, "{answered} answered, {meanwhile} of them meanwhile, {failed} failed; ")?;
        let [half, most, worst] = [self.time(500), self.time(990), self.worst()];
        write!(f, "p50 {half:.1?}, p99 {most:.1?}, worst {worst:.1?}")?;
        for RequestFailure { at, asked, took, why } in &self.failures {
            write!(f, "\n{at} asked after {asked:.3?}, failed after {took:.3?}: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_clients_are_told_together() {
        let mut all = LoadReport::default();
        for client in 0..4_u64 {
            let mut own = LoadReport::default();
            for nth in 1..=250 {
                let took = Duration::from_millis(nth * 4 - client);
                own.answered_after(Duration::from_secs(nth), took);
            }
            all.add(own);
        }
        all.settle();
        assert_eq!((all.answered(), all.failed), (1_000, 0));
        assert_eq!((all.time(500), all.time(990)), (ms(501), ms(991)));
        assert_eq!((all.worst(), all.slower_than(ms(990))), (ms(1_000), 10));
        assert_eq!(all.slowest()[0], (ms(1_000), Duration::from_secs(250)));
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }
}
