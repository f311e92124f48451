//! Two builds in one cell: this one, and one a level ahead that writes what this one cannot read. A cell of three is
//! upgraded node by node under load.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use plimsoll_api::view::ProblemCode;
use plimsoll_daemon::link::reach::Reach;
use plimsoll_daemon::link::{Connect, Unopened};
use plimsoll_lab::NAMES;
use plimsoll_peer::PeerClient;
use plimsoll_peer::pki::{Credentials, Identity};
use plimsoll_store::Peer;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::harness::{Cell, Site, loopback};
use crate::run::{binary, run_in};

/// What this build calls itself, and what the other does.
const OLD: &str = env!("CARGO_PKG_VERSION");
const NEW: &str = concat!(env!("CARGO_PKG_VERSION"), "+next");

/// The build a level ahead, made once, in a directory of its own beside ours.
fn next_build() -> PathBuf {
    let ours = PathBuf::from(binary().get_program());
    let target = ours.parent().unwrap().parent().unwrap().join("next-level");
    let made = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "-p", "plimsoll", "--bin", "plimsoll"])
        .args(["--features", "next-level", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    target.join("debug/plimsoll")
}

/// Which process is which replica, on all nodes.
fn replicas(cell: &Cell) -> BTreeMap<String, (String, String)> {
    cell.found().into_iter().map(|found| (found.replica, (found.id, found.since))).collect()
}

fn cell_id(cell: &Cell, at: usize) -> Value {
    cell.json(at, "cell status -o json")
}

/// What the next build writes in a form of its own, as soon as it may. Whoever asks for it reads it, and so is as new.
fn back_up(cell: &Cell, at: usize, by: &Path, file: &str) {
    cell.until("a backup is taken", |cell| {
        let mut command = Command::new(by);
        command.args(["backup", file]).current_dir(cell.dir.path());
        command.env("PLIMSOLL_HOST", cell.socket(at)).output().unwrap().status.success()
    });
}

/// Gives operators tokens through whichever node takes it, until told to end. Who was acknowledged.
fn write_on(dir: &Path, sockets: &[PathBuf], has_ended: &AtomicBool) -> Vec<String> {
    let mut written = Vec::new();
    for number in 0.. {
        if has_ended.load(Ordering::Relaxed) {
            break;
        }
        let socket = sockets[number % sockets.len()].to_str().unwrap();
        let name = format!("w{number}");
        let made = run_in(dir, &format!("token create {name}"), "", &[("PLIMSOLL_HOST", socket)]);
        if made.code() == 0 {
            written.push(name);
        }
    }
    written
}

/// Stops a daemon and starts it as another build. Its replicas run on.
fn replace(cell: &mut Cell, at: usize, build: Option<&PathBuf>) {
    cell.stop(at);
    cell.setups[at].build = build.cloned();
    cell.up(at, None);
}

fn until_all_are_heard(cell: &Cell, versions: [&str; 3]) {
    cell.until("every node says what it runs and is followed", |cell| {
        let Some(nodes) = cell.get(0, "/v1/nodes") else { return false };
        let Some(nodes) = nodes.as_array() else { return false };
        let runs = |(node, version): (&Value, &str)| {
            node["version"] == version && node["status"] == "ready"
        };
        nodes.len() == 3 && nodes.iter().zip(versions).all(runs)
    });
}

#[test]
fn a_cell_is_upgraded_node_by_node_under_load_and_an_old_node_is_told_what_to_do() {
    let next = next_build();
    let mut cell = Cell::of_three(Site::Loopback);
    cell.write_shop();
    assert_eq!(cell.run(0, "apply -f compose.yaml").code(), 0);
    let before = replicas(&cell);
    assert_eq!(before.len(), 6);
    let first = cell.until_led(&[0, 1, 2]);
    let followers = cell.others(first);

    let (dir, sockets) = (cell.dir.path().to_owned(), [0, 1, 2].map(|at| cell.socket(at)));
    let has_ended = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&has_ended);
    let writing = thread::spawn(move || write_on(&dir, &sockets, &until));

    let mut runs = [OLD; 3];
    for at in followers.iter().copied() {
        replace(&mut cell, at, Some(&next));
        runs[at] = NEW;
        until_all_are_heard(&cell, runs);
        let status = cell_id(&cell, at);
        assert_eq!(status["level"], 1, "one server is old: {status}");
        let said = cell.run(at, "cell status").stdout();
        assert!(said.contains("an upgrade is half done"), "{said}");
        let said = cell.run(at, "node list").stdout();
        assert!(said.contains(NEW) && said.contains("an upgrade is half done"), "{said}");
    }

    // The newer build leads, and the old one comes back to it once more: what is written, it must be able to read.
    cell.stop(first);
    let second = cell.until_led(&followers);
    back_up(&cell, second, &next, "half.backup");
    cell.up(first, None);
    until_all_are_heard(&cell, runs);
    back_up(&cell, second, &next, "whole.backup");
    cell.until_led(&[0, 1, 2]);
    cell.must_live();
    assert_eq!(cell_id(&cell, second)["level"], 1);

    replace(&mut cell, first, Some(&next));
    until_all_are_heard(&cell, [NEW; 3]);
    cell.until("the level is raised", |cell| {
        cell.nodes().all(|at| cell.get(at, "/v1/cell").is_some_and(|it| it["level"] == 2))
    });
    has_ended.store(true, Ordering::Relaxed);
    let written = writing.join().unwrap();
    back_up(&cell, second, &next, "upgraded.backup");
    cell.until_equal(&[0, 1, 2]);
    assert_eq!(replicas(&cell), before, "no replica was touched");
    let said = cell.run(0, "cell status").stdout();
    assert!(said.contains("level 2") && !said.contains("half done"), "{said}");
    let audit = cell.run(0, "audit --type level_raised").stdout();
    assert_eq!(audit.matches("the cell speaks level 2").count(), 1, "{audit}");
    let known = cell.json(0, "token list -o json");
    let known: Vec<&str> =
        known.as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert!(written.len() > 10, "writes went on: {written:?}");
    let lost: Vec<&String> = written.iter().filter(|it| !known.contains(&it.as_str())).collect();
    assert!(lost.is_empty(), "acknowledged and gone: {lost:?}");

    an_old_node_cannot_join(&cell, second);
    an_old_agent_gets_no_link(&cell, first, second);
    an_old_build_cannot_go_on(&mut cell, first, &next);
    assert_eq!(replicas(&cell), before, "nor by that");
}

