//! How hot the nodes of a replay were, counted by node and cycle.

use plimsoll_model::{Millis, Pressure, Resources};

/// A node above this is hot: where the rebalancer's trigger is.
pub const HOT: Pressure = Pressure::percent(85);

/// Counts over all nodes and cycles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Nodes times cycles.
    pub all: u64,
    pub hot: u64,
    /// Asked for all they have, or more.
    pub saturated: u64,
    /// In billionths of a node, summed over cycles, cpu and memory.
    pub asked: u128,
    /// Of that, what nodes did not have.
    pub unmet: u128,
}

/// The nodes at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tick {
    pub at: Millis,
    /// How many nodes are hot.
    pub hot: u32,
    pub least: Pressure,
    pub median: Pressure,
    /// Also above all it has.
    pub most: Pressure,
    /// How many moves were made before.
    pub moves: usize,
}

impl Measured {
    /// Takes in what each node is asked for in one cycle.
    pub(super) fn count(&mut self, loads: &[[u64; 2]], capacity: Resources) -> Tick {
        let of = [capacity.cpu.0, capacity.memory.0].map(|of| u128::from(of.max(1)));
        let hot = u128::from(HOT.millionths());
        let (mut tick, mut tops) = (Tick::default(), Vec::with_capacity(loads.len()));
        for load in loads {
            let pairs = [0, 1].map(|at| (u128::from(load[at]), of[at]));
            self.all += 1;
            // Exactly on the line is not above it.
            if pairs.iter().any(|(used, of)| used * 1_000_000 > of * hot) {
                self.hot += 1;
                tick.hot += 1;
            }
            self.saturated += u64::from(pairs.iter().any(|(used, of)| used >= of));
            for (used, of) in pairs {
                self.asked += used * 1_000_000_000 / of;
                self.unmet += used.saturating_sub(of) * 1_000_000_000 / of;
            }
            let [cpu, memory] = [(load[0], capacity.cpu.0), (load[1], capacity.memory.0)]
                .map(|(used, of)| Pressure::of(used, of));
            tops.push(cpu.max(memory));
        }
        tops.sort_unstable();
        tick.least = tops.first().copied().unwrap_or_default();
        tick.median = tops.get(tops.len() / 2).copied().unwrap_or_default();
        tick.most = tops.last().copied().unwrap_or_default();
        tick
    }

    /// Shares in millionths: of hot and of saturated nodes, and of what was not met.
    pub fn shares(&self) -> [Pressure; 3] {
        let share = |part: u128, of: u128| {
            let millionths = (part * 1_000_000 + of / 2) / of.max(1);
            Pressure::from_millionths(u32::try_from(millionths).unwrap_or(u32::MAX))
        };
        let all = u128::from(self.all);
        [
            share(self.hot.into(), all),
            share(self.saturated.into(), all),
            share(self.unmet, self.asked),
        ]
    }
}
