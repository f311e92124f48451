//! How nodes speak to each other: HTTP/2 over mutual TLS, on one port. The [`PeerServer`] hands requests to a router along
//! with who sent them; the [`PeerClient`] keeps a connection to each node it is asked to call; [`RaftNetwork`] carries
//! the log over both. Who may ask for what is the router's to say, who somebody is was settled in [`pki`](crate::pki).

mod body;
mod client;
mod connection;
mod dial;
mod duplex;
mod error;
mod extract;
mod handshakes;
mod hops;
mod join;
mod link;
mod log_throttle;
mod operator_door;
pub mod pki;
mod purpose;
mod raft;
mod server;
mod tls;

#[cfg(test)]
mod tests;

use std::fmt;

use plimsoll_model::NodeId;

pub use crate::pki::DEFAULT_PORT;
pub use body::{Exchange, Receiver, Sender, read_whole};
pub use client::{PeerClient, Response};
pub use dial::DialOptions;
pub use duplex::{Inward, Outward, StreamBody, answer_stream};
pub use error::Error;
pub use extract::{Key, KnownCaller, KnownShard, Remote};
pub use handshakes::{Crowd, Handshakes, Unfinished, accept};
pub use hops::{is_ours, misnamed, strip_hops, strip_ours};
pub use join::{Introduction, ask, meet};
pub use operator_door::OperatorDoor;
pub use purpose::Purpose;
pub use raft::{MAX_MESSAGE, PATH as RAFT};
pub use raft::{RaftNetwork, raft_router};
pub use server::{Limits, PeerServer, Stay, listen};

/// What stands where a host would: who is meant is settled by the certificate.
const NOMINAL: &str = "node.plimsoll.internal";

/// A node, and where it is found. Whoever answers there must be that node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    pub node: NodeId,
    /// A name or an IP address, with its port.
    pub address: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.node, self.address)
    }
}