fn an_old_node_cannot_join(cell: &Cell, leader: usize) {
    let token = cell.token(leader);
    let refused = binary()
        .args(["up", "--runtime", "process", "--name", "dogwood", "--address", &loopback(3)])
        .args(["--join", &token, "--data-dir"])
        .arg(cell.path(3))
        .output()
        .unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    let why = format!("this node runs plimsoll {OLD}, the cell speaks level 2");
    assert!(said.contains(&why) && said.contains("install the same plimsoll as"), "{said}");
}

/// A member of the cell, as this test is built: with its certificate, and too old. It is told so by the leader itself,
/// and what it gets is worth showing to people.
fn an_old_agent_gets_no_link(cell: &Cell, member: usize, leader: usize) {
    let identity = Identity::load(&cell.path(member)).unwrap().unwrap();
    let reach = Reach(PeerClient::new(Credentials::new(&identity).unwrap()));
    let peer = Peer { name: NAMES[leader].to_owned(), address: cell.address(leader) };
    let opened = Runtime::new().unwrap().block_on(async { reach.open(&peer).await });
    let Err(Unopened::Outdated(problem)) = opened else { panic!("{opened:?}") };
    assert_eq!(problem.code, ProblemCode::Outdated);
    assert_eq!(problem.message, format!("this node runs plimsoll {OLD}, the cell speaks level 2"));
    let hint = format!("install the same plimsoll as {} ({NEW})", NAMES[leader]);
    assert_eq!(problem.hint, Some(hint));
    cell.until("the leader says whom it turned away", |cell| {
        cell.said(leader).contains(&format!("turned away: {}", problem.message))
    });
}

/// It says why, waits, and leaves its replicas alone; with the right build it goes on.
fn an_old_build_cannot_go_on(cell: &mut Cell, at: usize, next: &Path) {
    cell.stop(at);
    cell.setups[at].build = None;
    let before = cell.said(at).len();
    cell.launch(at, None);
    let why = format!("this node runs plimsoll {OLD}, the cell speaks level 2: install the same");
    cell.until("it says why", |cell| cell.said(at)[before..].contains(&why));
    cell.must_live();
    cell.stop(at);
    cell.setups[at].build = Some(next.to_owned());
    cell.up(at, None);
    cell.until_equal(&[0, 1, 2]);
}
