//! Examples in the description: what a client may fill in. With them every request can be made from the description alone,
//! and a test does, in a cell that has what they name.

use hyper::Method;
use plimsoll_model::spec::{ContainerSpec, Mode, SpecHash};
use plimsoll_model::{ServiceName, ServiceSpec};
use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{OpenApi, RefOr};

use super::statuses::operations;
use plimsoll_api::view::Apply;

pub(super) fn describe(document: &mut OpenApi) {
    for (method, path, operation) in operations(document) {
        fill_parameters(&method, &path, operation);
        fill_body(&method, &path, operation);
    }
}

fn fill_parameters(method: &Method, path: &str, operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let is_named = parameter.parameter_in == ParameterIn::Path;
        // One that nobody holds yet can be held.
        let is_hold = *method == Method::POST && path.ends_with("/hold");
        let example = match parameter.name.as_str() {
            "name" if is_hold => Some(json!("free")),
            "volume" if is_hold => Some(json!("free_data")),
            name => of_parameter(path, name, is_named),
        };
        let Some(example) = example else { continue };
        if let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema {
            schema.examples = vec![example];
        }
    }
}

fn of_parameter(path: &str, name: &str, is_named: bool) -> Option<Value> {
    Some(match (name, is_named) {
        ("name", true) if path.starts_with("/v1/nodes/") => json!("birch"),
        ("name", true) if path.starts_with("/v1/fleet/shards/") => json!("north"),
        ("name", true) if path.starts_with("/v1/operators/") => json!("ci"),
        ("name", true) if path.starts_with("/v1/tokens/") => json!("elm"),
        ("name", true) if path.starts_with("/v1/secrets/") => json!("db"),
        ("name", true) if path.starts_with("/v1/configs/") => json!("site"),
        ("name", true) if path.ends_with("/volumes/{volume}/move") => json!("pg"),
        ("name", true) if path.ends_with("/content") || path.ends_with("/hold") => json!("kept"),
        ("volume", true) if path.ends_with("/content") || path.ends_with("/hold") => {
            json!("kept_data")
        }
        ("name", true) if path.ends_with("/volumes/{volume}") => json!("gone"),
        ("volume", true) if path.ends_with("/move") => json!("pg_data"),
        ("volume", true) => json!("gone_data"),
        ("name", true) => json!("shop"),
        ("id" | "replica", true) => json!("shop-web-1"),
        ("node", true) => json!("ash"),
        ("revision", true) | ("after", false) => json!(1),
        ("host", false) => json!("shop.example"),
        ("host", true) => json!("registry.example:5000"),
        ("path", false) => json!("/"),
        _ => return None,
    })
}

fn fill_body(method: &Method, path: &str, operation: &mut Operation) {
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    let example = match (method, path.rsplit('/').next()) {
        // It is a backup, and no JSON.
        (_, Some("content")) => return,
        (&Method::PUT, _) => json!(apply()),
        (_, Some("scale")) => json!({"services": {"web": 2}}),
        (_, Some("optimize")) => json!({"moves": 5, "time_ms": 50}),
        (&Method::POST, Some("apply")) => json!({"moves": []}),
        (_, Some("what-if")) => json!({"drain": {"nodes": ["birch"]}}),
        (_, Some("exec")) => json!({"command": ["true"]}),
        (_, Some("operators")) => json!({"name": "bob", "role": "read"}),
        (_, Some("registries")) => {
            json!({"registry": "registry.example:5000", "user": "ci", "password": "hunter2"})
        }
        (_, Some("secrets" | "configs")) => json!({"name": "key", "content": [115, 51]}),
        (_, Some("move")) => json!({"node": "birch"}),
        (_, Some("hold")) => json!({"purpose": "live_backup"}),
        (_, Some("rotate")) => json!({"content": [115, 52]}),
        (_, Some("reschedule")) => json!({"action": "pause", "target_percent": 50}),
        (_, Some("fleet")) => json!({"paused": true}),
        (_, Some("quota")) => {
            json!({"machine_type": "m5.large", "zone": "eu-1a", "shard": "north", "slice": 10})
        }
        (_, Some("tokens")) => json!({"shard": "south"}),
        (_, Some("membership")) => json!({"join": "plf_none@hub.example"}),
        (_, Some("rollout")) => json!({"action": "pause"}),
        _ => json!({}),
    };
    for content in body.content.values_mut() {
        if let RefOr::T(content) = content {
            content.example = Some(example.clone());
        }
    }
}

fn apply() -> Apply {
    let container = ContainerSpec { image: "nginx:1.27".to_owned(), ..ContainerSpec::default() };
    let hash = SpecHash::of(&container);
    let spec = ServiceSpec::new(container, hash, Mode::Spread { replicas: 1 });
    let web = ServiceName::new("web").expect("it is a name");
    Apply { services: [(web, spec)].into(), routes: Vec::new(), expect: None }
}
