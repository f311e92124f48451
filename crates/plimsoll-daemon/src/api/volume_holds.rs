//! Backups and restores of volumes. A client holds the volume, reads or sends what is in it, and lets it go; what uses it is stopped
//! meanwhile. Whoever holds one says again that they are there: a client that is killed stops nobody for long.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use plimsoll_model::{Generation, NodeId};
use serde::Deserialize;

use super::answer::{Answer, ErrorResponse, json, with_type};
use super::connections::ended;
use super::context::Context;
use super::extract::{By, Json, Named, QueryParams};
use super::fan_out::FanOut;
use crate::operations;
use crate::peer_api::volumes as peers;
use crate::volume_archive::VolumeTotals;
use crate::volume_copy::AskedContent;
use crate::volume_restore;
use plimsoll_api::view::{self, Problem, ProblemCode};

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct HoldQuery {
    /// The number of the hold; without it, whichever there is.
    order: Option<u64>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EndQuery {
    /// The number of the hold; without it, whichever there is.
    order: Option<u64>,
    /// Why nothing came of it; without it the backup is whole.
    failed: Option<String>,
}

/// Begin a backup or restore of a volume: what uses it is stopped, unless the backup is live
///
/// The hold ends after 60 s unless it is renewed. Once its phase is `open`, `content` has what is in the volume, or takes a backup.
#[utoipa::path(post, path = "/v1/deployments/{name}/volumes/{volume}/hold", tag = "write",
    params(("name" = String, Path), ("volume" = String, Path)), request_body = view::HoldVolume,
    responses((status = 200, body = view::VolumeHold), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn hold(
    State(context): State<Arc<Context>>,
    Named((name, volume)): Named<(String, String)>,
    By(caller): By,
    Json(asked): Json<view::HoldVolume>,
) -> Answer {
    let cell = &context.cell;
    Ok(json(&operations::hold_volume(cell, &caller, &name, &volume, &asked).await?))
}

/// How far a backup or restore is
#[utoipa::path(get, path = "/v1/deployments/{name}/volumes/{volume}/hold", tag = "read",
    params(("name" = String, Path), ("volume" = String, Path), HoldQuery),
    responses((status = 200, body = view::VolumeHold), (status = 409, body = Problem)))]
pub(super) async fn look(
    State(context): State<Arc<Context>>,
    Named((name, volume)): Named<(String, String)>,
    QueryParams(query): QueryParams<HoldQuery>,
) -> Answer {
    let order = query.order.map(Generation);
    Ok(json(&operations::hold_of(&context.cell, &name, &volume, order)?))
}

/// Say that a backup or restore goes on
#[utoipa::path(put, path = "/v1/deployments/{name}/volumes/{volume}/hold", tag = "write",
    params(("name" = String, Path), ("volume" = String, Path), HoldQuery),
    responses((status = 200, body = view::VolumeHold), (status = 409, body = Problem)))]
pub(super) async fn renew(
    State(context): State<Arc<Context>>,
    Named((name, volume)): Named<(String, String)>,
    QueryParams(query): QueryParams<HoldQuery>,
    By(caller): By,
) -> Answer {
    let order = query.order.map(Generation);
    Ok(json(&operations::renew_hold(&context.cell, &caller, &name, &volume, order).await?))
}

/// End a backup, or give up a backup or restore: what was stopped starts again
///
/// Where the hold was lost in between, a backup that is said to be whole is refused: something may have written meanwhile.
#[utoipa::path(delete, path = "/v1/deployments/{name}/volumes/{volume}/hold", tag = "write",
    params(("name" = String, Path), ("volume" = String, Path), EndQuery),
    responses((status = 200, body = view::VolumeHold), (status = 409, body = Problem)))]
pub(super) async fn end(
    State(context): State<Arc<Context>>,
    Named((name, volume)): Named<(String, String)>,
    QueryParams(query): QueryParams<EndQuery>,
    By(caller): By,
) -> Answer {
    let (order, failed) = (query.order.map(Generation), query.failed);
    let cell = &context.cell;
    Ok(json(&operations::end_hold(cell, &caller, &name, &volume, order, failed).await?))
}

/// What is in a volume that is held for a backup, as one stream
#[utoipa::path(get, path = "/v1/deployments/{name}/volumes/{volume}/content", tag = "read",
    params(("name" = String, Path), ("volume" = String, Path), HoldQuery),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 409, body = Problem)))]
pub(super) async fn content(
    State(context): State<Arc<Context>>,
    Named((name, volume)): Named<(String, String)>,
    QueryParams(query): QueryParams<HoldQuery>,
) -> Answer {
    let (node, asked) = held(&context, &name, &volume, query.order)?;
    let body = if node == context.cell.node {
        volume_restore::content(&context.cell, &asked).await?
    } else {
        let places = FanOut::new(&context);
        let (client, target) = places.way(&node)?;
        peers::read_held(client, &target, &asked).await?
    };
    Ok(with_type("application/octet-stream", body))
}

/// Replace what is in a volume that is held for a restore by a backup
#[utoipa::path(put, path = "/v1/deployments/{name}/volumes/{volume}/content", tag = "write",
    params(("name" = String, Path), ("volume" = String, Path), HoldQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = view::VolumeSize), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub(super) async fn restore(
    State(context): State<Arc<Context>>,
    Named((name, volume)): Named<(String, String)>,
    QueryParams(query): QueryParams<HoldQuery>,
    By(caller): By,
    request: Request,
) -> Answer {
    let (node, asked) = held(&context, &name, &volume, query.order)?;
    let order = Some(asked.order);
    // Where it could not be written down that it was done, it is not begun.
    operations::renew_hold(&context.cell, &caller, &name, &volume, order).await?;
    let (body, ending) = (request.into_body(), context.ending.clone());
    // Whoever asked may go once all is sent: what was begun is brought to its end, and written down.
    let restored = tokio::spawn(async move {
        let totals = send(&context, &node, &asked, body).await?;
        let Context { cell, .. } = &*context;
        operations::end_hold(cell, &caller, &name, &volume, order, None).await?;
        Ok::<VolumeTotals, ErrorResponse>(totals)
    });
    tokio::select! {
        restored = restored => {
            let broken = |_| Problem::new(ProblemCode::Bug, "the restore broke off");
            let VolumeTotals { files, bytes } = restored.map_err(broken)??;
            Ok(json(&view::VolumeSize { files, bytes }))
        }
        () = ended(ending) => {
            Err(Problem::new(ProblemCode::Stopped, "the daemon is shutting down").into())
        }
    }
}

async fn send(
    context: &Context,
    node: &NodeId,
    asked: &AskedContent,
    body: Body,
) -> Result<VolumeTotals, Problem> {
    if *node == context.cell.node {
        return volume_restore::restore(&context.cell, asked, body).await;
    }
    let places = FanOut::new(context);
    let (client, target) = places.way(node)?;
    peers::restore_on(client, &target, asked, body).await
}

/// The node that has the volume, and what to ask it for.
fn held(
    context: &Context,
    name: &str,
    volume: &str,
    order: Option<u64>,
) -> Result<(NodeId, AskedContent), Problem> {
    let machine = context.cell.engine.machine();
    let found =
        machine.read(|state| operations::open_hold(state, name, volume, order.map(Generation)));
    found.map_err(|error| Problem::from(&error))
}
