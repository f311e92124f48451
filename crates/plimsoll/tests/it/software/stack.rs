//! The stack: a database, a cache that keeps what it is told, and a web server in three copies, as a compose file has them.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use plimsoll_lab::{Lab, NAMES, within};

use super::postgres::Postgres;
use super::redis::Redis;
use super::writer::Writer;
use crate::harness::{Cell, NodeSetup, Site};
use crate::hosts::routed::{Engines, cell_on, get, must_do};
use crate::hosts::{SEED, can_be};
use crate::lab::harness::lab;

const NODES: usize = 3;

/// Where the web server is published.
const WEB: u16 = 8080;

/// What a power cut takes from a host besides its processes: bridges of the engine, and rules of the firewall.
const FORGET: &str = "for link in $(ip -o link show type bridge | cut -d : -f 2); do ip link del $link; done; \
    for table in filter nat mangle raw; do iptables -t $table -F; iptables -t $table -X; done; true";

pub(super) struct Stack {
    // Before the engines, which it uses.
    pub(super) cell: Cell,
    pub(super) engines: Engines,
}

impl Stack {
    /// The stack at its first version, on three nodes whose engines are told this besides; none where that cannot be.
    #[track_caller]
    pub(super) fn up(engine_args: &[&str]) -> Option<Self> {
        lab("DOCKER")?;
        lab("SOFTWARE")?;
        // Nodes see the processes of their containers, as nodes do.
        let hosts = can_be().then(|| Lab::seeing_processes(NODES, SEED).unwrap())?;
        let engines = Engines::start(&hosts, engine_args);
        engines.each(|engine| engine.load_software().unwrap());
        let cell = cell_on(Site::Hosts(hosts), &engines, |_, _| NodeSetup::default());
        let stack = Self { cell, engines };
        stack.apply(1);
        Some(stack)
    }

    /// Every service of another version has other containers.
    #[track_caller]
    pub(super) fn apply(&self, version: u32) {
        self.apply_at(0, version);
    }

    #[track_caller]
    pub(super) fn apply_at(&self, at: usize, version: u32) {
        std::fs::write(self.cell.dir.path().join("shop.yaml"), file(version)).unwrap();
        must_do(&self.cell, at, "apply -f shop.yaml");
    }

    /// Clients of the database and of the cache.
    #[track_caller]
    pub(super) fn write(&self) -> Writers {
        Writers([Writer::start::<Postgres>(&self.cell), Writer::start::<Redis>(&self.cell)])
    }

    pub(super) fn is_steady(&self, at: usize) -> bool {
        let shop = self.cell.get(at, "/v1/deployments/shop").unwrap_or_default();
        shop["progress"]["is"] == "steady"
    }

    #[track_caller]
    pub(super) fn until_steady(&self, at: usize) {
        self.cell.until("the stack is steady", |_| self.is_steady(at));
    }

    /// The node that has a volume of the stack, which is one and has the only copy in use.
    #[track_caller]
    pub(super) fn home(&self, at: usize, volume: &str) -> usize {
        let volumes = self.cell.json(at, "volume list -o json");
        let all = volumes.as_array().cloned().unwrap_or_default();
        let own = all.iter().find(|it| it["name"] == volume).unwrap_or_else(|| panic!("{volumes}"));
        let copies = own["copies"].as_array().cloned().unwrap_or_default();
        let holders: Vec<_> = copies.iter().filter(|copy| copy["state"] == "data").collect();
        assert_eq!(holders.len(), 1, "{volumes}");
        NAMES.iter().position(|name| holders[0]["node"] == *name).unwrap()
    }

