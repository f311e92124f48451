//! Says that this node is alive, to whoever leads here. Nothing in it waits for an engine, an agent or a disk: one that
//! hangs must not pass for a node that is lost. To a leader elsewhere the [link](crate::link) says the same.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_model::access::Digest;
use plimsoll_model::level::VERSION;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::context::{NodeContext, now};

/// How old the last round may be: several rounds, on a machine that is busy. The state and the measurements are read in each,
/// so that a daemon in which one of them is held for ever is found out.
const STALE: Duration = Duration::from_secs(30);

/// When the heartbeat last went round, by which others know that this node has not hung.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<Mutex<Instant>>);

impl Default for Pulse {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Pulse {
    pub fn is_fresh(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < STALE
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// Runs until told to stop. `key` is what this node is known by, where it was not taken in with a token.
pub async fn run(
    cell: NodeContext,
    key: Option<Digest>,
    pulse: Pulse,
    mut shutdown: watch::Receiver<bool>,
) {
    let beats = async {
        loop {
            if is_ours(&cell, key) {
                beat(&cell);
            }
            pulse.note();
            sleep(cell.heartbeat()).await;
        }
    };
    tokio::select! {
        () = beats => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
}

/// Whether what the cell knows by this name is this node. It does not speak for one that had the name before: that one
/// is to be found silent.
fn is_ours(cell: &NodeContext, key: Option<Digest>) -> bool {
    let known = cell.engine.machine().read(|state| state.node(&cell.node).and_then(|it| it.key));
    key.is_none() || known.is_none() || known == key
}

fn beat(cell: &NodeContext) {
    let mut measured = cell.measurements.lock();
    let measured = measured.nodes.entry(cell.node.clone()).or_default();
    measured.heard_at = Some(now());
    measured.version.get_or_insert_with(|| VERSION.to_owned());
}

#[cfg(test)]
mod tests;
