//! How fast and how small it is. Run with
//! `cargo test --release -p plimsoll-daemon peer::bench -- --ignored --nocapture --test-threads=1`.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::post;
use bytes::Bytes;
use hyper::{HeaderMap, Method};
use plimsoll_store::embedded::network::Network as _;
use plimsoll_store::{Peer, ServerId};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::{Client, Limits, RaftNetwork, Server, Target, raft_router};
use crate::pki::testkit::{cell, node, now};
use crate::pki::{Credentials, Identity, NODE_LIFETIME};

const ROUNDS_FOR: Duration = Duration::from_secs(3);
const MESSAGE: usize = 256;

/// Kernels tell time spent in hundredths of a second, sizes in pages.
const TICK: Duration = Duration::from_millis(10);
const PAGE_KB: usize = 4;

/// How many idle connections are weighed: so many that what a process has anyway does not count.
const CONNECTIONS: usize = 2_000;

/// What the process with the clients is told: where the server is, where its identity, and whether to open streams.
const CLIENTS: &str = "PLIMSOLL_BENCH_CLIENTS";

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn percentile(sorted: &[Duration], share: usize) -> Duration {
    sorted[(sorted.len() * share / 1_000).min(sorted.len() - 1)]
}

/// Two runtimes of one thread each stand for two nodes.
#[test]
#[ignore = "a measurement"]
fn round_trips() {
    let authority = cell("blue");
    let (ash, birch) = (runtime(), runtime());
    let server = {
        let _entered = ash.enter();
        Server::bind("127.0.0.1:0".parse().unwrap(), &authority.node("ash"), Limits::default())
    };
    let server = server.unwrap();
    let peer = Peer { name: "ash".to_owned(), address: server.local_addr().unwrap().to_string() };
    let (_end, ending) = watch::channel(false);
    ash.spawn(server.serve(raft_router(|_, message| async move { message.into() }), ending));
    let network = Arc::new(RaftNetwork::new(Client::new(authority.node("birch"))));
    for size in [MESSAGE, 64 << 10, 1 << 20] {
        for concurrent in [1, 16, 64] {
            if size > MESSAGE && concurrent > 16 {
                continue;
            }
            let calls: Vec<_> = (0..concurrent)
                .map(|_| birch.spawn(rounds(Arc::clone(&network), peer.clone(), size)))
                .collect();
            let (started, spent) = (Instant::now(), cpu_time());
            let mut times: Vec<Duration> =
                calls.into_iter().flat_map(|call| birch.block_on(call).unwrap()).collect();
            let (elapsed, spent) = (started.elapsed(), cpu_time().saturating_sub(spent));
            times.sort_unstable();
            let rate = times.len() as u128 * 1_000 / elapsed.as_millis();
            println!(
                "{size:>8} B, {concurrent:>2} at once: {rate:>8}/s, {:?} of both nodes' CPU each, median {:?}, p99 {:?}",
                spent / u32::try_from(times.len()).unwrap(),
                percentile(&times, 500),
                percentile(&times, 990),
            );
        }
    }
}

async fn rounds(network: Arc<RaftNetwork>, peer: Peer, size: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    let started = Instant::now();
    while started.elapsed() < ROUNDS_FOR {
        let began = Instant::now();
        let message = vec![7; size];
        network.send(ServerId(1), &peer, message, Duration::from_secs(5)).await.unwrap();
        times.push(began.elapsed());
    }
    times
}

/// Weighs connections from clients in a process of their own. One test each: what one freed, the next would not
/// have to ask for.
#[test]
#[ignore = "a measurement"]
fn idle_connections() {
    weigh(false);
}

#[test]
#[ignore = "a measurement"]
fn idle_streams() {
    weigh(true);
}

fn weigh(with_streams: bool) {
    let authority = cell("blue");
    let dir = tempfile::tempdir().unwrap();
    authority.identity("birch", now(), NODE_LIFETIME).store(dir.path()).unwrap();
    let ash = runtime();
    let server = {
        let _entered = ash.enter();
        let address = "127.0.0.1:0".parse().unwrap();
        Server::bind(address, &authority.node("ash"), Limits::default()).unwrap()
    };
    let address = server.local_addr().unwrap();
    let (_end, ending) = watch::channel(false);
    let echo = |request: Request| async move { Body::new(request.into_body()) };
    ash.spawn(server.serve(Router::new().route("/echo", post(echo)), ending));
    let (before, spent, began) = (resident_kb(), cpu_time(), Instant::now());
    let told = format!("{address} {} {with_streams}", dir.path().display());
    let mut clients = Clients::start(&told);
    clients.wait();
    let opened = began.elapsed();
    let spent = cpu_time().saturating_sub(spent);
    let idle_from = cpu_time();
    std::thread::sleep(Duration::from_secs(10));
    let each = resident_kb().saturating_sub(before) * 1_000 / CONNECTIONS;
    println!(
        "{CONNECTIONS} connections, streams {with_streams}: {each} B each; opened in {opened:?} with {spent:?} \
         of the server's CPU, then {:?} in 10 s",
        cpu_time().saturating_sub(idle_from)
    );
}

/// The other process of [`idle_connections`].
#[test]
#[ignore = "part of another measurement"]
fn idle_clients() {
    let Ok(told) = std::env::var(CLIENTS) else { return };
    let words: Vec<&str> = told.split(' ').collect();
    let [address, dir, with_streams] = words[..] else { panic!("three words: {told}") };
    let identity = Identity::load(&PathBuf::from(dir)).unwrap().unwrap();
    let target = Target { node: node("ash"), address: address.to_owned() };
    runtime().block_on(async {
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = Client::new(Credentials::new(&identity).unwrap());
            if with_streams == "true" {
                let within = Duration::from_secs(5);
                let headers = HeaderMap::new();
                let mut stream =
                    client.stream(&target, Method::POST, "/echo", headers, within).await.unwrap();
                assert!(stream.sender.send(Bytes::from_static(b"here")).await);
                assert_eq!(stream.receiver.next().await.unwrap().unwrap(), "here");
                held.push((client, Some(stream)));
            } else {
                client.link(&target).ready().await.unwrap();
                held.push((client, None));
            }
        }
        println!("\nready");
        tokio::time::sleep(Duration::from_mins(1)).await;
    });
}

struct Clients(Child);

impl Clients {
    fn start(told: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--nocapture", "idle_clients"])
            .env(CLIENTS, told)
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    fn wait(&mut self) {
        let mut seen = Vec::new();
        let out = self.0.stdout.as_mut().unwrap();
        while !seen.ends_with(b"\nready") {
            let mut byte = [0];
            out.read_exact(&mut byte).expect("the clients are still there");
            seen.push(byte[0]);
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Memory of this process that is really there.
pub(super) fn resident_kb() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE_KB
}

fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    TICK * ticks
}
