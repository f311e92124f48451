//! Measures this node and what its replicas use, now and then, and says that it lives.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use plimsoll_kernel::rebalance::Limits;
use plimsoll_model::access::Digest;
use plimsoll_model::level::VERSION;
use plimsoll_model::{Generation, Millis, ReplicaId};
use plimsoll_runtime::pressure::Collector;
use plimsoll_runtime::{Meter, Usage, chain};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::cell::{Cell, now};

/// How often the node says that it lives: a third of the time after which it is taken for lost.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How often it is measured where nobody says otherwise, and what may be said.
pub const INTERVAL: Duration = Duration::from_secs(30);
pub const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(300);

/// How often nodes are measured and the rebalancer looks at it, and how much faster than usual its times run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub interval: Duration,
    /// One but in a lab, where nobody has ten minutes.
    pub haste: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { interval: INTERVAL, haste: 1 }
    }
}

impl Pace {
    /// The gates of the rebalancer at this pace. What is older than three intervals is silence.
    pub fn limits(self) -> Limits {
        let interval = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        Limits { stale_after: Millis(interval.saturating_mul(3)), ..Limits::default() }
            .hurried(self.haste)
    }
}

/// The second reading, which is the first that says anything, comes soon: someone may be looking.
const FIRST: Duration = Duration::from_secs(2);

/// Runs until told to stop. `root` is `/` on a real node; `key` is what this node is known by, where it was not taken in
/// with a token.
pub async fn run(
    cell: Cell,
    root: std::path::PathBuf,
    key: Option<Digest>,
    pace: Pace,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut collector = Collector::new(root);
    let mut meters: BTreeMap<(ReplicaId, Generation), Meter> = BTreeMap::new();
    let started = Instant::now();
    let (mut beat_at, mut sample_at) = (started, started);
    loop {
        if sample_at <= Instant::now() {
            let is_first = sample_at == started;
            measure(&cell, &mut collector);
            use_of(&cell, &mut meters).await;
            sample_at = Instant::now() + if is_first { FIRST } else { pace.interval };
        }
        if beat_at <= Instant::now() {
            if is_ours(&cell, key) {
                beat(&cell);
            }
            beat_at = Instant::now() + HEARTBEAT;
        }
        tokio::select! {
            () = sleep_until(beat_at.min(sample_at)) => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

/// Whether what the cell knows by this name is this node. It does not speak for one that had the name before: that one is
/// to be found silent.
fn is_ours(cell: &Cell, key: Option<Digest>) -> bool {
    let known = cell.engine.machine().read(|state| state.node(&cell.node).and_then(|it| it.key));
    key.is_none() || known.is_none() || known == key
}

fn beat(cell: &Cell) {
    let mut facts = cell.soft.facts();
    let fact = facts.nodes.entry(cell.node.clone()).or_default();
    fact.heard_at = Some(now());
    fact.version.get_or_insert_with(|| VERSION.to_owned());
}

fn measure(cell: &Cell, collector: &mut Collector) {
    let reading = collector.read(std::time::Instant::now());
    let mut facts = cell.soft.facts();
    let fact = facts.nodes.entry(cell.node.clone()).or_default();
    (fact.reading, fact.measured_at) = (Some(reading), Some(now()));
}

async fn use_of(cell: &Cell, meters: &mut BTreeMap<(ReplicaId, Generation), Meter>) {
    let usage = match cell.runtime.usage().await {
        Ok(usage) => usage,
        Err(error) => {
            tracing::debug!(error = %chain(&error), "no usage of replicas");
            return;
        }
    };
    let at = std::time::Instant::now();
    let usage: BTreeMap<(ReplicaId, Generation), Usage> =
        usage.into_iter().map(|(tag, usage)| ((tag.replica, tag.generation), usage)).collect();
    meters.retain(|key, _| usage.contains_key(key));
    let mut facts = cell.soft.facts();
    // What does not run any more uses nothing, which is not a measurement.
    for fact in facts.replicas.values_mut() {
        (fact.cpu, fact.memory) = (None, None);
    }
    for (key, usage) in usage {
        let cpu = meters.entry(key.clone()).or_default().read(at, usage.cpu);
        if let Some(fact) = facts.replicas.get_mut(&key) {
            (fact.cpu, fact.memory) = (cpu, Some(usage.memory));
        }
    }
}
