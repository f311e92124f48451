//! What other nodes may ask of this one, on the peer port. All but [`join`](crate::cell::join) takes a certificate of the cell,
//! for the key that is enrolled for its name: a name alone proves nothing, and a node that was removed keeps its certificate.

use std::sync::{Arc, Mutex, MutexGuard};

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
use plimsoll_model::access::Digest;
use plimsoll_model::{Change, Refusal, Writer};
use plimsoll_store::Peer;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::authorities::CellAuthorities;
use crate::cell::join::{self, Admission};
use crate::cell::join_limiter::{Charge, JoinLimiter, Limited, MAX_REFUSED};
use crate::cell::log::CellLog;
use crate::cell::reach::{self, LEADER, LINK, RENEW};
use crate::cell::{ANSWER, authority, upgrade};
use crate::context::{NodeContext, now};
use crate::link::{LinkServer, PIECES_AHEAD, Pipe, Report};
use crate::problem;
use crate::routing::Routing;
use crate::routing::tunnel::TUNNEL;
use crate::servers::ServerList;
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_peer::pki::{Caller, Csr, JoinToken, NODE_LIFETIME};
use plimsoll_peer::{Key, KnownCaller, MAX_MESSAGE, PeerClient, RAFT, Remote, read_whole};

pub mod containers;
pub mod fleet;
pub mod images;
pub mod volumes;

/// The most bytes a request of a newcomer may have; a certificate request and some labels have a tenth.
const MAX_ASKED: usize = 64 << 10;

/// What the endpoints need.
#[derive(Debug)]
pub struct PeerApi {
    pub cell: NodeContext,
    pub log: CellLog,
    pub client: PeerClient,
    pub host: LinkServer,
    /// None where nothing is routed.
    pub routing: Option<Arc<Routing>>,
    /// What this node did for others, for the audit.
    pub reports: mpsc::UnboundedSender<Report>,
    pub limiter: Mutex<JoinLimiter>,
}

/// Where a leader asks whether a node answers a challenge of an ACME authority.
pub const CHALLENGE: &str = "/peer/challenge";

/// The endpoints, and behind them the API for requests that came to another node.
pub fn router(gate: Arc<PeerApi>, api: Router) -> Router {
    let log = gate.log.peer_routes();
    let containers = containers::router(Arc::clone(&gate));
    let images = images::router(Arc::clone(&gate));
    let volumes = volumes::router(Arc::clone(&gate));
    let fleet = fleet::router(Arc::clone(&gate));
    let routes = Router::new()
        .route(join::PATH, post(admit))
        .route(LINK, post(link))
        .route(RENEW, post(renew))
        .route(TUNNEL, post(tunnel))
        .route(CHALLENGE, post(challenge))
        .with_state(Arc::clone(&gate));
    let routes = routes.merge(log).merge(containers).merge(images).merge(volumes);
    let routes = routes.merge(fleet).merge(api);
    routes.layer(from_fn_with_state(gate, refuse_removed))
}

/// A node that was removed has a certificate that is good for a while yet.
async fn refuse_removed(
    State(gate): State<Arc<PeerApi>>,
    request: Request,
    next: Next,
) -> Response {
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
    answer(&Problem::new(ProblemCode::Removed, message).hint(hint))
}

impl PeerApi {
    /// Whether the caller may open streams to this node's containers: every node that this one knows to be of the cell.
    fn may_reach(&self, caller: &Caller, key: &Digest) -> bool {
        if self.cell.holds_log() {
            return self.cell.is_member(&caller.node, key);
        }
        let endpoints = self.cell.endpoints.latest();
        let is_known =
            endpoints.is_some_and(|endpoints| endpoints.keys.get(&caller.node) == Some(key));
        is_known || self.may_ask(caller, key)
    }

    /// Whether the caller may ask for this node's containers: a server, which has checked whoever asked it.
    fn may_ask(&self, caller: &Caller, key: &Digest) -> bool {
        self.cell.is_server(&caller.node, key)
    }

