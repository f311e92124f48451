//! Requests that came to this node and are another's to answer. What changes the cell is the leader's; how things are, the
//! leader knows best, and where there is none this node says what it knows itself; what a container printed or runs
//! is for the node that has it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use plimsoll_model::NodeId;

use super::answer::{Deserted, Failure};
use super::connections::OPEN_PATHS;
use super::context::Context;
use super::peer::Peer;
use crate::cluster::{ANSWER, reach};
use crate::operations::{self, find_replica};
use crate::peer::{Known, Target};
use crate::pki::Caller;
use crate::view::Problem;

/// Who asked the node that passed the request on. Believed of nodes of the cell only.
const IDENTITY: HeaderName = HeaderName::from_static("plimsoll-identity");

/// Whose a request is to answer.
enum Whose {
    Ours,
    Leader(Target),
    /// What only this node can tell.
    Node(Target),
    Nobody,
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
    let passed_on = matches!(request.extensions().get::<Peer>(), Some(Peer::Node { .. }));
    let whose = whose(&context, &request);
    match whose {
        Whose::Ours => {
            let caught_up =
                if is_consistent { context.cell.engine.catch_up().await.map(drop) } else { Ok(()) };
            let response = match caught_up {
                Ok(()) => next.run(request).await,
                Err(error) => Failure::from(operations::Error::Write(error.into())).into_response(),
            };
            if response.extensions().get::<Deserted>().is_none() {
                return response;
            }
            Failure::from(context.deserted(&client).await).into_response()
        }
        // It was passed on once, to the one who should have known.
        Whose::Leader(_) | Whose::Node(_) if passed_on => next.run(request).await,
        Whose::Leader(to) | Whose::Node(to) => {
            let again = (is_read && !is_consistent).then(|| copy(&request));
            let request = signed(&context, request);
            match (client.forward(&to, request, ANSWER).await, again) {
                (Ok(response), _) => response.map(Body::new),
                // Better what this node knows than nothing.
                (Err(_), Some(again)) => next.run(again).await,
                (Err(error), None) => unreachable(&to, &error.to_string()),
            }
        }
        Whose::Nobody if is_read && !is_consistent => next.run(request).await,
        Whose::Nobody => Failure::from(context.leaderless()).into_response(),
    }
}

fn whose(context: &Context, request: &Request) -> Whose {
    if let Some(node) = holder(context, request.uri().path()) {
        if node == context.cell.node {
            return Whose::Ours;
        }
        let address = context
            .cell
            .engine
            .machine()
            .read(|state| state.node(&node).and_then(|node| node.facts.address.clone()));
        return address.map_or(Whose::Ours, |address| Whose::Node(Target { node, address }));
    }
    if context.cell.engine.leadership().borrow().is_me {
        return Whose::Ours;
    }
    reach::leader(&context.cell).map_or(Whose::Nobody, Whose::Leader)
}

/// The node that has the container a request is about.
fn holder(context: &Context, path: &str) -> Option<NodeId> {
    let (name, what) = path.strip_prefix("/v1/replicas/")?.split_once('/')?;
    if !matches!(what, "logs" | "exec") {
        return None;
    }
    context.cell.engine.machine().read(|state| {
        let id = find_replica(state, name).ok()?;
        let replica = state.replica(&id)?;
        let held = replica.assignment.as_ref().or_else(|| replica.leaving.last())?;
        Some(held.node.clone())
    })
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
    let identity = format!("{}@{}", caller.0, context.cell.node);
    if let Ok(identity) = HeaderValue::from_str(&identity) {
        request.headers_mut().insert(IDENTITY, identity);
    }
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
    // Whether a node lives anyone may ask, and one that has just joined knows nobody yet.
    if !is_member && !OPEN_PATHS.contains(&request.uri().path()) {
        let problem = Problem::refusal("removed", format!("{} is not of this cell", caller.node))
            .hint("join it again with a new token: `plimsoll token create-join`");
        return Failure(StatusCode::FORBIDDEN, problem).into_response();
    }
    let peer = Peer::Node { identity: identity(&caller, &request).into() };
    request.extensions_mut().insert(peer);
    next.run(request).await
}

fn identity(caller: &Caller, request: &Request) -> String {
    let said = request.headers().get(IDENTITY).and_then(|identity| identity.to_str().ok());
    said.map_or_else(|| caller.node.to_string(), str::to_owned)
}

fn unreachable(to: &Target, error: &str) -> Response {
    let message = format!("{} answers for this and cannot be reached: {error}", to.node);
    Failure(StatusCode::SERVICE_UNAVAILABLE, Problem::failure("no_leader", message)).into_response()
}
