//! Requests that came to this node and are another's to answer. What changes the cell is the leader's; how things are, the
//! leader knows best, and where there is none this node says what it knows itself.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use plimsoll_model::access::{Digest, Role};
use tokio::time::{Instant, sleep, timeout};

use super::answer::{Deserted, Failure, UNTAKEN};
use super::connections::OPEN_PATHS;
use super::context::Context;
use super::exec::MAX_PATIENCE;
use super::extract::read;
use super::peer::Peer;
use super::permit::{self, Operator};
use super::revocation::while_good;
use crate::cluster::{self, ANSWER, reach};
use crate::operations;
use crate::peer::{self, Client, Known, Target};
use crate::pki::Caller;
use crate::view::Problem;

const NO_LEADER: &str = "no_leader";

/// How long a request may wait for a leader: a few elections.
const ELECTION: Duration = Duration::from_secs(3);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

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

    /// By which connections it goes, and how long its answer may take to begin.
    fn way(self, client: &Client) -> (Client, Duration) {
        match self {
            Self::Short => (client.clone(), ANSWER),
            Self::Logs => (client.apart(), ANSWER),
            Self::Exec => (client.apart(), MAX_PATIENCE + ANSWER),
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
    let peer = request.extensions().get::<Peer>();
    let passed_on = matches!(peer, Some(Peer::Node { .. }));
    // Of somebody whom only others can check, nothing is kept.
    let is_known = peer != Some(&Peer::Unchecked);
    let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
    if is_write && is_known && !passed_on && Kind::of(request.uri().path()) == Kind::Short {
        return until_taken(&context, &client, request, next).await;
    }
    once(&context, &client, request, next, passed_on).await
}

/// While leadership changes hands nobody takes a write, and whoever asks for one need not notice.
async fn until_taken(context: &Context, client: &Client, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let body = match read(&head.headers, body).await {
        Ok(body) => Bytes::from(body),
        Err(failure) => return failure.into_response(),
    };
    let deadline = Instant::now() + ELECTION;
    loop {
        let request = Request::from_parts(head.clone(), Body::from(body.clone()));
        let response = once(context, client, request, next.clone(), false).await;
        if !response.headers().contains_key(UNTAKEN) || Instant::now() >= deadline {
            return response;
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn once(
    context: &Context,
    client: &Client,
    request: Request,
    next: Next,
    passed_on: bool,
) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_consistent = is_read && asks_for_consistency(&request);
    let kind = Kind::of(request.uri().path());
    if (!is_read || is_consistent) && kind != Kind::Exec && !passed_on {
        until_led(context).await;
    }
    if !context.cell.holds_log() {
        return ask_a_server(context, client, request, passed_on).await;
    }
    match whose(context) {
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
            Failure::from(context.deserted(client).await).into_response()
        }
        // Another leads by now, and what this node knows may be old.
        Whose::Leader(to) if passed_on && is_consistent => deposed(&to),
        // It was passed on once, to the one who should have known.
        Whose::Leader(_) if passed_on => next.run(request).await,
        Whose::Leader(to) => {
            let again = (is_read && !is_consistent).then(|| copy(&request));
            let request = signed(context, request);
            let (client, patience) = kind.way(client);
            match (client.forward(&to, request, patience).await, again) {
                (Ok(response), _) => response.map(Body::new),
                // Better what this node knows than nothing.
                (Err(_), Some(again)) => next.run(again).await,
                (Err(error), None) if !is_read && error.may_have_arrived() => lost(&to, &error),
                (Err(error), None) => unreachable(&to, &error),
            }
        }
        Whose::Nobody if is_read && !is_consistent => next.run(request).await,
        // It changes nothing of the cell, and whoever asks may want to know what is wrong with it.
        Whose::Nobody if kind == Kind::Exec => next.run(request).await,
        Whose::Nobody if let Some(error) = context.cell.engine.trouble() => {
            Failure::from(operations::Error::Write(error.into())).into_response()
        }
        Whose::Nobody => Failure::from(context.leaderless()).into_response(),
    }
}

/// Waits out an election, which whoever asks for something need not notice. Where it is known that too few servers answer
/// for one, there is nothing to wait for.
async fn until_led(context: &Context) {
    let cell = &context.cell;
    let is_led = || {
        // On a line of its own: to borrow it a second time meanwhile is to wait for ever, should it change in between.
        let leads = cell.engine.leadership().borrow().is_me;
        leads || reach::leader(&context.cell).is_some()
    };
    let may_be = || cell.engine.trouble().is_none() && context.leaderless().code == NO_LEADER;
    let led = async {
        while !is_led() && may_be() {
            sleep(LOOK_AGAIN).await;
        }
    };
    // Whoever is late is told so.
    let _ = timeout(ELECTION, led).await;
}

fn no_leader() -> Response {
    let problem = Problem::failure(NO_LEADER, "no server leads at the moment")
        .hint("it may take a moment to elect one; `plimsoll cluster status` shows the servers");
    Failure(StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
}

/// For a node without the log: all it could say itself is that it knows nothing.
async fn ask_a_server(
    context: &Context,
    client: &Client,
    request: Request,
    passed_on: bool,
) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    // How things were, any server can tell.
    let any = || context.cell.any_server().filter(|_| is_read);
    match reach::leader(&context.cell).or_else(|| cluster::target(&any()?)) {
        Some(to) if !passed_on => {
            let (client, patience) = Kind::of(request.uri().path()).way(client);
            match client.forward(&to, signed(context, request), patience).await {
                Ok(response) => response.map(Body::new),
                Err(error) if !is_read && error.may_have_arrived() => lost(&to, &error),
                Err(error) => unreachable(&to, &error),
            }
        }
        _ => no_leader(),
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
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or(Peer::Local { uid: None });
    // Its token is what it is known by; nobody else's leaves this node.
    if peer == Peer::Unchecked {
        return request;
    }
    request.headers_mut().remove(AUTHORIZATION);
    let caller = peer.caller();
    let identity = format!("{}@{}", caller.identity, context.cell.node);
    if let Ok(identity) = HeaderValue::from_str(&identity) {
        request.headers_mut().insert(IDENTITY, identity);
    }
    request.headers_mut().insert(ROLE, HeaderValue::from_static(caller.role.word()));
    request
}

/// For requests that came by the peer port: only nodes of the cell come this way, and they say who asked them.
pub(super) async fn by_peer(
    State(context): State<Arc<Context>>,
    Known(caller): Known,
    mut request: Request,
    next: Next,
) -> Response {
    let is_member = context.cell.engine.machine().read(|state| state.node(&caller.node).is_some());
    // Whether a node lives anyone may ask, and one that has just joined knows nobody yet.
    let is_open = OPEN_PATHS.contains(&request.uri().path());
    if context.cell.holds_log() && !is_member && !is_open {
        let problem = Problem::refusal("removed", format!("{} is not of this cell", caller.node))
            .hint("join it again with a new token: `plimsoll token create-join`");
        return Failure(StatusCode::FORBIDDEN, problem).into_response();
    }
    let asker = match asker(&context, &caller, &request) {
        Ok(asker) => asker,
        Err(refused) => return *refused,
    };
    request.extensions_mut().insert(asker.peer);
    match asker.token {
        // The node that passed it on cannot know when this is over.
        Some(token) => while_good(context.cell.clone(), token, next.run(request)).await,
        None => next.run(request).await,
    }
}

/// Somebody who asked another node.
struct Asker {
    peer: Peer,
    /// Whose token was checked here, and which.
    token: Option<(Arc<str>, Digest)>,
}

/// Who asked, by the word of the node that passed it on, or by the token that it could not check itself.
fn asker(context: &Context, caller: &Caller, request: &Request) -> Result<Asker, Box<Response>> {
    let trusted = |identity: &str| {
        let peer = Peer::Node { identity: identity.into(), role: role(request) };
        Asker { peer, token: None }
    };
    let said = request.headers().get(IDENTITY).and_then(|identity| identity.to_str().ok());
    if let Some(said) = said {
        return Ok(trusted(said));
    }
    match permit::given(request.headers()) {
        None => Ok(trusted(caller.node.as_str())),
        Some(token) => {
            let (method, path) = (request.method(), request.uri().path());
            let Operator { name, role, token } =
                permit::operator(&context.cell, method, path, token)?;
            let identity = format!("token:{name}@{}", caller.node).into();
            Ok(Asker { peer: Peer::Node { identity, role }, token: Some((name.into(), token)) })
        }
    }
}

/// What whoever asked may do. A node that does not say has let nobody in who may not deploy.
fn role(request: &Request) -> Role {
    let said = request.headers().get(ROLE).and_then(|role| role.to_str().ok());
    Role::ALL.into_iter().find(|role| Some(role.word()) == said).unwrap_or(Role::Deploy)
}

fn unreachable(to: &Target, error: &peer::Error) -> Response {
    let message = format!("{} answers for this and cannot be reached: {error}", to.node);
    let problem = Problem::failure(NO_LEADER, message)
        .hint("if it is lost, another leads in a moment: try again");
    Failure(StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
}

/// A write that the other node may have carried out before it was lost from sight.
fn lost(to: &Target, error: &peer::Error) -> Response {
    let message =
        format!("{} answers for this, and whether it was done is not known: {error}", to.node);
    let problem = Problem::failure("unsettled", message);
    let problem = problem.hint("look at the status before you try again");
    Failure(StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
}

fn deposed(leader: &Target) -> Response {
    let message = format!("this node does not lead any more, {} does", leader.node);
    let problem = Problem::failure("not_leader", message).hint("try again in a moment");
    Failure(StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
}
