//! Writes: apply, dry run, scale, roll back, restart, delete.

use expect_test::expect;
use plimsoll_api::view::{Applied, Apply, Plan, Restart, Rollback, Scale};
use plimsoll_model::spec::{FileContent, FileMount};
use plimsoll_model::testkit::{cpus, global, node_id, spread};
use plimsoll_model::{Capability, Change, ServiceName, ServiceSpec, Writer};

use super::support::{apply, daemon, said};

/// A change as people read it.
fn shown(applied: &Applied) -> String {
    let mut lines = vec![format!("{} r{}", applied.deployment, applied.revision)];
    let word = |side: &Option<String>| side.clone().unwrap_or_else(|| "none".to_owned());
    for change in &applied.changes {
        let recreates = if change.recreates { ", recreated" } else { "" };
        lines.push(format!("{} {}{recreates}", change.service, change.what));
        lines.extend(change.fields.iter().map(|field| {
            format!("  {}: {} → {}", field.field, word(&field.before), word(&field.after))
        }));
    }
    lines.extend(applied.plan.iter().flat_map(planned));
    lines.join("\n") + "\n"
}

fn planned(plan: &Plan) -> Vec<String> {
    let placed =
        plan.placed.iter().map(|it| format!("{} placed {} {}", it.round, it.replica, it.node));
    let moved = plan
        .moved
        .iter()
        .map(|it| format!("{} moved {} {} {} {}", it.round, it.replica, it.from, it.to, it.cause));
    let retired = plan.retired.iter().map(|it| format!("{} retired {}", it.round, it.replica));
    let stays = plan.stays.iter().map(|it| format!("stays {} {}", it.replica, it.reason));
    let unplaced = plan
        .unplaced
        .iter()
        .map(|it| format!("{} lacks {}: {}", it.service, it.missing, it.detail));
    placed.chain(moved).chain(retired).chain(stays).chain(unplaced).collect()
}

