//! Who may do what over TCP: whoever has this daemon's own token may do anything, and an operator of the cell what their
//! role allows. A token that is revoked is unknown here as soon as the log has said so.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use plimsoll_model::access::{Digest, Role};

use super::answer::ErrorResponse;
use super::requester::Requester;
use super::token::Token;
use crate::context::NodeContext;
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_peer::pki::OperatorToken;

/// What only an admin may ask for, to read or to write: it holds or makes the keys of the cell.
const ADMIN: [&str; 3] = ["/v1/tokens", "/v1/operators", "/v1/backup"];

#[derive(Debug, Clone)]
pub(super) struct Permits {
    token: Arc<Token>,
    cell: NodeContext,
}

impl Permits {
    pub(super) fn new(token: Token, cell: NodeContext) -> Self {
        Self { token: Arc::new(token), cell }
    }

    pub(super) fn admit(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Requester, Box<Response>> {
        let Some(given) = given(headers) else {
            return Err(Box::new(stranger("a token is needed here")));
        };
        if self.token.admits(given) {
            return Ok(Requester::Token);
        }
        if !self.cell.holds_log() {
            return Ok(Requester::Unchecked);
        }
        let AuthenticatedOperator { name, role, token } =
            operator(&self.cell, method, path, given)?;
        Ok(Requester::Operator { name: name.into(), role, token })
    }

    pub(super) fn cell(&self) -> &NodeContext {
        &self.cell
    }
}

/// Somebody who has a token of the cell.
#[derive(Debug)]
pub(super) struct AuthenticatedOperator {
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
    cell: &NodeContext,
    method: &Method,
    path: &str,
    given: &str,
) -> Result<AuthenticatedOperator, Box<Response>> {
    let Some(operator) = known(cell, given) else {
        return Err(Box::new(stranger("this is not a token of this cell, or it was revoked")));
    };
    let (AuthenticatedOperator { name, role, .. }, needed) = (&operator, needed_role(method, path));
    if *role < needed {
        let message =
            format!("token {name} has role {}; this needs {}", role.word(), needed.word());
        let problem = Problem::new(ProblemCode::Forbidden, message);
        return Err(Box::new(ErrorResponse(problem).into_response()));
    }
    Ok(operator)
}

fn known(cell: &NodeContext, given: &str) -> Option<AuthenticatedOperator> {
    let token: OperatorToken = given.parse().ok()?;
    let token = token.hash();
    cell.engine.machine().read(|state| {
        let (name, role) = state.access().operator(&token)?;
        Some(AuthenticatedOperator { name: name.to_owned(), role, token })
    })
}

pub(super) fn needed_role(method: &Method, path: &str) -> Role {
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
    let problem = Problem::new(ProblemCode::Unauthorized, message);
    let mut response = ErrorResponse(problem).into_response();
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
            assert_eq!(needed_role(&method, path), role, "{method} {path}");
        }
    }
}
