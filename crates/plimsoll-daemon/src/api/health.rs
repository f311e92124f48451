//! Whether the daemon is alive and can serve, and what it can be asked.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::{Method, StatusCode, Uri};
use plimsoll_runtime::chain;
use tokio::time::timeout;

use super::answer::{Failure, json, with_type};
use super::context::{Context, VERSION};
use crate::view::{Problem, Ready, Reason};

/// A runtime that takes longer to say who it is does not answer.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; charset=utf-8";

/// A few words for whoever looks
#[utoipa::path(get, path = "/", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn index() -> Response {
    let text = format!(
        "plimsoll {VERSION}\n\n\
         GET /v1/status      everything at a glance\n\
         GET /v1/watch       what changes, as server-sent events\n\
         GET /openapi.json   all there is\n\
         GET /readyz         whether this node can serve\n"
    );
    with_type(TEXT, Body::from(text))
}

/// Whether the daemon is alive: it answers, so it is
#[utoipa::path(get, path = "/healthz", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn healthz() -> Response {
    with_type(TEXT, Body::from("alive\n"))
}

/// Whether this node can serve: a leader is known, and the runtime answers
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = Ready), (status = 503, body = Ready)))]
pub(super) async fn readyz(State(context): State<Arc<Context>>) -> Response {
    let here = context.here();
    let mut why = Vec::new();
    let mut lacks = |subject: &str, word: &str, text: String| {
        why.push(Reason { subject: subject.to_owned(), word: word.to_owned(), text });
    };
    if here.leader.is_none() {
        lacks("cell", "no_leader", "no server leads at the moment".to_owned());
    }
    let runtime = match timeout(RUNTIME_PATIENCE, context.cell.runtime.describe()).await {
        Ok(Ok(description)) => Some(format!("{} {}", description.name, description.version)),
        Ok(Err(error)) => {
            lacks("runtime", "runtime_unavailable", chain(&error));
            None
        }
        Err(_) => {
            let text = format!("it did not answer within {} s", RUNTIME_PATIENCE.as_secs());
            lacks("runtime", "runtime_unavailable", text);
            None
        }
    };
    let is_ready = why.is_empty();
    let (term, applied) = (here.term, here.applied);
    let ready = Ready { is_ready, leader: here.leader, term, applied, runtime, why };
    let mut response = json(&ready);
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

pub(super) async fn no_such_path(uri: Uri) -> Response {
    let problem = Problem::refusal("no_such_path", format!("there is nothing at {}", uri.path()))
        .hint("see /openapi.json for the paths there are");
    Failure(StatusCode::NOT_FOUND, problem).into_response()
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    let problem =
        Problem::refusal("no_such_method", message).hint("see /openapi.json for what it takes");
    Failure(StatusCode::METHOD_NOT_ALLOWED, problem).into_response()
}
