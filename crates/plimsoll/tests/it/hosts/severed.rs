//! A node that is cut off while clients of the others ask: nothing is refused or reset there, there is only silence. Long
//! before the cell gives the node up, nobody else's request waits for it.

use std::thread::sleep;
use std::time::Duration;

use plimsoll_lab::load::{Aim, LoadClient, LoadProgress, LoadReport, Manner, asked_while};
use plimsoll_lab::{LabEngine, NAMES};

use super::routed::{HOST, HTTP, PORT, apply, shop, three_with_engines, until_all_answer};
use crate::harness::{Cell, PATIENCE};

/// Who ask at each node that is not cut off, at the published port and for the route each.
const CLIENTS: usize = 4;

/// How many are answered before the cut, and at least after it.
const BEFORE: usize = 300;
const AFTER: usize = 1_500;

/// A node that says nothing is known to be gone after this: a tunnel is asked after half a second of silence whether
/// anybody is there, and given up two seconds later. Then there is a busy machine.
const KNOWN_BY: Duration = Duration::from_secs(4);

/// What is asked once it is known is answered within this, on a busy machine.
const SOON: Duration = Duration::from_millis(900);

/// When things were, since the clients began.
#[derive(Debug, Clone, Copy)]
struct Times {
    cut: Duration,
    /// Both other nodes had left it out.
    known: Duration,
}

#[test]
fn a_node_that_falls_silent_is_out_of_every_pool_long_before_the_cell_gives_it_up() {
    let told = |_, _: &LabEngine| vec!["--http".to_owned(), format!("0.0.0.0:{HTTP}")];
    let Some((_engines, cell)) = three_with_engines(told) else { return };
    apply(&cell, 0, &shop(1, 3));
    until_all_answer(&cell, "1");
    let mut places = cell.running_on(0);
    places.sort_unstable();
    assert_eq!(places, NAMES[..3], "one on each");

    let gone = cell.others(cell.until_led(&[0, 1, 2]))[0];
    for (what, manner, port) in
        [("the published port", Manner::OneShot, PORT), ("the route", Manner::KeepAlive, HTTP)]
    {
        cell.lab().heal_all();
        until_all_answer(&cell, "1");
        let (times, outcome) = while_cut_off(&cell, gone, manner, port);
        println!("{what}: {times:.3?}, {outcome}\nslowest: {:.3?}", &outcome.slowest()[..8]);
        // Also what was under way there when it was cut: it was said again to another.
        assert_eq!(outcome.failed, 0, "{what}: {times:?}, {outcome}");
        assert!(times.known < times.cut + KNOWN_BY, "{what}: {times:?}");
        let is_late = |(took, asked): &&(Duration, Duration)| *asked > times.known && *took > SOON;
        let late = outcome.slowest().iter().find(is_late);
        assert!(late.is_none(), "{what}: {times:?}, took, asked: {late:?} of {outcome}");
        let down = cell.get(cell.others(gone)[0], "/v1/audit?type=node_down").unwrap();
        assert_eq!(down.as_array().map(Vec::len), Some(0), "nobody has given it up: {down}");
    }
}

/// Cuts a node off while others are asked, and says when that was.
fn while_cut_off(cell: &Cell, gone: usize, manner: Manner, port: u16) -> (Times, LoadReport) {
    let aim = Aim { at: ([127, 0, 0, 1], port).into(), host: HOST.to_owned(), manner };
    let from = cell.others(gone).into_iter().map(|at| cell.lab().host(at));
    let clients =
        from.flat_map(|from| vec![LoadClient { from: Some(from), aim: aim.clone() }; CLIENTS]);
    let clients: Vec<LoadClient<'_>> = clients.collect();
    let asked = asked_while(&clients, 0, |progress| {
        until_answered(progress, BEFORE);
        let cut = progress.begun.elapsed();
        cell.lab().isolate(gone);
        cell.until("both leave it out", |cell| {
            cell.others(gone).into_iter().all(|at| leaves_out(cell, at, NAMES[gone]))
        });
        let known = progress.begun.elapsed();
        until_answered(progress, progress.answered() + AFTER);
        Times { cut, known }
    });
    asked.unwrap()
}

/// Whether this node sends nothing to the replica on that one.
fn leaves_out(cell: &Cell, at: usize, gone: &str) -> bool {
    let told = cell.get(at, &format!("/v1/routes/explain?host={HOST}&path=/")).unwrap_or_default();
    let mut containers = told["containers"].as_array().into_iter().flatten();
    containers.any(|one| one["node"] == gone && one["takes_requests"] == false)
}

fn until_answered(progress: &LoadProgress, count: usize) {
    while progress.answered() < count {
        assert!(progress.begun.elapsed() < PATIENCE, "{progress:?}");
        sleep(Duration::from_millis(5));
    }
}
