//! Servers on etcd in a few words.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{EtcdClient, Keys, Range};
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{Author, CellId, Change, Command, State, Term, Timestamp, Writer};
use plimsoll_seal::CellKey;
use plimsoll_store::{Engine, Peer, ServerId};
use plimsoll_store_etcd::{Etcd, EtcdEngineConfig};

/// The shortest lease there is.
pub(crate) const TTL: Duration = Duration::from_secs(2);

pub(crate) const LEADER: &str = "/plimsoll/test/scheduler/leader";

pub(crate) fn cell_id() -> CellId {
    CellId::new("test").unwrap()
}

/// What the cell of these tests seals its values with.
pub(crate) fn seal_key() -> CellKey {
    CellKey::from_bytes(&[9; 32]).unwrap()
}

pub(crate) fn config(etcd: plimsoll_etcd::EtcdConfig, server: u64) -> EtcdEngineConfig {
    let peer =
        Peer { name: format!("n{server}"), address: format!("127.0.0.1:{}", 7_000 + server) };
    EtcdEngineConfig {
        ttl: TTL,
        peer,
        ..EtcdEngineConfig::scheduler(etcd, cell_id(), ServerId(server), seal_key())
    }
}

pub(crate) async fn server(lab: &EtcdLab, id: u64) -> Arc<Etcd> {
    Etcd::start(config(lab.config(), id)).await.unwrap()
}

pub(crate) fn client(lab: &EtcdLab) -> EtcdClient {
    EtcdClient::new(lab.config()).unwrap()
}

pub(crate) fn join(name: &str) -> Command {
    command(Change::PutNode { node: node_id(name), facts: cpus(4) })
}

pub(crate) fn command(change: Change) -> Command {
    let by = Author::new(Writer::Operator, "test");
    Command::new(Timestamp(1_000), Term(1), by, vec![change.free()])
}

pub(crate) fn has_node(state: &State, name: &str) -> bool {
    state.node(&node_id(name)).is_some()
}

pub(crate) fn knows(engine: &Etcd, name: &str) -> bool {
    engine.machine().read(|state| has_node(state, name))
}

pub(crate) fn state_bytes(engine: &Etcd) -> Vec<u8> {
    engine.machine().read(|state| postcard::to_stdvec(state).unwrap())
}

pub(crate) fn leads(engine: &Etcd) -> bool {
    engine.leadership().borrow().is_me
}

pub(crate) fn term(engine: &Etcd) -> u64 {
    engine.leadership().borrow().term.0
}

/// Waits for a state that must come.
pub(crate) async fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let started = Instant::now();
    while !check() {
        assert!(started.elapsed() < Duration::from_secs(40), "it never came to pass that {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until one of them leads, and returns which.
pub(crate) async fn leader_of(servers: &[Arc<Etcd>]) -> usize {
    let mut found = None;
    eventually("one of them leads", || {
        found = servers.iter().position(|server| leads(server));
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// Waits until all have applied what any has, and checks that they agree on it.
pub(crate) async fn agree(servers: &[Arc<Etcd>]) {
    let target = servers.iter().map(|server| *server.machine().applied().borrow()).max().unwrap();
    for server in servers {
        eventually("all have caught up", || *server.machine().applied().borrow() >= target).await;
    }
    let first = state_bytes(&servers[0]);
    for server in servers {
        assert_eq!(state_bytes(server), first, "{} differs", server.id());
    }
}

/// The log as etcd holds it: index and term of each entry. Indexes have no gap, and no term comes back.
pub(crate) async fn history(client: &EtcdClient) -> Vec<(u64, u64)> {
    let keys = Keys::prefix("/plimsoll/test/scheduler/entry/");
    let found = client.range(Range::of(keys)).await.unwrap();
    let entries = found.pairs.iter().map(|pair| {
        let key = String::from_utf8(pair.key.to_vec()).unwrap();
        let index: u64 = key.rsplit('/').next().unwrap().parse().unwrap();
        let term = u64::from_le_bytes(pair.value[1..9].try_into().unwrap());
        assert_eq!(pair.version, 1, "entry {index} was written once");
        (index, term)
    });
    let entries: Vec<_> = entries.collect();
    for pair in entries.windows(2) {
        assert_eq!(pair[1].0, pair[0].0 + 1, "no gap");
        assert!(pair[1].1 >= pair[0].1, "a term that was over came back: {pair:?}");
    }
    entries
}

/// Who holds the leader's key: its lease and its term.
pub(crate) async fn key(client: &EtcdClient) -> Option<(i64, i64)> {
    let pair = client.get(LEADER).await.unwrap();
    pair.map(|pair| (pair.lease, pair.create_revision))
}