    /// Counts a request to join against whoever sends it. A server has counted it already.
    fn charge(&self, request: &Request) -> Result<Option<Charge>, Box<Response>> {
        let caller = request.extensions().get::<Option<Caller>>().cloned().flatten();
        let key = Key::of(request).map(|Key(key)| key);
        if let (Some(caller), Some(key)) = (caller, key)
            && self.cell.is_server(&caller.node, &key)
        {
            return Ok(None);
        }
        let Some(Remote(remote)) = request.extensions().get::<Remote>().copied() else {
            return Ok(None);
        };
        let charged = self.limiter().charge(remote.ip(), Instant::now());
        charged.map(Some).map_err(|Limited { wait }| {
            let seconds = wait.as_secs().max(1);
            let message = format!(
                "{MAX_REFUSED} join requests from {} were refused; try again in {seconds} s",
                remote.ip()
            );
            Box::new(say(ProblemCode::JoinLimited, &message))
        })
    }

    fn limiter(&self) -> MutexGuard<'_, JoinLimiter> {
        self.limiter.lock().expect("nobody panics while holding the limiter")
    }

    async fn take_in(&self, request: join::JoinRequest) -> Result<Admission, Box<Response>> {
        if let Some(problem) = upgrade::refusal(&self.cell, request.level, &request.facts.version) {
            return Err(Box::new(answer(&problem)));
        }
        if request.version != join::VERSION {
            let (found, ours) = (request.version, join::VERSION);
            let message = format!("it joins in version {found}, this cell in {ours}");
            return refuse(ProblemCode::Version, &message);
        }
        let Ok(token) = request.token.parse::<JoinToken>() else {
            return refuse(ProblemCode::TokenUnknown, "this is not a join token");
        };
        // Looked up before anything is worked out or written: a stranger's guess must cost the cell nothing.
        let (token, machine) = (token.secret_hash(), self.cell.engine.machine());
        if machine.read(|state| !state.access().join_tokens.contains_key(&token)) {
            return Err(Box::new(answer(&problem::refusal(&Refusal::TokenUnknown))));
        }
        let Ok(csr) = Csr::from_der(&request.csr) else {
            return refuse(ProblemCode::BadRequest, "its certificate request cannot be read");
        };
        let may = machine.read(|state| state.may_join(&token, &request.node, csr.key(), now()));
        if let Err(refused) = may {
            return Err(Box::new(answer(&problem::refusal(&refused))));
        }
        let Ok(Some(authority)) = authority(&self.cell) else {
            return refuse(ProblemCode::NoAuthority, "the cell has no authority yet");
        };
        let node = request.node.clone();
        let change =
            Change::Join { token, node: node.clone(), facts: request.facts, key: csr.key() };
        let written = self.cell.write(Writer::Operator, node.as_str(), vec![change.free()]).await;
        if let Err(error) = written {
            return Err(Box::new(answer(&problem::written(&error))));
        }
        let issued = authority.issue(&csr, &node, now(), NODE_LIFETIME);
        let Ok(certificate) = issued else {
            return refuse(ProblemCode::Bug, "no certificate could be made");
        };
        let (cell_id, server, authorities) = self.cell.engine.machine().read(|state| {
            let server = state.node(&node).and_then(|node| node.server);
            (state.cell_id().clone(), server, CellAuthorities::of(state))
        });
        let certificate = certificate.to_vec();
        let (server, incarnation) = (server.unwrap_or_default(), self.log.incarnation());
        let servers = ServerList::of(&*self.cell.engine);
        Ok(Admission { cell_id, certificate, server, servers, incarnation, authorities })
    }
}

/// A newcomer with a token. Only the leader can take it in, so it is passed on there.
async fn admit(State(gate): State<Arc<PeerApi>>, request: Request) -> Response {
    let charge = match gate.charge(&request) {
        Ok(charge) => charge,
        Err(limited) => return *limited,
    };
    let answer = taken_in(&gate, request).await;
    // Whoever is taken in, or was turned away through no fault of their own, has not used anything up.
    if let Some(charge) = charge
        && !answer.status().is_client_error()
    {
        gate.limiter().refund(charge);
    }
    answer
}

