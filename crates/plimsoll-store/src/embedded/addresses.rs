//! Where each server is found, for the ways to them. Openraft makes a way once, with the address of that moment, and keeps
//! it for as long as the server is of the cell: one that moved would never be found by a leader that saw it go.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use openraft::Membership;

use crate::engine::{Peer, ServerId};

#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<BTreeMap<ServerId, Peer>>);

impl Addresses {
    fn known(&self) -> MutexGuard<'_, BTreeMap<ServerId, Peer>> {
        self.0.lock().expect("no holder of the addresses panics")
    }

    /// As openraft has it, which goes by the log whether or not that is committed.
    pub(crate) fn note(&self, server: ServerId, peer: &Peer) {
        self.known().insert(server, peer.clone());
    }

    /// As was committed.
    pub(crate) fn replace(&self, membership: &Membership<ServerId, Peer>) {
        *self.known() = membership.nodes().map(|(id, peer)| (*id, peer.clone())).collect();
    }

    pub(crate) fn of(&self, server: ServerId) -> Option<Peer> {
        self.known().get(&server).cloned()
    }
}
