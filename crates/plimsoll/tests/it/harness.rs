//! A cell of several daemons, each on an address of its own: on loopback addresses of this host, or on hosts of a lab
//! whose wires can be cut. Everything it starts goes with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_kernel::voters::MAX_SERVERS;
use plimsoll_lab::{Lab, NAMES, Process};
use plimsoll_peer::pki::{Fingerprint, Identity};
use plimsoll_store::keys::CellKey;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::heirs;
use crate::http;
use crate::lab::found::{Found, Processes};
use crate::run::{Ran, binary, run_in};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// How long a daemon may take to say how it is.
const ANSWER: Duration = Duration::from_secs(5);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How many lines are shown of each daemon's log when a test fails.
const LOG_TAIL: usize = 40;

/// Not the one a node has by itself: then it is on all addresses, also on those of a test.
const PORT: u16 = 7217;
const API_PORT: u16 = 7654;

/// Six replicas, which every node can run.
pub(crate) const SHOP: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'exec sleep 1000']
    healthcheck: {test: [CMD, "true"], interval: 100ms}
    deploy: {replicas: 6}
"#;

/// Where the nodes are.
#[derive(Debug)]
pub(crate) enum Site {
    Loopback,
    Hosts(Lab),
}

/// How one daemon is started, each time.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeSetup {
    /// A program that runs the daemon, and its arguments.
    pub(crate) under: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// What else `plimsoll up` is told.
    pub(crate) args: Vec<String>,
    /// Another build of the daemon than the one under test.
    pub(crate) build: Option<PathBuf>,
    /// Another address than its first.
    pub(crate) address: Option<String>,
    /// The socket of an engine on which it runs containers; none: it runs processes.
    pub(crate) engine: Option<PathBuf>,
    /// It is a coordinator's, and runs nothing.
    pub(crate) is_coordinator: bool,
}

pub(crate) struct Cell {
    pub(crate) dir: TempDir,
    site: Site,
    daemons: Vec<Option<Process>>,
    /// Who took over from them.
    heirs: Mutex<BTreeMap<usize, i32>>,
    pub(crate) setups: Vec<NodeSetup>,
}

impl Cell {
    /// No node yet.
    pub(crate) fn idle(site: Site) -> Self {
        let (daemons, setups) = (Vec::new(), vec![NodeSetup::default(); NAMES.len()]);
        let (dir, heirs) = (tempfile::tempdir().unwrap(), Mutex::default());
        Self { dir, site, daemons, heirs, setups }
    }

    /// Three nodes that vote and are heard.
    pub(crate) fn of_three(site: Site) -> Self {
        let mut cell = Self::idle(site);
        cell.form(3);
        cell
    }

    pub(crate) fn form(&mut self, count: usize) {
        self.up(0, None);
        for at in 1..count {
            let token = self.token(0);
            self.up(at, Some(&token));
        }
        self.until("all servers vote", |cell| {
            // Of one moment: what does not change before it is counted may change while it is.
            let status = cell.json(0, "cell status -o json");
            status["is_changing"] == false && voters(&status).len() == count.min(MAX_SERVERS)
        });
        self.until_heard(0, count);
    }

    /// So many nodes are of the cell and say how they are, as this one tells it.
    #[track_caller]
    pub(crate) fn until_heard(&self, at: usize, count: usize) {
        self.until("all nodes are heard", |cell| {
            let nodes = cell.get(at, "/v1/nodes").unwrap_or_default();
            let nodes = nodes.as_array().cloned().unwrap_or_default();
            nodes.len() == count && nodes.iter().all(|node| !node["runtime"].is_null())
        });
    }

    /// Whose votes count, as this node tells it.
    pub(crate) fn voters(&self, at: usize) -> Vec<String> {
        voters(&self.json(at, "cell status -o json"))
    }

    /// The same of a node that may not have learnt yet that it is no server any more: until then it asks as one, and is refused.
    pub(crate) fn voters_if_told(&self, at: usize) -> Option<Vec<String>> {
        let told = self.run(at, "cell status -o json").stdout();
        serde_json::from_str(&told).ok().as_ref().map(voters)
    }

    /// The hosts and their wires.
    pub(crate) fn lab(&self) -> &Lab {
        match &self.site {
            Site::Hosts(lab) => lab,
            Site::Loopback => panic!("all nodes are on one host"),
        }
    }

    /// Every node that was ever started, by number.
    pub(crate) fn nodes(&self) -> std::ops::Range<usize> {
        0..self.daemons.len()
    }

    pub(crate) fn others(&self, at: usize) -> Vec<usize> {
        self.nodes().filter(|other| *other != at).collect()
    }

