//! A cell of several nodes: how it is founded and joined, who holds the log and whose votes count, and how a request
//! that came to one node reaches the one it is for.
//!
//! What nodes say to each other goes over [`peer`](plimsoll_peer), behind the listeners in [`peer_api`](crate::peer_api); who may come in is
//! settled in [`pki`](plimsoll_peer::pki), how many votes there are in `plimsoll_kernel::voters`.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll_model::access::{Authority as StoredAuthority, Digest};
use plimsoll_model::{NodeId, State};
use plimsoll_store::embedded::Notary;
use plimsoll_store::embedded::network::{Network, Sent};
use plimsoll_store::{Peer, ServerId};

use crate::context::NodeContext;
use crate::servers::has_address;
use plimsoll_peer::pki::{self, Authority, AuthorityParts};
use plimsoll_peer::{RaftNetwork, Target};

pub mod backup_key;
pub mod bootstrap;
pub mod join;
pub mod join_limiter;
pub mod log;
pub mod membership;
pub mod quorum;
pub mod reach;
pub mod server_progress;
pub mod upgrade;

/// How long one node may take to answer another.
pub const ANSWER: Duration = Duration::from_secs(10);

/// The way to the other servers, from when this node has an identity: an engine starts before that.
#[derive(Debug, Default)]
pub struct Late(OnceLock<RaftNetwork>);

impl Late {
    /// From now on others can be reached.
    pub fn arrive(&self, network: RaftNetwork) {
        // A second identity of one process would be the same.
        let _ = self.0.set(network);
    }
}

impl Network for Late {
    fn send<'a>(
        &'a self,
        to: ServerId,
        peer: &'a Peer,
        request: Vec<u8>,
        within: Duration,
    ) -> Sent<'a> {
        match self.0.get() {
            Some(network) => network.send(to, peer, request, within),
            None => Box::pin(async { Err(io::ErrorKind::NotConnected.into()) }),
        }
    }
}

/// What is signed is signed with the authority in the state; what others signed is judged by those that this node trusts.
impl Notary for Late {
    fn own(&self) -> Option<(NodeId, Digest)> {
        let credentials = self.0.get()?.credentials();
        Some((credentials.node().clone(), credentials.key().ok()?))
    }

    fn sign(&self, state: &State, text: &[u8]) -> Option<Vec<u8>> {
        authority_of(state).ok()??.sign(text).ok()
    }

    fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        self.0.get().is_some_and(|network| network.credentials().has_signed(text, signature))
    }
}

/// What the cell signs with; none before it is founded. Every server holds it.
pub(crate) fn authority(cell: &NodeContext) -> Result<Option<Authority>, pki::Error> {
    cell.engine.machine().read(authority_of)
}

fn authority_of(state: &State) -> Result<Option<Authority>, pki::Error> {
    let Some(StoredAuthority { certificate, key }) = state.access().authority.clone() else {
        return Ok(None);
    };
    let cell_id = state.cell_id().clone();
    Authority::from_parts(&AuthorityParts { cell_id, certificate, key }).map(Some)
}

/// A peer as one that can be called; none if its name is not a node's, or while nobody knows where it is.
pub fn target(peer: &Peer) -> Option<Target> {
    let node = NodeId::new(&peer.name).ok()?;
    has_address(peer).then(|| Target { node, address: peer.address.clone() })
}
