//! Watches: nothing missed, nothing twice, and history that is gone is not passed over.

use std::time::Duration;

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{Error, EtcdClient, KeyChange, Keys, Op, Txn, Watching};

/// The next that changed anything, as keys with `-` before those that are gone.
async fn next(watching: &mut Watching) -> Vec<String> {
    loop {
        let next = tokio::time::timeout(Duration::from_secs(20), watching.next());
        let changes = next.await.expect("something changed").unwrap().changes;
        if !changes.is_empty() {
            let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
            let name = |change: &KeyChange| match change {
                KeyChange::Put(pair) => text(&pair.key),
                KeyChange::Gone { key, .. } => format!("-{}", text(key)),
            };
            return changes.iter().map(name).collect();
        }
    }
}

#[tokio::test]
async fn a_watch_sees_what_was_and_what_comes_and_one_transaction_as_one() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let client = EtcdClient::new(lab.config()).unwrap();
    let first = client.put("/a/1", "x").await.unwrap();
    client.put("/b/1", "not watched").await.unwrap();
    let mut watching = client.watch(Keys::prefix("/a/"), first).await.unwrap();
    assert_eq!(next(&mut watching).await, ["/a/1"]);
    let two = [Op::put("/a/2", "x"), Op::put("/a/3", "x")];
    client.txn(Txn::when([]).then(two)).await.unwrap();
    assert_eq!(next(&mut watching).await, ["/a/2", "/a/3"]);
    let resume = watching.resume();
    client.delete(Keys::one("/a/2")).await.unwrap();
    assert_eq!(next(&mut watching).await, ["-/a/2"]);

    let mut again = client.watch(Keys::prefix("/a/"), resume).await.unwrap();
    assert_eq!(next(&mut again).await, ["-/a/2"], "it goes on where the other one was");
    again.ask_progress();
    let word = tokio::time::timeout(Duration::from_secs(10), again.next()).await.unwrap();
    assert_eq!(word.unwrap().changes, [], "etcd says that it is there");
}

#[tokio::test]
async fn a_watch_into_history_that_is_gone_says_so() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let client = EtcdClient::new(lab.config()).unwrap();
    let first = client.put("/a/1", "x").await.unwrap();
    let last = client.put("/a/1", "y").await.unwrap();
    client.compact(last).await.unwrap();
    let mut failed = match client.watch(Keys::prefix("/a/"), first).await {
        Ok(watching) => watching,
        Err(error) => return assert!(matches!(error, Error::Compacted { .. }), "{error}"),
    };
    let error = failed.next().await.unwrap_err();
    assert!(matches!(error, Error::Compacted { .. }), "{error}");
}
