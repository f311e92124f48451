//! Says that this node is alive, to whoever leads here. Nothing in it waits for an engine, an agent or a disk: one that
//! hangs must not pass for a node that is lost. To a leader elsewhere the [link](crate::link) says the same.

use plimsoll_model::access::Digest;
use plimsoll_model::level::VERSION;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::context::{NodeContext, now};

/// Runs until told to stop. `key` is what this node is known by, where it was not taken in with a token.
pub async fn run(cell: NodeContext, key: Option<Digest>, mut shutdown: watch::Receiver<bool>) {
    let beats = async {
        loop {
            if is_ours(&cell, key) {
                beat(&cell);
            }
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