fn scale<const N: usize>(services: [(&str, u32); N]) -> Scale {
    Scale { services: services.map(|(name, count)| (name.to_owned(), count)).into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_is_a_revision_and_the_same_again_is_none() {
    let daemon = daemon().await;
    let first = daemon.apply("shop", [("web", spread(2))]).await;
    assert_eq!((first.revision, first.changes[0].what.as_str()), (1, "added"));
    let again = daemon.apply("shop", [("web", spread(2))]).await;
    assert_eq!((again.revision, again.changes[0].what.as_str()), (1, "unchanged"));
    let second = daemon.apply("shop", [("web", spread(3).image("app:2"))]).await;
    expect![[r#"
        shop r2
        web changed, recreated
          image: app:1 → app:2
          replicas: 2 → 3
    "#]]
    .assert_eq(&shown(&second));
    let by = daemon.client.deployment("shop").await.unwrap().applied_by;
    assert!(by.starts_with("unix:"), "{by}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_is_refused_for_its_size_writes_nothing() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(1))]).await;
    let mut large = spread(1);
    for nth in 0..3 {
        large.container.configs.push(FileMount {
            name: format!("big-{nth}"),
            target: format!("/big-{nth}"),
            content: FileContent::Inline(vec![b'x'; 1_000_000]),
            uid: None,
            gid: None,
            mode: None,
        });
    }
    let applied = || *daemon.cell.engine.machine().applied().borrow();
    let before = applied();
    let refused = said(daemon.client.apply("shop", &apply([("web", large)])).await);
    assert!(refused.starts_with("quota: this revision of shop takes "), "{refused}");
    assert_eq!(applied(), before, "the log has nothing of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_expects_another_revision_is_refused() {
    let daemon = daemon().await;
    let expecting = |expect, services| Apply { expect: Some(expect), ..apply(services) };
    let client = &daemon.client;
    expect![[r"
        revision_changed: shop is not at revision 3: it does not exist
        hint: look at what changed with `plimsoll history`, then apply again"]]
    .assert_eq(&said(client.apply("shop", &expecting(3, [("web", spread(1))])).await));
    client.apply("shop", &expecting(0, [("web", spread(1))])).await.unwrap();
    expect![[r"
        revision_changed: shop exists already, at revision 1
        hint: look at what changed with `plimsoll history`, then apply again"]]
    .assert_eq(&said(client.apply("shop", &expecting(0, [("web", spread(2))])).await));
    let second = client.apply("shop", &expecting(1, [("web", spread(2))])).await.unwrap();
    assert_eq!(second.revision, 2);
    let stale = client.apply("shop", &expecting(1, [("web", spread(3))])).await;
    assert!(said(stale).starts_with("revision_changed: shop is at revision 2, not 1"));
    assert_eq!(client.deployment("shop").await.unwrap().revision, 2, "nothing was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let daemon = daemon().await;
    let client = &daemon.client;
    let first = client.dry_run("shop", &apply([("web", spread(2))])).await.unwrap();
    expect![[r#"
        shop r1
        web added
        1 placed shop-web-1 ash
        1 placed shop-web-2 ash
    "#]]
    .assert_eq(&shown(&first));
    assert_eq!(client.deployments().await.unwrap(), []);

    daemon.apply("shop", [("web", spread(3)), ("db", spread(1))]).await;
    daemon.settle().await;
    let services = [("web", spread(3).image("app:2")), ("job", spread(1).reserve(9_000, 1))];
    let second = client.dry_run("shop", &apply(services)).await.unwrap();
    expect![[r#"
        shop r2
        db removed
        job added
        web changed, recreated
          image: app:1 → app:2
        1 moved shop-web-1 ash ash outdated
        2 moved shop-web-2 ash ash outdated
        3 moved shop-web-3 ash ash outdated
        1 retired shop-db-1
        shop/job lacks 1: 0 of 1 nodes can take it: 1 insufficient_capacity
    "#]]
    .assert_eq(&shown(&second));
    assert_eq!(client.deployment("shop").await.unwrap().revision, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_any_answer() {
    let daemon = daemon().await;
    let client = &daemon.client;
    let spec = |secret: &str| {
        let mut spec = spread(1);
        spec.container.environment.insert("PASSWORD".to_owned(), format!("{secret}-env"));
        let file = FileMount {
            name: "key".to_owned(),
            target: "/key".to_owned(),
            content: FileContent::Inline(format!("{secret}-file").into_bytes()),
            uid: None,
            gid: None,
            mode: None,
        };
        spec.container.secrets.push(file.clone());
        spec.container.configs.push(FileMount { name: "site".to_owned(), ..file });
        spec
    };
    daemon.apply("shop", [("web", spec("hunter2"))]).await;
    let second = daemon.apply("shop", [("web", spec("hunter3"))]).await;
    expect![[r#"
        shop r2
        web changed, recreated
          configs.site.content: (hidden) → (hidden, changed)
          environment.PASSWORD: (hidden) → (hidden, changed)
          secrets.key.content: (hidden) → (hidden, changed)
    "#]]
    .assert_eq(&shown(&second));
    let revision = client.revision("shop", 1).await.unwrap();
    let web = &revision.services["web"]["container"];
    assert_eq!(web["image"], "app:1");
    assert!(web["environment"]["PASSWORD"].is_null() && web["secrets"][0]["content"].is_null());
    let mut all = serde_json::to_string(&revision).unwrap();
    all += &serde_json::to_string(&client.status().await.unwrap()).unwrap();
    all += &serde_json::to_string(&client.history("shop").await.unwrap()).unwrap();
    let dry = client.dry_run("shop", &apply([("web", spec("hunter4"))])).await.unwrap();
    all += &serde_json::to_string(&dry).unwrap();
    assert!(!all.contains("hunter"), "{all}");
    let bytes: Vec<String> = b"hunter".iter().map(ToString::to_string).collect();
    assert!(!all.contains(&bytes.join(",")), "{all}");
    // A value of the wrong kind must not be repeated by whoever complains of it.
    let body = r#"{"services":{"web":{"container":{"image":{"secret":"hunter5"}}}}}"#;
    let request = format!(
        "PUT /v1/deployments/shop HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, answer) = daemon.raw(request).await;
    assert_eq!(status, 400);
    assert!(
        !answer.contains("hunter") && answer.contains("services.web.container.image"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_no_node_can_run_is_refused_before_anything_is_written() {
    let daemon = daemon().await;
    let processes = || cpus(4).lacks(Capability::ImageCommand).lacks(Capability::Sysctls);
    let says = |node: &str, facts| Change::PutNode { node: node_id(node), facts };
    daemon.write(Writer::Operator, vec![says("ash", processes()).free()]).await;
    let mut odd = spread(1);
    odd.container.sysctls.insert("net.core.somaxconn".into(), "1".into());
    odd.container.stop_signal = Some("SIGNOPE".into());
    let odd = apply([("web", spread(1).command("run")), ("odd", odd)]);
    expect![[r#"
        cannot_run: no node of the cell can run it:
          odd: unknown stop signal "SIGNOPE"
          odd: the process runtime cannot run the command of an image; set `command`
          odd: the process runtime cannot set sysctls; remove `sysctls`
        hint: change these in the compose file, or use a node with another runtime"#]]
    .assert_eq(&said(daemon.client.apply("shop", &odd).await));
    assert_eq!(daemon.client.deployments().await.unwrap(), []);

    // Whatever the leader runs on: it is enough that one node can.
    daemon.write(Writer::Operator, vec![says("birch", cpus(4)).free()]).await;
    daemon.client.apply("shop", &apply([("web", spread(1))])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_wait_for_each_other_or_for_nobody_are_refused() {
    let daemon = daemon().await;
    let waits_for = |on: &str| {
        let mut spec = spread(1);
        let on = ServiceName::new(on).unwrap();
        spec.depends_on.insert(on, plimsoll_model::spec::Dependency::Started);
        spec
    };
    let refused = async |services: [(&str, ServiceSpec); 3]| {
        said(daemon.client.apply("shop", &apply(services)).await)
    };
    expect![[r"
        circular_dependency: the services wait for each other in a circle: b → c → b
        hint: remove one of these from depends_on"]]
    .assert_eq(
        &refused([("a", waits_for("b")), ("b", waits_for("c")), ("c", waits_for("b"))]).await,
    );
    expect![[r#"
        missing_dependency: service "web" depends on "bd", and there is no such service
        hint: did you mean db?"#]]
    .assert_eq(&refused([("web", waits_for("bd")), ("db", spread(1)), ("x", spread(1))]).await);
    expect![[r"
        no_services: shop names no services
        hint: to remove a deployment, delete it"]]
    .assert_eq(&said(daemon.client.apply("shop", &apply([])).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_is_a_revision_that_leaves_the_containers_alone() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(2)), ("agent", global())]).await;
    daemon.settle().await;
    let before = daemon.generation("shop/web/1");
    let client = &daemon.client;
    let scaled = client.scale("shop", &scale([("web", 3)])).await.unwrap();
    expect![[r#"
        shop r2
        agent unchanged
        web changed
          replicas: 2 → 3
    "#]]
    .assert_eq(&shown(&scaled));
    daemon.settle().await;
    assert_eq!(daemon.generation("shop/web/1"), before);
    assert_eq!(client.deployment("shop").await.unwrap().services[1].running, 3);

    expect![[r#"
        global_replicas: service "agent" uses placement=global; remove replicas (global runs one replica per ready node)
        hint: set placement to spread or pack to choose a number"#]]
    .assert_eq(&said(client.scale("shop", &scale([("agent", 2)])).await));
    expect![[r#"
        bad_spec: these fields cannot be used:
          web: replicas is 100001, at most 100000 is allowed
        hint: correct these fields"#]]
    .assert_eq(&said(client.scale("shop", &scale([("web", 100_001)])).await));
    expect![[r"
        no_such_service: deployment shop has no service wbe
        hint: did you mean web?"]]
    .assert_eq(&said(client.scale("shop", &scale([("wbe", 2)])).await));
    assert_eq!(client.deployment("shop").await.unwrap().revision, 2, "nothing more was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_restores_a_whole_revision_as_a_new_one() {
    let daemon = daemon().await;
    let client = &daemon.client;
    daemon.apply("shop", [("web", spread(2)), ("db", spread(1))]).await;
    let back = |to| Rollback { to };
    expect![[r"
        no_earlier_revision: shop has no revision before 1 to roll back to
        hint: `plimsoll history` lists the revisions that are kept"]]
    .assert_eq(&said(client.rollback("shop", &back(None)).await));
    daemon.apply("shop", [("web", spread(3).image("app:2"))]).await;
    let third = client.rollback("shop", &back(None)).await.unwrap();
    expect![[r#"
        shop r3
        db added
        web changed, recreated
          image: app:2 → app:1
          replicas: 3 → 2
    "#]]
    .assert_eq(&shown(&third));
    let fourth = client.rollback("shop", &back(Some(2))).await.unwrap();
    assert_eq!(fourth.revision, 4);
    assert!(said(client.rollback("shop", &back(Some(4))).await).starts_with("same_revision: "));
    assert!(said(client.rollback("shop", &back(Some(9))).await).contains("kept are 1, 2, 3, 4"));
    let history = client.history("shop").await.unwrap();
    let numbers: Vec<_> = history.iter().map(|r| (r.revision, r.is_current)).collect();
    assert_eq!(numbers, [(4, true), (3, false), (2, false), (1, false)]);
    assert_eq!(history[2].changes[0].what, "removed", "{:?}", history[2].changes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_renews_those_that_are_meant() {
    let daemon = daemon().await;
    let client = &daemon.client;
    daemon.apply("shop", [("web", spread(2)), ("db", spread(1))]).await;
    daemon.apply("mon", [("agent", spread(1))]).await;
    daemon.settle().await;
    let (web, db) = (daemon.generation("shop/web/1"), daemon.generation("shop/db/1"));
    let of = |service: Option<&str>, replica: Option<&str>| Restart {
        service: service.map(str::to_owned),
        replica: replica.map(str::to_owned),
    };
    let restarted = client.restart("shop", &of(Some("web"), None)).await.unwrap();
    assert_eq!(restarted.replicas, ["shop-web-1", "shop-web-2"]);
    daemon.settle().await;
    assert!(daemon.generation("shop/web/1") > web);
    assert_eq!(daemon.generation("shop/db/1"), db);
    let one = client.restart("shop", &of(None, Some("shop-db-1"))).await.unwrap();
    assert_eq!(one.replicas, ["shop-db-1"]);
    expect![[r"
        not_of: mon-agent-1 is not a replica of shop
        hint: it is a replica of mon/agent"]]
    .assert_eq(&said(client.restart("shop", &of(None, Some("mon-agent-1"))).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_keeps_the_volumes_unless_they_are_to_go() {
    let daemon = daemon().await;
    let client = &daemon.client;
    daemon.apply("shop", [("db", spread(1).volume("data"))]).await;
    daemon.settle().await;
    let deleted = client.delete("shop", false).await.unwrap();
    assert_eq!((deleted.replicas, deleted.volumes_kept), (1, vec!["data".to_owned()]));
    let leaving = client.deployment("shop").await.unwrap();
    assert!(leaving.is_deleted && !leaving.progress.is_steady());
    daemon.settle().await;
    assert!(said(client.deployment("shop").await).starts_with("no_such_deployment"));
    let doomed = || {
        daemon.cell.engine.machine().read(|state| {
            let shop = state.volumes().get("shop").expect("where the data is, is known");
            assert_eq!(shop.nodes(), [node_id("ash")].into());
            shop.doomed.is_some()
        })
    };
    assert!(!doomed());

    daemon.apply("shop", [("db", spread(1).volume("data"))]).await;
    daemon.settle().await;
    let deleted = client.delete("shop", true).await.unwrap();
    assert_eq!((deleted.volumes_kept.len(), deleted.volumes_removed.len()), (0, 1));
    assert_eq!(deleted.volumes_on, ["ash"]);
    assert!(deleted.index > Some(0) && doomed());
    daemon.settle().await;
    assert!(said(client.delete("shop", true).await).starts_with("no_such_deployment"));
    daemon.apply("shop", [("db", spread(1).volume("data"))]).await;
    assert!(!doomed(), "who comes back keeps what is left");
}
