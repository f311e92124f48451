//! A runtime on a directory of its own, and services in a few words.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_model::testkit::replica_id;
use plimsoll_model::{Bytes, CellId, ContainerSpec, Generation, Millis};
use plimsoll_runtime::process::{LogBounds, Settings};
use plimsoll_runtime::{
    ContainerStatus, Events, ExecOutput, ExecRequest, Exit, LogQuery, ProcessRuntime, Runtime,
    RuntimeEvent, StartRequest, Tag,
};
use serde_json::Value;
use tempfile::TempDir;

/// Far longer than anything here takes; only a test that fails waits for so long.
const PATIENCE: Duration = Duration::from_secs(15);

/// The directory of a test. Whatever still runs in it when the test is over, or failed, goes with it.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let runs = std::fs::read_dir(self.path().join("test/replicas")).into_iter().flatten();
        for run in runs.flatten().map(|run| run.path()) {
            let record = std::fs::read(run.join("record.json")).unwrap_or_default();
            let record: Value = serde_json::from_slice(&record).unwrap_or_default();
            if !run.join("exit.json").exists() && record["supervisor"]["pid"].is_u64() {
                // Its service dies with it.
                kill(&record["supervisor"]["pid"].to_string());
            }
        }
    }
}

pub(crate) fn kill(pid: &str) {
    let killed = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status();
    killed.expect("kill is there");
}

pub(crate) struct Host {
    pub(crate) dir: Place,
    pub(crate) runtime: ProcessRuntime,
}

impl Host {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let dir = Place(tempfile::tempdir().expect("a directory for the test"));
        let mut settings = settings(dir.path());
        change(&mut settings);
        let runtime = ProcessRuntime::open(settings).await.expect("the runtime opens");
        Self { dir, runtime }
    }

    /// Another runtime on the same directory, as after the daemon was killed.
    pub(crate) async fn restarted(self) -> Self {
        let Self { dir, runtime } = self;
        drop(runtime);
        let runtime = ProcessRuntime::open(settings(dir.path())).await.expect("it opens again");
        Self { dir, runtime }
    }

    /// Runs a shell script as the first generation.
    pub(crate) async fn run(&self, script: &str) -> Tag {
        self.start(1, sh(script)).await
    }

    pub(crate) async fn start(&self, generation: u64, spec: ContainerSpec) -> Tag {
        let order = order(generation, spec);
        self.runtime.start(&order).await.unwrap_or_else(|error| {
            panic!("{}", plimsoll_runtime::chain(&error));
        });
        order.tag
    }

    pub(crate) async fn status(&self, tag: &Tag) -> Option<ContainerStatus> {
        let found = self.runtime.list().await.expect("a list");
        found.into_iter().find(|found| found.tag == *tag).map(|found| found.status)
    }

    /// How it ended, once it has.
    pub(crate) async fn exit(&self, tag: &Tag) -> Exit {
        let begin = Instant::now();
        loop {
            if let Some(ContainerStatus::Exited { exit, .. }) = self.status(tag).await {
                return exit;
            }
            assert!(begin.elapsed() < PATIENCE, "{tag} does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Everything it printed so far.
    pub(crate) async fn printed(&self, tag: &Tag) -> Vec<String> {
        self.lines(tag, LogQuery::default()).await
    }

    pub(crate) async fn lines(&self, tag: &Tag, query: LogQuery) -> Vec<String> {
        let mut logs = self.runtime.logs(tag, query).await.expect("logs");
        let mut lines = Vec::new();
        while let Some(line) = logs.next().await {
            let line = line.expect("a line");
            lines.push(String::from_utf8_lossy(&line.text).into_owned());
        }
        lines
    }

    /// The first line it prints that begins with `word`, without the word.
    pub(crate) async fn says(&self, tag: &Tag, word: &str) -> String {
        let query = LogQuery { follow: true, ..LogQuery::default() };
        let mut logs = self.runtime.logs(tag, query).await.expect("logs");
        let said = async {
            while let Some(line) = logs.next().await {
                let text = String::from_utf8_lossy(&line.expect("a line").text).into_owned();
                if let Some(rest) = text.strip_prefix(word) {
                    return rest.trim().to_owned();
                }
            }
            panic!("{tag} ended without saying {word:?}")
        };
        tokio::time::timeout(PATIENCE, said).await.expect("it says so in time")
    }

    pub(crate) async fn exec(&self, tag: &Tag, exec: &ExecRequest) -> ExecOutput {
        self.runtime.exec(tag, exec).await.expect("the command runs")
    }

    pub(crate) fn file(&self, generation: u64, name: &str) -> std::path::PathBuf {
        self.dir.path().join(format!("test/replicas/g{generation}/{name}"))
    }
}

pub(crate) fn settings(dir: &Path) -> Settings {
    Settings {
        supervisor: vec![env!("CARGO_BIN_EXE_plimsoll-supervisor").to_owned()],
        log: LogBounds { file_bytes: Bytes(1 << 20), files: 2 },
        cgroup_root: None,
        ..Settings::new(CellId::new("test").expect("a name"), dir)
    }
}

pub(crate) fn sh(script: &str) -> ContainerSpec {
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    ContainerSpec { command: Some(command), ..ContainerSpec::default() }
}

pub(crate) fn grace(spec: ContainerSpec, grace: Millis) -> ContainerSpec {
    ContainerSpec { stop_grace: Some(grace), ..spec }
}

pub(crate) fn tag(generation: u64) -> Tag {
    let cell_id = CellId::new("test").expect("a name");
    Tag { cell_id, replica: replica_id("shop/web/1"), generation: Generation(generation) }
}

pub(crate) fn order(generation: u64, spec: ContainerSpec) -> StartRequest {
    StartRequest::new(tag(generation), Arc::new(spec))
}

pub(crate) async fn heard(events: &mut Events) -> RuntimeEvent {
    let next = tokio::time::timeout(PATIENCE, events.next()).await;
    next.expect("an event in time").expect("the runtime is there")
}

pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub(crate) async fn gone(pid: &str) {
    let begin = Instant::now();
    while is_alive(pid) {
        assert!(begin.elapsed() < PATIENCE, "{pid} does not die");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
