//! Wires that are cut: between the leader and all others, a follower and all others, all and all, and one way only.

use plimsoll_api::view::Problem;

use super::load::Load;
use super::{SEED, cell_of_three, verdict};
use crate::harness::{self, Cell};
use crate::http;

#[test]
fn a_leader_that_is_cut_off_loses_its_place_and_no_acknowledged_write() {
    let Some(cell) = cell_of_three() else { return };
    let load = Load::on(&cell, SEED);
    load.goes_on(&cell, 20);
    let old = cell.until_led(&[0, 1, 2]);
    let others = cell.others(old);
    cell.lab().isolate(old);
    let new = cell.until_led(&others);
    assert_ne!(new, old);
    load.goes_on(&cell, 40);
    let refused = cell.run(old, "scale r0 web=0 -d");
    assert_ne!(refused.code(), 0, "it cannot write any more: {}", refused.text());
    healed(&cell, load, "the leader was cut off");
}

#[test]
fn a_follower_that_is_cut_off_costs_nothing_and_catches_up() {
    let Some(cell) = cell_of_three() else { return };
    let load = Load::on(&cell, SEED);
    load.goes_on(&cell, 20);
    let leader = cell.until_led(&[0, 1, 2]);
    let cut = cell.others(leader)[0];
    let term = cell.term(leader);
    cell.lab().isolate(cut);
    load.goes_on(&cell, 60);
    assert_eq!(cell.term(leader), term, "those who hear each other keep their leader");
    cell.lab().heal_all();
    cell.until("it has caught up", |cell| cell.leader_of(&[0, 1, 2]) == Some(leader));
    assert_eq!(cell.term(leader), term, "one who comes back does not unseat the leader");
    healed(&cell, load, "a follower was cut off");
}

#[test]
fn a_cell_in_which_nobody_hears_anybody_writes_nothing_and_then_goes_on() {
    let Some(cell) = cell_of_three() else { return };
    let load = Load::on(&cell, SEED);
    load.goes_on(&cell, 20);
    cell.nodes().for_each(|at| cell.lab().isolate(at));
    // The last leader may take a moment to see that it is alone, and answers until then that it does not know.
    cell.until("every node knows that it can write nothing", |cell| {
        cell.nodes().all(|at| matches!(refusal(cell, at).as_str(), "no_leader" | "quorum_lost"))
    });
    let before = load.acknowledged();
    assert!(cell.nodes().all(|at| !refusal(&cell, at).is_empty()));
    assert_eq!(load.acknowledged(), before);
    healed(&cell, load, "all were cut off from all");
}

#[test]
fn a_leader_that_hears_nobody_is_replaced_although_it_can_speak() {
    one_way(|cell, leader, other| cell.lab().cut_one_way(other, leader), "the leader was deaf");
}

#[test]
fn a_leader_that_nobody_hears_is_replaced_although_it_can_listen() {
    one_way(|cell, leader, other| cell.lab().cut_one_way(leader, other), "the leader was mute");
}

fn one_way(cut: impl Fn(&Cell, usize, usize), story: &str) {
    let Some(cell) = cell_of_three() else { return };
    let load = Load::on(&cell, SEED);
    load.goes_on(&cell, 20);
    let old = cell.until_led(&[0, 1, 2]);
    let others = cell.others(old);
    for other in &others {
        cut(&cell, old, *other);
    }
    let new = cell.until_led(&others);
    assert_ne!(new, old);
    load.goes_on(&cell, 40);
    healed(&cell, load, story);
}

/// Why the node does not write; nothing: it does, or nobody knows.
fn refusal(cell: &Cell, at: usize) -> String {
    let scale = br#"{"services": {"web": 0}}"#;
    let path = "/v1/deployments/r0/scale";
    let answer = http::ask(&cell.socket(at), "POST", path, scale, harness::PATIENCE);
    let problem = answer.ok().and_then(|(_, body)| serde_json::from_slice::<Problem>(&body).ok());
    problem.map(|problem| problem.code.to_string()).unwrap_or_default()
}

/// Every wire is sound again, and the load went on for a while.
fn healed(cell: &Cell, load: Load, story: &str) {
    cell.lab().heal_all();
    cell.until_led(&[0, 1, 2]);
    load.goes_on(cell, 20);
    verdict::holds(cell, load, story);
}
