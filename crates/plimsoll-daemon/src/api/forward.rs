//! Requests that came to this node and are another's to answer. What changes the cell is the leader's; how things are, the
//! leader knows best, and where there is none this node says what it knows itself.
//!
//! What is passed on says who asked in one of two ways: by the token, as it came, which the answering server checks; or by the
//! word of a server, which has checked a token or a local user itself. No other node's word counts, and no role is assumed.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use plimsoll_model::access::{Digest, Role};
use tokio::time::{Instant, sleep, timeout};

use super::answer::{Deserted, ErrorResponse, UNTAKEN};
use super::auth::{self, AuthenticatedOperator};
use super::connections;
use super::context::Context;
use super::extract::read;
use super::requester::Requester;
use super::revocation::while_good;
use crate::attached::MAX_PATIENCE;
use crate::cell::{self, ANSWER, reach};
use crate::operations;
use crate::problem;
use plimsoll_api::view::{MAX_TIME_MS, Problem, ProblemCode};
use plimsoll_peer::pki::Caller;
use plimsoll_peer::{self as peer, Key, KnownCaller, PeerClient, Target, strip_hops, strip_ours};

/// How long a request may wait for a leader, at least: a few elections on disks as most are.
const ELECTION: Duration = Duration::from_secs(3);

/// And at most: who asked would give up before.
const MAX_ELECTION: Duration = Duration::from_secs(20);

/// As many elections may come to nothing before a request does: the first one may fail, and so may the hand-over before it.
const ELECTIONS: u32 = 3;

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Who asked the node that passed the request on. Believed of servers only.
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
pub(super) enum RequestKind {
    Short,
    /// Its answer may be long, and its reader slow: it must not share a connection with others.
    Logs,
    /// Its answer comes when the command is done.
    Exec,
    /// What is in a volume, one way or the other.
    Content,
    /// Its answer comes when the time that it was given is up.
    Search,
}

impl RequestKind {
    pub(super) fn of(path: &str) -> Self {
        match path.rsplit('/').next() {
            Some("logs") => Self::Logs,
            Some("exec") => Self::Exec,
            Some("optimize") => Self::Search,
            Some("content") if path.contains("/volumes/") => Self::Content,
            _ => Self::Short,
        }
    }

