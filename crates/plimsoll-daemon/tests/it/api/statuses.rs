//! Every status that the description promises, provoked; and no other is ever answered.
//!
//! Each operation has one request that succeeds. The statuses that operations share are provoked by spoiling that request, or
//! the log beneath it; those of one operation only are in [`REFUSALS`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use plimsoll_api::view::{
    Apply, HoldPurpose, HoldVolume, NewFile, NewJoinToken, NewOperator, NewRegistryLogin, Problem,
    Scale, WhatIf,
};
use plimsoll_daemon::api::MAX_BODY;
use plimsoll_model::access::{Authority, Digest, MAX_TOKENS};
use plimsoll_model::ceilings::MAX_FILE_BYTES;
use plimsoll_model::cell_files::CellFileKind;
use plimsoll_model::spec::{RouteSpec, Tls};
use plimsoll_model::testkit::{cpus, node_id, spread};
use plimsoll_model::{
    Availability, Change, DeploymentName, Level, NodeFacts, Refusal, ServiceName, ServiceSpec,
    Timestamp, Writer,
};
use plimsoll_peer::pki::FleetToken;
use plimsoll_peer::pki::testkit::cell as pki;
use plimsoll_runtime::fake::Script;
use plimsoll_store::Error;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

use super::coordinator::{self, is_coordinators};
use super::faulty_engine::{Fault, FaultyEngine};
use super::support::{Daemon, apply, daemon_with_faults, within};

/// What is documented and cannot be provoked here, each with the reason.
///
/// What is in a volume takes an agent, and a fleet is joined at the peer port of its coordinator, which these daemons have not; the
/// tests of the binary have. As many kinds of machines as may have a quota take longer to write than this test may.
const EXCEPTIONS: &[(&str, u16)] = &[
    (READ_CONTENT, 200),
    (WRITE_CONTENT, 200),
    (WRITE_CONTENT, 422),
    (coordinator::JOIN, 200),
    (coordinator::JOIN, 422),
    (coordinator::QUOTA, 422),
];

pub(super) const READ_CONTENT: &str = "GET /v1/deployments/{name}/volumes/{volume}/content";
pub(super) const WRITE_CONTENT: &str = "PUT /v1/deployments/{name}/volumes/{volume}/content";

