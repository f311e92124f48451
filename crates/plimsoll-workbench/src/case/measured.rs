//! What a case says was measured, as the rebalancer is told it.

use std::collections::BTreeMap;

use plimsoll_api::suggest;
use plimsoll_kernel::rebalance::{
    Ewma, MeasuredCycle, MoveInFlight, NodeTrend, PressureSample, Readings, RebalanceMemory,
    ReplicaUsage, SmoothedPressure,
};
use plimsoll_model::{Millis, NodeId, NodePressure, Pressure, ReplicaId, State, Timestamp};
use serde_saphyr::Spanned;

use super::Measured;
use super::entries::{CaseEntry, CycleEntry, MemoryEntry, SharesEntry};
use crate::mistake::Mistake;

/// How far cycles lie apart where the case does not say: as they do in a cell.
const CYCLE: Millis = Millis::seconds(30);

/// When each cycle is, beginning at `now` where the first does not say.
pub(super) fn times(cycles: &[CycleEntry], now: Timestamp) -> Result<Vec<Timestamp>, Mistake> {
    let mut times: Vec<Timestamp> = Vec::new();
    for (nth, cycle) in cycles.iter().enumerate() {
        let before = times.last().copied();
        let next = before.map_or(now, |before| before.plus(CYCLE));
        let Some(at) = &cycle.at else {
            times.push(next);
            continue;
        };
        let time = at.value.0.0;
        if before.is_some_and(|before| time.0 < before.0) {
            let (nth, time) = (nth + 1, time.0);
            let message = format!("cycle {nth} lies at {time}, before the one in front of it");
            return Err(Mistake::new(at.referenced, message).hint("sort cycles by time"));
        }
        times.push(Timestamp(time.0));
    }
    Ok(times)
}

/// None where the case has no cycles.
pub(super) fn of(
    case: &CaseEntry,
    times: &[Timestamp],
    state: &State,
) -> Result<Option<Measured>, Mistake> {
    let Some(cycles) = &case.cycles else { return Ok(None) };
    let names = Names { state };
    let cycles = cycles.iter().zip(times).map(|(entry, at)| names.cycle(entry, *at));
    Ok(Some(Measured {
        memory: names.memory(&case.memory)?,
        cycles: cycles.collect::<Result<_, _>>()?,
        moves_take: case.moves_take.map_or(Millis(0), |span| span.0.0),
    }))
}

/// What may be spoken of: the nodes and replicas of the cell.
struct Names<'s> {
    state: &'s State,
}

impl Names<'_> {
    fn cycle(&self, entry: &CycleEntry, at: Timestamp) -> Result<MeasuredCycle, Mistake> {
        let mut readings = Readings::default();
        for (node, sample) in &entry.nodes.0 {
            let pressure = NodePressure::new(sample.cpu.0, sample.memory.0);
            let taken = sample.at.map_or(at, |at| Timestamp(at.0.0.0));
            let sample = PressureSample { at: taken, pressure };
            readings.nodes.insert(self.node(node)?, sample);
        }
        for (replica, usage) in &entry.replicas.0 {
            let usage = ReplicaUsage { cpu: usage.cpus.0, memory: usage.memory.0 };
            readings.replicas.insert(self.replica(replica)?, usage);
        }
        Ok(MeasuredCycle { at, readings })
    }

    fn memory(&self, entry: &MemoryEntry) -> Result<RebalanceMemory, Mistake> {
        let mut trends = Vec::new();
        for (node, trend) in &entry.nodes.0 {
            let at = Timestamp(trend.at.0.0.0);
            let recall = |shares: SharesEntry<12>| SmoothedPressure {
                cpu: Ewma::recall(at, shares.cpu.0.0),
                memory: Ewma::recall(at, shares.memory.0.0),
            };
            let (mean, peak) = (recall(trend.mean), recall(trend.peak));
            trends.push(NodeTrend::new(self.node(node)?, mean, peak, trend.hot));
        }
        let mut moving = BTreeMap::new();
        for (replica, entry) in &entry.moving.0 {
            let (src, dst) = (self.node(&entry.src)?, self.node(&entry.dst)?);
            let (off, on) = (shares(entry.off), shares(entry.on));
            moving.insert(self.replica(replica)?, MoveInFlight { src, dst, off, on });
        }
        Ok(RebalanceMemory::recall(trends, moving))
    }

    fn node(&self, node: &Spanned<NodeId>) -> Result<NodeId, Mistake> {
        known_node(self.state, node).cloned()
    }

    /// By the name that people know, `shop-web-1`, or as the state writes it, `shop/web/1`.
    fn replica(&self, name: &Spanned<String>) -> Result<ReplicaId, Mistake> {
        let written = name.value.parse().ok();
        let written = written.filter(|id| self.state.replica(id).is_some());
        written.or_else(|| self.state.find_replica(&name.value)).ok_or_else(|| {
            let names: Vec<String> = self.state.replicas().map(|(id, _)| id.to_string()).collect();
            let hint = suggest::hint(&name.value, "replica", names.iter().map(String::as_str));
            let message = format!("there is no replica {}", name.value);
            Mistake::new(name.referenced, message).hint(hint)
        })
    }
}

fn shares(entry: SharesEntry<6>) -> NodePressure {
    let share =
        |millionths: u64| Pressure::from_millionths(u32::try_from(millionths).unwrap_or(u32::MAX));
    NodePressure::new(share(entry.cpu.0.0), share(entry.memory.0.0))
}

/// The node of the cell that goes by this name.
pub(super) fn known_node<'s>(
    state: &State,
    node: &'s Spanned<NodeId>,
) -> Result<&'s NodeId, Mistake> {
    if state.node(&node.value).is_some() {
        return Ok(&node.value);
    }
    let names: Vec<&str> = state.nodes().keys().map(NodeId::as_str).collect();
    let hint = suggest::hint(node.value.as_str(), "node", names.iter().copied());
    let message = format!("there is no node {}", node.value);
    Err(Mistake::new(node.referenced, message).hint(hint))
}
