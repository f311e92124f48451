//! A node's containers, for the server that answers somebody who asks for them: what they printed, and commands run
//! beside them. The server knows which containers are meant and where they are; the node needs nothing but its runtime.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::unfold;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use plimsoll_model::{NodeId, Timestamp};
use plimsoll_runtime::{ExecOutcome, ExecRequest, LogQuery, Output, Runtime, Tag, chain};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{PeerApi, answer};
use crate::attached;
use crate::cell::ANSWER;
use crate::link::{Report, Served};
use crate::log_merge::{self, Lines, MergedLine};
use crate::operations::Error;
use plimsoll_api::view::{Executed, Problem, ProblemCode};
use plimsoll_peer::pki::Caller;
use plimsoll_peer::{Key, KnownCaller, Outward, PeerClient, Target, answer_stream, read_whole};

const LOGS: &str = "/peer/logs";
const EXEC: &str = "/peer/exec";
const ATTACH: &str = "/peer/attach";

/// The most bytes a question may have: a thousand containers are a tenth of it, and a command line is no longer.
const MAX_ASKED: usize = 4 << 20;

/// The most bytes the name of who asked may have: a token's, a node's and a word.
const MAX_IDENTITY: usize = 256;

/// The most bytes one line may have on its way; a runtime cuts lines long before.
const MAX_LINE: usize = 16 << 20;

/// Which lines of which containers.
#[derive(Debug, Serialize, Deserialize)]
struct AskedLogs {
    tags: Vec<Tag>,
    since: Option<Timestamp>,
    tail: Option<usize>,
    follow: bool,
}

