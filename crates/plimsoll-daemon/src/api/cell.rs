//! Who is of the cell and who may ask it for things: join tokens, operators, and the servers that hold the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use plimsoll_model::access::{DeploymentPattern, Digest, Operator, Role, Scope};
use plimsoll_model::{Change, Millis, Timestamp, Writer};

use super::answer::{Answer, ErrorResponse, json};
use super::context::Context;
use super::extract::{By, Json, MaybeJson, Named, QueryParams};
use super::operators;
use crate::cell::{server_progress, upgrade};
use crate::context::now;
use crate::{operations, views};
use plimsoll_api::view::{self, Problem, ProblemCode, Time};
use plimsoll_peer::pki::{Fingerprint, JoinToken, Login, OperatorToken, operator_key_in};

/// How long a join token is good for when nobody says, and at most.
const JOIN_LIFETIME: Millis = Millis::minutes(24 * 60);

/// The longest that can be asked for an operator's token: who wants one for longer wants it until it is revoked.
const OPERATOR_LIFETIME: Millis = Millis::minutes(10 * 365 * 24 * 60);

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
    if let Some(name) = &asked.name {
        check_name(name)?;
    }
    let (authority, address) = cell.engine.machine().read(|state| {
        let authority =
            state.access().authority.as_ref().map(|kept| Fingerprint::of(&kept.certificate));
        (authority, state.node(&cell.node).and_then(|node| node.facts.address.clone()))
    });
    let (Some(fingerprint), Some(address)) = (authority, address) else {
        let message = "this cell cannot be joined yet";
        return Err(Problem::new(ProblemCode::NoAuthority, message).into());
    };
    let expires_at = now().plus(lifetime(asked.seconds, JOIN_LIFETIME).unwrap_or(JOIN_LIFETIME));
    let token = JoinToken::new(fingerprint).map_err(|error| unmade(&error))?;
    let hash = token.secret_hash();
    let name = asked.name.unwrap_or_else(|| format!("join-{hash:?}"));
    let change = Change::CreateJoinToken { name: name.clone(), token: hash, expires_at };
    cell.write(Writer::Operator, &caller.identity, vec![change.free()]).await.map_err(unwritten)?;
    let join = format!("{token}@{address}");
    Ok(json(&view::JoinToken { name, join, expires_at: Time(expires_at) }))
}

/// Who may ask for things over the network
#[utoipa::path(get, path = "/v1/operators", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::Operator>)))]
pub(super) async fn operators(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
) -> Answer {
    let used = context.token_uses.lock().clone();
    context
        .look_at_list(page, move |source| {
            let operators = source.state.access().operators.iter();
            let told = operators.map(|(name, it)| told(name, it, used.get(name).copied()));
            Ok(told.collect::<Vec<_>>())
        })
        .await
}

fn told(name: &str, operator: &Operator, used: Option<Timestamp>) -> view::Operator {
    view::Operator {
        name: name.to_owned(),
        role: operator.role.word().to_owned(),
        created_at: Time(operator.created_at),
        deployments: operator.scope.patterns().map(str::to_owned).collect(),
        expires_at: operator.expires_at.map(Time),
        last_used: used.map(Time),
    }
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
    check_name(&asked.name)?;
    let scope = bounds(role, &asked.deployments)?;
    let expires_at = lifetime(asked.seconds, OPERATOR_LIFETIME).map(|span| now().plus(span));
    let (token, hash, expires_at) = match &asked.certificate {
        None => {
            let token = OperatorToken::new().map_err(|error| unmade(&error))?;
            let hash = token.hash();
            (Some(token), hash, expires_at)
        }
        Some(pem) => {
            let (hash, until) = enrolled(pem)?;
            (None, hash, Some(expires_at.map_or(until, |at| at.min(until))))
        }
    };
    let change =
        Change::PutOperator { name: asked.name.clone(), token: hash, role, scope, expires_at };
    let cell = &context.cell;
    cell.write(Writer::Operator, &caller.identity, vec![change.free()]).await.map_err(unwritten)?;
    let (name, role, expires_at) = (asked.name, asked.role, expires_at.map(Time));
    let text = token.as_ref().map(OperatorToken::to_string).unwrap_or_default();
    let (prints, addresses) = (operators::fingerprints(cell), operators::addresses(cell));
    let login = token.map(|token| Login::new(token, prints, addresses).to_string());
    let login = login.unwrap_or_default();
    Ok(json(&view::OperatorToken { name, role, token: text, login, expires_at }))
}

/// What the holder of a certificate is known by, and until when it is good.
fn enrolled(pem: &str) -> Result<(Digest, Timestamp), ErrorResponse> {
    let refused =
        |message: String| ErrorResponse(Problem::new(ProblemCode::BadCertificate, message));
    let (key, until) =
        operator_key_in(pem.as_bytes()).map_err(|error| refused(error.to_string()))?;
    if until <= now() {
        return Err(refused("the certificate has expired".to_owned()));
    }
    Ok((key, until))
}

/// How long a token is to be good for; none: nobody said.
fn lifetime(seconds: Option<u64>, most: Millis) -> Option<Millis> {
    // Bounded before it is multiplied.
    seconds.map(|seconds| Millis::seconds(seconds.clamp(1, most.0 / 1_000)))
}

/// The names of tokens stand in the audit and in paths.
fn check_name(name: &str) -> Result<(), ErrorResponse> {
    let fits = (1..=63).contains(&name.len());
    if fits && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        return Ok(());
    }
    let message = "a token's name has 1 to 63 letters, digits, '-', '_' and '.'";
    let problem = Problem::new(ProblemCode::BadName, message);
    Err(problem.hint("shorten it, or leave other characters out").into())
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
    let used = context.token_uses.lock().remove(&name);
    // It was there a moment before it was revoked; another may have put it there after that.
    let known = known.unwrap_or_else(|| Operator {
        token: Digest([0; 32]),
        role: Role::Read,
        created_at: now(),
        scope: Scope::default(),
        expires_at: None,
    });
    Ok(json(&told(&name, &known, used)))
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

pub(super) fn unmade(error: &plimsoll_peer::pki::Error) -> ErrorResponse {
    Problem::new(ProblemCode::NoToken, error.to_string()).into()
}

pub(super) fn unwritten(error: crate::context::WriteError) -> ErrorResponse {
    operations::Error::Write(error).into()
}
