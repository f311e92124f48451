//! What happens to packets of each ordered pair of hosts. Rules change while packets pass; each is one word, so that
//! reading one costs a packet nothing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What happens to packets from one host to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkRule {
    pub is_cut: bool,
    /// Counted in microseconds, an hour at most.
    pub delay: Duration,
    /// Of a hundred packets, so many are lost.
    pub loss_percent: u8,
}

const CUT: u64 = 1 << 63;
const LOSS_SHIFT: u32 = 32;

impl LinkRule {
    fn packed(self) -> u64 {
        let delay = u32::try_from(self.delay.as_micros()).unwrap_or(u32::MAX);
        let loss = u64::from(self.loss_percent.min(100));
        (if self.is_cut { CUT } else { 0 }) | loss << LOSS_SHIFT | u64::from(delay)
    }

    fn unpacked(word: u64) -> Self {
        let [_, _, _, loss_percent, delay @ ..] = word.to_be_bytes();
        Self {
            is_cut: word & CUT != 0,
            delay: Duration::from_micros(u32::from_be_bytes(delay).into()),
            loss_percent,
        }
    }
}

/// As in `cut, 50ms late, loses 20%`; sound where there is nothing to say.
impl fmt::Display for LinkRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.is_cut {
            parts.push("cut".to_owned());
        }
        if !self.delay.is_zero() {
            parts.push(format!("{:?} late", self.delay));
        }
        if self.loss_percent > 0 {
            parts.push(format!("loses {}%", self.loss_percent));
        }
        f.write_str(if parts.is_empty() { "sound" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// The rules of all pairs.
#[derive(Debug)]
pub(crate) struct LinkRules {
    hosts: usize,
    words: Vec<AtomicU64>,
}

impl LinkRules {
    pub(crate) fn new(hosts: usize) -> Self {
        Self { hosts, words: (0..hosts * hosts).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn get(&self, from: usize, to: usize) -> LinkRule {
        LinkRule::unpacked(self.words[from * self.hosts + to].load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, from: usize, to: usize, rule: LinkRule) {
        self.words[from * self.hosts + to].store(rule.packed(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_for_one_way_between_two_hosts() {
        let rules = LinkRules::new(3);
        let rule = LinkRule { is_cut: true, delay: Duration::from_millis(50), loss_percent: 20 };
        rules.set(0, 2, rule);
        assert_eq!(rules.get(0, 2), rule);
        for (from, to) in [(2, 0), (0, 1), (1, 2)] {
            assert_eq!(rules.get(from, to), LinkRule::default());
        }
    }

    #[test]
    fn a_rule_is_kept_whole() {
        for (is_cut, delay_us, loss_percent) in [(false, 0, 0), (true, 0, 0), (false, 7, 100)] {
            let rule = LinkRule { is_cut, delay: Duration::from_micros(delay_us), loss_percent };
            assert_eq!(LinkRule::unpacked(rule.packed()), rule);
        }
    }
}
