//! A network inside one process, for tests: servers are plugged in, cut off and healed by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use plimsoll_model::access::Digest;
use plimsoll_model::{NodeId, State};

use super::Embedded;
use super::door::{Notary, Sender};
use super::network::{Network, Sent};
use crate::engine::{Peer, ServerId};

/// An authority for tests of this crate, which knows nothing of keys: all who know a cell's name sign alike.
#[derive(Debug, Clone)]
pub struct TestNotary {
    cell: String,
    node: NodeId,
}

impl TestNotary {
    pub fn new(cell: &str, node: &str) -> Self {
        let node = NodeId::new(node).expect("the name of a node");
        Self { cell: cell.to_owned(), node }
    }

    pub fn seal(&self, text: &[u8]) -> Vec<u8> {
        let sum = crc32c::crc32c_append(crc32c::crc32c(self.cell.as_bytes()), text);
        sum.to_le_bytes().into()
    }
}

impl Notary for TestNotary {
    fn own(&self) -> Option<(NodeId, Digest)> {
        Some((self.node.clone(), Digest([0; 32])))
    }

    fn sign(&self, _: &State, text: &[u8]) -> Option<Vec<u8>> {
        Some(self.seal(text))
    }

    fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        self.seal(text) == signature
    }
}

#[derive(Debug, Clone, Default)]
pub struct Switchboard {
    plugged: Arc<Mutex<Plugged>>,
}

#[derive(Debug, Default)]
struct Plugged {
    servers: BTreeMap<ServerId, Weak<Embedded>>,
    cut_off: BTreeSet<ServerId>,
}

impl Switchboard {
    pub fn new() -> Self {
        Self::default()
    }

    /// The network as seen by one server.
    pub fn port(&self, server: ServerId) -> Arc<dyn Network> {
        Arc::new(ServerPort { board: self.clone(), server })
    }

    pub fn plug(&self, server: &Arc<Embedded>) {
        self.plugged().servers.insert(server.id(), Arc::downgrade(server));
    }

    /// Nothing reaches the server, and nothing from it reaches the others.
    pub fn cut_off(&self, server: ServerId) {
        self.plugged().cut_off.insert(server);
    }

    pub fn heal(&self, server: ServerId) {
        self.plugged().cut_off.remove(&server);
    }

    fn route(&self, from: ServerId, to: ServerId) -> Option<Arc<Embedded>> {
        let plugged = self.plugged();
        if plugged.cut_off.contains(&from) || plugged.cut_off.contains(&to) {
            return None;
        }
        plugged.servers.get(&to).and_then(Weak::upgrade)
    }

    fn plugged(&self) -> MutexGuard<'_, Plugged> {
        self.plugged.lock().expect("no holder of the switchboard panics")
    }
}

#[derive(Debug)]
struct ServerPort {
    board: Switchboard,
    server: ServerId,
}

impl Network for ServerPort {
    fn send<'a>(&'a self, to: ServerId, _: &'a Peer, request: Vec<u8>, _: Duration) -> Sent<'a> {
        Box::pin(async move {
            let unreachable = || io::Error::from(io::ErrorKind::HostUnreachable);
            let server = self.board.route(self.server, to).ok_or_else(unreachable)?;
            // On a task of its own, as on another machine: the caller's impatience must not stop it.
            let from = Sender::Server(self.server);
            let answered =
                tokio::spawn(async move { server.answer(&from, &request).await }).await?;
            // The answer travels too, and may be cut off on its way.
            self.board.route(to, self.server).ok_or_else(unreachable)?;
            Ok(answered)
        })
    }
}
