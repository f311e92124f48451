//! A leader that stands still for so long that another takes its place, and wakes believing that it leads.

use std::time::{Duration, Instant};

use super::load::Load;
use super::{SEED, cell_of_three, verdict};
use crate::harness::Cell;

/// Longer than it takes to be taken for lost, and many times an election: whoever wakes after it finds that it has heard
/// from nobody for as long, and must not hold that against the others.
const ASLEEP: Duration = Duration::from_secs(20);

#[test]
fn a_leader_that_slept_through_its_deposition_writes_nothing_and_orders_nobody() {
    let Some(cell) = cell_of_three() else { return };
    cell.write_shop();
    let applied = cell.run(1, "apply -f compose.yaml");
    assert!(applied.code() == 0, "{}", applied.text());
    let load = Load::on(&cell, SEED);
    load.goes_on(&cell, 20);

    let old = cell.until_led(&[0, 1, 2]);
    let (others, old_term) = (cell.others(old), cell.term(old).unwrap());
    let begun = Instant::now();
    cell.daemon(old).pause().unwrap();
    let new = cell.until_led(&others);
    let term = cell.term(new).unwrap();
    assert!(new != old && term > old_term);
    cell.until("its replicas run elsewhere", |cell| {
        let places = cell.running_on(new);
        places.len() == 6 && places.iter().all(|node| node != plimsoll_lab::NAMES[old])
    });
    cell.until("it slept for long enough", |_| begun.elapsed() > ASLEEP);
    let running = |cell: &Cell| {
        let found = others.iter().flat_map(|at| cell.found_on(*at));
        found.map(|one| (one.replica, one.id)).collect::<Vec<_>>()
    };
    let before = running(&cell);

    cell.daemon(old).resume().unwrap();
    cell.until_led(&[0, 1, 2]);
    load.goes_on(&cell, 40);
    verdict::shop_runs_once(&cell, 6);
    for at in cell.nodes() {
        let fence = std::fs::read_to_string(cell.path(at).join("term")).unwrap();
        assert!(fence.trim().parse::<u64>().unwrap() >= term, "it heeds no order of an older term");
    }
    let after = running(&cell);
    assert!(before.iter().all(|one| after.contains(one)), "what ran elsewhere was left alone");
    let lost = cell.get(new, "/v1/audit?type=node_down").unwrap();
    let lost: Vec<&str> =
        lost.as_array().unwrap().iter().filter_map(|one| one["text"].as_str()).collect();
    let name = plimsoll_lab::NAMES[old];
    assert!(!lost.is_empty() && lost.iter().all(|text| text.contains(name)), "{lost:?}");
    verdict::holds(&cell, load, "the leader slept");
}
