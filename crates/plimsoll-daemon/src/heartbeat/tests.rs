use std::sync::Arc;
use std::time::Duration;

use plimsoll_kernel::Policy;
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{CellId, Change, Writer};
use plimsoll_runtime::FakeRuntime;
use plimsoll_store::Embedded;
use plimsoll_store::embedded::EmbeddedConfig;
use tempfile::TempDir;

use super::*;
use crate::context::span;
use crate::measurements::NodeMeasurement;
use crate::sampler;

#[tokio::test]
async fn an_engine_that_hangs_holds_up_neither_the_heartbeat_nor_what_the_node_measures() {
    let (dir, cell_id) = (TempDir::new().unwrap(), CellId::new("test").unwrap());
    let runtime = Arc::new(FakeRuntime::new(cell_id.clone()));
    let engine = Embedded::start(EmbeddedConfig::alone(dir.path(), cell_id)).await.unwrap();
    let (over, policy) = (Arc::clone(&runtime) as _, Policy::default());
    let cell = NodeContext::new(engine, over, node_id("ash"), Arc::default(), policy);
    let join = Change::PutNode { node: node_id("ash"), facts: cpus(4) };
    cell.write(Writer::Agent, "ash", vec![join.free()]).await.unwrap();
    let (_shutdown, stop) = watch::channel(false);
    runtime.set_hung(true);
    tokio::time::pause();
    let root = dir.path().to_owned();
    tokio::spawn(sampler::run(cell.clone(), root, stop.clone()));
    let pulse = Pulse::default();
    let beating = tokio::spawn(run(cell.clone(), None, pulse.clone(), stop));
    // Longer than any engine is waited for, several times over.
    for second in (0..120).step_by(6) {
        let noted =
            cell.measurements.lock().nodes.insert(node_id("ash"), NodeMeasurement::default());
        assert!(second == 0 || noted.is_some_and(|it| it.heard_at.is_some()), "after {second} s");
        assert!(pulse.is_fresh(), "after {second} s");
        sleep(cell.heartbeat() + Duration::from_secs(1)).await;
    }
    cell.measurements.lock().nodes.clear();
    sleep(span(policy.sample_interval) + cell.heartbeat()).await;
    assert!(cell.measurements.lock().nodes[&node_id("ash")].measured_at.is_some());
    beating.abort();
    sleep(STALE + Duration::from_secs(1)).await;
    assert!(!pulse.is_fresh(), "a heartbeat that ended, or hangs, is found out");
}
