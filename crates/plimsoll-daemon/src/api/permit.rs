//! Who may do what over TCP: whoever has this daemon's own token may do anything, and an operator of the cell what their
//! role allows. A token that is revoked is unknown here as soon as the log has said so.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use plimsoll_model::access::{Digest, Role};

use super::answer::Failure;
use super::peer::Peer;
use super::token::Token;
use crate::cell::Cell;
use crate::pki::OperatorToken;
use crate::view::Problem;

/// What only an admin may ask for, to read or to write: it holds or makes the keys of the cell.
const ADMIN: [&str; 3] = ["/v1/tokens", "/v1/operators", "/v1/backup"];

#[derive(Debug, Clone)]
pub(super) struct Permits {
    token: Arc<Token>,
    cell: Cell,
}

impl Permits {
    pub(super) fn new(token: Token, cell: Cell) -> Self {
        Self { token: Arc::new(token), cell }
    }

    pub(super) fn admit(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Peer, Box<Response>> {
        let Some(given) = given(headers) else {
            return Err(Box::new(stranger("a token is needed here")));
        };
        if self.token.admits(given) {
            return Ok(Peer::Token);
        }
        if !self.cell.holds_log() {
            return Ok(Peer::Unchecked);
        }
        let Operator { name, role, token } = operator(&self.cell, method, path, given)?;
        Ok(Peer::Operator { name: name.into(), role, token })
    }

    pub(super) fn cell(&self) -> &Cell {
        &self.cell
    }
}

/// Somebody who has a token of the cell.
#[derive(Debug)]
pub(super) struct Operator {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) token: Digest,
}

/// The token of a request, if it has one.
pub(super) fn given(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(AUTHORIZATION)?.to_str().ok()?;
    given.strip_prefix("Bearer ").map(str::trim)
}

/// The operator whose token this is, if they may do what is asked.
pub(super) fn operator(
    cell: &Cell,
    method: &Method,
    path: &str,
    given: &str,
) -> Result<Operator, Box<Response>> {
    let Some(operator) = known(cell, given) else {
        return Err(Box::new(stranger("this is not a token of this cell, or it was revoked")));
    };
    let (Operator { name, role, .. }, needed) = (&operator, needed(method, path));
    if *role < needed {
        let message = format!("{name} may {}, and this takes {}", role.word(), needed.word());
        let problem = Problem::refusal("forbidden", message)
            .hint("an admin can give another role: `plimsoll token create NAME --role ...`");
        return Err(Box::new(Failure(StatusCode::FORBIDDEN, problem).into_response()));
    }
    Ok(operator)
}

fn known(cell: &Cell, given: &str) -> Option<Operator> {
    let token: OperatorToken = given.parse().ok()?;
    let token = token.hash();
    cell.engine.machine().read(|state| {
        let (name, role) = state.access().operator(&token)?;
        Some(Operator { name: name.to_owned(), role, token })
    })
}

fn needed(method: &Method, path: &str) -> Role {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let is_of_nodes = path.starts_with("/v1/nodes") && !is_read;
    if is_of_nodes || ADMIN.iter().any(|admin| path.starts_with(admin)) {
        Role::Admin
    } else if is_read {
        Role::Read
    } else {
        Role::Deploy
    }
}

fn stranger(message: &str) -> Response {
    let problem = Problem::refusal("unauthorized", message).hint(
        "this daemon's own is in the file api.token of its data directory, an operator's comes from `plimsoll token \
         create`; send it as Authorization: Bearer",
    );
    let mut response = Failure(StatusCode::UNAUTHORIZED, problem).into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_it_is_for() {
        for (method, path, role) in [
            (Method::GET, "/v1/status", Role::Read),
            (Method::PUT, "/v1/deployments/shop", Role::Deploy),
            (Method::DELETE, "/v1/deployments/shop", Role::Deploy),
            (Method::POST, "/v1/replicas/shop-web-1/exec", Role::Deploy),
            (Method::GET, "/v1/nodes", Role::Read),
            (Method::POST, "/v1/nodes/ash/drain", Role::Admin),
            (Method::POST, "/v1/tokens/join", Role::Admin),
            (Method::GET, "/v1/operators", Role::Admin),
            (Method::POST, "/v1/backup", Role::Admin),
        ] {
            assert_eq!(needed(&method, path), role, "{method} {path}");
        }
    }
}
