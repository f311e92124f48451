//! How long a status takes in a full cell.

use std::time::{Duration, Instant};

use plimsoll_api::view::Progress;
use plimsoll_model::testkit::{cpus, node_id, spread};
use plimsoll_model::{Change, Writer};

use super::support::daemon;

/// What was promised for a hundred deployments with a thousand replicas.
const PROMISED: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn a_status_of_a_thousand_replicas_takes_less_than_was_promised() {
    let daemon = daemon().await;
    let join = Change::PutNode { node: node_id("birch"), facts: cpus(64) };
    daemon.write(Writer::Operator, vec![join.free()]).await;
    for number in 0..100 {
        let name = format!("d{number}");
        daemon.apply(&name, [("web", spread(6)), ("db", spread(4))]).await;
    }
    daemon.settle().await;
    let mut took = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        let status = daemon.client.status().await.unwrap();
        took.push(began.elapsed());
        let replicas = status.deployments.iter().flat_map(|d| &d.services).map(|s| s.running);
        assert_eq!(replicas.sum::<u32>(), 1_000);
        assert!(status.deployments.iter().all(|d| d.progress == Progress::Steady));
    }
    took.sort();
    println!("status of 1000 replicas: best {:?}, median {:?}", took[0], took[10]);
    // The best, because the other tests of the suite run beside this one, and none of it is optimised.
    assert!(took[0] < PROMISED, "{took:?}");
}
