//! A cell of its own on the test engine, and containers in a few words. What it leaves behind goes with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    ListContainersOptions, ListNetworksOptions, ListVolumesOptions, RemoveContainerOptions,
    RemoveVolumeOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use plimsoll_model::testkit::replica_id;
use plimsoll_model::{Bytes, CellId, ContainerSpec, Generation, Resources};
use plimsoll_runtime::docker::Settings;
use plimsoll_runtime::{
    ContainerStatus, DockerRuntime, Events, ExecOutput, ExecRequest, Exit, LogQuery, Runtime,
    RuntimeEvent, StartRequest, Tag,
};
use tempfile::TempDir;

/// Far longer than anything here takes; only a test that fails waits for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct TestCell {
    pub(crate) runtime: DockerRuntime,
    /// Straight to the engine, to see what the runtime did and to go behind its back.
    pub(crate) docker: Docker,
    pub(crate) settings: Settings,
    /// The name of the cell and of its one deployment: nothing else on the engine has it.
    pub(crate) name: String,
    files: TempDir,
}

/// The environment that `lab/engine` prints.
pub(crate) fn lab(name: &str) -> Option<String> {
    let value = std::env::var(format!("PLIMSOLL_TEST_{name}")).ok();
    if value.is_none() {
        println!("not tested: PLIMSOLL_TEST_{name} is not set; see lab/engine");
    }
    value
}

/// A name that no other test has, whichever process it runs in.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("t{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn connect(socket: &Path) -> Docker {
    let path = socket.to_string_lossy();
    Docker::connect_with_unix(&path, 60, API_DEFAULT_VERSION).expect("the socket is there")
}

impl TestCell {
    pub(crate) fn new() -> Option<Self> {
        Some(Self::at(Path::new(&lab("DOCKER")?)))
    }

    pub(crate) fn at(socket: &Path) -> Self {
        let files = tempfile::tempdir().expect("a directory for the test");
        let name = unique();
        let settings = Settings {
            credentials: None,
            ..Settings::new(CellId::new(&name).expect("a name"), socket, files.path())
        };
        let runtime = DockerRuntime::open(settings.clone());
        Self { runtime, docker: connect(socket), settings, name, files }
    }

