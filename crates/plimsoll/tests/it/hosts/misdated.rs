//! A node whose clock is off: whether its replicas are sent requests does not hang on what it takes the time to be.

use std::time::{Duration, Instant};

use plimsoll_kernel::Policy;
use plimsoll_lab::{LabEngine, NAMES};

use super::routed::{HOST, HTTP, apply, get, shop, three_with_setups, until_all_answer};
use crate::harness::{Cell, NodeSetup, faketime};

/// How far the clock is off.
const OFF: &str = "+15s";

#[test]
fn healthy_replicas_of_a_node_whose_clock_is_off_stay_routed() {
    stays_routed(1, 0);
}

#[test]
fn healthy_replicas_stay_routed_where_the_leaders_clock_is_off() {
    stays_routed(0, 0);
}

/// With the clock of this node off, and led by that one.
fn stays_routed(off: usize, leader: usize) {
    let Some(library) = faketime() else {
        println!("not tested: faketime is not installed");
        return;
    };
    let habit = |at: usize, _: &LabEngine| {
        let environment =
            [("LD_PRELOAD", &*library), ("FAKETIME", OFF), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let environment = environment.map(|(key, value)| (key.to_owned(), value.to_owned()));
        NodeSetup {
            environment: if at == off { environment.into() } else { Vec::new() },
            args: vec!["--http".to_owned(), format!("0.0.0.0:{HTTP}")],
            ..NodeSetup::default()
        }
    };
    let Some((_engines, cell)) = three_with_setups(habit) else { return };
    assert_eq!(cell.until_led(&[0, 1, 2]), leader, "the first node leads the cell that it made");
    apply(&cell, 0, &shop(1, 3));
    until_all_answer(&cell, "1");
    for at in 0..3 {
        cell.until("all three take requests", |cell| taking(cell, at) == NAMES[..3]);
    }
    // Longer than any node may be silent before it is given up, and healthchecks are made anew.
    let (begun, ttl) = (Instant::now(), Duration::from_millis(Policy::default().node_ttl().0));
    while begun.elapsed() < ttl + Duration::from_secs(1) {
        for (at, name) in NAMES.iter().enumerate().take(3) {
            assert_eq!(taking(&cell, at), NAMES[..3], "{name}: {}", cell.diagnosis());
            let answer = cell.lab().host(at).within(|| get(HTTP)).unwrap();
            assert_eq!(answer.as_deref(), Ok("1"), "{}", cell.diagnosis());
        }
    }
    let lost = cell.get(leader, "/v1/audit?type=node_down").unwrap();
    assert_eq!(lost.as_array().map(Vec::len), Some(0), "nobody was given up: {lost}");
}

/// The nodes to whose replicas this one sends requests.
fn taking(cell: &Cell, at: usize) -> Vec<String> {
    let told = cell.get(at, &format!("/v1/routes/explain?host={HOST}&path=/")).unwrap_or_default();
    let containers = told["containers"].as_array().into_iter().flatten();
    let taking = containers.filter(|one| one["takes_requests"] == true);
    let mut nodes: Vec<String> =
        taking.filter_map(|one| Some(one["node"].as_str()?.to_owned())).collect();
    nodes.sort_unstable();
    nodes
}