/// One of the lines, as it travels.
#[derive(Debug, Serialize, Deserialize)]
struct Printed {
    of: usize,
    at: Timestamp,
    is_error: bool,
    text: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct AskedExec {
    tag: Tag,
    command: Vec<String>,
    timeout_ms: u64,
    /// Who asked the server, as the audit names them.
    by: String,
}

/// The endpoints, for servers.
pub(super) fn router(gate: Arc<PeerApi>) -> Router {
    let routes = Router::new().route(LOGS, post(logs)).route(EXEC, post(exec));
    routes.route(ATTACH, post(attach)).with_state(gate)
}

/// Asks a node for what its containers printed.
pub async fn read_logs(
    client: &PeerClient,
    to: &Target,
    tags: &[Tag],
    query: LogQuery,
) -> Result<Lines, Problem> {
    let LogQuery { since, tail, follow } = query;
    let asked = AskedLogs { tags: tags.to_vec(), since, tail, follow };
    let request = question(LOGS, &asked);
    let answer = client.forward(to, request, ANSWER).await;
    let answer = answer.map_err(|error| unreachable(to, &chain(&error)))?;
    if !answer.status().is_success() {
        return Err(refusal(to, answer).await);
    }
    let lines = Arriving {
        to: to.clone(),
        body: answer.into_body().into_data_stream(),
        rest: BytesMut::new(),
    };
    let lines = unfold(Some(lines), |lines| async move {
        let mut lines = lines?;
        match lines.next().await? {
            Ok(line) => Some((Ok(line), Some(lines))),
            Err(problem) => Some((Err(problem), None)),
        }
    });
    Ok(lines.boxed())
}

/// Has a node run a command beside one of its containers.
pub async fn run(
    client: &PeerClient,
    to: &Target,
    tag: &Tag,
    command: Vec<String>,
    timeout: Duration,
    by: &str,
) -> Result<Executed, Problem> {
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let asked = AskedExec { tag: tag.clone(), command, timeout_ms, by: by.to_owned() };
    let body = serde_json::to_vec(&asked).expect("a question has string keys only").into();
    // The node ends it in time; only one that is gone does not, and that the connection notices.
    let within = timeout.saturating_add(ANSWER);
    let answer = client.call(to, Method::POST, EXEC, body, within).await;
    let answer = answer.map_err(|error| unreachable(to, &chain(&error)))?;
    let unreadable =
        || Problem::new(ProblemCode::BadAnswer, format!("{to} answered something else"));
    if answer.status.is_success() {
        serde_json::from_slice(&answer.body).map_err(|_| unreadable())
    } else {
        Err(serde_json::from_slice(&answer.body).unwrap_or_else(|_| unreadable()))
    }
}

/// Runs a command beside a container of this node.
pub async fn run_here(
    runtime: &Arc<dyn Runtime>,
    tag: &Tag,
    command: Vec<String>,
    timeout: Duration,
) -> Result<Executed, Error> {
    let executed = runtime.exec(tag, &ExecRequest::new(command).timeout(timeout)).await?;
    Ok(Executed {
        status: match executed.outcome {
            ExecOutcome::Done { status } => Some(status),
            ExecOutcome::TimedOut => None,
        },
        stdout: STANDARD.encode(&executed.stdout),
        stderr: STANDARD.encode(&executed.stderr),
        is_cut: executed.is_cut,
    })
}

/// Opens a stream to a node in which a command runs beside one of its containers: frames both ways, the first of which says
/// what is run.
pub async fn attach_to(
    client: &PeerClient,
    to: &Target,
    tag: &Tag,
    by: &str,
) -> Result<Outward, Problem> {
    let named = |text: String| {
        HeaderValue::try_from(text).map_err(|_| unreachable(to, "its containers have odd names"))
    };
    let tag = serde_json::to_string(tag).expect("a tag has string keys only");
    let headers = HeaderMap::from_iter([
        (TAG, named(tag)?),
        (ASKED_BY, named(by.escape_default().to_string())?),
    ]);
    let opened = client.tunnel(to, Method::POST, ATTACH, headers, ANSWER).await;
    match opened.map_err(|error| unreachable(to, &chain(&error)))? {
        (StatusCode::OK, stream) => Ok(stream),
        (status, _) => Err(unreachable(to, &format!("it answered with status {status}"))),
    }
}

/// Which container, and who asked the server, as the audit names them.
const TAG: HeaderName = HeaderName::from_static("plimsoll-tag");
const ASKED_BY: HeaderName = HeaderName::from_static("plimsoll-asked-by");

async fn attach(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_ask(&caller, &key) {
        return no_server(&caller);
    }
    let text = |name: HeaderName| request.headers().get(name)?.to_str().ok();
    let tag = text(TAG).and_then(|tag| serde_json::from_str::<Tag>(tag).ok());
    let (Some(tag), Some(by)) = (tag, text(ASKED_BY).map(str::to_owned)) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    note_served(&gate, &tag, by, caller.node);
    let (stream, body) = answer_stream(request.into_body());
    tokio::spawn(attached::serve(Arc::clone(&gate.cell.runtime), tag, stream));
    Response::new(Body::new(body))
}

/// That a node does not answer.
pub fn unreachable(to: &Target, why: &str) -> Problem {
    Problem::new(ProblemCode::NodeUnreachable, format!("{} cannot be reached: {why}", to.node))
}

async fn logs(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_ask(&caller, &key) {
        return no_server(&caller);
    }
    let asked: AskedLogs = match asked(request).await {
        Ok(asked) => asked,
        Err(status) => return status.into_response(),
    };
    let AskedLogs { tags, since, tail, follow } = asked;
    let query = LogQuery { since, tail, follow };
    match log_merge::here(&gate.cell.runtime, &tags, query).await {
        Ok(lines) => Response::new(Body::from_stream(lines.map(|line| {
            let line = match line {
                Ok(line) => written(&Printed::from(line)),
                Err(problem) => written(&problem),
            };
            Ok::<Bytes, std::convert::Infallible>(line)
        }))),
        Err(error) => refused(&error),
    }
}

async fn exec(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_ask(&caller, &key) {
        return no_server(&caller);
    }
    let AskedExec { tag, command, timeout_ms, by } = match asked(request).await {
        Ok(asked) => asked,
        Err(status) => return status.into_response(),
    };
    note_served(&gate, &tag, by, caller.node);
    let timeout = Duration::from_millis(timeout_ms);
    match run_here(&gate.cell.runtime, &tag, command, timeout).await {
        Ok(executed) => axum::Json(executed).into_response(),
        Err(error) => refused(&error),
    }
}

/// The server has written it down before it asked, by its own word; this is the word of the node that runs it.
fn note_served(gate: &PeerApi, tag: &Tag, by: String, through: NodeId) {
    let asked_by = shortened(by);
    tracing::info!(by = %asked_by, %through, replica = %tag.replica, "a command is run");
    let served = Served { replica: tag.replica.clone(), asked_by, through };
    // The link ends with the daemon, and so does this.
    let _ = gate.reports.send(Report::Served(served));
}

/// For a node that asks for what only servers may: they have checked who asked them.
pub(super) fn no_server(caller: &Caller) -> Response {
    let message = format!("{} is no server that this node knows", caller.node);
    answer(&Problem::new(ProblemCode::NotAServer, message))
}

/// A name as the audit keeps it.
fn shortened(mut name: String) -> String {
    let end = (0..=MAX_IDENTITY.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name.truncate(end.unwrap_or_default());
    name
}

pub(super) async fn asked<T: DeserializeOwned>(request: Request) -> Result<T, StatusCode> {
    let body = read_whole(request.into_body(), MAX_ASKED).await?;
    serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)
}

fn question(path: &str, asked: &impl Serialize) -> Request {
    let body = serde_json::to_vec(asked).expect("a question has string keys only");
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().expect("the endpoints have good paths");
    request
}

fn written(value: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(value).expect("lines have string keys only");
    line.push(b'\n');
    line.into()
}

fn refused(error: &Error) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, axum::Json(Problem::from(error))).into_response()
}

