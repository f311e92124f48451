//! Keys, ranges and transactions.

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{Error, EtcdClient, Keys, Op, Range, Txn, When};

fn single() -> Option<(EtcdLab, EtcdClient)> {
    let lab = EtcdLab::start(1, &[])?;
    let client = EtcdClient::new(lab.config()).unwrap();
    Some((lab, client))
}

#[tokio::test]
async fn what_is_written_is_read_in_pages_and_as_it_was() {
    let Some((_lab, client)) = single() else { return };
    assert_eq!(client.get("/a/1").await.unwrap(), None);
    let mut revisions = Vec::new();
    for nth in 1..=5 {
        revisions.push(client.put(format!("/a/{nth}"), format!("value {nth}")).await.unwrap());
    }
    client.put("/b", "other").await.unwrap();
    let page = client.range(Range::of(Keys::prefix("/a/")).limit(3)).await.unwrap();
    assert!(page.more && page.pairs.len() == 3);
    let rest = client.range(Range::of(Keys::between("/a/4", "/b"))).await.unwrap();
    let values: Vec<_> = rest.pairs.iter().map(|pair| &pair.value[..]).collect();
    assert_eq!(values, [b"value 4", b"value 5"]);
    let before = client.range(Range::of(Keys::prefix("/a/")).at(revisions[1])).await.unwrap();
    assert_eq!(before.pairs.len(), 2, "as it was after the second write");
    assert_eq!(client.delete(Keys::prefix("/a/")).await.unwrap(), 5);
    client.compact(revisions[3]).await.unwrap();
    let forgotten = client.range(Range::of(Keys::prefix("/a/")).at(revisions[1])).await;
    assert!(matches!(forgotten, Err(Error::Compacted { .. })), "{forgotten:?}");
}

#[tokio::test]
async fn a_transaction_does_what_it_is_for_only_where_its_conditions_hold() {
    let Some((_lab, client)) = single() else { return };
    let create = |value: &'static str| {
        Txn::when([When::absent("/leader")])
            .then([Op::put("/leader", value)])
            .otherwise([Op::get(Range::of(Keys::one("/leader")))])
    };
    let won = client.txn(create("ash")).await.unwrap();
    assert!(won.held);
    let lost = client.txn(create("birch")).await.unwrap();
    assert!(!lost.held);
    let found = lost.reads().next().unwrap().pairs.pop().unwrap();
    assert_eq!((&found.value[..], found.create_revision), (&b"ash"[..], won.revision));

    let append = |created| {
        Txn::when([When::created_at("/leader", created), When::absent("/log/1")])
            .then([Op::put("/log/1", "entry")])
    };
    assert!(!client.txn(append(won.revision + 1)).await.unwrap().held, "another's revision");
    assert!(client.txn(append(won.revision)).await.unwrap().held);
    assert!(!client.txn(append(won.revision)).await.unwrap().held, "it is there already");
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_nothing_of_it_is_written() {
    let Some((_lab, client)) = single() else { return };
    let error = client.put("/large", vec![7; 2 << 20]).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let many = (0..129).map(|nth| Op::put(format!("/many/{nth}"), "x"));
    let error = client.txn(Txn::when([]).then(many)).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert!(!error.may_have_happened());
    assert_eq!(client.range(Range::of(Keys::prefix("/"))).await.unwrap().pairs, []);
}

#[tokio::test]
async fn an_etcd_out_of_space_says_so_until_its_alarm_is_disarmed() {
    let Some(lab) = EtcdLab::start(1, &["--quota-backend-bytes", "16777216"]) else { return };
    let client = EtcdClient::new(lab.config()).unwrap();
    let error = loop {
        if let Err(error) = client.put("/filler", vec![7; 1 << 20]).await {
            break error;
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(!error.may_have_happened());
    let alarms = client.alarms().await.unwrap();
    assert_eq!(alarms.len(), 1);
    assert!(client.get("/filler").await.unwrap().is_some(), "reading goes on");
    let now = client.range(Range::of(Keys::one("/filler"))).await.unwrap().revision;
    client.compact(now).await.unwrap();
    lab.ctl(&["defrag"]);
    client.disarm(alarms[0].0, alarms[0].1).await.unwrap();
    client.put("/filler", "little").await.unwrap();
}
