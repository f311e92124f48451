//! Requests made from the description by chance, and broken: every operation, every name, every field. Each answer is one that the
//! description has; what is refused is refused with a code; nothing fails inside, and the cell serves as before.

use std::time::{Duration, Instant};

use plimsoll_api::view::{NewFile, NewJoinToken, NewOperator, Problem, ProblemCode};
use plimsoll_fuzz::{Dice, Vigil, length, seed};
use plimsoll_model::access::{Authority, Digest};
use plimsoll_model::cell_files::CellFileKind;
use plimsoll_model::testkit::{cpus, node_id, spread};
use plimsoll_model::{Change, NodeFacts, Writer};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::support::{Daemon, daemon_with_faults};

mod bodies;
mod corpus;

use bodies::Bodies;

/// How many requests one cell gets before the next one begins: what they leave behind adds up.
const ROUND: usize = 400;

/// How many requests there are between two looks of the scheduler, which decides on what was let through.
const PASS: usize = 20;

/// For one answer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How much of an answer is read: no more is needed to see what it is.
const MAX_ANSWER: usize = 8 << 20;

struct Request {
    operation: String,
    method: String,
    target: String,
    body: Vec<u8>,
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { operation, method, target, body } = self;
        let shown = &body[..body.len().min(2_000)];
        write!(f, "{operation}: {method} {target}, {} bytes: {}", body.len(), shown.escape_ascii())
    }
}

/// A cell with one of everything that can be named.
async fn prepared() -> Daemon {
    let (daemon, _) = daemon_with_faults().await;
    let address = Some("127.0.0.1:7080".to_owned());
    let ash = NodeFacts { address, ..cpus(4).label("here", "yes") };
    let node = |name, facts| Change::PutNode { node: node_id(name), facts };
    let authority = Authority { certificate: vec![1], key: vec![1] };
    let batch = vec![
        node("ash", ash).free(),
        node("birch", cpus(4)).free(),
        Change::Found { authority, node: node_id("ash"), key: Digest([1; 32]) }.free(),
    ];
    daemon.write(Writer::Operator, batch).await;
    let web = || spread(2).wants_label("here", "yes");
    daemon.apply("shop", [("web", web()), ("db", web())]).await;
    for kind in [CellFileKind::Secret, CellFileKind::Config] {
        let asked = NewFile { name: "db".to_owned(), content: b"one".to_vec() };
        daemon.client.create_file(kind, &asked).await.unwrap();
    }
    let (name, role) = ("ci".to_owned(), "deploy".to_owned());
    let operator = NewOperator { name, role, ..NewOperator::default() };
    daemon.client.add_operator(&operator).await.unwrap();
    let join = NewJoinToken { name: Some("elm".to_owned()), seconds: None };
    daemon.client.create_join_token(&join).await.unwrap();
    daemon.settle().await;
    daemon
}

/// The head of an answer, and of its body what came until it ended; of a stream only the head.
async fn ask(daemon: &Daemon, request: &Request) -> Option<(u16, String, Vec<u8>)> {
    let mut stream = UnixStream::connect(daemon.socket()).await.unwrap();
    let Request { method, target, body, .. } = request;
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    let asked = async {
        // Who has heard enough may answer before all is said.
        let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
        while answer.len() < MAX_ANSWER && matches!(stream.read_buf(&mut answer).await, Ok(1..)) {
            let so_far = String::from_utf8_lossy(&answer[..answer.len().min(2_000)]);
            let is_stream = ["text/event-stream", "application/x-ndjson"];
            if so_far.contains("\r\n\r\n") && is_stream.iter().any(|kind| so_far.contains(kind)) {
                return;
            }
        }
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("no answer to {request}"));
    let at = answer.windows(4).position(|part| part == b"\r\n\r\n")?;
    let body = answer.split_off(at + 4);
    let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head, body))
}

