//! Requests that came to this node and are another's to answer. What changes the cell is the leader's; how things are, the
//! leader knows best, and where there is none this node says what it knows itself.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use plimsoll_model::access::Role;

use super::answer::Failure;
use super::context::Context;
use super::exec::MAX_PATIENCE;
use super::peer::Peer;
use crate::cluster::{ANSWER, reach};
use crate::operations;
use crate::peer::{Known, Target};
use crate::pki::Caller;
use crate::view::Problem;

/// Who asked the node that passed the request on. Believed of nodes of the cell only.
const IDENTITY: HeaderName = HeaderName::from_static("plimsoll-identity");

/// What they may do, likewise.
const ROLE: HeaderName = HeaderName::from_static("plimsoll-role");

/// Whose a request is to answer.
enum Whose {
    Ours,
    Leader(Target),
    Nobody,
}

/// What a request costs whoever passes it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Short,
    /// Its answer may be long, and its reader slow: it must not share a connection with others.
    Logs,
    /// Its answer comes when the command is done.
    Exec,
}

impl Kind {
    fn of(path: &str) -> Self {
        match path.rsplit('/').next() {
            Some("logs") => Self::Logs,
            Some("exec") => Self::Exec,
            _ => Self::Short,
        }
    }
}

pub(super) async fn pass_on(
    State(context): State<Arc<Context>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(client) = context.client.get().cloned() else { return next.run(request).await };
    if !request.uri().path().starts_with("/v1/") {
        return next.run(request).await;
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_consistent = is_read && asks_for_consistency(&request);
    let kind = Kind::of(request.uri().path());
    let passed_on = matches!(request.extensions().get::<Peer>(), Some(Peer::Node { .. }));
    match whose(&context) {
        Whose::Ours => {
            if is_consistent && let Err(error) = context.cell.engine.catch_up().await {
                let error = operations::Error::Write(error.into());
                return Failure::from(error).into_response();
            }
            next.run(request).await
        }
        // It was passed on once, to the one who should have known.
        Whose::Leader(_) if passed_on => next.run(request).await,
        Whose::Leader(to) => {
            let again = (is_read && !is_consistent).then(|| copy(&request));
            let request = signed(&context, request);
            let (client, patience) = match kind {
                Kind::Short => (client, ANSWER),
                Kind::Logs => (client.apart(), ANSWER),
                Kind::Exec => (client.apart(), MAX_PATIENCE + ANSWER),
            };
            match (client.forward(&to, request, patience).await, again) {
                (Ok(response), _) => response.map(Body::new),
                // Better what this node knows than nothing.
                (Err(_), Some(again)) => next.run(again).await,
                (Err(error), None) => unreachable(&to, &error.to_string()),
            }
        }
        Whose::Nobody if is_read && !is_consistent => next.run(request).await,
        // It changes nothing of the cell, and whoever asks may want to know what is wrong with it.
        Whose::Nobody if kind == Kind::Exec => next.run(request).await,
        Whose::Nobody if let Some(error) = context.cell.engine.trouble() => {
            Failure::from(operations::Error::Write(error.into())).into_response()
        }
        Whose::Nobody => {
            let problem = Problem::failure("no_leader", "no server leads at the moment").hint(
                "it may take a moment to elect one; `plimsoll cluster status` shows the servers",
            );
            Failure(StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
        }
    }
}

fn whose(context: &Context) -> Whose {
    if context.cell.engine.leadership().borrow().is_me {
        return Whose::Ours;
    }
    reach::leader(&context.cell).map_or(Whose::Nobody, Whose::Leader)
}

fn asks_for_consistency(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|part| part == "consistent=true")
}

/// A read has no body, so it can be asked twice.
fn copy(request: &Request) -> Request {
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

/// The request with who asks in it: the other node sees only us.
fn signed(context: &Context, mut request: Request) -> Request {
    let peer = request.extensions().get::<Peer>().cloned();
    let caller = peer.unwrap_or(Peer::Local { uid: None }).caller();
    let identity = format!("{}@{}", caller.identity, context.cell.node);
    if let Ok(identity) = HeaderValue::from_str(&identity) {
        request.headers_mut().insert(IDENTITY, identity);
    }
    request.headers_mut().insert(ROLE, HeaderValue::from_static(caller.role.word()));
    request
}

/// For requests that came by the peer port: only nodes of the cell come this way, and they say who asked them.
///
/// The certificate of a node that was removed is still good, so it is looked up.
pub(super) async fn by_peer(
    State(context): State<Arc<Context>>,
    Known(caller): Known,
    mut request: Request,
    next: Next,
) -> Response {
    let is_member = context.cell.engine.machine().read(|state| state.node(&caller.node).is_some());
    if !is_member {
        let problem = Problem::refusal("removed", format!("{} is not of this cell", caller.node));
        return Failure(StatusCode::FORBIDDEN, problem).into_response();
    }
    let (identity, role) = (identity(&caller, &request).into(), role(&request));
    request.extensions_mut().insert(Peer::Node { identity, role });
    next.run(request).await
}

fn identity(caller: &Caller, request: &Request) -> String {
    let said = request.headers().get(IDENTITY).and_then(|identity| identity.to_str().ok());
    said.map_or_else(|| caller.node.to_string(), str::to_owned)
}

/// What whoever asked may do. A node that does not say has let nobody in who may not deploy.
fn role(request: &Request) -> Role {
    let said = request.headers().get(ROLE).and_then(|role| role.to_str().ok());
    Role::ALL.into_iter().find(|role| Some(role.word()) == said).unwrap_or(Role::Deploy)
}

fn unreachable(to: &Target, error: &str) -> Response {
    let message = format!("{} answers for this and cannot be reached: {error}", to.node);
    Failure(StatusCode::SERVICE_UNAVAILABLE, Problem::failure("no_leader", message)).into_response()
}
