//! What a replica uses, smoothed over its samples, so that a move takes along what will still be there afterwards.
//! Whoever gathers the samples keeps one for each replica; a cycle is only told what came of it.

use plimsoll_model::{Bytes, MilliCpus, Millis, Timestamp};

use super::ReplicaUsage;
use super::ewma::{Decay, faded};

/// Kept finer than it is told: a slow mean takes steps far below a thousandth of a core.
const FINE: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmoothedUsage {
    /// Cpu and memory, shifted by [`FINE`].
    means: [u64; 2],
    at: Timestamp,
}

impl SmoothedUsage {
    /// The first sample is all there is.
    pub fn seed(at: Timestamp, sample: ReplicaUsage) -> Self {
        Self { means: fine(sample), at }
    }

    /// Takes in a sample. One from the past changes nothing.
    pub fn feed(&mut self, at: Timestamp, sample: ReplicaUsage, window: Millis) {
        self.take_in(at, sample, &mut Decay::new(window));
    }

    /// As [`feed`](Self::feed), for many in turn: they share what they know of time.
    pub fn take_in(&mut self, at: Timestamp, sample: ReplicaUsage, decay: &mut Decay) {
        if at <= self.at {
            return;
        }
        let kept = decay.after(at.since(self.at));
        for (mean, sample) in self.means.iter_mut().zip(fine(sample)) {
            *mean = faded(*mean, sample, kept);
        }
        self.at = at;
    }

    pub fn usage(&self) -> ReplicaUsage {
        let [cpu, memory] = self.means.map(|mean| (mean + (1 << (FINE - 1))) >> FINE);
        ReplicaUsage { cpu: MilliCpus(cpu), memory: Bytes(memory) }
    }

    /// When it last took in a sample.
    pub fn at(&self) -> Timestamp {
        self.at
    }
}

/// Amounts lie below 2^50, the most memory a node may have.
fn fine(sample: ReplicaUsage) -> [u64; 2] {
    [sample.cpu.0, sample.memory.0].map(|amount| amount.min(1 << 55) << FINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Millis = Millis::minutes(30);

    fn usage(cpu: u64, memory: u64) -> ReplicaUsage {
        ReplicaUsage { cpu: MilliCpus(cpu), memory: Bytes(memory) }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000)
    }

    #[test]
    fn a_habit_follows_slowly_and_forgets_what_was_a_moment() {
        let mut smoothed = SmoothedUsage::seed(at(0), usage(1_000, 1 << 30));
        smoothed.feed(at(1_800), usage(0, 2 << 30), WINDOW);
        assert_eq!(smoothed.usage(), usage(368, 1_752_476_106), "63 % of the way after one window");
        smoothed.feed(at(1_000), usage(9_999, 0), WINDOW);
        assert_eq!(smoothed.at(), at(1_800), "a sample from the past changes nothing");
    }

    #[test]
    fn what_stays_the_same_is_told_to_the_digit() {
        let mut smoothed = SmoothedUsage::seed(at(0), usage(333, 777));
        for nth in 1..10_000 {
            smoothed.feed(at(nth * 30), usage(500, 123_456_789), WINDOW);
        }
        assert_eq!(smoothed.usage(), usage(500, 123_456_789));
    }
}
