//! A better layout of what runs: searched for by anybody who may read, carried out by admins.

use std::sync::Arc;

use axum::extract::State;

use super::answer::{Answer, json};
use super::context::Context;
use super::extract::{By, Json};
use crate::operations;
use plimsoll_api::view::{self, Problem};

/// The best plan for a better layout that is found in time; nothing is done
#[utoipa::path(post, path = "/v1/optimize", tag = "read", request_body = view::Optimize,
    responses((status = 200, body = view::OptimizePlan), (status = 422, body = Problem)))]
pub(super) async fn search(
    State(context): State<Arc<Context>>,
    Json(asked): Json<view::Optimize>,
) -> Answer {
    Ok(json(&operations::optimize(&context.cell, asked).await?))
}

/// Carry out a plan for a better layout, in its order, as far as it still holds
#[utoipa::path(post, path = "/v1/optimize/apply", operation_id = "apply_optimize", tag = "write", request_body = view::ApplyOptimize,
    responses((status = 200, body = view::OptimizeStarted), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn apply(
    State(context): State<Arc<Context>>,
    By(caller): By,
    Json(asked): Json<view::ApplyOptimize>,
) -> Answer {
    Ok(json(&operations::apply_optimize(&context.cell, &caller, asked).await?))
}
