//! Who is of the cell and who may ask it for things: join tokens, operators, and the servers that hold the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use plimsoll_model::access::{DeploymentPattern, Role, Scope};
use plimsoll_model::{Change, Millis, Writer};

use super::answer::{Answer, ErrorResponse, json};
use super::context::Context;
use super::extract::{By, Json, MaybeJson, Named, QueryParams};
use crate::cell::{server_progress, upgrade};
use crate::context::now;
use crate::{operations, views};
use plimsoll_api::view::{self, Problem, ProblemCode, Time};
use plimsoll_peer::pki::{Fingerprint, JoinToken, OperatorToken};

/// How long a join token is good for when nobody says, and at most.
const JOIN_LIFETIME: Millis = Millis::minutes(24 * 60);

/// The servers of the cell, who leads, and how far each has come
#[utoipa::path(get, path = "/v1/cell", tag = "read",
    responses((status = 200, body = view::Cell)))]
pub(super) async fn cell(State(context): State<Arc<Context>>) -> Answer {
    let progress = match context.client.get() {
        Some(client) => server_progress::ask(&context.cell, client).await,
        None => BTreeMap::new(),
    };
    let machine = context.cell.engine.machine();
    let versions: BTreeMap<String, String> = machine.read(|state| {
        let said = state.nodes().iter().filter(|(_, node)| !node.facts.version.is_empty());
        said.map(|(id, node)| (id.to_string(), node.facts.version.clone())).collect()
    });
    let (here, role) = (context.here(), context.cell.engine.log_position().role);
    let servers = context.cell.engine.members().into_iter().map(|member| {
        let told = progress.get(&member.id);
        let is_own = member.peer.name == context.cell.node.as_str();
        let own = is_own.then(|| (role.word().to_owned(), here.applied));
        let (role, applied) =
            own.or_else(|| told.map(|told| (told.role.clone(), told.applied))).unzip();
        view::Server {
            version: versions.get(&member.peer.name).cloned(),
            is_leader: here.leader.as_deref() == Some(member.peer.name.as_str()),
            id: member.id.0,
            node: member.peer.name,
            address: member.peer.address,
            votes: member.votes,
            role,
            applied,
            lag: applied.map(|applied| here.applied.saturating_sub(applied)),
        }
    });
    let (name, joinable) = context
        .cell
        .engine
        .machine()
        .read(|state| (state.cell_id().to_string(), state.access().authority.is_some()));
    Ok(json(&view::Cell {
        name,
        node: context.cell.node.to_string(),
        leader: here.leader.clone(),
        term: here.term,
        applied: here.applied,
        joinable,
        trouble: here
            .trouble
            .clone()
            .or_else(|| here.leader.is_none().then(|| context.leaderless())),
        tenure: context.leadership_info(),
        level: machine.level().0,
        upgrade: machine.read(upgrade::half_done),
        is_changing: context.cell.engine.is_changing(),
        authority: machine.read(views::authority),
        servers: servers.collect(),
    }))
}

