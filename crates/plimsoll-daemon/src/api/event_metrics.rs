//! What happens in the cell, in numbers: counted off the audit, which every server has, and read off the state. Labels come from
//! closed lists, and from the names of nodes where a node is meant, so that there are never more rows than the cell explains.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_kernel::progress;
use plimsoll_kernel::rebalance::Rebalancer;
use plimsoll_model::{AuditKind, ObservedState, State};

use super::metrics::MetricsPage;
use crate::write_latency::WriteLatency;

/// What has happened since this daemon started, as far as it was asked: it counts on from where it stopped the last time.
#[derive(Debug, Default)]
pub(super) struct EventCounts {
    next_seq: Option<u64>,
    by_kind: BTreeMap<&'static str, u64>,
    moves: BTreeMap<(&'static str, &'static str), u64>,
    undone: BTreeMap<&'static str, u64>,
    failures: BTreeMap<&'static str, u64>,
    skips: BTreeMap<&'static str, u64>,
    missed: u64,
}

impl EventCounts {
    /// Counts what has happened since the last time. Beyond what the audit keeps nobody knows, and that is counted too.
    pub(super) fn catch_up(&mut self, state: &State) {
        let audit = state.audit();
        let from = *self.next_seq.get_or_insert(audit.next_seq());
        let oldest = audit.events().next().map_or(audit.next_seq(), |event| event.seq);
        self.missed += oldest.saturating_sub(from);
        for event in audit.since(from) {
            *self.by_kind.entry(event.what.word()).or_default() += 1;
            match &event.what {
                AuditKind::MoveStarted { cause, .. } => self.moved("started", cause.word()),
                AuditKind::MoveFinished { cause, .. } => self.moved("finished", cause.word()),
                AuditKind::MoveUndone { why, .. } => {
                    *self.undone.entry(why.word()).or_default() += 1;
                }
                AuditKind::ReplicaFailed { code, .. } => {
                    let code = code.as_ref().map_or("unknown", |code| code.word());
                    *self.failures.entry(code).or_default() += 1;
                }
                AuditKind::RebalanceSkipped { skipped, .. } => {
                    *self.skips.entry(skipped.why.word()).or_default() += 1;
                }
                _ => {}
            }
        }
        self.next_seq = Some(audit.next_seq());
    }

    fn moved(&mut self, step: &'static str, cause: &'static str) {
        *self.moves.entry((step, cause)).or_default() += 1;
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        let what = "Events of the audit since this daemon was first asked, by kind";
        rows(page, ("plimsoll_events_total", "counter"), what, "kind", &self.by_kind);
        let what = "Events that had left the audit before they were counted: ask more often";
        page.number("plimsoll_events_missed_total", "counter", what, self.missed);
        let name = "plimsoll_moves_total";
        page.head(name, "counter", "Moves of replicas, by their cause and how far they came");
        for ((step, cause), count) in &self.moves {
            let _ = writeln!(page.0, "{name}{{cause=\"{cause}\",step=\"{step}\"}} {count}");
        }
        let what = "Moves that were given up, by reason";
        rows(page, ("plimsoll_moves_undone_total", "counter"), what, "reason", &self.undone);
        let what = "Failures of replicas, by reason";
        rows(page, ("plimsoll_replica_failures_total", "counter"), what, "reason", &self.failures);
        let what = "Moves off a hot node that were not made, by the gate that said no; the same on end counts once";
        rows(page, ("plimsoll_rebalance_skipped_total", "counter"), what, "reason", &self.skips);
    }
}

fn rows(
    page: &mut MetricsPage,
    (name, kind): (&str, &str),
    what: &str,
    label: &str,
    counts: &BTreeMap<&'static str, u64>,
) {
    page.head(name, kind, what);
    for (value, count) in counts {
        let _ = writeln!(page.0, "{name}{{{label}=\"{value}\"}} {count}");
    }
}