    /// The key that the cell's backups are encrypted with, as an admin of it gets it.
    pub(crate) fn backup_key(&self, at: usize) -> CellKey {
        let shown = self.run(at, "cell backup-key");
        assert_eq!(shown.code(), 0, "{}", shown.text());
        shown.stdout().parse().unwrap()
    }

    /// A token to join with. One that was asked for while nobody led was not made, and is asked for again.
    pub(crate) fn token(&self, at: usize) -> String {
        let mut token = String::new();
        self.until("a join token is made", |cell| {
            let made = cell.run(at, "token create-join");
            let is_early = made.stderr().contains("no server leads");
            assert!(made.code() == 0 || is_early, "{}", made.text());
            made.stdout().trim().clone_into(&mut token);
            !token.is_empty()
        });
        token
    }

    /// How often a node began to lead, by what the daemons said.
    pub(crate) fn elections(&self) -> usize {
        let said = self.nodes().map(|at| self.said(at));
        said.map(|said| said.matches("this node leads the cell").count()).sum()
    }

    pub(crate) fn path(&self, at: usize) -> PathBuf {
        self.dir.path().join(NAMES[at])
    }

    pub(crate) fn socket(&self, at: usize) -> PathBuf {
        self.path(at).join("plimsoll.sock")
    }

