//! Documents about a running node, replayed on one: the guide to running it, and the table of its API.
//!
//! What differs from run to run (times, who asked, where) is masked on both sides before they are compared. With
//! `UPDATE_EXPECT=1` the documents are written as the node answers now.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_api::client::{Client, Endpoint};
use plimsoll_daemon::node::LINGER;
use plimsoll_kernel::Policy;
use plimsoll_kernel::restart::back_off;
use plimsoll_runtime::health::probe::SETTLED;
use serde_json::Value;
use tempfile::TempDir;

use crate::node::timeless;
use crate::run::{UNSET, root};

/// Where the reader of the guide is.
const READER: &str = "/home/me/try";

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A terminal in an empty directory, and the node that was started there.
struct Session {
    dir: TempDir,
    node: Option<Child>,
}

impl Session {
    fn begin() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), node: None }
    }

    fn here(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.here().join("node/plimsoll.sock")
    }

    fn command(&self, line: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", binary.parent().unwrap().display());
        let mut command = Command::new("sh");
        for name in UNSET {
            command.env_remove(name);
        }
        command.args(["-c", line]).current_dir(self.here());
        command.env("PATH", path).env("PLIMSOLL_HOST", self.socket()).stdin(Stdio::null());
        command
    }

    /// What a line of the guide prints: its data, and why it failed if it did.
    fn run(&mut self, line: &str) -> String {
        if line.starts_with("plimsoll up ") {
            return self.up(line);
        }
        let output = self.command(line).output().unwrap();
        let mut text = String::from_utf8(output.stdout).unwrap();
        let rest = String::from_utf8(output.stderr).unwrap();
        if let Some(at) = rest.find("error: ") {
            text += &rest[at..];
        }
        self.as_read(&text)
    }

    /// Starts the node beside what follows. What it says, up to its own next step.
    fn up(&mut self, line: &str) -> String {
        let log = self.here().join("up.log");
        let line = format!("exec {line} --log-level error");
        let mut command = self.command(&line);
        command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        self.node = Some(command.spawn().unwrap());
        let begun = Instant::now();
        loop {
            let said = fs::read_to_string(&log).unwrap();
            if said.contains("Next: ") && said.ends_with('\n') {
                fs::remove_file(log).unwrap();
                return self.as_read(&said);
            }
            assert!(begun.elapsed() < PATIENCE, "the node does not start: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn as_read(&self, text: &str) -> String {
        text.replace(self.here().to_str().unwrap(), READER)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Whatever a test left running ends with it.
        let _ = self.command("plimsoll delete shop --timeout 20s").output();
        if let Some(node) = &mut self.node {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// The document with every `console` block as it would read today. Files that it shows are written first.
fn replayed(text: &str, session: &mut Session) -> String {
    let mut fresh = String::new();
    let (mut language, mut file) = ("", String::new());
    for line in text.lines() {
        match (language, line.strip_prefix("```")) {
            (_, Some(next)) => {
                if let Some(name) = file.lines().next().and_then(|line| line.strip_prefix("# ")) {
                    fs::write(session.here().join(name), &file).unwrap();
                }
                file.clear();
                language = next;
            }
            ("yaml", None) => file.extend([line, "\n"]),
            ("console", None) => {
                if let Some(command) = line.strip_prefix("$ ") {
                    fresh.extend([line, "\n", &session.run(command)]);
                }
                continue;
            }
            _ => {}
        }
        fresh.extend([line, "\n"]);
    }
    fresh
}

/// Without what differs from run to run and from machine to machine.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in timeless(text).lines() {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 0..words.len() {
            let is_count = words[at].starts_with(|c: char| c.is_ascii_digit());
            let counts =
                |word: Option<&String>, what: &str| word.is_some_and(|it| it.starts_with(what));
            let is_entry = at > 0 && words[at - 1] == "entry";
            if words[at].starts_with("unix:") {
                "me".clone_into(&mut words[at]);
            } else if is_count && (is_entry || counts(words.get(at + 1), "bytes")) {
                "N".clone_into(&mut words[at]);
            }
        }
        let line = words.join(" ");
        // How limits are held depends on the machine.
        let line = if line.contains("- limits of memory") { "limits" } else { &line };
        // Columns are as wide as what is in them.
        out.push_str(&line.split_whitespace().collect::<Vec<_>>().join(" "));
        out.push('\n');
    }
    out
}

/// Compares, or writes what is true now.
#[track_caller]
fn check(path: &str, fresh: &str, masked: impl Fn(&str) -> String) {
    let path = root().join(path);
    let text = fs::read_to_string(&path).unwrap();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        if masked(&text) != masked(fresh) {
            fs::write(path, fresh).unwrap();
        }
        return;
    }
    let (text, fresh) = (masked(&text), masked(fresh));
    for (wanted, found) in text.lines().zip(fresh.lines()) {
        assert_eq!(wanted, found, "{} differs", path.display());
    }
    assert_eq!(text, fresh, "{} differs", path.display());
}

