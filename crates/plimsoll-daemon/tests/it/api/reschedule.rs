//! The rescheduler is paused and resumed by admins, and says who did it, what it would do and what its moves were worth.

use plimsoll_api::view::{ProblemCode, RescheduleAction, SetRescheduling};
use plimsoll_kernel::Leader;
use plimsoll_model::testkit::spread;

use super::support::{daemon, problem};

fn asked(action: RescheduleAction, target_percent: Option<u32>) -> SetRescheduling {
    SetRescheduling { action, target_percent, clear_target: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_paused_and_resumed_and_says_who_did_it() {
    let daemon = daemon().await;
    let client = &daemon.client;
    let before = client.rescheduling().await.unwrap();
    assert!(!before.is_paused && before.set_by.is_none() && before.target_percent.is_none());
    let loops: Vec<(&str, u32)> =
        before.loops.iter().map(|it| (it.name.as_str(), it.slowed)).collect();
    assert_eq!(loops, [("rebalancer", 1), ("rescheduler", 1)]);

    let paused = client.set_rescheduling(&asked(RescheduleAction::Pause, Some(50))).await.unwrap();
    assert_eq!((paused.is_paused, paused.target_percent), (true, Some(50)));
    let (by, at) = (paused.set_by.clone().unwrap(), paused.set_at.unwrap());
    assert!(by.starts_with("unix"), "{by}");

    let again = client.set_rescheduling(&asked(RescheduleAction::Pause, None)).await.unwrap();
    assert_eq!((again.target_percent, again.set_at), (Some(50), Some(at)), "nothing was changed");

    let refused = client.set_rescheduling(&asked(RescheduleAction::Resume, Some(101))).await;
    assert_eq!(problem(refused).code, ProblemCode::BadTarget);
    assert!(client.rescheduling().await.unwrap().is_paused, "what is refused changes nothing");

    let clear = SetRescheduling { clear_target: true, ..asked(RescheduleAction::Resume, None) };
    let resumed = client.set_rescheduling(&clear).await.unwrap();
    assert_eq!((resumed.is_paused, resumed.target_percent), (false, None));

    let audit = client.audit(&plimsoll_api::view::AuditQuery::default()).await.unwrap();
    let said: Vec<&str> = audit
        .iter()
        .filter(|event| event.what == "reschedule_set")
        .map(|event| event.text.as_str())
        .collect();
    assert_eq!(said, ["the rescheduler is paused, target 0.50", "the rescheduler is running"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_says_why_the_rescheduler_leaves_it_and_a_node_how_far_it_is_filled() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(1))]).await;
    daemon.settle().await;
    let at = plimsoll_daemon::clock::now();
    *daemon.cell.leader.lock() = Some(Leader::new(daemon.cell.policy, at));
    let explained = daemon.client.explain("shop-web-1").await.unwrap();
    let verdict = explained.rescheduling.expect("this node leads");
    assert_eq!(verdict.stays.as_deref(), Some("cooldown_replica"), "{}", verdict.text);
    assert!(explained.reviews.is_empty());
    let nodes = daemon.client.nodes().await.unwrap();
    let fill = nodes[0].fill.as_ref().expect("a list has it");
    assert_eq!((fill.has, fill.fair_share, fill.stage.as_str()), (1, 1, "filled"));
    let account = daemon.client.explain_node(&nodes[0].name).await.unwrap();
    assert_eq!(account.fill.as_ref(), Some(fill));
}
