//! A cell of daemons, each a process of its own: on loopback addresses, or on hosts that can be switched off.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_api::client::{Client, Endpoint};
use plimsoll_api::view::NewJoinToken;
use plimsoll_lab::{Lab, NAMES, Process};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::node::command;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(2);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

const PORT: u16 = 7117;

const SERVERS: usize = 3;

/// Where the daemons run.
pub(crate) enum Site {
    Loopback,
    Hosts(Lab),
}

pub(crate) struct Cell {
    site: Site,
    daemons: RefCell<Vec<Option<Process>>>,
    /// The sockets of the engines they run containers on; none: they run processes.
    engines: Vec<PathBuf>,
    /// What else each is told.
    told: Vec<Vec<String>>,
    dir: TempDir,
}

impl Cell {
    /// Three servers that vote and can serve.
    pub(crate) async fn of_three(site: Site) -> Self {
        Self::on_engines(site, Vec::new()).await
    }

    /// The same, with an engine each.
    pub(crate) async fn on_engines(site: Site, engines: Vec<PathBuf>) -> Self {
        Self::told(site, engines, vec![Vec::new(); SERVERS]).await
    }

    /// The same, each told something more.
    pub(crate) async fn told(site: Site, engines: Vec<PathBuf>, told: Vec<Vec<String>>) -> Self {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let daemons = RefCell::new(vec![None; SERVERS]);
        let cell = Self { site, daemons, engines, told, dir };
        cell.up(0, None).await;
        for at in 1..SERVERS {
            let asked = NewJoinToken::default();
            let token = cell.client(0).create_join_token(&asked).await.expect("a token is made");
            cell.up(at, Some(&token.join)).await;
        }
        cell.until_whole().await;
        cell
    }

    pub(crate) fn path(&self, at: usize) -> PathBuf {
        self.dir.path().join(NAMES[at])
    }

    pub(crate) fn client(&self, at: usize) -> Client {
        Client::new(Endpoint::Unix(self.path(at).join("plimsoll.sock")))
    }

    fn command(&self, at: usize, join: Option<&str>) -> Command {
        let address = match &self.site {
            Site::Loopback => loopback(at),
            Site::Hosts(lab) => format!("{}:{PORT}", lab.host(at).address()),
        };
        let mut up = command();
        up.args(["up", "--log-level", "error"]);
        match self.engines.get(at) {
            Some(socket) => up.arg("--docker-socket").arg(socket),
            None => up.args(["--runtime", "process"]),
        };
        up.args(["--name", NAMES[at], "--address", &address, "--data-dir"]).arg(self.path(at));
        up.args(&self.told[at]).args(join.map(|join| ["--join", join]).into_iter().flatten());
        up.stdout(Stdio::null()).stderr(Stdio::null());
        up
    }

    /// Starts a daemon, and waits until it can serve.
    pub(crate) async fn up(&self, at: usize, join: Option<&str>) {
        let command = self.command(at, join);
        let daemon = match &self.site {
            Site::Loopback => Process::new({ command }.spawn().expect("a daemon starts")),
            Site::Hosts(lab) => {
                lab.host(at).switch_on().expect("the host starts");
                lab.host(at).spawn(command).expect("a daemon starts")
            }
        };
        self.daemons.borrow_mut()[at] = Some(daemon);
        let client = self.client(at);
        until("a daemon can serve", async || {
            client.ready(false).await.is_ok_and(|ready| ready.is_ready)
        })
        .await;
    }

    /// Waits until all three vote, can serve and hear the same leader, and returns that.
    pub(crate) async fn until_whole(&self) -> usize {
        let mut leader = None;
        until("all three vote and agree", async || {
            leader = self.agreed().await;
            leader.is_some()
        })
        .await;
        leader.expect("it was there a moment ago")
    }

    async fn agreed(&self) -> Option<usize> {
        let cell = self.client(0).cell().await.ok()?;
        let votes = cell.servers.iter().filter(|server| server.votes).count();
        let leader = cell.leader.filter(|_| votes == SERVERS)?;
        for at in 0..SERVERS {
            let ready = self.client(at).ready(false).await.ok()?;
            let agrees = ready.health.leader.as_ref() == Some(&leader);
            let is_whole = ready.is_ready && ready.health.lag == 0;
            if !agrees || !is_whole || ready.health.term != cell.term {
                return None;
            }
        }
        NAMES.iter().position(|name| *name == leader)
    }

    /// Ends a daemon as a crash does, and returns when that was.
    pub(crate) fn kill(&self, at: usize) -> Instant {
        let begun = Instant::now();
        self.take(at).kill();
        begun
    }

    /// Asks a daemon to end, and returns it and when that was.
    pub(crate) fn stop(&self, at: usize) -> (Process, Instant) {
        let daemon = self.take(at);
        let begun = Instant::now();
        daemon.terminate().expect("the daemon lives");
        (daemon, begun)
    }

    /// Ends all there is on the daemon's host, as a power cut does, and returns when that was.
    pub(crate) fn switch_off(&self, at: usize) -> Instant {
        let begun = Instant::now();
        self.lab().host(at).switch_off();
        self.daemons.borrow_mut()[at] = None;
        begun
    }

    pub(crate) fn lab(&self) -> &Lab {
        let Site::Hosts(lab) = &self.site else { panic!("loopback has no hosts") };
        lab
    }

    fn take(&self, at: usize) -> Process {
        self.daemons.borrow_mut()[at].take().expect("its daemon runs")
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.daemons.borrow().iter().flatten().for_each(Process::kill);
        if let Site::Hosts(lab) = &self.site {
            lab.hosts().iter().for_each(plimsoll_lab::Host::switch_off);
        }
    }
}

/// Asks until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        sleep(LOOK_AGAIN).await;
    }
}

/// An address that no other run has.
pub(crate) fn loopback(at: usize) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{}.{}:{PORT}", 120 + at, high, low.max(1))
}