#[test]
fn the_guide_to_a_node_shows_what_a_node_does() {
    let path = "docs/guide/run-a-node.md";
    let text = fs::read_to_string(root().join(path)).unwrap();
    let mut session = Session::begin();
    let fresh = replayed(&text, &mut session);
    check(path, &fresh, masked);
}

#[test]
fn the_guide_to_a_node_quotes_the_numbers_the_code_has() {
    let text = fs::read_to_string(root().join("docs/guide/run-a-node.md")).unwrap();
    let text = text.replace('\n', " ");
    let words =
        ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    let word = |number: u64| words[usize::try_from(number).unwrap()];
    let policy = Policy::default();
    let seconds = |failures| word(back_off(failures, policy.max_restart_back_off).0 / 1_000);
    for quote in [
        format!("counts as healthy once it has run for {} seconds", word(SETTLED.0 / 1_000)),
        format!("after {} second, then after {}.", seconds(1), seconds(2)),
        format!("After {} failures in a row", word(policy.restart_limit.into())),
        format!("until they end, at most {} minutes", word(LINGER.as_secs() / 60)),
    ] {
        assert!(text.contains(&quote), "{quote}");
    }
}

/// Every path and method of the description, with its summary.
fn endpoints(document: &Value) -> String {
    let mut table = String::from("| | | |\n|---|---|---|\n");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, what) in methods.as_object().unwrap() {
            let summary = what["summary"].as_str().unwrap_or_default();
            let parameters = what["parameters"].as_array().into_iter().flatten();
            let query: Vec<String> = parameters
                .filter(|parameter| parameter["in"] == "query")
                // Every read takes it, which the text above the table says once.
                .filter(|parameter| parameter["name"] != "consistent")
                .map(|parameter| format!("`{}`", parameter["name"].as_str().unwrap()))
                .collect();
            let query =
                if query.is_empty() { String::new() } else { format!("; {}", query.join(", ")) };
            let method = method.to_uppercase();
            let row = format!("| {method} | `{path}` | {summary}{query} |\n");
            table.push_str(&row);
        }
    }
    table
}

#[test]
fn the_reference_of_the_api_lists_every_path() {
    let mut session = Session::begin();
    session.run("plimsoll up --data-dir node --runtime process --name ash --cell demo");
    let client = Client::new(Endpoint::Unix(session.socket()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let document = runtime.block_on(client.openapi()).unwrap();
    let path = "docs/reference/api.md";
    let text = fs::read_to_string(root().join(path)).unwrap();
    let (begin, end) = ("<!-- endpoints: begin -->\n", "<!-- endpoints: end -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (_, tail) = rest.split_once(end).unwrap();
    let fresh = format!("{head}{begin}{}{end}{tail}", endpoints(&document));
    check(path, &fresh, str::to_owned);
}
