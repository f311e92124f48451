//! Who may speak for which server. A message of the log moves terms, votes and entries, so it is taken only from the server
//! that it names: a sender is known by the name *and* the key of its certificate, and both must be those that the cell
//! enrolled for that server. A node without the log, one that was removed, and one server in another's name are refused, and
//! a refusal changes nothing.
//!
//! A server may be too far behind to know who the servers are. So a sender shows its *seat*: the cell's authority, whose key
//! the servers hold, has signed that this key speaks for this server as of some entry of the log. It counts with those who
//! know of no later entry on the members; who does, goes by its own log.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use openraft::Membership;
use plimsoll_model::access::Digest;
use plimsoll_model::{CellId, NodeId, State};
use serde::{Deserialize, Serialize};

use super::incarnation::Incarnation;
use super::types::{Blob, Mark};
use crate::engine::{Peer, ServerId};
use crate::machine::Machine;

/// What a signature on a seat is of begins with this: the authority signs other things too.
const SEAT: &str = "plimsoll server seat 1";

/// Who sent a message, as its carrier knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// The carrier itself knows which server it is, as one inside a process does.
    Server(ServerId),
    /// The node that a certificate is for, and the key that it has proven to hold.
    Node { node: NodeId, key: Digest },
}

/// The cell's authority as one server has it.
pub trait Notary: Debug + Send + Sync + 'static {
    /// The name and the key that this server shows to others; none before it has them.
    fn own(&self) -> Option<(NodeId, Digest)>;

    /// Signs with the authority's key; none where this state does not hold it.
    fn sign(&self, state: &State, text: &[u8]) -> Option<Vec<u8>>;

    /// Whether the authority that this server trusts has signed this.
    fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool;
}

/// The authority of a server that trusts nobody, as in a cell of one.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNotary;

impl Notary for NoNotary {
    fn own(&self) -> Option<(NodeId, Digest)> {
        None
    }

    fn sign(&self, _: &State, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn has_signed(&self, _: &[u8], _: &[u8]) -> bool {
        false
    }
}

/// The authority's word that a key speaks for a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    /// The entry that made the members, as far as the signer had applied the log.
    at: Mark,
    signature: Blob,
}

/// Settles for one server whom it hears, and what it shows itself.
#[derive(Debug)]
pub(crate) struct Door {
    cell_id: CellId,
    incarnation: Incarnation,
    server: ServerId,
    notary: Arc<dyn Notary>,
    machine: Arc<Machine>,
    members: RwLock<KnownMembers>,
    /// What was signed last, and at which epoch of the authority: it holds until that or the members change.
    own: Mutex<Option<(u64, Seat)>>,
}

/// The members as committed and applied here.
#[derive(Debug, Default)]
struct KnownMembers {
    at: Option<Mark>,
    peers: BTreeMap<ServerId, Peer>,
}

impl Door {
    pub(crate) fn new(
        (cell_id, incarnation, server): (CellId, Incarnation, ServerId),
        notary: Arc<dyn Notary>,
        machine: Arc<Machine>,
    ) -> Self {
        let (members, own) = (RwLock::default(), Mutex::default());
        Self { cell_id, incarnation, server, notary, machine, members, own }
    }

    pub(crate) fn notary(&self) -> &dyn Notary {
        self.notary.as_ref()
    }

    /// These are the members from this entry on.
    pub(crate) fn know(&self, at: Option<Mark>, members: &Membership<ServerId, Peer>) {
        let peers = members.nodes().map(|(id, peer)| (*id, peer.clone())).collect();
        let mut known = self.members.write().unwrap_or_else(PoisonError::into_inner);
        *known = KnownMembers { at, peers };
    }

    /// What this server shows with its messages.
    pub(crate) fn seat(&self) -> Option<Seat> {
        let at = self.members.read().unwrap_or_else(PoisonError::into_inner).at?;
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = self.machine.read(|state| state.access().authority_epoch);
        if own.as_ref().is_none_or(|(of, seat)| seat.at != at || *of != epoch) {
            *own = self.sign(at).map(|seat| (epoch, seat));
        }
        own.as_ref().map(|(_, seat)| seat.clone())
    }

    fn sign(&self, at: Mark) -> Option<Seat> {
        let (node, key) = self.notary.own()?;
        let text = self.text(&node, key, self.server, at);
        let signature = self.machine.read(|state| self.notary.sign(state, &text))?;
        Some(Seat { at, signature: Blob(signature.into()) })
    }

