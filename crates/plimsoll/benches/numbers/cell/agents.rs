//! What ten thousand agents cost the daemon that leads them. The daemon is a real one, and so are its connections: each
//! agent has a certificate and a link of its own. What is simulated is behind them: nothing runs there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_daemon::context::now;
use plimsoll_daemon::link::frame::{Up, VERSION, encode};
use plimsoll_daemon::link::reach::Reach;
use plimsoll_daemon::link::{Connect, Pipe};
use plimsoll_daemon::measurements::NodeMeasurement;
use plimsoll_daemon::node::store_dir;
use plimsoll_daemon::route_certificates::HttpListeners;
use plimsoll_kernel::Policy;
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{
    Author, Bytes, Change, Guarded, MilliCpus, NodeFacts, Pressure, Term, Writer,
};
use plimsoll_peer::PeerClient;
use plimsoll_peer::pki::{Authority, AuthorityParts, Credentials};
use plimsoll_runtime::pressure::{PressureReading, Share, Stalls};
use plimsoll_store::embedded::{EmbeddedConfig, cell_of};
use plimsoll_store::{Embedded, Engine, Peer};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::interval;

use super::commits::identity;
use super::daemons::loopback;
use crate::Table;
use crate::node::{Daemon, megabytes, threads};

const AGENTS: usize = 10_000;

/// How many processes the agents are spread over.
const PROCESSES: usize = 4;

const LEADER: &str = "ash";

/// How often each says that it lives, as promised; a daemon does so more often.
const PROMISED_BEAT: Duration = Duration::from_secs(10);

/// How long the leader is looked at.
const SPAN: Duration = Duration::from_mins(1);

/// Before that, what the opening has left behind is given time to end.
const QUIET: Duration = Duration::from_secs(30);

/// How many of one process open their links at once.
const OPENING: usize = 16;

/// How many nodes are written down with one command.
const BATCH: usize = 1_000;

/// The word after which this program is some of the agents.
pub(in super::super) const WORD: &str = "be-agents";

pub(in super::super) fn agents(table: &mut Table) {
    for (beat, promises) in [
        (PROMISED_BEAT, ["≤ 500 MB", "≤ 1 core"]),
        (Duration::from_millis(Policy::default().heartbeat.0), ["", ""]),
    ] {
        measure(table, beat, promises);
    }
}

fn measure(table: &mut Table, beat: Duration, [memory, processor]: [&str; 2]) {
    let runtime = threads();
    let (dir, authority) = found(&runtime);
    let daemon = Daemon::up_in(dir, &words());
    let mut crowds: Vec<Crowd> =
        (0..PROCESSES).map(|nth| Crowd::start(&authority, nth, beat)).collect();
    crowds.iter_mut().for_each(Crowd::wait);
    std::thread::sleep(QUIET);
    let used = daemon.share(SPAN);
    let (now, most) = (daemon.memory_kib("VmRSS"), daemon.memory_kib("VmHWM"));
    let nodes = runtime.block_on(daemon.client().nodes()).expect("the leader answers");
    let ready = nodes.iter().filter(|node| node.status == "ready").count();
    assert_eq!(ready, AGENTS + 1, "all are heard");
    let name = format!("{AGENTS} agents that beat every {} s, their leader", beat.as_secs());
    let at_most = format!("{} at most", megabytes(most));
    table.row(&format!("{name}: memory"), memory, megabytes(now), at_most);
    let what = format!("{name}: processor, cores over {} s", SPAN.as_secs());
    table.row(&what, processor, format!("{used:.2}"), String::new());
}

fn words() -> Vec<String> {
    let address = loopback(0);
    ["--runtime", "process", "--name", LEADER, "--address", &address].map(str::to_owned).into()
}

/// Founds a cell, and writes all the agents into its log while its daemon is away: each joining by itself would take as
/// many tokens, and is not what is measured.
fn found(runtime: &Runtime) -> (TempDir, AuthorityParts) {
    let dir = Daemon::up(&words()).stop();
    let store = store_dir(&dir.path().join("node"));
    let cell_id = cell_of(&store).expect("it can be read").expect("it was founded");
    let parts = runtime.block_on(async {
        let engine = Embedded::start(EmbeddedConfig::alone(store, cell_id.clone())).await;
        let engine = engine.expect("nobody else has it open");
        let nodes: Vec<Guarded> = (0..AGENTS).map(joining).collect();
        for batch in nodes.chunks(BATCH) {
            let by = Author::new(Writer::Agent, LEADER);
            let term = engine.leadership().borrow().term;
            let command = plimsoll_model::Command::new(now(), term, by, batch.to_vec());
            let committed = engine.propose(command).await.expect("it leads alone");
            committed.outcome.expect("nodes can be written down");
        }
        let kept = engine.machine().read(|state| state.access().authority.clone());
        let kept = kept.expect("the cell has an authority");
        engine.shutdown().await.expect("it stops");
        AuthorityParts { cell_id, certificate: kept.certificate, key: kept.key }
    });
    (dir, parts)
}