/// The answer is one that the description has, and whatever was not done has a reason with a code.
fn check(document: &Value, request: &Request, answer: Option<(u16, String, Vec<u8>)>) -> u16 {
    let (status, head, body) = answer.unwrap_or_else(|| panic!("nothing came back for {request}"));
    if status < 300 {
        return status;
    }
    let is_chunked = head.contains("transfer-encoding: chunked");
    let text = String::from_utf8_lossy(&body);
    assert!(!is_chunked && head.contains("application/json"), "{request}\n{head}\n{text}");
    let problem: Problem = serde_json::from_slice(&body)
        .unwrap_or_else(|error| panic!("{request}\n{status}: {error}: {text}"));
    assert_eq!(problem.status(), status, "{request}\n{text}");
    assert!(!matches!(problem.code, ProblemCode::Unknown | ProblemCode::Bug), "{request}\n{text}");
    assert!(!problem.message.is_empty() && status != 500, "{request}\n{text}");
    let is_misdirected =
        matches!(problem.code, ProblemCode::NoSuchPath | ProblemCode::NoSuchMethod);
    let (method, path) = request.operation.split_once(' ').unwrap();
    let responses = &document["paths"][path][method.to_lowercase()]["responses"];
    assert!(
        is_misdirected || !responses[status.to_string()].is_null(),
        "{request}\nanswers {status}, which is not described: {text}"
    );
    status
}

/// Every operation as the description has it: its name, method and path.
fn operations(document: &Value) -> Vec<(String, String, String)> {
    let paths = document["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, methods)| {
        methods.as_object().unwrap().keys().map(move |method| {
            let method = method.to_uppercase();
            (format!("{method} {path}"), method, path.clone())
        })
    });
    all.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_broken_request_of_any_operation_breaks_the_api_or_the_cell() {
    let mut daemon = prepared().await;
    let document = daemon.client.openapi().await.unwrap();
    let operations = operations(&document);
    let vigil = Vigil::begin("api");
    for (operation, target, body) in corpus::CORPUS {
        let method = operation.split(' ').next().unwrap().to_owned();
        let (operation, target) = ((*operation).to_owned(), (*target).to_owned());
        let body = corpus::filled(body).into_bytes();
        let request = Request { operation, method, target, body };
        check(&document, &request, ask(&daemon, &request).await);
        assert_eq!(vigil.panics(), 0, "{request}");
    }
    let mut bodies = Bodies::new(&document, Dice::new(seed()));
    let (begun, mut count, mut done) = (Instant::now(), 0, 0);
    while count < ROUND / 2 || begun.elapsed() < length(1) {
        let (operation, method, path) = bodies.dice.pick(&operations).cloned().unwrap();
        let described = &document["paths"][&path][method.to_lowercase()];
        let (target, body) = (bodies.target(&path, described), bodies.body(described));
        let request = Request { operation, method, target, body };
        let status = check(&document, &request, ask(&daemon, &request).await);
        done += usize::from(status < 300);
        count += 1;
        if count.is_multiple_of(PASS) {
            daemon.pass().await;
            daemon.obey().await;
        }
        assert_eq!(vigil.panics(), 0, "request {count} of seed {}: {request}", seed());
        if count.is_multiple_of(ROUND) {
            serves(&daemon).await;
            daemon.end().await;
            daemon = prepared().await;
        }
    }
    serves(&daemon).await;
    assert!(done * 10 > count, "{done} of {count} requests were done, which tests little");
    vigil.end(count);
}

/// The cell shows what it has, and takes a new deployment and places it.
async fn serves(daemon: &Daemon) {
    daemon.client.status().await.unwrap();
    daemon.client.replicas().await.unwrap();
    let health = daemon.client.ready(false).await.unwrap();
    assert!(health.is_ready, "{health:?}");
    daemon.apply("last", [("web", spread(1).image("app:1"))]).await;
    daemon.pass().await;
    daemon.client.delete("last", false).await.unwrap();
}