    /// By which connections it goes, and how long its answer may take to begin.
    fn way(self, client: &PeerClient) -> (PeerClient, Duration) {
        match self {
            Self::Short => (client.clone(), ANSWER),
            Self::Logs => (client.apart(), ANSWER),
            Self::Exec | Self::Content => (client.apart(), MAX_PATIENCE + ANSWER),
            Self::Search => (client.clone(), Duration::from_millis(MAX_TIME_MS) + ANSWER),
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
    let peer = request.extensions().get::<Requester>();
    let passed_on = matches!(peer, Some(Requester::Node { .. }));
    // Of somebody whom only others can check, nothing is kept.
    let is_known = !matches!(peer, Some(Requester::Unchecked | Requester::ThisNode) | None);
    let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
    if is_write
        && is_known
        && !passed_on
        && RequestKind::of(request.uri().path()) == RequestKind::Short
    {
        return until_taken(&context, &client, request, next).await;
    }
    once(&context, &client, request, next, passed_on).await
}

/// While leadership changes hands nobody takes a write, and whoever asks for one need not notice.
async fn until_taken(
    context: &Context,
    client: &PeerClient,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let body = match read(&head.headers, body).await {
        Ok(body) => Bytes::from(body),
        Err(failure) => return failure.into_response(),
    };
    let deadline = Instant::now() + patience(context.cell.engine.election_timeout());
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
    client: &PeerClient,
    request: Request,
    next: Next,
    passed_on: bool,
) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_consistent = is_read && asks_for_consistency(&request);
    let kind = RequestKind::of(request.uri().path());
    let is_backup = request.uri().path() == "/v1/backup";
    if (!is_read || is_consistent) && kind != RequestKind::Exec && !passed_on {
        until_led(context).await;
    }
    // Of a token that this node cannot check, it must not answer anything itself.
    let is_unchecked = request.extensions().get::<Requester>() == Some(&Requester::Unchecked);
    if !context.cell.holds_log() || is_unchecked {
        return ask_a_server(context, client, request, passed_on).await;
    }
    match whose(context) {
        Whose::Ours => {
            let caught_up =
                if is_consistent { context.cell.engine.catch_up().await.map(drop) } else { Ok(()) };
            let response = match caught_up {
                Ok(()) => next.run(request).await,
                Err(error) => {
                    ErrorResponse::from(operations::Error::Write(error.into())).into_response()
                }
            };
            if response.extensions().get::<Deserted>().is_none() {
                return response;
            }
            ErrorResponse::from(context.deserted(client).await).into_response()
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
        Whose::Nobody if kind == RequestKind::Exec => next.run(request).await,
        // Where the log is lost, what this server has may be all that is left.
        Whose::Nobody if is_backup && context.leaderless().code == ProblemCode::LogLost => {
            next.run(request).await
        }
        Whose::Nobody if let Some(error) = context.cell.engine.trouble() => {
            ErrorResponse::from(operations::Error::Write(error.into())).into_response()
        }
        Whose::Nobody => ErrorResponse::from(context.leaderless()).into_response(),
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
    let may_be =
        || cell.engine.trouble().is_none() && context.leaderless().code == ProblemCode::NoLeader;
    let led = async {
        while !is_led() && may_be() {
            sleep(LOOK_AGAIN).await;
        }
    };
    // Whoever is late is told so.
    let _ = timeout(patience(cell.engine.election_timeout()), led).await;
}

/// How long to wait for a leader where servers are this patient with each other, as they are on a slow disk.
fn patience(election: Duration) -> Duration {
    (election * ELECTIONS).clamp(ELECTION, MAX_ELECTION)
}

fn no_leader() -> Response {
    let problem = Problem::new(ProblemCode::NoLeader, "the cell has no leader");
    ErrorResponse(problem).into_response()
}

/// For a node without the log: all it could say itself is that it knows nothing.
async fn ask_a_server(
    context: &Context,
    client: &PeerClient,
    request: Request,
    passed_on: bool,
) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    // How things were, any server can tell.
    let any = || context.cell.any_server().filter(|_| is_read);
    match reach::leader(&context.cell).or_else(|| cell::target(&any()?)) {
        Some(to) if !passed_on => {
            let (client, patience) = RequestKind::of(request.uri().path()).way(client);
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

/// The request with who asks in it: the other node sees only us. Nothing else of what it came with says so.
fn signed(context: &Context, mut request: Request) -> Request {
    let peer = request.extensions().get::<Requester>().cloned();
    let headers = request.headers_mut();
    strip_hops(headers);
    strip_ours(headers);
    match peer {
        // Its token is what it is known by; nobody else's leaves this node.
        Some(Requester::Unchecked) => {}
        // What a node may read, it may read for whoever asks it.
        None | Some(Requester::ThisNode | Requester::Anyone) => {
            headers.remove(AUTHORIZATION);
        }
        Some(peer) => {
            headers.remove(AUTHORIZATION);
            let caller = peer.caller();
            // Where the name cannot be written, the request goes as this node's own.
            if let Ok(identity) = HeaderValue::from_str(&caller.identity) {
                headers.insert(IDENTITY, identity);
                headers.insert(ROLE, HeaderValue::from_static(caller.role.word()));
            } else {
                tracing::warn!(node = %context.cell.node, "cannot pass on who asks");
            }
        }
    }
    request
}

/// For requests that came by the peer port: only nodes of the cell come this way, each with the key that is enrolled for it.
pub(super) async fn by_peer(
    State(context): State<Arc<Context>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    mut request: Request,
    next: Next,
) -> Response {
    let cell = &context.cell;
    // Whether a node lives anyone may ask, and one that has just joined knows nobody yet.
    if connections::is_open(request.uri().path()) {
        request.extensions_mut().insert(Requester::Anyone);
        return next.run(request).await;
    }
    let is_known = if cell.holds_log() {
        cell.is_member(&caller.node, &key)
    } else {
        cell.is_server(&caller.node, &key)
    };
    if !is_known {
        return ErrorResponse(problem::no_member(&caller.node)).into_response();
    }
    let asker = match asker(&context, &caller, &key, &request) {
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
    peer: Requester,
    /// Whose token was checked here, and which.
    token: Option<(Arc<str>, Digest)>,
}

/// Who asked: by the word of a server, by the token that another node could not check, or else the node itself.
fn asker(
    context: &Context,
    caller: &Caller,
    key: &Digest,
    request: &Request,
) -> Result<Asker, Box<Response>> {
    let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
    let refused = |problem: Problem| Err(Box::new(ErrorResponse(problem).into_response()));
    let by = |who: &str, role| {
        let identity = format!("{who}@{}", caller.node).into();
        Requester::Node { identity, role }
    };
    if headers.contains_key(IDENTITY) || headers.contains_key(ROLE) {
        if !context.cell.is_server(&caller.node, key) {
            let message = format!(
                "{} does not hold the log, so its word for who asks does not count",
                caller.node
            );
            return refused(Problem::new(ProblemCode::NotAServer, message));
        }
        let Some((identity, role)) = vouched(headers) else {
            let message = format!("{} does not say who asks, or not with which role", caller.node);
            return refused(Problem::new(ProblemCode::Forbidden, message));
        };
        let needed = auth::needed_role(method, path);
        if role < needed {
            return Err(Box::new(auth::forbidden(identity, role, needed)));
        }
        return Ok(Asker { peer: by(identity, role), token: None });
    }
    match auth::given(headers) {
        None if auth::node_may(method, path) => {
            let identity = caller.node.as_str().into();
            let peer = Requester::Node { identity, role: Role::Read };
            Ok(Asker { peer, token: None })
        }
        None => {
            let message = format!("token needed here: {} asks for nobody", caller.node);
            Err(Box::new(auth::token_needed(&message)))
        }
        Some(_) if !context.cell.can_check() => {
            let message = "this server has not read the log yet and cannot check the token";
            refused(Problem::new(ProblemCode::NoLeader, message))
        }
        Some(token) => {
            let AuthenticatedOperator { name, role, token } =
                auth::operator(&context.cell, method, path, token)?;
            let peer = by(&format!("token:{name}"), role);
            Ok(Asker { peer, token: Some((name.into(), token)) })
        }
    }
}

/// Whom a server vouches for, and what they may do. Said once each, or not at all: there is no role by default.
fn vouched(headers: &HeaderMap) -> Option<(&str, Role)> {
    let once = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?.to_str().ok().filter(|value| !value.is_empty())?;
        values.next().is_none().then_some(value)
    };
    let (identity, said) = (once(IDENTITY)?, once(ROLE)?);
    let role = Role::ALL.into_iter().find(|role| role.word() == said)?;
    Some((identity, role))
}

fn unreachable(to: &Target, error: &peer::Error) -> Response {
    let message = format!("{} answers for this and cannot be reached: {error}", to.node);
    let problem = Problem::new(ProblemCode::NoLeader, message)
        .hint("if it is lost, another leads in a moment: try again");
    ErrorResponse(problem).into_response()
}

/// A write that the other node may have carried out before it was lost from sight.
fn lost(to: &Target, error: &peer::Error) -> Response {
    let message =
        format!("{} answers for this, and whether it was done is not known: {error}", to.node);
    ErrorResponse(Problem::new(ProblemCode::Unsettled, message)).into_response()
}

fn deposed(leader: &Target) -> Response {
    let message = format!("this node does not lead any more, {} does", leader.node);
    ErrorResponse(Problem::new(ProblemCode::NotLeader, message)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_for_as_many_elections_as_may_fail_however_slow_the_disk() {
        for (case, election_ms, patience_ms) in [
            ("flash", 500, 3_000),
            ("a disk that takes 200 ms for an append", 4_000, 12_000),
            ("a broken one", 20_000, 20_000),
            ("no elections of our own", 0, 3_000),
        ] {
            let found = patience(Duration::from_millis(election_ms));
            assert_eq!(found, Duration::from_millis(patience_ms), "{case}");
        }
    }

    #[test]
    fn a_server_says_who_asks_and_with_which_role_once_each() {
        let read = |all: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in all {
                headers.append(*name, HeaderValue::from_static(value));
            }
            vouched(&headers).map(|(identity, role)| format!("{identity} {}", role.word()))
        };
        let (ann, admin) = (("plimsoll-identity", "token:ann"), ("plimsoll-role", "admin"));
        assert_eq!(read(&[ann, admin]).as_deref(), Some("token:ann admin"));
        for (case, headers) in [
            ("nothing", &[][..]),
            ("no role", &[ann]),
            ("nobody", &[admin]),
            ("two roles", &[ann, admin, ("plimsoll-role", "read")]),
            ("two people", &[ann, ("plimsoll-identity", "token:bob"), admin]),
            ("an unknown role", &[ann, ("plimsoll-role", "root")]),
            ("a role in another case", &[ann, ("plimsoll-role", "Admin")]),
            ("an empty name", &[("plimsoll-identity", ""), admin]),
        ] {
            assert_eq!(read(headers), None, "{case}");
        }
    }
}
