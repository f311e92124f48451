//! What other nodes may ask of this one, on the peer port. All but [`join`](super::join) takes a certificate of the cell,
//! and of a node that is still of it.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use plimsoll_model::{Change, Refusal, Writer};
use plimsoll_store::Peer;
use tokio::sync::mpsc;

use super::containers;
use super::join::{self, Admission};
use super::log::Log;
use super::reach::{self, LEADER, LINK, RENEW};
use super::servers::Roll;
use super::{ANSWER, authority, upgrade};
use crate::cell::{Cell, WriteError, now};
use crate::link::{Host, PIECES_AHEAD, Pipe};
use crate::peer::{Client, Key, Known, MAX_MESSAGE, RAFT, read_whole};
use crate::pki::{Caller, Csr, JoinToken, NODE_LIFETIME};
use crate::routing::Routing;
use crate::routing::tunnel::TUNNEL;
use crate::view::Problem;

/// The most bytes a request of a newcomer may have; a certificate request and some labels have a tenth.
const MAX_ASKED: usize = 64 << 10;

/// What the doors lead to.
#[derive(Debug)]
pub struct Gate {
    pub cell: Cell,
    pub log: Log,
    pub client: Client,
    pub host: Host,
    /// None where nothing is routed.
    pub routing: Option<Arc<Routing>>,
}

/// The doors, and behind them the API for requests that came to another node.
pub fn router(gate: Arc<Gate>, api: Router) -> Router {
    let log = gate.log.door();
    let containers = containers::router(Arc::clone(&gate));
    let doors = Router::new()
        .route(join::PATH, post(admit))
        .route(LINK, post(link))
        .route(RENEW, post(renew))
        .route(TUNNEL, post(tunnel))
        .with_state(Arc::clone(&gate));
    let doors = doors.merge(log).merge(containers).merge(api);
    doors.layer(from_fn_with_state(gate, refuse_removed))
}

/// A node that was removed has a certificate that is good for a while yet.
async fn refuse_removed(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let is_removed = |Key(key)| {
        gate.cell.engine.machine().read(|state| state.access().revoked.contains_key(&key))
    };
    if !Key::of(&request).is_some_and(is_removed) {
        return next.run(request).await;
    }
    if request.uri().path() == RAFT {
        let message = read_whole(request.into_body(), MAX_MESSAGE).await;
        return match message.map(|message| gate.log.turn_away(&message)) {
            Ok(Some(answer)) => Response::new(Body::from(answer)),
            Ok(None) => StatusCode::NOT_FOUND.into_response(),
            Err(status) => status.into_response(),
        };
    }
    let message = "this node was removed from the cell, or another has its name";
    let hint = "to join again, empty its data directory and bring a new token";
    problem(StatusCode::FORBIDDEN, "removed", message, Some(hint))
}

impl Gate {
    /// Whether the caller may open streams to this node's containers: every node that this one knows to be of the cell.
    fn may_reach(&self, caller: &Caller) -> bool {
        let chart = self.cell.soft.chart();
        let is_charted = chart.is_some_and(|chart| chart.nodes.contains_key(&caller.node));
        self.may_ask(caller) || is_charted
    }

    /// Whether the caller may ask for this node's containers. A node without the log knows the servers and nobody else.
    pub(super) fn may_ask(&self, caller: &Caller) -> bool {
        if self.cell.holds_log() {
            self.is_member(caller)
        } else {
            self.cell.servers.hold(caller.node.as_str(), &*self.cell.engine)
        }
    }

    /// Whether a node of this name is of the cell, as far as this one knows.
    fn is_member(&self, caller: &Caller) -> bool {
        self.cell.engine.machine().read(|state| state.node(&caller.node).is_some())
    }