    /// The container of the database on a node's engine; empty: none.
    pub(super) fn database(&self, at: usize) -> String {
        let host = format!("unix://{}", self.engines.0[at].socket().display());
        let filters = ["--filter", "label=com.docker.compose.service=db"];
        let mut docker = Command::new("docker");
        docker.args(["-H", &host, "ps", "-q"]).args(filters);
        let ran = docker.output().unwrap();
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    /// The power of a node fails: nothing runs there any more, and its disk is as it was.
    pub(super) fn cut_power(&mut self, at: usize) {
        self.cell.switch_off(at);
        self.engines.0[at].cut_power().unwrap();
        let forget = || Command::new("sh").args(["-c", FORGET]).output();
        self.cell.lab().host(at).within(forget).unwrap().unwrap();
    }

    /// The power is back.
    pub(super) fn restore_power(&mut self, at: usize) {
        self.cell.lab().host(at).switch_on().unwrap();
        self.engines.0[at].start().unwrap();
        self.cell.up(at, None);
    }

    /// People who look at the web server at every node, one request after another.
    pub(super) fn visit(&self) -> Visitors {
        let is_over = Arc::new(AtomicBool::new(false));
        let visit = |network: PathBuf| {
            let (network, is_over) = (File::open(network).unwrap(), Arc::clone(&is_over));
            thread::spawn(move || {
                let ask = || {
                    let mut visits = Visits::default();
                    while !is_over.load(Ordering::Relaxed) {
                        match get(WEB) {
                            Ok(_) => visits.answered += 1,
                            Err(why) => visits.failed.push(why),
                        }
                    }
                    visits
                };
                within(&network, ask).unwrap()
            })
        };
        let hosts = self.cell.lab().hosts().iter();
        let threads = hosts.map(|host| visit(host.network())).collect();
        Visitors { is_over, threads }
    }
}

/// A client of each software.
pub(super) struct Writers([Writer; 2]);

impl Writers {
    #[track_caller]
    pub(super) fn miss_nothing(&self, cell: &Cell, what: &str) {
        self.0.iter().for_each(|writer| writer.misses_nothing(cell, what));
    }

    #[track_caller]
    pub(super) fn go_on(&self, cell: &Cell, what: &str) {
        self.0.iter().for_each(|writer| writer.goes_on(cell, what));
    }
}

pub(super) struct Visitors {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Visits>>,
}

#[derive(Debug, Default)]
struct Visits {
    answered: usize,
    failed: Vec<String>,
}

impl Visitors {
    /// Everyone got an answer each time.
    #[track_caller]
    pub(super) fn were_answered(self, what: &str) {
        self.is_over.store(true, Ordering::Relaxed);
        let all: Vec<Visits> = self.threads.into_iter().map(|it| it.join().unwrap()).collect();
        let answered: usize = all.iter().map(|visits| visits.answered).sum();
        let failed: Vec<&String> = all.iter().flat_map(|visits| &visits.failed).collect();
        assert!(failed.is_empty(), "{what}: {} of {answered} failed: {failed:?}", failed.len());
        assert!(answered > 0, "nobody asked");
        println!("nginx, {what}: {answered} requests, none failed");
    }
}

fn file(version: u32) -> String {
    format!(
        r#"
name: shop
services:
  db:
    image: plimsoll-postgres:1
    environment: {{VERSION: '{version}'}}
    ports: ['5432:5432']
    volumes: ['rows:/var/lib/postgresql/data']
    healthcheck: {{test: [CMD, pg_isready, -h, 127.0.0.1], interval: 5s, start_period: 60s, start_interval: 200ms}}
    stop_grace_period: 30s
  cache:
    image: plimsoll-redis:1
    command: [redis-server, --protected-mode, 'no', --appendonly, 'yes', --appendfsync, always]
    environment: {{VERSION: '{version}'}}
    ports: ['6379:6379']
    volumes: ['cache:/data']
    healthcheck: {{test: [CMD, redis-cli, ping], interval: 5s, start_period: 60s, start_interval: 200ms}}
  web:
    image: plimsoll-nginx:1
    environment: {{VERSION: '{version}'}}
    ports: ['{WEB}:80']
    healthcheck: {{test: [CMD, wget, -q, -O, /dev/null, 'http://127.0.0.1/'], interval: 5s, start_period: 60s, start_interval: 200ms}}
    deploy: {{replicas: 3}}
volumes: {{rows: {{}}, cache: {{}}}}
"#
    )
}
