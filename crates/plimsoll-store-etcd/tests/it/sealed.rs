//! Somebody who reads etcd, or writes to it, without the key of the cell: nothing is learned, and nothing is believed.

use bytes::Bytes;
use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{EtcdClient, KeyValue, Keys, Range};
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{Change, Command};
use plimsoll_seal::CellKey;
use plimsoll_store::Engine;
use plimsoll_store_etcd::{Etcd, EtcdEngineConfig, StartError};

use crate::support::*;

const SECRET: &str = "correct-horse-battery-staple";

/// More than goes into one value.
const LARGE: usize = 3 << 20;

/// A node that says its secret, and so many other bytes.
fn telling(name: &str, more: usize) -> Command {
    let mut facts = cpus(4);
    facts.labels.insert("password".to_owned(), SECRET.repeat(1 + more / SECRET.len()));
    command(Change::PutNode { node: node_id(name), facts })
}

async fn all(client: &EtcdClient) -> Vec<KeyValue> {
    let mut found = Vec::new();
    let mut keys = Keys::prefix("/");
    loop {
        let rest = keys.clone();
        let page = client.range(Range::of(keys).limit(8)).await.unwrap();
        let last = page.pairs.last().map(|pair| pair.key.clone());
        found.extend(page.pairs);
        match last {
            Some(last) if page.more => keys = rest.after(&last),
            _ => return found,
        }
    }
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|part| part == what)
}

#[track_caller]
fn gives_nothing_away(found: &[KeyValue], kinds: &[&str]) {
    for pair in found {
        let key = String::from_utf8_lossy(&pair.key);
        assert!(!has(&pair.value, SECRET.as_bytes()), "{key} holds the secret");
        assert!(!has(&pair.value, seal_key().expose()), "{key} holds the key");
    }
    for kind in kinds {
        let is_there = found.iter().any(|pair| has(&pair.key, kind.as_bytes()));
        assert!(is_there, "{kind} was looked at too");
    }
}

fn entry(index: u64) -> String {
    format!("/plimsoll/test/scheduler/entry/{index:020}")
}

async fn value(client: &EtcdClient, key: &str) -> Bytes {
    client.get(key.to_owned()).await.unwrap().unwrap().value
}

async fn refusal(lab: &EtcdLab) -> String {
    Etcd::start(config(lab.config(), 1)).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_value_in_etcd_gives_a_secret_away() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let engine = server(&lab, 1).await;
    engine.propose(telling("small", 0)).await.unwrap();
    engine.propose(telling("large", LARGE)).await.unwrap();
    let client = client(&lab);
    gives_nothing_away(&all(&client).await, &["/entry/", "/part/", "/cell", "/leader"]);
    engine.snapshot().await.unwrap();
    engine.propose(telling("after", 0)).await.unwrap();
    gives_nothing_away(&all(&client).await, &["/entry/", "/state/", "/snapshot"]);
    let before = state_bytes(&engine);
    engine.shutdown().await.unwrap();

    let engine = server(&lab, 2).await;
    assert_eq!(state_bytes(&engine), before, "and whoever has the key reads all of it");
    engine.shutdown().await.unwrap();
    let other = EtcdEngineConfig { seal: CellKey::generate().unwrap(), ..config(lab.config(), 3) };
    let refused = Etcd::start(other).await.unwrap_err();
    assert!(matches!(refused, StartError::OtherSeal { .. }), "{refused}");
    let says = refused.to_string();
    assert!(says.contains(&format!("sealed with key {}", seal_key().id())), "{says}");
    assert!(says.contains("`plimsoll cell etcd-seal-key`"), "{says}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_was_moved_changed_or_written_by_somebody_else_is_noticed() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let engine = server(&lab, 1).await;
    for name in ["one", "two", "three"] {
        engine.propose(join(name)).await.unwrap();
    }
    engine.propose(telling("large", LARGE)).await.unwrap();
    engine.shutdown().await.unwrap();
    let client = client(&lab);
    let [second, third] = [value(&client, &entry(2)).await, value(&client, &entry(3)).await];
    let mut changed = second.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    let mut other_term = second.to_vec();
    other_term[1] ^= 1;
    for (case, wrong) in [
        ("another entry", third.clone()),
        ("a flipped bit", changed.into()),
        ("another term", other_term.into()),
        ("in the clear", Bytes::from_static(b"\x01\x07\0\0\0\0\0\0\0in the clear")),
    ] {
        client.put(entry(2), wrong).await.unwrap();
        let says = refusal(&lab).await;
        assert!(says.starts_with("log entry 2 in etcd was not written there"), "{case}: {says}");
    }
    client.put(entry(2), second).await.unwrap();

    // The parts of one command, in another order, and one too few.
    let parts = client.range(Range::of(Keys::prefix("/plimsoll/test/scheduler/part/")).limit(9));
    let parts = parts.await.unwrap().pairs;
    assert!(parts.len() >= 3, "{} parts", parts.len());
    client.put(parts[0].key.clone(), parts[1].value.clone()).await.unwrap();
    let says = refusal(&lab).await;
    assert!(says.starts_with("log entry 4 in etcd was not written there"), "{says}");
    client.put(parts[0].key.clone(), parts[0].value.clone()).await.unwrap();
    let last = parts.last().unwrap();
    client.delete(Keys::one(last.key.clone())).await.unwrap();
    let says = refusal(&lab).await;
    assert!(says.contains("parts of log entry 4 are missing"), "{says}");
    client.put(last.key.clone(), last.value.clone()).await.unwrap();

    let engine = server(&lab, 1).await;
    assert!(["one", "two", "three", "large"].iter().all(|name| knows(&engine, name)));
    engine.snapshot().await.unwrap();
    engine.shutdown().await.unwrap();
    let states = client.range(Range::of(Keys::prefix("/plimsoll/test/scheduler/state/")).limit(9));
    let states = states.await.unwrap().pairs;
    client.delete(Keys::prefix("/plimsoll/test/scheduler/entry/")).await.unwrap();
    client.put(states[1].key.clone(), states[0].value.clone()).await.unwrap();
    let says = refusal(&lab).await;
    assert!(says.starts_with("the snapshot in etcd was not written there"), "{says}");
    client.put(states[1].key.clone(), states[1].value.clone()).await.unwrap();
    // A snapshot that claims to be shorter, with its last part gone.
    let snapshot = "/plimsoll/test/scheduler/snapshot";
    let mut meta: serde_json::Value =
        serde_json::from_slice(&value(&client, snapshot).await).unwrap();
    let whole = meta.to_string();
    meta["bytes"] = (meta["bytes"].as_u64().unwrap() - 1).into();
    client.put(snapshot, meta.to_string()).await.unwrap();
    let says = refusal(&lab).await;
    assert!(says.starts_with("the snapshot in etcd was not written there"), "{says}");
    client.put(snapshot, whole).await.unwrap();
    let engine = server(&lab, 1).await;
    assert!(knows(&engine, "large"), "and as it was it is taken");
}
