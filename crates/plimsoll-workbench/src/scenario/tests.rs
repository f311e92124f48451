//! What the simulator writes down is what is read.

use std::path::Path;

use plimsoll_sim::chaos::any_scenario;
use plimsoll_sim::{Scenario, run};

use super::*;
use crate::mistake::InputText;

fn read_text(text: &str) -> Scenario {
    let page = InputText { name: "scenario.yaml".to_owned(), text: text.to_owned() };
    let entry = parse(text, KIND).unwrap_or_else(|mistake| panic!("{}", mistake.on(&page)));
    let built = build::build(&entry, &page, Path::new("."), "scenario");
    built.unwrap_or_else(|error| panic!("{error}\n{text}")).scenario
}

#[test]
fn a_scenario_that_is_written_down_is_read_as_it_was() {
    for seed in 0..20 {
        let mut scenario = any_scenario(seed);
        scenario.script.sort_by_key(|(at, _)| *at);
        let read = read_text(&scenario.to_text());
        for (expected, found) in scenario.script.iter().zip(&read.script) {
            assert_eq!(difference(found, expected), None, "seed {seed}");
        }
        assert_eq!(read, scenario, "seed {seed}");
    }
}

#[test]
fn a_scenario_that_is_written_down_runs_as_it_did() {
    for seed in [1, 2, 3] {
        let scenario = any_scenario(seed);
        let read = read_text(&scenario.to_text());
        let story = |scenario: &Scenario| format!("{:?}", run(scenario, seed, &mut |_| {}).report);
        assert_eq!(story(&read), story(&scenario), "seed {seed}");
    }
}

/// Where two things begin to differ, as they are shown: all of a scenario is more than anyone reads.
fn difference<T: PartialEq + std::fmt::Debug>(one: &T, other: &T) -> Option<(String, String)> {
    let (left, right) = (format!("{one:?}"), format!("{other:?}"));
    let same = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    let from = |text: &str| text[same.saturating_sub(60)..].chars().take(160).collect();
    (one != other).then(|| (from(&left), from(&right)))
}
