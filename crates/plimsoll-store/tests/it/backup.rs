//! One file that holds a cell, and a cell from one file.

use std::path::Path;

use plimsoll_model::Timestamp;
use plimsoll_model::testkit::node_id;
use plimsoll_store::backup::Restored;
use plimsoll_store::{Embedded, Engine, backup};

use crate::support::*;

fn restore(file: &Path, into: &Path, node: &str) -> Result<Restored, backup::Error> {
    let held = backup::state(file, &[backup_key()])?;
    backup::restore(held, into, &node_id(node), Timestamp(9))
}

#[tokio::test]
async fn a_backup_restores_to_the_same_state_under_newer_terms() {
    let dir = TempDir::new();
    let (data, file) = (dir.join("data"), dir.join("cell.backup"));
    let engine = Embedded::start(config(&data)).await.unwrap();
    engine.propose(give_backup_key()).await.unwrap();
    for nth in 0..30 {
        engine.propose(join(&format!("n{nth}"))).await.unwrap();
    }
    let running = engine.backup(&file).await.unwrap();
    assert_eq!(running.applied, *engine.machine().applied().borrow());
    let label = backup::verify(&file).unwrap();
    assert_eq!((label.summary, label.key), (running.clone(), backup_key().id()));
    let term = engine.leadership().borrow().term;
    engine.propose(join("after")).await.unwrap();
    engine.shutdown().await.unwrap();

    let restored = dir.join("restored");
    let made = restore(&file, &restored, "n7").unwrap();
    assert_eq!((made.summary, made.lost.len()), (running.clone(), 29));
    let engine = Embedded::start(config(&restored)).await.unwrap();
    engine.machine().read(|state| {
        let nodes: Vec<_> = state.nodes().keys().map(ToString::to_string).collect();
        assert_eq!(nodes, ["n7"], "it does not believe in the others");
        assert_eq!(state.node(&node_id("n7")).unwrap().server, Some(engine.id().0));
    });
    assert_eq!(engine.id(), made.server);
    assert!(engine.incarnation().since > term.0, "it is not heard by the old servers");
    let now = *engine.leadership().borrow();
    assert!(now.is_me && now.term.0 > term.0 + 1_000, "{now:?}");
    assert_eq!(engine.members().len(), 1);
    let committed = engine.propose(join("new")).await.unwrap();
    assert!(committed.index > running.applied, "indexes go on where they were");
    engine.shutdown().await.unwrap();
    let engine = Embedded::start(config(&restored)).await.unwrap();
    assert!(engine.machine().read(|state| has_node(state, "new") && has_node(state, "n7")));
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_stopped_store_backs_up_as_a_running_one_does() {
    let dir = TempDir::new();
    let (data, file) = (dir.join("data"), dir.join("stopped.backup"));
    let config =
        || plimsoll_store::embedded::EmbeddedConfig { snapshot_every: 20, ..config(&data) };
    let engine = Embedded::start(config()).await.unwrap();
    engine.propose(give_backup_key()).await.unwrap();
    for nth in 0..50 {
        engine.propose(join(&format!("n{nth}"))).await.unwrap();
    }
    engine.propose(leave("nobody")).await.unwrap();
    let applied = *engine.machine().applied().borrow();
    let in_use = backup::take_stopped(&data, &file, None).unwrap_err().to_string();
    assert!(in_use.contains("is in use by another plimsoll"), "{in_use}");
    engine.shutdown().await.unwrap();

    assert_eq!(backup::take_stopped(&data, &file, None).unwrap().applied, applied);
    let restored = dir.join("restored");
    let made = restore(&file, &restored, "n3").unwrap();
    assert_eq!((made.summary.applied, made.lost.len()), (applied, 49));
    let engine = Embedded::start(crate::support::config(&restored)).await.unwrap();
    assert!(engine.machine().read(|state| has_node(state, "n3")));
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_restore_refuses_what_it_cannot_do_well() {
    let dir = TempDir::new();
    let (data, file) = (dir.join("data"), dir.join("cell.backup"));
    let engine = Embedded::start(config(&data)).await.unwrap();
    engine.propose(give_backup_key()).await.unwrap();
    engine.propose(join("ash")).await.unwrap();
    engine.backup(&file).await.unwrap();
    engine.shutdown().await.unwrap();
    let refused = |file: &str| {
        let (file, into) = (dir.join(file), dir.join("into"));
        restore(&file, &into, "ash").unwrap_err().to_string()
    };
    let at = |name: &str| dir.join(name).display().to_string();

    let error = restore(&file, &data, "ash").unwrap_err();
    let expected = format!("{} is not empty; restore into a new data directory", data.display());
    assert_eq!(error.to_string(), expected);

    let good = std::fs::read(&file).unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    put("flipped", &flipped);
    assert_eq!(
        refused("flipped"),
        format!("{} is damaged: its checksum does not match", at("flipped"))
    );
    put("cut", &good[..good.len() - 5]);
    assert!(refused("cut").contains("is damaged: it should hold"));
    put("other", b"a text file of some length, but not a backup");
    assert_eq!(refused("other"), format!("{} is not a backup of plimsoll", at("other")));
    let mut newer = good;
    newer[8] = 9;
    put("newer", &newer);
    assert_eq!(
        refused("newer"),
        format!(
            "{} is a backup of format 9, this build supports up to 1; use a newer plimsoll",
            at("newer")
        )
    );
    assert_eq!(refused("missing"), format!("cannot read {}", at("missing")));
    assert!(!dir.join("into").exists(), "a refused restore leaves nothing behind");
}
