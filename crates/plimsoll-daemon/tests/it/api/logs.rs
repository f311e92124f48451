//! Logs and commands.

use plimsoll_api::client::{LogsOf, Stream};
use plimsoll_api::view::{Exec, LogLine, LogPiece, LogQuery, Restart};
use plimsoll_model::testkit::{cpus, node_id, spread};
use plimsoll_model::{Availability, Change, Writer};
use plimsoll_runtime::fake::Call;

use super::support::{Daemon, daemon, said, within};

async fn shop() -> Daemon {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(2)), ("db", spread(1))]).await;
    daemon.settle().await;
    for id in ["shop/web/1", "shop/web/2", "shop/db/1"] {
        daemon.start(id).await;
    }
    daemon
}

fn following() -> LogQuery {
    LogQuery { follow: true, ..LogQuery::default() }
}

async fn next(lines: &mut Stream<LogPiece>) -> Option<LogLine> {
    match within(lines.next()).await?.unwrap() {
        LogPiece::Line(line) => Some(line),
        LogPiece::Missing(missing) => panic!("nothing is missing here: {missing:?}"),
    }
}

async fn texts(mut lines: Stream<LogPiece>) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(line) = next(&mut lines).await {
        texts.push(format!("{} {}", line.replica, line.text));
    }
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_of_a_deployment_are_one_story_by_time() {
    let daemon = shop().await;
    daemon.print("shop/web/1", 10, "first");
    daemon.print("shop/web/2", 20, "second");
    daemon.print("shop/db/1", 15, "between");
    daemon.print("shop/web/1", 30, "last");
    let shop = LogsOf::Deployment("shop".to_owned());
    let all = daemon.client.logs(&shop, &LogQuery::default()).await.unwrap();
    assert_eq!(
        texts(all).await,
        ["shop-web-1 first", "shop-db-1 between", "shop-web-2 second", "shop-web-1 last"]
    );
    let web = LogQuery { service: Some("web".to_owned()), tail: Some(1), ..LogQuery::default() };
    let web = daemon.client.logs(&shop, &web).await.unwrap();
    assert_eq!(texts(web).await, ["shop-web-2 second", "shop-web-1 last"], "the last of each");
    let since = LogQuery {
        since: Some("1970-01-01T00:00:00.015Z".parse().unwrap()),
        ..LogQuery::default()
    };
    let one = LogsOf::Replica("shop-web-1".to_owned());
    assert_eq!(texts(daemon.client.logs(&one, &since).await.unwrap()).await, ["shop-web-1 last"]);
    let wrong = LogQuery { service: Some("wbe".to_owned()), ..LogQuery::default() };
    let refused = said(daemon.client.logs(&shop, &wrong).await.map(|_| ()));
    assert!(refused.ends_with("hint: did you mean web?"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_logs_go_on_with_what_comes_and_with_who_comes() {
    let daemon = shop().await;
    daemon.print("shop/web/1", 10, "before");
    daemon.print("shop/web/1", 10, "at the same moment");
    let of = LogsOf::Replica("shop-web-1".to_owned());
    let mut lines = daemon.client.logs(&of, &following()).await.unwrap();
    let mut next = async || next(&mut lines).await.unwrap().text;
    assert_eq!(next().await, "before");
    assert_eq!(next().await, "at the same moment");
    daemon.print("shop/web/1", 10, "late, at that moment still");
    daemon.print("shop/web/1", 20, "after");
    assert_eq!(next().await, "late, at that moment still", "and nothing twice");
    assert_eq!(next().await, "after");
    // It starts anew: another container, another generation.
    let web = Restart { service: Some("web".to_owned()), replica: None };
    daemon.client.restart("shop", &web).await.unwrap();
    daemon.settle().await;
    daemon.start("shop/web/1").await;
    daemon.print("shop/web/1", 30, "from the next container");
    assert_eq!(next().await, "from the next container");
    // It is deleted: then there is nothing left to follow.
    daemon.client.delete("shop", false).await.unwrap();
    daemon.settle().await;
    assert!(within(lines.next()).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reads_on_for_a_client_that_is_gone() {
    let daemon = shop().await;
    daemon.print("shop/web/1", 10, "hello");
    let of = LogsOf::Replica("shop-web-1".to_owned());
    let mut lines = daemon.client.logs(&of, &following()).await.unwrap();
    assert_eq!(next(&mut lines).await.unwrap().text, "hello");
    let reads = || {
        let calls = daemon.runtime.calls();
        calls.into_iter().filter(|call| matches!(call, Call::Logs(_))).count()
    };
    drop(lines);
    // A reader looks twice a second. Two looks' time without one, and it has ended.
    let ended = async {
        loop {
            let before = reads();
            tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
            if reads() == before {
                return;
            }
        }
    };
    within(ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_beside_a_replica_that_runs_here() {
    let daemon = shop().await;
    let client = &daemon.client;
    let ls = Exec { command: vec!["ls".to_owned()], timeout_seconds: Some(5) };
    let done = client.exec("shop-web-1", &ls).await.unwrap();
    assert_eq!((done.status, done.is_cut), (Some(0), false));
    let nothing = Exec { command: Vec::new(), timeout_seconds: None };
    assert!(said(client.exec("shop-web-1", &nothing).await).starts_with("no_command: "));
    let tag = daemon.tag("shop/web/1");
    daemon.runtime.vanish(&tag, true);
    assert!(said(client.exec("shop-web-1", &ls).await).starts_with("not_running: "));
    daemon.runtime.set_down(true);
    assert!(said(client.exec("shop-db-1", &ls).await).starts_with("runtime_unavailable: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_on_a_node_that_cannot_be_reached_is_said_to_be_there() {
    let daemon = daemon().await;
    let join = Change::PutNode { node: node_id("birch"), facts: cpus(4) };
    let availability = Availability::Cordoned;
    let cordon = Change::SetAvailability { node: node_id("ash"), availability };
    daemon.write(Writer::Operator, vec![join.free(), cordon.free()]).await;
    daemon.apply("shop", [("web", spread(1))]).await;
    daemon.settle().await;
    let of = LogsOf::Replica("shop-web-1".to_owned());
    let refused = said(daemon.client.logs(&of, &LogQuery::default()).await.map(|_| ()));
    assert_eq!(
        refused,
        "node_unreachable: birch cannot be reached: this node speaks to no other\n\
         hint: `plimsoll node list` shows which nodes are up"
    );
}