/// Make a token that one node can join with, once
#[utoipa::path(post, path = "/v1/tokens/join", tag = "write", request_body = view::NewJoinToken,
    responses((status = 200, body = view::JoinToken), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub(super) async fn create_join(
    State(context): State<Arc<Context>>,
    By(caller): By,
    MaybeJson(asked): MaybeJson<view::NewJoinToken>,
) -> Answer {
    let cell = &context.cell;
    let (authority, address) = cell.engine.machine().read(|state| {
        let authority =
            state.access().authority.as_ref().map(|kept| Fingerprint::of(&kept.certificate));
        (authority, state.node(&cell.node).and_then(|node| node.facts.address.clone()))
    });
    let (Some(fingerprint), Some(address)) = (authority, address) else {
        let message = "this cell cannot be joined yet";
        return Err(Problem::new(ProblemCode::NoAuthority, message).into());
    };
    let lifetime = asked.minutes.map_or(JOIN_LIFETIME, Millis::minutes).min(JOIN_LIFETIME);
    let token = JoinToken::new(fingerprint).map_err(|error| unmade(&error))?;
    let expires_at = now().plus(lifetime);
    let change = Change::CreateJoinToken { token: token.secret_hash(), expires_at };
    cell.write(Writer::Operator, &caller.identity, vec![change.free()]).await.map_err(unwritten)?;
    let join = format!("{token}@{address}");
    Ok(json(&view::JoinToken { join, expires_at: Time(expires_at) }))
}

/// Who may ask for things over the network
#[utoipa::path(get, path = "/v1/operators", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::Operator>)))]
pub(super) async fn operators(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
) -> Answer {
    context
        .look_at_list(page, |source| {
            let operators = source.state.access().operators.iter();
            Ok(operators
                .map(|(name, operator)| view::Operator {
                    name: name.clone(),
                    role: operator.role.word().to_owned(),
                    created_at: Time(operator.created_at),
                    deployments: operator.scope.patterns().map(str::to_owned).collect(),
                })
                .collect::<Vec<_>>())
        })
        .await
}

/// Give somebody a token
#[utoipa::path(post, path = "/v1/operators", tag = "write", request_body = view::NewOperator,
    responses((status = 200, body = view::OperatorToken), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub(super) async fn add_operator(
    State(context): State<Arc<Context>>,
    By(caller): By,
    Json(asked): Json<view::NewOperator>,
) -> Answer {
    let role = Role::ALL.into_iter().find(|role| role.word() == asked.role).ok_or_else(|| {
        let message = format!("there is no role {:?}", asked.role);
        ErrorResponse(Problem::new(ProblemCode::BadRole, message))
    })?;
    let is_name = |name: &str| {
        let fits = (1..=63).contains(&name.len());
        fits && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    if !is_name(&asked.name) {
        let problem = Problem::new(
            ProblemCode::BadName,
            "an operator's name has 1 to 63 letters, digits, '-', '_' and '.'",
        )
        .hint("shorten it, or leave other characters out");
        return Err(problem.into());
    }
    let scope = bounds(role, &asked.deployments)?;
    let token = OperatorToken::new().map_err(|error| unmade(&error))?;
    let change = Change::PutOperator { name: asked.name.clone(), token: token.hash(), role, scope };
    let cell = &context.cell;
    cell.write(Writer::Operator, &caller.identity, vec![change.free()]).await.map_err(unwritten)?;
    Ok(json(&view::OperatorToken { name: asked.name, role: asked.role, token: token.to_string() }))
}

/// Take somebody's token back
#[utoipa::path(delete, path = "/v1/operators/{name}", tag = "write", params(("name" = String, Path)),
    responses((status = 200, body = view::Operator), (status = 404, body = Problem)))]
pub(super) async fn revoke_operator(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
) -> Answer {
    let cell = &context.cell;
    let known = cell.engine.machine().read(|state| state.access().operators.get(&name).cloned());
    let change = Change::RevokeOperator { name: name.clone() };
    cell.write(Writer::Operator, &caller.identity, vec![change.free()]).await.map_err(unwritten)?;
    let role = known.as_ref().map(|known| known.role.word().to_owned()).unwrap_or_default();
    let created_at = Time(known.as_ref().map(|known| known.created_at).unwrap_or_default());
    let scope = known.map(|known| known.scope).unwrap_or_default();
    let deployments = scope.patterns().map(str::to_owned).collect();
    Ok(json(&view::Operator { name, role, created_at, deployments }))
}

/// The deployments a token is to be bound to. An admin's cannot be: who makes tokens makes one without bounds.
fn bounds(role: Role, deployments: &[String]) -> Result<Scope, ErrorResponse> {
    if role == Role::Admin && !deployments.is_empty() {
        let message = "a token with role admin cannot be bound to deployments";
        return Err(Problem::new(ProblemCode::BadRole, message).hint("use read or deploy").into());
    }
    let patterns = deployments.iter().map(|text| DeploymentPattern::new(text));
    patterns.collect::<Result<Scope, _>>().map_err(|error| {
        let problem = Problem::new(ProblemCode::BadName, error.to_string());
        problem.hint("name a deployment, or the beginning of names with * behind it: shop-*").into()
    })
}

fn unmade(error: &plimsoll_peer::pki::Error) -> ErrorResponse {
    Problem::new(ProblemCode::NoToken, error.to_string()).into()
}

fn unwritten(error: crate::context::WriteError) -> ErrorResponse {
    operations::Error::Write(error).into()
}
