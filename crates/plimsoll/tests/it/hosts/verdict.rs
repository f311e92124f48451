//! What must hold once the faults are over: every server has the same state, it has what clients were promised, and every
//! replica runs, once.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_lab::history::{History, Log};
use serde_json::Value;

use super::load::Load;
use crate::harness::Cell;

/// How many faults are shown.
const SHOWN: usize = 12;

/// Ends the load and looks at everything. All daemons run, and every wire is sound.
#[track_caller]
pub(super) fn holds(cell: &Cell, load: Load, story: &str) {
    let history = load.end();
    agree(cell);
    let log = log(cell, &history);
    let faults = history.check(&log);
    let (writes, unknown) = (history.acknowledged(), history.unknown());
    let (reads, elections) = (history.reads.len(), cell.elections());
    println!("{writes} writes, {unknown} unknown, {reads} reads, {elections} elections: {story}");
    let shown: Vec<String> = faults.iter().take(SHOWN).map(ToString::to_string).collect();
    assert!(
        faults.is_empty(),
        "{} of {writes} writes and {reads} reads cannot be ({story}):\n{}\n{}",
        faults.len(),
        shown.join("\n"),
        cell.diagnosis()
    );
}

/// All servers have applied the same entries, and made the same state of them.
#[track_caller]
pub(super) fn agree(cell: &Cell) {
    let nodes: Vec<usize> = cell.nodes().collect();
    cell.until_led(&nodes);
    cell.until("all servers have one state", |cell| {
        let told: Vec<Value> =
            nodes.iter().filter_map(|at| cell.get(*at, "/readyz?hash=true")).collect();
        let states: BTreeSet<String> =
            told.iter().map(|one| format!("{} {}", one["applied"], one["hash"])).collect();
        let are_hashed = told.iter().all(|one| one["hash"].is_string());
        told.len() == nodes.len() && states.len() == 1 && are_hashed
    });
}

/// Every revision of every register that clients wrote to.
fn log(cell: &Cell, history: &History) -> Log {
    let leader = cell.until_led(&cell.nodes().collect::<Vec<_>>());
    let names: BTreeSet<&str> = history.writes.iter().map(|write| &*write.register).collect();
    let get = |path: &str| cell.get(leader, path).unwrap_or_else(|| panic!("no answer to {path}"));
    let mut log = Log::new();
    for name in names {
        let revisions = get(&format!("/v1/deployments/{name}/history?consistent=true"));
        let revisions = revisions.as_array().cloned().unwrap_or_default();
        let values = revisions.iter().map(|one| {
            let number = one["revision"].as_u64().unwrap();
            let specs = get(&format!("/v1/deployments/{name}/revisions/{number}"));
            let image = &specs["services"]["web"]["container"]["image"];
            (number, image.as_str().unwrap_or_default().to_owned())
        });
        log.insert(name.to_owned(), values.collect());
    }
    log
}

/// Every replica of the shop runs, and none of them twice.
#[track_caller]
pub(super) fn shop_runs_once(cell: &Cell, replicas: usize) {
    cell.until("every replica runs, once", |cell| {
        let steady = cell.nodes().find_map(|at| cell.get(at, "/v1/deployments/shop"));
        if steady.is_none_or(|shop| shop["progress"]["is"] != "steady") {
            return false;
        }
        let mut running: BTreeMap<String, usize> = BTreeMap::new();
        for one in cell.found().iter().filter(|one| one.deployment() == "shop") {
            *running.entry(one.replica.clone()).or_default() += 1;
        }
        running.len() == replicas && running.values().all(|times| *times == 1)
    });
}