async fn taken_in(gate: &PeerApi, request: Request) -> Response {
    let body = match read_whole(request.into_body(), MAX_ASKED).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    if let Some(answer) = elsewhere(gate, join::PATH, &body).await {
        return answer;
    }
    let Ok(request) = serde_json::from_slice::<join::JoinRequest>(&body) else {
        return say(ProblemCode::BadRequest, "this is not a request to join");
    };
    match gate.take_in(request).await {
        Ok(admission) => axum::Json(admission).into_response(),
        Err(refused) => *refused,
    }
}

/// Another certificate for a node that cannot sign its own, since it holds no log. It is for the key that is enrolled: a new
/// one would be another node under its name.
async fn renew(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    let body = match read_whole(request.into_body(), MAX_ASKED).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    let is_member = gate.cell.is_member(&caller.node, &key);
    let (true, Ok(Some(authority))) = (is_member, authority(&gate.cell)) else {
        return answer(&problem::no_member(&caller.node));
    };
    let csr = match Csr::from_der(&body) {
        Ok(csr) => csr,
        Err(error) => return say(ProblemCode::BadRequest, &error.to_string()),
    };
    if csr.key() != key {
        let message =
            format!("the key of this request is not the one enrolled for {}", caller.node);
        return say(ProblemCode::OtherKey, &message);
    }
    match authority.issue(&csr, &caller.node, now(), NODE_LIFETIME) {
        Ok(certificate) => Response::new(Body::from(certificate.to_vec())),
        Err(error) => say(ProblemCode::BadRequest, &error.to_string()),
    }
}

/// A node's link to its leader: its words come as the body of the request, ours go as the body of the answer.
async fn link(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
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
    let is_member = gate.cell.is_member(&caller.node, &key);
    let key = gate.log.takes_certificates().then_some(key);
    if key.is_none() && !is_member {
        return answer(&problem::no_member(&caller.node));
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
        let _word = upgrade::DeclaredLevel::given(&gate.cell, &node, reads);
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
async fn tunnel(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_reach(&caller, &key) {
        return answer(&problem::no_member(&caller.node));
    }
    match &gate.routing {
        Some(routing) => routing.receive(request).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Whether this node answers an authority's challenge, as `host token`. One that takes no requests for routes has nothing to
/// answer, and is not waited for.
async fn challenge(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_ask(&caller, &key) {
        return answer(&problem::no_member(&caller.node));
    }
    let body = match read_whole(request.into_body(), MAX_ASKED).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    let asked = std::str::from_utf8(&body).ok().and_then(|text| text.split_once(' '));
    let Some((host, token)) = asked else { return StatusCode::BAD_REQUEST.into_response() };
    let ingress = gate.cell.ingress.lock();
    let is_known = ingress.answered_challenges.get(host).is_some_and(|known| known == token);
    if is_known || !ingress.listeners().any() {
        StatusCode::NO_CONTENT.into_response()
    } else {
        StatusCode::NOT_FOUND.into_response()
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
async fn elsewhere(gate: &PeerApi, path: &str, body: &Bytes) -> Option<Response> {
    let leader = reach::leader(&gate.cell)?;
    let asked = gate.client.call(&leader, Method::POST, path, body.clone(), ANSWER).await;
    Some(match asked {
        Ok(answer) => (answer.status, answer.body).into_response(),
        Err(error) => {
            let message = format!("{} leads and cannot be reached: {error}", leader.node);
            say(ProblemCode::NoLeader, &message)
        }
    })
}

fn refuse<T>(code: ProblemCode, message: &str) -> Result<T, Box<Response>> {
    Err(Box::new(say(code, message)))
}

fn say(code: ProblemCode, message: &str) -> Response {
    answer(&Problem::new(code, message))
}

fn answer(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::FORBIDDEN);
    (status, axum::Json(problem)).into_response()
}
