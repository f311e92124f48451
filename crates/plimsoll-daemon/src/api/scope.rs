//! Operators that are bound to some deployments: they read and change those and no others, as with a Nomad policy. Lists
//! leave the others out, whoever names one of them is refused whether it exists or not, and what speaks of the whole cell
//! is not for them. Nodes they may read: that is where theirs run.
//!
//! Asked by the node that answers, of the operator's record as it is now: so the bounds hold whichever node a request came
//! to, and no node on the way has to carry them.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::http::request::Parts;
use plimsoll_model::access::{MAX_TOKENS, Scope};

use super::answer::ErrorResponse;
use super::context::Context;
use super::dashboard;
use super::requester::Requester;
use crate::context::now;
use plimsoll_api::view::{Problem, ProblemCode};

/// How the audit names an operator, before the node that was asked.
const OPERATOR: &str = "token:";

/// The deployments that whoever asks may read: a handler that lists some leaves out the others.
#[derive(Debug, Clone, Default)]
pub(super) struct Within(pub(super) Scope);

impl<S: Send + Sync> FromRequestParts<S> for Within {
    type Rejection = ErrorResponse;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ErrorResponse> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// What a path is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// Nobody's deployment.
    Open,
    /// Lists that its handler keeps within the bounds.
    Listed,
    /// The deployment that its first name is.
    Deployment,
    /// The deployment of the replica that its first name is.
    Replica,
    /// All deployments at once.
    Cell,
}

/// By the path as the router has it. One that is not named here is closed to whoever is bound, until it is judged.
fn subject(path: &str) -> Subject {
    match path {
        "/"
        | "/healthz"
        | "/readyz"
        | "/openapi.json"
        | "/v1/cell"
        | "/v1/nodes"
        | "/v1/pressure"
        | "/v1/whoami"
        | "/v1/authority"
        | dashboard::ROUTE => Subject::Open,
        "/v1/status" | "/v1/deployments" | "/v1/replicas" | "/v1/routes" | "/v1/certificates"
        | "/v1/watch" | "/v1/secrets" | "/v1/configs" | "/v1/volumes" => Subject::Listed,
        // They are bound to secrets and configs that are named like their deployments.
        path if path.starts_with("/v1/secrets/{name}") => Subject::Deployment,
        path if path.starts_with("/v1/configs/{name}") => Subject::Deployment,
        "/v1/explain/{replica}" => Subject::Replica,
        path if path.starts_with("/v1/deployments/{name}") => Subject::Deployment,
        path if path.starts_with("/v1/replicas/{id}") => Subject::Replica,
        _ => Subject::Cell,
    }
}

/// Refuses an operator what is not theirs, and tells the handler what is.
pub(super) async fn bound(
    State(context): State<Arc<Context>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(name) = request.extensions().get::<Requester>().and_then(operator) else {
        return next.run(request).await;
    };
    let scope =
        context.cell.engine.machine().read(|state| {
            state.access().operators.get(&name).map(|operator| operator.scope.clone())
        });
    let Some(scope) = scope else {
        return refused(format!("token {name} was revoked"));
    };
    note_use(&context, &name);
    if !scope.is_bound() {
        return next.run(request).await;
    }
    let path = request.extensions().get::<MatchedPath>().map(|path| subject(path.as_str()));
    let (mut parts, body) = request.into_parts();
    let is_within = match path.unwrap_or(Subject::Open) {
        Subject::Open | Subject::Listed => true,
        Subject::Cell => {
            return refused(format!("{}; this is about the whole cell", told(&name, &scope)));
        }
        Subject::Deployment => first(&mut parts).await.is_some_and(|name| scope.admits(&name)),
        Subject::Replica => first(&mut parts).await.is_some_and(|replica| {
            let id = context.cell.engine.machine().read(|state| state.find_replica(&replica));
            id.is_some_and(|id| scope.admits(id.service.deployment.as_str()))
        }),
    };
    if !is_within {
        return refused(format!("{}; this is not one of them", told(&name, &scope)));
    }
    request = Request::from_parts(parts, body);
    request.extensions_mut().insert(Within(scope));
    next.run(request).await
}

fn note_use(context: &Context, name: &str) {
    let mut uses = context.token_uses.lock();
    // Of operators that are gone, others may have been told. Rather than ask which, all is forgotten at times.
    if uses.len() > 2 * MAX_TOKENS {
        uses.clear();
    }
    uses.insert(name.to_owned(), now());
}

/// Refuses a deployment that is asked for beside the path.
pub(super) fn check(within: &Within, deployment: &str) -> Result<(), ErrorResponse> {
    let Within(scope) = within;
    if scope.admits(deployment) {
        return Ok(());
    }
    let message =
        format!("this token is bound to deployments {scope}, and {deployment} is not named so");
    Err(Problem::new(ProblemCode::Forbidden, message).into())
}

/// The operator behind a request; none for who has a node's own token or is at its socket.
fn operator(requester: &Requester) -> Option<String> {
    if matches!(requester, Requester::Local { .. }) {
        return None;
    }
    named(&requester.caller().identity)
}

/// `token:ci` and `token:ci@ash` are the operator `ci`, whose name has no `@`.
pub(super) fn named(identity: &str) -> Option<String> {
    let rest = identity.strip_prefix(OPERATOR)?;
    Some(rest.split('@').next().unwrap_or(rest).to_owned())
}

async fn first(parts: &mut Parts) -> Option<String> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    params.iter().next().map(|(_, value)| value.to_owned())
}

fn told(name: &str, scope: &Scope) -> String {
    format!("token {name} is bound to deployments {scope}")
}

fn refused(message: String) -> Response {
    let problem = Problem::new(ProblemCode::Forbidden, message)
        .hint("an admin can create a token for other deployments: `plimsoll token create NAME --deployments ...`");
    ErrorResponse(problem).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_known_by_how_the_audit_names_them() {
        for (identity, name) in [
            ("token:ci", Some("ci")),
            ("token:ci@ash", Some("ci")),
            ("token", None),
            ("unix:token", None),
            ("unix:root@ash", None),
            ("ash", None),
        ] {
            assert_eq!(named(identity).as_deref(), name, "{identity}");
        }
    }

    #[test]
    fn a_path_that_nobody_judged_is_closed() {
        for (path, expected) in [
            ("/v1/deployments/{name}", Subject::Deployment),
            ("/v1/deployments/{name}/rollback", Subject::Deployment),
            ("/v1/replicas/{id}/exec", Subject::Replica),
            ("/v1/deployments", Subject::Listed),
            ("/v1/nodes", Subject::Open),
            ("/v1/secrets", Subject::Listed),
            ("/v1/secrets/{name}/rotate", Subject::Deployment),
            ("/v1/volumes", Subject::Listed),
            ("/v1/deployments/{name}/volumes/{volume}/move", Subject::Deployment),
            ("/v1/nodes/{node}/explain", Subject::Cell),
            ("/v1/snapshot", Subject::Cell),
            ("/v1/audit", Subject::Cell),
            ("/metrics", Subject::Cell),
            ("/v1/something/new", Subject::Cell),
        ] {
            assert_eq!(subject(path), expected, "{path}");
        }
    }
}
