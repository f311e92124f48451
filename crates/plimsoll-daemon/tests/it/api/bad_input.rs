//! What is not as it should be: every answer is a problem with a code, and where possible the next step.

use std::fmt::Write as _;

use expect_test::expect;
use plimsoll_api::client::{Client, Endpoint, Error};
use plimsoll_api::view::Problem;
use plimsoll_daemon::api::MAX_BODY;
use plimsoll_model::testkit::spread;

use super::support::{apply, daemon, daemon_without_a_leader, said};

fn request(line: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_request_is_answered_with_a_problem() {
    let daemon = daemon().await;
    daemon.apply("shop", [("web", spread(1))]).await;
    let mut shown = String::new();
    for (line, body) in [
        ("GET /nowhere", ""),
        ("POST /v1/status", ""),
        ("PUT /v1/deployments/shop", "{\"services\":"),
        ("PUT /v1/deployments/shop", "{}"),
        ("PUT /v1/deployments/shop", "{\"services\":{\"web\":3}}"),
        ("PUT /v1/deployments/Shop%20No", "{\"services\":{}}"),
        ("POST /v1/deployments/shop/scale", "{\"services\":{\"web\":-1}}"),
        ("POST /v1/deployments/shop/scale", "{\"services\":{}}"),
        ("GET /v1/deployments/shop/revisions/one", ""),
        ("GET /v1/deployments/shop/logs?since=yesterday", ""),
        ("GET /v1/deployments/shop/logs?follow=maybe", ""),
        ("GET /v1/audit?limit=many", ""),
        ("POST /v1/replicas/shop-web-9/exec", "{\"command\":[]}"),
    ] {
        let (status, answer) = daemon.raw(request(line, body)).await;
        let problem: Problem = serde_json::from_str(&answer).expect(&answer);
        assert!(problem.is_refusal, "{line}");
        let _ = writeln!(shown, "{line} → {status} {}: {}", problem.code, problem.message);
    }
    expect![[r#"
        GET /nowhere → 404 no_such_path: there is nothing at /nowhere
        POST /v1/status → 405 no_such_method: /v1/status does not take POST
        PUT /v1/deployments/shop → 400 bad_json: the body cannot be read: services: EOF while parsing a value at line 1 column 12
        PUT /v1/deployments/shop → 400 bad_json: the body cannot be read: missing field `services` at line 1 column 2
        PUT /v1/deployments/shop → 400 bad_json: the body cannot be read: services.web: expected struct ServiceSpec at line 1 column 20
        PUT /v1/deployments/Shop%20No → 400 bad_name: deployment name "Shop No" has 'S'; use lower-case letters, digits, '-' and '_', starting with a letter or digit
        POST /v1/deployments/shop/scale → 400 bad_json: the body cannot be read: services.web: expected u32 at line 1 column 21
        POST /v1/deployments/shop/scale → 422 nothing_to_scale: it names no service to scale
        GET /v1/deployments/shop/revisions/one → 400 bad_path: Invalid URL: Cannot parse value at index 1 with value `one` to a `u64`
        GET /v1/deployments/shop/logs?since=yesterday → 400 bad_query: Failed to deserialize query string: since: failed to parse four digit integer as year: invalid digit, expected 0-9 but got y
        GET /v1/deployments/shop/logs?follow=maybe → 400 bad_query: Failed to deserialize query string: follow: "maybe" is neither true nor false
        GET /v1/audit?limit=many → 400 bad_query: Failed to deserialize query string: limit: invalid digit found in string
        POST /v1/replicas/shop-web-9/exec → 422 no_command: there is no command to run
    "#]].assert_eq(&shown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_too_large_is_refused_with_its_size_and_the_limit() {
    let daemon = daemon().await;
    let mut spec = spread(1);
    spec.container.environment.insert("BIG".to_owned(), "x".repeat(MAX_BODY));
    let refused = said(daemon.client.apply("shop", &apply([("web", spec)])).await);
    assert!(refused.starts_with("too_large: the request has 16"), "{refused}");
    assert!(refused.contains("bytes, at most 16777216 are allowed\nhint: "), "{refused}");
    assert_eq!(daemon.client.deployments().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_daemon_is_told_what_to_start() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::new(Endpoint::Unix(dir.path().join("none.sock")));
    let error = client.status().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && !error.is_refusal(), "{error}");
    assert_eq!(error.hint().as_deref(), Some("is the daemon running? start it with `plimsoll up`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_nothing_is_written_and_it_is_said_so() {
    let daemon = daemon_without_a_leader().await;
    expect![[r"
        no_leader: the cell has no leader
        hint: an election takes about a second: retry; `plimsoll cell status` shows the servers"]]
    .assert_eq(&said(daemon.client.apply("shop", &apply([("web", spread(1))])).await));
    let (status, _) = daemon.raw(request("GET /readyz", "")).await;
    assert_eq!(status, 503);
    let ready = daemon.client.ready(false).await.unwrap();
    assert_eq!(
        (ready.is_ready, ready.health.leader, ready.why[0].word.word()),
        (false, None, "no_leader")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_stopped_answers_that_it_is() {
    let daemon = daemon().await;
    daemon.cell.engine.shutdown().await.unwrap();
    let refused = said(daemon.client.apply("shop", &apply([("web", spread(1))])).await);
    assert!(refused.starts_with("stopped: ") && refused.contains("hint: "), "{refused}");
    let (status, _) = daemon.raw(request("DELETE /v1/deployments/none", "")).await;
    assert_eq!(status, 404, "what can be answered still is");
}
