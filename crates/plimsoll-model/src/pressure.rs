//! How busy a node is, as a share of what it has: of cpu and of memory.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rebalance::Dimension;

/// A share of a node's capacity in millionths: 1 000 000 is the whole node.
///
/// An integer, because gates compare differences and in `f64` 0.85 - 0.75 < 0.10. Millionths, because smoothed
/// values are promised to six digits.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Pressure(u32);

impl Pressure {
    pub const ZERO: Self = Self(0);
    pub const FULL: Self = Self(1_000_000);

    pub const fn from_millionths(millionths: u32) -> Self {
        Self(millionths)
    }

    pub const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// What share `used` is of `capacity`, rounded up, so that a gate never sees less than there is. Of nothing,
    /// any use is everything.
    pub fn of(used: u64, capacity: u64) -> Self {
        if used == 0 {
            return Self::ZERO;
        }
        if capacity == 0 {
            return Self(u32::MAX);
        }
        let share = (u128::from(used) * 1_000_000).div_ceil(u128::from(capacity));
        Self(u32::try_from(share).unwrap_or(u32::MAX))
    }
}

/// Two digits, as people say it; the third only where it is needed to tell the number from its gate.
impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.0.is_multiple_of(10_000) {
            format!("{}.{:02}", self.0 / 1_000_000, self.0 / 10_000 % 100)
        } else {
            format!("{}.{:04}", self.0 / 1_000_000, self.0 / 100 % 10_000)
        };
        f.pad(&text)
    }
}

/// How busy a node is in both dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePressure {
    pub cpu: Pressure,
    pub memory: Pressure,
}

impl NodePressure {
    pub const fn new(cpu: Pressure, memory: Pressure) -> Self {
        Self { cpu, memory }
    }

    /// The higher of the two.
    pub fn top(self) -> Pressure {
        self.cpu.max(self.memory)
    }

    /// What the node is hot in; of equals, cpu.
    pub fn dominant(self) -> Dimension {
        if self.memory > self.cpu { Dimension::Memory } else { Dimension::Cpu }
    }

    pub fn of(self, dimension: Dimension) -> Pressure {
        match dimension {
            Dimension::Cpu => self.cpu,
            Dimension::Memory => self.memory,
        }
    }

    pub fn map(self, each: impl Fn(Pressure) -> Pressure) -> Self {
        Self { cpu: each(self.cpu), memory: each(self.memory) }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |one: Pressure, other: Pressure| Pressure(one.0.saturating_add(other.0));
        Self { cpu: sum(self.cpu, other.cpu), memory: sum(self.memory, other.memory) }
    }

    /// Nothing is less than idle.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let rest = |one: Pressure, other: Pressure| Pressure(one.0.saturating_sub(other.0));
        Self { cpu: rest(self.cpu, other.cpu), memory: rest(self.memory, other.memory) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_at_its_edge_is_exact() {
        assert_eq!(Pressure::of(3, 4), Pressure::percent(75));
        assert!(
            Pressure::of(1, 3) > Pressure::from_millionths(333_333),
            "a share is never rounded down"
        );
        assert_eq!(Pressure::of(0, 0), Pressure::ZERO);
        assert!(Pressure::of(1, 0) > Pressure::FULL);
        assert_eq!(Pressure::percent(85).to_string(), "0.85");
        assert_eq!(Pressure::from_millionths(749_900).to_string(), "0.7499");
    }

    #[test]
    fn a_node_is_hot_in_the_higher_of_two_and_of_equals_in_cpu() {
        let pressure = |cpu, memory| NodePressure {
            cpu: Pressure::percent(cpu),
            memory: Pressure::percent(memory),
        };
        for (case, cpu, memory, dominant) in [
            ("more cpu", 60, 50, Dimension::Cpu),
            ("more memory", 50, 60, Dimension::Memory),
            ("equal", 60, 60, Dimension::Cpu),
        ] {
            let it = pressure(cpu, memory);
            assert_eq!((it.dominant(), it.top()), (dominant, Pressure::percent(60)), "{case}");
            assert_eq!(it.of(dominant), it.top(), "{case}");
        }
        assert_eq!(pressure(10, 90).minus(pressure(20, 30)), pressure(0, 60));
        assert_eq!(pressure(10, 90).plus(pressure(20, 30)), pressure(30, 120));
    }
}
