//! Replicas that do not come up, and replicas that are stopped by force, on a node with the process runtime; and how a service
//! manager learns that a daemon has not hung.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::harness::{Cell, PATIENCE, Site};

#[test]
fn a_check_that_cannot_run_is_named_while_the_replica_starts() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let file = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'exec sleep 1000']
    healthcheck: {test: [CMD, no-such-check], interval: 1s, start_period: 10m, start_interval: 200ms}
"#;
    fs::write(cell.dir.path().join("compose.yaml"), file).unwrap();
    assert_eq!(cell.run(0, "apply -f compose.yaml -d").code(), 0);
    cell.until("the reason is there", |cell| {
        let now = &cell.json(0, "get replicas -o json")[0]["now"];
        let why = &now["reason"];
        let text = why["text"].as_str().unwrap_or_default();
        now["state"] == "starting"
            && why["word"] == "unhealthy"
            && text.contains("no-such-check")
            && now["failures"].as_u64() > Some(1)
    });
    for command in ["status shop", "explain shop-web-1"] {
        let shown = cell.run(0, command);
        assert!(shown.stdout().contains("no-such-check"), "{command}: {}", shown.text());
    }
    let applied = cell.run(0, "apply -f compose.yaml --timeout 1s");
    assert_eq!(applied.code(), 2, "as every time-out: {}", applied.text());
    assert!(applied.stderr().contains("no-such-check"), "{}", applied.text());
}

#[test]
fn a_forced_drain_takes_as_long_as_the_replica_takes_to_stop() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let file = r#"
name: shop
services:
  db:
    image: any
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 0.1; done']
    healthcheck: {test: [CMD, "true"], interval: 100ms}
"#;
    fs::write(cell.dir.path().join("compose.yaml"), file).unwrap();
    assert_eq!(cell.run(0, "apply -f compose.yaml").code(), 0);
    let begun = Instant::now();
    let drained = cell.run(0, "node drain ash --force");
    let took = begun.elapsed();
    assert_eq!(drained.code(), 0, "{}", drained.text());
    let said = cell.said(0);
    assert!(!said.contains("connections open"), "it has no ports: {said}");
    assert!(took < Duration::from_secs(8), "its grace is 10 s, and it needs none of it: {took:?}");
}

/// What a service manager at this socket is told. It listens all the time, as a real one does.
fn manager(socket: &Path) -> Receiver<String> {
    let bound = UnixDatagram::bind(socket).unwrap();
    let (sender, words) = channel();
    std::thread::spawn(move || {
        let mut heard = [0; 100];
        while let Ok(length) = bound.recv(&mut heard) {
            let word = String::from_utf8_lossy(&heard[..length]).into_owned();
            if sender.send(word).is_err() {
                return;
            }
        }
    });
    words
}

/// Waits until this was told so many times more.
#[track_caller]
fn until_told(words: &Receiver<String>, word: &str, times: usize) {
    let mut count = 0;
    while count < times {
        let told = words.recv_timeout(PATIENCE).expect("the daemon says that it lives");
        count += usize::from(told == word);
    }
}

#[test]
fn a_service_manager_hears_that_a_daemon_lives_and_that_its_heir_does() {
    let mut cell = Cell::idle(Site::Loopback);
    let socket = cell.dir.path().join("notify");
    let words = manager(&socket);
    cell.setups[0].environment = vec![
        ("NOTIFY_SOCKET".to_owned(), socket.to_str().unwrap().to_owned()),
        ("WATCHDOG_USEC".to_owned(), "300000".to_owned()),
    ];
    cell.up(0, None);
    until_told(&words, "READY=1", 1);
    until_told(&words, "WATCHDOG=1", 3);
    let heir = cell.hand_over(0);
    until_told(&words, &format!("MAINPID={heir}\nREADY=1"), 1);
    until_told(&words, "WATCHDOG=1", 3);
}
