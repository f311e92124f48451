//! A client that knows nothing but the description: every request is built from it, and every answer must be as it says.

use std::collections::BTreeSet;

use plimsoll_model::Change;
use plimsoll_model::Writer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::coordinator::{self, is_coordinators};
use super::statuses::{GOOD, READ_CONTENT, WRITE_CONTENT, prepare};
use super::support::{Daemon, daemon_with_faults, within};

/// What the description says of one operation.
struct Described<'d> {
    document: &'d Value,
    method: String,
    path: String,
    operation: &'d Value,
}

/// What came back.
struct Answered {
    status: u16,
    content_type: String,
    body: String,
}

impl<'d> Described<'d> {
    fn all(document: &'d Value) -> Vec<Self> {
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().iter().map(move |(method, operation)| {
                let method = method.to_uppercase();
                Self { document, method, path: path.clone(), operation }
            })
        });
        operations.collect()
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Its path with every name and every parameter for which there is an example.
    fn target(&self) -> String {
        let mut target = self.path.clone();
        let mut query = Vec::new();
        for parameter in self.operation["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            let example = &parameter["schema"]["examples"][0];
            if example.is_null() {
                assert_ne!(parameter["required"], true, "{}: {name} has no example", self.name());
                continue;
            }
            self.check(&parameter["schema"], example, name);
            let text = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
            match parameter["in"].as_str().unwrap() {
                "path" => target = target.replace(&format!("{{{name}}}"), &text),
                "query" => query.push(format!("{name}={}", text.replace('/', "%2F"))),
                other => panic!("{}: a parameter in the {other}", self.name()),
            }
        }
        assert!(!target.contains('{'), "{} does not say all its names: {target}", self.name());
        if query.is_empty() { target } else { format!("{target}?{}", query.join("&")) }
    }

    fn body(&self) -> String {
        let request = &self.operation["requestBody"];
        if request.is_null() {
            return String::new();
        }
        let content = &request["content"]["application/json"];
        if content.is_null() {
            // Bytes, of which none is an example.
            return String::new();
        }
        self.check(&content["schema"], &content["example"], "the body");
        content["example"].to_string()
    }

    fn check(&self, schema: &Value, value: &Value, what: &str) {
        // Beside the components, to which schemas refer.
        let whole = json!({ "allOf": [schema], "components": self.document["components"] });
        let validator = jsonschema::validator_for(&whole)
            .unwrap_or_else(|error| panic!("{}: {what}: {error}", self.name()));
        let wrong: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{}: {what}: {wrong:#?}\n{value:#}", self.name());
    }

    /// The answer is of a status and a type that the description has, and so is its content.
    fn check_answer(&self, answered: &Answered) {
        let Answered { status, content_type, body } = answered;
        let response = &self.operation["responses"][status.to_string()];
        assert!(!response.is_null(), "{} answers {status}: {body}", self.name());
        let kind = content_type.split(';').next().unwrap().trim();
        let content = &response["content"][kind];
        assert!(!content.is_null(), "{} answers with {content_type}", self.name());
        let schema = &content["schema"];
        let parse = |text: &str| -> Value {
            serde_json::from_str(text)
                .unwrap_or_else(|error| panic!("{}: {error}: {text}", self.name()))
        };
        match kind {
            "application/json" => self.check(schema, &parse(body), "the answer"),
            "application/x-ndjson" => {
                assert!(!body.is_empty(), "{} has no line", self.name());
                body.lines().for_each(|line| self.check(schema, &parse(line), "a line"));
            }
            "text/event-stream" => {
                let data = body.lines().find_map(|line| line.strip_prefix("data:"));
                let data = data.unwrap_or_else(|| panic!("{} sends no event: {body}", self.name()));
                self.check(schema, &parse(data), "an event");
            }
            "text/plain" | "application/octet-stream" => {}
            other => panic!("{}: nobody checks {other}", self.name()),
        }
    }
}

