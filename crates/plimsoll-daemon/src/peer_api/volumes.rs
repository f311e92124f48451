//! A node's volumes, for others: what is in one, for the node that is to have it from now on; and how much, for a server that
//! answers somebody who asks. Which node may read what, the leader has told this one.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper::StatusCode;
use plimsoll_runtime::VolumeRef;

use super::containers::{asked, no_server};
use super::{PeerApi, answer};
use crate::problem;
use crate::volume_copy::{self, AskedContent, CONTENT, SIZE};
use plimsoll_peer::{Key, KnownCaller};

pub(super) fn router(gate: Arc<PeerApi>) -> Router {
    let routes = Router::new().route(CONTENT, post(content)).route(SIZE, post(size));
    routes.with_state(gate)
}

/// For the destination of a move that the leader has told this node of, and nobody else.
async fn content(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_reach(&caller, &key) {
        return answer(&problem::no_member(&caller.node));
    }
    let AskedContent { volume, order } = match asked(request).await {
        Ok(asked) => asked,
        Err(status) => return status.into_response(),
    };
    let may = gate.cell.volume_exports.lock().get(&order).is_some_and(|export| {
        export.dst == caller.node
            && export.deployment == volume.deployment
            && export.volumes.contains(&volume.name)
    });
    if !may {
        return StatusCode::FORBIDDEN.into_response();
    }
    match gate.cell.runtime.volume_dir(&volume).await {
        Ok(Some(dir)) => {
            tracing::info!(%volume, to = %caller.node, "a volume is read by another node");
            Response::new(volume_copy::content(dir))
        }
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => answer(&problem::runtime(&error)),
    }
}

async fn size(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_ask(&caller, &key) {
        return no_server(&caller);
    }
    let volume: VolumeRef = match asked(request).await {
        Ok(volume) => volume,
        Err(status) => return status.into_response(),
    };
    axum::Json(volume_copy::size(&gate.cell.runtime, &volume).await).into_response()
}