    /// Whether the sender may speak for a server; else why not.
    pub(crate) fn admit(
        &self,
        sender: &Sender,
        server: ServerId,
        seat: Option<&Seat>,
    ) -> Result<(), String> {
        let (node, key) = match sender {
            Sender::Server(id) if *id == server => return Ok(()),
            Sender::Server(id) => return Err(format!("{id} does not speak for {server}")),
            Sender::Node { node, key } => (node, *key),
        };
        let (is_revoked, is_enrolled) = self.machine.read(|state| {
            let enrolled = state.node(node).filter(|node| node.server == Some(server.0));
            let is_enrolled = enrolled.is_some_and(|node| node.key == Some(key));
            (state.access().revoked.contains_key(&key), is_enrolled)
        });
        if is_revoked {
            return Err(format!("{node} was removed from the cell"));
        }
        let known_at = {
            let known = self.members.read().unwrap_or_else(PoisonError::into_inner);
            let is_member = known.peers.get(&server).is_some_and(|it| it.name == node.as_str());
            if is_enrolled && is_member {
                return Ok(());
            }
            known.at
        };
        // What this server knows by itself counts, unless the sender proves that it knows more.
        let is_proven = seat.filter(|seat| Some(seat.at) > known_at).is_some_and(|seat| {
            let text = self.text(node, key, server, seat.at);
            self.notary.has_signed(&text, &seat.signature.0)
        });
        if is_proven { Ok(()) } else { Err(format!("node {node} is not {server} of this cell")) }
    }

    fn text(&self, node: &NodeId, key: Digest, server: ServerId, at: Mark) -> Vec<u8> {
        let said = (SEAT, &self.cell_id, self.incarnation, node, key.0, server, at);
        postcard::to_stdvec(&said).expect("names and numbers can be written")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plimsoll_model::testkit::{cpus, node_id};
    use plimsoll_model::{Author, Change, Command, Term, Timestamp, Writer};

    use super::super::channel::TestNotary;
    use super::*;

    const ASH: Digest = Digest([1; 32]);
    const BIRCH: Digest = Digest([2; 32]);
    const STRANGER: Digest = Digest([9; 32]);

    fn mark(index: u64) -> Mark {
        Mark { term: 1, index }
    }

    /// A cell where ash is server 1 and birch, number 2, a node without the log; as server 3 knows it as of an entry.
    fn door(at: Option<Mark>) -> Door {
        let cell_id: CellId = "test".parse().unwrap();
        let mut state = State::new(cell_id.clone());
        let by = Author::new(Writer::Operator, "test");
        let mut put = |changes| {
            let command = Command::new(Timestamp(1), Term(1), by.clone(), changes);
            state.apply(&command).unwrap();
        };
        let authority = plimsoll_model::access::Authority { certificate: vec![1], key: vec![2] };
        if at.is_some() {
            put(vec![Change::PutNode { node: node_id("ash"), facts: cpus(4) }.free()]);
            put(vec![Change::Found { authority, node: node_id("ash"), key: ASH }.free()]);
            let token = Digest([7; 32]);
            let expires_at = Timestamp(100);
            let name = "birch".to_owned();
            put(vec![Change::CreateJoinToken { name, token, expires_at }.free()]);
            let (node, facts) = (node_id("birch"), cpus(4));
            put(vec![Change::Join { token, node, facts, key: BIRCH }.free()]);
        }
        let machine = Arc::new(Machine::new(state, 1));
        let who = (cell_id, Incarnation::default(), ServerId(3));
        let door = Door::new(who, Arc::new(TestNotary::new("test", "cedar")), machine);
        let peers =
            BTreeMap::from([(ServerId(1), Peer { name: "ash".into(), address: String::new() })]);
        let members = Membership::new(vec![BTreeSet::from([ServerId(1)])], peers).unwrap();
        door.know(at, &members);
        door
    }

    fn seat(door: &Door, node: &str, key: Digest, server: u64, at: u64, cell: &str) -> Seat {
        let text = door.text(&node_id(node), key, ServerId(server), mark(at));
        let signature = TestNotary::new(cell, "ash").seal(&text);
        Seat { at: mark(at), signature: Blob(signature.into()) }
    }

    #[test]
    fn a_node_speaks_for_the_server_that_its_name_and_its_key_were_enrolled_for() {
        let known = door(Some(mark(5)));
        let new = door(None);
        let node = |name: &str, key: Digest| Sender::Node { node: node_id(name), key };
        let elm = |at| Some(seat(&known, "elm", STRANGER, 4, at, "test"));
        let forged = Some(seat(&known, "elm", STRANGER, 4, 6, "another cell"));
        for (case, door, sender, server, seat, is_heard) in [
            ("a server", &known, node("ash", ASH), 1, None, true),
            ("in another's name", &known, node("ash", ASH), 2, None, false),
            ("with another key", &known, node("ash", STRANGER), 1, None, false),
            ("under another name", &known, node("birch", ASH), 1, None, false),
            ("a node without the log", &known, node("birch", BIRCH), 2, None, false),
            ("one that came later", &known, node("elm", STRANGER), 4, elm(6), true),
            ("one that went since", &known, node("elm", STRANGER), 4, elm(5), false),
            ("the seat of another key", &known, node("elm", BIRCH), 4, elm(6), false),
            ("the seat of another server", &known, node("elm", STRANGER), 5, elm(6), false),
            ("signed by another authority", &known, node("elm", STRANGER), 4, forged, false),
            ("to one that knows nobody yet", &new, node("elm", STRANGER), 4, elm(1), true),
            ("to one that knows nobody, unproven", &new, node("ash", ASH), 1, None, false),
        ] {
            let said = door.admit(&sender, ServerId(server), seat.as_ref());
            assert_eq!(said.is_ok(), is_heard, "{case}: {said:?}");
        }
    }
}
