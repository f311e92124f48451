//! How long nobody can write when the leader is lost, and when it is stopped on purpose.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll_api::client::{Client, Result};
use plimsoll_api::view::NewOperator;
use plimsoll_lab::NAMES;
use tokio::time::sleep;

use super::daemons::{Cell, Site};
use crate::node::threads;
use crate::{Table, shown};

const ROUNDS: usize = 20;

/// A write that failed is tried again after this.
const RETRY: Duration = Duration::from_millis(2);

/// Kills and stops in turns, so that both meet the machine in the same mood.
pub(in super::super) fn failover(table: &mut Table) {
    let (mut killed, mut stopped) = (Vec::new(), Vec::new());
    threads().block_on(async {
        let cell = Cell::of_three(Site::Loopback).await;
        for round in 0..ROUNDS {
            killed.push(lose(&cell, round, false).await);
            stopped.push(lose(&cell, round, true).await);
            let [killed, stopped] = [&killed, &stopped].map(|times| times[round]);
            eprintln!("failover, round {round}: killed {killed:.2?}, stopped {stopped:.2?}");
        }
    });
    for (what, promise, mut times) in [
        ("leader killed (`kill -9`) to the next write through a survivor", "≤ 1.5 s", killed),
        (
            "leader stopped (`SIGTERM`): the longest wait for a write through another",
            "≤ 0.3 s",
            stopped,
        ),
    ] {
        times.sort_unstable();
        let [best, median, worst] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| shown(times[at]));
        table.row(what, promise, best, format!("{median}, worst {worst}"));
    }
}

/// Ends the leader and says how long nobody could write.
async fn lose(cell: &Cell, round: usize, gently: bool) -> Duration {
    let leader = cell.until_whole().await;
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    let client = cell.client(others[round % others.len()]);
    clear(&client).await;
    let gap = if gently {
        let (daemon, begun) = cell.stop(leader);
        let gap = longest_wait(&client, NAMES[leader], begun).await;
        daemon.wait().expect("it ends");
        gap
    } else {
        let begun = cell.kill(leader);
        longest_wait(&client, NAMES[leader], begun).await
    };
    cell.up(leader, None).await;
    gap
}

/// Writes without pause until another leads and has taken one. A leader that stops may take some before it goes, so what
/// counts is the longest time between two that succeeded.
async fn longest_wait(client: &Client, gone: &str, begun: Instant) -> Duration {
    let (mut last, mut longest) = (begun, Duration::ZERO);
    loop {
        let ready = client.ready(false).await.expect("a survivor answers");
        let is_led_by_another = ready.health.leader.is_some_and(|leader| leader != gone);
        if write(client).await.is_err() {
            sleep(RETRY).await;
            continue;
        }
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if is_led_by_another {
            return longest;
        }
    }
}

/// The smallest write there is: somebody is given a token. A name of its own each time, since of a write that was cut off
/// nobody knows whether it was done.
async fn write(client: &Client) -> Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("bench-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    client
        .add_operator(&NewOperator { name, role: "read".to_owned(), ..NewOperator::default() })
        .await
        .map(drop)
}

/// Takes all tokens back: there may be so many, and no more.
async fn clear(client: &Client) {
    for operator in client.operators().await.expect("a whole cell answers") {
        let revoked = client.revoke_operator(&operator.name).await;
        revoked.expect("a whole cell can be written to");
    }
}
