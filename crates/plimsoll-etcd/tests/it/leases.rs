//! Leases: what hangs on them, and how long.

use std::time::{Duration, Instant};

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{Error, EtcdClient, LeaseId, Op, Txn};

async fn leased(client: &EtcdClient, ttl: Duration) -> LeaseId {
    let lease = client.grant(ttl).await.unwrap();
    assert!(lease.ttl >= ttl, "no shorter than asked for");
    let put = Txn::when([]).then([Op::put_leased("/leased", "x", lease.id)]);
    client.txn(put).await.unwrap();
    lease.id
}

#[tokio::test]
async fn a_key_lives_as_long_as_its_lease_is_kept_alive() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let client = EtcdClient::new(lab.config()).unwrap();
    let ttl = Duration::from_secs(2);
    let lease = leased(&client, ttl).await;
    let mut keeper = client.keep_alive(lease);
    let started = Instant::now();
    while started.elapsed() < ttl * 2 {
        assert_eq!(keeper.renew().await.unwrap(), ttl);
        tokio::time::sleep(ttl / 8).await;
    }
    assert!(client.get("/leased").await.unwrap().is_some());
    assert!(client.time_to_live(lease).await.unwrap().is_some());
    while client.get("/leased").await.unwrap().is_some() {
        tokio::time::sleep(ttl / 20).await;
    }
    assert_eq!(client.time_to_live(lease).await.unwrap(), None);
    let gone = keeper.renew().await.unwrap_err();
    assert!(matches!(gone, Error::NoSuchLease { .. }), "{gone}");
}

#[tokio::test]
async fn a_lease_that_is_revoked_takes_its_keys_along_at_once() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let client = EtcdClient::new(lab.config()).unwrap();
    let lease = leased(&client, Duration::from_mins(1)).await;
    let mut keeper = client.keep_alive(lease);
    keeper.renew().await.unwrap();
    client.revoke(lease).await.unwrap();
    assert_eq!(client.get("/leased").await.unwrap(), None);
    assert!(matches!(keeper.renew().await, Err(Error::NoSuchLease { .. })));
    assert!(matches!(client.revoke(lease).await, Err(Error::NoSuchLease { .. })));
}
