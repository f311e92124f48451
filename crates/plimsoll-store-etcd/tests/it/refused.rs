//! Starts that must not happen: each says why, and leaves etcd as it was.

use std::time::{Duration, Instant};

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{EtcdClient, EtcdCredentials, Keys, Range};
use plimsoll_model::CellId;
use plimsoll_store::{Engine, Peer};
use plimsoll_store_etcd::{Etcd, EtcdEngineConfig};

use crate::support::*;

async fn refusal(config: EtcdEngineConfig) -> String {
    Etcd::start(config).await.unwrap_err().to_string()
}

fn named(name: &str) -> Peer {
    Peer { name: name.to_owned(), address: "127.0.0.1:7009".to_owned() }
}

async fn everything(client: &EtcdClient) -> usize {
    client.range(Range::of(Keys::prefix(""))).await.unwrap().pairs.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_of_another_cell_or_of_somebody_else_is_left_alone() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let engine = server(&lab, 1).await;
    engine.propose(join("ash")).await.unwrap();
    let client = client(&lab);
    let before = everything(&client).await;
    let other = CellId::new("other").unwrap();
    let taken = EtcdEngineConfig { cell_id: other, ..config(lab.config(), 2) };
    let says = refusal(taken).await;
    assert_eq!(
        says,
        "the keys below /plimsoll/test/ in etcd belong to cell test, not to other; choose another prefix"
    );
    assert_eq!(everything(&client).await, before, "nothing was written");
    engine.propose(join("birch")).await.unwrap();
    engine.shutdown().await.unwrap();

    client.put("/theirs/cell", "something else").await.unwrap();
    let foreign = EtcdEngineConfig { prefix: "/theirs/".into(), ..config(lab.config(), 2) };
    assert!(refusal(foreign).await.contains("are not plimsoll's"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_same_name_elsewhere_is_another_one() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let first = server(&lab, 1).await;
    let peer = first.members().remove(0).peer;
    let elsewhere = Peer { address: "127.0.0.1:9".into(), ..peer.clone() };
    let says = refusal(EtcdEngineConfig { peer: elsewhere, ..config(lab.config(), 2) }).await;
    assert!(says.starts_with("a server called n1 runs at 127.0.0.1:7001;"), "{says}");
    let says = refusal(EtcdEngineConfig { peer: named("n9"), ..config(lab.config(), 1) }).await;
    assert!(says.starts_with("the id of this server is in use by n1;"), "{says}");
    // It lost its disk, and with it its number.
    let again = Etcd::start(EtcdEngineConfig { peer, ..config(lab.config(), 2) }).await.unwrap();
    again.shutdown().await.unwrap();
    first.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_that_is_not_there_any_more_is_not_begun_anew_by_who_was_of_it() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let known = || EtcdEngineConfig { is_known: true, ..config(lab.config(), 1) };
    let says = refusal(known()).await;
    assert!(says.starts_with("there is nothing below /plimsoll/test/ in etcd"), "{says}");
    assert_eq!(everything(&client(&lab)).await, 0, "and nothing is left there");
    server(&lab, 1).await.shutdown().await.unwrap();
    Etcd::start(known()).await.unwrap().shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_and_wrong_endpoints_are_named() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let client = client(&lab);
    lab.ctl(&["user", "add", "root:secret"]);
    lab.ctl(&["user", "grant-role", "root", "root"]);
    lab.ctl(&["user", "add", "ash:birch"]);
    lab.ctl(&["role", "add", "writer"]);
    lab.ctl(&["role", "grant-permission", "writer", "--prefix=true", "readwrite", "/plimsoll/"]);
    lab.ctl(&["user", "grant-role", "ash", "writer"]);
    assert_eq!(everything(&client).await, 0);
    lab.ctl(&["auth", "enable"]);
    let with = |user: &str, password: &str| {
        let credentials = Some(EtcdCredentials { user: user.into(), password: password.into() });
        plimsoll_etcd::EtcdConfig { credentials, ..lab.config() }
    };
    assert!(
        refusal(config(lab.config(), 1)).await.contains("etcd requires a user name and a password")
    );
    let wrong = refusal(config(with("ash", "cedar"), 1)).await;
    assert!(wrong.contains("rejected user ash"), "{wrong}");
    let elsewhere =
        EtcdEngineConfig { prefix: "/elsewhere/".into(), ..config(with("ash", "birch"), 1) };
    assert!(refusal(elsewhere).await.contains("denied permission"));
    let started = Instant::now();
    let nobody = lab.endpoints[0].replace(":2379", ":9");
    let says = refusal(config(plimsoll_etcd::EtcdConfig::open([nobody.clone()]), 1)).await;
    assert!(says.contains(&nobody) && says.contains("etcd is unreachable"), "{says}");
    assert!(started.elapsed() < Duration::from_secs(5));

    // With the right ones it leads, under a role that may touch its prefix alone.
    let engine = Etcd::start(config(with("ash", "birch"), 1)).await.unwrap();
    engine.propose(join("ash")).await.unwrap();
    engine.snapshot().await.unwrap();
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_cannot_be_read_is_not_passed_over() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let engine = server(&lab, 1).await;
    engine.propose(join("ash")).await.unwrap();
    engine.shutdown().await.unwrap();
    let client = client(&lab);
    client
        .put(format!("/plimsoll/test/scheduler/entry/{:020}", 2), "\u{9}from the future")
        .await
        .unwrap();
    let says = refusal(config(lab.config(), 1)).await;
    assert_eq!(says, "log entry 2 needs a newer plimsoll; upgrade this node");
    client.delete(Keys::prefix("/plimsoll/test/scheduler/entry/")).await.unwrap();
    client
        .put(format!("/plimsoll/test/scheduler/entry/{:020}", 7), "\u{1}12345678x")
        .await
        .unwrap();
    let says = refusal(config(lab.config(), 1)).await;
    assert!(says.contains("lacks the entries after 0 and before 7"), "{says}");
}
