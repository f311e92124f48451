//! Case and scenario files that were broken at random: each is refused, or decided on, in bounded time and memory.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use plimsoll_fuzz::Fuzz;
use plimsoll_workbench::decided::Decided;
use plimsoll_workbench::input::Input;
use plimsoll_workbench::{InputText, case, decide, scenario};

const WORDS: &[&str] = &[
    "\n",
    ": ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "'",
    "\"",
    "nodes:\n",
    "deployments:\n",
    "replicas:\n",
    "cycles:\n",
    "memory:\n",
    "moving:\n",
    "events:\n",
    "usage:\n",
    "takes:\n",
    "count: 3",
    "zones: [a, b]",
    "cpus: 0",
    "cpus: 1e9",
    "memory: 1e30gb",
    "gpus: 4294967295",
    "index: 4294967295",
    "at: 18446744073709551615",
    "length: 99999999h",
    "state: failed",
    "successor: ",
    "placement: global",
    "placement: hosts",
    "hosts: []",
    "lacks: [sysctls]",
    "needs: [no_network]",
    "all_gpus: true",
    "drain: ash",
    "new_leader: true",
    "clock: -2m",
    "scale: ",
    "status: down",
    "down_for: 2s",
    "availability: draining",
    "reserved: {cpus: 99}",
    "pressure: {cpu: 2}",
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn with(fuzz: Fuzz, files: &[&str]) -> Fuzz {
    files.iter().fold(fuzz, |fuzz, file| fuzz.input(fs::read(root().join(file)).unwrap()))
}

#[test]
fn no_broken_case_breaks_its_reader_or_the_decisions() {
    let files = [
        "examples/cell.yaml",
        "examples/hot-node.yaml",
        "crates/plimsoll/tests/fixtures/exported-before.json",
        "crates/plimsoll/tests/fixtures/hot-node-before.yaml",
        "crates/plimsoll/tests/fixtures/rebalance-case-before.yaml",
    ];
    let directory = root().join("examples");
    with(Fuzz::new("case").one_of(2).words(WORDS), &files).run(|input| {
        let Ok(text) = String::from_utf8(input.to_vec()) else { return };
        let text = InputText { name: "case.yaml".to_owned(), text };
        let Ok(case) = case::of_text(text, &directory) else { return };
        if case.measured.is_some() {
            let _ = decide::replay(&case);
        }
        let _ = Decided::new(case.cell);
    });
}

#[test]
fn no_broken_scenario_breaks_its_reader() {
    let files = [
        "scenarios/a-day.yaml",
        "scenarios/lost-node.yaml",
        "scenarios/drain.yaml",
        "scenarios/rolling-update.yaml",
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scenario.yaml");
    with(Fuzz::new("scenario").one_of(2).words(WORDS), &files).run(|input| {
        fs::write(&path, input).unwrap();
        let _ = scenario::read(&Input::File(path.clone()));
    });
}
