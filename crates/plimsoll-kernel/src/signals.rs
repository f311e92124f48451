//! What nodes measure of themselves: soft, kept by the leader alone, and gone with it.

use std::collections::BTreeMap;

use plimsoll_model::{NodeId, NodePressure, Timestamp};

use crate::policy::Policy;

/// What a node measured of itself, and when, by the clock of whoever heard it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PressureSample {
    pub at: Timestamp,
    pub pressure: NodePressure,
}

impl PressureSample {
    pub fn is_fresh(&self, policy: &Policy, now: Timestamp) -> bool {
        policy.is_fresh(self.at, now)
    }

    /// What it says of its node, while it says something.
    pub fn fresh_pressure(&self, policy: &Policy, now: Timestamp) -> Option<NodePressure> {
        self.is_fresh(policy, now).then_some(self.pressure)
    }
}

/// The latest fresh measurement of each node. A node that is missing here said nothing of late: its pressure is
/// unknown, neither zero nor high.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signals {
    pressure: BTreeMap<NodeId, NodePressure>,
}

impl Signals {
    pub fn pressure(&self, node: &NodeId) -> Option<NodePressure> {
        self.pressure.get(node).copied()
    }

    pub fn set(&mut self, node: &NodeId, pressure: Option<NodePressure>) {
        match pressure {
            Some(pressure) => self.pressure.insert(node.clone(), pressure),
            None => self.pressure.remove(node),
        };
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Millis, Pressure};

    use super::*;

    #[test]
    fn a_sample_counts_for_three_intervals_from_when_it_was_measured() {
        let policy = Policy { sample_interval: Millis::seconds(10), ..Policy::default() };
        let pressure = NodePressure::new(Pressure::percent(90), Pressure::percent(10));
        let sample = PressureSample { at: Timestamp(1_000_000), pressure };
        for (case, age, fresh) in [
            ("just measured", Millis(0), true),
            ("three intervals old", Millis::seconds(30), true),
            ("a moment older", Millis(30_001), false),
        ] {
            assert_eq!(sample.is_fresh(&policy, sample.at.plus(age)), fresh, "{case}");
        }
    }
}
