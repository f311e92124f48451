//! Nodes that are not broken but bad: a disk that takes its time, a clock that is off.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_api::view::AuditEvent;

use super::load::Load;
use super::{SEED, site, verdict};
use crate::harness::{Cell, faketime};

/// How long the slow disk takes to make anything safe: a hundred times what a good one does.
const SYNC: Duration = Duration::from_millis(100);
const SYNCS: &str = "fsync,fdatasync,sync_file_range";

/// How far a clock is off.
const OFF: [&str; 2] = ["+15s", "-15s"];

#[test]
fn a_node_with_a_slow_disk_slows_nobody_and_unseats_nobody() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("not tested: strace is not installed");
        return;
    }
    let Some(site) = site(3) else { return };
    let mut cell = Cell::idle(site);
    // The kernel holds up every sync of that daemon, and nothing else of it.
    let trace = format!("trace={SYNCS}");
    let inject = format!("inject={SYNCS}:delay_enter={}", SYNC.as_micros());
    let strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e"];
    cell.setups[1].under = strace.into_iter().chain([&*inject]).map(str::to_owned).collect();
    cell.form(3);
    let leader = cell.until_led(&[0, 1, 2]);
    let term = cell.term(leader);
    let load = Load::on(&cell, SEED);
    load.goes_on(&cell, 150);
    assert_eq!(cell.term(leader), term, "a slow disk is no reason for an election");
    assert_ne!(leader, 1, "the first node leads the cell that it made");
    // Then the slow one is needed for every write, as one of two.
    let third = 3 - leader - 1;
    cell.kill(third);
    let begun = Instant::now();
    load.goes_on(&cell, 1);
    assert!(begun.elapsed() >= SYNC, "the disk is slow: {:?}", begun.elapsed());
    load.goes_on(&cell, 20);
    cell.up(third, None);
    cell.until_led(&[0, 1, 2]);
    verdict::holds(&cell, load, "one disk was slow");
}

#[test]
fn a_clock_that_is_off_by_a_quarter_of_a_minute_harms_nothing() {
    let Some(library) = faketime() else {
        println!("not tested: faketime is not installed");
        return;
    };
    for off in OFF {
        let Some(site) = site(3) else { return };
        let mut cell = Cell::idle(site);
        // Wall clocks only: time that has passed is not a matter of opinion.
        let environment =
            [("LD_PRELOAD", &*library), ("FAKETIME", off), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        cell.setups[1].environment =
            environment.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        cell.form(3);
        cell.write_shop();
        let applied = cell.run(1, "apply -f compose.yaml");
        assert!(applied.code() == 0, "{off}: {}", applied.text());
        let before = cell.found();
        let load = Load::on(&cell, SEED);
        load.goes_on(&cell, 20);
        // Leadership goes round, so that entries are dated by the clock that is off, and then by one that is not.
        loop {
            let leader = cell.until_led(&[0, 1, 2]);
            load.goes_on(&cell, 10);
            if leader == 1 {
                break;
            }
            cell.kill(leader);
            cell.until_led(&cell.others(leader));
            cell.up(leader, None);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let dated = newest_entry(&cell) / 1_000;
        assert!((10..20).contains(&now.abs_diff(dated)), "{off}: dated {dated} at {now}");
        cell.kill(1);
        cell.until_led(&cell.others(1));
        load.goes_on(&cell, 10);
        cell.up(1, None);
        cell.until_led(&[0, 1, 2]);
        let lost = cell.get(0, "/v1/audit?type=node_down").unwrap();
        assert_eq!(lost.as_array().map(Vec::len), Some(0), "{off}: nobody was lost: {lost}");
        verdict::shop_runs_once(&cell, 6);
        assert_eq!(cell.found(), before, "{off}: every replica is where it was");
        verdict::holds(&cell, load, &format!("a clock was off by {off}"));
    }
}

/// When the last thing that happened did so by the log, in milliseconds.
fn newest_entry(cell: &Cell) -> u64 {
    let told = cell.get(1, "/v1/audit?type=deployed&limit=1").unwrap();
    let mut events: Vec<AuditEvent> = serde_json::from_value(told).unwrap();
    events.pop().unwrap().at.0.0
}
