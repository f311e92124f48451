//! The rebalancer on three hosts with an engine each: containers burn real processor time under real limits, and each node
//! measures what its own engine's containers used: one machine plays three hosts here, and each has counters of its own.

use std::thread::sleep;
use std::time::Duration;

use plimsoll_lab::{CpuCounters, LabEngine};
use serde_json::Value;

use super::routed::{apply, asked_while, get, must_do, three_with_engines};
use crate::harness::Cell;
use crate::lab::compose::{compose, sh};

const PORT: u16 = 8081;

/// Each host has half a core.
const MILLI_CPUS: u32 = 500;

/// How much faster than usual the gates run: ten minutes are half a minute. With more haste than this a single sample from
/// before a move would outweigh all that is known.
const HASTE: u32 = 20;

/// Ten minutes at the usual pace.
const CALM: Duration = Duration::from_mins(10).checked_div(HASTE).unwrap();

/// Web servers that have a lot to do: each burns all it may of a core, which is 0.24 of its node.
fn busy(replicas: usize) -> String {
    let script = "echo 1 > /tmp/index.html; trap 'exit 0' TERM; httpd -f -p 80 -h /tmp & (while :; do :; done) & wait";
    let lines = [
        sh(script),
        format!("ports: ['{PORT}:80']"),
        "networks: [default]".to_owned(),
        "stop_grace_period: 5s".to_owned(),
        format!("deploy: {{replicas: {replicas}, resources: {{limits: {{cpus: '0.12'}}}}}}"),
        // Or the rescheduler would even them out first.
        "x-plimsoll: {placement: pack, reschedule: never}".to_owned(),
    ];
    compose(&[("web", &lines.each_ref().map(String::as_str))])
}

fn reliefs(cell: &Cell, word: &str) -> Vec<Value> {
    let told = cell.get(0, &format!("/v1/audit?type={word}")).unwrap_or_default();
    told.as_array().cloned().unwrap_or_default()
}

#[test]
fn the_replica_that_helps_most_leaves_a_hot_node_and_no_request_is_lost() {
    if let Some(missing) = CpuCounters::missing() {
        println!("not tested: {missing}");
        return;
    }
    let roots = tempfile::tempdir().unwrap();
    let root = |at: usize| roots.path().join(at.to_string());
    let counters = std::cell::RefCell::new(Vec::new());
    let told = |at: usize, engine: &LabEngine| {
        counters.borrow_mut().push(CpuCounters::keep(&root(at), engine, MILLI_CPUS).unwrap());
        let root = root(at).to_str().unwrap().to_owned();
        let haste = HASTE.to_string();
        ["--node-status-interval", "5s", "--gate-haste", &haste, "--host-root", &root]
            .map(str::to_owned)
            .into()
    };
    let Some((_engines, cell)) = three_with_engines(told) else { return };
    must_do(&cell, 0, "node cordon birch");
    must_do(&cell, 0, "node cordon cedar");
    apply(&cell, 0, &busy(4));
    assert_eq!(cell.running_on(0), ["ash"; 4]);
    must_do(&cell, 0, "node uncordon birch");
    must_do(&cell, 0, "node uncordon cedar");
    for host in cell.lab().hosts() {
        cell.until("every node answers", |_| host.within(|| get(PORT)).unwrap().is_ok());
    }

    let tally = asked_while(&cell, &[PORT], 100, || {
        cell.until("one replica has left", |cell| {
            let places = cell.running_on(0);
            places.len() == 4 && places.iter().filter(|node| *node != "ash").count() == 1
        });
        // The rest is even, and stays where it is.
        sleep(CALM);
    });
    let failed = tally.failed.lock().unwrap();
    assert!(failed.is_empty(), "{failed:?} of {}\n{}", tally.answered(), cell.diagnosis());

    let moved = reliefs(&cell, "rebalance_moved");
    assert_eq!(moved.len(), 1, "one was enough: {moved:?}");
    let relief = &moved[0]["relief"];
    let share = |field: &str| relief[field].as_u64().unwrap();
    assert_eq!((&relief["src"], &relief["dominant"]), (&"ash".into(), &"cpu".into()), "{relief}");
    assert!(
        share("src_pressure_before") >= 850_000 && share("dst_pressure_after") < 750_000,
        "{relief}"
    );
    assert!((150_000..350_000).contains(&share("relief")), "as much as one may burn: {relief}");
    assert_eq!(share("src_pressure_before") - share("src_pressure_after"), share("relief"));
    let why = cell.run(0, "explain ash");
    assert!(
        why.code() == 0 && why.stdout().contains("nothing moves off ash: trigger"),
        "{}",
        why.text()
    );
    println!("{} requests, none failed; {}", tally.answered(), moved[0]["text"]);
}