    fn log(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("{}.log", NAMES[at]))
    }

    /// What the daemon has said so far, all starts of it.
    pub(crate) fn said(&self, at: usize) -> String {
        fs::read_to_string(self.log(at)).unwrap_or_default()
    }

    /// Where other nodes reach this one.
    pub(crate) fn address(&self, at: usize) -> String {
        if let Some(elsewhere) = &self.setups[at].address {
            return elsewhere.clone();
        }
        match &self.site {
            Site::Loopback => loopback(at),
            Site::Hosts(lab) => format!("{}:{PORT}", lab.host(at).address()),
        }
    }

    /// Where it takes requests over the network.
    pub(crate) fn api(&self, at: usize) -> Option<String> {
        match &self.site {
            Site::Loopback => Some(loopback(at).replace(&PORT.to_string(), &API_PORT.to_string())),
            Site::Hosts(_) => None,
        }
    }

    /// What the nodes of the cell are recognised by.
    pub(crate) fn authority(&self) -> Fingerprint {
        Identity::load(&self.path(0)).unwrap().expect("a node has an identity").fingerprint()
    }

    /// Starts a daemon and waits until it serves.
    pub(crate) fn up(&mut self, at: usize, join: Option<&str>) {
        let before = self.said(at).len();
        self.launch(at, join);
        self.until_serving(at, before);
    }

    /// Waits until these nodes serve, which were started for the first time.
    #[track_caller]
    pub(crate) fn until_up(&self, nodes: impl IntoIterator<Item = usize>) {
        nodes.into_iter().for_each(|at| self.until_serving(at, 0));
    }

    #[track_caller]
    fn until_serving(&self, at: usize, before: usize) {
        let begun = Instant::now();
        while !self.said(at)[before..].contains("Next: ") {
            let ended = self.daemon(at).ended().unwrap();
            let is_late = begun.elapsed() > PATIENCE;
            assert!(ended.is_none() && !is_late, "{} does not start: {}", NAMES[at], self.said(at));
            sleep(LOOK_AGAIN / 2);
        }
    }

    /// Starts a daemon and waits for nothing.
    pub(crate) fn launch(&mut self, at: usize, join: Option<&str>) {
        if self.daemons.len() <= at {
            self.daemons.resize_with(at + 1, || None);
        }
        assert!(self.daemons[at].is_none(), "one daemon at a time");
        let command = self.command(at, join);
        let daemon = match &self.site {
            Site::Loopback => Process::new({ command }.spawn().unwrap()),
            Site::Hosts(lab) => lab.host(at).spawn(command).unwrap(),
        };
        self.daemons[at] = Some(daemon);
    }

    fn command(&self, at: usize, join: Option<&str>) -> Command {
        let NodeSetup { under, environment, build, engine, args: more, is_coordinator, .. } =
            &self.setups[at];
        let runs_processes = engine.is_none() && !is_coordinator;
        let daemon = || build.as_ref().map_or_else(binary, Command::new);
        let mut command = match under.split_first() {
            None => daemon(),
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(daemon().get_program());
                command
            }
        };
        command
            .args(is_coordinator.then_some("coordinator"))
            .args(["up", "--log-level", "info"])
            .args(runs_processes.then_some(["--runtime", "process"]).into_iter().flatten())
            .args(engine.iter().flat_map(|socket| ["--docker-socket".as_ref(), socket.as_os_str()]))
            .args(["--name", NAMES[at], "--address", &self.address(at), "--data-dir"])
            .arg(self.path(at))
            .args(self.api(at).map(|api| ["--listen".to_owned(), api]).into_iter().flatten())
            .args(join.map(|join| ["--join", join]).into_iter().flatten())
            .args(more)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(self.log(at)).unwrap());
        command
    }

    pub(crate) fn daemon(&self, at: usize) -> &Process {
        self.daemons[at].as_ref().expect("its daemon runs")
    }

    /// The number of the process that is the daemon.
    pub(crate) fn pid(&self, at: usize) -> i32 {
        let heir = self.heirs.lock().unwrap().get(&at).copied();
        heir.unwrap_or_else(|| self.daemon(at).pid())
    }

    /// Has a daemon hand over to another process, and returns the number of that.
    #[track_caller]
    pub(crate) fn hand_over(&self, at: usize) -> i32 {
        let heir = heirs::hand_over(self.pid(at), &self.path(at), || self.said(at));
        self.heirs.lock().unwrap().insert(at, heir);
        heir
    }

    /// Ends the daemon as a crash would. What it ran runs on.
    pub(crate) fn kill(&mut self, at: usize) {
        self.daemons[at].take().expect("its daemon runs").kill();
    }

    /// Ends the daemon as a service manager would.
    pub(crate) fn stop(&mut self, at: usize) {
        self.daemon(at).terminate().unwrap();
        self.until_ended(at);
    }

    /// Waits for a daemon that was told to end.
    pub(crate) fn until_ended(&mut self, at: usize) {
        let daemon = self.daemons[at].take().expect("its daemon runs");
        let begun = Instant::now();
        while daemon.ended().unwrap().is_none() {
            let is_late = begun.elapsed() > PATIENCE;
            assert!(!is_late, "{} does not stop: {}", NAMES[at], self.said(at));
            sleep(LOOK_AGAIN / 2);
        }
    }

    /// No daemon has ended that nobody ended.
    #[track_caller]
    pub(crate) fn must_live(&self) {
        for (at, daemon) in self.daemons.iter().enumerate() {
            let ended = daemon.as_ref().and_then(|daemon| daemon.ended().unwrap());
            assert!(ended.is_none(), "{} ended: {ended:?}\n{}", NAMES[at], self.diagnosis());
        }
    }

    /// Ends everything on the node's host at once.
    pub(crate) fn switch_off(&mut self, at: usize) {
        self.daemons[at].take();
        self.lab().host(at).switch_off();
    }

    pub(crate) fn run(&self, at: usize, args: &str) -> Ran {
        let host = self.socket(at);
        run_in(self.dir.path(), args, "", &[("PLIMSOLL_HOST", host.to_str().unwrap())])
    }

    pub(crate) fn json(&self, at: usize, args: &str) -> Value {
        let ran = self.run(at, args);
        serde_json::from_str(&ran.stdout()).unwrap_or_else(|_| panic!("{}", ran.text()))
    }

    /// What an API answers, if it does, whatever the status.
    pub(crate) fn get(&self, at: usize, path: &str) -> Option<Value> {
        let (_, body) = http::ask(&self.socket(at), "GET", path, b"", ANSWER).ok()?;
        serde_json::from_slice(&body).ok()
    }

    /// The one that leads, if these nodes agree on who does and that one says so itself.
    pub(crate) fn leader_of(&self, nodes: &[usize]) -> Option<usize> {
        let told: Vec<Value> =
            nodes.iter().map(|at| self.get(*at, "/readyz")).collect::<Option<_>>()?;
        let first = told.first()?;
        let agrees = |one: &Value| one["leader"] == first["leader"] && one["term"] == first["term"];
        let leader = NAMES.iter().position(|name| first["leader"] == *name)?;
        (told.iter().all(agrees) && nodes.contains(&leader)).then_some(leader)
    }

    /// The one that leads, once these nodes agree.
    #[track_caller]
    pub(crate) fn until_led(&self, nodes: &[usize]) -> usize {
        let mut leader = None;
        self.until("a leader that these nodes agree on", |cell| {
            leader = cell.leader_of(nodes);
            leader.is_some()
        });
        leader.expect("it was there a moment ago")
    }

    /// These servers have applied as much and hold the same state.
    #[track_caller]
    pub(crate) fn until_equal(&self, nodes: &[usize]) {
        self.until("these servers hold the same state", |cell| {
            let told = nodes.iter().map(|at| cell.get(*at, "/healthz?hash=true"));
            let Some(told) = told.collect::<Option<Vec<Value>>>() else { return false };
            let first = (&told[0]["applied"], &told[0]["hash"]);
            told.iter().all(|one| (&one["applied"], &one["hash"]) == first && !first.1.is_null())
        });
    }

    /// The term as the node knows it.
    pub(crate) fn term(&self, at: usize) -> Option<u64> {
        self.get(at, "/readyz")?["term"].as_u64()
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Duration {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "never: {what}\n{}", self.diagnosis());
            sleep(LOOK_AGAIN);
        }
        begun.elapsed()
    }

    /// Everything there is to see when a test fails: what the cell knows first, then each node and what it logged.
    pub(crate) fn diagnosis(&self) -> String {
        let of_the_cell = |path| self.nodes().find_map(|at| self.get(at, path)).unwrap_or_default();
        let nodes = of_the_cell("/v1/nodes");
        let mut text = String::new();
        for node in nodes.as_array().into_iter().flatten() {
            let known =
                ["name", "status", "last_heard", "version"].map(|field| node[field].to_string());
            text.extend([&known.join(" "), "\n"]);
        }
        for at in self.nodes() {
            let ready = self.get(at, "/readyz").unwrap_or_default();
            text.extend(["--- ", NAMES[at], ": ", &ready.to_string(), "\n"]);
            let log = self.said(at);
            let is_told = |line: &&str| line.starts_with("20") || line.contains("panicked at");
            let lines: Vec<&str> = log.lines().filter(is_told).collect();
            for line in &lines[lines.len().saturating_sub(LOG_TAIL)..] {
                text.extend([line, "\n"]);
            }
        }
        text + &format!("{}\n", of_the_cell("/v1/deployments/shop"))
    }

    pub(crate) fn write_shop(&self) {
        fs::write(self.dir.path().join("compose.yaml"), SHOP).unwrap();
    }

    /// Which node each replica of the shop runs on, as another tells it.
    pub(crate) fn running_on(&self, at: usize) -> Vec<String> {
        let shop = self.json(at, "get deployments -o json");
        let all = shop.as_array().into_iter().flatten();
        let shop = all.into_iter().find(|it| it["name"] == "shop").cloned().unwrap_or_default();
        let replicas = shop["services"][0]["replicas"].as_array().cloned().unwrap_or_default();
        let running = replicas.iter().filter(|replica| replica["now"]["state"] == "running");
        running.map(|replica| replica["now"]["node"].as_str().unwrap().to_owned()).collect()
    }

    /// What really runs on all nodes, whatever they say.
    pub(crate) fn found(&self) -> Vec<Found> {
        self.nodes().flat_map(|at| self.found_on(at)).collect()
    }

    pub(crate) fn found_on(&self, at: usize) -> Vec<Found> {
        let mut found = Processes::below(&self.path(at)).found();
        found.retain(|one| one.is_running);
        found
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(kept) = std::env::var_os("PLIMSOLL_TEST_KEEP")
        {
            let _ = Command::new("cp").arg("-r").arg(self.dir.path()).arg(kept).status();
        }
        for daemon in self.daemons.iter().flatten() {
            daemon.kill();
        }
        match &self.site {
            // A daemon that is killed leaves its supervisors to the next, and there is none.
            Site::Loopback => {
                let heirs = self.heirs.lock().unwrap();
                let alive = heirs.values().filter(|heir| heirs::is_alive(**heir));
                alive.for_each(|heir| heirs::signal(*heir, Signal::KILL));
                self.nodes().for_each(|at| Processes::below(&self.path(at)).kill());
            }
            Site::Hosts(lab) => lab.hosts().iter().for_each(plimsoll_lab::Host::switch_off),
        }
        forget_secrets(&self.dir);
    }
}

/// What replicas of these nodes had in memory stays there when they are killed.
fn forget_secrets(dir: &TempDir) {
    let name = dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let shared = format!("/dev/shm/plimsoll-secrets-{}", rustix::process::geteuid().as_raw());
    for top in ["/run/plimsoll-secrets", &shared] {
        for entry in fs::read_dir(top).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().contains(&name) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// An address that no other test has.
pub(crate) fn loopback(at: usize) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{}.{}:{PORT}", 100 + at, high, low.max(1))
}

/// The library that lies about the time, in the directory of whichever machine this is.
pub(crate) fn faketime() -> Option<String> {
    let libraries = fs::read_dir("/usr/lib").ok()?.flatten();
    let mut found = libraries.map(|dir| dir.path().join("faketime/libfaketime.so.1"));
    found.find(|path| path.exists())?.to_str().map(str::to_owned)
}

fn voters(status: &Value) -> Vec<String> {
    let servers = status["servers"].as_array().cloned().unwrap_or_default();
    let voters = servers.iter().filter(|server| server["votes"] == true);
    voters.map(|server| server["node"].as_str().unwrap().to_owned()).collect()
}
