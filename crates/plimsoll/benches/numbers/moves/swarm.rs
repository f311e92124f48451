//! Docker Swarm on the three engines, all of them managers, by its own command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{CHECK, Contender, INTERVAL, LOOK_AGAIN, REPLICAS, script};
use crate::node::engine::image;

const SERVICE: &str = "web";

#[derive(Debug, Clone)]
pub(super) struct Swarm {
    sockets: Vec<PathBuf>,
    /// What it calls the engines.
    nodes: Vec<String>,
    order: &'static str,
}

impl Swarm {
    pub(super) fn form(sockets: Vec<PathBuf>, addresses: &[String]) -> Self {
        let swarm = |at: usize, words: &[&str], rest: &[&str]| {
            let address = ["--advertise-addr", &addresses[at], "--listen-addr", &addresses[at]];
            docker(&sockets[at], &[&["swarm"], words, &address, rest].concat());
        };
        swarm(0, &["init"], &[]);
        let token = docker(&sockets[0], &["swarm", "join-token", "-q", "manager"]);
        for at in 1..sockets.len() {
            swarm(at, &["join", "--token", &token], &[&addresses[0]]);
        }
        let id = |socket: &PathBuf| docker(socket, &["info", "-f", "{{.Swarm.NodeID}}"]);
        let nodes = sockets.iter().map(id).collect();
        Self { sockets, nodes, order: "start-first" }
    }

    /// The same with its own default.
    pub(super) fn stopping_first(&self) -> Self {
        Self { order: "stop-first", ..self.clone() }
    }

    fn ask(&self, words: &[&str]) -> String {
        docker(&self.sockets[0], words)
    }
}

impl Contender for Swarm {
    const LABEL: &'static str = "com.docker.swarm.service.name=web";

    fn create(&self) {
        let (replicas, interval) = (REPLICAS.to_string(), format!("{}ms", INTERVAL.as_millis()));
        let (check, image, script) = (CHECK.join(" "), image(), script());
        let words = [
            ["service", "create", "-d", "--no-resolve-image", "--name", SERVICE],
            ["--replicas", &replicas, "--health-cmd", &check, "--health-interval", &interval],
        ];
        let rest = ["--update-order", self.order, &image, "sh", "-c", &script];
        self.ask(&[&words.concat()[..], &rest].concat());
        let all = format!("{REPLICAS}/{REPLICAS}");
        while self.ask(&["service", "ls", "--format", "{{.Replicas}}"]) != all {
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn update(&self) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let version = format!("VERSION={}", COUNT.fetch_add(1, Ordering::Relaxed));
        let update = ["service", "update", "-d", "--no-resolve-image", "--env-add"];
        self.ask(&[&update[..], &[&version, SERVICE]].concat());
    }

    fn drain(&self, at: usize) {
        self.ask(&["node", "update", "--availability", "drain", &self.nodes[at]]);
    }

    fn activate(&self, at: usize) {
        self.ask(&["node", "update", "--availability", "active", &self.nodes[at]]);
    }

    fn remove(&self) {
        self.ask(&["service", "rm", SERVICE]);
        for socket in &self.sockets {
            let filter = format!("label={}", Self::LABEL);
            while !docker(socket, &["ps", "-aq", "--filter", &filter]).is_empty() {
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }

    /// The first leads: it was there alone.
    fn follower(&self) -> usize {
        1
    }
}

/// What the command says, which must succeed.
fn docker(socket: &Path, words: &[&str]) -> String {
    let mut command = Command::new("docker");
    command.arg("-H").arg(format!("unix://{}", socket.display())).args(words);
    let output = command.stdin(Stdio::null()).output().expect("docker is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docker {words:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
