//! Rotating the authority of the cell: it is begun and taken back here; the leader sees to the rest.

use std::sync::Arc;

use axum::extract::State;
use plimsoll_model::access::Authority as StoredAuthority;
use plimsoll_model::{Change, NodeId, Writer};

use super::answer::{Answer, ErrorResponse, json};
use super::context::Context;
use super::extract::{By, MaybeJson};
use crate::context::now;
use crate::operations::{self, Caller};
use crate::views;
use plimsoll_api::view::{self, Problem, ProblemCode};
use plimsoll_peer::pki::{Authority, AuthorityParts};

/// Rotate the cell's authority, or have a rotation under way go on without nodes that are down
#[utoipa::path(post, path = "/v1/cell/rotation", tag = "write", request_body = view::RotateAuthority,
    responses((status = 200, body = view::Authority), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn rotate(
    State(context): State<Arc<Context>>,
    By(caller): By,
    MaybeJson(asked): MaybeJson<view::RotateAuthority>,
) -> Answer {
    let nodes = asked.without.iter().map(NodeId::new).collect::<Result<Vec<NodeId>, _>>();
    let without = nodes.map_err(operations::Error::Name)?;
    let (cell_id, is_rotating) = context
        .cell
        .engine
        .machine()
        .read(|state| (state.cell_id().clone(), state.access().rotation.is_some()));
    let change = if is_rotating && !without.is_empty() {
        Change::RotateWithout { nodes: without }
    } else {
        let next = Authority::found(&cell_id, now()).map_err(|error| unmade(&error))?;
        let AuthorityParts { certificate, key, .. } = next.to_parts();
        Change::RotateAuthority { next: StoredAuthority { certificate, key }, without }
    };
    write(&context, &caller, change).await
}

/// Take back a rotation of the cell's authority
#[utoipa::path(delete, path = "/v1/cell/rotation", tag = "write",
    responses((status = 200, body = view::Authority), (status = 409, body = Problem)))]
pub(super) async fn abort(State(context): State<Arc<Context>>, By(caller): By) -> Answer {
    write(&context, &caller, Change::AbortRotation).await
}

/// The authority as it is by then.
async fn write(context: &Context, caller: &Caller, change: Change) -> Answer {
    let cell = &context.cell;
    let written = cell.write(Writer::Operator, &caller.identity, vec![change.free()]).await;
    written.map_err(|error| ErrorResponse::from(operations::Error::Write(error)))?;
    match cell.engine.machine().read(views::authority) {
        Some(authority) => Ok(json(&authority)),
        None => Err(Problem::new(ProblemCode::NoAuthority, "the cell has no authority yet").into()),
    }
}

fn unmade(error: &plimsoll_peer::pki::Error) -> ErrorResponse {
    Problem::new(ProblemCode::Bug, error.to_string()).into()
}
