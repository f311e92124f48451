//! Published ports and routes on three hosts with an engine each: every node answers, wherever the replicas run, and no
//! request is lost while replicas move. Containers end at once when they are told to, so that only the order in which
//! things are done keeps a request from being lost.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll_lab::LabEngine;

use super::site;
use crate::harness::{Cell, NodeSetup, Site};
use crate::lab::compose::{compose, sh};
use crate::lab::harness::{lab, unique};

const NODES: usize = 3;
pub(super) const PORT: u16 = 8080;

/// Where nodes take requests for routes, and for which host there is one.
pub(super) const HTTP: u16 = 8000;
pub(super) const HOST: &str = "shop.example";

/// Enough to meet every moment of what is done meanwhile.
const REQUESTS: usize = 2_000;

/// Who ask at each node, one request after another.
const CLIENTS: usize = 4;

/// Longer than an answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// An engine on each host. They go all at once, and after the cell that uses them.
pub(crate) struct Engines(pub(crate) Vec<LabEngine>);

impl Engines {
    /// Each is told this besides.
    pub(crate) fn start(hosts: &plimsoll_lab::Lab, args: &[&str]) -> Self {
        let engine = |host: &plimsoll_lab::Host| {
            LabEngine::new(unique(), Some(host.network())).with_args(args.iter().copied())
        };
        let engines = Self(hosts.hosts().iter().map(engine).collect());
        engines.each(|engine| engine.start().unwrap());
        engines
    }

    /// Does this with all of them at once.
    pub(crate) fn each(&self, act: impl Fn(&LabEngine) + Sync) {
        thread::scope(|scope| {
            for engine in &self.0 {
                let act = &act;
                scope.spawn(move || act(engine));
            }
        });
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        thread::scope(|scope| {
            for engine in self.0.drain(..) {
                scope.spawn(move || drop(engine));
            }
        });
    }
}

/// Three nodes that vote, each with an engine and told this; none where that cannot be.
pub(super) fn three_with_engines(
    told: impl Fn(usize, &LabEngine) -> Vec<String>,
) -> Option<(Engines, Cell)> {
    three_with_setups(|at, engine| NodeSetup { args: told(at, engine), ..NodeSetup::default() })
}

/// The same, each started in a way of its own.
pub(super) fn three_with_setups(
    habit: impl Fn(usize, &LabEngine) -> NodeSetup,
) -> Option<(Engines, Cell)> {
    lab("DOCKER")?;
    Some(three_at(site(NODES)?, habit))
}

/// The same on these hosts.
pub(super) fn three_at(
    site: Site,
    habit: impl Fn(usize, &LabEngine) -> NodeSetup,
) -> (Engines, Cell) {
    let Site::Hosts(hosts) = &site else { unreachable!("hosts were asked for") };
    let engines = Engines::start(hosts, &[]);
    let cell = cell_on(site, &engines, habit);
    (engines, cell)
}

/// Nodes that vote on hosts that have these engines.
pub(crate) fn cell_on(
    site: Site,
    engines: &Engines,
    habit: impl Fn(usize, &LabEngine) -> NodeSetup,
) -> Cell {
    let mut cell = Cell::idle(site);
    for (at, engine) in engines.0.iter().enumerate() {
        cell.setups[at] = NodeSetup { engine: Some(engine.socket()), ..habit(at, engine) };
    }
    cell.form(engines.0.len());
    cell
}

/// A web server that says its version, so many times. It ends in the middle of whatever it does.
pub(super) fn shop(version: u32, replicas: usize) -> String {
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
    let services = compose(&[("web", &lines.each_ref().map(String::as_str))]);
    format!("{services}x-plimsoll:\n  routes:\n    - {{host: {HOST}, service: web, port: 80}}\n")
}

#[track_caller]
pub(super) fn apply(cell: &Cell, at: usize, file: &str) {
    std::fs::write(cell.dir.path().join("compose.yaml"), file).unwrap();
    must_do(cell, at, "apply -f compose.yaml -p shop");
}

