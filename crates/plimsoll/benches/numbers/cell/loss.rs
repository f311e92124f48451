//! How long it takes until everything that ran on the leader's host runs elsewhere.

use std::time::Duration;

use plimsoll_kernel::Policy;
use plimsoll_lab::{Lab, NAMES};

use super::daemons::{Cell, Site, until};
use crate::Table;
use crate::node::{steady, threads};

const ROUNDS: usize = 4;

const REPLICAS: usize = 6;

pub(in super::super) fn loss(table: &mut Table) {
    if let Some(why) = plimsoll_lab::missing() {
        eprintln!("loss: there can be no hosts here ({why}), left out");
        return;
    }
    let mut times: Vec<Duration> = threads().block_on(async {
        let lab = Lab::new(3, 1).expect("hosts can be made");
        let cell = Cell::of_three(Site::Hosts(lab)).await;
        let text = format!(
            "name: shop\nservices:\n  web:\n    image: any\n    command: [sleep, '100000']\n    \
             healthcheck: {{test: [CMD, 'true'], interval: 100ms}}\n    deploy: {{replicas: {REPLICAS}}}\n"
        );
        steady(&cell.client(0), &text).await;
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let time = lose(&cell).await;
            eprintln!("loss, round {round}: {time:.2?}");
            times.push(time);
        }
        times
    });
    times.sort_unstable();
    let ttl = Duration::from_millis(Policy::default().node_ttl().0);
    let promise = format!("≤ {} s (the TTL and 5 s)", ttl.as_secs() + 5);
    let what = "the leader's host switched off, to all its replicas running elsewhere";
    table.time(what, &promise, &times);
}

/// Switches the leader's host off, and on again once nothing is missing.
async fn lose(cell: &Cell) -> Duration {
    let leader = cell.until_whole().await;
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    let client = cell.client(others[0]);
    let places = async || {
        let replicas = client.replicas().await.unwrap_or_default();
        let now = replicas.into_iter().filter_map(|replica| replica.now);
        now.filter(|now| now.state == "running").map(|now| now.node).collect::<Vec<_>>()
    };
    until("all replicas run, some of them there", async || {
        let places = places().await;
        places.len() == REPLICAS && places.iter().any(|node| node == NAMES[leader])
    })
    .await;
    let begun = cell.switch_off(leader);
    until("all replicas run elsewhere", async || {
        let places = places().await;
        places.len() == REPLICAS && places.iter().all(|node| node != NAMES[leader])
    })
    .await;
    let time = begun.elapsed();
    cell.up(leader, None).await;
    time
}
