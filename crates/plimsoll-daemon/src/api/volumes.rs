//! Named volumes: where they are, how much is in one, and what is done with it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use futures_util::future::join_all;
use plimsoll_model::{DeploymentName, NodeId};
use plimsoll_peer::{PeerClient, Target};
use plimsoll_runtime::VolumeRef;
use serde::Deserialize;
use tokio::time::timeout;

use super::answer::{Answer, json};
use super::context::Context;
use super::extract::{By, Json, Named, QueryParams};
use super::scope::Within;
use crate::{operations, volume_copy};
use plimsoll_api::view::{self, flag};

/// How long nodes may take to say how much is in a volume. What is larger than they can count by then has no size here.
const SIZE_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RemoveQuery {
    /// Whose copy; not needed where there is one.
    node: Option<String>,
    /// Forget the copy of a node that is down.
    #[serde(default, deserialize_with = "flag")]
    force: bool,
}

/// The named volumes that deployments use or used, and where they are
#[utoipa::path(get, path = "/v1/volumes", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::Volume>)))]
pub(super) async fn volumes(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
    Within(scope): Within,
) -> Answer {
    context.look_at_list(page, move |source| Ok(operations::volumes(source.state, &scope))).await
}

/// A named volume, with how much is in it
#[utoipa::path(get, path = "/v1/deployments/{name}/volumes/{volume}", tag = "read",
    params(("name" = String, Path), ("volume" = String, Path)),
    responses((status = 200, body = view::Volume), (status = 404, body = view::Problem)))]
pub(super) async fn volume(
    State(context): State<Arc<Context>>,
    Named((name, volume)): Named<(String, String)>,
) -> Answer {
    let machine = context.cell.engine.machine();
    let mut told = machine.read(|state| operations::volume(state, &name, &volume))?;
    let Ok(deployment) = DeploymentName::new(&told.deployment) else { return Ok(json(&told)) };
    let of = VolumeRef::new(&deployment, &told.name);
    let moving = told.moving.iter().map(|moving| moving.to.clone());
    let nodes: Vec<String> =
        told.copies.iter().map(|copy| copy.node.clone()).chain(moving).collect();
    let sizes = join_all(nodes.iter().map(|node| size(&context, node, &of))).await;
    for (node, size) in nodes.iter().zip(sizes) {
        if let Some(copy) = told.copies.iter_mut().find(|copy| copy.node == *node) {
            copy.size = size;
        } else if let Some(moving) = &mut told.moving {
            moving.copied = size;
        }
    }
    Ok(json(&told))
}

/// Remove a node's copy of a volume that nothing uses
#[utoipa::path(delete, path = "/v1/deployments/{name}/volumes/{volume}", tag = "write",
    params(("name" = String, Path), ("volume" = String, Path), RemoveQuery),
    responses((status = 200, body = view::VolumeChanged), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem)))]
pub(super) async fn remove(
    State(context): State<Arc<Context>>,
    Named((name, volume)): Named<(String, String)>,
    QueryParams(query): QueryParams<RemoveQuery>,
    By(caller): By,
) -> Answer {
    let (node, force) = (query.node.as_deref(), query.force);
    let removed =
        operations::remove_volume(&context.cell, &caller, &name, &volume, node, force).await?;
    Ok(json(&removed))
}

/// Begin to move a volume to another node, with the services that use it
#[utoipa::path(post, path = "/v1/deployments/{name}/volumes/{volume}/move", tag = "write",
    params(("name" = String, Path), ("volume" = String, Path)), request_body = view::MoveVolume,
    responses((status = 200, body = view::VolumeChanged), (status = 404, body = view::Problem),
        (status = 409, body = view::Problem)))]
pub(super) async fn move_to(
    State(context): State<Arc<Context>>,
    Named((name, volume)): Named<(String, String)>,
    By(caller): By,
    Json(asked): Json<view::MoveVolume>,
) -> Answer {
    let begun =
        operations::move_volume(&context.cell, &caller, &name, &volume, &asked.node).await?;
    Ok(json(&begun))
}

/// What the node says; none where it says nothing in time, or has none.
async fn size(context: &Context, node: &str, volume: &VolumeRef) -> Option<view::VolumeSize> {
    let asked = async {
        if node == context.cell.node.as_str() {
            return volume_copy::size(&context.cell.runtime, volume).await;
        }
        let target = context.cell.engine.machine().read(|state| {
            let node = NodeId::new(node).ok()?;
            let address = state.node(&node)?.facts.address.clone()?;
            Some(Target { node, address })
        });
        let client = context.client.get().map(PeerClient::apart);
        let (Some(client), Some(target)) = (client, target) else { return Ok(None) };
        volume_copy::ask_size(&client, &target, volume, SIZE_WAIT).await
    };
    let found = match timeout(SIZE_WAIT, asked).await.ok()? {
        Ok(found) => found?,
        Err(error) => {
            tracing::debug!(%volume, node, error, "its size is not known");
            return None;
        }
    };
    Some(view::VolumeSize { files: found.files, bytes: found.bytes })
}
