//! Published ports on three hosts with an engine each: every node answers on them, wherever the replicas run, and no
//! request is lost while replicas move. Containers end at once when they are told to, so that only the order in which
//! things are done keeps a request from being lost.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll_lab::{Host, NAMES};

use super::site;
use crate::harness::{Cell, Site};
use crate::lab::compose::{compose, sh};
use crate::lab::harness::{lab, unique};
use crate::run::root;

const NODES: usize = 3;
const PORT: u16 = 8080;

/// Enough to meet every moment of what is done meanwhile.
const REQUESTS: usize = 2_000;

/// Longer than an answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// An engine on each host, gone when the test is.
struct Engines(String);

impl Engines {
    fn start(hosts: &[Host]) -> Self {
        let engines = Self(unique());
        thread::scope(|scope| {
            for (at, host) in hosts.iter().enumerate() {
                let network = host.namespaces().expect("it is switched on").join("net");
                let engines = &engines;
                scope.spawn(move || engines.lab("start", at, Some(&network)));
            }
        });
        engines
    }

    fn name(&self, at: usize) -> String {
        format!("{}-{}", self.0, NAMES[at])
    }

    fn lab(&self, verb: &str, at: usize, network: Option<&Path>) {
        let mut command = Command::new(root().join("lab/engine"));
        command.args([verb, &self.name(at)]).args(network).stdin(Stdio::null());
        let output = command.output().expect("the lab is there");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "lab/engine {verb}: {complaint}");
    }

    fn socket(&self, at: usize) -> PathBuf {
        let lab = std::env::var("PLIMSOLL_LAB").unwrap_or("/var/tmp/plimsoll-lab".into());
        PathBuf::from(lab).join(self.name(at)).join("docker.sock")
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        let engines: &Self = self;
        thread::scope(|scope| {
            for at in 0..NODES {
                scope.spawn(move || engines.lab("stop", at, None));
            }
        });
    }
}

/// Three nodes that vote, each with an engine; none where that cannot be.
fn three_with_engines() -> Option<(Cell, Engines)> {
    lab("DOCKER")?;
    let site = site(NODES)?;
    let Site::Hosts(hosts) = &site else { unreachable!("hosts were asked for") };
    let engines = Engines::start(hosts.hosts());
    let mut cell = Cell::idle(site);
    for at in 0..NODES {
        cell.habits[at].engine = Some(engines.socket(at));
    }
    cell.form(NODES);
    Some((cell, engines))
}

/// A web server that says its version, so many times. It ends in the middle of whatever it does.
fn shop(version: u32, replicas: usize) -> String {
    let script =
        "echo $$VERSION > /tmp/index.html; trap 'exit 0' TERM; httpd -f -p 80 -h /tmp & wait";
    let lines = [
        sh(script),
        format!("environment: {{VERSION: '{version}'}}"),
        format!("ports: ['{PORT}:80']"),
        "networks: [default]".to_owned(),
        "healthcheck: {test: [CMD, wget, -q, -O, /dev/null, 'http://127.0.0.1/'], interval: 5s, start_period: 30s, start_interval: 100ms}".to_owned(),
        format!("deploy: {{replicas: {replicas}}}"),
    ];
    compose(&[("web", &lines.each_ref().map(String::as_str))])
}

#[track_caller]
fn apply(cell: &Cell, at: usize, file: &str) {
    std::fs::write(cell.dir.path().join("compose.yaml"), file).unwrap();
    let applied = cell.run(at, "apply -f compose.yaml -p shop");
    assert_eq!(applied.code(), 0, "{}\n{}", applied.text(), cell.diagnosis());
}

/// Asks a node's published port, from that node.
fn get() -> Result<String, String> {
    let get = || {
        let mut stream = TcpStream::connect(("127.0.0.1", PORT))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let text = get().map_err(|error| error.to_string())?;
    let is_whole = text.starts_with("HTTP/1.0 200") || text.starts_with("HTTP/1.1 200");
    if is_whole { Ok(text.lines().last().unwrap_or_default().to_owned()) } else { Err(text) }
}

/// Steady requests at every node while something is done, and until there were enough of them. Returns how many there
/// were, and those that failed: at which node, as which, and why.
fn asked_while(cell: &Cell, act: impl FnOnce()) -> (usize, Vec<(usize, usize, String)>) {
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let steady = |at: usize| {
        let mut failed = Vec::new();
        while !is_over.load(Ordering::Relaxed) || asked.load(Ordering::Relaxed) < REQUESTS {
            let count = asked.fetch_add(1, Ordering::Relaxed);
            failed.extend(get().err().map(|why| (at, count, why)));
        }
        failed
    };
    let failed = thread::scope(|scope| {
        let asking: Vec<_> = (0..NODES)
            .map(|at| scope.spawn(move || cell.lab().host(at).within(|| steady(at)).unwrap()))
            .collect();
        act();
        is_over.store(true, Ordering::Relaxed);
        asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    });
    (asked.into_inner(), failed)
}

fn until_all_answer(cell: &Cell, version: &str) {
    for host in cell.lab().hosts() {
        let told = || host.within(get).unwrap();
        cell.until("every node answers", |_| told().as_deref() == Ok(version));
    }
}

#[test]
fn a_published_port_answers_on_every_node_through_a_drain_and_a_rollout() {
    let Some((cell, _engines)) = three_with_engines() else { return };
    apply(&cell, 0, &shop(1, 2));
    until_all_answer(&cell, "1");
    let places = cell.running_on(0);
    assert_eq!(places.len(), 2, "so one node has none, and answers all the same: {places:?}");

    let (leader, drained) = (cell.until_led(&[0, 1, 2]), &places[0]);
    let (asked, failed) = asked_while(&cell, || {
        let ran = cell.run(leader, &format!("node drain {drained}"));
        assert_eq!(ran.code(), 0, "{}", ran.text());
        let ran = cell.run(leader, &format!("node uncordon {drained}"));
        assert_eq!(ran.code(), 0, "{}", ran.text());
        apply(&cell, leader, &shop(2, 2));
    });
    assert!(failed.is_empty(), "{} of {asked}: {failed:?}\n{}", failed.len(), cell.diagnosis());
    until_all_answer(&cell, "2");
    println!("{asked} requests, none failed");
}
