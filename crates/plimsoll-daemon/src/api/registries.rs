//! Credentials for registries. A password comes in and is never answered.

use std::sync::Arc;

use axum::extract::State;

use super::answer::{Answer, json};
use super::context::Context;
use super::extract::{By, Json, Named, QueryParams};
use crate::operations;
use plimsoll_api::view;

/// The registries that the cell has credentials for, without passwords
#[utoipa::path(get, path = "/v1/registries", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::RegistryLogin>)))]
pub(super) async fn registries(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
) -> Answer {
    context.look_at_list(page, |source| Ok(operations::registries(source.state))).await
}

/// Give the cell credentials for a registry, or other ones
#[utoipa::path(post, path = "/v1/registries", tag = "write", request_body = view::NewRegistryLogin,
    responses((status = 200, body = view::RegistryLogin), (status = 422, body = view::Problem)))]
pub(super) async fn login(
    State(context): State<Arc<Context>>,
    By(caller): By,
    Json(asked): Json<view::NewRegistryLogin>,
) -> Answer {
    Ok(json(&operations::login_registry(&context.cell, &caller, asked).await?))
}

/// Have the cell forget its credentials for a registry
#[utoipa::path(delete, path = "/v1/registries/{host}", tag = "write",
    params(("host" = String, Path)),
    responses((status = 200, body = view::RegistryLogin), (status = 404, body = view::Problem)))]
pub(super) async fn logout(
    State(context): State<Arc<Context>>,
    Named(host): Named<String>,
    By(caller): By,
) -> Answer {
    Ok(json(&operations::logout_registry(&context.cell, &caller, &host).await?))
}
