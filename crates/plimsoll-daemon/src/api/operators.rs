//! What an operator needs to know of the cell before anything else: who they are to it, how its nodes are recognised and where
//! they are found. And the join tokens that are about. How tokens are made is in [`cell`](super::cell).

use std::sync::Arc;

use axum::extract::State;
use plimsoll_model::access::JoinToken;
use plimsoll_model::{Change, Timestamp, Writer};

use super::answer::{Answer, json};
use super::cell::unwritten;
use super::context::Context;
use super::extract::{By, Named, QueryParams};
use super::scope;
use crate::context::{NodeContext, now};
use plimsoll_api::view::{self, Problem, Time};
use plimsoll_peer::pki::{Fingerprint, MAX_ADDRESSES, certificate_pem, server_name};

/// Who asks, and what they are to the cell
#[utoipa::path(get, path = "/v1/whoami", tag = "read",
    responses((status = 200, body = view::WhoAmI)))]
pub(super) async fn whoami(State(context): State<Arc<Context>>, By(caller): By) -> Answer {
    let cell = &context.cell;
    let (name, operator) = cell.engine.machine().read(|state| {
        let operator = scope::named(&caller.identity);
        let operator = operator.and_then(|name| state.access().operators.get(&name).cloned());
        (state.cell_id().to_string(), operator)
    });
    let scope = operator.as_ref().map(|operator| operator.scope.clone()).unwrap_or_default();
    Ok(json(&view::WhoAmI {
        identity: caller.identity.to_string(),
        role: caller.role.word().to_owned(),
        deployments: scope.patterns().map(str::to_owned).collect(),
        expires_at: operator.and_then(|operator| operator.expires_at).map(Time),
        cell: name,
        authorities: fingerprints(cell).iter().map(Fingerprint::to_string).collect(),
        addresses: addresses(cell),
    }))
}

/// The certificates of the authorities that the cell's nodes have theirs from
#[utoipa::path(get, path = "/v1/authority", tag = "read",
    responses((status = 200, body = Vec<view::CellAuthority>)))]
pub(super) async fn authority(State(context): State<Arc<Context>>) -> Answer {
    let machine = context.cell.engine.machine();
    let server_name = machine.read(|state| server_name(state.cell_id()));
    let told = certificates(&context.cell).into_iter().map(|certificate| view::CellAuthority {
        fingerprint: Fingerprint::of(&certificate).to_string(),
        server_name: server_name.clone(),
        certificate: certificate_pem(&certificate),
    });
    Ok(json(&told.collect::<Vec<_>>()))
}

/// The join tokens that are good, and those that were until lately
#[utoipa::path(get, path = "/v1/tokens/join", tag = "read", params(view::Page),
    responses((status = 200, body = Vec<view::JoinTokenStatus>)))]
pub(super) async fn join_tokens(
    State(context): State<Arc<Context>>,
    QueryParams(page): QueryParams<view::Page>,
) -> Answer {
    context
        .look_at_list(page, |source| {
            let at = now();
            let mut all: Vec<&JoinToken> = source.state.access().join_tokens.values().collect();
            all.sort_by_key(|token| (token.created_at, &token.name));
            Ok(all.into_iter().map(|token| told(token, at)).collect::<Vec<_>>())
        })
        .await
}

/// Take a join token back that no node has used
#[utoipa::path(delete, path = "/v1/tokens/join/{name}", tag = "write", params(("name" = String, Path)),
    responses((status = 200, body = view::JoinTokenStatus), (status = 404, body = Problem)))]
pub(super) async fn revoke_join(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
) -> Answer {
    let cell = &context.cell;
    let change = Change::RevokeJoinToken { name: name.clone() };
    cell.write(Writer::Operator, &caller.identity, vec![change.free()]).await.map_err(unwritten)?;
    let revoked = cell.engine.machine().read(|state| {
        let all = state.access().join_tokens.values().filter(|token| token.name == name);
        all.max_by_key(|token| token.revoked_at).map(|token| told(token, now()))
    });
    let gone = || Problem::new(view::ProblemCode::NoSuchJoinToken, format!("{name} is forgotten"));
    Ok(json(&revoked.ok_or_else(gone)?))
}

fn told(token: &JoinToken, at: Timestamp) -> view::JoinTokenStatus {
    let state = if token.used_by.is_some() {
        "used"
    } else if token.revoked_at.is_some() {
        "revoked"
    } else if token.is_good(at) {
        "good"
    } else {
        "expired"
    };
    view::JoinTokenStatus {
        name: token.name.clone(),
        state: state.to_owned(),
        created_at: Time(token.created_at),
        expires_at: Time(token.expires_at),
        used_by: token.used_by.as_ref().map(ToString::to_string),
    }
}

/// The certificates of all authorities that a node of the cell may have its own from.
fn certificates(cell: &NodeContext) -> Vec<Vec<u8>> {
    cell.engine.machine().read(|state| state.access().anchors().map(<[u8]>::to_vec).collect())
}

/// What operators know those authorities by.
pub(super) fn fingerprints(cell: &NodeContext) -> Vec<Fingerprint> {
    certificates(cell).iter().map(|certificate| Fingerprint::of(certificate)).collect()
}

/// Where the API listens over the network: this node's first, then those of the servers, then of the others.
pub(super) fn addresses(cell: &NodeContext) -> Vec<String> {
    let servers: Vec<String> =
        cell.engine.members().into_iter().map(|member| member.peer.name).collect();
    cell.engine.machine().read(|state| {
        let mut all: Vec<_> = state.nodes().iter().collect();
        all.sort_by_key(|(id, _)| (**id != cell.node, !servers.iter().any(|it| it == id.as_str())));
        all.into_iter().filter_map(|(_, node)| node.facts.api.clone()).take(MAX_ADDRESSES).collect()
    })
}
