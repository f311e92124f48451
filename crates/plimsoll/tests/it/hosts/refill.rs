//! A node that is lost and comes back, on three hosts with an engine each: what ran there is replaced, and once it is back the
//! rescheduler fills it to its share, while clients ask at the others all the time.

use std::cell::RefCell;
use std::thread::sleep;
use std::time::Duration;

use plimsoll_lab::{CpuCounters, LabEngine, NAMES};
use serde_json::Value;

use super::routed::{apply, asked_at, get, three_with_engines};
use crate::harness::Cell;
use crate::lab::compose::{compose, sh};

/// One service that the loss leaves uneven, and more that are even on any two nodes: a node that comes back is better for a replica
/// of the first, and takes some of the others for its share alone.
const SERVICES: [(&str, u16, usize); 4] =
    [("web", 8080, 3), ("api", 8081, 2), ("docs", 8082, 2), ("mail", 8083, 2)];

const REPLICAS: usize = 9;

/// What each of three nodes has once all is even.
const SHARE: usize = REPLICAS / 3;

/// Enough that no node is hot whatever its replicas do: this is not about the rebalancer.
const MILLI_CPUS: u32 = 8_000;

/// How much faster than usual the rescheduler goes: it trusts a node that was lost after six seconds, sends it something every
/// six, and moves what has run for half a minute.
const HASTE: u32 = 20;

/// At least so many requests are answered.
const REQUESTS: usize = 2_000;

/// More than two rounds of the rescheduler.
const CALM: Duration = Duration::from_secs(12);

fn shop() -> String {
    let script = "echo 1 > /tmp/index.html; trap 'exit 0' TERM; httpd -f -p 80 -h /tmp & wait";
    let lines = SERVICES.map(|(_, port, replicas)| {
        [
            sh(script),
            format!("ports: ['{port}:80']"),
            "networks: [default]".to_owned(),
            "healthcheck: {test: [CMD, wget, -q, -O, /dev/null, 'http://127.0.0.1/'], interval: 5s, start_period: 30s, start_interval: 100ms}".to_owned(),
            format!("deploy: {{replicas: {replicas}}}"),
        ]
    });
    let lines = lines.each_ref().map(|lines| lines.each_ref().map(String::as_str));
    let services = SERVICES.iter().zip(&lines);
    compose(&services.map(|((name, ..), lines)| (*name, &lines[..])).collect::<Vec<_>>())
}

/// The nodes on which replicas run, one for each, as this node tells it.
fn places(cell: &Cell, at: usize) -> Vec<String> {
    let shop = cell.get(at, "/v1/deployments/shop").unwrap_or_default();
    let services = shop["services"].as_array().into_iter().flatten();
    let replicas = services.flat_map(|it| it["replicas"].as_array().into_iter().flatten());
    let running = replicas.filter(|it| it["now"]["state"] == "running");
    running.filter_map(|it| Some(it["now"]["node"].as_str()?.to_owned())).collect()
}

fn count(places: &[String], node: &str) -> usize {
    places.iter().filter(|it| *it == node).count()
}

fn audit(cell: &Cell, at: usize, word: &str) -> Vec<Value> {
    let told = cell.get(at, &format!("/v1/audit?type={word}")).unwrap_or_default();
    told.as_array().cloned().unwrap_or_default()
}

#[test]
fn a_node_that_comes_back_is_filled_to_its_share_and_no_request_is_lost() {
    if let Some(missing) = CpuCounters::missing() {
        println!("not tested: {missing}");
        return;
    }
    let roots = tempfile::tempdir().unwrap();
    let root = |at: usize| roots.path().join(at.to_string());
    let counters = RefCell::new(Vec::new());
    let told = |at: usize, engine: &LabEngine| {
        counters.borrow_mut().push(CpuCounters::keep(&root(at), engine, MILLI_CPUS).unwrap());
        let (root, haste) = (root(at).to_str().unwrap().to_owned(), HASTE.to_string());
        ["--node-status-interval", "5s", "--gate-haste", &haste, "--host-root", &root]
            .map(str::to_owned)
            .into()
    };
    let Some((_engines, cell)) = three_with_engines(told) else { return };
    apply(&cell, 0, &shop());
    let ports = SERVICES.map(|(_, port, _)| port);
    let answers = |at: usize| {
        let host = cell.lab().host(at);
        let told = ports.map(|port| host.within(|| get(port)).unwrap());
        told.iter().all(Result::is_ok)
    };
    cell.until("every node answers for every service", |cell| cell.nodes().all(answers));

    let gone = cell.others(cell.until_led(&[0, 1, 2]))[0];
    let (others, lost) = (cell.others(gone), NAMES[gone]);
    let witness = others[0];
    assert_ne!(count(&places(&cell, witness), lost), 0, "{:?}", places(&cell, witness));
    let mut times = Vec::new();
    let tally = asked_at(&cell, &others, &ports, REQUESTS, || {
        cell.lab().isolate(gone);
        times.push(cell.until("all of them run without it", |cell| {
            let places = places(cell, witness);
            places.len() == REPLICAS && count(&places, lost) == 0
        }));
        assert_eq!(audit(&cell, witness, "node_down").len(), 1, "it was given up");
        cell.lab().heal_all();
        times.push(cell.until("it has its share again", |cell| {
            let places = places(cell, witness);
            places.len() == REPLICAS && count(&places, lost) == SHARE
        }));
        // Then it has enough.
        sleep(CALM);
        cell.until("everything runs", |cell| places(cell, witness).len() == REPLICAS);
    });
    let failed = tally.failed.lock().unwrap();
    let many = (failed.len(), tally.answered());
    assert!(failed.is_empty(), "{many:?}: {failed:?}\n{}", cell.diagnosis());

    let places = places(&cell, witness);
    assert!(NAMES[..3].iter().all(|node| count(&places, node) == SHARE), "{places:?}");
    let moved = audit(&cell, witness, "rescheduled");
    let told: Vec<&str> = moved.iter().filter_map(|it| it["text"].as_str()).collect();
    assert!(told.iter().all(|text| text.contains(&format!("→ {lost} ("))), "{told:#?}");
    assert_eq!(told.len(), SHARE, "as few moves as can be: {told:#?}");
    let filled = told.iter().filter(|text| text.contains("(fill)")).count();
    assert!(filled > 0, "also by what is no better off there: {told:#?}");
    assert!(answers(gone), "it answers itself");
    println!(
        "{} requests, none failed; replaced, then filled after {times:.1?}, by {} moves, {filled} of them to fill it",
        tally.answered(),
        told.len(),
    );
}
