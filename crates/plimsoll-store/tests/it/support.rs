//! Stores in a few words.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_model::access::KeyBytes;
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{Author, CellId, Change, Command, State, Term, Timestamp, Writer};
use plimsoll_store::disk::sim::SimDisk;
use plimsoll_store::embedded::{EmbeddedConfig, Timing};
use plimsoll_store::keys::CellKey;
use plimsoll_store::{Embedded, Engine};

/// A directory that goes when the test ends.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("plimsoll-store-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

pub(crate) fn cell_id() -> CellId {
    CellId::new("test").unwrap()
}

/// As patient as a busy test machine needs.
pub(crate) fn timing() -> Timing {
    Timing::from_append(Duration::from_millis(1))
}

pub(crate) fn config(data_dir: &Path) -> EmbeddedConfig {
    EmbeddedConfig { timing: Some(timing()), ..EmbeddedConfig::alone(data_dir, cell_id()) }
}

pub(crate) fn on_sim(disk: &SimDisk) -> EmbeddedConfig {
    EmbeddedConfig { disk: Arc::new(disk.clone()), ..config(Path::new("data")) }
}

pub(crate) fn command(change: Change) -> Command {
    let by = Author::new(Writer::Operator, "test");
    Command::new(Timestamp(1_000), Term(1), by, vec![change.free()])
}

pub(crate) fn join(name: &str) -> Command {
    command(Change::PutNode { node: node_id(name), facts: cpus(4) })
}

/// What gives the cell its backup key.
pub(crate) fn give_backup_key() -> Command {
    command(Change::CreateBackupKey { secret: KeyBytes([7; 32]) })
}

pub(crate) fn backup_key() -> CellKey {
    CellKey::from_bytes(&[7; 32]).unwrap()
}

/// A node that has so much to say of itself.
pub(crate) fn large(nth: u64, bytes: usize) -> Command {
    let mut facts = cpus(4);
    facts.labels.insert("large".to_owned(), "x".repeat(bytes));
    command(Change::PutNode { node: node_id(&format!("n{nth}")), facts })
}

pub(crate) fn leave(name: &str) -> Command {
    command(Change::RemoveNode { node: node_id(name) })
}

pub(crate) fn has_node(state: &State, name: &str) -> bool {
    state.node(&node_id(name)).is_some()
}

pub(crate) fn state_bytes(engine: &Embedded) -> Vec<u8> {
    engine.machine().read(|state| postcard::to_stdvec(state).unwrap())
}

/// Waits for a state that must come.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    for _ in 0..2_000 {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to pass that {what}");
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
