//! Builds of two levels on one etcd: nothing is written early, and a server that is too old says so and takes nothing.

use std::sync::Arc;

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{EtcdClient, Keys};
use plimsoll_model::{Author, Change, Command, Level, Term, Timestamp, Writer};
use plimsoll_seal::Keyring;
use plimsoll_store::{Engine, Error};
use plimsoll_store_etcd::{Etcd, StartError};
use serde_json::json;

use crate::support::*;

/// One that this build cannot read.
const NEXT: Level = Level(Level::BUILD.0 + 1);

fn raise() -> Command {
    let by = Author::new(Writer::Scheduler, "leader");
    Command::new(Timestamp(2_000), Term(1), by, vec![Change::Raise { level: NEXT }.free()])
}

/// What a newer build might write: its level, and then a form of its own.
fn newer() -> Vec<u8> {
    let mut bytes = postcard::to_stdvec(&NEXT).unwrap();
    bytes.extend_from_slice(b"in another form");
    bytes
}

/// As a server of the cell would seal it.
fn sealed(context: &str) -> Vec<u8> {
    Keyring::of_cell([&seal_key()], "plimsoll etcd").unwrap().seal(context, &newer()).unwrap()
}

async fn put_entry(client: &EtcdClient, index: u64) {
    let key = format!("/plimsoll/test/scheduler/entry/{index:020}");
    let mut value = vec![1];
    value.extend_from_slice(&7_u64.to_le_bytes());
    value.extend(sealed(&format!("{key} 1 7")));
    client.put(key, value).await.unwrap();
}

async fn put_snapshot(client: &EtcdClient, index: u64) {
    let (bytes, base) = (newer().len(), "/plimsoll/test/scheduler");
    let meta = json!({ "format": 1, "index": index, "term": 7, "bytes": bytes });
    let key = format!("{base}/state/{index:020}-{:020}/{:06}", 7, 0);
    let state = sealed(&format!("{key} part of {bytes}"));
    client.put(key, state).await.unwrap();
    client.put(format!("{base}/snapshot"), meta.to_string()).await.unwrap();
}

async fn is_turned_away(lab: &EtcdLab, what: &str) {
    let refused = Etcd::start(config(lab.config(), 1)).await.unwrap_err();
    assert!(matches!(refused, StartError::Outgrown { level: NEXT, .. }), "{refused}");
    let says = refused.to_string();
    assert!(says.starts_with(what), "{says}");
    assert!(says.contains(&format!("the cell speaks {NEXT}: install the same plimsoll")), "{says}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_some_server_cannot_read_is_not_written() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let engine = server(&lab, 1).await;
    let early = engine.propose(Command { level: NEXT, ..join("ash") }).await;
    assert_eq!(early.unwrap_err(), Error::Early { needed: NEXT, cell: Level::FIRST });
    assert_eq!(history(&client(&lab)).await, []);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_or_a_snapshot_of_a_newer_level_is_named_as_such() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let engine = server(&lab, 1).await;
    engine.propose(join("ash")).await.unwrap();
    engine.shutdown().await.unwrap();
    let client = client(&lab);
    put_entry(&client, 2).await;
    is_turned_away(&lab, "log entry 2 cannot be applied: ").await;
    client.delete(Keys::prefix("/plimsoll/test/scheduler/entry/")).await.unwrap();
    put_snapshot(&client, 9).await;
    is_turned_away(&lab, "the snapshot in etcd cannot be used: ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_the_cell_outgrows_neither_follow_nor_lead() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let servers = [server(&lab, 1).await, server(&lab, 2).await];
    let leader = leader_of(&servers).await;
    servers[leader].propose(raise()).await.unwrap();
    let outgrown =
        |engine: Arc<Etcd>| async move { engine.propose(join("ash")).await.unwrap_err() };
    for engine in &servers {
        eventually("it knows", || engine.machine().outgrown() == Some(NEXT)).await;
        assert_eq!(outgrown(Arc::clone(engine)).await, Error::Outgrown { level: NEXT });
    }
    let standby = &servers[1 - leader];
    eventually("it says why", || standby.leadership_info().hindrance.is_some()).await;
    servers[leader].shutdown().await.unwrap();
    let client = client(&lab);
    assert_eq!(key(&client).await, None, "nobody took over what it cannot read");
    assert!(!leads(standby));
    is_turned_away(&lab, "log entry 1 cannot be applied: ").await;
    assert_eq!(history(&client).await.len(), 1, "nothing was written since");
    standby.shutdown().await.unwrap();
}
