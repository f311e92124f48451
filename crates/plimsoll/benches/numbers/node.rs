//! What a running node costs: how soon it answers, what it uses while nothing happens, and how long it takes to start
//! thirty containers, set beside the bare engine.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_api::client::{Client, Endpoint};
use plimsoll_api::view::{Apply, Progress};
use plimsoll_compose::{ComposeSource, Files, LoadOptions, Loaded, load};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::sleep;

pub(super) mod engine;
mod faked;

use crate::{Table, sample};
use engine::Bare;

const PROGRAM: &str = env!("CARGO_BIN_EXE_plimsoll");

/// How many containers are started at once, and how often the two ways of doing so take turns.
const REPLICAS: usize = 30;
const ROUNDS: usize = 5;

/// How many replicas a node has while nothing happens, and for how long that is looked at.
const IDLE_REPLICAS: usize = 100;
const IDLE: Duration = Duration::from_mins(1);

/// Before that, what the start has left behind is given time to end.
const QUIET: Duration = Duration::from_secs(15);

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(5);

/// The whole command, from the start of its process to its end, against a node that runs nothing.
pub(super) fn status(table: &mut Table) {
    let runtime = threads();
    let node = faked::start(&runtime, 100, 10);
    let times = sample(15, || {
        let output = command().arg("status").env("PLIMSOLL_HOST", &node.socket).output();
        let output = output.expect("the command starts");
        let lines = String::from_utf8_lossy(&output.stdout).lines().count();
        assert!(output.status.success() && lines > 1_000, "{output:?}");
    });
    let what = "`plimsoll status`, 100 deployments with 1k replicas (fake runtime)";
    table.time(what, "≤ 100 ms", &times);
    let client = node.client();
    let times = sample(15, || drop(runtime.block_on(client.status()).expect("it answers")));
    table.time("of that, the daemon's answer as its client reads it", "", &times);
}

pub(super) fn idle(table: &mut Table) {
    let text = format!(
        "name: idle\nservices:\n  s:\n    image: {}\n    command: [sleep, '100000']\n    \
         deploy: {{replicas: {IDLE_REPLICAS}}}\n",
        engine::image(),
    );
    rest(table, "processes", &Daemon::up(&["--runtime", "process"]), &text);
    if let Some(socket) = engine::socket() {
        rest(table, "containers", &Daemon::up(&["--docker-socket", &socket]), &text);
    }
}

fn rest(table: &mut Table, what: &str, daemon: &Daemon, text: &str) {
    let runtime = threads();
    let client = daemon.client();
    runtime.block_on(async {
        steady(&client, text).await;
        sleep(QUIET).await;
    });
    let share = daemon.share(IDLE);
    let (now, most) = (daemon.memory_kib("VmRSS"), daemon.memory_kib("VmHWM"));
    let name = format!("a node with {IDLE_REPLICAS} {what} at rest");
    table.row(
        &format!("{name}: memory"),
        "≤ 40 MB",
        megabytes(now),
        format!("{} at most", megabytes(most)),
    );
    let shown = format!("{:.2} %", share * 100.0);
    table.row(
        &format!("{name}: processor, of one core over {} s", IDLE.as_secs()),
        "≤ 1 %",
        shown,
        String::new(),
    );
    runtime.block_on(gone(&client));
}

/// Ours and the bare engine's, in turns, so that both meet the machine in the same mood.
pub(super) fn starting(table: &mut Table) {
    let Some(socket) = engine::socket() else {
        eprintln!("starting: PLIMSOLL_TEST_DOCKER names no engine, left out");
        return;
    };
    let runtime = threads();
    let bare = Bare::connect(&socket);
    let daemon = Daemon::up(&["--docker-socket", &socket]);
    let client = daemon.client();
    let service = |check: &str| {
        format!(
            "name: bench\nservices:\n  s:\n    image: {}\n    command: [sleep, '100000']\n    init: false\n    \
             stop_grace_period: 0s\n{check}    deploy: {{replicas: {REPLICAS}}}\n",
            engine::image(),
        )
    };
    let checked = service(
        "    healthcheck: {test: [CMD, 'true'], interval: 1h, start_interval: 100ms, start_period: 1m}\n",
    );
    let unchecked = service("");
    let (mut engine, mut ours, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        runtime.block_on(async {
            let one = bare.run(REPLICAS).await;
            let two = steady(&client, &checked).await;
            gone(&client).await;
            let three = steady(&client, &unchecked).await;
            gone(&client).await;
            eprintln!("starting, round {round}: engine {one:?}, ours {two:?}, without a healthcheck {three:?}");
            // The first round warms up whatever can be warm.
            if round > 0 {
                engine.push(one);
                ours.push(two);
                plain.push(three);
            }
        });
    }
    let ratio = |ours: &[Duration]| {
        let ratio =
            |(ours, engine): (&Duration, &Duration)| ours.as_secs_f64() / engine.as_secs_f64();
        let mut ratios: Vec<f64> = ours.iter().zip(&engine).map(ratio).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        [ratios[0], ratios[ratios.len() / 2]].map(|ratio| format!("{ratio:.2}"))
    };
    let with = ratio(&ours);
    let without = ratio(&plain);
    for times in [&mut engine, &mut ours, &mut plain] {
        times.sort_unstable();
    }
    let name = format!("{REPLICAS} containers");
    table.time(
        &format!("{name} created and started straight at the engine, 6 at a time"),
        "",
        &engine,
    );
    table.time(&format!("{name}, apply to steady, with a healthcheck"), "", &ours);
    let [best, median] = with;
    table.row(
        &format!("{name}: the second as a multiple of the first, round by round"),
        "≤ 1.3",
        best,
        median,
    );
    table.time(
        &format!("{name}, apply to steady, without one (each must run for 5 s)"),
        "",
        &plain,
    );
    let [best, median] = without;
    table.row(&format!("{name}: that as a multiple of the first"), "", best, median);
}

