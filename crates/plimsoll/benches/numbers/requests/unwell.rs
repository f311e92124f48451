//! How soon nothing is sent any more to a replica that is not well: from the moment that its node finds out to the moment
//! that it has left the router of every node. The nodes are real but for their containers, which only pretend; they share
//! a process here, so that all moments are of one clock.

use std::any::Any;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_api::client::{Client, Endpoint};
use plimsoll_api::view::NewJoinToken;
use plimsoll_daemon::node::{NodeOptions, RunningNode, RuntimeKind};
use plimsoll_lab::{LabRng, NAMES};
use plimsoll_model::testkit::node_id;
use plimsoll_model::{Generation, ReplicaId};
use plimsoll_runtime::{FakeRuntime, Tag};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cell::daemons::{loopback, until};
use crate::node::{steady, threads};
use crate::{Table, median, shown};

/// Seven hold the log, of whom seven vote; the others are told by the leader what leads where.
const NODES: usize = 10;

const REPLICAS: usize = 1_000;

/// How many fall ill, one after the other, and how many microseconds after it on the average.
const ILL: usize = 100;
const PAUSE: u64 = 100_000;

/// Each is asked this often how it is, from when it was started on: so they are found ill at any time.
const INTERVAL: &str = "1s";

pub(in super::super) fn unwell(table: &mut Table) {
    let mut times = threads().block_on(async {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let nodes = start(dir.path()).await;
        let text = format!(
            "name: shop\nservices:\n  web:\n    image: any\n    \
             healthcheck: {{test: [CMD, 'true'], interval: {INTERVAL}, retries: 1, start_interval: 100ms, start_period: 1m}}\n    \
             deploy: {{replicas: {REPLICAS}}}\n\
             x-plimsoll:\n  routes:\n    - {{host: shop.example, service: web, port: 80}}\n"
        );
        steady(&client(dir.path(), 0), &text).await;
        measure(&nodes).await
    });
    times.sort_unstable();
    let what = format!(
        "one of {REPLICAS} replicas on {NODES} nodes is found unwell, to out of every node's router"
    );
    let [most, worst] = [times[times.len() * 99 / 100], times[times.len() - 1]].map(shown);
    let median = format!("{}, p99 {most}, worst {worst}", shown(median(&times)));
    table.row(&what, "≤ 1 s", shown(times[0]), median);
}

fn client(dir: &Path, at: usize) -> Client {
    Client::new(Endpoint::Unix(dir.join(NAMES[at]).join("plimsoll.sock")))
}

async fn start(dir: &Path) -> Vec<RunningNode> {
    let mut nodes = Vec::new();
    for (at, name) in NAMES.iter().enumerate().take(NODES) {
        let own = dir.join(name);
        let join = if at == 0 {
            None
        } else {
            let token = client(dir, 0).create_join_token(&NewJoinToken::default()).await;
            Some(token.expect("a token is made").join.parse().expect("it is one"))
        };
        let options = NodeOptions {
            socket: own.join("plimsoll.sock"),
            data_dir: own,
            name: Some(node_id(name)),
            runtime: Some(RuntimeKind::Fake),
            address: Some(loopback(at)),
            join,
            ..NodeOptions::default()
        };
        nodes.push(RunningNode::start(options).await.expect("the node starts"));
    }
    until("all nodes are heard", async || {
        let told = client(dir, 0).nodes().await.unwrap_or_default();
        told.len() == NODES && told.iter().all(|node| node.status == "ready")
    })
    .await;
    nodes
}

/// What a node runs, which can be told to fall ill.
fn containers(node: &RunningNode) -> &FakeRuntime {
    let runtime: &dyn Any = &*node.cell().runtime;
    runtime.downcast_ref().expect("it only pretends")
}

async fn measure(nodes: &[RunningNode]) -> Vec<Duration> {
    let mut chance = LabRng::new(1);
    let mut healthy: Vec<Tag> = tags(&nodes[0]);
    until("every router knows all", async || {
        let known = |node: &RunningNode| {
            let routing = node.routing().expect("it runs");
            routing.read().upstreams.len() >= REPLICAS
        };
        nodes.iter().all(known)
    })
    .await;
    let mut times = Vec::new();
    for _ in 0..ILL {
        sleep(Duration::from_micros(chance.between(0, 2 * PAUSE))).await;
        let tag = healthy.swap_remove(chance.below(healthy.len()));
        times.push(fall_ill(nodes, &tag).await);
    }
    times
}

/// From when it is found unwell to when the last router has left it out.
async fn fall_ill(nodes: &[RunningNode], tag: &Tag) -> Duration {
    let mut leaving = JoinSet::new();
    for node in nodes {
        // Its own node is the one whose containers have it; the others take no notice.
        containers(node).fall_ill(tag);
        let (routing, tag) = (node.routing().expect("it runs").clone(), tag.clone());
        leaving.spawn(async move {
            routing.has_left(&tag.replica.to_string(), tag.generation).await;
            Instant::now()
        });
    }
    let left = leaving.join_all().await.into_iter().max().expect("there are nodes");
    let found = nodes.iter().find_map(|node| containers(node).found_ill(tag));
    left.duration_since(found.expect("it was found ill").into_std())
}

/// Every replica as its node knows it.
fn tags(node: &RunningNode) -> Vec<Tag> {
    node.cell().engine.machine().read(|state| {
        let tag = |(replica, row): (ReplicaId, &plimsoll_model::Replica)| {
            let generation: Generation = row.assignment.as_ref()?.generation;
            Some(Tag { cell_id: state.cell_id().clone(), replica, generation })
        };
        state.replicas().filter_map(tag).collect()
    })
}
