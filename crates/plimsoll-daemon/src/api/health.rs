//! Whether the daemon is alive and can serve, and what it can be asked.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::{Method, StatusCode, Uri};
use plimsoll_model::access::Digest;
use plimsoll_runtime::chain;
use plimsoll_store::Role;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::answer::{Failure, json, with_type};
use super::context::{Context, VERSION};
use super::extract::Asked;
use crate::view::freshness::MAX_LAG;
use crate::view::{Freshness, Health, HealthQuery, Problem, Ready, Reason};

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
         GET /readyz         whether this node can serve\n\
         GET /metrics        how it stands in its cell, in numbers\n"
    );
    with_type(TEXT, Body::from(text))
}

/// Whether the daemon is alive: it answers, so it is; and how it stands in its cell
#[utoipa::path(get, path = "/healthz", tag = "health", params(HealthQuery),
    responses((status = 200, body = Health)))]
pub(super) async fn healthz(
    State(context): State<Arc<Context>>,
    Asked(query): Asked<HealthQuery>,
) -> Response {
    json(&health(&context, &query).await)
}

/// Whether this node can serve: a leader is known, it is not far behind, and the runtime answers
#[utoipa::path(get, path = "/readyz", tag = "health", params(HealthQuery),
    responses((status = 200, body = Ready), (status = 503, body = Ready)))]
pub(super) async fn readyz(
    State(context): State<Arc<Context>>,
    Asked(query): Asked<HealthQuery>,
) -> Response {
    let health = health(&context, &query).await;
    let mut why = Vec::new();
    let mut lacks = |subject: &str, word: &str, text: String| {
        why.push(Reason { subject: subject.to_owned(), word: word.to_owned(), text });
    };
    if health.leader.is_none() {
        let problem = context.leaderless();
        lacks("cell", &problem.code, problem.message);
    }
    if health.lag > MAX_LAG {
        let text = format!("it lacks {} entries, more than {MAX_LAG}", health.lag);
        lacks("node", "lagging", text);
    }
    let runtime = runtime(&context).await;
    if let Err(text) = &runtime {
        lacks("runtime", "runtime_unavailable", text.clone());
    }
    let ready = Ready { is_ready: why.is_empty(), health, runtime: runtime.ok(), why };
    let mut response = json(&ready);
    if !ready.is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

/// What runs containers here, or what it says instead.
async fn runtime(context: &Context) -> Result<String, String> {
    match timeout(RUNTIME_PATIENCE, context.cell.runtime.describe()).await {
        Ok(Ok(description)) => Ok(format!("{} {}", description.name, description.version)),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err(format!("it did not answer within {} s", RUNTIME_PATIENCE.as_secs())),
    }
}

pub(super) async fn health(context: &Arc<Context>, query: &HealthQuery) -> Health {
    let standing = context.cell.engine.standing();
    let holds_log = context.cell.holds_log();
    let Freshness { node, leader, term, heard_ms, .. } = context.freshness();
    let hashed = if query.hash { hash(context).await } else { None };
    let (applied, hash) = hashed.map_or((standing.applied, None), |(at, it)| (at, Some(it)));
    let committed = standing.committed.max(applied);
    Health {
        node,
        version: VERSION.to_owned(),
        role: if holds_log { standing.role } else { Role::Agent }.word().to_owned(),
        leader,
        term,
        applied,
        committed,
        last: standing.last.max(applied),
        lag: committed - applied,
        heard_ms,
        hash,
        tenure: context.tenure(),
    }
}

/// The state's hash and the index it is of. One at a time: anyone may ask, and it is work.
async fn hash(context: &Arc<Context>) -> Option<(u64, String)> {
    let mut last = context.hashed.lock().await;
    let applied = *context.cell.engine.machine().applied().borrow();
    if last.as_ref().is_none_or(|(at, _)| *at != applied) {
        let machine = Arc::clone(context.cell.engine.machine());
        let hashing = tokio::task::spawn_blocking(move || {
            let (bytes, at) = machine.read_at(|state, at| (postcard::to_stdvec(state), at));
            let digest = Digest(Sha256::digest(bytes.ok()?).into());
            Some((at, digest.to_string()))
        });
        *last = hashing.await.ok().flatten();
    }
    last.clone()
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