/// One request to each operation that succeeds in the cell of [`prepare`], in an order in which all of them do. Those of fleets are
/// [beside](coordinator::GOOD).
pub(super) const GOOD: &[(&str, &str, &str)] = &[
    ("GET /", "/", ""),
    ("GET /healthz", "/healthz?hash=true", ""),
    ("GET /metrics", "/metrics", ""),
    ("GET /openapi.json", "/openapi.json", ""),
    ("GET /readyz", "/readyz", ""),
    ("GET /v1/audit", "/v1/audit?limit=1", ""),
    ("GET /v1/cell", "/v1/cell", ""),
    ("GET /v1/deployments", "/v1/deployments", ""),
    ("GET /v1/deployments/{name}", "/v1/deployments/shop", ""),
    ("GET /v1/deployments/{name}/history", "/v1/deployments/shop/history", ""),
    ("GET /v1/deployments/{name}/logs", "/v1/deployments/shop/logs", ""),
    ("GET /v1/deployments/{name}/revisions/{revision}", "/v1/deployments/shop/revisions/1", ""),
    ("GET /v1/explain/{replica}", "/v1/explain/shop-web-1", ""),
    ("GET /v1/nodes", "/v1/nodes", ""),
    ("GET /v1/nodes/{node}/explain", "/v1/nodes/ash/explain", ""),
    ("GET /v1/operators", "/v1/operators", ""),
    ("GET /v1/replicas", "/v1/replicas", ""),
    ("GET /v1/replicas/{id}", "/v1/replicas/shop-web-1", ""),
    ("GET /v1/replicas/{id}/logs", "/v1/replicas/shop-web-1/logs", ""),
    ("GET /v1/certificates", "/v1/certificates", ""),
    ("GET /v1/routes", "/v1/routes", ""),
    ("GET /v1/routes/explain", "/v1/routes/explain?host=shop.example&path=/", ""),
    ("GET /v1/secrets", "/v1/secrets", ""),
    ("GET /v1/secrets/{name}", "/v1/secrets/db", ""),
    ("GET /v1/configs", "/v1/configs", ""),
    ("GET /v1/configs/{name}", "/v1/configs/site", ""),
    ("GET /v1/registries", "/v1/registries", ""),
    ("GET /v1/volumes", "/v1/volumes", ""),
    ("GET /v1/deployments/{name}/volumes/{volume}", "/v1/deployments/pg/volumes/pg_data", ""),
    (
        "POST /v1/deployments/{name}/volumes/{volume}/move",
        "/v1/deployments/pg/volumes/pg_data/move",
        r#"{"node":"birch"}"#,
    ),
    (
        "DELETE /v1/deployments/{name}/volumes/{volume}",
        "/v1/deployments/gone/volumes/gone_data",
        "",
    ),
    (
        "POST /v1/deployments/{name}/volumes/{volume}/hold",
        "/v1/deployments/free/volumes/free_data/hold",
        r#"{"purpose":"backup"}"#,
    ),
    (
        "GET /v1/deployments/{name}/volumes/{volume}/hold",
        "/v1/deployments/kept/volumes/kept_data/hold",
        "",
    ),
    (
        "PUT /v1/deployments/{name}/volumes/{volume}/hold",
        "/v1/deployments/kept/volumes/kept_data/hold",
        "",
    ),
    (READ_CONTENT, "/v1/deployments/kept/volumes/kept_data/content", ""),
    (WRITE_CONTENT, "/v1/deployments/kept/volumes/kept_data/content", "no backup"),
    (
        "DELETE /v1/deployments/{name}/volumes/{volume}/hold",
        "/v1/deployments/kept/volumes/kept_data/hold",
        "",
    ),
    ("GET /v1/snapshot", "/v1/snapshot", ""),
    ("POST /v1/what-if", "/v1/what-if", r#"{"drain":{"nodes":["birch"]}}"#),
    ("GET /v1/reschedule", "/v1/reschedule", ""),
    ("GET /v1/pressure", "/v1/pressure?history=true", ""),
    ("POST /v1/reschedule", "/v1/reschedule", r#"{"action":"pause"}"#),
    ("POST /v1/optimize", "/v1/optimize", r#"{"moves":5,"time_ms":50}"#),
    ("POST /v1/optimize/apply", "/v1/optimize/apply", r#"{"moves":[]}"#),
    ("GET /v1/status", "/v1/status", ""),
    ("GET /v1/watch", "/v1/watch", ""),
    ("POST /v1/replicas/{id}/exec", "/v1/replicas/shop-web-1/exec", r#"{"command":["true"]}"#),
    ("POST /v1/backup", "/v1/backup", ""),
    ("GET /v1/backup/key", "/v1/backup/key", ""),
    ("POST /v1/backup/key", "/v1/backup/key", ""),
    ("GET /v1/whoami", "/v1/whoami", ""),
    ("GET /v1/authority", "/v1/authority", ""),
    ("GET /v1/tokens/join", "/v1/tokens/join", ""),
    ("DELETE /v1/tokens/join/{name}", "/v1/tokens/join/elm", ""),
    ("POST /v1/cell/rotation", "/v1/cell/rotation", ""),
    ("DELETE /v1/cell/rotation", "/v1/cell/rotation", ""),
    ("POST /v1/tokens/join", "/v1/tokens/join", ""),
    ("POST /v1/operators", "/v1/operators", r#"{"name":"bob","role":"read"}"#),
    ("DELETE /v1/operators/{name}", "/v1/operators/ci", ""),
    ("POST /v1/secrets", "/v1/secrets", r#"{"name":"key","content":[1]}"#),
    ("POST /v1/secrets/{name}/rotate", "/v1/secrets/db/rotate", r#"{"content":[2]}"#),
    ("DELETE /v1/secrets/{name}", "/v1/secrets/db", ""),
    (
        "POST /v1/registries",
        "/v1/registries",
        r#"{"registry":"r.example","user":"ci","password":"x"}"#,
    ),
    ("DELETE /v1/registries/{host}", "/v1/registries/registry.example:5000", ""),
    ("POST /v1/configs", "/v1/configs", r#"{"name":"key","content":[1]}"#),
    ("POST /v1/configs/{name}/rotate", "/v1/configs/site/rotate", r#"{"content":[2]}"#),
    ("DELETE /v1/configs/{name}", "/v1/configs/site", ""),
    ("POST /v1/nodes/{name}/cordon", "/v1/nodes/birch/cordon", ""),
    ("POST /v1/nodes/{name}/uncordon", "/v1/nodes/cedar/uncordon", ""),
    ("POST /v1/nodes/{name}/drain", "/v1/nodes/birch/drain", ""),
    ("DELETE /v1/nodes/{name}", "/v1/nodes/elm", ""),
    (
        "POST /v1/deployments/{name}/rollout",
        "/v1/deployments/shop/rollout",
        r#"{"action":"pause"}"#,
    ),
    ("POST /v1/deployments/{name}/restart", "/v1/deployments/shop/restart", ""),
    (
        "POST /v1/deployments/{name}/scale",
        "/v1/deployments/shop/scale",
        r#"{"services":{"web":2}}"#,
    ),
    ("POST /v1/deployments/{name}/rollback", "/v1/deployments/shop/rollback", ""),
    ("PUT /v1/deployments/{name}", "/v1/deployments/shop", APPLY),
    ("DELETE /v1/deployments/{name}", "/v1/deployments/shop", ""),
];

/// Stands for a file that can be applied.
const APPLY: &str = "APPLY";

/// Stands for the question what would come of applying it to a deployment that may not have its routes.
const SUPPOSED_APPLY: &str = "SUPPOSED APPLY";

/// Stand for more content than is kept: in a new file, and in place of another.
const LARGE_FILE: &str = "LARGE FILE";
const LARGE_CONTENT: &str = "LARGE CONTENT";

/// What is wrong with one operation's own subject.
const REFUSALS: &[(u16, &str, &str, &str)] = &[
    (400, "GET /healthz", "/healthz?hash=maybe", ""),
    (400, "GET /readyz", "/readyz?hash=maybe", ""),
    (400, "GET /v1/audit", "/v1/audit?limit=many", ""),
    (422, "GET /v1/audit", "/v1/audit?type=nonsense", ""),
    (400, "GET /v1/status", "/v1/status?deployment=No%20Name", ""),
    (400, "GET /v1/nodes", "/v1/nodes?name=No%20Name", ""),
    (400, "GET /v1/replicas", "/v1/replicas?node=No%20Name", ""),
    (400, "GET /v1/watch", "/v1/watch?after=later", ""),
    (400, "GET /v1/deployments", "/v1/deployments?limit=many", ""),
    (400, "GET /v1/certificates", "/v1/certificates?offset=-1", ""),
    (400, "GET /v1/routes", "/v1/routes?offset=-1", ""),
    (400, "GET /v1/operators", "/v1/operators?limit=many", ""),
    (400, "GET /v1/routes/explain", "/v1/routes/explain", ""),
    (404, "GET /v1/routes/explain", "/v1/routes/explain?host=none.example&path=/", ""),
    (409, "GET /v1/replicas/{id}/logs", "/v1/replicas/mon-agent-1/logs", ""),
    (409, "GET /v1/deployments/{name}/logs", "/v1/deployments/mon/logs", ""),
    (422, "GET /v1/deployments/{name}/logs", "/v1/deployments/crowd/logs", ""),
    (
        409,
        "POST /v1/replicas/{id}/exec",
        "/v1/replicas/mon-agent-1/exec",
        r#"{"command":["true"]}"#,
    ),
    (422, "POST /v1/replicas/{id}/exec", "/v1/replicas/shop-web-1/exec", r#"{"command":[]}"#),
    (404, "POST /v1/cell/rotation", "/v1/cell/rotation", r#"{"without":["none"]}"#),
    (409, "POST /v1/cell/rotation", "/v1/cell/rotation", r#"{"without":["birch"]}"#),
    (409, "DELETE /v1/cell/rotation", "/v1/cell/rotation", ""),
    (409, "POST /v1/operators", "/v1/operators", r#"{"name":"ci","role":"read"}"#),
    (422, "POST /v1/operators", "/v1/operators", r#"{"name":"eve","role":"king"}"#),
    (404, "DELETE /v1/operators/{name}", "/v1/operators/eve", ""),
    (404, "DELETE /v1/tokens/join/{name}", "/v1/tokens/join/oak", ""),
    (400, "GET /v1/tokens/join", "/v1/tokens/join?limit=many", ""),
    (409, "POST /v1/secrets", "/v1/secrets", r#"{"name":"db","content":[1]}"#),
    (400, "POST /v1/secrets", "/v1/secrets", r#"{"name":"no name","content":[1]}"#),
    (422, "POST /v1/secrets", "/v1/secrets", LARGE_FILE),
    (422, "POST /v1/secrets/{name}/rotate", "/v1/secrets/db/rotate", LARGE_CONTENT),
    (409, "DELETE /v1/secrets/{name}", "/v1/secrets/used", ""),
    (409, "POST /v1/configs", "/v1/configs", r#"{"name":"site","content":[1]}"#),
    (422, "POST /v1/configs", "/v1/configs", LARGE_FILE),
    (422, "POST /v1/configs/{name}/rotate", "/v1/configs/site/rotate", LARGE_CONTENT),
    (409, "DELETE /v1/configs/{name}", "/v1/configs/used", ""),
    (400, "GET /v1/registries", "/v1/registries?limit=many", ""),
    (400, "GET /v1/volumes", "/v1/volumes?limit=many", ""),
    (
        409,
        "DELETE /v1/deployments/{name}/volumes/{volume}",
        "/v1/deployments/pg/volumes/pg_data",
        "",
    ),
    (
        409,
        "POST /v1/deployments/{name}/volumes/{volume}/move",
        "/v1/deployments/pg/volumes/pg_data/move",
        r#"{"node":"ash"}"#,
    ),
    (
        409,
        "POST /v1/deployments/{name}/volumes/{volume}/hold",
        "/v1/deployments/kept/volumes/kept_data/hold",
        r#"{"purpose":"backup"}"#,
    ),
    (
        409,
        "GET /v1/deployments/{name}/volumes/{volume}/hold",
        "/v1/deployments/free/volumes/free_data/hold?order=7",
        "",
    ),
    (
        409,
        "PUT /v1/deployments/{name}/volumes/{volume}/hold",
        "/v1/deployments/free/volumes/free_data/hold",
        "",
    ),
    (
        409,
        "DELETE /v1/deployments/{name}/volumes/{volume}/hold",
        "/v1/deployments/free/volumes/free_data/hold",
        "",
    ),
    (409, READ_CONTENT, "/v1/deployments/free/volumes/free_data/content", ""),
    (409, WRITE_CONTENT, "/v1/deployments/free/volumes/free_data/content", ""),
    (404, "DELETE /v1/registries/{host}", "/v1/registries/none.example", ""),
    (
        422,
        "POST /v1/registries",
        "/v1/registries",
        r#"{"registry":"r.example","user":"ci","password":""}"#,
    ),
    (
        400,
        "POST /v1/registries",
        "/v1/registries",
        r#"{"registry":"no host","user":"ci","password":"x"}"#,
    ),
    (400, "GET /v1/secrets", "/v1/secrets?limit=many", ""),
    (400, "GET /v1/configs", "/v1/configs?limit=many", ""),
    (404, "POST /v1/what-if", "/v1/what-if", r#"{"lose":{"nodes":["none"]}}"#),
    (409, "POST /v1/what-if", "/v1/what-if", SUPPOSED_APPLY),
    (422, "POST /v1/what-if", "/v1/what-if", r#"{"drain":{"nodes":[]}}"#),
    (422, "POST /v1/reschedule", "/v1/reschedule", r#"{"action":"resume","target_percent":0}"#),
    (422, "POST /v1/optimize", "/v1/optimize", r#"{"moves":0}"#),
    (
        422,
        "POST /v1/optimize/apply",
        "/v1/optimize/apply",
        r#"{"moves":[{"replica":"shop-web-1","from":"ash","to":"birch","why":"nonsense"}]}"#,
    ),
    (
        404,
        "POST /v1/optimize/apply",
        "/v1/optimize/apply",
        r#"{"moves":[{"replica":"no-no-1","from":"ash","to":"birch","why":"better_place"}]}"#,
    ),
    (
        409,
        "POST /v1/optimize/apply",
        "/v1/optimize/apply",
        r#"{"moves":[{"replica":"shop-web-1","from":"ash","to":"ash","why":"better_place"}]}"#,
    ),
    (409, "POST /v1/nodes/{name}/drain", "/v1/nodes/elm/drain", ""),
    (409, "DELETE /v1/nodes/{name}", "/v1/nodes/ash", ""),
    (409, "PUT /v1/deployments/{name}", "/v1/deployments/blog", APPLY),
    (422, "PUT /v1/deployments/{name}", "/v1/deployments/shop", r#"{"services":{}}"#),
    (
        404,
        "POST /v1/deployments/{name}/scale",
        "/v1/deployments/shop/scale",
        r#"{"services":{"no":1}}"#,
    ),
    (422, "POST /v1/deployments/{name}/scale", "/v1/deployments/shop/scale", r#"{"services":{}}"#),
    (404, "POST /v1/deployments/{name}/rollback", "/v1/deployments/shop/rollback", r#"{"to":9}"#),
    (409, "POST /v1/deployments/{name}/rollback", "/v1/deployments/shop/rollback", r#"{"to":2}"#),
    (
        409,
        "POST /v1/deployments/{name}/restart",
        "/v1/deployments/old/restart",
        r#"{"replica":"old-web-2"}"#,
    ),
    (
        422,
        "POST /v1/deployments/{name}/restart",
        "/v1/deployments/shop/restart",
        r#"{"replica":"mon-agent-1"}"#,
    ),
    (
        409,
        "POST /v1/deployments/{name}/rollout",
        "/v1/deployments/mon/rollout",
        r#"{"action":"resume"}"#,
    ),
];

type Statuses = BTreeMap<String, BTreeSet<u16>>;

/// The operations of the description with the statuses that it promises, and those that were answered.
struct Promises<'a> {
    daemon: &'a Daemon,
    /// Who is asked what only a coordinator does.
    coordinator: &'a Daemon,
    document: Value,
    promised: Statuses,
    answered: Statuses,
}

impl<'a> Promises<'a> {
    async fn read(daemon: &'a Daemon, coordinator: &'a Daemon) -> Self {
        let document = daemon.client.openapi().await.unwrap();
        let mut promised = Statuses::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let statuses = operation["responses"].as_object().unwrap().keys();
                let statuses = statuses.map(|status| status.parse().expect("a status is a number"));
                promised.insert(format!("{} {path}", method.to_uppercase()), statuses.collect());
            }
        }
        Self { daemon, coordinator, document, promised, answered: Statuses::new() }
    }

    /// The operations that promise this status.
    fn of(&self, status: u16) -> Vec<String> {
        let those = self.promised.iter().filter(|(_, statuses)| statuses.contains(&status));
        those.map(|(operation, _)| operation.clone()).collect()
    }

    fn described(&self, operation: &str) -> &Value {
        let (method, path) = operation.split_once(' ').unwrap();
        &self.document["paths"][path][method.to_lowercase()]
    }

    /// Who can do it.
    fn whose(&self, operation: &str) -> &'a Daemon {
        if is_coordinators(operation) { self.coordinator } else { self.daemon }
    }

    /// Asks on the socket.
    async fn ask(&mut self, operation: &str, target: &str, body: &str) -> u16 {
        self.ask_at(self.whose(operation), operation, target, body).await
    }

    async fn ask_at(&mut self, at: &Daemon, operation: &str, target: &str, body: &str) -> u16 {
        let stream = UnixStream::connect(at.socket()).await.unwrap();
        self.ask_by(stream, "", operation, target, body).await
    }

    /// Asks on TCP, with this token if there is one.
    async fn ask_as(&mut self, token: Option<&str>, operation: &str) -> u16 {
        let stream = self.whose(operation).connect_tls().await;
        let header = token.map(|it| format!("authorization: Bearer {it}\r\n")).unwrap_or_default();
        let (target, body) = good(operation);
        self.ask_by(stream, &header, operation, target, &body).await
    }

    async fn ask_by(
        &mut self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        header: &str,
        operation: &str,
        target: &str,
        body: &str,
    ) -> u16 {
        let (method, _) = operation.split_once(' ').unwrap();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let (status, body) = within(answer(&mut stream)).await;
        if status != 200 && !operation.ends_with("/readyz") || status == 400 {
            let problem: Problem = serde_json::from_slice(&body).expect(operation);
            assert_eq!(problem.status(), status, "{operation}: {}", problem.message);
        }
        self.answered.entry(operation.to_owned()).or_default().insert(status);
        status
    }

    /// What was promised and not answered, and the other way round, a line each.
    fn broken(&self) -> String {
        let mut lines = String::new();
        let nothing = BTreeSet::new();
        for (operation, promised) in &self.promised {
            let answered = self.answered.get(operation).unwrap_or(&nothing);
            let excepted = |status: u16| EXCEPTIONS.contains(&(operation.as_str(), status));
            for status in promised.difference(answered).filter(|status| !excepted(**status)) {
                let _ = writeln!(lines, "{operation} documents {status}, and nothing provokes it");
            }
            for status in answered.difference(promised) {
                let _ = writeln!(lines, "{operation} answers {status}, which is not documented");
            }
        }
        lines
    }
}

/// The status, and the body unless the answer is a success: that may have no end.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> (u16, Vec<u8>) {
    let mut read = Vec::new();
    let head = loop {
        if let Some(at) = read.windows(4).position(|it| it == b"\r\n\r\n") {
            break at;
        }
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "it ended before its head");
    };
    let text = String::from_utf8_lossy(&read[..head]);
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    if status != 200 {
        stream.read_to_end(&mut read).await.unwrap();
    }
    (status, read.split_off(head + 4))
}

/// The request that succeeds.
fn good(operation: &str) -> (&'static str, String) {
    let found = GOOD.iter().chain(coordinator::GOOD).find(|(it, ..)| *it == operation);
    let (_, target, body) = found.unwrap_or_else(|| panic!("{operation} has no request"));
    (target, filled(body))
}

fn filled(body: &str) -> String {
    match body {
        APPLY => serde_json::to_string(&shop("app:2")).unwrap(),
        SUPPOSED_APPLY => {
            let Apply { services, routes, .. } = shop("app:2");
            let asked = WhatIf::Apply { deployment: "blog".to_owned(), services, routes };
            serde_json::to_string(&asked).unwrap()
        }
        coordinator::UNREACHABLE => {
            let token = FleetToken::new(pki("hub").fingerprint()).unwrap();
            format!("{{\"join\":\"{token}@127.0.0.1:1\"}}")
        }
        LARGE_FILE => format!("{{\"name\":\"big\",\"content\":{}}}", large()),
        LARGE_CONTENT => format!("{{\"content\":{}}}", large()),
        body => body.to_owned(),
    }
}

fn large() -> String {
    format!("[{}0]", "0,".repeat(MAX_FILE_BYTES))
}

/// Its path with every name replaced by this.
fn named(operation: &str, name: &str) -> String {
    let (_, template) = operation.split_once(' ').unwrap();
    let parts = template.split('/').map(|part| match part {
        "{revision}" => "1",
        part if part.starts_with('{') => name,
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// On ash, the node of this daemon.
fn here(replicas: u32) -> ServiceSpec {
    spread(replicas).wants_label("here", "yes")
}

fn shop(image: &str) -> Apply {
    let service = ServiceName::new("web").unwrap();
    let host = Some("shop.example".to_owned());
    let (path, strip_path, port, tls) = ("/".to_owned(), false, 80, Tls::Off);
    let route = RouteSpec { host, path, strip_path, service, port, tls };
    Apply { routes: vec![route], ..apply([("web", here(1).image(image))]) }
}

/// A cell in which every operation can succeed: nodes to cordon, drain and remove, a container that runs, and one that does
/// not, a rollout under way, a replica that only stops, and a token to revoke. Returns a token that may only read.
pub(super) async fn prepare(daemon: &Daemon) -> String {
    let address = Some("127.0.0.1:7080".to_owned());
    let ash = NodeFacts { address, ..cpus(4).label("here", "yes") };
    let node = |name, facts| Change::PutNode { node: node_id(name), facts };
    let set = |name, availability| Change::SetAvailability { node: node_id(name), availability };
    let authority = Authority { certificate: vec![1], key: vec![1] };
    let batch = vec![
        node("ash", ash).free(),
        node("birch", cpus(4)).free(),
        node("cedar", cpus(4)).free(),
        node("elm", cpus(4)).free(),
        set("birch", Availability::Cordoned).free(),
        set("cedar", Availability::Cordoned).free(),
        set("elm", Availability::Draining).free(),
        Change::Found { authority, node: node_id("ash"), key: Digest([1; 32]) }.free(),
    ];
    daemon.write(Writer::Operator, batch).await;
    let client = &daemon.client;
    client.apply("shop", &shop("app:1")).await.unwrap();
    for (kind, name) in [
        (CellFileKind::Secret, "db"),
        (CellFileKind::Secret, "used"),
        (CellFileKind::Config, "site"),
        (CellFileKind::Config, "used"),
    ] {
        let asked = NewFile { name: name.to_owned(), content: b"one".to_vec() };
        client.create_file(kind, &asked).await.unwrap();
    }
    let login = NewRegistryLogin {
        registry: "registry.example:5000".to_owned(),
        user: "ci".to_owned(),
        password: "hunter2".to_owned(),
    };
    client.login_registry(&login).await.unwrap();
    let mut agent = here(1).secret("used", 1);
    agent.container.configs = agent.container.secrets.clone();
    "/used".clone_into(&mut agent.container.configs[0].target);
    daemon.apply("mon", [("agent", agent)]).await;
    daemon.apply("old", [("web", here(2))]).await;
    for name in ["pg", "gone", "free", "kept"] {
        daemon.apply(name, [("db", spread(1).volume("data"))]).await;
    }
    daemon.apply("crowd", [("web", here(1_001))]).await;
    daemon.settle().await;
    daemon.start("shop/web/1").await;
    client.delete("gone", false).await.unwrap();
    daemon.settle().await;
    let live = HoldVolume { purpose: HoldPurpose::LiveBackup, node: None };
    client.hold_volume("kept", "kept_data", &live).await.unwrap();
    daemon.write(Writer::Operator, vec![set("birch", Availability::Active).free()]).await;
    client.scale("old", &Scale { services: [("web".to_owned(), 1)].into() }).await.unwrap();
    daemon.pass().await;
    client.apply("shop", &shop("app:2")).await.unwrap();
    let operator = |name: &str, role: &str| NewOperator {
        name: name.into(),
        role: role.into(),
        ..NewOperator::default()
    };
    client.add_operator(&operator("ci", "deploy")).await.unwrap();
    let elm = NewJoinToken { name: Some("elm".to_owned()), seconds: None };
    client.create_join_token(&elm).await.unwrap();
    client.add_operator(&operator("viewer", "read")).await.unwrap().token
}

/// What cannot be read, is not there, or is asked by somebody who may not.
async fn refuse(promises: &mut Promises<'_>, [viewer, of_coordinator]: [&str; 2]) {
    for operation in promises.of(401) {
        assert_eq!(promises.ask_as(None, &operation).await, 401, "{operation}");
    }
    for operation in promises.of(403) {
        let token = if is_coordinators(&operation) { of_coordinator } else { viewer };
        assert_eq!(promises.ask_as(Some(token), &operation).await, 403, "{operation}");
    }
    for operation in promises.of(400) {
        // A header that would have the token dropped on the way.
        let (target, body) = good(&operation);
        let at = promises.whose(&operation);
        let stream = UnixStream::connect(at.socket()).await.unwrap();
        let header = "connection: authorization\r\n";
        let answered = promises.ask_by(stream, header, &operation, target, &body).await;
        assert_eq!(answered, 400, "{operation}");
        if operation.contains('{') {
            let target = named(&operation, "%FF");
            assert_eq!(promises.ask(&operation, &target, "").await, 400, "{operation}");
        }
        if !promises.described(&operation)["requestBody"].is_null() && operation != WRITE_CONTENT {
            let (target, _) = good(&operation);
            assert_eq!(promises.ask(&operation, target, "{").await, 400, "{operation}");
        }
    }
    for operation in promises.of(404).into_iter().filter(|it| it.contains('{')) {
        let (_, body) = good(&operation);
        let target = named(&operation, "none");
        assert_eq!(promises.ask(&operation, &target, &body).await, 404, "{operation}");
    }
    let large = " ".repeat(MAX_BODY + 1);
    for operation in promises.of(413) {
        let (target, _) = good(&operation);
        assert_eq!(promises.ask(&operation, target, &large).await, 413, "{operation}");
    }
    for (status, operation, target, body) in REFUSALS {
        let answered = promises.ask(operation, target, &filled(body)).await;
        assert_eq!(answered, *status, "{operation} {body}");
    }
    for (status, operation, target, body) in coordinator::REFUSALS {
        let answered = promises.ask_at(promises.daemon, operation, target, &filled(body)).await;
        assert_eq!(answered, *status, "{operation} {body}");
    }
}

/// What the log and the runtime beneath it say no with.
async fn fail(promises: &mut Promises<'_>, [engine, of_coordinator]: [&FaultyEngine; 2]) {
    for (status, error) in [
        (426, Error::Outgrown { level: Level(999) }),
        (500, Error::Disk("it was told to fail".into())),
        (503, Error::Stopped),
        (507, Error::DiskFull { dir: Arc::from(Path::new("/data")) }),
    ] {
        engine.set(Some(Fault::Store(error.clone())));
        of_coordinator.set(Some(Fault::Store(error)));
        for operation in promises.of(status).into_iter().filter(|it| !it.ends_with("/exec")) {
            let (target, body) = good(&operation);
            let mark = if target.contains('?') { '&' } else { '?' };
            let target = format!("{target}{mark}consistent=true");
            // Whether a node is ready does not depend on what it can write.
            let expected = if operation == "GET /readyz" { 200 } else { status };
            assert_eq!(promises.ask(&operation, &target, &body).await, expected, "{operation}");
        }
    }
    let (deployment, decided) = (DeploymentName::new("shop").unwrap(), None);
    engine.set(Some(Fault::Refused(Refusal::Revision { deployment, decided, found: None })));
    for operation in [
        "PUT /v1/deployments/{name}",
        "DELETE /v1/deployments/{name}",
        "POST /v1/deployments/{name}/scale",
        "POST /v1/deployments/{name}/rollback",
    ] {
        let (target, body) = good(operation);
        assert_eq!(promises.ask(operation, target, &body).await, 409, "{operation}");
    }
    engine.set(None);
    of_coordinator.set(None);

    let exec = "POST /v1/replicas/{id}/exec";
    promises.daemon.runtime.set_down(true);
    for operation in [exec, "GET /readyz", "GET /v1/replicas/{id}/logs"] {
        let (target, body) = good(operation);
        assert_eq!(promises.ask(operation, target, &body).await, 503, "{operation}");
    }
    promises.daemon.runtime.set_down(false);
    promises.daemon.runtime.on("app:1", Script { exec_failures: 1, ..Script::default() });
    let (target, body) = good(exec);
    assert_eq!(promises.ask(exec, target, &body).await, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_status_can_be_provoked_and_no_other_is_answered() {
    let (daemon, engine) = daemon_with_faults().await;
    let (other, other_engine, other_viewer) = coordinator::coordinator().await;
    let mut promises = Promises::read(&daemon, &other).await;
    let join = "POST /v1/tokens/join";
    assert_eq!(promises.ask(join, "/v1/tokens/join", "").await, 409, "nobody founded the cell");

    let viewer = prepare(&daemon).await;
    refuse(&mut promises, [&viewer, &other_viewer]).await;
    fail(&mut promises, [&engine, &other_engine]).await;
    coordinator::enter(&daemon).await;
    for (operation, ..) in GOOD.iter().chain(coordinator::GOOD) {
        let (target, body) = good(operation);
        if !EXCEPTIONS.contains(&(operation, 200)) {
            assert_eq!(promises.ask(operation, target, &body).await, 200, "{operation}");
        }
    }

    let expires_at = Timestamp(u64::MAX);
    let tokens = (0..MAX_TOKENS - 2).map(|at| {
        let mut token = Digest([0; 32]);
        token.0[..8].copy_from_slice(&at.to_be_bytes());
        let name = format!("token-{at}");
        Change::CreateJoinToken { name, token, expires_at }.free()
    });
    daemon.write(Writer::Operator, tokens.collect()).await;
    assert_eq!(promises.ask(join, "/v1/tokens/join", "").await, 422, "there are too many");

    coordinator::fill(&other).await;
    for (status, operation, target, body) in coordinator::COORDINATORS_REFUSALS {
        let answered = promises.ask_at(&other, operation, target, &filled(body)).await;
        assert_eq!(answered, *status, "{operation} {body}");
    }

    let broken = promises.broken();
    assert!(broken.is_empty(), "{broken}");
}
