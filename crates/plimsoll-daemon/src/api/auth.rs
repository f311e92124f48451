//! Who may do what: over TCP whoever has this daemon's own token may do anything, and an operator of the cell, by a token or by the
//! key of a certificate, what their role allows; on the socket, whoever can open it. A token that is revoked is unknown here as soon as the log has said so.
//!
//! All of this takes the log. A node without it cannot check anybody, and its word is not believed: tokens go on to a server
//! as they are, and without one such a node asks as itself, for the little that any node may read.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use plimsoll_model::Millis;
use plimsoll_model::access::{Digest, Role};
use tokio::time::{sleep, timeout};

use super::answer::ErrorResponse;
use super::forward::RequestKind;
use super::requester::Requester;
use super::token::Token;
use crate::context::{NodeContext, now};
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_peer::pki::{Login, OperatorToken};

/// What only an admin may ask for, to read or to write: it holds or makes the keys of the cell.
const ADMIN: [&str; 5] =
    ["/v1/tokens", "/v1/operators", "/v1/backup", "/v1/cell/rotation", "/v1/registries"];

/// What everybody may read and only an admin may change: it is about the whole cell.
const ADMIN_WRITES: [&str; 4] = ["/v1/nodes", "/v1/reschedule", "/v1/optimize/apply", "/v1/fleet"];

/// What is in a config of the cell: for those who could have a service of theirs read it.
const CONFIG: &str = "/v1/configs/";

/// These ask by writing what it is about, and change nothing.
const QUESTIONS: [&str; 2] = ["/v1/what-if", "/v1/optimize"];

/// How long somebody on the socket waits for a node that has just joined to be given the log: the leader sees to it twice
/// a second.
const GIVEN_THE_LOG: Duration = Duration::from_secs(2);

/// What every browser says of a request since 2023.
const FETCH_SITE: &str = "sec-fetch-site";

const LOOK_AGAIN: Duration = Duration::from_millis(20);

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
        key: Option<Digest>,
    ) -> Result<Requester, Box<Response>> {
        let can_check = self.cell.can_check();
        // Who brings a token asks with that, whatever else they show.
        let Some(given) = given(headers) else {
            return match key {
                None => Err(Box::new(stranger("a token is needed here"))),
                Some(_) if !can_check => {
                    let message = "certificates cannot be checked here: this node does not hold the log; ask a server";
                    Err(Box::new(stranger(message)))
                }
                // A browser would show it on behalf of any page that its user has open.
                Some(_) if headers.contains_key(ORIGIN) || headers.contains_key(FETCH_SITE) => {
                    let message =
                        "certificates are for programs; in a browser, log in with a token";
                    Err(Box::new(stranger(message)))
                }
                Some(key) => {
                    let check = by_hash(&self.cell, key);
                    may(check, "certificate", method, path).map(Requester::from)
                }
            };
        };
        if self.token.admits(given) {
            return if can_check { Ok(Requester::Token) } else { this_node(method, path) };
        }
        if !can_check {
            return Ok(Requester::Unchecked);
        }
        operator(&self.cell, method, path, given).map(Requester::from)
    }

    pub(super) fn cell(&self) -> &NodeContext {
        &self.cell
    }
}

/// Who asks on the socket of this node.
pub(super) async fn local(
    cell: &NodeContext,
    uid: Option<u32>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<Requester, Box<Response>> {
    let is_open = !path.starts_with("/v1/");
    if is_open || cell.can_check() {
        return Ok(Requester::Local { uid });
    }
    if given(headers).is_some() {
        return Ok(Requester::Unchecked);
    }
    let refused = match this_node(method, path) {
        Ok(this_node) => return Ok(this_node),
        Err(refused) => refused,
    };
    // One that joined a moment ago may be given the log in another.
    let checked = async {
        while !cell.can_check() {
            sleep(LOOK_AGAIN).await;
        }
    };
    match timeout(GIVEN_THE_LOG, checked).await {
        Ok(()) => Ok(Requester::Local { uid }),
        Err(_) => Err(refused),
    }
}

/// For who brings no token where none can be checked.
fn this_node(method: &Method, path: &str) -> Result<Requester, Box<Response>> {
    if node_may(method, path) {
        return Ok(Requester::ThisNode);
    }
    let message = "token needed here: this node does not hold the log";
    Err(Box::new(token_needed(message)))
}

/// That a node without the log asks for what takes a token.
pub(super) fn token_needed(message: &str) -> Response {
    ErrorResponse(Problem::new(ProblemCode::TokenNeeded, message)).into_response()
}

/// What a node may ask for as itself: how things are, and nothing that services print.
pub(super) fn node_may(method: &Method, path: &str) -> bool {
    needed_role(method, path) == Role::Read && RequestKind::of(path) == RequestKind::Short
}

/// That this takes another role.
pub(super) fn forbidden(who: &str, role: Role, needed: Role) -> Response {
    let message = format!("{who} has role {}; this needs {}", role.word(), needed.word());
    ErrorResponse(Problem::new(ProblemCode::Forbidden, message)).into_response()
}

/// Somebody who has a token of the cell, or the key that stands for one.
#[derive(Debug)]
pub(super) struct AuthenticatedOperator {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) token: Digest,
}

impl From<AuthenticatedOperator> for Requester {
    fn from(AuthenticatedOperator { name, role, token }: AuthenticatedOperator) -> Self {
        Self::Operator { name: name.into(), role, token }
    }
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
    may(known(cell, given), "token", method, path)
}

