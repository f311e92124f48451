//! Three members, of which one dies or hangs.

use std::time::{Duration, Instant};

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{Error, EtcdClient, EtcdConfig, Op, Txn, When};

/// Which member leads, counted from one.
async fn leader(client: &EtcdClient) -> usize {
    loop {
        let status = client.status().await;
        let leads = |health: &plimsoll_etcd::MemberHealth| health.leader == Some(health.member);
        let found = status.iter().position(|(_, health)| health.as_ref().is_ok_and(leads));
        if let Some(found) = found {
            return found + 1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes once, whatever it takes: the condition makes it safe to try again.
async fn write_once(client: &EtcdClient, key: &'static str) {
    let txn = Txn::when([When::absent(key)]).then([Op::put(key, "x")]).repeatable();
    let started = Instant::now();
    while let Err(error) = client.txn(txn.clone()).await {
        assert!(error.is_passing(), "{error}");
        assert!(started.elapsed() < Duration::from_secs(30), "{error}");
    }
    assert_eq!(client.get(key).await.unwrap().unwrap().version, 1);
}

#[tokio::test]
async fn a_member_that_dies_is_passed_over_even_when_it_led() {
    let Some(lab) = EtcdLab::start(3, &[]) else { return };
    let client = EtcdClient::new(lab.config()).unwrap();
    write_once(&client, "/before").await;
    let victim = leader(&client).await;
    lab.kill(victim);
    write_once(&client, "/during").await;
    lab.revive(victim);
    write_once(&client, "/after").await;
    for key in ["/before", "/during", "/after"] {
        assert!(client.get(key).await.unwrap().is_some(), "{key}");
    }
}

#[tokio::test]
async fn a_member_that_hangs_is_passed_over_within_the_limit() {
    let Some(lab) = EtcdLab::start(3, &[]) else { return };
    let client =
        EtcdClient::new(EtcdConfig { limit: Duration::from_secs(3), ..lab.config() }).unwrap();
    write_once(&client, "/before").await;
    let victim = leader(&client).await;
    lab.pause(victim);
    write_once(&client, "/during").await;
    lab.resume(victim);
    write_once(&client, "/after").await;
}

#[tokio::test]
async fn a_wrong_endpoint_beside_a_right_one_does_no_harm_and_alone_is_named() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    // A port that nobody listens at.
    let wrong = lab.endpoints[0].replace(":2379", ":9");
    let both =
        EtcdClient::new(EtcdConfig::open([wrong.clone(), lab.endpoints[0].clone()])).unwrap();
    both.put("/a", "x").await.unwrap();
    let started = Instant::now();
    let alone = EtcdClient::new(EtcdConfig::open([wrong.clone()])).unwrap();
    let error = alone.put("/a", "y").await.unwrap_err();
    assert!(error.to_string().contains(&wrong), "{error}");
    assert!(matches!(error, Error::Unreachable { sent: false, .. }), "{error:?}");
    assert!(!error.may_have_happened() && started.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn without_most_of_its_members_etcd_answers_no_one_and_the_deadline_holds() {
    let Some(lab) = EtcdLab::start(3, &[]) else { return };
    let limit = Duration::from_secs(2);
    let client = EtcdClient::new(EtcdConfig { limit, ..lab.config() }).unwrap();
    client.put("/a", "x").await.unwrap();
    lab.kill(1);
    lab.kill(2);
    let started = Instant::now();
    let error = client.put("/a", "y").await.unwrap_err();
    assert!(error.is_passing(), "{error}");
    assert!(error.may_have_happened(), "it may yet be passed on: {error:?}");
    assert!(started.elapsed() < limit * 2, "{:?}", started.elapsed());
}
