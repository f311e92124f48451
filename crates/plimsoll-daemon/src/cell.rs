//! A cell of several nodes: how it is founded and joined, who holds the log and whose votes count, and how a request
//! that came to one node reaches the one it is for.
//!
//! What nodes say to each other goes over [`peer`](plimsoll_peer), behind the listeners in [`peer_api`](crate::peer_api); who may come in is
//! settled in [`pki`](plimsoll_peer::pki), how many votes there are in `plimsoll_kernel::voters`.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll_model::NodeId;
use plimsoll_model::access::Authority as StoredAuthority;
use plimsoll_store::embedded::network::{Network, Sent};
use plimsoll_store::{Peer, ServerId};

use crate::context::NodeContext;
use crate::servers::has_address;
use plimsoll_peer::pki::{self, Authority, AuthorityParts};
use plimsoll_peer::{RaftNetwork, Target};

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

/// What the cell signs with; none before it is founded. Every server holds it.
pub(crate) fn authority(cell: &NodeContext) -> Result<Option<Authority>, pki::Error> {
    let kept = cell
        .engine
        .machine()
        .read(|state| Some((state.cell_id().clone(), state.access().authority.clone()?)));
    let Some((cell_id, StoredAuthority { certificate, key })) = kept else { return Ok(None) };
    Authority::from_parts(&AuthorityParts { cell_id, certificate, key }).map(Some)
}

/// A peer as one that can be called; none if its name is not a node's, or while nobody knows where it is.
pub fn target(peer: &Peer) -> Option<Target> {
    let node = NodeId::new(&peer.name).ok()?;
    has_address(peer).then(|| Target { node, address: peer.address.clone() })
}
