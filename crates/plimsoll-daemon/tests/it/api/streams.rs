//! Watching and backups.

use plimsoll_api::view::AuditQuery;
use plimsoll_model::testkit::{cpus, node_id, spread};
use plimsoll_model::{Change, Writer};
use plimsoll_store::backup;
use plimsoll_store::keys::CellKey;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::support::{daemon, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_hears_of_every_change_and_resumes_where_it_was() {
    let daemon = daemon().await;
    let start = daemon.client.status().await.unwrap().cell.applied;
    let mut changes = daemon.client.watch(Some(start)).await.unwrap();
    let first = daemon.apply("shop", [("web", spread(1))]).await;
    let heard = within(changes.next()).await.unwrap().unwrap();
    assert_eq!((Some(heard.index), heard.deployments), (first.index, vec!["shop".to_owned()]));
    drop(changes);

    daemon.apply("blog", [("web", spread(1))]).await;
    daemon.pass().await;
    let mut changes = daemon.client.watch(Some(heard.index)).await.unwrap();
    let missed = within(changes.next()).await.unwrap().unwrap();
    assert_eq!(missed.deployments, ["blog"], "what happened meanwhile comes first");
    let placed = within(changes.next()).await.unwrap().unwrap();
    assert_eq!(placed.replicas, ["blog-web-1", "shop-web-1"]);
    assert_eq!(placed.nodes, ["ash"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_resumes_by_the_last_event_it_saw() {
    let daemon = daemon().await;
    let first = daemon.apply("shop", [("web", spread(1))]).await.index.unwrap();
    let second = daemon.apply("blog", [("web", spread(1))]).await.index.unwrap();
    let mut stream = UnixStream::connect(daemon.socket()).await.unwrap();
    let request = format!("GET /v1/watch HTTP/1.1\r\nhost: x\r\nlast-event-id: {first}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut event = Vec::new();
    while event.len() < 3 {
        let line = within(lines.next_line()).await.unwrap().unwrap();
        if ["event:", "id:", "data:"].iter().any(|field| line.starts_with(field)) {
            event.push(line);
        }
    }
    event.sort();
    assert!(event[0].starts_with("data: {\"index\":"), "{event:?}");
    assert_eq!(&event[1..], ["event: changed".to_owned(), format!("id: {second}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_of_long_ago_is_told_that_it_lags() {
    let daemon = daemon().await;
    // So many changes that what is kept of them no longer reaches back to the first.
    for round in 0..2 {
        let toggled = (0..140_000_u64).map(|turn| {
            let node = node_id(if turn % 2 == 0 { "birch" } else { "cedar" });
            let facts = cpus((turn / 2 + round) % 2 + 1);
            Change::PutNode { node, facts }.free()
        });
        daemon.write(Writer::Operator, toggled.collect()).await;
    }
    let now = daemon.client.status().await.unwrap().cell.applied;
    let mut changes = daemon.client.watch(Some(0)).await.unwrap();
    let heard = within(changes.next()).await.unwrap().unwrap();
    assert_eq!((heard.lagged, heard.index), (true, now), "{heard:?}");
    let next = daemon.apply("shop", [("web", spread(1))]).await.index;
    let heard = within(changes.next()).await.unwrap().unwrap();
    assert_eq!((heard.lagged, Some(heard.index)), (false, next), "and goes on from there");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_can_be_followed() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(1))]).await;
    let query = AuditQuery { kinds: Some("deployed".to_owned()), ..AuditQuery::default() };
    let mut events = daemon.client.follow_audit(&query).await.unwrap();
    let mut next = async || within(events.next()).await.unwrap().unwrap().text;
    assert_eq!(next().await, "shop r1 applied", "what was");
    daemon.pass().await;
    daemon.apply("shop", [("web", spread(2))]).await;
    assert_eq!(next().await, "shop r2 applied", "and what comes, of the kind that is asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_comes_whole_and_leaves_nothing_behind() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(1))]).await;
    let mut bytes = Vec::new();
    let size = daemon.client.backup(&mut bytes).await.unwrap();
    assert_eq!(size, bytes.len() as u64);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backup");
    std::fs::write(&file, bytes).unwrap();
    let label = backup::verify(&file).unwrap();
    assert_eq!(label.summary.cell_id.as_str(), "test");
    let shown = daemon.client.backup_key().await.unwrap();
    assert_eq!(shown.id, Some(label.key.to_string()));
    let key: CellKey = shown.key.unwrap().parse().unwrap();
    assert_eq!(backup::state(&file, &[key]).unwrap().1.deployments().len(), 1);
    let left = std::fs::read_dir(&daemon.listen.data_dir).unwrap();
    let mut left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!left.any(|name| name.starts_with("backup")));
}
