//! `plimsoll doctor` on a host before `up`, on a node, and on a server whose peers are there or not.

use std::net::TcpListener;

use serde_json::Value;

use crate::harness::{Cell, Site};
use crate::run::{Ran, run_in};

/// What it found of one thing, with its result.
fn found(ran: &Ran, check: &str) -> Vec<(String, String)> {
    let told: Value =
        serde_json::from_str(&ran.stdout()).unwrap_or_else(|_| panic!("{}", ran.text()));
    let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
    let findings = told["findings"].as_array().unwrap().iter().filter(|it| it["check"] == check);
    findings.map(|it| (text(it, "result"), text(it, "found"))).collect()
}

#[track_caller]
fn is(ran: &Ran, check: &str, result: &str, says: &str) {
    let findings = found(ran, check);
    let is_it = |(is, text): &(String, String)| is == result && text.contains(says);
    assert!(findings.iter().any(is_it), "{check}: {findings:?}\n{}", ran.text());
}

#[test]
fn before_up_the_host_is_looked_at_and_what_is_in_the_way_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let none = "--docker-socket ./none.sock --data-dir ./node --host ./none";
    let args = format!("doctor {none} --bind {address} -o json");
    let ran = run_in(dir.path(), &args, "", &[]);
    assert_eq!(ran.code(), 2, "{}", ran.text());
    is(&ran, "daemon", "warn", "no daemon answers");
    is(&ran, "engine", "fail", "no engine answers at ./none.sock");
    is(&ran, "port", "fail", &format!("cannot bind the address {address}"));
    is(&ran, "fsync", "ok", "an election after ");
    is(&ran, "peers", "ok", "there is no other server");
    assert_eq!(found(&ran, "space").len(), 1);
    assert_eq!(found(&ran, "files").len(), 1);
    assert!(!dir.path().join("node").exists(), "it makes nothing");
    let shown = run_in(dir.path(), &format!("doctor {none}"), "", &[]).stdout();
    assert!(shown.contains("fail    engine    no engine answers"), "{shown}");
    assert!(shown.contains("→ start it (`systemctl start docker`)"), "{shown}");
}

#[test]
fn a_server_is_told_which_peers_are_reached_both_ways_and_which_not() {
    let mut cell = Cell::of_three(Site::Loopback);
    let doctor = |cell: &Cell| {
        let args = format!("doctor --data-dir {} -o json", cell.path(0).display());
        run_in(cell.dir.path(), &args, "", &[])
    };
    let ran = doctor(&cell);
    is(&ran, "daemon", "ok", "ash is up");
    is(&ran, "engine", "ok", "none needed");
    is(&ran, "port", "ok", &format!("peer port {} is the daemon's", cell.address(0)));
    for at in [1, 2] {
        let says = format!("at {} answers in ", cell.address(at));
        is(&ran, "peers", "ok", &says);
    }
    let ways = found(&ran, "peers");
    assert!(ways.iter().all(|(_, text)| text.ends_with("and reaches this node")), "{ways:?}");
    is(&ran, "clock", "ok", "the clock of birch agrees with ours");
    is(&ran, "clock", "ok", "the clock of cedar agrees with ours");
    is(&ran, "certificate", "ok", "node ash expires in ");
    let failed: Vec<_> = ["daemon", "engine", "port", "peers", "clock", "certificate"]
        .iter()
        .flat_map(|check| found(&ran, check))
        .filter(|(result, _)| result == "fail")
        .collect();
    assert!(failed.is_empty(), "{failed:?}");

    cell.kill(2);
    let ran = doctor(&cell);
    assert_eq!(ran.code(), 2, "{}", ran.text());
    is(&ran, "peers", "fail", &format!("cannot reach cedar at {}", cell.address(2)));
    is(&ran, "peers", "ok", "birch at ");

    // A daemon that is down: the certificate is there, and the others are known from before.
    cell.kill(0);
    let ran = doctor(&cell);
    is(&ran, "daemon", "warn", "no daemon answers");
    is(&ran, "certificate", "ok", "node ash expires in ");
    is(&ran, "engine", "ok", "none needed");
}
