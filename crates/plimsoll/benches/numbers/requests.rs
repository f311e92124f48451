//! Requests while things change: a service with real containers on three hosts is asked without pause at every node, and
//! every request that is refused, reset, cut short, late or answered with anything but 200 counts as failed.
//!
//! Half of the clients make a connection for each request, at the published port; the other half keep theirs, and ask for
//! the route. A change is repeated until enough requests were answered while it went on.

use std::time::Duration;

use plimsoll_api::view::AuditQuery;
use plimsoll_lab::load::{LoadProgress, LoadReport};
use plimsoll_lab::{CpuCounters, LabEngine, NAMES};

use crate::cell::daemons::until;
use crate::node::threads;
use crate::{Table, shown};

mod arena;
mod charting;
mod successor;
mod unwell;

use arena::{Arena, told};
pub(super) use charting::charting;
pub(super) use unwell::unwell;

/// So many requests are answered while something goes on; `PLIMSOLL_BENCH_REQUESTS` says otherwise.
const ENOUGH: usize = 100_000;

const REPLICAS: usize = 6;

/// How many of a host's processor its counters say it has: the first is soon hot, and the others have room.
const MILLI_CPUS: [u32; 3] = [200, 4_000, 4_000];

/// How much faster than usual the rebalancer's gates run, and how often a node measures: see the test of it.
const HASTE: &str = "20";
const SAMPLES: &str = "5s";

fn enough() -> usize {
    let asked = std::env::var("PLIMSOLL_BENCH_REQUESTS").ok();
    asked.map_or(ENOUGH, |count| count.parse().expect("a number"))
}

pub(super) fn served(table: &mut Table) {
    let Some(arena) = Arena::open("served", |_, _| told()) else { return };
    arena.apply(REPLICAS);
    arena.until_answering();
    row(
        table,
        &format!("{REPLICAS} containers updated one by one, again and again"),
        &rolled(&arena),
    );
    row(table, "one node after the other drained, and back", &drained(&arena));
    let what = "one leader after the other killed (`kill -9`), asked at the two other nodes";
    row(table, what, &unled(&arena));
    match reloaded(&arena) {
        Some(outcome) => row(table, "one daemon after the other restarted (`SIGHUP`)", &outcome),
        None => eprintln!("served: this daemon does not restart at SIGHUP, left out"),
    }
}

fn rolled(arena: &Arena) -> LoadReport {
    arena.asked(&[0, 1, 2], |progress| {
        while progress.answered() < enough() {
            arena.apply(REPLICAS);
        }
    })
}

fn drained(arena: &Arena) -> LoadReport {
    arena.asked(&[0, 1, 2], |progress| {
        for node in NAMES[..3].iter().cycle() {
            arena.ask(0, &["node", "drain", node]);
            arena.ask(0, &["node", "uncordon", node]);
            if progress.answered() >= enough() {
                return;
            }
        }
    })
}

/// Each time the leader's daemon is killed and started again. Who asks there is cut off with it, and not counted.
fn unled(arena: &Arena) -> LoadReport {
    let mut outcome = LoadReport::default();
    while outcome.answered() < enough() {
        let leader = threads().block_on(arena.cell.until_whole());
        let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
        arena.until_answering();
        outcome.merge(arena.asked(&others, |progress| {
            settle(progress);
            arena.cell.kill(leader);
            threads().block_on(async {
                let client = arena.cell.client(others[0]);
                until("another leads", async || {
                    let ready = client.ready(false).await;
                    let led = ready.ok().filter(|it| it.is_ready).and_then(|it| it.health.leader);
                    led.is_some_and(|led| led != NAMES[leader])
                })
                .await;
                arena.cell.up(leader, None).await;
                arena.cell.until_whole().await;
            });
            settle(progress);
        }));
    }
    outcome
}

/// None, if this daemon does not know how.
fn reloaded(arena: &Arena) -> Option<LoadReport> {
    if !successor::can_reload(&arena.cell, 0) {
        return None;
    }
    arena.until_answering();
    Some(arena.asked(&[0, 1, 2], |progress| {
        for at in (0..3).cycle() {
            settle(progress);
            threads().block_on(successor::reload(&arena.cell, at));
            if progress.answered() >= enough() {
                return;
            }
        }
    }))
}

/// Lets some requests pass while nothing goes on.
fn settle(progress: &LoadProgress) {
    /// What every client gets done in a moment.
    const SOME: usize = 500;
    let enough = progress.answered() + SOME;
    while progress.answered() < enough {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All replicas are on a host that is soon hot, and the rebalancer moves some of them elsewhere.
pub(super) fn relieved(table: &mut Table) {
    if let Some(missing) = CpuCounters::missing() {
        eprintln!("relieved: {missing}, left out");
        return;
    }
    let roots = tempfile::tempdir().expect("a directory can be made");
    let mut counters = Vec::new();
    let arena = Arena::open("relieved", |at: usize, engine: &LabEngine| {
        let root = roots.path().join(NAMES[at]);
        let kept = CpuCounters::keep(&root, engine, MILLI_CPUS[at]).expect("files can be written");
        counters.push(kept);
        let root = root.to_string_lossy().into_owned();
        let words =
            ["--node-status-interval", SAMPLES, "--gate-haste", HASTE, "--host-root", &root];
        told().into_iter().chain(words.map(str::to_owned)).collect()
    });
    let Some(arena) = arena else { return };
    for node in &NAMES[1..3] {
        arena.ask(0, &["node", "cordon", node]);
    }
    arena.apply(REPLICAS);
    for node in &NAMES[1..3] {
        arena.ask(0, &["node", "uncordon", node]);
    }
    arena.until_answering();
    let outcome = arena.asked(&[0, 1, 2], |progress| {
        while progress.answered() < enough() || moves(&arena) == 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let moves = moves(&arena);
    row(table, &format!("a hot node relieved of {moves} of {REPLICAS} containers"), &outcome);
}

fn moves(arena: &Arena) -> usize {
    let query = AuditQuery { kinds: Some("rebalance_moved".to_owned()), ..AuditQuery::default() };
    let told = threads().block_on(arena.cell.client(0).audit(&query));
    told.map_or(0, |events| events.len())
}

fn row(table: &mut Table, what: &str, outcome: &LoadReport) {
    eprintln!("{what}: {outcome}");
    let failed = format!("{} of {}", outcome.failed, outcome.answered() + outcome.failed);
    let [half, most, worst] = [outcome.time(500), outcome.time(990), outcome.worst()].map(shown);
    let times = format!("p50 {half}, p99 {most}, worst {worst}");
    table.row(&format!("{what}: requests that failed"), "0", failed, times);
}