/// How replicas, services and rollouts are now.
pub(super) fn workload(page: &mut MetricsPage, state: &State) {
    let mut replicas: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut wanted, mut moving) = (0, 0);
    let mut unplaced: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut rollouts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for service in state.services().values() {
        let asked = service.desired().map_or(0, |spec| progress::wanted(state, service, spec));
        wanted += u64::from(asked);
        if let Some(lacking) = &service.row.unplaced {
            *unplaced.entry(lacking.why.word()).or_default() += u64::from(lacking.missing);
        }
        if let Some(rollout) = &service.row.rollout {
            *rollouts.entry(rollout.phase.word()).or_default() += 1;
        }
        for replica in service.replicas.values() {
            moving += u64::from(replica.successor.is_some());
            if let Some(assignment) = &replica.assignment {
                let seen = replica.observation(assignment);
                let seen = seen.map_or(ObservedState::Pending, |it| it.state);
                *replicas.entry(seen.word()).or_default() += 1;
            }
        }
    }
    let what = "Replicas that have an assignment, by what their node last said";
    rows(page, ("plimsoll_replicas", "gauge"), what, "state", &replicas);
    page.number("plimsoll_replicas_wanted", "gauge", "Replicas that are asked for", wanted);
    page.number(
        "plimsoll_replicas_moving",
        "gauge",
        "Replicas on their way to another assignment",
        moving,
    );
    let what = "Replicas without a place, by reason";
    rows(page, ("plimsoll_replicas_unplaced", "gauge"), what, "reason", &unplaced);
    let what = "Services by the phase of their latest rollout";
    rows(page, ("plimsoll_rollouts", "gauge"), what, "phase", &rollouts);
}

/// How busy nodes are as the rebalancer has it, and how full; the first is told by the leader alone.
pub(super) fn levels(page: &mut MetricsPage, state: &State, rebalancer: Option<&Rebalancer>) {
    let share =
        |millionths: u32| format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    if let Some(rebalancer) = rebalancer {
        let name = "plimsoll_node_pressure_ratio";
        page.head(name, "gauge", "How busy a node is, smoothed; told by the leader");
        for levels in rebalancer.levels() {
            for (resource, value) in
                [("cpu", levels.smoothed.cpu), ("memory", levels.smoothed.memory)]
            {
                let labels = format!("node=\"{}\",resource=\"{resource}\"", levels.node);
                let _ = writeln!(page.0, "{name}{{{labels}}} {}", share(value.millionths()));
            }
        }
    }
    let name = "plimsoll_node_replicas";
    page.head(name, "gauge", "Replicas that a node runs or is to run");
    for node in state.nodes().keys() {
        let count = state.load(node).map_or(0, |load| load.replicas);
        let _ = writeln!(page.0, "{name}{{node=\"{node}\"}} {count}");
    }
}

/// How long writes of this daemon took to be durable.
pub(super) fn latency(page: &mut MetricsPage, latency: &WriteLatency) {
    let name = "plimsoll_log_write_seconds";
    page.head(
        name,
        "histogram",
        "How long it took until a batch of this node was committed and applied",
    );
    let counts = latency.counts();
    let mut sum = 0;
    for (bound, count) in WriteLatency::BOUNDS_MS.iter().zip(&counts.buckets) {
        sum += count;
        let _ = writeln!(
            page.0,
            "{name}_bucket{{le=\"{}.{:03}\"}} {sum}",
            bound / 1_000,
            bound % 1_000
        );
    }
    let _ = writeln!(page.0, "{name}_bucket{{le=\"+Inf\"}} {}", counts.count);
    let micros = counts.sum_micros;
    let _ = writeln!(page.0, "{name}_sum {}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let _ = writeln!(page.0, "{name}_count {}", counts.count);
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cell, cpus, spread};

    use super::*;

    #[test]
    fn what_happens_is_counted_once_and_what_is_asked_for_is_told() {
        let mut cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
        let mut counts = EventCounts::default();
        counts.catch_up(&cell.state);
        cell = cell
            .deploy("shop", [("web", spread(2))])
            .deploy("blog", [("big", spread(1).reserve(9_000, 1))]);
        counts.catch_up(&cell.state);
        counts.catch_up(&cell.state);
        assert_eq!(counts.by_kind["deployed"], 2, "{counts:?}");
        assert_eq!(counts.missed, 0);
        let mut page = MetricsPage::default();
        workload(&mut page, &cell.state);
        levels(&mut page, &cell.state, None);
        assert!(page.0.contains("plimsoll_replicas_wanted 3\n"), "{}", page.0);
        assert!(page.0.contains("plimsoll_node_replicas{node=\"birch\"} 0\n"), "{}", page.0);
        assert!(!page.0.contains("pressure"), "nobody leads here");
    }
}
