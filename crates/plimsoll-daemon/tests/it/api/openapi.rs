//! The API's description of itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::support::daemon;

#[tokio::test(flavor = "multi_thread")]
async fn the_description_has_every_path_and_every_word() {
    let daemon = daemon().await;
    let document = daemon.client.openapi().await.unwrap();
    let mut paths = String::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let mut methods: Vec<&str> =
            methods.as_object().unwrap().keys().map(String::as_str).collect();
        methods.sort_unstable();
        let _ = writeln!(paths, "{path} {}", methods.join(" "));
    }
    expect_test::expect![[r#"
        / get
        /healthz get
        /metrics get
        /openapi.json get
        /readyz get
        /v1/audit get
        /v1/authority get
        /v1/backup post
        /v1/backup/key get post
        /v1/cell get
        /v1/cell/rotation delete post
        /v1/certificates get
        /v1/configs get post
        /v1/configs/{name} delete get
        /v1/configs/{name}/rotate post
        /v1/deployments get
        /v1/deployments/{name} delete get put
        /v1/deployments/{name}/history get
        /v1/deployments/{name}/logs get
        /v1/deployments/{name}/restart post
        /v1/deployments/{name}/revisions/{revision} get
        /v1/deployments/{name}/rollback post
        /v1/deployments/{name}/rollout post
        /v1/deployments/{name}/scale post
        /v1/deployments/{name}/volumes/{volume} delete get
        /v1/deployments/{name}/volumes/{volume}/content get put
        /v1/deployments/{name}/volumes/{volume}/hold delete get post put
        /v1/deployments/{name}/volumes/{volume}/move post
        /v1/explain/{replica} get
        /v1/fleet get post
        /v1/fleet/membership delete post
        /v1/fleet/quota post
        /v1/fleet/shards/{name} delete
        /v1/fleet/tokens post
        /v1/nodes get
        /v1/nodes/{name} delete
        /v1/nodes/{name}/cordon post
        /v1/nodes/{name}/drain post
        /v1/nodes/{name}/uncordon post
        /v1/nodes/{node}/explain get
        /v1/operators get post
        /v1/operators/{name} delete
        /v1/optimize post
        /v1/optimize/apply post
        /v1/pressure get
        /v1/registries get post
        /v1/registries/{host} delete
        /v1/replicas get
        /v1/replicas/{id} get
        /v1/replicas/{id}/exec post
        /v1/replicas/{id}/logs get
        /v1/reschedule get post
        /v1/routes get
        /v1/routes/explain get
        /v1/secrets get post
        /v1/secrets/{name} delete get
        /v1/secrets/{name}/rotate post
        /v1/snapshot get
        /v1/status get
        /v1/tokens/join get post
        /v1/tokens/join/{name} delete
        /v1/volumes get
        /v1/watch get
        /v1/what-if post
        /v1/whoami get
    "#]]
    .assert_eq(&paths);
    // Nothing refers to what is not described.
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(!document["components"]["schemas"][name].is_null(), "{name}");
    }
    assert_eq!(document["components"]["schemas"]["Time"]["format"], "date-time");
}

/// What validators of `OpenAPI` ask for beyond the form of each part.
#[tokio::test(flavor = "multi_thread")]
async fn the_description_keeps_the_rules_of_openapi() {
    let daemon = daemon().await;
    let document = daemon.client.openapi().await.unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = text(&operation["operationId"]);
            assert!(!id.is_empty(), "{method} {path} has no id");
            assert!(ids.insert(id.clone()), "{method} {path}: {id} is another operation's too");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let named: Vec<(String, String)> =
                parameters.map(|it| (text(&it["in"]), text(&it["name"]))).collect();
            let distinct: BTreeSet<_> = named.iter().collect();
            assert_eq!(distinct.len(), named.len(), "{method} {path} has a parameter twice");
            let in_path: BTreeSet<&str> = named
                .iter()
                .filter(|(at, _)| at == "path")
                .map(|(_, name)| name.as_str())
                .collect();
            let templated: BTreeSet<&str> = path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            assert_eq!(in_path, templated, "{method} {path}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(!responses.is_empty(), "{method} {path} answers nothing");
            for (status, response) in responses {
                assert_ne!(text(&response["description"]), "", "{method} {path} {status}");
            }
            for scheme in operation["security"].as_array().into_iter().flatten() {
                for name in scheme.as_object().unwrap().keys() {
                    let known = &document["components"]["securitySchemes"][name];
                    assert!(!known.is_null(), "{method} {path}: there is no scheme {name}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_of_the_description_leads_somewhere() {
    let daemon = daemon().await;
    let document = daemon.client.openapi().await.unwrap();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            // Streams would not end by themselves.
            if path.ends_with("/watch") {
                continue;
            }
            let filled = path.replace("{revision}", "1").replace(['{', '}'], "");
            let request = format!(
                "{method} {filled} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            );
            let (_, body) = daemon.raw(request).await;
            // The document itself lists every code.
            for wrong in [r#""code":"no_such_path""#, r#""code":"no_such_method""#] {
                assert!(!body.contains(wrong), "{method} {path}: {body}");
            }
        }
    }
}
