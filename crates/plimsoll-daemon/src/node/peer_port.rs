//! When a node listens for others. By default one that is alone does not: whom nobody was asked to join has nobody to hear, and
//! whoever found the port would be a stranger. It opens with the first join token, and from then on with every start of a
//! cell that has other nodes. An address that an operator names is listened on at once.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_model::{State, Timestamp};
use plimsoll_peer::pki::Credentials;
use plimsoll_peer::{Limits, PeerServer, listen};
use plimsoll_router::sockets::Sockets;
use plimsoll_store::Machine;
use tokio::time::sleep;

use crate::context::now;

/// How soon to try again where another program has the port.
const RETRY: Duration = Duration::from_secs(5);

/// What there is of the port when a node starts.
#[derive(Debug)]
pub(super) enum PeerPort {
    Open(PeerServer),
    /// Nobody is expected yet.
    Shut(PortToOpen),
    /// It could not be opened, and the node does without.
    Absent,
}

/// A port that opens when somebody is expected.
#[derive(Debug)]
pub(super) struct PortToOpen {
    pub(super) address: SocketAddr,
    pub(super) credentials: Credentials,
    pub(super) sockets: Sockets,
}

impl PeerPort {
    /// The port once it is open; none where it never will be.
    pub(super) async fn opened(self, machine: &Machine) -> Option<PeerServer> {
        match self {
            Self::Open(server) => Some(server),
            Self::Shut(port) => port.awaited(machine).await,
            Self::Absent => None,
        }
    }
}

impl PortToOpen {
    pub(super) fn open(&self) -> io::Result<PeerServer> {
        let listener = self.sockets.tcp(self.address, listen)?;
        PeerServer::on(listener, &self.credentials, Limits::default()).map_err(io::Error::other)
    }

    async fn awaited(self, machine: &Machine) -> Option<PeerServer> {
        let mut applied = machine.applied();
        while !machine.read(|state| expects_others(state, now())) {
            applied.changed().await.ok()?;
        }
        let mut has_warned = false;
        loop {
            match self.open() {
                Ok(server) => return Some(server),
                Err(error) if !std::mem::replace(&mut has_warned, true) => {
                    tracing::warn!(address = %self.address, %error, "cannot bind the peer port: other nodes \
                        cannot join; free it, or choose another with --address");
                }
                Err(_) => {}
            }
            sleep(RETRY).await;
        }
    }
}

/// Whether another node may come: one is of the cell already, or was given a token.
pub(super) fn expects_others(state: &State, now: Timestamp) -> bool {
    let mut tokens = state.access().join_tokens.values();
    state.nodes().len() > 1 || tokens.any(|token| token.is_good(now))
}

#[cfg(test)]
mod tests {
    use plimsoll_model::access::{Authority, Digest};
    use plimsoll_model::testkit::{cpus, node_id};
    use plimsoll_model::{Author, Change, Command, Term, Writer};

    use super::*;

    const ASH: Digest = Digest([1; 32]);
    const TOKEN: Digest = Digest([7; 32]);

    fn put(state: &mut State, at: Timestamp, change: Change) {
        let by = Author::new(Writer::Operator, "test");
        state.apply(&Command::new(at, Term(1), by, vec![change.free()])).unwrap();
    }

    fn alone() -> State {
        let mut state = State::new("test".parse().unwrap());
        let authority = Authority { certificate: vec![1], key: vec![2] };
        put(&mut state, Timestamp(1), Change::PutNode { node: node_id("ash"), facts: cpus(4) });
        put(&mut state, Timestamp(1), Change::Found { authority, node: node_id("ash"), key: ASH });
        state
    }

    fn token() -> Change {
        let (name, expires_at) = ("birch".to_owned(), Timestamp(100));
        Change::CreateJoinToken { name, token: TOKEN, expires_at }
    }

    #[test]
    fn others_are_expected_with_a_token_that_is_good_and_with_a_second_node() {
        let mut state = alone();
        assert!(!expects_others(&state, Timestamp(2)), "it is alone");
        put(&mut state, Timestamp(2), token());
        assert!(expects_others(&state, Timestamp(99)), "somebody has a token");
        assert!(!expects_others(&state, Timestamp(100)), "nobody came in time");
        let (node, facts) = (node_id("birch"), cpus(4));
        put(
            &mut state,
            Timestamp(3),
            Change::Join { token: TOKEN, node, facts, key: Digest([2; 32]) },
        );
        assert!(expects_others(&state, Timestamp(100)), "there is another node");
    }
}
