//! An etcd that has less than it acknowledged: whoever knows better keeps what it has, and nobody writes.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{EtcdClient, Keys, Range};
use plimsoll_store::{Engine, Error};
use plimsoll_store_etcd::{Etcd, EtcdEngineConfig};

use crate::proxy::Proxy;
use crate::support::*;

const ENTRIES: &str = "/plimsoll/test/scheduler/entry/";

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()))
}

fn lost(engine: &Etcd) -> Option<String> {
    match engine.trouble() {
        Some(Error::LogLost(why)) => Some(why.to_string()),
        _ => None,
    }
}

async fn entries(client: &EtcdClient) -> Vec<u64> {
    let found = client.range(Range::of(Keys::prefix(ENTRIES)).keys_only()).await.unwrap();
    let number = |key: &[u8]| String::from_utf8_lossy(&key[ENTRIES.len()..]).parse().unwrap();
    found.pairs.iter().map(|pair| number(&pair.key)).collect()
}

/// A cell of two that has written five nodes.
async fn cell(lab: &EtcdLab) -> [Arc<Etcd>; 2] {
    let servers = [server(lab, 1).await, server(lab, 2).await];
    let leader = leader_of(&servers).await;
    for nth in 1..=5 {
        servers[leader].propose(join(&format!("n{nth}"))).await.unwrap();
    }
    agree(&servers).await;
    servers
}

/// All of them know it, say so, keep what they have and write nothing, for longer than any lease.
async fn keep_what_they_have(servers: &[Arc<Etcd>], lab: &EtcdLab, left: &[u64], words: &str) {
    for server in servers {
        eventually("it knows that writes are lost", || lost(server).is_some()).await;
    }
    let why: Vec<String> = servers.iter().filter_map(|server| lost(server)).collect();
    assert!(why.iter().any(|why| why.contains(words)), "{why:?}");
    let client = client(lab);
    for _ in 0..20 {
        for server in servers {
            let refused = server.propose(join("late")).await;
            assert!(matches!(refused, Err(Error::LogLost(_))), "{refused:?}");
            assert!(!leads(server) && server.leadership().borrow().leader.is_none());
        }
        assert_eq!(entries(&client).await, left, "nothing is written above a hole");
        tokio::time::sleep(TTL / 10).await;
    }
    for server in servers {
        assert!((1..=5).all(|nth| knows(server, &format!("n{nth}"))), "the state is kept");
        assert!(server.leadership_info().hindrance.is_some());
    }
    // Nor by one who does not know what is missing.
    for is_known in [true, false] {
        let newcomer = EtcdEngineConfig { is_known, ..config(lab.config(), 9) };
        let says = Etcd::start(newcomer).await.unwrap_err().to_string();
        assert!(says.contains("has applied entry") && says.contains("cell recover"), "{says}");
    }
    assert_eq!(entries(&client).await, left);
}

async fn end(servers: [Arc<Etcd>; 2]) {
    for server in servers {
        server.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_deleted_under_a_running_cell_are_missed_at_once() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let servers = cell(&lab).await;
    lab.ctl(&["del", "/plimsoll/test/", "--prefix"]);
    keep_what_they_have(&servers, &lab, &[], "there is no cell below /plimsoll/test/").await;
    end(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_starts_again_on_an_empty_disk_is_not_written_to() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let servers = cell(&lab).await;
    lab.wipe();
    keep_what_they_have(&servers, &lab, &[], "there is no cell below /plimsoll/test/").await;
    end(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_backup_of_etcd_is_not_written_to_though_the_leaders_key_is_in_it() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let servers = cell(&lab).await;
    let leader = leader_of(&servers).await;
    let (older, newer) = (file("older"), file("newer"));
    lab.save(&older);
    servers[leader].propose(join("n6")).await.unwrap();
    agree(&servers).await;
    lab.save(&newer);
    lab.restore(&older);
    keep_what_they_have(&servers, &lab, &[1, 2, 3, 4, 5], "etcd lacks entry 6").await;

    // Once etcd has all of it again, the cell goes on where it was.
    lab.restore(&newer);
    let leader = leader_of(&servers).await;
    assert_eq!(servers[leader].propose(join("n7")).await.unwrap().index, 7);
    agree(&servers).await;
    assert_eq!(history(&client(&lab)).await.len(), 7);
    for file in [older, newer] {
        std::fs::remove_file(file).ok();
    }
    end(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_entry_that_is_deleted_by_hand_is_missed() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let servers = cell(&lab).await;
    lab.ctl(&["del", &format!("{ENTRIES}{:020}", 3)]);
    keep_what_they_have(&servers, &lab, &[1, 2, 4, 5], "entry 3 was deleted from etcd").await;
    end(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_that_is_begun_anew_below_the_prefix_is_left_alone() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let proxy = Proxy::to(&lab.endpoints[0]).await;
    let server = Etcd::start(config(plimsoll_etcd::EtcdConfig::open([proxy.endpoint()]), 1)).await;
    let server = server.unwrap();
    for nth in 1..=5 {
        server.propose(join(&format!("n{nth}"))).await.unwrap();
    }
    proxy.stall(true);
    lab.wipe();
    // With as many entries, and by now the same revisions.
    let other = Etcd::start(config(lab.config(), 1)).await.unwrap();
    for nth in 1..=5 {
        other.propose(join(&format!("m{nth}"))).await.unwrap();
    }
    eventually("it knows that it cannot lead", || !leads(&server)).await;
    proxy.cut();
    proxy.stall(false);
    eventually("it knows", || lost(&server).is_some_and(|why| why.contains("begun anew"))).await;
    let refused = server.propose(join("late")).await;
    assert!(matches!(refused, Err(Error::LogLost(_))), "{refused:?}");
    assert!(knows(&server, "n5") && !knows(&server, "m5"));
    assert_eq!(other.propose(join("m6")).await.unwrap().index, 6, "and the other goes on");
    for server in [server, other] {
        server.shutdown().await.unwrap();
    }
}
