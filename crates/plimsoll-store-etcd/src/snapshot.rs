//! Snapshots: the state in parts, one key that says which of them holds, and then the entries it replaces deleted.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_etcd::{Error, Op, Range};
use plimsoll_model::State;
use plimsoll_store::Machine;

use crate::append::{AppendOutcome, EtcdWriter};
use crate::layout::{FORMAT, ParsedKey, Snapshot, to_json};
use crate::rules::{self, MAX_BYTES};
use crate::seal::part_of;

/// How many entries are deleted in one transaction: more would hold up appends.
const SLICE: u64 = 1_000;

/// Why there is no new snapshot. The one before holds, and nothing is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SnapshotFailure {
    Deposed,
    Refused(Error),
}

/// A state to be written down, and how much of the log goes after it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) writer: EtcdWriter,
    pub(crate) machine: Arc<Machine>,
    pub(crate) every: u64,
    pub(crate) compacts: bool,
}

impl Job {
    /// Returns the index that the snapshot holds.
    pub(crate) async fn run(self) -> Result<u64, SnapshotFailure> {
        let machine = Arc::clone(&self.machine);
        // Beside the tasks, because renewals must not wait for it.
        let encoded = tokio::task::spawn_blocking(move || machine.read_at(encode)).await;
        let (state, index) = encoded.expect("writing a state does not panic");
        let (layout, term) = (&self.writer.layout, self.writer.term);
        for (nth, at) in (0..state.len()).step_by(MAX_BYTES).enumerate() {
            let part = &state[at..state.len().min(at + MAX_BYTES)];
            let key = layout.state_part(index, term, nth);
            let part = self.writer.seal.seal(&key, &part_of(state.len() as u64), part);
            self.write([Op::put(key, part)]).await?;
        }
        let before =
            self.writer.client.get(layout.snapshot()).await.map_err(SnapshotFailure::Refused)?;
        let meta = Snapshot { format: FORMAT, index, term, bytes: state.len() as u64 };
        // From here on it holds.
        let mut ops = vec![Op::put(layout.snapshot(), to_json(&meta))];
        ops.extend(layout.other_states(index, term).map(Op::delete));
        self.write(ops).await?;
        self.trim(rules::deletable(index, self.every)).await?;
        if let Some(before) = before.filter(|_| self.compacts) {
            // What happened since the last snapshot is kept for those who watch. Whether etcd lets us, or somebody else
            // has done it, is nothing to the snapshot.
            self.writer.client.compact(before.mod_revision).await.ok();
        }
        Ok(index)
    }

    /// Deletes the entries up to one, and their parts.
    async fn trim(&self, last: u64) -> Result<(), SnapshotFailure> {
        let layout = &self.writer.layout;
        let oldest = Range::of(layout.entries(0, last + 1)).limit(1).keys_only();
        let oldest =
            self.writer.client.range(oldest).await.map_err(SnapshotFailure::Refused)?.pairs.pop();
        let Some(ParsedKey::Entry(mut from)) = oldest.map(|pair| layout.thing(&pair.key)) else {
            return Ok(());
        };
        while from <= last {
            let to = (from + SLICE).min(last + 1);
            let parts = Op::delete(layout.parts_between(0, to));
            self.write([Op::delete(layout.entries(from, to)), parts]).await?;
            from = to;
        }
        Ok(())
    }

    async fn write(&self, ops: impl IntoIterator<Item = Op>) -> Result<(), SnapshotFailure> {
        match self.writer.write(ops).await {
            AppendOutcome::Committed => Ok(()),
            AppendOutcome::Deposed | AppendOutcome::Unsure => Err(SnapshotFailure::Deposed),
            AppendOutcome::Refused(error) => Err(SnapshotFailure::Refused(error)),
        }
    }
}

fn encode(state: &State, index: u64) -> (Bytes, u64) {
    (postcard::to_stdvec(state).expect("every state can be written").into(), index)
}
