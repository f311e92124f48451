//! An etcd that loses acknowledged writes under a running cell, and the way back.

use plimsoll_etcd::testkit::EtcdLab;

use super::faults::{apply_shop, must_agree};
use super::{cell_of, flags};
use crate::harness::{Cell, PATIENCE};
use crate::http;

/// What every server says once it knows, wherever one looks.
#[track_caller]
fn say_that_it_is_lost(cell: &Cell, nodes: &[usize]) {
    for at in nodes {
        cell.until("it says that writes are lost", |cell| {
            let told = cell.get(*at, "/healthz");
            told.is_some_and(|told| told["trouble"] == "log_lost")
        });
        let (status, body) = http::ask(&cell.socket(*at), "GET", "/readyz", b"", PATIENCE).unwrap();
        let ready: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, &ready["why"][0]["word"]), (503, &"log_lost".into()), "{ready}");
        let (_, body) = http::ask(&cell.socket(*at), "GET", "/metrics", b"", PATIENCE).unwrap();
        let text = String::from_utf8(body).unwrap();
        assert!(text.contains("plimsoll_log_trouble{code=\"log_lost\"} 1"), "{text}");
        for command in ["cell status", "status"] {
            let said = cell.run(*at, command).stdout();
            assert!(said.contains("log_lost: "), "{command}: {said}");
        }
        let refused = cell.run(*at, "scale shop web=7");
        assert!(
            refused.code() == 2 && refused.stderr().contains("lost acknowledged writes"),
            "{}",
            refused.text()
        );
        assert!(refused.stderr().contains("cell recover"), "{}", refused.text());
    }
}

#[test]
fn a_cell_whose_etcd_is_wiped_says_so_everywhere_and_goes_on_below_another_prefix() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let mut cell = cell_of(2, &lab);
    let refused = cell.run(0, &format!("cell recover -y --data-dir {}", cell.path(0).display()));
    assert!(
        refused.code() == 1 && refused.stderr().contains("has lost nothing"),
        "{}",
        refused.text()
    );
    apply_shop(&cell, 0);
    must_agree(&cell, &[0, 1], 6);
    let (before, term) = (cell.found(), cell.term(0).unwrap());
    lab.wipe();
    say_that_it_is_lost(&cell, &[0, 1]);
    assert_eq!(cell.found(), before, "what runs goes on running");

    let recover = |at: usize, more: &str| {
        let dir = cell.path(at);
        cell.run(at, &format!("cell recover -y -o json --data-dir {} {more}", dir.display()))
    };
    let applied = |at: usize| cell.get(at, "/healthz").unwrap()["applied"].as_u64().unwrap();
    let (newest, other) = if applied(1) > applied(0) { (1, 0) } else { (0, 1) };
    let ran = recover(newest, "");
    assert!(ran.code() == 0, "{}", ran.text());
    let told: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    let prefix = told["prefix"].as_str().unwrap().to_owned();
    assert!(prefix.starts_with("/plimsoll/home.recovered-"), "{prefix}");
    let ran = recover(other, &format!("--etcd-prefix {prefix}"));
    assert!(ran.code() == 0 && ran.stdout().contains("\"has_followed\": true"), "{}", ran.text());
    for at in [0, 1] {
        cell.stop(at);
        cell.setups[at].args.clear();
        cell.up(at, None);
    }
    cell.until_led(&[0, 1]);
    assert!(cell.term(0).unwrap() > term, "or nodes would refuse its orders");
    must_agree(&cell, &[0, 1], 6);
    assert_eq!(cell.found(), before, "nothing that runs was touched");
    let scaled = cell.run(1, "scale shop web=7");
    assert!(scaled.code() == 0, "{}", scaled.text());

    // Where it was, nobody begins anew by mistake.
    let mut newcomer = Cell::idle(crate::harness::Site::Loopback);
    newcomer.setups[3].args = flags(&lab);
    newcomer.launch(3, None);
    newcomer.until("it is refused", |cell| cell.said(3).contains("plimsoll cell recover --help"));
}
