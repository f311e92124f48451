//! Whether the daemon is alive and can serve, and what it can be asked.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use plimsoll_model::access::Digest;
use plimsoll_runtime::chain;
use plimsoll_store::ServerRole;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::answer::{ErrorResponse, json, with_type};
use super::context::{Context, VERSION};
use super::dashboard;
use super::extract::QueryParams;
use crate::clock::{CLOCK, machine_time};
use plimsoll_api::view::freshness::MAX_LAG;
use plimsoll_api::view::{
    Freshness, Health, HealthQuery, Problem, ProblemCode, Ready, Reason, ReasonCode, Time,
};

/// A runtime that takes longer to say who it is does not answer.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; charset=utf-8";

/// The dashboard for a browser, a short list of endpoints for anyone else
#[utoipa::path(get, path = "/", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn index(headers: HeaderMap) -> Response {
    if dashboard::is_browser(&headers) {
        return dashboard::index();
    }
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
    QueryParams(query): QueryParams<HealthQuery>,
) -> Response {
    let mut response = json(&health(&context, &query).await);
    if let Ok(time) = HeaderValue::try_from(Time(machine_time()).to_string()) {
        response.headers_mut().insert(CLOCK, time);
    }
    response
}

/// Whether this node can serve: a leader is known, it is not far behind, and the runtime answers
#[utoipa::path(get, path = "/readyz", tag = "health", params(HealthQuery),
    responses((status = 200, body = Ready), (status = 503, body = Ready)))]
pub(super) async fn readyz(
    State(context): State<Arc<Context>>,
    QueryParams(query): QueryParams<HealthQuery>,
) -> Response {
    let health = health(&context, &query).await;
    let mut why = Vec::new();
    let mut lacks = |subject: &str, word: ReasonCode, text: String| {
        why.push(Reason::new(subject, word, text));
    };
    if let Some(problem) = context.impaired() {
        lacks("cell", code(problem.code), problem.message);
    } else if health.leader.is_none() {
        let problem = context.leaderless();
        lacks("cell", code(problem.code), problem.message);
    }
    if health.lag > MAX_LAG {
        let text = format!("it lacks {} entries, more than {MAX_LAG}", health.lag);
        lacks("node", ReasonCode::Lagging, text);
    }
    let runtime = runtime(&context).await;
    if let Err(text) = &runtime {
        lacks("runtime", ReasonCode::RuntimeUnavailable, text.clone());
    }
    let ready = Ready { is_ready: why.is_empty(), health, runtime: runtime.ok(), why };
    let mut response = json(&ready);
    if !ready.is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

/// Why no leader is known, or nothing is written though one is.
fn code(problem: ProblemCode) -> ReasonCode {
    match problem {
        ProblemCode::LogLost => ReasonCode::LogLost,
        ProblemCode::DiskFull => ReasonCode::DiskFull,
        ProblemCode::Disk => ReasonCode::DiskFailed,
        ProblemCode::StoreFull => ReasonCode::StoreFull,
        ProblemCode::QuorumLost => ReasonCode::QuorumLost,
        ProblemCode::Superseded => ReasonCode::Superseded,
        ProblemCode::Outdated => ReasonCode::NodeOutdated,
        _ => ReasonCode::NoLeader,
    }
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
    let position = context.cell.engine.log_position();
    let holds_log = context.cell.holds_log();
    let Freshness { node, leader, term, heard_ms, .. } = context.freshness();
    let hashed = if query.hash { hash(context).await } else { None };
    let (applied, hash) = hashed.map_or((position.applied, None), |(at, it)| (at, Some(it)));
    let committed = position.committed.max(applied);
    Health {
        node,
        version: VERSION.to_owned(),
        role: if holds_log { position.role } else { ServerRole::Agent }.word().to_owned(),
        leader,
        term,
        applied,
        committed,
        last: position.last.max(applied),
        lag: committed - applied,
        heard_ms,
        hash,
        trouble: context.impaired().map(|problem| problem.code),
        tenure: context.leadership_info(),
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
    let problem =
        Problem::new(ProblemCode::NoSuchPath, format!("there is nothing at {}", uri.path()));
    ErrorResponse(problem).into_response()
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    ErrorResponse(Problem::new(ProblemCode::NoSuchMethod, message)).into_response()
}
