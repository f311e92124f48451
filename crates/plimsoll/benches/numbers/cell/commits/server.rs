//! Three engines, each in a process of its own, with the peer port between them as daemons have it.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_daemon::context::now;
use plimsoll_lab::NAMES;
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{Author, CellId, Change, Term, Timestamp, Writer};
use plimsoll_peer::pki::{Authority, Credentials, Identity, NODE_LIFETIME};
use plimsoll_peer::{Limits, PeerClient, PeerServer, RaftNetwork, raft_router};
use plimsoll_store::embedded::{EmbeddedConfig, Sender};
use plimsoll_store::{Embedded, Engine, Founding, Peer, ServerId};
use tokio::sync::watch;

use super::{Round, press, value};
use crate::node::threads;

const COUNT: usize = 3;

const PORT: u16 = 7119;

/// The word after which this program is one of the servers.
pub(in super::super::super) const WORD: &str = "be-server";

/// The servers; the first leads.
pub(super) struct Servers {
    leader: (ChildStdin, BufReader<ChildStdout>),
    processes: Vec<Child>,
}

impl Servers {
    pub(super) fn start(dir: &Path) -> Self {
        let authority = Authority::found(&cell_id(), now()).expect("an authority can be made");
        for name in &NAMES[..COUNT] {
            let home = dir.join(name);
            std::fs::create_dir(&home).expect("a directory can be made");
            identity(&authority, name).store(&home).expect("an identity can be kept");
        }
        let net = format!("127.123.{}", std::process::id() % 250 + 1);
        // The first takes the others in, so they are there before it.
        let mut processes: Vec<Child> = (0..COUNT).rev().map(|at| spawn(dir, &net, at)).collect();
        let first = processes.last_mut().expect("there are some");
        let (to, from) = (first.stdin.take(), first.stdout.take());
        let leader = to.zip(from).expect("both are piped");
        let mut servers = Self { leader: (leader.0, BufReader::new(leader.1)), processes };
        assert_eq!(servers.hear(), "ready");
        servers
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.leader.1.read_line(&mut line).expect("the leader lives");
        line.trim().to_owned()
    }

    pub(super) fn round(&mut self) -> Round {
        writeln!(self.leader.0, "go").expect("the leader lives");
        let line = self.hear();
        let words: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [rate, median, p99] = words[..] else { panic!("three numbers: {line}") };
        let [median, p99] = [median, p99].map(Duration::from_secs_f64);
        Round { rate, median, p99 }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn spawn(dir: &Path, net: &str, at: usize) -> Child {
    let this = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(this);
    command.arg(WORD).arg(dir).args([net, &at.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("this program starts")
}

fn cell_id() -> CellId {
    CellId::new("bench").expect("a valid name")
}

pub(in super::super) fn identity(authority: &Authority, name: &str) -> Identity {
    let (key, csr) = Identity::new_key().expect("a key can be made");
    let certificate = authority.issue(&csr, &node_id(name), now(), NODE_LIFETIME);
    let certificate = certificate.expect("a certificate can be made");
    Identity::new(key, certificate, authority.certificate().clone()).expect("they fit")
}

fn peer(net: &str, at: usize) -> Peer {
    Peer { name: NAMES[at].to_owned(), address: format!("{net}.{}:{PORT}", at + 1) }
}

/// One server, until whoever started it has gone. The first is told when to write, and says how it went.
pub(in super::super::super) fn be_server(words: &[String]) {
    let [dir, net, at] = words else { panic!("three words: {words:?}") };
    let at: usize = at.parse().expect("a number");
    let runtime = threads();
    let engine = runtime.block_on(serve(&PathBuf::from(dir).join(NAMES[at]), net, at));
    if at == 0 {
        runtime.block_on(take_in(&engine, net));
        println!("ready");
    }
    for line in std::io::stdin().lines() {
        line.expect("whoever started this is still there");
        let Round { rate, median, p99 } = runtime.block_on(round(&engine));
        println!("{rate} {} {}", median.as_secs_f64(), p99.as_secs_f64());
    }
}

async fn serve(home: &Path, net: &str, at: usize) -> Arc<Embedded> {
    let identity = Identity::load(home).expect("it can be read").expect("it is there");
    let credentials = Credentials::new(&identity).expect("it is good");
    let peer = peer(net, at);
    let address: SocketAddr = peer.address.parse().expect("an address");
    let config = EmbeddedConfig {
        server: ServerId(at as u64 + 1),
        founding: if at == 0 { Founding::Alone } else { Founding::Join },
        peer,
        network: Arc::new(RaftNetwork::new(PeerClient::new(credentials.clone()))),
        ..EmbeddedConfig::alone(home.join("store"), cell_id())
    };
    let engine = Embedded::start(config).await.expect("a fresh directory");
    let port =
        PeerServer::bind(address, &credentials, Limits::default()).expect("the port is free");
    let answering = Arc::clone(&engine);
    let router = raft_router(move |sender, message| {
        let engine = Arc::clone(&answering);
        // The state of these servers knows no nodes: who they are is agreed on beforehand.
        let is_sender =
            |name: &&str| matches!(&sender, Sender::Node { node, .. } if node.as_str() == *name);
        let at = NAMES.iter().position(is_sender);
        let from = at.map_or(sender.clone(), |at| Sender::Server(ServerId(at as u64 + 1)));
        async move { engine.answer(&from, &message).await }
    });
    tokio::spawn(async move {
        let (_ending, end) = watch::channel(false);
        port.serve(router, end).await;
    });
    engine
}

/// Makes the others servers whose votes count.
async fn take_in(engine: &Embedded, net: &str) {
    let server = |at: usize| ServerId(at as u64 + 1);
    for at in 1..COUNT {
        engine.add_server(server(at), peer(net, at), true).await.expect("it catches up");
    }
    engine.set_voters((0..COUNT).map(server).collect()).await.expect("they vote");
}

async fn round(engine: &Arc<Embedded>) -> Round {
    let engine = Arc::clone(engine);
    press(move |writer, number| {
        let engine = Arc::clone(&engine);
        async move {
            // The same node over and over, saying something new of itself: the state stays small.
            let mut facts = cpus(4);
            facts.labels.insert("value".to_owned(), value(number));
            let change = Change::PutNode { node: node_id(&format!("n{writer}")), facts };
            let by = Author::new(Writer::Agent, "bench");
            let command =
                plimsoll_model::Command::new(Timestamp(number), Term(1), by, vec![change.free()]);
            engine.propose(command).await.expect("it leads");
        }
    })
    .await
}
