//! The log: written, followed, large, snapshotted, compacted.

use std::sync::Arc;

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{Keys, Range};
use plimsoll_model::Change;
use plimsoll_model::access::KeyBytes;
use plimsoll_store::{Engine, Error, Leadership, ServerId, backup};
use plimsoll_store_etcd::{Etcd, EtcdEngineConfig};

use crate::proxy::Proxy;
use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_alone_leads_and_finds_all_it_wrote_after_a_restart() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let engine = server(&lab, 1).await;
    assert!(leads(&engine), "on return");
    for nth in 1..=20 {
        let committed = engine.propose(join(&format!("n{nth}"))).await.unwrap();
        assert_eq!(committed.index, nth);
        assert!(!committed.outcome.unwrap().is_empty());
    }
    assert_eq!(engine.catch_up().await.unwrap(), 20);
    engine.propose(command(Change::CreateBackupKey { secret: KeyBytes([7; 32]) })).await.unwrap();
    let (before, old_term) = (state_bytes(&engine), term(&engine));
    let file = std::env::temp_dir().join(format!("plimsoll-etcd-{}.backup", std::process::id()));
    let summary = engine.backup(&file).await.unwrap();
    assert_eq!(backup::verify(&file).unwrap().summary, summary);
    std::fs::remove_file(&file).ok();
    engine.shutdown().await.unwrap();
    assert_eq!(engine.propose(join("late")).await, Err(Error::Stopped));
    assert_eq!(key(&client(&lab)).await, None, "its key went with it");

    let engine = server(&lab, 1).await;
    assert_eq!(state_bytes(&engine), before);
    assert!(term(&engine) > old_term, "no two leaders share a term");
    let leadership_info = engine.leadership_info();
    assert!(leadership_info.lease_left.unwrap() <= TTL && leadership_info.hindrance.is_none());
    assert_eq!((leadership_info.engine, leadership_info.elections), ("etcd", 1));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_apply_the_log_as_it_comes_and_send_writers_to_the_leader() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let leader = server(&lab, 1).await;
    leader.propose(join("early")).await.unwrap();
    let standbys = [server(&lab, 2).await, server(&lab, 3).await];
    assert!(standbys.iter().all(|standby| knows(standby, "early")), "on return");
    let writers = (0..40).map(|nth| {
        let leader = Arc::clone(&leader);
        tokio::spawn(async move { leader.propose(join(&format!("n{nth}"))).await.unwrap() })
    });
    let writers: Vec<_> = writers.collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let servers = [Arc::clone(&leader), Arc::clone(&standbys[0]), Arc::clone(&standbys[1])];
    agree(&servers).await;
    for standby in &standbys {
        let refused = standby.propose(join("late")).await;
        assert_eq!(refused, Err(Error::NotLeader { leader: ServerId(1) }));
        assert_eq!(standby.catch_up().await, Err(Error::NotLeader { leader: ServerId(1) }));
        let seen = *standby.leadership().borrow();
        let expected = Leadership {
            term: leader.leadership().borrow().term,
            leader: Some(ServerId(1)),
            is_me: false,
        };
        assert_eq!(seen, expected);
    }
    for server in &servers {
        eventually("all know of each other", || server.members().len() == 3).await;
        let address = |id| server.members().into_iter().find(|member| member.id == ServerId(id));
        assert_eq!(address(1).unwrap().peer.address, "127.0.0.1:7001");
    }
    assert_eq!(history(&client(&lab)).await.len(), 41);
    for server in servers {
        server.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_larger_than_etcd_takes_is_split_and_whole_again_on_every_server() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let leader = server(&lab, 1).await;
    let standby = server(&lab, 2).await;
    // Larger than any request that etcd takes.
    let mut large = join("n0");
    while postcard::to_stdvec(&large).unwrap().len() < 4 << 20 {
        let more = large.batch.clone();
        large.batch.extend(more);
    }
    let committed = leader.propose(large).await.unwrap();
    assert_eq!(committed.index, 1);
    leader.propose(join("after")).await.unwrap();
    agree(&[Arc::clone(&leader), Arc::clone(&standby)]).await;
    let parts = Range::of(Keys::prefix("/plimsoll/test/scheduler/part/")).keys_only();
    assert!(client(&lab).range(parts).await.unwrap().pairs.len() >= 4);
    let newcomer = server(&lab, 3).await;
    assert_eq!(state_bytes(&newcomer), state_bytes(&leader));
    for server in [standby, newcomer, leader] {
        server.shutdown().await.unwrap();
    }
}

fn often(lab: &EtcdLab, id: u64) -> EtcdEngineConfig {
    EtcdEngineConfig { snapshot_every: 50, ..config(lab.config(), id) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_replaces_old_entries_and_a_newcomer_starts_from_it() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let leader = Etcd::start(often(&lab, 1)).await.unwrap();
    for nth in 0..230 {
        leader.propose(join(&format!("n{nth}"))).await.unwrap();
    }
    let held = leader.snapshot().await.unwrap();
    assert_eq!(held, 230);
    let client = client(&lab);
    let entries = history(&client).await;
    assert!(entries.len() <= 10, "most are gone: {entries:?}");
    assert_eq!(entries.last().unwrap().0, 230, "the last one stays");
    let states = Range::of(Keys::prefix("/plimsoll/test/scheduler/state/")).keys_only();
    assert_eq!(client.range(states).await.unwrap().pairs.len(), 1, "one snapshot, in one part");
    let newcomer = Etcd::start(often(&lab, 2)).await.unwrap();
    assert_eq!(state_bytes(&newcomer), state_bytes(&leader));
    leader.propose(join("after")).await.unwrap();
    agree(&[Arc::clone(&leader), Arc::clone(&newcomer)]).await;

    // And again under a new leader, from the snapshot and what came after it.
    leader.shutdown().await.unwrap();
    eventually("the newcomer leads", || leads(&newcomer)).await;
    assert_eq!(newcomer.propose(join("mine")).await.unwrap().index, 232);
    newcomer.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_whose_watch_is_overtaken_by_compaction_reads_the_snapshot_and_ends_equal() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let leader = Etcd::start(often(&lab, 1)).await.unwrap();
    leader.propose(join("early")).await.unwrap();
    let proxy = Proxy::to(&lab.endpoints[0]).await;
    let etcd = plimsoll_etcd::EtcdConfig::open([proxy.endpoint()]);
    let standby = Etcd::start(config(etcd, 2)).await.unwrap();
    let mut watcher = standby.machine().watch(2);
    for round in 0..3 {
        proxy.stall(true);
        for nth in 0..200 {
            leader.propose(join(&format!("n{round}-{nth}"))).await.unwrap();
        }
        leader.snapshot().await.unwrap();
        let client = client(&lab);
        let now = client.range(Range::of(Keys::one(LEADER))).await.unwrap().revision;
        client.compact(now).await.unwrap();
        assert!(!knows(&standby, &format!("n{round}-199")));
        if round > 0 {
            proxy.cut();
        }
        proxy.stall(false);
        agree(&[Arc::clone(&leader), Arc::clone(&standby)]).await;
    }
    let lagged = std::iter::from_fn(|| watcher.try_next().transpose()).any(|next| next.is_err());
    assert!(lagged, "a state was taken over, and those who watch it are told");
    for server in [standby, leader] {
        server.shutdown().await.unwrap();
    }
}