/// Asks a node from that node, on the published port or for the route.
pub(crate) fn get(port: u16) -> Result<String, String> {
    let get = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let text = get().map_err(|error| error.to_string())?;
    let is_whole = text.starts_with("HTTP/1.0 200") || text.starts_with("HTTP/1.1 200");
    if is_whole { Ok(text.lines().last().unwrap_or_default().to_owned()) } else { Err(text) }
}

/// What came of the requests that were made meanwhile.
#[derive(Debug, Default)]
pub(super) struct Tally {
    answered: AtomicUsize,
    /// How many of them by the time that it was done.
    meanwhile: AtomicUsize,
    /// At which node, after how many answers, and why.
    pub(super) failed: std::sync::Mutex<Vec<(usize, usize, String)>>,
}

impl Tally {
    fn note(&self, at: usize, answer: Result<String, String>) {
        match answer {
            Ok(_) => drop(self.answered.fetch_add(1, Ordering::Relaxed)),
            Err(why) => self.failed.lock().unwrap().push((at, self.answered(), why)),
        }
    }

    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }
}

/// Steady requests at every node while something is done, and until enough were answered or one was not.
pub(super) fn asked_while(cell: &Cell, ports: &[u16], enough: usize, act: impl FnOnce()) -> Tally {
    asked_at(cell, &[0, 1, 2], ports, enough, act)
}

/// The same at some of them.
pub(super) fn asked_at(
    cell: &Cell,
    nodes: &[usize],
    ports: &[u16],
    enough: usize,
    act: impl FnOnce(),
) -> Tally {
    let (is_over, tally) = (AtomicBool::new(false), Tally::default());
    let has_enough = || tally.answered() >= enough || !tally.failed.lock().unwrap().is_empty();
    let steady = |at: usize| {
        for port in ports.iter().copied().cycle() {
            if is_over.load(Ordering::Relaxed) && has_enough() {
                return;
            }
            tally.note(at, get(port));
        }
    };
    thread::scope(|scope| {
        for at in nodes.iter().copied().cycle().take(nodes.len() * CLIENTS) {
            let steady = &steady;
            scope.spawn(move || cell.lab().host(at).within(|| steady(at)).unwrap());
        }
        // Whoever asks must end also where this fails.
        let _over = Ended(&is_over);
        act();
        tally.meanwhile.store(tally.answered(), Ordering::Relaxed);
    });
    tally
}

/// Says that it is over when it is dropped.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) fn until_all_answer(cell: &Cell, version: &str) {
    for host in cell.lab().hosts() {
        for port in [PORT, HTTP] {
            let told = || host.within(|| get(port)).unwrap();
            cell.until("every node answers", |_| told().as_deref() == Ok(version));
        }
    }
}

#[track_caller]
pub(crate) fn must_do(cell: &Cell, at: usize, command: &str) {
    let ran = cell.run(at, command);
    assert_eq!(ran.code(), 0, "{command}: {}\n{}", ran.text(), cell.diagnosis());
}

#[test]
fn a_published_port_and_a_route_answer_on_every_node_through_a_drain_and_a_rollout() {
    let told = |_, _: &LabEngine| vec!["--http".to_owned(), format!("0.0.0.0:{HTTP}")];
    let Some((_engines, cell)) = three_with_engines(told) else { return };
    apply(&cell, 0, &shop(1, 2));
    until_all_answer(&cell, "1");
    let places = cell.running_on(0);
    assert_eq!(places.len(), 2, "so one node has none, and answers all the same: {places:?}");

    let (leader, drained) = (cell.until_led(&[0, 1, 2]), &places[0]);
    let tally = asked_while(&cell, &[PORT, HTTP], REQUESTS, || {
        must_do(&cell, leader, &format!("node drain {drained}"));
        must_do(&cell, leader, &format!("node uncordon {drained}"));
        apply(&cell, leader, &shop(2, 2));
    });
    let failed = tally.failed.lock().unwrap();
    assert!(
        failed.is_empty(),
        "{} of {}: {failed:?}\n{}",
        failed.len(),
        tally.answered(),
        cell.diagnosis()
    );
    until_all_answer(&cell, "2");
    let meanwhile = tally.meanwhile.load(Ordering::Relaxed);
    println!("{} requests, {meanwhile} of them meanwhile, none failed", tally.answered());
}
