//! Reads: how things are.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use hyper::header::ACCEPT;
use plimsoll_model::{AuditKind, DeploymentName, NodeId};

use super::answer::{Answer, json};
use super::context::Context;
use super::extract::{Json, Named, QueryParams};
use super::scope::{self, Within};
use super::watching;
use crate::operations::{self, find_replica, no_such_deployment};
use crate::views::{self, Source, Subjects};
use plimsoll_api::view;

/// How many audit events are told when nobody says.
const DEFAULT_AUDIT: u32 = 1_000;

/// Everything: the cell, its nodes, its deployments; or one deployment and the nodes that hold it
#[utoipa::path(get, path = "/v1/status", tag = "read", params(view::StatusQuery),
    responses((status = 200, body = view::Status)))]
pub(super) async fn status(
    State(context): State<Arc<Context>>,
    QueryParams(query): QueryParams<view::StatusQuery>,
    within: Within,
) -> Answer {
    let Some(name) = query.deployment else {
        return context
            .look(move |source| {
                let mut status = source.status();
                status.deployments.retain(|deployment| within.0.admits(&deployment.name));
                Ok(status)
            })
            .await;
    };
    scope::check(&within, &name)?;
    let name = DeploymentName::new(&name).map_err(operations::Error::Name)?;
    let view = |source: &Source<'_>, name: &_| Ok(source.status_of(name));
    context.look_at(name, Subjects::of_deployment, view).await
}

/// The nodes of the cell
#[utoipa::path(get, path = "/v1/nodes", tag = "read", params(view::NodeQuery),
    responses((status = 200, body = Vec<view::Node>)))]
pub(super) async fn nodes(
    State(context): State<Arc<Context>>,
    QueryParams(query): QueryParams<view::NodeQuery>,
) -> Answer {
    let Some(name) = query.name else {
        let page = view::Page::new(query.limit, query.offset);
        return context.look_at_list(page, |source| Ok(source.nodes())).await;
    };
    let name = NodeId::new(&name).map_err(operations::Error::Name)?;
    let view = |source: &Source<'_>, name: &_| Ok(Vec::from_iter(source.node(name)));
    context.look_at(name, |_, name| Subjects::only_node(name.clone()), view).await
}

/// The deployments, also those that are deleted and still stop
#[utoipa::path(get, path = "/v1/deployments", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::Deployment>)))]
pub(super) async fn deployments(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
    Within(scope): Within,
) -> Answer {
    context
        .look_at_list(page, move |source| {
            let mut deployments = source.deployments();
            deployments.retain(|deployment| scope.admits(&deployment.name));
            Ok(deployments)
        })
        .await
}

/// One deployment
#[utoipa::path(get, path = "/v1/deployments/{name}", tag = "read", params(("name" = String, Path)),
    responses((status = 200, body = view::Deployment), (status = 404, body = view::Problem)))]
pub(super) async fn deployment(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    let Ok(known) = DeploymentName::new(&name) else {
        return context
            .look(move |source| Err::<(), _>(no_such_deployment(source.state, &name).into()))
            .await;
    };
    let view = |source: &Source<'_>, name: &DeploymentName| {
        // Also one that is deleted and still stops, which the state knows only by its services.
        let found = source.deployment(name);
        found.ok_or_else(|| no_such_deployment(source.state, name.as_str()).into())
    };
    context.look_at(known, Subjects::of_deployment, view).await
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

/// All replicas, or those that a node holds
#[utoipa::path(get, path = "/v1/replicas", tag = "read", params(view::ReplicaQuery),
    responses((status = 200, body = Vec<view::Replica>)))]
pub(super) async fn replicas(
    State(context): State<Arc<Context>>,
    QueryParams(query): QueryParams<view::ReplicaQuery>,
    Within(scope): Within,
) -> Answer {
    let page = view::Page::new(query.limit, query.offset);
    let own = move |source: &Source<'_>, mut replicas: Vec<view::Replica>| {
        let is_own = |replica: &view::Replica| {
            let id = source.state.find_replica(&replica.id);
            id.is_some_and(|id| scope.admits(id.service.deployment.as_str()))
        };
        if scope.is_bound() {
            replicas.retain(is_own);
        }
        Ok(replicas)
    };
    let Some(node) = query.node else {
        return context.look_at_list(page, move |source| own(source, source.replicas())).await;
    };
    let node = NodeId::new(&node).map_err(operations::Error::Name)?;
    let view = move |source: &Source<'_>, node: &_| own(source, source.replicas_on(node));
    context.look_at_list_of(node, Subjects::of_node, page, view).await
}

/// One replica
#[utoipa::path(get, path = "/v1/replicas/{id}", tag = "read", params(("id" = String, Path)),
    responses((status = 200, body = view::Replica), (status = 404, body = view::Problem)))]
pub(super) async fn replica(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    let subjects = |state: &plimsoll_model::State, name: &String| {
        let found = state.find_replica(name);
        found.map(|id| Subjects::of_replica(state, &id)).unwrap_or_default()
    };
    let view = |source: &Source<'_>, name: &String| {
        let id = find_replica(source.state, name)?;
        Ok(source.replica(&id).expect("it was found in this state"))
    };
    context.look_at(name, subjects, view).await
}

