//! A leader that dies while clients ask at the other nodes. Its containers run on, and nobody leads to them any more until
//! it is back.

use std::thread::sleep;
use std::time::Duration;

use plimsoll_lab::LabEngine;
use plimsoll_lab::load::{Aim, LoadClient, LoadProgress, Manner, asked_while};

use super::routed::{HOST, HTTP, PORT, apply, shop, three_with_engines, until_all_answer};
use crate::harness::{Cell, PATIENCE};

/// Who ask at each of the two, in each of the two ways.
const CLIENTS: usize = 2;

/// Enough to meet every moment of it.
const REQUESTS: usize = 2_000;

#[test]
fn a_leader_killed_under_load_loses_no_request_that_another_node_takes() {
    let told = |_, _: &LabEngine| vec!["--http".to_owned(), format!("0.0.0.0:{HTTP}")];
    let Some((_engines, mut cell)) = three_with_engines(told) else { return };
    apply(&cell, 0, &shop(1, 3));
    until_all_answer(&cell, "1");
    let leader = cell.until_led(&[0, 1, 2]);
    let daemon = cell.daemon(leader).clone();
    let (killed, outcome) = {
        let clients = clients(&cell, &cell.others(leader));
        let asked = asked_while(&clients, REQUESTS, |progress| {
            until_answered(progress, REQUESTS / 4);
            let killed = progress.begun.elapsed();
            daemon.kill();
            cell.until_led(&cell.others(leader));
            until_answered(progress, progress.answered() + REQUESTS / 4);
            killed
        });
        asked.unwrap()
    };
    println!("killed after {killed:.3?}: {outcome}\nslowest: {:.3?}", &outcome.slowest()[..5]);
    // Also what was under way through the daemon that died: it was said again to another.
    assert_eq!(outcome.failed, 0, "killed after {killed:?}: {outcome}\n{}", cell.diagnosis());
    cell.kill(leader);
    cell.up(leader, None);
    until_all_answer(&cell, "1");
}

fn clients<'a>(cell: &'a Cell, nodes: &[usize]) -> Vec<LoadClient<'a>> {
    let mut clients = Vec::new();
    for at in nodes {
        for (port, manner) in [(PORT, Manner::OneShot), (HTTP, Manner::KeepAlive)] {
            let aim = Aim { at: ([127, 0, 0, 1], port).into(), host: HOST.to_owned(), manner };
            let from = Some(cell.lab().host(*at));
            clients.extend(vec![LoadClient { from, aim }; CLIENTS]);
        }
    }
    clients
}

fn until_answered(progress: &LoadProgress, count: usize) {
    while progress.answered() < count {
        assert!(progress.begun.elapsed() < PATIENCE, "{progress:?}");
        sleep(Duration::from_millis(5));
    }
}
