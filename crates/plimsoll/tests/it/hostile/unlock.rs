//! Somebody with the disk of a server that is locked, and without its unlock key.

use std::fs;
use std::path::Path;

use plimsoll_store::keys;

use crate::harness::{Cell, Site};
use crate::run::binary;

/// Starts a daemon on this directory in the foreground, which must not come up, and says how it exited and what it said.
fn refused(dir: &Path, key: Option<&Path>) -> (Option<i32>, String) {
    let mut up = binary();
    up.args(["up", "--runtime", "process", "--data-dir"]).arg(dir);
    if let Some(key) = key {
        up.arg("--unlock-key-file").arg(key);
    }
    let ended = up.env_remove("PLIMSOLL_UNLOCK_KEY").output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn a_server_that_is_locked_starts_with_its_unlock_key_alone() {
    let mut cell = Cell::idle(Site::Loopback);
    let [own, other] = ["own.key", "other.key"].map(|name| cell.dir.path().join(name));
    for file in [&own, &other] {
        let made = binary().args(["cell", "unlock-key"]).output().unwrap();
        assert!(made.status.success());
        fs::write(file, made.stdout).unwrap();
    }
    let args = ["--unlock-key-file".to_owned(), own.to_str().unwrap().to_owned()];
    cell.setups[0].args = args.to_vec();
    cell.up(0, None);
    fs::write(cell.dir.path().join("password"), "s3cret").unwrap();
    assert_eq!(cell.run(0, "secret create db password").code(), 0);
    cell.stop(0);

    let dir = cell.path(0);
    assert!(
        keys::is_locked(&dir.join("store")).unwrap(),
        "the data keys lie open beside the store"
    );
    for (case, key, said) in [
        ("without a key", None, "is locked; start it with its unlock key"),
        ("with another key", Some(other.as_path()), "is not the unlock key of the store"),
    ] {
        let (code, text) = refused(&dir, key);
        assert!(
            code.is_some_and(|code| code != 0) && text.contains(said),
            "{case}: {code:?} {text}"
        );
    }
    cell.up(0, None);
    let listed = cell.run(0, "secret list");
    assert!(listed.stdout().contains("db"), "{}", listed.text());
}
