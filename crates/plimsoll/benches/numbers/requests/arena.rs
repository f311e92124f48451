//! Three hosts with an engine and a daemon each, and clients at every one of them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use plimsoll_lab::load::{Aim, LoadClient, LoadProgress, LoadReport, Manner, asked_while};
use plimsoll_lab::{Lab, LabEngine, NAMES};

use crate::cell::daemons::{Cell, Site};
use crate::node::engine::image;
use crate::node::{command, threads};

/// Where the service is published, and where nodes take requests for its route.
const PORT: u16 = 8080;
const HTTP: u16 = 8000;
const HOST: &str = "shop.example";

/// Who ask at each node, of each of the two kinds.
const CLIENTS: usize = 3;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(2);

pub(super) struct Arena {
    // Dropped in this order: the daemons go before the engines, and both before their networks.
    pub(super) cell: Cell,
    _engines: Vec<LabEngine>,
    version: AtomicU32,
}

/// What every daemon is told.
pub(super) fn told() -> Vec<String> {
    vec!["--http".to_owned(), format!("0.0.0.0:{HTTP}")]
}

impl Arena {
    /// None where there can be no such thing, after saying why.
    pub(super) fn open(
        what: &str,
        mut told: impl FnMut(usize, &LabEngine) -> Vec<String>,
    ) -> Option<Self> {
        let is_named = std::env::var_os("PLIMSOLL_TEST_DOCKER").is_some();
        let missing = plimsoll_lab::missing()
            .or((!is_named).then(|| "PLIMSOLL_TEST_DOCKER names no engine".to_owned()));
        if let Some(why) = missing {
            eprintln!("{what}: there can be no hosts with engines here ({why}), left out");
            return None;
        }
        let lab = Lab::new(3, 1).expect("hosts can be made");
        let engine = |at: usize| {
            let network = lab.host(at).namespaces().map(|namespaces| namespaces.join("net"));
            LabEngine::new(format!("bench{}-{}", std::process::id(), NAMES[at]), network)
        };
        let engines: Vec<LabEngine> = (0..3).map(engine).collect();
        for engine in &engines {
            engine.start().expect("an engine starts");
        }
        let told = engines.iter().enumerate().map(|(at, engine)| told(at, engine)).collect();
        let sockets: Vec<PathBuf> = engines.iter().map(LabEngine::socket).collect();
        let cell = threads().block_on(Cell::told(Site::Hosts(lab), sockets, told));
        Some(Self { cell, _engines: engines, version: AtomicU32::new(0) })
    }

    /// A web server that ends in the middle of whatever it does when it is told to: only the order in which things are
    /// done keeps a request from being lost. Each time it is another version.
    pub(super) fn apply(&self, replicas: usize) {
        let version = self.version.fetch_add(1, Ordering::Relaxed);
        let script =
            "echo $$VERSION > /tmp/index.html; trap 'exit 0' TERM; httpd -f -p 80 -h /tmp & wait";
        let script = serde_json::Value::from(script);
        let text = format!(
            "services:\n  web:\n    image: {}\n    command: [sh, -c, {script}]\n    \
             environment: {{VERSION: '{version}'}}\n    ports: ['{PORT}:80']\n    \
             healthcheck: {{test: [CMD, wget, -q, -O, /dev/null, 'http://127.0.0.1/'], interval: 5s, \
             start_period: 30s, start_interval: 200ms}}\n    deploy: {{replicas: {replicas}}}\n\
             x-plimsoll:\n  routes:\n    - {{host: {HOST}, service: web, port: 80}}\n",
            image(),
        );
        let path = self.cell.path(0).join("shop.yaml");
        std::fs::write(&path, text).expect("a file can be written");
        self.ask(0, &["apply", "-p", "shop", "-f", &path.to_string_lossy()]);
    }

    /// A command to a node, which must succeed.
    pub(super) fn ask(&self, at: usize, words: &[&str]) {
        let mut ask = command();
        ask.args(words).env("PLIMSOLL_HOST", self.cell.path(at).join("plimsoll.sock"));
        let output = ask.output().expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "plimsoll {words:?}: {said}");
    }

    /// What becomes of requests at these nodes while something is done.
    pub(super) fn asked(&self, nodes: &[usize], act: impl FnOnce(&LoadProgress)) -> LoadReport {
        let aims = [(PORT, Manner::OneShot), (HTTP, Manner::KeepAlive)].map(|(port, manner)| Aim {
            at: ([127, 0, 0, 1], port).into(),
            host: HOST.to_owned(),
            manner,
        });
        let mut clients = Vec::new();
        for at in nodes {
            for aim in aims.iter().cycle().take(2 * CLIENTS) {
                clients
                    .push(LoadClient { from: Some(self.cell.lab().host(*at)), aim: aim.clone() });
            }
        }
        let ((), outcome) = asked_while(&clients, 0, act).expect("hosts can be entered");
        outcome
    }

    /// Waits until every node answers at both of its ports.
    pub(super) fn until_answering(&self) {
        let begun = Instant::now();
        loop {
            let once = self.asked(&[0, 1, 2], |progress| {
                while progress.answered() + progress.failed() < 100 {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            if once.failed == 0 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{once}");
        }
    }
}
