//! Reads: what people and the command line are told.

use expect_test::expect;
use plimsoll_api::view::{
    AuditQuery, Exec, Health, NewOperator, ProblemCode, Progress, Replica, Restart, Rollback, Scale,
};
use plimsoll_model::testkit::{cpus, global, node_id, spread};
use plimsoll_model::{Change, ObservedCode, ObservedState, Writer};

use super::support::{daemon, daemon_on_tcp, daemon_without_a_leader, said};

/// Without what differs from run to run.
fn timeless(mut status: serde_json::Value) -> serde_json::Value {
    let assigned = "/deployments/0/services/0/replicas/0/now/since";
    let applied = ["/deployments/0/applied_at", "/deployments/0/applied_by"];
    for path in ["/nodes/0/since", assigned].iter().chain(&applied) {
        *status.pointer_mut(path).unwrap() = "…".into();
    }
    status
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one answer, shown whole")]
async fn a_status_shows_the_cell_its_nodes_and_its_deployments() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(1).reserve(500, 64).host_port(80))]).await;
    daemon.settle().await;
    let status = timeless(serde_json::to_value(daemon.client.status().await.unwrap()).unwrap());
    expect![[r#"
        {
          "cell": {
            "applied": 6,
            "heard_ms": 0,
            "lag": 0,
            "leader": "ash",
            "name": "test",
            "node": "ash",
            "term": 1,
            "version": "0.1.0"
          },
          "deployments": [
            {
              "applied_at": "…",
              "applied_by": "…",
              "is_deleted": false,
              "name": "shop",
              "progress": {
                "is": "steady"
              },
              "revision": 1,
              "services": [
                {
                  "current": 1,
                  "image": "app:1",
                  "mode": "spread",
                  "name": "web",
                  "ports": [
                    "host 80→80/tcp"
                  ],
                  "replicas": [
                    {
                      "cause": null,
                      "id": "shop-web-1",
                      "leaving": [],
                      "next": null,
                      "now": {
                        "cpu_millis": null,
                        "failures": 0,
                        "generation": 1,
                        "image": "app:1",
                        "memory_bytes": null,
                        "next_try": null,
                        "node": "ash",
                        "reason": null,
                        "revision": 1,
                        "since": "…",
                        "spec": "fa7cb483ee7a",
                        "state": "running"
                      },
                      "waiting": null
                    }
                  ],
                  "rollout": null,
                  "running": 1,
                  "spec": "fa7cb483ee7a",
                  "unplaced": null,
                  "wanted": 1
                }
              ]
            }
          ],
          "nodes": [
            {
              "arch": "x86_64",
              "availability": "active",
              "capacity": {
                "cpu_millis": 4000,
                "gpus": 0,
                "memory_bytes": 17179869184
              },
              "drain": null,
              "fill": {
                "fair_share": 1,
                "has": 1,
                "losses": 0,
                "next_at": null,
                "stage": "filled",
                "text": "ash has 1 replica, its fair share is 1: not filled any further"
              },
              "labels": {},
              "last_heard": null,
              "name": "ash",
              "os": "linux",
              "pressure": null,
              "replicas": 1,
              "reserved": {
                "cpu_millis": 500,
                "gpus": 0,
                "memory_bytes": 67108864
              },
              "role": "leader",
              "runtime": null,
              "since": "…",
              "status": "ready",
              "version": null,
              "zone": null
            }
          ]
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&status).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_says_whether_it_is_steady_working_or_stuck() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(2))]).await;
    let progress = async || daemon.client.deployment("shop").await.unwrap().progress;
    assert!(matches!(progress().await, Progress::Working { .. }), "nothing is placed yet");
    daemon.settle().await;
    assert_eq!(progress().await, Progress::Steady);
    let last = Box::new(ObservedCode::Exited { status: Some(1) });
    let code = ObservedCode::RestartExhausted { tries: 3, last };
    daemon.report("shop/web/2", ObservedState::Failed, Some(code)).await;
    let Progress::Stuck { why } = progress().await else { panic!("only an apply helps") };
    let why: Vec<_> = why.iter().map(|r| format!("{} {}: {}", r.subject, r.word, r.text)).collect();
    assert_eq!(
        why,
        [
            "shop-web-2 restart_exhausted: it failed 3 times in a row; the last time it exited with status 1"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_answered_with_what_was_meant() {
    let daemon = daemon().await;
    let client = &daemon.client;
    expect![[r"
        no_such_deployment: there is no deployment shpo
        hint: there is no deployment here at all"]]
    .assert_eq(&said(client.deployment("shpo").await));
    daemon.apply("shop", [("web", spread(1))]).await;
    daemon.settle().await;
    expect![[r"
        no_such_deployment: there is no deployment shpo
        hint: did you mean shop?"]]
    .assert_eq(&said(client.deployment("shpo").await));
    expect![[r"
        no_such_replica: there is no replica shop-wbe-1
        hint: did you mean shop-web-1?"]]
    .assert_eq(&said(client.replica("shop-wbe-1").await));
    expect![[r"
        no_such_deployment: there is no deployment ../etc
        hint: a deployment is shop"]]
    .assert_eq(&said(client.deployment("../etc").await));
    expect![[r"
        no_such_revision: revision 9 of shop is not kept
        hint: kept are 1"]]
    .assert_eq(&said(client.revision("shop", 9).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_names_every_node_with_its_filter_or_score() {
    let daemon = daemon().await;
    let join = Change::PutNode { node: node_id("birch"), facts: cpus(1) };
    daemon.write(Writer::Operator, vec![join.free()]).await;
    daemon.apply("shop", [("web", spread(1).reserve(2_000, 64)), ("agent", global())]).await;
    daemon.settle().await;
    let explained = daemon.client.explain("shop-web-1").await.unwrap();
    assert_eq!(explained.node.as_deref(), Some("ash"));
    assert_eq!(explained.why, "no node suits it better: ash scores 10000");
    let said: Vec<String> = explained
        .nodes
        .iter()
        .map(|verdict| {
            let filter = verdict.filter.as_ref().map(|f| format!("{}: {}", f.word, f.text));
            format!("{} {:?} {}", verdict.node, verdict.score, filter.unwrap_or_default())
        })
        .collect();
    assert_eq!(
        said,
        ["ash Some(10000) ", "birch None insufficient_capacity: asks for 2 cpu, 1 free"]
    );
    let global = daemon.client.explain("shop-agent-birch").await.unwrap();
    assert_eq!(global.why, "birch is one of the nodes that global runs it on");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_is_asked_for_by_time_kind_and_number() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(3))]).await;
    daemon.settle().await;
    let texts = async |query: AuditQuery| -> Vec<String> {
        let events = daemon.client.audit(&query).await.unwrap();
        events.into_iter().map(|event| format!("{} {}", event.writer, event.text)).collect()
    };
    let placed = AuditQuery { kinds: Some("placed,retired".to_owned()), ..AuditQuery::default() };
    assert_eq!(
        texts(placed.clone()).await,
        ["shop-web-1", "shop-web-2", "shop-web-3"]
            .map(|id| format!("scheduler {id} placed on ash"))
    );
    let last = AuditQuery { limit: Some(1), ..placed };
    assert_eq!(texts(last).await, ["scheduler shop-web-3 placed on ash"]);
    let future = AuditQuery {
        since: Some("2999-01-01T00:00:00Z".parse().unwrap()),
        ..AuditQuery::default()
    };
    assert_eq!(texts(future).await, Vec::<String>::new());
    let all = texts(AuditQuery::default()).await;
    assert!(all.contains(&"operator shop r1 applied".to_owned()), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_of_event_that_there_is_not_is_refused_with_those_there_are() {
    let daemon = daemon().await;
    let query = AuditQuery { kinds: Some("placed,palced".to_owned()), ..AuditQuery::default() };
    for refused in [
        said(daemon.client.audit(&query).await),
        said(daemon.client.follow_audit(&query).await.map(|_| ())),
    ] {
        assert!(refused.starts_with("no_such_kind: there is no kind of event called \"palced\""));
        assert!(refused.contains("placed, move_started"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_is_in_the_audit_with_who_asked_and_when() {
    let daemon = daemon().await;
    let client = &daemon.client;
    daemon.apply("shop", [("web", spread(1).volume("data"))]).await;
    daemon.settle().await;
    daemon.start("shop/web/1").await;
    let scale = Scale { services: [("web".to_owned(), 2)].into() };
    client.scale("shop", &scale).await.unwrap();
    client.rollback("shop", &Rollback::default()).await.unwrap();
    client.restart("shop", &Restart::default()).await.unwrap();
    let exec = Exec { command: vec!["true".to_owned()], timeout_seconds: None };
    client.exec("shop-web-1", &exec).await.unwrap();
    let ann =
        NewOperator { name: "ann".to_owned(), role: "read".to_owned(), ..NewOperator::default() };
    client.add_operator(&ann).await.unwrap();
    client.revoke_operator("ann").await.unwrap();
    client.backup(&mut tokio::io::sink()).await.unwrap();
    client.delete("shop", true).await.unwrap();
    let events = client.audit(&AuditQuery::default()).await.unwrap();
    let asked: Vec<_> = events.iter().filter(|event| event.by != "test").collect();
    let kinds: Vec<&str> = asked.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "deployed",
            "deployed",
            "deployed",
            "restart_asked",
            "command_run",
            "operator_added",
            "operator_revoked",
            "backup_taken",
            "undeployed",
            "volumes_doomed",
        ]
    );
    assert!(asked.iter().all(|event| event.by.starts_with("unix:") && event.at.0.0 > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_a_leader_and_a_runtime_that_answers() {
    let daemon = daemon().await;
    let ready = daemon.client.ready(false).await.unwrap();
    assert!(ready.is_ready, "{ready:?}");
    let health = &ready.health;
    assert_eq!((health.leader.as_deref(), ready.runtime.as_deref()), (Some("ash"), Some("fake 1")));
    assert_eq!((health.role.as_str(), health.lag, health.heard_ms), ("leader", 0, Some(0)));
    assert!(health.committed >= health.applied && health.last >= health.applied, "{health:?}");
    daemon.runtime.set_down(true);
    let ready = daemon.client.ready(false).await.unwrap();
    assert!(!ready.is_ready);
    assert_eq!(ready.why[0].text, "fake does not answer: it was told so");
    let (status, body) = daemon.raw(&get("/healthz")).await;
    let health: Health = serde_json::from_str(&body).unwrap();
    assert_eq!((status, health.node.as_str()), (200, "ash"), "it is alive all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_of_the_state_changes_with_it_and_says_which_entry_it_is_of() {
    let daemon = daemon().await;
    let hash = async || daemon.client.ready(true).await.unwrap().health;
    assert_eq!(daemon.client.ready(false).await.unwrap().health.hash, None, "nobody asked");
    let before = hash().await;
    let again = hash().await;
    assert_eq!((before.applied, &before.hash), (again.applied, &again.hash));
    daemon.apply("shop", [("web", spread(1))]).await;
    let after = hash().await;
    assert!(after.applied > before.applied && after.hash != before.hash, "{after:?}");
    let expected = daemon.cell.engine.machine().read(|state| {
        use sha2::{Digest as _, Sha256};
        let bytes = postcard::to_stdvec(state).unwrap();
        plimsoll_model::access::Digest(Sha256::digest(bytes).into()).to_string()
    });
    assert_eq!(after.hash, Some(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_read_says_how_fresh_it_is() {
    let daemon = daemon().await;
    assert_eq!(daemon.client.freshness(), None, "nothing was read");
    let status = daemon.client.status().await.unwrap();
    let fresh = daemon.client.freshness().unwrap();
    assert_eq!(fresh, status.cell.freshness());
    assert_eq!((fresh.leader.as_deref(), fresh.heard_ms), (Some("ash"), Some(0)));
    daemon.apply("shop", [("web", spread(1))]).await;
    daemon.client.nodes().await.unwrap();
    assert!(daemon.client.freshness().unwrap().applied > fresh.applied);

    let lost = daemon_without_a_leader().await;
    let status = lost.client.status().await.unwrap();
    let fresh = lost.client.freshness().unwrap();
    assert_eq!((fresh.leader, fresh.heard_ms), (None, None), "it has never heard one");
    assert_eq!((status.cell.leader, status.cell.heard_ms), (None, None));
    let ready = lost.client.ready(false).await.unwrap();
    assert_eq!((ready.is_ready, ready.why[0].word.word()), (false, "no_leader"));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_readiness_take_no_token_and_all_else_does() {
    let daemon = daemon_on_tcp().await;
    let stranger = daemon.by_tcp(None);
    assert!(stranger.ready(true).await.unwrap().health.hash.is_some());
    let refused = stranger.status().await.unwrap_err();
    assert_eq!(refused.code(), Some(ProblemCode::Unauthorized));
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_told_in_parts_and_a_client_puts_them_together() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(1_005))]).await;
    daemon.settle().await;
    let ids = async |query: &str| -> Vec<String> {
        let request =
            format!("GET /v1/replicas{query} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let (status, body) = daemon.raw(request).await;
        assert_eq!(status, 200, "{query}: {body}");
        let told: Vec<Replica> = serde_json::from_str(&body).unwrap();
        told.into_iter().map(|replica| replica.id).collect()
    };
    assert_eq!(ids("").await.len(), 1_000);
    assert_eq!(ids("?limit=2&offset=9").await, ["shop-web-10", "shop-web-11"]);
    assert_eq!(ids("?node=ash&limit=2&offset=1004").await, ["shop-web-1005"]);
    let whole: Vec<String> = (1..=1_005).map(|slot| format!("shop-web-{slot}")).collect();
    for part in [100, 1_005, 10_000] {
        let client = daemon.client.clone().in_parts_of(part);
        let all = client.replicas().await.unwrap();
        assert_eq!(all.into_iter().map(|it| it.id).collect::<Vec<_>>(), whole, "by {part}");
        let here = client.replicas_on("ash").await.unwrap();
        assert_eq!(here.len(), 1_005, "by {part}");
    }
    let last = AuditQuery { limit: Some(2), ..AuditQuery::default() };
    let last = daemon.client.audit(&last).await.unwrap();
    let before = AuditQuery { limit: Some(2), before: Some(last[0].seq), ..AuditQuery::default() };
    let before = daemon.client.audit(&before).await.unwrap();
    assert_eq!(before.len(), 2);
    assert_eq!(before[1].seq + 1, last[0].seq, "what came just before it");
}
