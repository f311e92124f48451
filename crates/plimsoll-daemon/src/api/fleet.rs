//! Fleets: what the coordinator knows and is told, and how a cell becomes a shard.

use std::sync::Arc;

use axum::extract::State;
use plimsoll_model::fleet::{
    FleetChange, MachineType, MembershipChange, NameError, Pool, ShardId, Zone,
};
use plimsoll_model::{Change, Millis, NodeId, Refusal, Writer};

use super::answer::{Answer, ErrorResponse, json};
use super::cell::{unmade, unwritten};
use super::context::Context;
use super::extract::{By, Json, Named};
use crate::context::now;
use crate::{fleet_link, problem, views};
use plimsoll_api::view::{self, Problem, ProblemCode, Time};
use plimsoll_peer::pki::{Fingerprint, FleetAddress, FleetToken};

/// How long a token for a fleet is good for.
const TOKEN_LIFETIME: Millis = Millis::minutes(24 * 60);

/// The fleet that this cell coordinates, or this cell's place in one
#[utoipa::path(get, path = "/v1/fleet", tag = "read", operation_id = "fleet_status",
    responses((status = 200, body = view::FleetStatus)))]
pub(super) async fn status(State(context): State<Arc<Context>>) -> Answer {
    told(&context).await
}

/// Pause or resume the fleet
#[utoipa::path(post, path = "/v1/fleet", tag = "write", operation_id = "set_fleet",
    request_body = view::SetFleet,
    responses((status = 200, body = view::FleetStatus), (status = 409, body = Problem)))]
pub(super) async fn set(
    State(context): State<Arc<Context>>,
    By(caller): By,
    Json(asked): Json<view::SetFleet>,
) -> Answer {
    let change = FleetChange::Pause { is_paused: asked.paused };
    write(&context, &caller.identity, change).await
}

/// Set a shard's slice of the quota for machines of a type in a zone
#[utoipa::path(post, path = "/v1/fleet/quota", tag = "write", operation_id = "set_fleet_quota",
    request_body = view::SetFleetQuota,
    responses((status = 200, body = view::FleetStatus), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn set_quota(
    State(context): State<Arc<Context>>,
    By(caller): By,
    Json(asked): Json<view::SetFleetQuota>,
) -> Answer {
    let pool = Pool {
        machine_type: MachineType::new(&asked.machine_type).map_err(|error| bad_name(&error))?,
        zone: Zone::new(&asked.zone).map_err(|error| bad_name(&error))?,
    };
    let shard = ShardId::new(&asked.shard).map_err(|error| bad_name(&error))?;
    let change = FleetChange::SetQuota { pool, shard, slice: asked.slice };
    write(&context, &caller.identity, change).await
}

/// Make a token that one cell can join the fleet with, once
#[utoipa::path(post, path = "/v1/fleet/tokens", tag = "write", operation_id = "create_fleet_token",
    request_body = view::NewFleetToken,
    responses((status = 200, body = view::FleetToken), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub(super) async fn create_token(
    State(context): State<Arc<Context>>,
    By(caller): By,
    Json(asked): Json<view::NewFleetToken>,
) -> Answer {
    let cell = &context.cell;
    let shard = ShardId::new(&asked.shard).map_err(|error| bad_name(&error))?;
    // It stands in a certificate as nodes' names do.
    NodeId::new(&asked.shard)
        .map_err(|error| Problem::new(ProblemCode::BadName, error.to_string()))?;
    let (authority, address) = cell.engine.machine().read(|state| {
        let authority =
            state.access().authority.as_ref().map(|kept| Fingerprint::of(&kept.certificate));
        (authority, state.node(&cell.node).and_then(|node| node.facts.address.clone()))
    });
    let (Some(fingerprint), Some(address)) = (authority, address) else {
        let message = "this fleet cannot be joined yet";
        return Err(Problem::new(ProblemCode::NoAuthority, message).into());
    };
    let token = FleetToken::new(fingerprint).map_err(|error| unmade(&error))?;
    let expires_at = now().plus(TOKEN_LIFETIME);
    let hash = token.secret_hash();
    let change = FleetChange::CreateToken { shard: shard.clone(), token: hash, expires_at };
    commit(&context, &caller.identity, change).await?;
    let join = format!("{token}@{address}");
    let shard = shard.to_string();
    Ok(json(&view::FleetToken { shard, join, expires_at: Time(expires_at) }))
}

/// Expel a shard from the fleet, at once
#[utoipa::path(delete, path = "/v1/fleet/shards/{name}", tag = "write", operation_id = "expel_shard",
    params(("name" = String, Path)),
    responses((status = 200, body = view::FleetStatus), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn expel(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
) -> Answer {
    let shard = ShardId::new(&name).map_err(|error| bad_name(&error))?;
    write(&context, &caller.identity, FleetChange::Expel { shard }).await
}

/// Have this cell join a fleet, as the shard that the token is for
#[utoipa::path(post, path = "/v1/fleet/membership", tag = "write", operation_id = "join_fleet",
    request_body = view::JoinFleet,
    responses((status = 200, body = view::FleetStatus), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub(super) async fn join(
    State(context): State<Arc<Context>>,
    By(caller): By,
    Json(asked): Json<view::JoinFleet>,
) -> Answer {
    let cell = &context.cell;
    let at = asked.join.parse::<FleetAddress>().map_err(|error| {
        let message = format!("this is not what `plimsoll fleet token create` prints: {error}");
        Problem::new(ProblemCode::TokenUnknown, message)
    })?;
    // Looked at before the token is spent.
    let hindered = cell.engine.machine().read(|state| match state.fleet_membership() {
        Some(known) => Some(Refusal::FleetJoined { coordinator: known.coordinator.clone() }),
        None => state.fleet().map(|_| Refusal::Coordinator),
    });
    if let Some(refusal) = hindered {
        return Err(problem::refusal(&refusal).into());
    }
    // Nor is it spent by a cell that can write nothing down.
    cell.engine.catch_up().await.map_err(|error| unwritten(error.into()))?;
    fleet_link::join(cell, &caller.identity, &at)
        .await
        .map_err(|error| ErrorResponse::from(fleet_link::refused(&error)))?;
    told(&context).await
}

/// Have this cell leave its fleet
#[utoipa::path(delete, path = "/v1/fleet/membership", tag = "write", operation_id = "leave_fleet",
    responses((status = 200, body = view::FleetStatus), (status = 409, body = Problem)))]
pub(super) async fn leave(State(context): State<Arc<Context>>, By(caller): By) -> Answer {
    let change = Change::FleetMembership { change: MembershipChange::Leave };
    let written = context.cell.write(Writer::Operator, &caller.identity, vec![change.free()]).await;
    written.map_err(unwritten)?;
    told(&context).await
}

async fn write(context: &Arc<Context>, by: &str, change: FleetChange) -> Answer {
    commit(context, by, change).await?;
    told(context).await
}

async fn commit(context: &Context, by: &str, change: FleetChange) -> Result<(), ErrorResponse> {
    let batch = vec![Change::Fleet { change: Box::new(change) }.free()];
    context.cell.write(Writer::Operator, by, batch).await.map(drop).map_err(unwritten)
}

async fn told(context: &Arc<Context>) -> Answer {
    let memory = context.cell.coordinator.as_ref().and_then(|it| it.heard());
    let link = context.cell.fleet_link.lock().clone();
    context.look(move |source| Ok(views::fleet_status(source.state, memory, &link))).await
}

fn bad_name(error: &NameError) -> Problem {
    Problem::new(ProblemCode::BadName, error.to_string())
}