pub(super) fn megabytes(kib: u64) -> String {
    format!("{}.{} MB", kib * 1_024 / 1_000_000, kib * 1_024 / 100_000 % 10)
}

/// The kernel's own unit, the same on every Linux that plimsoll is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// A daemon in a process and a directory of its own.
pub(super) struct Daemon {
    process: Child,
    dir: TempDir,
}

impl Daemon {
    pub(super) fn up(words: &[impl AsRef<OsStr>]) -> Self {
        Self::up_in(tempfile::tempdir().expect("a directory can be made"), words)
    }

    /// With what is in the directory already.
    pub(super) fn up_in(dir: TempDir, words: &[impl AsRef<OsStr>]) -> Self {
        let mut up = command();
        up.arg("up").arg("--data-dir").arg(dir.path().join("node")).args(words);
        up.args(["--log-level", "error"]).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = Self { process: up.spawn().expect("a daemon starts"), dir };
        let begun = Instant::now();
        let (runtime, client) = (threads(), daemon.client());
        while runtime.block_on(client.ready(false)).map_or(true, |ready| !ready.is_ready) {
            assert!(begun.elapsed() < PATIENCE, "the daemon does not get ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    /// Ends it as a service manager does, and gives back what it leaves.
    pub(super) fn stop(mut self) -> TempDir {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).expect("the daemon lives");
        self.process.wait().expect("it ends");
        let nothing = tempfile::tempdir().expect("a directory can be made");
        std::mem::replace(&mut self.dir, nothing)
    }

    pub(super) fn client(&self) -> Client {
        Client::new(Endpoint::Unix(self.dir.path().join("node/plimsoll.sock")))
    }

    fn read(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.process.id());
        std::fs::read_to_string(path).expect("the daemon lives")
    }

    /// What it has used of processors so far.
    fn ticks(&self) -> u64 {
        let text = self.read("stat");
        let fields: Vec<&str> =
            text.rsplit_once(')').map_or(vec![], |(_, tail)| tail.split_whitespace().collect());
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        number(11) + number(12)
    }

    /// How many cores it uses over so long a time.
    pub(super) fn share(&self, span: Duration) -> f64 {
        let (begun, before) = (Instant::now(), self.ticks());
        std::thread::sleep(span);
        let ticks = u32::try_from(self.ticks() - before).expect("a minute has few ticks");
        f64::from(ticks) / TICKS_PER_SECOND / begun.elapsed().as_secs_f64()
    }

    pub(super) fn memory_kib(&self, key: &str) -> u64 {
        let text = self.read("status");
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        number.expect("the kernel counts it")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) fn threads() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads start")
}

pub(super) fn command() -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_remove("PLIMSOLL_HOST").env_remove("PLIMSOLL_TOKEN").stdin(Stdio::null());
    command
}

/// No file here names another.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

fn loaded(text: &str) -> (String, Apply) {
    let source = ComposeSource { name: "bench".to_owned(), text: text.into() };
    let Loaded { deployment, .. } =
        load(&[source], &LoadOptions::default(), &NoFiles).expect("it is a compose file");
    (
        deployment.name.to_string(),
        Apply { services: deployment.services, routes: deployment.routes, expect: None },
    )
}

/// Applies it, and says how long it took to be steady.
pub(super) async fn steady(client: &Client, text: &str) -> Duration {
    let (name, apply) = loaded(text);
    let begun = Instant::now();
    let applied = client.apply(&name, &apply).await.expect("it is applied");
    loop {
        let deployment = client.deployment(&name).await.expect("it is there");
        if deployment.revision == applied.revision && deployment.progress == Progress::Steady {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < PATIENCE, "not steady: {:?}", deployment.progress);
        sleep(Duration::from_millis(20)).await;
    }
}

/// Deletes everything.
async fn gone(client: &Client) {
    let begun = Instant::now();
    for deployment in client.deployments().await.expect("the daemon answers") {
        client.delete(&deployment.name, true).await.expect("it is deleted");
    }
    while !client.deployments().await.expect("the daemon answers").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "something stays");
        sleep(Duration::from_millis(50)).await;
    }
}
