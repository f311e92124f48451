//! Who gets in, by which door, and how it closes.

use std::time::Duration;

use plimsoll_daemon::api::{ApiServer, BindError, token_file};
use plimsoll_model::testkit::spread;

use super::support::{apply, daemon, daemon_on_tcp, said, within};

#[tokio::test(flavor = "multi_thread")]
async fn tcp_needs_the_token_and_the_socket_does_not() {
    let daemon = daemon_on_tcp().await;
    let token = std::fs::read_to_string(token_file(&daemon.listen.data_dir)).unwrap();
    let welcome = daemon.by_tcp(Some(token.trim()));
    welcome.apply("shop", &apply([("web", spread(1))])).await.unwrap();
    assert_eq!(welcome.deployment("shop").await.unwrap().applied_by, "token");
    for (case, token) in [
        ("none", None),
        ("a wrong one", Some("0".repeat(64))),
        ("a part of it", Some(token[..32].to_owned())),
        ("an empty one", Some(String::new())),
    ] {
        let refused = said(daemon.by_tcp(token.as_deref()).status().await);
        assert!(refused.starts_with("unauthorized: ") && refused.contains("hint: "), "{case}");
    }
    daemon.client.status().await.expect("whoever may open the socket needs none");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_does_not_take_the_socket() {
    let mut daemon = daemon().await;
    let second = ApiServer::bind(daemon.cell.clone(), &daemon.listen).await.unwrap_err();
    assert!(matches!(second, BindError::InUse { .. }), "{second}");
    daemon.client.status().await.expect("the first one still answers");
    daemon.stop().await;
    assert!(!daemon.socket().exists(), "it leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_ends_cuts_its_streams_and_is_gone_at_once() {
    let mut daemon = daemon().await;
    daemon.apply("shop", [("web", spread(1))]).await;
    let mut changes = daemon.client.watch(None).await.unwrap();
    let began = std::time::Instant::now();
    daemon.stop().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(within(changes.next()).await.is_none(), "the stream ends in order");
    assert!(daemon.client.status().await.is_err());
}
