//! Whether a leader keeps its lead, and others can write, while very many replicas are deleted at once.

use std::time::{Duration, Instant};

use plimsoll_api::client::{Client, Endpoint};
use plimsoll_api::view::{NewJoinToken, NewOperator};
use plimsoll_daemon::node::{NodeOptions, RunningNode, RuntimeKind};
use plimsoll_lab::NAMES;
use plimsoll_model::testkit::node_id;
use tempfile::TempDir;
use tokio::time::sleep;

use super::daemons::{loopback, until};
use crate::node::{steady, threads};
use crate::{Table, shown};

const SERVERS: usize = 3;

const SERVICES: usize = 5;

/// 1,500 in all.
const REPLICAS: usize = 300;

/// How long what is left is looked for once the deployment is gone: agents report that their replicas have stopped.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// A write that failed is tried again after this.
const RETRY: Duration = Duration::from_millis(2);

pub(in super::super) fn deleting(table: &mut Table) {
    threads().block_on(async {
        let cell = FakedCell::of_three().await;
        let started = steady(&cell.client(0), &compose()).await;
        eprintln!("deleting: all run after {started:.2?}");
        let leader = cell.leader().await;
        let client = cell.client((leader.0 + 1) % SERVERS);
        let begun = Instant::now();
        cell.client(leader.0).delete("crowd", true).await.expect("it is deleted");
        let mut waits = Vec::new();
        let mut gone = None;
        while gone.is_none_or(|gone: Instant| gone.elapsed() < AFTERWARDS) {
            waits.push(write(&client).await);
            let left = client.deployments().await.expect("a server answers");
            gone = gone.or(left.is_empty().then(Instant::now));
        }
        let gone = gone.expect("the loop ends once it is gone");
        waits.sort_unstable();
        let [median, longest] = [waits.len() / 2, waits.len() - 1].map(|at| shown(waits[at]));
        let what = "1,500 replicas deleted at once on three servers (fake runtime)";
        table.row(&format!("{what}: all gone"), "", shown(gone - begun), String::new());
        let wait = format!("{what}: the longest wait for a write through another server");
        table.row(&wait, "", longest, format!("median {median}"));
        let now = cell.leader().await;
        let terms = format!("{} new", now.1 - leader.1);
        table.row(&format!("{what}: terms"), "none new", terms, String::new());
        for node in cell.nodes {
            node.stop().await;
        }
    });
}

/// Somebody is given a token, and it is taken back: how long the longer of the two took.
async fn write(client: &Client) -> Duration {
    let name = "bench".to_owned();
    let new = NewOperator { name, role: "read".to_owned(), ..NewOperator::default() };
    let begun = Instant::now();
    // Of a write that was cut off nobody knows whether it was done.
    while let Err(error) = client.add_operator(&new).await {
        eprintln!("deleting: a write failed: {error}");
        client.revoke_operator(&new.name).await.ok();
        sleep(RETRY).await;
    }
    let (added, begun) = (begun.elapsed(), Instant::now());
    while client.revoke_operator(&new.name).await.is_err() {
        sleep(RETRY).await;
    }
    added.max(begun.elapsed())
}

fn compose() -> String {
    let service = |nth: usize| {
        format!(
            "  s{nth}:\n    image: any\n    \
             healthcheck: {{test: [CMD, 'true'], interval: 1h, start_interval: 10ms, start_period: 1m}}\n    \
             deploy: {{replicas: {REPLICAS}}}\n"
        )
    };
    format!("name: crowd\nservices:\n{}", (0..SERVICES).map(service).collect::<String>())
}

/// Three servers in this process that run nothing: their logs, loops, links and APIs are real.
struct FakedCell {
    nodes: Vec<RunningNode>,
    dir: TempDir,
}

impl FakedCell {
    async fn of_three() -> Self {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let mut cell = Self { nodes: Vec::new(), dir };
        for (at, name) in NAMES.iter().enumerate().take(SERVERS) {
            let join = if at == 0 {
                None
            } else {
                let asked = NewJoinToken::default();
                let token = cell.client(0).create_join_token(&asked).await;
                Some(token.expect("a token is made").join.parse().expect("it can be joined with"))
            };
            let options = NodeOptions {
                data_dir: cell.dir.path().join(name),
                name: Some(node_id(name)),
                runtime: Some(RuntimeKind::Fake),
                socket: cell.socket(at),
                address: Some(loopback(at)),
                join,
                ..NodeOptions::default()
            };
            cell.nodes.push(RunningNode::start(options).await.expect("the node starts"));
        }
        let client = cell.client(0);
        until("all three vote", async || {
            let servers = client.cell().await.map(|cell| cell.servers).unwrap_or_default();
            servers.iter().filter(|server| server.votes).count() == SERVERS
        })
        .await;
        cell
    }

    fn socket(&self, at: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("{}.sock", NAMES[at]))
    }

    fn client(&self, at: usize) -> Client {
        Client::new(Endpoint::Unix(self.socket(at)))
    }

    /// Who leads, and in which term.
    async fn leader(&self) -> (usize, u64) {
        let mut led = None;
        until("somebody leads", async || {
            led = self.client(0).cell().await.ok().and_then(|cell| {
                let leader = cell.leader?;
                Some((NAMES.iter().position(|name| *name == leader)?, cell.term))
            });
            led.is_some()
        })
        .await;
        led.expect("it was there a moment ago")
    }
}