fn may(
    check: TokenCheck,
    what: &str,
    method: &Method,
    path: &str,
) -> Result<AuthenticatedOperator, Box<Response>> {
    let operator = match check {
        TokenCheck::Good(operator) => operator,
        TokenCheck::Unknown => {
            let message = format!("this is not a {what} of this cell, or it was revoked");
            return Err(Box::new(stranger(&message)));
        }
        TokenCheck::Expired { name, ago } => {
            let message = format!("{what} {name} expired {ago} ago; an admin can create another");
            return Err(Box::new(stranger(&message)));
        }
    };
    let (AuthenticatedOperator { name, role, .. }, needed) = (&operator, needed_role(method, path));
    if *role < needed {
        return Err(Box::new(forbidden(&format!("token {name}"), *role, needed)));
    }
    Ok(operator)
}

/// What a text is to this cell.
enum TokenCheck {
    Good(AuthenticatedOperator),
    Expired { name: String, ago: Millis },
    Unknown,
}

fn known(cell: &NodeContext, given: &str) -> TokenCheck {
    // People paste what `token create` printed: the token is a part of it.
    let token = match given.parse::<Login>() {
        Ok(login) => login.token,
        Err(_) => match given.parse::<OperatorToken>() {
            Ok(token) => token,
            Err(_) => return TokenCheck::Unknown,
        },
    };
    by_hash(cell, token.hash())
}

/// The same of what the cell keeps of a token or of a key.
fn by_hash(cell: &NodeContext, token: Digest) -> TokenCheck {
    cell.engine.machine().read(|state| {
        let Some((name, operator)) = state.access().operator(&token) else {
            return TokenCheck::Unknown;
        };
        let (name, at) = (name.to_owned(), now());
        match operator.expires_at {
            Some(expires_at) if operator.has_expired(at) => {
                TokenCheck::Expired { name, ago: at.since(expires_at) }
            }
            _ => TokenCheck::Good(AuthenticatedOperator { name, role: operator.role, token }),
        }
    })
}

pub(super) fn needed_role(method: &Method, path: &str) -> Role {
    let is_read = matches!(*method, Method::GET | Method::HEAD) || QUESTIONS.contains(&path);
    let is_of_cell = !is_read && ADMIN_WRITES.iter().any(|it| path.starts_with(it));
    let is_data = path.contains("/volumes/") && path.ends_with("/content");
    if is_of_cell || ADMIN.iter().any(|admin| path.starts_with(admin)) {
        Role::Admin
    } else if is_read && !path.starts_with(CONFIG) && !is_data {
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
            (Method::POST, "/v1/what-if", Role::Read),
            (Method::POST, "/v1/optimize", Role::Read),
            (Method::POST, "/v1/optimize/apply", Role::Admin),
            (Method::GET, "/v1/secrets/db", Role::Read),
            (Method::POST, "/v1/secrets", Role::Deploy),
            (Method::GET, "/v1/configs", Role::Read),
            (Method::GET, "/v1/configs/site", Role::Deploy),
            (Method::GET, "/v1/deployments/shop/volumes/shop_db", Role::Read),
            (Method::POST, "/v1/deployments/shop/volumes/shop_db/hold", Role::Deploy),
            (Method::GET, "/v1/deployments/shop/volumes/shop_db/content", Role::Deploy),
            (Method::PUT, "/v1/deployments/shop/volumes/shop_db/content", Role::Deploy),
            (Method::POST, "/v1/nodes/ash/drain", Role::Admin),
            (Method::GET, "/v1/reschedule", Role::Read),
            (Method::POST, "/v1/reschedule", Role::Admin),
            (Method::GET, "/v1/fleet", Role::Read),
            (Method::POST, "/v1/fleet/tokens", Role::Admin),
            (Method::DELETE, "/v1/fleet/membership", Role::Admin),
            (Method::POST, "/v1/tokens/join", Role::Admin),
            (Method::GET, "/v1/operators", Role::Admin),
            (Method::POST, "/v1/backup", Role::Admin),
            (Method::GET, "/v1/backup/key", Role::Admin),
            (Method::GET, "/v1/cell", Role::Read),
            (Method::POST, "/v1/cell/rotation", Role::Admin),
            (Method::GET, "/v1/registries", Role::Admin),
            (Method::POST, "/v1/registries", Role::Admin),
            (Method::DELETE, "/v1/registries/r.example", Role::Admin),
        ] {
            assert_eq!(needed_role(&method, path), role, "{method} {path}");
        }
    }

    #[test]
    fn a_node_may_see_how_things_are_and_nothing_more() {
        for (method, path, may) in [
            (Method::GET, "/v1/status", true),
            (Method::GET, "/v1/deployments/shop", true),
            (Method::GET, "/v1/deployments/shop/logs", false),
            (Method::GET, "/v1/deployments/shop/volumes/shop_db/content", false),
            (Method::GET, "/v1/replicas/shop-web-1/logs", false),
            (Method::POST, "/v1/replicas/shop-web-1/exec", false),
            (Method::GET, "/v1/operators", false),
            (Method::GET, "/v1/backup", false),
            (Method::GET, "/v1/backup/key", false),
            (Method::PUT, "/v1/deployments/shop", false),
            (Method::POST, "/v1/nodes/ash/drain", false),
        ] {
            assert_eq!(node_may(&method, path), may, "{method} {path}");
        }
    }
}