    async fn take_in(&self, request: join::Request) -> Result<Admission, Box<Response>> {
        if let Some(problem) = upgrade::refusal(&self.cell, request.level, &request.facts.version) {
            return refuse(&problem.code, &problem.message, problem.hint.as_deref());
        }
        if request.version != join::VERSION {
            let (found, ours) = (request.version, join::VERSION);
            let message = format!("it joins in version {found}, this cell in {ours}");
            return refuse("version", &message, Some("run the same plimsoll on both"));
        }
        let Ok(token) = request.token.parse::<JoinToken>() else {
            return refuse("token_unknown", "this is not a join token", None);
        };
        let Ok(csr) = Csr::from_der(&request.csr) else {
            return refuse("bad_request", "its certificate request is none", None);
        };
        let Ok(Some(authority)) = authority(&self.cell) else {
            return refuse("no_authority", "the cell has no authority yet", None);
        };
        let node = request.node.clone();
        let change = Change::Join {
            token: token.secret_hash(),
            node: node.clone(),
            facts: request.facts,
            key: csr.key(),
        };
        let written = self.cell.write(Writer::Operator, node.as_str(), vec![change.free()]).await;
        if let Err(error) = written {
            return refuse_write(&error);
        }
        let issued = authority.issue(&csr, &node, now(), NODE_LIFETIME);
        let Ok(certificate) = issued else {
            return refuse("certificate", "no certificate could be made", None);
        };
        let (cluster, server) = self.cell.engine.machine().read(|state| {
            (state.cluster().clone(), state.node(&node).and_then(|node| node.server))
        });
        let certificate = certificate.to_vec();
        let (server, incarnation) = (server.unwrap_or_default(), self.log.incarnation());
        let servers = Roll::of(&*self.cell.engine);
        Ok(Admission { cluster, certificate, server, servers, incarnation })
    }
}

/// A newcomer with a token. Only the leader can take it in, so it is passed on there.
async fn admit(State(gate): State<Arc<Gate>>, request: Request) -> Response {
    let body = match read_whole(request.into_body(), MAX_ASKED).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    if let Some(answer) = elsewhere(&gate, join::PATH, &body).await {
        return answer;
    }
    let Ok(request) = serde_json::from_slice::<join::Request>(&body) else {
        return problem(
            StatusCode::BAD_REQUEST,
            "bad_request",
            "this is not a request to join",
            None,
        );
    };
    match gate.take_in(request).await {
        Ok(admission) => axum::Json(admission).into_response(),
        Err(refused) => *refused,
    }
}

/// Another certificate for a node that cannot sign its own, since it holds no log.
async fn renew(State(gate): State<Arc<Gate>>, Known(caller): Known, request: Request) -> Response {
    let body = match read_whole(request.into_body(), MAX_ASKED).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    let (true, Ok(Some(authority))) = (gate.is_member(&caller), authority(&gate.cell)) else {
        let message = format!("{} is not of this cell", caller.node);
        return problem(StatusCode::FORBIDDEN, "removed", &message, None);
    };
    let issued = Csr::from_der(&body)
        .and_then(|csr| authority.issue(&csr, &caller.node, now(), NODE_LIFETIME));
    match issued {
        Ok(certificate) => Response::new(Body::from(certificate.to_vec())),
        Err(error) => problem(StatusCode::BAD_REQUEST, "bad_request", &error.to_string(), None),
    }
}

