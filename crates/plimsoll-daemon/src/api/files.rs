//! Secrets and configs of the cell. The content of a secret comes in and is never answered.

use std::sync::Arc;

use axum::extract::State;
use plimsoll_model::cell_files::CellFileKind;

use super::answer::{Answer, json};
use super::context::Context;
use super::extract::{By, Json, Named, QueryParams};
use super::scope::{self, Within};
use crate::operations::{self, Caller};
use plimsoll_api::view;

/// The secrets that the cell keeps, without their content
#[utoipa::path(get, path = "/v1/secrets", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::CellFile>)))]
pub(super) async fn secrets(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
    Within(scope): Within,
) -> Answer {
    let kind = CellFileKind::Secret;
    context
        .look_at_list(page, move |source| Ok(operations::files(source.state, kind, &scope)))
        .await
}

/// A secret of the cell, without its content
#[utoipa::path(get, path = "/v1/secrets/{name}", tag = "read", params(("name" = String, Path)),
    responses((status = 200, body = view::CellFile), (status = 404, body = view::Problem)))]
pub(super) async fn secret(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    let kind = CellFileKind::Secret;
    context.look(move |source| Ok(operations::file(source.state, kind, &name)?)).await
}

/// Have the cell keep a secret
#[utoipa::path(post, path = "/v1/secrets", tag = "write", request_body = view::NewFile,
    responses((status = 200, body = view::CellFile), (status = 409, body = view::Problem),
        (status = 422, body = view::Problem)))]
pub(super) async fn create_secret(
    State(context): State<Arc<Context>>,
    By(caller): By,
    within: Within,
    Json(asked): Json<view::NewFile>,
) -> Answer {
    create(&context, &caller, &within, CellFileKind::Secret, asked).await
}

/// Give a secret other content, and roll the services that use it
#[utoipa::path(post, path = "/v1/secrets/{name}/rotate", tag = "write",
    params(("name" = String, Path)), request_body = view::NewContent,
    responses((status = 200, body = view::RotatedFile), (status = 404, body = view::Problem),
        (status = 422, body = view::Problem)))]
pub(super) async fn rotate_secret(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
    Json(asked): Json<view::NewContent>,
) -> Answer {
    let (cell, kind) = (&context.cell, CellFileKind::Secret);
    Ok(json(&operations::rotate_file(cell, &caller, kind, &name, asked.content).await?))
}

/// Remove a secret that nothing uses
#[utoipa::path(delete, path = "/v1/secrets/{name}", tag = "write",
    params(("name" = String, Path)),
    responses((status = 200, body = view::CellFile), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem)))]
pub(super) async fn remove_secret(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
) -> Answer {
    let kind = CellFileKind::Secret;
    Ok(json(&operations::remove_file(&context.cell, &caller, kind, &name).await?))
}

/// The configs that the cell keeps, without their content
#[utoipa::path(get, path = "/v1/configs", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::CellFile>)))]
pub(super) async fn configs(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
    Within(scope): Within,
) -> Answer {
    let kind = CellFileKind::Config;
    context
        .look_at_list(page, move |source| Ok(operations::files(source.state, kind, &scope)))
        .await
}

/// A config of the cell, with its content
#[utoipa::path(get, path = "/v1/configs/{name}", tag = "read", params(("name" = String, Path)),
    responses((status = 200, body = view::ConfigFile), (status = 404, body = view::Problem)))]
pub(super) async fn config(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
) -> Answer {
    context.look(move |source| Ok(operations::config(source.state, &name)?)).await
}

/// Have the cell keep a config
#[utoipa::path(post, path = "/v1/configs", tag = "write", request_body = view::NewFile,
    responses((status = 200, body = view::CellFile), (status = 409, body = view::Problem),
        (status = 422, body = view::Problem)))]
pub(super) async fn create_config(
    State(context): State<Arc<Context>>,
    By(caller): By,
    within: Within,
    Json(asked): Json<view::NewFile>,
) -> Answer {
    create(&context, &caller, &within, CellFileKind::Config, asked).await
}

/// Give a config other content, and roll the services that use it
#[utoipa::path(post, path = "/v1/configs/{name}/rotate", tag = "write",
    params(("name" = String, Path)), request_body = view::NewContent,
    responses((status = 200, body = view::RotatedFile), (status = 404, body = view::Problem),
        (status = 422, body = view::Problem)))]
pub(super) async fn rotate_config(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
    Json(asked): Json<view::NewContent>,
) -> Answer {
    let (cell, kind) = (&context.cell, CellFileKind::Config);
    Ok(json(&operations::rotate_file(cell, &caller, kind, &name, asked.content).await?))
}

/// Remove a config that nothing uses
#[utoipa::path(delete, path = "/v1/configs/{name}", tag = "write",
    params(("name" = String, Path)),
    responses((status = 200, body = view::CellFile), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem)))]
pub(super) async fn remove_config(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
) -> Answer {
    let kind = CellFileKind::Config;
    Ok(json(&operations::remove_file(&context.cell, &caller, kind, &name).await?))
}

async fn create(
    context: &Context,
    caller: &Caller,
    within: &Within,
    kind: CellFileKind,
    asked: view::NewFile,
) -> Answer {
    scope::check(within, &asked.name)?;
    Ok(json(&operations::create_file(&context.cell, caller, kind, asked).await?))
}
