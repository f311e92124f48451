//! A better layout, searched for and carried out in a running node.

use plimsoll_api::view::{ApplyOptimize, AuditQuery, Optimize, OptimizeMove, ProblemCode};
use plimsoll_model::testkit::{binpack, cpus, node_id};
use plimsoll_model::{Change, Writer};

use super::support::{Daemon, daemon};

async fn two() -> Daemon {
    let daemon = daemon().await;
    let join = |name| Change::PutNode { node: node_id(name), facts: cpus(4) }.free();
    daemon.write(Writer::Operator, vec![join("ash"), join("birch")]).await;
    daemon.apply("shop", [("web", binpack(2).reserve(1_000, 64))]).await;
    daemon.settle().await;
    daemon
}

fn asked(moves: u32, time_ms: u64) -> Optimize {
    Optimize { moves, time_ms, seed: 0 }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_answers_in_its_time_and_writes_nothing() {
    let daemon = two().await;
    let before = daemon.client.status().await.unwrap();
    let plan = daemon.client.optimize(&asked(20, 200)).await.unwrap();
    // What was just placed rests.
    assert_eq!((plan.moves, plan.gain, plan.movable), (vec![], 0, 0));
    let after = daemon.client.status().await.unwrap();
    assert_eq!(before.cell.applied, after.cell.applied, "nothing is written");
    for bad in [asked(0, 200), asked(1_001, 200), asked(20, 0), asked(20, 60_001)] {
        let refused = daemon.client.optimize(&bad).await.unwrap_err();
        assert_eq!(refused.code(), Some(ProblemCode::BadOptimize));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_does_not_hold_is_refused_whole() {
    let daemon = two().await;
    let one = |replica: &str, from: &str, to: &str| OptimizeMove {
        replica: replica.to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        why: "frees_node".to_owned(),
        makes_room_for: None,
        gain: 1,
    };
    for (moves, code) in [
        (vec![one("shop-web-9", "ash", "birch")], ProblemCode::NoSuchReplica),
        (vec![one("shop-web-1", "ash", "elm")], ProblemCode::NoSuchNode),
        (vec![one("shop-web-1", "ash", "birch")], ProblemCode::PlanOutdated),
    ] {
        let refused = daemon.client.apply_optimize(&ApplyOptimize { moves }).await.unwrap_err();
        assert_eq!(refused.code(), Some(code));
    }
    let nothing = daemon.client.apply_optimize(&ApplyOptimize { moves: vec![] }).await.unwrap();
    assert_eq!((nothing.moves, nothing.gain), (0, 0));
    let audit = daemon.client.audit(&AuditQuery::default()).await.unwrap();
    assert!(audit.iter().all(|event| event.what != "optimize"), "nothing was begun");
}
