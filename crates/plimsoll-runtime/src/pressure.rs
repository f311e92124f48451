//! How busy this node is, and what it has.
//!
//! A [`Collector`] reads counters under a root directory (`/`, or a tree of fixtures) and makes one [`PressureReading`] of two
//! of them. Inside a cgroup v2 the numbers are those of the cgroup's root, which is all a node in a container can use;
//! else they are the host's, from `/proc`. Smoothing and judging belong to the leader.

mod capacity;
pub(crate) mod files;
mod stall;

use std::path::{Path, PathBuf};
use std::time::Instant;

use plimsoll_model::{Bytes, MilliCpus, NodePressure, Pressure};
use serde::{Deserialize, Serialize};

use crate::usage::{CpuTime, Meter};
pub use capacity::HostInfo;
use files::{field, number, text};
pub use stall::{Stall, Stalls};

/// What one look at the node found. A part that is none is silence, not zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureReading {
    pub cpu: Option<Share<MilliCpus>>,
    pub memory: Option<Share<Bytes>>,
    /// Shown to people; no gate looks at it.
    pub stalls: Stalls,
}

impl PressureReading {
    /// Of cpu and memory, where both are known.
    pub fn pressure(&self) -> Option<NodePressure> {
        Some(NodePressure { cpu: self.cpu?.pressure, memory: self.memory?.pressure })
    }
}

/// How much is in use, and which part of the whole that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share<Unit> {
    pub used: Unit,
    pub pressure: Pressure,
}

#[derive(Debug)]
pub struct Collector {
    root: PathBuf,
    meter: Meter,
    ticks: Option<Ticks>,
}

/// What the processors did since boot, in ticks of whatever length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    total: u64,
}

impl Collector {
    /// Reads below `root`, which is `/` on a real node.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), meter: Meter::default(), ticks: None }
    }

    pub fn read(&mut self, at: Instant) -> PressureReading {
        PressureReading {
            cpu: self.cpu(at),
            memory: self.memory(),
            stalls: Stalls::read(&self.root),
        }
    }

    fn cpu(&mut self, at: Instant) -> Option<Share<MilliCpus>> {
        let capacity = capacity::cpu(&self.root)?;
        if let Some(total) = cgroup_cpu(&self.root) {
            let used = self.meter.read(at, total)?;
            return Some(Share { used, pressure: Pressure::of(used.0, capacity.0) });
        }
        let now = Ticks::read(&self.root)?;
        let before = self.ticks.replace(now)?;
        let busy = now.busy.checked_sub(before.busy)?;
        let total = now.total.checked_sub(before.total).filter(|total| *total > 0)?;
        let pressure = Pressure::of(busy, total);
        let used = u128::from(busy) * u128::from(capacity.0) / u128::from(total);
        Some(Share { used: MilliCpus(u64::try_from(used).ok()?), pressure })
    }

    fn memory(&self) -> Option<Share<Bytes>> {
        let capacity = capacity::memory(&self.root)?;
        let used = cgroup_memory(&self.root).or_else(|| host_memory(&self.root))?;
        Some(Share { used, pressure: Pressure::of(used.0, capacity.0) })
    }
}

impl Ticks {
    fn read(root: &Path) -> Option<Self> {
        let text = text(&root.join("proc/stat"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; the guest's two are in user and nice already.
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map_while(|tick| tick.parse().ok()).collect();
        let idle = *ticks.get(3)? + ticks.get(4).unwrap_or(&0);
        let total = ticks.iter().sum();
        // Time stolen by the host's other guests counts as busy: this node cannot have it.
        Some(Self { busy: total - idle, total })
    }
}

fn cgroup_cpu(root: &Path) -> Option<CpuTime> {
    field(&cgroup(root)?.join("cpu.stat"), "usage_usec").map(CpuTime)
}

/// Without a limit the host's own count is the better one: it knows what could be freed.
fn cgroup_memory(root: &Path) -> Option<Bytes> {
    let dir = cgroup(root)?;
    number(&dir.join("memory.max"))?;
    let current = number(&dir.join("memory.current"))?;
    // Files read once and not since are given back at the first need; kubelet leaves them out just so.
    let idle = field(&dir.join("memory.stat"), "inactive_file").unwrap_or(0);
    Some(Bytes(current.saturating_sub(idle)))
}

fn host_memory(root: &Path) -> Option<Bytes> {
    let path = root.join("proc/meminfo");
    let total = field(&path, "MemTotal:")?;
    let available = field(&path, "MemAvailable:")?;
    // More available than there is: the numbers are not to be trusted, and an idle node is not what they say.
    Some(Bytes(total.checked_sub(available)?.saturating_mul(1_024)))
}

/// The root of the cgroup v2 tree, where there is one.
fn cgroup(root: &Path) -> Option<PathBuf> {
    let dir = root.join("sys/fs/cgroup");
    dir.join("cgroup.controllers").is_file().then_some(dir)
}

#[cfg(test)]
mod tests;
