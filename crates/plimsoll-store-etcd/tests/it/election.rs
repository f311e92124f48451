//! Who leads: one at a time, and soon another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{Keys, LeaseId};
use plimsoll_store::{Engine, Error, ServerRole};
use plimsoll_store_etcd::Etcd;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_hands_over_within_half_a_second() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let mut servers = vec![server(&lab, 1).await, server(&lab, 2).await, server(&lab, 3).await];
    let mut spans = Vec::new();
    for nth in 0..4 {
        let old = leader_of(&servers).await;
        servers[old].propose(join(&format!("n{nth}"))).await.unwrap();
        let old_term = term(&servers[old]);
        let stopping = servers.remove(old);
        let started = Instant::now();
        stopping.shutdown().await.unwrap();
        let new = leader_of(&servers).await;
        servers[new].propose(join(&format!("m{nth}"))).await.unwrap();
        spans.push(started.elapsed());
        assert!(term(&servers[new]) > old_term);
        assert!(knows(&servers[new], &format!("n{nth}")));
        servers.push(server(&lab, 10 + nth).await);
    }
    spans.sort();
    eprintln!("handed over and written within {spans:?}");
    assert!(spans[1] < Duration::from_millis(500), "{spans:?}");
    agree(&servers).await;
    history(&client(&lab)).await;
    for server in servers {
        server.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hands_over_stays_and_follows_but_does_not_lead_again() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let servers = [server(&lab, 1).await, server(&lab, 2).await];
    // Who knows of nobody else has nobody to hand over to.
    eventually("it leads and knows the other", || {
        leads(&servers[0]) && servers[0].members().len() == 2
    })
    .await;
    let started = Instant::now();
    servers[0].hand_over().await;
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    let next = servers[0].leadership().borrow().leader;
    assert_eq!(next, Some(servers[1].id()), "it returns once the other has the key");
    eventually("the other leads", || leads(&servers[1])).await;
    assert_eq!(servers[0].log_position().role, ServerRole::Standby);
    servers[1].propose(join("ash")).await.unwrap();
    eventually("it follows", || knows(&servers[0], "ash")).await;
    assert_eq!(servers[0].leadership_info().elections, 2);
    servers[1].shutdown().await.unwrap();
    eventually("the key is gone", || servers[0].leadership().borrow().leader.is_none()).await;
    tokio::time::sleep(TTL / 4).await;
    assert_eq!(key(&client(&lab)).await, None, "it has left");
    servers[0].hand_over().await;
    servers[0].shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_nobody_holds_any_more_gives_up_its_place() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let (leader, standby) = (server(&lab, 1).await, server(&lab, 2).await);
    let client = client(&lab);
    let members = || async {
        let keys = Keys::prefix("/plimsoll/test/scheduler/members/");
        client.range(plimsoll_etcd::Range::of(keys)).await.unwrap().pairs.len()
    };
    assert_eq!(members().await, 2);
    drop(standby);
    while members().await > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(leader);
    while key(&client).await.is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(members().await, 0);
}

#[test]
fn a_leader_that_crashes_is_followed_within_its_lease_and_a_second() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap()
    };
    // A runtime that is dropped in the midst of its work is a crash: nothing is said to anybody.
    let (doomed, safe) = (runtime(), runtime());
    let leader = doomed.block_on(server(&lab, 1));
    let standby = safe.block_on(server(&lab, 2));
    doomed.block_on(leader.propose(join("before"))).unwrap();
    let started = Instant::now();
    doomed.shutdown_background();
    safe.block_on(async {
        eventually("the standby leads", || leads(&standby)).await;
        let span = started.elapsed();
        eprintln!("followed after {span:?}");
        assert!(span < TTL + Duration::from_secs(1), "{span:?}");
        assert!(knows(&standby, "before"));
        standby.propose(join("after")).await.unwrap();
        standby.shutdown().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_campaign_at_one_moment_one_leads_a_hundred_times() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let servers = [server(&lab, 1).await, server(&lab, 2).await, server(&lab, 3).await];
    let client = client(&lab);
    let mut last = 0;
    for round in 0..100 {
        let leader = leader_of(&servers).await;
        let term = term(&servers[leader]);
        assert!(term > last, "round {round}: a new term");
        last = term;
        servers[leader].propose(join(&format!("n{round}"))).await.unwrap();
        let (_, created) = key(&client).await.expect("it holds the key");
        // All are told at once that the key is gone.
        let deleted = client.delete(Keys::one(LEADER)).await.unwrap();
        assert_eq!(deleted, 1);
        eventually("the leader knows", || {
            !leads(&servers[leader]) || self::term(&servers[leader]) > created.cast_unsigned()
        })
        .await;
    }
    leader_of(&servers).await;
    agree(&servers).await;
    let terms: Vec<u64> = history(&client).await.iter().map(|(_, term)| *term).collect();
    assert_eq!(terms.len(), 100);
    assert!(terms.is_sorted_by(|a, b| a < b), "each by a leader of its own");
    for server in servers {
        server.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_revoked_behind_the_leaders_back_ends_its_term_and_nothing_of_it_lands_after() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let servers = [server(&lab, 1).await, server(&lab, 2).await];
    let client = client(&lab);
    for round in 0..5 {
        let old = leader_of(&servers).await;
        let old_term = term(&servers[old]);
        let writer = keep_writing(Arc::clone(&servers[old]), format!("w{round}"));
        eventually("it writes", || *servers[old].machine().applied().borrow() > 10 * round).await;
        let (lease, _) = key(&client).await.unwrap();
        client.revoke(LeaseId(lease)).await.unwrap();
        let (acknowledged, ended) = writer.await.unwrap();
        assert!(matches!(ended, Error::NoLeader | Error::NotLeader { .. }), "{ended}");
        let new = leader_of(&servers).await;
        assert!(term(&servers[new]) > old_term);
        for name in acknowledged {
            assert!(knows(&servers[new], &name), "{name} was acknowledged");
        }
        let marker = servers[new].propose(join(&format!("after{round}"))).await.unwrap();
        let late = history(&client).await;
        let late = late.iter().filter(|(index, term)| *index >= marker.index && *term == old_term);
        assert_eq!(late.count(), 0);
    }
    agree(&servers).await;
    for server in servers {
        server.shutdown().await.unwrap();
    }
}

/// Writes until it is refused; returns what was acknowledged, and why it ended.
pub(crate) fn keep_writing(
    engine: Arc<Etcd>,
    prefix: String,
) -> tokio::task::JoinHandle<(Vec<String>, Error)> {
    tokio::spawn(async move {
        let mut acknowledged = Vec::new();
        loop {
            let name = format!("{prefix}-{}", acknowledged.len());
            match engine.propose(join(&name)).await {
                Ok(_) => acknowledged.push(name),
                Err(error) => return (acknowledged, error),
            }
        }
    })
}
