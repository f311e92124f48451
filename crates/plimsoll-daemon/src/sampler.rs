//! Measures this node and what its replicas use, now and then. Neither waits for the other: an engine that hangs does not
//! say what replicas use, and the node is as busy as it is.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use plimsoll_model::{Generation, ReplicaId};
use plimsoll_runtime::pressure::Collector;
use plimsoll_runtime::{Meter, Usage, chain};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::context::{NodeContext, now, span};

/// What may be said of how often it is measured.
pub const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_mins(5);

/// The second reading, which is the first that says anything, comes soon: someone may be looking.
const FIRST: Duration = Duration::from_secs(2);

/// Runs until told to stop. `root` is `/` on a real node.
pub async fn run(cell: NodeContext, root: std::path::PathBuf, mut shutdown: watch::Receiver<bool>) {
    let node = async {
        let mut collector = Collector::new(root);
        let mut pauses = pauses(&cell);
        loop {
            measure(&cell, &mut collector);
            sleep(pauses()).await;
        }
    };
    let replicas = async {
        let mut meters = BTreeMap::new();
        let mut pauses = pauses(&cell);
        loop {
            use_of(&cell, &mut meters).await;
            sleep(pauses()).await;
        }
    };
    tokio::select! {
        () = node => {}
        () = replicas => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
}

/// How long to wait after each reading.
fn pauses(cell: &NodeContext) -> impl FnMut() -> Duration + use<> {
    let (mut first, interval) = (Some(FIRST), span(cell.policy.sample_interval));
    move || first.take().unwrap_or(interval)
}

fn measure(cell: &NodeContext, collector: &mut Collector) {
    let reading = collector.read(std::time::Instant::now());
    let mut measured = cell.measurements.lock();
    let measured = measured.nodes.entry(cell.node.clone()).or_default();
    (measured.reading, measured.measured_at) = (Some(reading), Some(now()));
}

async fn use_of(cell: &NodeContext, meters: &mut BTreeMap<(ReplicaId, Generation), Meter>) {
    let usage = match cell.runtime.usage().await {
        Ok(usage) => usage,
        Err(error) => {
            tracing::debug!(error = %chain(&error), "cannot measure replicas");
            return;
        }
    };
    let at = std::time::Instant::now();
    let usage: BTreeMap<(ReplicaId, Generation), Usage> =
        usage.into_iter().map(|(tag, usage)| ((tag.replica, tag.generation), usage)).collect();
    meters.retain(|key, _| usage.contains_key(key));
    let mut measured = cell.measurements.lock();
    // What does not run any more uses nothing, which is not a measurement.
    for replica in measured.replicas.values_mut() {
        (replica.cpu, replica.memory) = (None, None);
    }
    for (key, usage) in usage {
        let cpu = meters.entry(key.clone()).or_default().read(at, usage.cpu);
        if let Some(replica) = measured.replicas.get_mut(&key) {
            (replica.cpu, replica.memory) = (cpu, Some(usage.memory));
        }
    }
}