/// What a node said instead of lines.
async fn refusal(to: &Target, answer: Response) -> Problem {
    let status = answer.status();
    let body = read_whole(answer.into_body(), MAX_ASKED).await.unwrap_or_default();
    serde_json::from_slice(&body)
        .unwrap_or_else(|_| unreachable(to, &format!("it answered with status {status}")))
}

impl From<MergedLine> for Printed {
    fn from(line: MergedLine) -> Self {
        let is_error = line.from == Output::Stderr;
        Self { of: line.of, at: line.at, is_error, text: line.text }
    }
}

impl From<Printed> for MergedLine {
    fn from(printed: Printed) -> Self {
        let from = if printed.is_error { Output::Stderr } else { Output::Stdout };
        Self { of: printed.of, at: printed.at, from, text: printed.text }
    }
}

/// Lines on their way from another node.
struct Arriving {
    to: Target,
    body: BodyDataStream,
    rest: BytesMut,
}

impl Arriving {
    async fn next(&mut self) -> Option<Result<MergedLine, Problem>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return Some(self.read(end));
            }
            if self.rest.len() > MAX_LINE {
                return Some(Err(unreachable(&self.to, "it sends a line without an end")));
            }
            match self.body.next().await? {
                Ok(piece) => self.rest.extend_from_slice(&piece),
                Err(error) => return Some(Err(unreachable(&self.to, &chain(&error)))),
            }
        }
    }

    fn read(&mut self, end: usize) -> Result<MergedLine, Problem> {
        let line = self.rest.split_to(end + 1);
        match serde_json::from_slice::<Printed>(&line) {
            Ok(printed) => Ok(printed.into()),
            // What goes wrong under way comes as a last line of another kind.
            Err(_) => Err(serde_json::from_slice(&line)
                .unwrap_or_else(|_| unreachable(&self.to, "it sends what cannot be understood"))),
        }
    }
}
