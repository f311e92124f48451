//! Images are what their tags stood for when they were applied, and credentials of registries are never told.

use plimsoll_api::view::{Applied, NewOperator, NewRegistryLogin, ReasonCode};
use plimsoll_model::testkit::{replica_id, service_key, spread};
use plimsoll_model::{Assignment, Change, Writer};
use plimsoll_runtime::fake::{Call, Script};

use super::support::{Daemon, apply, daemon, daemon_on_tcp, said};

const IMAGE: &str = "r.example/web:1";

fn digest(byte: &str) -> String {
    format!("sha256:{}", byte.repeat(32))
}

impl Daemon {
    /// From now on the tag stands for this image; the next so many questions for it fail.
    fn move_tag(&self, byte: &str, resolve_failures: u32) {
        let script = Script { digest: Some(digest(byte)), resolve_failures, ..Script::default() };
        self.runtime.on(IMAGE, script);
    }

    async fn apply_web(&self) -> Applied {
        self.apply("shop", [("web", spread(1).image(IMAGE))]).await
    }

    async fn digest(&self) -> Option<String> {
        self.client.deployment("shop").await.unwrap().services[0].digest.clone()
    }
}

fn warnings(applied: &Applied) -> Vec<&str> {
    let unpinned = applied.warnings.iter().filter(|it| it.word == ReasonCode::ImageNotPinned);
    unpinned.map(|warning| warning.text.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_is_moved_is_a_change_and_a_rollback_goes_back_to_the_image() {
    let daemon = daemon().await;
    let client = &daemon.client;
    daemon.move_tag("aa", 0);
    let first = daemon.apply_web().await;
    assert_eq!((first.revision, warnings(&first)), (1, vec![]));
    assert_eq!(daemon.digest().await, Some(digest("aa")));
    assert_eq!(daemon.apply_web().await.revision, 1, "the same image is no change");

    daemon.move_tag("bb", 0);
    client
        .scale("shop", &plimsoll_api::view::Scale { services: [("web".into(), 2)].into() })
        .await
        .unwrap();
    assert_eq!(daemon.digest().await, Some(digest("aa")), "scaling looks nothing up");
    let web = || apply([("web", spread(1).image(IMAGE))]);
    let dry = client.dry_run("shop", &web()).await.unwrap();
    let fields = |applied: &Applied| {
        let fields = applied.changes[0].fields.iter().filter(|it| it.field == "digest");
        fields.map(|it| (it.before.clone(), it.after.clone())).collect::<Vec<_>>()
    };
    let moved = [(Some(digest("aa")), Some(digest("bb")))];
    assert_eq!(fields(&dry), moved);
    assert!(dry.changes[0].recreates);
    assert_eq!(daemon.digest().await, Some(digest("aa")), "nothing was written");
    let second = daemon.apply_web().await;
    assert_eq!(fields(&second), moved);
    assert_eq!(daemon.digest().await, Some(digest("bb")));

    client.rollback("shop", &plimsoll_api::view::Rollback { to: Some(1) }).await.unwrap();
    assert_eq!(daemon.digest().await, Some(digest("aa")), "wherever the tag is by now");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_registry_is_away_what_is_deployed_stays_and_the_rest_is_used_by_its_tag() {
    let daemon = daemon().await;
    daemon.move_tag("aa", 1);
    let first = daemon.apply_web().await;
    let text = "r.example/web:1 is used by its tag, which nodes may pull differently: the registry of r.example/web:1 \
                does not answer: connection refused";
    assert_eq!(warnings(&first), [text]);
    assert_eq!(daemon.digest().await, None);
    daemon.settle().await;
    let explained = daemon.client.explain("shop-web-1").await.unwrap();
    let notes: Vec<_> =
        explained.notes.iter().map(|note| (note.word, note.text.as_str())).collect();
    let note = "r.example/web:1 is used by its tag: the registry did not answer";
    assert_eq!(notes, [(ReasonCode::ImageNotPinned, note)]);

    let second = daemon.apply_web().await;
    assert_eq!((warnings(&second), daemon.digest().await), (vec![], Some(digest("aa"))));
    daemon.move_tag("bb", 1);
    let third = daemon.apply_web().await;
    assert_eq!(third.revision, second.revision, "an outage changes nothing");
    assert_eq!(daemon.digest().await, Some(digest("aa")));
    assert_eq!(warnings(&third).len(), 1);

    daemon.runtime.set_down(true);
    let fourth = daemon.apply_web().await;
    assert_eq!(fourth.revision, second.revision, "nor does an engine that is down");
    assert_eq!(warnings(&fourth).len(), 1, "{:?}", fourth.warnings);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_a_registry_asked_who_may_not_apply() {
    let daemon = daemon_on_tcp().await;
    daemon.move_tag("aa", 0);
    let operator = |name: &str, role: &str| NewOperator {
        name: name.into(),
        role: role.into(),
        ..NewOperator::default()
    };
    let ci = daemon.client.add_operator(&operator("ci", "deploy")).await.unwrap().token;
    let mut spec = spread(1).image(IMAGE);
    spec.container.privileged = Some(true);
    let asks = |daemon: &Daemon| {
        let calls = daemon.runtime.calls();
        calls.iter().filter(|call| matches!(call, Call::Resolve(_))).count()
    };
    let refused = daemon.by_tcp(Some(&ci)).apply("shop", &apply([("web", spec.clone())])).await;
    assert!(said(refused).starts_with("forbidden"));
    assert_eq!(asks(&daemon), 0);

    // What an admin applied stays the admin's while it is the same image, and no longer.
    daemon.apply("shop", [("web", spec.clone())]).await;
    let again = daemon.by_tcp(Some(&ci)).apply("shop", &apply([("web", spec.clone())])).await;
    assert_eq!(again.unwrap().revision, 1);
    daemon.move_tag("bb", 0);
    let refused = daemon.by_tcp(Some(&ci)).apply("shop", &apply([("web", spec)])).await;
    assert!(said(refused).starts_with("forbidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_for_a_registry_is_in_no_answer() {
    let daemon = daemon().await;
    let client = &daemon.client;
    let login = |registry: &str, password: &str| NewRegistryLogin {
        registry: registry.to_owned(),
        user: "ci".to_owned(),
        password: password.to_owned(),
    };
    let made = client.login_registry(&login("https://R.example/v2/", "hunter2")).await.unwrap();
    assert_eq!((made.registry.as_str(), made.user.as_str()), ("r.example", "ci"));
    daemon.apply_web().await;
    daemon.settle().await;
    let mut all = serde_json::to_string(&client.registries().await.unwrap()).unwrap();
    all += &serde_json::to_string(&client.status().await.unwrap()).unwrap();
    all += &serde_json::to_string(&client.revision("shop", 1).await.unwrap()).unwrap();
    all += &serde_json::to_string(&client.snapshot().await.unwrap()).unwrap();
    let audit = client.audit(&plimsoll_api::view::AuditQuery::default()).await.unwrap();
    all += &serde_json::to_string(&audit).unwrap();
    assert!(all.contains("logged in to registry r.example as ci"), "{all}");
    assert!(!all.contains("hunter"), "{all}");
    let refused = client.login_registry(&login("r.example", "")).await;
    assert!(said(refused).starts_with("empty_credential"));
    assert_eq!(client.logout_registry("r.example").await.unwrap(), made);
    assert!(said(client.logout_registry("r.example").await).starts_with("no_such_registry"));
    // A value of the wrong kind must not be repeated by whoever complains of it.
    let body = r#"{"registry":"r.example","user":"ci","password":{"text":"hunter3"}}"#;
    let request = format!(
        "POST /v1/registries HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, answer) = daemon.raw(request).await;
    assert_eq!(status, 400);
    assert!(!answer.contains("hunter"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_an_image_declares_are_told_by_the_node_and_known_from_then_on() {
    let daemon = daemon().await;
    let db = || spread(1).image("db:1");
    daemon.apply("shop", [("db", db())]).await;
    daemon.pass().await;
    let assigned = daemon.cell.engine.machine().read(|state| {
        let replica = state.replica(&replica_id("shop/db/1")).unwrap();
        replica.assignment.clone().unwrap()
    });
    let (service, paths) = (service_key("shop/db"), ["/data".to_owned()].into());
    let Assignment { node, spec, .. } = assigned;
    let told = Change::DeclareVolumes { service, spec, node, paths };
    daemon.write(Writer::Agent, vec![told.free()]).await;
    daemon.settle().await;
    let client = &daemon.client;
    let service = || async { client.deployment("shop").await.unwrap().services.remove(0) };
    assert_eq!(service().await.image_volumes, ["/data"]);
    let explained = client.explain("shop-db-1").await.unwrap();
    let text = "db:1 declares volumes at /data: each replica keeps its own and stays on its node";
    let notes: Vec<_> =
        explained.notes.iter().filter(|it| it.word == ReasonCode::ImageVolumes).collect();
    assert_eq!(notes.iter().map(|note| note.text.as_str()).collect::<Vec<_>>(), [text]);
    let dry = client.dry_run("shop", &apply([("db", db().command("other"))])).await.unwrap();
    assert!(dry.warnings.iter().any(|it| it.word == ReasonCode::ImageVolumes), "{dry:?}");

    let deleted = client.delete("shop", false).await.unwrap();
    assert_eq!(deleted.volumes_kept, ["db:/data"]);
    let dry = client.dry_run("shop", &apply([("db", db())])).await.unwrap();
    assert!(dry.warnings.iter().any(|it| it.word == ReasonCode::ImageVolumes), "{dry:?}");
}
