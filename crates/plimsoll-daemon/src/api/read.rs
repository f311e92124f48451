//! Reads: how things are.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use hyper::header::ACCEPT;
use plimsoll_kernel::Policy;
use plimsoll_model::{DeploymentName, Happening};

use super::answer::Answer;
use super::context::Context;
use super::extract::{Asked, Named};
use super::watching;
use crate::operations::{self, find_replica, no_such_deployment};
use crate::view::{self, build};

/// How many audit events are told when nobody says.
const DEFAULT_AUDIT: u32 = 1_000;

/// Everything: the cell, its nodes, its deployments
#[utoipa::path(get, path = "/v1/status", tag = "read",
    responses((status = 200, body = view::Status), (status = "default", body = view::Problem)))]
pub(super) async fn status(State(context): State<Arc<Context>>) -> Answer {
    context.look(|source| Ok(source.status())).await
}

/// The nodes of the cell
#[utoipa::path(get, path = "/v1/nodes", tag = "read",
    responses((status = 200, body = Vec<view::Node>), (status = "default", body = view::Problem)))]
pub(super) async fn nodes(State(context): State<Arc<Context>>) -> Answer {
    context.look(|source| Ok(source.nodes())).await
}

/// The deployments, also those that are deleted and still stop
#[utoipa::path(get, path = "/v1/deployments", tag = "read",
    responses((status = 200, body = Vec<view::Deployment>), (status = "default", body = view::Problem)))]
pub(super) async fn deployments(State(context): State<Arc<Context>>) -> Answer {
    context.look(|source| Ok(source.deployments())).await
}

/// One deployment
#[utoipa::path(get, path = "/v1/deployments/{name}", tag = "read", params(("name" = String, Path)),
    responses((status = 200, body = view::Deployment), (status = 404, body = view::Problem)))]
pub(super) async fn deployment(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    context
        .look(move |source| {
            // Also one that is deleted and still stops, which the state knows only by its services.
            let found = DeploymentName::new(&name).ok().and_then(|name| source.deployment(&name));
            found.ok_or_else(|| no_such_deployment(source.state, &name).into())
        })
        .await
}

/// The revisions that are kept, the newest first
#[utoipa::path(get, path = "/v1/deployments/{name}/history", tag = "read",
    params(("name" = String, Path)),
    responses((status = 200, body = Vec<view::Revision>), (status = 404, body = view::Problem)))]
pub(super) async fn history(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    context.look(move |source| Ok(operations::history(source.state, &name)?)).await
}

/// What a revision asked for, without what might be a secret
#[utoipa::path(get, path = "/v1/deployments/{name}/revisions/{revision}", tag = "read",
    params(("name" = String, Path), ("revision" = u64, Path)),
    responses((status = 200, body = view::RevisionSpecs), (status = 404, body = view::Problem)))]
pub(super) async fn revision(
    State(context): State<Arc<Context>>,
    Named((name, revision)): Named<(String, u64)>,
) -> Answer {
    context.look(move |source| Ok(operations::revision(source.state, &name, revision)?)).await
}

/// All replicas
#[utoipa::path(get, path = "/v1/replicas", tag = "read",
    responses((status = 200, body = Vec<view::Replica>), (status = "default", body = view::Problem)))]
pub(super) async fn replicas(State(context): State<Arc<Context>>) -> Answer {
    context.look(|source| Ok(source.replicas())).await
}

/// One replica
#[utoipa::path(get, path = "/v1/replicas/{id}", tag = "read", params(("id" = String, Path)),
    responses((status = 200, body = view::Replica), (status = 404, body = view::Problem)))]
pub(super) async fn replica(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    context
        .look(move |source| {
            let id = find_replica(source.state, &name)?;
            Ok(source.replica(&id).expect("it was found in this state"))
        })
        .await
}

/// Why a replica is where it is, with every node's filter or score
#[utoipa::path(get, path = "/v1/explain/{replica}", tag = "read",
    params(("replica" = String, Path)),
    responses((status = 200, body = view::Explanation), (status = 404, body = view::Problem)))]
pub(super) async fn explain(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    context
        .look(move |source| {
            let id = find_replica(source.state, &name)?;
            let explained = build::explanation(source, &Policy::default(), &id);
            Ok(explained.expect("it was found in this state"))
        })
        .await
}

/// Which HTTP requests go to which service
#[utoipa::path(get, path = "/v1/routes", tag = "read",
    responses((status = 200, body = Vec<view::Route>), (status = "default", body = view::Problem)))]
pub(super) async fn routes(State(context): State<Arc<Context>>) -> Answer {
    context.look(|source| Ok(build::routes(source))).await
}

/// Where a request goes, and why nowhere else
#[utoipa::path(get, path = "/v1/routes/explain", tag = "read", params(view::RouteQuery),
    responses((status = 200, body = view::RouteExplanation), (status = 404, body = view::Problem)))]
pub(super) async fn explain_route(
    State(context): State<Arc<Context>>,
    Asked(query): Asked<view::RouteQuery>,
) -> Answer {
    let verdicts = context.routing.get().and_then(|it| it.explain(&query.host, &query.path));
    context
        .look(move |source| {
            let found = build::explain_route(source, &query, verdicts.as_ref());
            found.ok_or_else(|| operations::no_such_route(source.state, &query).into())
        })
        .await
}

/// Why nothing moves off a node that is hot, or what does: every gate of the rebalancer with its number and its limit
#[utoipa::path(get, path = "/v1/nodes/{node}/explain", tag = "read", params(("node" = String, Path)),
    responses((status = 200, body = view::NodeAccount), (status = 404, body = view::Problem)))]
pub(super) async fn explain_node(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    let soft = Arc::clone(&context.cell.soft);
    context
        .look(move |source| {
            let node = operations::find_node(source.state, &name)?;
            let relief = soft.relief();
            let account = relief.as_ref().and_then(|relief| relief.account(source, &node));
            Ok(build::account(&node, account.as_ref()))
        })
        .await
}

/// A kind that nobody knows would never come, and whoever asks would wait for it.
fn known(kinds: &BTreeSet<String>) -> Result<(), operations::Error> {
    let words = Happening::WORDS;
    match kinds.iter().find(|kind| !words.contains(&kind.as_str())) {
        None => Ok(()),
        Some(kind) => {
            let hint = format!("there are {}", words.join(", "));
            Err(operations::Error::NoSuchKind { kind: kind.clone(), hint })
        }
    }
}

/// What happened, oldest first; followed as server-sent events where that is asked for or accepted
#[utoipa::path(get, path = "/v1/audit", tag = "read", params(view::AuditQuery),
    responses((status = 200, body = Vec<view::AuditEvent>), (status = "default", body = view::Problem)))]
pub(super) async fn audit(
    State(context): State<Arc<Context>>,
    Asked(query): Asked<view::AuditQuery>,
    headers: HeaderMap,
) -> Answer {
    let kinds = query.kinds.as_deref().unwrap_or_default();
    let kinds: BTreeSet<String> = kinds
        .split(',')
        .map(str::trim)
        .filter(|kind| !kind.is_empty())
        .map(str::to_owned)
        .collect();
    known(&kinds)?;
    let limit = usize::try_from(query.limit.unwrap_or(DEFAULT_AUDIT)).unwrap_or(usize::MAX);
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if query.follow || accept.contains("text/event-stream") {
        return Ok(watching::follow_audit(&context, query.since, kinds, limit, &headers));
    }
    context.look(move |source| Ok(build::audit(source.state, query.since, &kinds, limit))).await
}
