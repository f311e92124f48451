//! Somebody who reads the etcd of a cell, and a machine that reaches it and has not been given the cell's key: neither has
//! anything of the cell.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use plimsoll_etcd::testkit::EtcdLab;

use super::{cell_with, flags};
use crate::harness::Cell;
use crate::run::run_in;

const SECRET: &str = "correct-horse-battery-staple-5";

/// What every node of the cell is told but for its key.
fn keyless(lab: &EtcdLab) -> Vec<String> {
    let mut flags = flags(lab);
    let at = flags.iter().position(|flag| flag == "--etcd-seal-key-file").unwrap();
    flags.drain(at..at + 2);
    flags
}

/// All values, as etcd has them.
fn values(lab: &EtcdLab) -> String {
    lab.ctl(&["get", "", "--prefix", "--write-out=fields"])
}

fn create_secret(cell: &Cell) {
    let socket = cell.socket(0);
    let env = [("PLIMSOLL_HOST", socket.to_str().unwrap())];
    let made = run_in(cell.dir.path(), "secret create db -", SECRET, &env);
    assert_eq!(made.code(), 0, "{}", made.text());
}

/// Starts a daemon that must not come up, and returns what it says.
#[track_caller]
fn refused(cell: &mut Cell, at: usize) -> String {
    let before = cell.said(at).len();
    cell.launch(at, None);
    let ended = cell.daemon(at).wait().unwrap();
    let said = cell.said(at)[before..].to_owned();
    assert_eq!(ended.code(), Some(1), "{said}");
    cell.until_ended(at);
    said
}

#[test]
fn a_cell_on_etcd_gives_nothing_away_and_takes_no_server_without_its_key() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    // The first server makes the key; the others are given it.
    let first = keyless(&lab);
    let mut cell = cell_with(1, &lab, |cell| cell.setups[0].args = first);
    create_secret(&cell);
    let before = values(&lab);
    cell.setups[1].args = keyless(&lab);
    let said = refused(&mut cell, 1);
    assert!(said.contains("cell home in etcd is sealed with key"), "{said}");
    assert!(said.contains("--etcd-seal-key-file FILE"), "with the next step: {said}");
    assert!(!cell.path(1).join("node.json").exists(), "nothing is begun");

    let shown = format!("cell etcd-seal-key --data-dir {}", cell.path(0).display());
    let shown = run_in(cell.dir.path(), &shown, "", &[]);
    assert_eq!(shown.code(), 0, "{}", shown.text());
    let file = cell.path(0).join("etcd-seal.key");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let key = cell.dir.path().join("seal.key");
    fs::write(&key, shown.stdout()).unwrap();
    for at in [1, 2] {
        cell.setups[at].args = keyless(&lab);
        cell.setups[at].args.extend(["--etcd-seal-key-file".to_owned(), key.display().to_string()]);
        cell.launch(at, None);
    }
    cell.until_up(1..3);
    cell.until_heard(0, 3);
    cell.until_equal(&[0, 1, 2]);
    // Of a server that was given it, it is not asked for again.
    fs::remove_file(&key).unwrap();
    cell.stop(2);
    cell.setups[2].args.clear();
    cell.up(2, None);
    cell.until_equal(&[0, 1, 2]);

    let found = values(&lab);
    for found in [&before, &found] {
        assert!(found.contains("/plimsoll/home/scheduler/entry/"), "{found}");
        for (what, secret) in [("a secret", SECRET), ("the key", shown.stdout().trim())] {
            assert!(!found.contains(secret), "{what} is in etcd");
        }
    }

    // Without the file a server does not start, and another key does not replace it.
    cell.stop(1);
    cell.setups[1].args.clear();
    let kept = cell.path(1).join("etcd-seal.key");
    fs::rename(&kept, cell.dir.path().join("away")).unwrap();
    let said = refused(&mut cell, 1);
    assert!(said.contains("is sealed with key") && said.contains("does not have"), "{said}");
    let other = run_in(cell.dir.path(), "cell etcd-seal-key new", "", &[]).stdout();
    fs::write(cell.dir.path().join("other.key"), other).unwrap();
    let path = cell.dir.path().join("other.key");
    cell.setups[1].args = vec!["--etcd-seal-key-file".to_owned(), path.display().to_string()];
    let said = refused(&mut cell, 1);
    assert!(said.contains("and this node has key"), "{said}");
    assert!(!kept.exists(), "the wrong key is not kept");
    fs::rename(cell.dir.path().join("away"), &kept).unwrap();
    cell.setups[1].args.clear();
    cell.up(1, None);
    cell.until_equal(&[0, 1, 2]);
}