/// Why a replica is where it is, with every node's filter or score
#[utoipa::path(get, path = "/v1/explain/{replica}", tag = "read",
    params(("replica" = String, Path)),
    responses((status = 200, body = view::Explanation), (status = 404, body = view::Problem)))]
pub(super) async fn explain(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    let leader = context.cell.leader.clone();
    context
        .look(move |source| {
            let id = find_replica(source.state, &name)?;
            let (state, now) = (source.state, source.here.now);
            let leader = leader.lock();
            let verdict =
                leader.as_ref().and_then(|leader| leader.reschedule_verdict(state, &id, now));
            drop(leader);
            let explained = views::explanation(source, &id, verdict.as_ref());
            Ok(explained.expect("it was found in this state"))
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
    let leader = context.cell.leader.clone();
    context
        .look(move |source| {
            let node = operations::find_node(source.state, &name)?;
            let leader = leader.lock();
            let (state, now) = (source.state, source.here.now);
            let weighing = leader.as_ref().and_then(|leader| leader.weigh(state, &node, now));
            Ok(views::account(source, &node, weighing.as_ref()))
        })
        .await
}

/// How busy nodes are, smoothed as the rebalancer has it, and how busy they were in the last hour, as far as the leader has led
#[utoipa::path(get, path = "/v1/pressure", tag = "read", params(view::PressureQuery),
    responses((status = 200, body = view::CellPressure)))]
pub(super) async fn pressure(
    State(context): State<Arc<Context>>,
    QueryParams(query): QueryParams<view::PressureQuery>,
) -> Answer {
    let (leader, history) = (context.cell.leader.clone(), context.cell.pressure_history.clone());
    context
        .look(move |source| {
            let leader = leader.lock();
            let rebalancer = leader.as_ref().map(plimsoll_kernel::Leader::rebalancer);
            Ok(history.lock().told(source.state, rebalancer, source.policy, &query))
        })
        .await
}

/// The cell as a case: what it decides next can be decided anywhere
#[utoipa::path(get, path = "/v1/snapshot", tag = "read",
    responses((status = 200, body = view::Snapshot)))]
pub(super) async fn snapshot(State(context): State<Arc<Context>>) -> Answer {
    let leader = context.cell.leader.clone();
    context
        .look(move |source| {
            let (state, policy, now) = (source.state, source.policy, source.here.now);
            let leader = leader.lock();
            let rebalancer =
                operations::rebalancer(leader.as_ref(), state, policy, source.measured);
            let (memory, cycle) = rebalancer.next_cycle(state, policy, now);
            Ok(view::Snapshot::of(state, &memory, &cycle))
        })
        .await
}

/// What would come of something, by the leader's own decisions; nothing is done
#[utoipa::path(post, path = "/v1/what-if", tag = "read", request_body = view::WhatIf,
    responses((status = 200, body = view::Forecast), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem), (status = 422, body = view::Problem)))]
pub(super) async fn what_if(
    State(context): State<Arc<Context>>,
    Json(asked): Json<view::WhatIf>,
) -> Answer {
    Ok(json(&operations::what_if(&context.cell, asked).await?))
}

/// Which HTTP requests go to which service
#[utoipa::path(get, path = "/v1/routes", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::Route>)))]
pub(super) async fn routes(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
    Within(scope): Within,
) -> Answer {
    context
        .look_at_list(page, move |source| {
            let mut routes = views::routes(source);
            routes.retain(|route| scope.admits(&route.deployment));
            Ok(routes)
        })
        .await
}

/// Where a request goes, and why nowhere else
#[utoipa::path(get, path = "/v1/routes/explain", tag = "read", params(view::RouteQuery),
    responses((status = 200, body = view::RouteExplanation), (status = 404, body = view::Problem)))]
pub(super) async fn explain_route(
    State(context): State<Arc<Context>>,
    QueryParams(query): QueryParams<view::RouteQuery>,
) -> Answer {
    let verdicts = context.routing.get().and_then(|it| it.explain(&query.host, &query.path));
    context
        .look(move |source| {
            let found = views::explain_route(source, &query, verdicts.as_ref());
            found.ok_or_else(|| operations::no_such_route(source.state, &query).into())
        })
        .await
}

/// Certificates of routes: who issued them, when they run out, and what last went wrong
#[utoipa::path(get, path = "/v1/certificates", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::Certificate>)))]
pub(super) async fn certificates(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
    Within(scope): Within,
) -> Answer {
    context
        .look_at_list(page, move |source| {
            let mut all = views::certificates(source);
            for one in &mut all {
                one.deployments.retain(|deployment| scope.admits(deployment));
            }
            all.retain(|one| !one.deployments.is_empty());
            Ok(all)
        })
        .await
}

/// A kind that nobody knows would never come, and whoever asks would wait for it.
fn known(kinds: &BTreeSet<String>) -> Result<(), operations::Error> {
    let words = AuditKind::WORDS;
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
    responses(
        (status = 200, content((Vec<view::AuditEvent> = "application/json"), (view::AuditEvent = "text/event-stream"))),
        (status = 422, body = view::Problem)))]
pub(super) async fn audit(
    State(context): State<Arc<Context>>,
    QueryParams(query): QueryParams<view::AuditQuery>,
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
    let span = views::AuditSpan { since: query.since, before: query.before };
    context.look(move |source| Ok(views::audit(source.state, span, &kinds, limit))).await
}
