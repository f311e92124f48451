//! Tells the cell what this node sees. Only the latest word on each container is kept until it is written, so that a
//! burst of changes is one entry of the log, and a cell without a leader costs no memory.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_model::{Change, Generation, Guarded, Observation, ReplicaId, Writer};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::unit::Seen;
use crate::cell::{Cell, WriteError, now};

/// How long the first word waits for others to go with it.
const GATHER: Duration = Duration::from_millis(5);

/// How long to wait when the cell does not take reports: nothing is lost, it is only told later.
const RETRY: Duration = Duration::from_millis(250);

/// One word on one container.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) replica: ReplicaId,
    pub(super) generation: Generation,
    pub(super) seen: Seen,
}

type Pending = BTreeMap<(ReplicaId, Generation), Seen>;

/// Writes what comes in until the sender is gone.
pub(super) async fn run(cell: Cell, mut reports: mpsc::UnboundedReceiver<Report>) {
    let mut pending = Pending::new();
    loop {
        if pending.is_empty() {
            let Some(report) = reports.recv().await else { return };
            take(&mut pending, report);
            sleep(GATHER).await;
        }
        while let Ok(report) = reports.try_recv() {
            take(&mut pending, report);
        }
        let batch: Vec<Guarded> = pending.iter().map(|(key, seen)| observe(key, seen)).collect();
        match cell.write(Writer::Agent, cell.node.as_str(), batch).await {
            Ok(_) => pending.clear(),
            Err(WriteError::Refused(rejection)) => {
                // One word the cell does not take, as of a container it holds for stopped, must not hold up the others.
                let refused = pending.keys().nth(rejection.position).cloned();
                tracing::warn!(%rejection, "a report was refused");
                if let Some(key) = refused {
                    pending.remove(&key);
                }
            }
            Err(WriteError::Store(error)) => {
                tracing::debug!(%error, "reports wait");
                if matches!(error, plimsoll_store::Error::Stopped) {
                    return;
                }
                sleep(RETRY).await;
            }
        }
    }
}

fn take(pending: &mut Pending, report: Report) {
    pending.insert((report.replica, report.generation), report.seen);
}

fn observe((replica, generation): &(ReplicaId, Generation), (state, code): &Seen) -> Guarded {
    let observation = Observation { state: *state, code: code.clone(), at: now() };
    Change::Observe { replica: replica.clone(), generation: *generation, observation }.free()
}
