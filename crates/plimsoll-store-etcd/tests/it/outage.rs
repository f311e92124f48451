//! Etcd itself in trouble: a member dead, all of them silent, no space left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_etcd::Alarm;
use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_store::{Engine, Error};
use plimsoll_store_etcd::Etcd;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_etcd_stops_before_its_lease_can_end_and_returns_by_itself() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let servers = [server(&lab, 1).await, server(&lab, 2).await];
    let old = leader_of(&servers).await;
    servers[old].propose(join("before")).await.unwrap();
    let old_term = term(&servers[old]);
    let started = Instant::now();
    lab.pause(1);
    // Sent into the silence: nobody knows what becomes of it.
    let engine = Arc::clone(&servers[old]);
    let lost = tokio::spawn(async move { engine.propose(join("lost")).await });
    eventually("it has stepped down", || !leads(&servers[old])).await;
    assert!(started.elapsed() < TTL, "before the lease can have ended: {:?}", started.elapsed());
    assert_eq!(lost.await.unwrap(), Err(Error::Unsettled));
    let refused = servers[old].propose(join("refused")).await;
    assert_eq!(refused, Err(Error::NoLeader), "and that one certainly was not written");
    eventually("nobody pretends to know who leads", || {
        servers.iter().all(|server| server.leadership().borrow().leader.is_none())
    })
    .await;
    assert!(servers.iter().all(|server| knows(server, "before")), "what was known is still there");
    // Longer than any lease of theirs.
    tokio::time::sleep(TTL * 3).await;
    assert!(servers[old].leadership_info().hindrance.is_some());
    lab.resume(1);
    let new = leader_of(&servers).await;
    assert!(term(&servers[new]) > old_term);
    servers[new].propose(join("after")).await.unwrap();
    agree(&servers).await;
    assert!(!knows(&servers[new], "refused"));
    history(&client(&lab)).await;
    for server in servers {
        server.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_etcds_own_leader_loses_no_acknowledged_write() {
    let Some(lab) = EtcdLab::start(3, &[]) else { return };
    // Longer than etcd takes to elect: the cell keeps its leader.
    let config = |id| plimsoll_store_etcd::EtcdEngineConfig {
        ttl: Duration::from_secs(10),
        ..config(lab.config(), id)
    };
    let servers = [Etcd::start(config(1)).await.unwrap(), Etcd::start(config(2)).await.unwrap()];
    let leader = leader_of(&servers).await;
    let client = client(&lab);
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let status = client.status().await;
        let leads = |health: &plimsoll_etcd::MemberHealth| health.leader == Some(health.member);
        let victim = status.iter().position(|(_, health)| health.as_ref().is_ok_and(leads));
        let victim = victim.unwrap() + 1;
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let engine = Arc::clone(&servers[leader]);
                tokio::spawn(async move {
                    let mut names = Vec::new();
                    for nth in 0..25 {
                        let name = format!("r{round}-{writer}-{nth}");
                        engine.propose(join(&name)).await.unwrap();
                        names.push(name);
                    }
                    names
                })
            })
            .collect();
        lab.kill(victim);
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        lab.revive(victim);
    }
    agree(&servers).await;
    for name in &acknowledged {
        assert!(servers.iter().all(|server| knows(server, name)), "{name}");
    }
    let entries = history(&client).await;
    assert_eq!(entries.len(), acknowledged.len(), "each once");
    for server in servers {
        server.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_whose_member_hangs_turns_to_another_one() {
    let Some(lab) = EtcdLab::start(3, &[]) else { return };
    let rest = plimsoll_etcd::EtcdConfig::open(lab.endpoints[1..].to_vec());
    let leader = Etcd::start(plimsoll_store_etcd::EtcdEngineConfig {
        ttl: Duration::from_secs(10),
        ..config(rest, 1)
    });
    let leader = leader.await.unwrap();
    let standby = server(&lab, 2).await;
    leader.propose(join("before")).await.unwrap();
    eventually("it follows", || knows(&standby, "before")).await;
    // The first member is the one it watches. No connection breaks.
    lab.pause(1);
    let started = Instant::now();
    leader.propose(join("during")).await.unwrap();
    eventually("it follows again", || knows(&standby, "during")).await;
    let span = started.elapsed();
    assert!(span < TTL * 5, "sooner than a dead connection is noticed: {span:?}");
    lab.resume(1);
    for server in [standby, leader] {
        server.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_out_of_space_refuses_in_words_and_takes_up_again() {
    let Some(lab) = EtcdLab::start(1, &["--quota-backend-bytes", "16777216"]) else { return };
    let engine = server(&lab, 1).await;
    engine.propose(join("before")).await.unwrap();
    let client = client(&lab);
    assert_eq!(engine.impairment(), None);
    while client.put("/filler", vec![7; 1 << 20]).await.is_ok() {}
    // Before anything is written.
    let is_full = || matches!(engine.impairment(), Some(Error::StoreFull(_)));
    eventually("it knows that there is no space", is_full).await;
    assert!(leads(&engine) && engine.trouble().is_none());
    let error = engine.propose(join("refused")).await.unwrap_err();
    assert!(matches!(&error, Error::NotTaken(why) if why.contains("out of space")), "{error}");
    assert!(!error.may_have_committed());
    let refused = Etcd::start(config(lab.config(), 2)).await.unwrap_err().to_string();
    assert!(refused.contains("out of space"), "{refused}");

    // Its lease outlives the trouble, and so does its term.
    let before = term(&engine);
    tokio::time::sleep(TTL * 2).await;
    assert!(leads(&engine));
    let now = client.put("/filler", "x").await.err().map(|_| ());
    assert_eq!(now, Some(()), "still full");
    let revision = client.get("/filler").await.unwrap().unwrap().mod_revision;
    client.compact(revision).await.unwrap();
    lab.ctl(&["defrag"]);
    let alarms = client.alarms().await.unwrap();
    assert_eq!(alarms[0].1, Alarm::NoSpace);
    client.disarm(alarms[0].0, Alarm::NoSpace).await.unwrap();
    engine.propose(join("after")).await.unwrap();
    assert_eq!(engine.impairment(), None);
    assert_eq!(term(&engine), before);
    assert!(knows(&engine, "before") && !knows(&engine, "refused"));
    engine.shutdown().await.unwrap();
}
