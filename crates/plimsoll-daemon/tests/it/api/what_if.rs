//! What would come of something, asked of a running node.

use std::collections::BTreeMap;

use plimsoll_api::view::{AuditQuery, ProblemCode, WhatIf};
use plimsoll_model::testkit::{cpus, node_id, spread};
use plimsoll_model::{Change, ServiceName, Writer};

use super::support::{Daemon, daemon};

fn drain(node: &str) -> WhatIf {
    WhatIf::Drain { nodes: vec![node.to_owned()] }
}

async fn three() -> Daemon {
    let daemon = daemon().await;
    let join = |name| Change::PutNode { node: node_id(name), facts: cpus(4) }.free();
    daemon.write(Writer::Operator, vec![join("ash"), join("birch"), join("cedar")]).await;
    daemon.apply("shop", [("web", spread(3).reserve(1_000, 64))]).await;
    daemon.settle().await;
    daemon
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_come_of_it_is_told_and_nothing_is_done() {
    let daemon = three().await;
    let before = daemon.client.status().await.unwrap();
    let audit = daemon.client.audit(&AuditQuery::default()).await.unwrap().len();
    let forecast = daemon.client.what_if(&drain("birch")).await.unwrap();
    assert_eq!((forecast.what_if.as_str(), forecast.is_whole), ("drain birch", true));
    assert_eq!(forecast.nodes.len(), 3);
    let birch = &forecast.nodes[1];
    assert_eq!((birch.node.as_str(), birch.change.as_deref()), ("birch", Some("drained")));
    let after = daemon.client.status().await.unwrap();
    assert_eq!(before.cell.applied, after.cell.applied, "nothing is written");
    assert_eq!(audit, daemon.client.audit(&AuditQuery::default()).await.unwrap().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_question_is_answered_and_bad_ones_are_refused() {
    let daemon = three().await;
    let scale = |name: &str, count| WhatIf::Scale { services: [(name.to_owned(), count)].into() };
    let add = WhatIf::Add { count: 2, milli_cpus: 8_000, memory: 32 << 30, gpus: 0, zone: None };
    for asked in [
        WhatIf::Lose { nodes: vec!["birch".to_owned()] },
        add,
        scale("web", 20),
        scale("shop/web", 1),
        WhatIf::Rebalance,
        WhatIf::Apply {
            deployment: "blog".to_owned(),
            services: BTreeMap::from([(ServiceName::new("web").unwrap(), spread(2))]),
            routes: Vec::new(),
        },
    ] {
        let forecast = daemon.client.what_if(&asked).await.unwrap();
        assert_eq!(forecast.what_if, asked.to_string());
    }
    let twenty = daemon.client.what_if(&scale("web", 20)).await.unwrap();
    let missing: u32 = twenty.plan.unplaced.iter().map(|it| it.missing).sum();
    assert_eq!(missing, 8, "twelve of a core each fit on three nodes of four");
    for (asked, code) in [
        (drain("elm"), ProblemCode::NoSuchNode),
        (scale("wbe", 1), ProblemCode::NoSuchService),
        (WhatIf::Drain { nodes: Vec::new() }, ProblemCode::BadSupposition),
    ] {
        let error = daemon.client.what_if(&asked).await.unwrap_err();
        assert_eq!(error.code(), Some(code), "{asked}");
    }
}
