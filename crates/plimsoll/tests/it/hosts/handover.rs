//! Daemons of a cell that hand over to other processes, on three hosts with an engine each: every node goes on answering,
//! for replicas of its own and for those of others.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;

use plimsoll_lab::LabEngine;

use super::routed::{HOST, HTTP, PORT, apply, shop, three_with_engines, until_all_answer};
use crate::steady::{Client, Over, Tally};

/// Requests that are answered between two hand-overs: enough to find a node that lost its way.
const BETWEEN: usize = 600;

#[test]
fn no_request_at_any_node_is_lost_while_daemons_hand_over() {
    let told = |_, _: &LabEngine| vec!["--http".to_owned(), format!("0.0.0.0:{HTTP}")];
    let Some((_engines, cell)) = three_with_engines(told) else { return };
    apply(&cell, 0, &shop(1, 2));
    until_all_answer(&cell, "1");
    let (leader, places) = (cell.until_led(&[0, 1, 2]), cell.running_on(0));
    assert_eq!(places.len(), 2, "so one node has none: {places:?}");

    let (tally, is_over) = (Tally::default(), AtomicBool::new(false));
    let mut handed = Vec::new();
    thread::scope(|scope| {
        let over = Over(&is_over);
        for at in 0..3 {
            for (port, is_kept) in [(PORT, false), (HTTP, false), (HTTP, true), (PORT, true)] {
                let (tally, is_over, host) = (&tally, &is_over, cell.lab().host(at));
                let address: SocketAddr = ([127, 0, 0, 1], port).into();
                let name = format!("node {at} port {port} kept {is_kept}");
                let asking = move || tally.ask(&name, Client::new(address, HOST, is_kept), is_over);
                scope.spawn(move || host.within(asking).unwrap());
            }
        }
        // Whoever leads among them, and each twice in a row.
        for at in [leader, leader, (leader + 1) % 3, (leader + 2) % 3, leader] {
            let enough = tally.answered() + BETWEEN;
            cell.until("requests are answered", |_| {
                tally.answered() >= enough || tally.has_failed()
            });
            let before = cell.pid(at);
            handed.push((before, cell.hand_over(at)));
            cell.until("its API answers", |cell| cell.get(at, "/readyz").is_some());
        }
        let enough = tally.answered() + BETWEEN;
        cell.until("requests are answered", |_| tally.answered() >= enough || tally.has_failed());
        drop(over);
    });
    let failed = tally.failed.lock().unwrap();
    assert!(failed.is_empty(), "{failed:?} of {}\n{}", tally.answered(), cell.diagnosis());
    assert_eq!(cell.running_on(0), places, "replicas stay where they are");
    cell.until_led(&[0, 1, 2]);
    apply(&cell, leader, &shop(2, 2));
    until_all_answer(&cell, "2");
    println!("{} requests, none failed; {handed:?}", tally.answered());
}
