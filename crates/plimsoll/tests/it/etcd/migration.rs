//! A cell goes from its nodes' disks to an etcd and back, with everything it has and everything that runs.

use std::fs;

use plimsoll_etcd::testkit::EtcdLab;
use serde_json::Value;

use super::faults::{apply_shop, must_agree};
use crate::harness::{Cell, Site};
use crate::run::{Ran, run_in};

/// Migrates a node, and prints what was done as JSON.
fn migrate(cell: &Cell, at: usize, to: &str, more: &str) -> Ran {
    let from = if to == "etcd" { "embedded" } else { "etcd" };
    let dir = cell.path(at);
    let line =
        format!("migrate --from {from} --to {to} --data-dir {} -o json {more}", dir.display());
    run_in(cell.dir.path(), &line, "", &[])
}

#[track_caller]
fn migrated(cell: &Cell, at: usize, to: &str, more: &str) -> Value {
    let ran = migrate(cell, at, to, more);
    assert!(ran.code() == 0, "{}", ran.text());
    serde_json::from_str(&ran.stdout()).unwrap()
}

#[test]
fn a_cell_goes_to_an_etcd_and_back_with_all_it_has_and_nothing_that_runs_is_touched() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let mut cell = Cell::of_three(Site::Loopback);
    apply_shop(&cell, 0);
    must_agree(&cell, &[0, 1, 2], 6);
    let before = cell.found();
    let to = format!("--etcd-ttl 2 --etcd-endpoints {}", lab.endpoints.join(","));
    let refused = migrate(&cell, 2, "etcd", &to);
    assert!(
        refused.code() == 1 && refused.stderr().contains("a daemon runs on"),
        "{}",
        refused.text()
    );
    let term = cell.term(0).unwrap();
    // The last one has all that was ever agreed on.
    (0..3).for_each(|at| cell.stop(at));

    let foreign = format!("{to} --etcd-prefix /theirs");
    lab.ctl(&["put", "/theirs/thing", "x"]);
    let refused = migrate(&cell, 2, "etcd", &foreign);
    let said = "there are keys below /theirs/ in etcd already";
    assert!(refused.code() == 1 && refused.stderr().contains(said), "{}", refused.text());
    let moved = migrated(&cell, 2, "etcd", &to);
    assert_eq!((&moved["has_followed"], moved["node"].as_str()), (&false.into(), Some("cedar")));
    let kept = moved["kept"].as_str().unwrap();
    assert!(fs::exists(kept).unwrap(), "what was there is kept: {kept}");
    let refused = migrate(&cell, 2, "etcd", &to);
    assert!(refused.stderr().contains("of the etcd engine already"), "{}", refused.text());
    let keyless = migrate(&cell, 0, "etcd", &to);
    let said = "print it on a server of the cell with `plimsoll cell etcd-seal-key`";
    assert!(keyless.code() == 1 && keyless.stderr().contains(said), "{}", keyless.text());
    let key = format!("cell etcd-seal-key --data-dir {}", cell.path(2).display());
    let key = run_in(cell.dir.path(), &key, "", &[]);
    assert_eq!(key.code(), 0, "{}", key.text());
    fs::write(cell.dir.path().join("seal.key"), key.stdout()).unwrap();
    let with_key = format!("{to} --etcd-seal-key-file seal.key");
    for at in [0, 1] {
        assert_eq!(migrated(&cell, at, "etcd", &with_key)["has_followed"], true);
    }
    (0..3).for_each(|at| cell.up(at, None));
    cell.until_led(&[0, 1, 2]);
    assert_eq!(cell.get(0, "/healthz").unwrap()["engine"], "etcd");
    assert!(cell.term(0).unwrap() > term, "or nodes would refuse its orders");
    must_agree(&cell, &[0, 1, 2], 6);
    assert_eq!(cell.found(), before, "nothing that runs was touched");
    let scaled = cell.run(1, "scale shop web=7");
    assert!(scaled.code() == 0, "{}", scaled.text());

    let term = cell.term(0).unwrap();
    (0..2).for_each(|at| cell.stop(at));
    let refused = migrate(&cell, 0, "embedded", "");
    let said = "servers of the cell still run: cedar";
    assert!(refused.code() == 1 && refused.stderr().contains(said), "{}", refused.text());
    cell.stop(2);
    let before = cell.found();
    let home = migrated(&cell, 0, "embedded", "");
    assert_eq!((&home["has_followed"], &home["engine"]), (&false.into(), &"embedded".into()));
    for at in [1, 2] {
        let followed = migrated(&cell, at, "embedded", "");
        assert_eq!(followed["hash"], home["hash"], "of one state");
        assert_eq!(followed["has_followed"], true);
    }
    (0..3).for_each(|at| cell.up(at, None));
    cell.until("all three vote", |cell| cell.voters(0).len() == 3);
    assert_eq!(cell.get(0, "/healthz").unwrap()["engine"], "embedded");
    assert!(cell.term(0).unwrap() > term);
    must_agree(&cell, &[0, 1, 2], 7);
    assert_eq!(cell.found(), before);
    assert!(cell.run(2, "scale shop web=8").code() == 0);

    // What it left does not begin a second life.
    let mut stranger = Cell::idle(Site::Loopback);
    let name = moved["cell"].as_str().unwrap().to_owned();
    let flags = format!("--engine etcd --cell {name} {to}");
    stranger.setups[4].args = flags.split_whitespace().map(str::to_owned).collect();
    stranger.launch(4, None);
    stranger.until("it is told where the cell went", |stranger| {
        stranger.said(4).contains("has left this etcd for the disk of ash")
    });
    let ended = stranger.daemon(4).wait().unwrap();
    assert_eq!(ended.code(), Some(1));
}