/// Asks, and reads the whole answer, or of a stream its first event.
async fn ask(daemon: &Daemon, method: &str, target: &str, body: &str) -> Answered {
    let mut stream = UnixStream::connect(daemon.socket()).await.unwrap();
    let request = format!(
        "{method} {target} HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    within(async {
        loop {
            let so_far = String::from_utf8_lossy(&read);
            let is_event = so_far.contains("text/event-stream") && so_far.contains("data:");
            if is_event && so_far.ends_with("\n\n") {
                return;
            }
            if stream.read_buf(&mut read).await.unwrap() == 0 {
                return;
            }
        }
    })
    .await;
    let text = String::from_utf8_lossy(&read);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| {
        let mut lines = head.lines();
        let line = lines.find(|line| line.to_lowercase().starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    Answered {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        content_type: header("content-type:"),
        body: body.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_made_of_the_description_makes_every_call() {
    let (daemon, _) = daemon_with_faults().await;
    prepare(&daemon).await;
    coordinator::enter(&daemon).await;
    let (other, ..) = coordinator::coordinator().await;
    daemon.print("shop/web/1", 1_000, "ready");
    let document = daemon.client.openapi().await.unwrap();
    let described = Described::all(&document);
    // Of the other test only the order is taken, in which none takes away what the next one needs.
    let order = GOOD.iter().chain(coordinator::GOOD);
    let order: Vec<&str> = order.map(|(operation, ..)| *operation).collect();
    let names: BTreeSet<String> = described.iter().map(Described::name).collect();
    assert_eq!(names, order.iter().map(|&name| name.to_owned()).collect());
    for name in order {
        let one = described.iter().find(|one| one.name() == name).unwrap();
        let at = if is_coordinators(name) { &other } else { &daemon };
        let answered = ask(at, &one.method, &one.target(), &one.body()).await;
        // What is in a volume comes from an agent, and this daemon has none.
        let takes_agent = [READ_CONTENT, WRITE_CONTENT].contains(&name);
        // A fleet is joined with a string that no example can be.
        let expected = match name {
            _ if takes_agent => 409,
            coordinator::JOIN => 403,
            _ => 200,
        };
        assert_eq!(answered.status, expected, "{name}: {}", answered.body);
        one.check_answer(&answered);
    }
    // What went wrong is described, too.
    for (name, target, body) in [
        ("GET /v1/deployments/{name}", "/v1/deployments/none", ""),
        ("PUT /v1/deployments/{name}", "/v1/deployments/shop", "{}"),
    ] {
        let one = described.iter().find(|one| one.name() == name).unwrap();
        one.check_answer(&ask(&daemon, &one.method, target, body).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_is_applied_again_as_it_was_read() {
    let (daemon, _) = daemon_with_faults().await;
    let node = plimsoll_model::testkit::node_id("ash");
    let facts = plimsoll_model::testkit::cpus(4);
    daemon.write(Writer::Operator, vec![Change::PutNode { node, facts }.free()]).await;
    let mut spec = plimsoll_model::testkit::spread(1).image("app:1");
    spec.container.environment.insert("PASSWORD".into(), "hunter2".into());
    let first = daemon.apply("shop", [("web", spec.clone())]).await;
    spec.container.environment.insert("PASSWORD".into(), "hunter3".into());
    daemon.apply("shop", [("web", spec.image("app:2"))]).await;

    let document = daemon.client.openapi().await.unwrap();
    let described = Described::all(&document);
    let put = described.iter().find(|it| it.name() == "PUT /v1/deployments/{name}").unwrap();
    let read = ask(&daemon, "GET", "/v1/deployments/shop/revisions/1", "").await.body;
    assert!(!read.contains("hunter"), "{read}");
    let body_schema = &put.operation["requestBody"]["content"]["application/json"]["schema"];
    put.check(body_schema, &serde_json::from_str(&read).unwrap(), "a revision");
    let applied = ask(&daemon, "PUT", "/v1/deployments/shop", &read).await;
    assert_eq!(applied.status, 200, "{}", applied.body);
    let hash = |revision: u32| {
        daemon.cell.engine.machine().read(|state| {
            let shop = &state.deployments().values().next().unwrap().history;
            let record = &shop[&plimsoll_model::units::Revision(revision)];
            record.services.values().next().unwrap().hash
        })
    };
    assert_eq!((first.revision, hash(3)), (1, hash(1)), "with its secrets, which nobody was shown");

    let misspelt = read.replace("\"working_dir\"", "\"workdir\"");
    for (case, body, said) in [
        (
            "a field that there is not",
            misspelt,
            "services.web.container.workdir: there is no such field",
        ),
        (
            "a value that its revision does not have",
            read.replace("\"PASSWORD\":null", "\"PASSWORT\":null"),
            "services.web.container.environment.PASSWORT: expected a string",
        ),
    ] {
        let refused = ask(&daemon, "PUT", "/v1/deployments/shop", &body).await;
        assert_eq!(refused.status, 400, "{case}: {}", refused.body);
        assert!(refused.body.contains(said), "{case}: {}", refused.body);
        put.check_answer(&refused);
    }
}