/// A node's link to its leader: its words come as the body of the request, ours go as the body of the answer.
async fn link(State(gate): State<Arc<Gate>>, Known(caller): Known, request: Request) -> Response {
    if !gate.cell.engine.leadership().borrow().is_me {
        let leader = reach::leader(&gate.cell);
        let leader = leader.map(|to| Peer { name: to.node.to_string(), address: to.address });
        let named = serde_json::to_string(&leader).expect("two strings can be written");
        let mut answer = StatusCode::MISDIRECTED_REQUEST.into_response();
        if let Ok(named) = HeaderValue::try_from(named) {
            answer.headers_mut().insert(LEADER, named);
        }
        return answer;
    }
    let key = Key::of(&request).filter(|_| gate.log.takes_certificates()).map(|Key(key)| key);
    if key.is_none() && !gate.is_member(&caller) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let (reads, version) = upgrade::announced(request.headers());
    if let Some(problem) = upgrade::refusal(&gate.cell, reads, &version) {
        return upgrade::turn_away(&gate.cell, &caller.node, problem);
    }
    let (to, outgoing) = mpsc::channel::<Vec<u8>>(PIECES_AHEAD);
    let (incoming, from) = mpsc::channel::<Vec<u8>>(PIECES_AHEAD);
    tokio::spawn(receive(request.into_body().into_data_stream(), incoming));
    tokio::spawn(async move {
        let node = caller.node;
        let _word = upgrade::Word::given(&gate.cell, &node, reads);
        if let Err(refused) = gate.host.serve(&node, key, Pipe { to, from }).await {
            tracing::info!(%node, %refused, "a link ended");
        }
    });
    let pieces = unfold(outgoing, |mut outgoing| async move {
        let piece = outgoing.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(piece)), outgoing))
    });
    Response::new(Body::from_stream(pieces))
}

/// A stream to a container of this node.
async fn tunnel(State(gate): State<Arc<Gate>>, Known(caller): Known, request: Request) -> Response {
    if !gate.may_reach(&caller) {
        return StatusCode::FORBIDDEN.into_response();
    }
    match &gate.routing {
        Some(routing) => routing.receive(request).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn receive(mut body: BodyDataStream, to: mpsc::Sender<Vec<u8>>) {
    while let Some(Ok(piece)) = body.next().await {
        if to.send(piece.into()).await.is_err() {
            return;
        }
    }
}

/// The leader's answer, where another node leads; none where this one does, or nobody.
async fn elsewhere(gate: &Gate, path: &str, body: &Bytes) -> Option<Response> {
    let leader = reach::leader(&gate.cell)?;
    let asked = gate.client.call(&leader, Method::POST, path, body.clone(), ANSWER).await;
    Some(match asked {
        Ok(answer) => (answer.status, answer.body).into_response(),
        Err(error) => {
            let message = format!("{} leads and cannot be reached: {error}", leader.node);
            problem(StatusCode::SERVICE_UNAVAILABLE, "no_leader", &message, None)
        }
    })
}

fn refuse<T>(code: &str, message: &str, hint: Option<&str>) -> Result<T, Box<Response>> {
    Err(Box::new(problem(StatusCode::FORBIDDEN, code, message, hint)))
}

fn refuse_write<T>(error: &WriteError) -> Result<T, Box<Response>> {
    let (status, code) = match error {
        WriteError::Refused(rejection) => match rejection.reason {
            Refusal::TokenUnknown => (StatusCode::FORBIDDEN, "token_unknown"),
            Refusal::TokenUsed { .. } => (StatusCode::FORBIDDEN, "token_used"),
            Refusal::TokenExpired { .. } => (StatusCode::FORBIDDEN, "token_expired"),
            Refusal::NameTaken { .. } => (StatusCode::CONFLICT, "name_taken"),
            _ => (StatusCode::UNPROCESSABLE_ENTITY, "refused"),
        },
        WriteError::Store(plimsoll_store::Error::QuorumLost) => {
            (StatusCode::SERVICE_UNAVAILABLE, "quorum_lost")
        }
        WriteError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "no_leader"),
    };
    let message = match error {
        WriteError::Refused(rejection) => rejection.reason.to_string(),
        WriteError::Store(error) => error.to_string(),
    };
    Err(Box::new(problem(status, code, &message, None)))
}

fn problem(status: StatusCode, code: &str, message: &str, hint: Option<&str>) -> Response {
    let hint = hint.map(str::to_owned);
    let is_refusal = status.is_client_error();
    let problem = Problem { code: code.to_owned(), message: message.to_owned(), hint, is_refusal };
    (status, axum::Json(problem)).into_response()
}
