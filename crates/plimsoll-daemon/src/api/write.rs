//! Writes: what people ask the cell to do.

use std::sync::Arc;

use axum::extract::State;
use plimsoll_model::{Availability, DeploymentName};
use serde::Deserialize;

use super::answer::{Answer, ErrorResponse, json};
use super::apply_body;
use super::context::Context;
use super::extract::{By, Json, MaybeJson, Named, QueryParams, Whole};
use crate::{image_lookup, operations};
use plimsoll_api::view::{self, flag};

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ApplyQuery {
    /// Only say what would be done.
    #[serde(default, deserialize_with = "flag")]
    dry_run: bool,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteQuery {
    /// Remove its named volumes as well.
    #[serde(default, deserialize_with = "flag")]
    volumes: bool,
}

/// Make a deployment what a file says, or what a revision said
#[utoipa::path(put, path = "/v1/deployments/{name}", tag = "write",
    params(("name" = String, Path), ApplyQuery), request_body = view::spec::ApplyRequest,
    responses((status = 200, body = view::Applied), (status = 409, body = view::Problem),
        (status = 422, body = view::Problem)))]
pub(super) async fn apply(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    QueryParams(query): QueryParams<ApplyQuery>,
    By(caller): By,
    Whole(body): Whole,
) -> Answer {
    let kept = |revision| {
        let of = DeploymentName::new(&name).ok()?;
        context.cell.engine.machine().read(|state| {
            let record = state.deployments().get(&of)?.history.get(&revision)?;
            Some(record.services.clone())
        })
    };
    let apply = apply_body::read(&body, kept)?;
    let asked = operations::check_apply(&context.cell, &caller, &name, apply)?;
    let client = context.client.get();
    let images = image_lookup::resolve(&context.cell, client, asked.services()).await;
    if query.dry_run {
        let planning = tokio::task::spawn_blocking(move || {
            let planned = operations::dry_run(&context.cell, &caller, asked, &images);
            planned.map(|applied| json(&applied))
        });
        let planned = planning.await.map_err(|_| {
            ErrorResponse::from(view::Problem::new(
                view::ProblemCode::Bug,
                "the plan could not be made",
            ))
        })?;
        return Ok(planned?);
    }
    Ok(json(&operations::apply(&context.cell, &caller, asked, &images).await?))
}

/// End a deployment
#[utoipa::path(delete, path = "/v1/deployments/{name}", tag = "write",
    params(("name" = String, Path), DeleteQuery),
    responses((status = 200, body = view::Deleted), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem)))]
pub(super) async fn delete(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    QueryParams(query): QueryParams<DeleteQuery>,
    By(caller): By,
) -> Answer {
    Ok(json(&operations::delete(&context.cell, &caller, &name, query.volumes).await?))
}

/// Change how many replicas services have
#[utoipa::path(post, path = "/v1/deployments/{name}/scale", tag = "write",
    params(("name" = String, Path)), request_body = view::Scale,
    responses((status = 200, body = view::Applied), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem), (status = 422, body = view::Problem)))]
pub(super) async fn scale(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
    Json(scale): Json<view::Scale>,
) -> Answer {
    Ok(json(&operations::scale(&context.cell, &caller, &name, &scale).await?))
}

/// Go back to an earlier revision
#[utoipa::path(post, path = "/v1/deployments/{name}/rollback", tag = "write",
    params(("name" = String, Path)), request_body = view::Rollback,
    responses((status = 200, body = view::Applied), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem)))]
pub(super) async fn rollback(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
    MaybeJson(back): MaybeJson<view::Rollback>,
) -> Answer {
    Ok(json(&operations::rollback(&context.cell, &caller, &name, &back).await?))
}

/// Restart replicas, one after another
#[utoipa::path(post, path = "/v1/deployments/{name}/restart", tag = "write",
    params(("name" = String, Path)), request_body = view::Restart,
    responses((status = 200, body = view::Restarted), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem), (status = 422, body = view::Problem)))]
pub(super) async fn restart(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
    MaybeJson(restart): MaybeJson<view::Restart>,
) -> Answer {
    Ok(json(&operations::restart(&context.cell, &caller, &name, &restart).await?))
}

/// Pause, resume or abort rollouts
#[utoipa::path(post, path = "/v1/deployments/{name}/rollout", tag = "write",
    params(("name" = String, Path)), request_body = view::ChangeRollout,
    responses((status = 200, body = view::RolloutChanged), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem)))]
pub(super) async fn rollout(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
    Json(asked): Json<view::ChangeRollout>,
) -> Answer {
    Ok(json(&operations::change_rollout(&context.cell, &caller, &name, &asked).await?))
}

/// Mark a node unschedulable
#[utoipa::path(post, path = "/v1/nodes/{name}/cordon", tag = "write",
    params(("name" = String, Path)),
    responses((status = 200, body = view::NodeChanged), (status = 404, body = view::Problem)))]
pub(super) async fn cordon(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
) -> Answer {
    let to = Availability::Cordoned;
    Ok(json(&operations::set_availability(&context.cell, &caller, &name, to).await?))
}

/// Have a node take replicas again
#[utoipa::path(post, path = "/v1/nodes/{name}/uncordon", tag = "write",
    params(("name" = String, Path)),
    responses((status = 200, body = view::NodeChanged), (status = 404, body = view::Problem)))]
pub(super) async fn uncordon(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
) -> Answer {
    let to = Availability::Active;
    Ok(json(&operations::set_availability(&context.cell, &caller, &name, to).await?))
}

/// Have a node give away what it runs, or only say what would come of it
#[utoipa::path(post, path = "/v1/nodes/{name}/drain", tag = "write",
    params(("name" = String, Path), ApplyQuery), request_body = view::Drain,
    responses((status = 200, body = view::DrainPlan), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem)))]
pub(super) async fn drain(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    QueryParams(query): QueryParams<ApplyQuery>,
    By(caller): By,
    MaybeJson(asked): MaybeJson<view::Drain>,
) -> Answer {
    let drained = operations::drain(&context.cell, &caller, &name, &asked, query.dry_run).await?;
    Ok(json(&drained))
}

/// Have an empty node, or one that is down, leave the cell
#[utoipa::path(delete, path = "/v1/nodes/{name}", tag = "write",
    params(("name" = String, Path)),
    responses((status = 200, body = view::NodeChanged), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem)))]
pub(super) async fn remove_node(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
) -> Answer {
    Ok(json(&operations::remove(&context.cell, &caller, &name).await?))
}
