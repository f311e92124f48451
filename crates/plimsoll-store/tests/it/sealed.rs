//! Nothing of the state can be read off a disk, and a store is opened by its own keys alone.

use std::fs;
use std::path::Path;

use plimsoll_model::Change;
use plimsoll_seal::UnlockKey;
use plimsoll_store::embedded::{EmbeddedConfig, OpenError};
use plimsoll_store::{Embedded, Engine, backup, keys};

use crate::support::*;

const SECRET: &str = "correct-horse-battery-staple";

fn with_secret(nth: u32) -> plimsoll_model::Command {
    let mut command = join(&format!("n{nth}"));
    let Change::PutNode { facts, .. } = &mut command.batch[0].change else { unreachable!() };
    facts.labels.insert("password".to_owned(), SECRET.to_owned());
    command
}

/// The files below a directory that hold the secret.
fn giving_away(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(giving_away(&path));
            continue;
        }
        // A snapshot that was under way may get its name just now.
        let content = fs::read(&path).unwrap_or_default();
        if content.windows(SECRET.len()).any(|it| it == SECRET.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

async fn written(config: EmbeddedConfig, range: std::ops::Range<u32>) {
    let engine = Embedded::start(config).await.unwrap();
    for nth in range.clone() {
        engine.propose(with_secret(nth)).await.unwrap();
    }
    let has_all =
        engine.machine().read(|state| (0..range.end).all(|n| has_node(state, &format!("n{n}"))));
    assert!(has_all, "what earlier keys sealed is still read");
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn no_file_of_a_store_gives_a_secret_away() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let small = || EmbeddedConfig { snapshot_every: 4, ..config(&data) };
    for start in 0..4 {
        written(small(), start * 5..start * 5 + 5).await;
        assert_eq!(giving_away(&data), Vec::<String>::new(), "after start {start}");
    }
    assert!(data.join("snapshot").exists(), "a snapshot was looked at too");
}

#[tokio::test]
async fn a_locked_store_takes_its_unlock_key_and_no_other() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let (unlock, other) = (UnlockKey::generate().unwrap(), UnlockKey::generate().unwrap());
    let with =
        |unlock: Option<&UnlockKey>| EmbeddedConfig { unlock: unlock.cloned(), ..config(&data) };
    written(with(None), 0..3).await;
    assert!(!keys::is_locked(&data).unwrap());
    // From the first start with a key on it is locked.
    written(with(Some(&unlock)), 3..6).await;
    assert!(keys::is_locked(&data).unwrap());
    let locked = Embedded::start(with(None)).await.unwrap_err();
    assert!(matches!(locked, OpenError::Locked { .. }), "{locked}");
    let wrong = Embedded::start(with(Some(&other))).await.unwrap_err();
    assert!(matches!(wrong, OpenError::WrongUnlockKey { .. }), "{wrong}");
    let file = dir.join("backup");
    assert!(backup::take_stopped(&data, &file, None).is_err());
    keys::change_lock(&data, Some(&unlock), Some(&other)).unwrap();
    written(with(Some(&other)), 6..8).await;
    keys::change_lock(&data, Some(&other), None).unwrap();
    written(with(None), 8..9).await;
}

#[tokio::test]
async fn a_store_without_its_keyring_or_with_another_is_refused() {
    let dir = TempDir::new();
    let (data, others) = (dir.join("data"), dir.join("others"));
    written(config(&data), 0..3).await;
    written(config(&others), 0..3).await;
    let keyring = data.join("keyring");
    fs::copy(others.join("keyring"), &keyring).unwrap();
    let error = Embedded::start(config(&data)).await.unwrap_err();
    let chain = backup::chain(&error);
    assert!(chain.contains("sealed by another server"), "{chain}");
    fs::remove_file(&keyring).unwrap();
    let error = Embedded::start(config(&data)).await.unwrap_err();
    assert!(matches!(error, OpenError::KeyringLost { .. }), "{error}");
    assert!(!keyring.exists(), "refusing changes nothing");
}
