//! A network inside one process, for tests: servers are plugged in, cut off and healed by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::Embedded;
use super::network::{Network, Sent};
use crate::engine::{Peer, ServerId};

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
            let answered = tokio::spawn(async move { server.answer(&request).await }).await?;
            // The answer travels too, and may be cut off on its way.
            self.board.route(to, self.server).ok_or_else(unreachable)?;
            Ok(answered)
        })
    }
}