    /// Another runtime for the same cell, as after the daemon was killed.
    pub(crate) fn reopen(&mut self) {
        self.runtime = DockerRuntime::open(self.settings.clone());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(crate) fn tag(&self, generation: u64) -> Tag {
        self.tag_of("web", generation)
    }

    pub(crate) fn tag_of(&self, service: &str, generation: u64) -> Tag {
        Tag {
            cell_id: self.settings.cell_id.clone(),
            replica: replica_id(&format!("{}/{service}/1", self.name)),
            generation: Generation(generation),
        }
    }

    pub(crate) fn order(&self, generation: u64, spec: ContainerSpec) -> StartRequest {
        StartRequest::new(self.tag(generation), Arc::new(spec))
    }

    /// Runs a shell script as the first generation.
    pub(crate) async fn run(&self, script: &str) -> Tag {
        self.start(1, sh(script)).await
    }

    pub(crate) async fn start(&self, generation: u64, spec: ContainerSpec) -> Tag {
        let order = self.order(generation, spec);
        self.launch(&order).await;
        order.tag
    }

    pub(crate) async fn launch(&self, order: &StartRequest) {
        self.runtime.start(order).await.unwrap_or_else(|error| {
            panic!("{}", plimsoll_runtime::chain(&error));
        });
    }

    /// Why it does not start.
    pub(crate) async fn complaint(&self, order: &StartRequest) -> String {
        plimsoll_runtime::chain(&self.runtime.start(order).await.expect_err("it must not start"))
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
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn printed(&self, tag: &Tag) -> Vec<String> {
        self.lines(tag, LogQuery::default()).await
    }

    pub(crate) async fn lines(&self, tag: &Tag, query: LogQuery) -> Vec<String> {
        let mut logs = self.runtime.logs(tag, query).await.expect("logs");
        let mut lines = Vec::new();
        while let Some(line) = logs.next().await {
            lines.push(String::from_utf8_lossy(&line.expect("a line").text).into_owned());
        }
        lines
    }

    /// Runs a script to its end and returns what it printed.
    pub(crate) async fn output(&self, spec: ContainerSpec) -> Vec<String> {
        let tag = self.start(1, spec).await;
        self.exit(&tag).await;
        self.printed(&tag).await
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

    pub(crate) async fn inspect(&self, tag: &Tag) -> ContainerInspectResponse {
        let inspected = self.docker.inspect_container(&container(tag), None).await;
        inspected.expect("the container is there")
    }

    /// What there is of this cell on the engine, by name: containers, networks, volumes.
    pub(crate) async fn belongings(&self) -> [Vec<String>; 3] {
        let filters =
            Some([("label".to_owned(), vec![format!("plimsoll.cell={}", self.name)])].into());
        belongings(&self.docker, filters).await
    }
}

type Filters = Option<std::collections::HashMap<String, Vec<String>>>;

async fn belongings(docker: &Docker, filters: Filters) -> [Vec<String>; 3] {
    let options =
        ListContainersOptions { all: true, filters: filters.clone(), ..Default::default() };
    let containers = docker.list_containers(Some(options)).await.unwrap_or_default();
    let options = ListNetworksOptions { filters: filters.clone() };
    let networks = docker.list_networks(Some(options)).await.unwrap_or_default();
    let volumes = docker.list_volumes(Some(ListVolumesOptions { filters })).await;
    let volumes = volumes.ok().and_then(|found| found.volumes).unwrap_or_default();
    let mut all = [
        containers.into_iter().filter_map(|container| container.id).collect::<Vec<_>>(),
        networks.into_iter().filter_map(|network| network.name).collect(),
        volumes.into_iter().map(|volume| volume.name).collect(),
    ];
    for names in &mut all {
        names.sort_unstable();
    }
    all
}

impl Drop for TestCell {
    fn drop(&mut self) {
        let (name, socket) = (self.name.clone(), self.settings.socket.clone());
        // A thread of its own, because a test that failed has no runtime to wait in.
        let cleared = std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let path = socket.to_string_lossy();
                let Ok(docker) = Docker::connect_with_unix(&path, 60, API_DEFAULT_VERSION) else {
                    return;
                };
                let label = vec![format!("plimsoll.cell={name}")];
                let filters = Some([("label".to_owned(), label)].into());
                let [containers, networks, volumes] = belongings(&docker, filters).await;
                for id in containers {
                    let options = RemoveContainerOptions { v: true, force: true, link: false };
                    let _ = docker.remove_container(&id, Some(options)).await;
                }
                for network in networks {
                    let _ = docker.remove_network(&network).await;
                }
                for volume in volumes {
                    let _ = docker.remove_volume(&volume, None::<RemoveVolumeOptions>).await;
                }
            });
        });
        let _ = cleared.join();
        self.forget_secrets();
    }
}

impl TestCell {
    /// What lies in memory does not go with the directory it belongs to.
    fn forget_secrets(&self) {
        let name = self.files.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        for base in ["/run", "/dev/shm"] {
            for top in entries(Path::new(base), "plimsoll-secrets") {
                for own in entries(&top, &name) {
                    let _ = std::fs::remove_dir_all(own);
                }
            }
        }
    }
}

/// What is in a directory and has this in its name.
fn entries(dir: &Path, part: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().contains(part));
    named.map(|entry| entry.path()).collect()
}

/// The name a tag's container has on the engine.
pub(crate) fn container(tag: &Tag) -> String {
    format!("{}.{}.{}", tag.replica, tag.generation, tag.cell_id)
}

/// A shell script as a container that goes at once when it is stopped.
pub(crate) fn sh(script: &str) -> ContainerSpec {
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    ContainerSpec {
        image: lab("IMAGE").unwrap_or_default(),
        command: Some(command),
        stop_signal: Some("SIGKILL".into()),
        // Its own network costs time that most tests have no use for.
        network_mode: Some("none".into()),
        ..ContainerSpec::default()
    }
}

pub(crate) fn idle() -> ContainerSpec {
    sh("exec sleep 600")
}

/// One that wants more memory than it may have. It waits a little first: an engine that is just starting a container may
/// not look at its memory yet.
pub(crate) fn hungry() -> ContainerSpec {
    let limits = Resources { memory: Bytes(16 << 20), ..Resources::NONE };
    let script = "sleep 0.3; exec tail /dev/zero";
    ContainerSpec { limits, memory_swap: Some(16 << 20), ..sh(script) }
}

pub(crate) async fn heard(events: &mut Events) -> RuntimeEvent {
    let next = tokio::time::timeout(PATIENCE, events.next()).await;
    next.expect("an event in time").expect("the runtime is there")
}

pub(crate) fn done(status: i32) -> Exit {
    Exit { status: Some(status), oom: false }
}