fn name(nth: usize) -> String {
    format!("agent-{nth:05}")
}

/// What each offers. Without an address, since nobody calls it.
fn facts(nth: usize) -> NodeFacts {
    cpus(16).zone(["a", "b", "c"][nth % 3])
}

fn joining(nth: usize) -> Guarded {
    Change::PutNode { node: node_id(&name(nth)), facts: facts(nth) }.free()
}

/// A process with some of the agents.
struct Crowd(Child);

impl Crowd {
    fn start(authority: &AuthorityParts, nth: usize, beat: Duration) -> Self {
        let this = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(this);
        command.args([WORD, &loopback(0), &nth.to_string(), &beat.as_millis().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program starts");
        let told = (authority.cell_id.clone(), &authority.certificate, &authority.key);
        let told = serde_json::to_string(&told).expect("it can be written");
        let stdin = child.stdin.as_mut().expect("it is piped");
        writeln!(stdin, "{told}").expect("it listens");
        Self(child)
    }

    /// Until all its agents have their links.
    fn wait(&mut self) {
        let out = self.0.stdout.as_mut().expect("it is piped");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("it lives");
        assert_eq!(line.trim(), "ready");
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Some of the agents, until whoever started them has gone.
pub(in super::super) fn be_agents(words: &[String]) {
    let [address, nth, beat] = words else { panic!("three words: {words:?}") };
    let nth: usize = nth.parse().expect("a number");
    let beat = Duration::from_millis(beat.parse().expect("a number"));
    let mut told = String::new();
    std::io::stdin().read_line(&mut told).expect("whoever started this speaks");
    let (cell_id, certificate, key) = serde_json::from_str(&told).expect("an authority");
    let authority = Authority::from_parts(&AuthorityParts { cell_id, certificate, key });
    let authority = Arc::new(authority.expect("an authority"));
    let leader = Peer { name: LEADER.to_owned(), address: address.clone() };
    let runtime = threads();
    runtime.spawn(async move {
        let room = Arc::new(Semaphore::new(OPENING));
        let mut opening = JoinSet::new();
        for nth in (nth..AGENTS).step_by(PROCESSES) {
            let (authority, leader) = (Arc::clone(&authority), leader.clone());
            let room = Arc::clone(&room).acquire_owned().await.expect("it stays open");
            opening.spawn(async move {
                let pipe = open(&authority, &leader, nth).await;
                drop(room);
                tokio::spawn(live(pipe, beat));
            });
        }
        opening.join_all().await;
        println!("ready");
    });
    // Ends with whoever started this.
    let _ = std::io::stdin().read_line(&mut String::new());
}

async fn open(authority: &Authority, leader: &Peer, nth: usize) -> Pipe {
    let name = name(nth);
    let credentials = Credentials::new(&identity(authority, &name)).expect("it is good");
    let reach = Reach(PeerClient::new(credentials));
    let pipe = reach.open(leader).await.expect("the leader takes the link");
    let (node, seen, facts) = (node_id(&name), Term(0), Box::new(facts(nth)));
    let listeners = HttpListeners::default();
    let hello = Up::Hello { version: VERSION, node, seen, facts, listeners };
    pipe.to.send(encode(&hello)).await.expect("the leader listens");
    pipe
}

/// Beats, and reads what the leader says.
async fn live(pipe: Pipe, beat: Duration) {
    let Pipe { to, mut from } = pipe;
    let mut beats = interval(beat);
    loop {
        tokio::select! {
            _ = beats.tick() => to.send(encode(&word())).await.expect("the leader listens"),
            heard = from.recv() => assert!(heard.is_some(), "the leader keeps the link"),
        }
    }
}

/// It lives, and is so busy.
fn word() -> Up {
    let (processor, memory) = (Pressure::percent(40), Pressure::percent(60));
    let reading = PressureReading {
        cpu: Some(Share { used: MilliCpus(6_400), pressure: processor }),
        memory: Some(Share { used: Bytes(38 << 30), pressure: memory }),
        stalls: Stalls::default(),
    };
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let node = NodeMeasurement { reading: Some(reading), version, ..NodeMeasurement::default() };
    Up::Beat { node: Box::new(node), measured: None, replicas: Vec::new() }
}
