//! A cell of one with a daemon that can be killed, its command line, and what its runtime really has. Everything it
//! makes goes with it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_api::view::{Assignment, Deployment, Progress, Replica, Status};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::found::{Found, Processes};
use crate::heirs;
use crate::http;
use crate::run::binary;

/// Far longer than anything here takes; only a test that fails waits for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What is shown of a daemon's log when a test fails.
const LOG_TAIL: usize = 12_000;

pub(crate) struct Lab {
    /// The name of its cell: nothing else on the engine has it.
    pub(crate) name: String,
    pub(crate) runtime: Runtime,
    dir: PathBuf,
    /// What it is started with besides.
    pub(crate) options: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// Another file than the program under test.
    pub(crate) program: Option<PathBuf>,
    daemon: Option<Child>,
    /// Processes that took over from it, in this order.
    heirs: Vec<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Runtime {
    Docker(PathBuf),
    Process,
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
    format!("lab{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

impl Lab {
    /// A daemon on the test engine, once it answers; none where there is no engine.
    pub(crate) fn docker() -> Option<Self> {
        Some(Self::at(Runtime::Docker(lab("DOCKER")?.into())))
    }

    /// The same, and nothing is started yet.
    pub(crate) fn docker_idle() -> Option<Self> {
        Some(Self::idle(Runtime::Docker(lab("DOCKER")?.into())))
    }

    /// A daemon without an engine, once it answers.
    pub(crate) fn process() -> Self {
        Self::at(Runtime::Process)
    }

    pub(crate) fn at(runtime: Runtime) -> Self {
        let mut lab = Self::idle(runtime);
        lab.start();
        lab
    }

    /// Nothing is started yet.
    pub(crate) fn idle(runtime: Runtime) -> Self {
        let name = unique();
        // Not below the target directory: a socket's path has to be short.
        let dir = std::env::temp_dir().join(&name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("marks")).unwrap();
        Self {
            name,
            runtime,
            dir,
            options: Vec::new(),
            environment: Vec::new(),
            program: None,
            daemon: None,
            heirs: Vec::new(),
        }
    }

    /// A daemon of the same cell on another data directory, which lies beside the first one's.
    pub(crate) fn beside(other: &Self, data: &str) -> Self {
        let mut lab = Self::idle(other.runtime.clone());
        lab.name.clone_from(&other.name);
        fs::rename(other.path(data), lab.data()).unwrap();
        lab.start();
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("node")
    }

    fn socket(&self) -> PathBuf {
        self.path("s")
    }

    fn log(&self) -> PathBuf {
        self.path("daemon.log")
    }

    /// What the daemon has said so far, all starts of it.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The command that starts the daemon.
    pub(crate) fn up(&self) -> Command {
        self.up_at(&self.data(), &self.socket())
    }

    pub(crate) fn up_at(&self, data: &Path, socket: &Path) -> Command {
        let mut command = self.program.as_ref().map_or_else(binary, Command::new);
        command.args(["up", "--log-level", "debug", "--cell", &self.name, "--name", "ash"]);
        command.arg("--data-dir").arg(data).arg("--socket").arg(socket);
        match &self.runtime {
            Runtime::Docker(engine) => command.arg("--docker-socket").arg(engine),
            Runtime::Process => command.args(["--runtime", "process"]),
        };
        command.args(&self.options).current_dir(&self.dir);
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        command
    }

    /// Starts the daemon and waits until it answers.
    pub(crate) fn start(&mut self) {
        self.launch();
        let begin = Instant::now();
        while self.ask("GET", "/v1/status", b"").is_none() {
            let ended = self.daemon.as_mut().and_then(|daemon| daemon.try_wait().unwrap());
            assert!(ended.is_none(), "the daemon ended: {ended:?}\n{}", self.said());
            self.must_not_take(begin, "the daemon answers");
            sleep(LOOK_AGAIN / 2);
        }
    }

    /// Starts the daemon and waits for nothing.
    pub(crate) fn launch(&mut self) {
        assert!(self.daemon.is_none(), "one daemon at a time");
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = self.up();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.daemon = Some(command.spawn().unwrap());
    }

    /// The number of the process that is the daemon.
    pub(crate) fn pid(&self) -> i32 {
        let first = || i32::try_from(self.daemon.as_ref().expect("a daemon runs").id()).unwrap();
        self.heirs.last().copied().unwrap_or_else(first)
    }

    /// Tells the daemon to hand over, and waits for nothing.
    pub(crate) fn hang_up(&self) {
        heirs::signal(self.pid(), Signal::HUP);
    }

    /// Has the daemon hand over to another process, and returns the number of that.
    #[track_caller]
    pub(crate) fn hand_over(&mut self) -> i32 {
        let heir = heirs::hand_over(self.pid(), &self.data(), || self.said());
        self.heirs.push(heir);
        heir
    }

    /// How many processes that have handed over are still there.
    pub(crate) fn predecessors(&self) -> usize {
        let first = self.daemon.as_ref().map(|daemon| i32::try_from(daemon.id()).unwrap());
        let before = &self.heirs[..self.heirs.len().saturating_sub(1)];
        first.iter().chain(before).filter(|pid| heirs::is_alive(**pid)).count()
    }

    /// Ends the daemon as a crash would.
    pub(crate) fn kill(&mut self) {
        for heir in self.heirs.drain(..).filter(|heir| heirs::is_alive(*heir)) {
            heirs::signal(heir, Signal::KILL);
        }
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    /// Ends the daemon as a service manager would.
    pub(crate) fn stop(&mut self) {
        if let Some(heir) = self.heirs.last().copied() {
            heirs::signal(heir, Signal::TERM);
            self.wait_for("the daemon stops", || !heirs::is_alive(heir));
            return;
        }
        let mut daemon = self.daemon.take().expect("a daemon runs");
        let pid = Pid::from_raw(i32::try_from(daemon.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = daemon.try_wait().unwrap() {
                break status;
            }
            self.must_not_take(begin, "the daemon stops");
            sleep(LOOK_AGAIN / 2);
        };
        assert!(status.success(), "{status}\n{}", self.said());
    }

    /// Runs a command of the command line, with words split at blanks.
    pub(crate) fn run(&self, args: &str) -> Said {
        self.run_reading(args, "")
    }

    pub(crate) fn run_reading(&self, args: &str, stdin: &str) -> Said {
        let mut command = binary();
        command.args(args.split_whitespace()).arg("--host").arg(self.socket());
        command.current_dir(&self.dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        Said::of(&child.wait_with_output().unwrap())
    }

    /// Applies a compose file and returns the revision it was acknowledged as.
    #[track_caller]
    pub(crate) fn apply(&self, deployment: &str, compose: &str) -> u64 {
        let said = self.try_apply(deployment, compose).done();
        said.json()["applied"]["revision"].as_u64().expect("a revision")
    }

    pub(crate) fn try_apply(&self, deployment: &str, compose: &str) -> Said {
        self.run_reading(&format!("apply -d -o json -f - -p {deployment}"), compose)
    }

    /// Applies a compose file and waits until it is steady.
    #[track_caller]
    pub(crate) fn settle(&self, deployment: &str, compose: &str) -> Deployment {
        let revision = self.apply(deployment, compose);
        self.steady_at(deployment, revision)
    }

    #[track_caller]
    pub(crate) fn steady_at(&self, deployment: &str, revision: u64) -> Deployment {
        self.until(deployment, &format!("{deployment} is steady at {revision}"), |it| {
            it.revision == revision && it.progress == Progress::Steady
        })
    }

    #[track_caller]
    pub(crate) fn steady(&self, deployment: &str) -> Deployment {
        self.until(deployment, &format!("{deployment} is steady"), |it| {
            it.progress == Progress::Steady
        })
    }

    /// The deployment, once it is as described.
    #[track_caller]
    pub(crate) fn until(
        &self,
        deployment: &str,
        what: &str,
        is_so: impl Fn(&Deployment) -> bool,
    ) -> Deployment {
        let find = |status: &Status| find(status, deployment).cloned();
        let status = self.wait(what, |status| find(status).is_some_and(|it| is_so(&it)));
        find(&status).expect("it was there a moment ago")
    }

    /// Until nothing of the deployment is left, neither in the cell nor in its runtime.
    #[track_caller]
    pub(crate) fn gone(&self, deployment: &str) {
        self.wait(&format!("{deployment} is gone"), |status| find(status, deployment).is_none());
        self.wait_found(&format!("nothing of {deployment} is left"), |found| {
            found.iter().all(|one| one.deployment() != deployment)
        });
    }

    /// The status, once it is as described.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.status()
                && is_so(&status)
            {
                return status;
            }
            self.must_not_take(begin, what);
            sleep(LOOK_AGAIN);
        }
    }

    /// What the runtime has, once it is as described.
    #[track_caller]
    pub(crate) fn wait_found(&self, what: &str, is_so: impl Fn(&[Found]) -> bool) -> Vec<Found> {
        let begin = Instant::now();
        loop {
            let found = self.found();
            if is_so(&found) {
                return found;
            }
            self.must_not_take(begin, what);
            sleep(LOOK_AGAIN * 4);
        }
    }

    /// The runtime has exactly these, and the same runs of them. A probe of theirs may be seen for a moment as well.
    #[track_caller]
    pub(crate) fn still_has(&self, these: &[Found], why: &str) {
        self.wait_found(why, |found| found == these);
    }

    /// What runs, once there are so many and nothing else.
    #[track_caller]
    pub(crate) fn runs(&self, count: usize) -> Vec<Found> {
        self.wait_found(&format!("{count} run"), |found| {
            found.len() == count && found.iter().all(|one| one.is_running)
        })
    }

    /// Until something outside holds.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            self.must_not_take(begin, what);
            sleep(LOOK_AGAIN);
        }
    }

    /// None while the daemon does not answer.
    pub(crate) fn status(&self) -> Option<Status> {
        let (code, body) = self.ask("GET", "/v1/status", b"")?;
        (code == 200).then(|| serde_json::from_slice(&body).expect("a status"))
    }

    /// Asks the daemon itself, without the command line between.
    pub(crate) fn ask(&self, verb: &str, path: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        http::ask(&self.socket(), verb, path, body, PATIENCE).ok()
    }

    /// What the runtime has of this cell, whatever the daemon thinks.
    pub(crate) fn found(&self) -> Vec<Found> {
        match &self.runtime {
            Runtime::Docker(_) => {
                let filter = format!("label=plimsoll.cell={}", self.name);
                let ids = self.engine(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
                let ids: Vec<&str> = ids.stdout.split_whitespace().collect();
                self.inspect(&ids).iter().filter_map(Found::of_container).collect()
            }
            Runtime::Process => Processes::below(&self.data()).found(),
        }
    }

    /// What the engine says of these containers; those that are gone are left out.
    pub(crate) fn inspect(&self, ids: &[&str]) -> Vec<Value> {
        if ids.is_empty() {
            return Vec::new();
        }
        let said = self.engine(&[&["inspect"], ids].concat());
        serde_json::from_str(&said.stdout).unwrap_or_default()
    }

    /// What is of this cell and runs, for a service named as in `shop/web`.
    pub(crate) fn running(&self, service: &str) -> Vec<Found> {
        let mut found = self.found();
        found.retain(|one| one.is_running && one.service() == service);
        found
    }

    /// The one container that runs of a service.
    #[track_caller]
    pub(crate) fn only(&self, service: &str) -> Found {
        let mut found = self.running(service);
        assert_eq!(found.len(), 1, "{found:#?}\n{}", self.diagnosis());
        found.remove(0)
    }

    /// Straight to the engine, behind the daemon's back.
    pub(crate) fn engine(&self, args: &[&str]) -> Said {
        let Runtime::Docker(socket) = &self.runtime else { panic!("there is no engine") };
        docker(socket, args)
    }

    /// A file that containers write to by way of a mount of `marks`.
    pub(crate) fn marks(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path("marks").join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn must_not_take(&self, begin: Instant, what: &str) {
        assert!(begin.elapsed() < PATIENCE, "it takes too long: {what}\n{}", self.diagnosis());
    }

    /// Everything there is to see when a test fails.
    pub(crate) fn diagnosis(&self) -> String {
        let mut text = String::new();
        let status = self.status().map(|status| serde_json::to_string_pretty(&status.deployments));
        let _ = writeln!(text, "--- status\n{}", status.and_then(Result::ok).unwrap_or_default());
        let _ = writeln!(text, "--- runtime\n{:#?}", self.found());
        if let Runtime::Docker(_) = self.runtime {
            let filter = format!("label=plimsoll.cell={}", self.name);
            let _ = writeln!(text, "{}", self.engine(&["ps", "-a", "--filter", &filter]).stdout);
        }
        let log = self.said();
        let tail = log.len().saturating_sub(LOG_TAIL);
        let tail = (tail..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(0);
        let _ = writeln!(text, "--- daemon\n{}", &log[tail..]);
        text
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.kill();
        match &self.runtime {
            Runtime::Docker(socket) => clear(socket, &self.name),
            Runtime::Process => Processes::below(&self.data()).kill(),
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Takes everything of a cell off the engine.
pub(crate) fn clear(socket: &Path, name: &str) {
    let filter = format!("label=plimsoll.cell={name}");
    let lists: [(&[&str], &[&str]); 3] = [
        (&["ps", "-aq"], &["rm", "-fv"]),
        (&["network", "ls", "-q"], &["network", "rm"]),
        (&["volume", "ls", "-q"], &["volume", "rm", "-f"]),
    ];
    for (list, remove) in lists {
        let listed = docker(socket, &[list, &["--filter", &filter]].concat()).stdout;
        let ids: Vec<&str> = listed.split_whitespace().collect();
        if !ids.is_empty() {
            docker(socket, &[remove, &ids].concat());
        }
    }
}

pub(crate) fn docker(socket: &Path, args: &[&str]) -> Said {
    let mut command = Command::new("docker");
    command.arg("-H").arg(format!("unix://{}", socket.display())).args(args);
    Said::of(
        &command.stdin(Stdio::null()).output().expect("docker is there, as lab/engine sees to"),
    )
}

pub(crate) fn find<'s>(status: &'s Status, deployment: &str) -> Option<&'s Deployment> {
    status.deployments.iter().find(|it| it.name == deployment)
}

/// The replicas of a service, in order.
pub(crate) fn replicas<'d>(deployment: &'d Deployment, service: &str) -> &'d [Replica] {
    let found = deployment.services.iter().find(|it| it.name == service);
    found.map_or(&[], |service| service.replicas.as_slice())
}

/// Every assignment of a deployment, the present and the coming.
pub(crate) fn assignments(deployment: &Deployment) -> impl Iterator<Item = &Assignment> {
    let replicas = deployment.services.iter().flat_map(|service| &service.replicas);
    replicas.flat_map(|replica| replica.now.iter().chain(&replica.next))
}

/// Whether some assignment has this word for a reason, and what it says.
pub(crate) fn reason(deployment: &Deployment, word: &str) -> Option<String> {
    let mut reasons = assignments(deployment).filter_map(|it| it.reason.as_ref());
    reasons.find(|reason| reason.word.word() == word).map(|reason| reason.text.clone())
}
