//! A control plane that panics under load: the log's own task, the thread that writes it, and the state machine. What carries
//! clients goes on in the same process, and no request fails; the control plane is there again a moment later.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;

use crate::harness::{Cell, Site, loopback};
use crate::steady::{Client, Over, Tally};
use crate::upstream::upstream;

const HOST: &str = "shop.example";

/// Requests that are answered before a panic and after it.
const BETWEEN: usize = 300;

/// Where a daemon of this build panics when it is asked to, see `plimsoll_store::fault`.
const PLACES: [&str; 3] = ["log-apply", "log-core", "log-writer"];

fn restarts(cell: &Cell) -> u64 {
    let (_, page) = crate::http::ask(
        &cell.socket(0),
        "GET",
        "/metrics",
        b"",
        std::time::Duration::from_secs(5),
    )
    .unwrap_or_default();
    let page = String::from_utf8_lossy(&page).into_owned();
    let line =
        page.lines().find_map(|it| it.strip_prefix("plimsoll_control_plane_restarts_total "));
    line.and_then(|count| count.parse().ok()).unwrap_or_default()
}

#[test]
fn no_request_fails_when_the_control_plane_panics() {
    let upstream = upstream();
    let mut cell = Cell::idle(Site::Loopback);
    let faults = cell.dir.path().join("faults");
    std::fs::create_dir(&faults).unwrap();
    let at = SocketAddr::new(loopback(0).parse::<SocketAddr>().unwrap().ip(), 8_000);
    cell.setups[0].args = vec!["--http".to_owned(), at.to_string()];
    let directory = (plimsoll_store::fault::DIRECTORY.to_owned(), faults.display().to_string());
    cell.setups[0].environment = vec![directory];
    cell.up(0, None);
    let file = format!(
        "name: shop\nservices:\n  web:\n    image: any\n    command: [sleep, '1000']\n    \
         healthcheck: {{test: [CMD, 'true'], interval: 1s, start_interval: 100ms, start_period: 10s}}\n\
         x-plimsoll:\n  routes:\n    - {{host: {HOST}, service: web, port: {}}}\n",
        upstream.port()
    );
    std::fs::write(cell.dir.path().join("compose.yaml"), file).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    cell.until("the route answers", |_| Client::new(at, HOST, false).ask().is_ok());
    let (pid, places) = (cell.pid(0), cell.found());

    let (tally, is_over) = (Tally::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let over = Over(&is_over);
        for is_kept in [false, false, true, true] {
            let (tally, is_over) = (&tally, &is_over);
            let name = format!("kept {is_kept}");
            scope.spawn(move || tally.ask(&name, Client::new(at, HOST, is_kept), is_over));
        }
        let answered = |cell: &Cell| {
            let enough = tally.answered() + BETWEEN;
            cell.until("requests are answered", |_| {
                tally.answered() >= enough || tally.has_failed()
            });
        };
        for (nth, place) in (1_u64..).zip(PLACES) {
            answered(&cell);
            let fault = faults.join(place);
            std::fs::write(&fault, "").unwrap();
            // A write that nobody answers, or that fails: its task has panicked.
            let _ = cell.run(0, "token create-join");
            cell.until("it has panicked", |_| !fault.exists());
            cell.until("the control plane is there again", |cell| {
                restarts(cell) >= nth && cell.run(0, "token create-join").code() == 0
            });
            answered(&cell);
        }
        drop(over);
    });
    let failed = tally.failed.lock().unwrap();
    assert!(failed.is_empty(), "{failed:?} of {}\n{}", tally.answered(), cell.diagnosis());
    cell.must_live();
    assert_eq!(cell.pid(0), pid, "it is the same process");
    let found = cell.found();
    let who = |found: &[crate::lab::found::Found]| {
        found.iter().map(|it| (it.replica.clone(), it.id.clone())).collect::<Vec<_>>()
    };
    assert_eq!(who(&found), who(&places), "replicas were left alone");
    let said = cell.said(0);
    assert!(said.contains("Replicas and their ports go on"), "{said}");
    println!("{} requests, none failed", tally.answered());
}
