//! Openraft's types as we use them, and what of them is written down. The written forms are ours, so that an upgrade
//! of openraft changes no file and no message.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use openraft::alias::{EntryOf, LogIdOf, SnapshotMetaOf, StoredMembershipOf, VoteOf};
use openraft::impls::leader_id_std;
use openraft::{EntryPayload, LogId, Membership, Vote};
use plimsoll_model::{Event, Rejection};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::engine::{Peer, ServerId};

openraft::declare_raft_types!(
    /// One leader a term, because assignments are fenced by the term alone.
    pub(crate) Types:
        D = Proposal,
        R = Reply,
        NodeId = ServerId,
        Node = Peer,
        LeaderId = leader_id_std::LeaderId<u64, ServerId>,
        AsyncRuntime = openraft::impls::TokioRuntime,
);

pub(crate) type Entry = EntryOf<Types>;

/// An encoded command. It is encoded once, where it is proposed, and decoded once on each server, to be applied.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proposal(pub(crate) Arc<[u8]>);

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command of {} bytes", self.0.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What applying an entry gave; none for entries that are not commands.
pub(crate) type Reply = Option<Result<Arc<[Event]>, Rejection>>;

/// Where an entry stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) term: u64,
    pub(crate) index: u64,
}

impl From<&LogIdOf<Types>> for Mark {
    fn from(id: &LogIdOf<Types>) -> Self {
        Self { term: *id.leader_id, index: id.index }
    }
}

impl From<Mark> for LogIdOf<Types> {
    fn from(mark: Mark) -> Self {
        LogId::new_term_index(mark.term, mark.index)
    }
}

/// A vote given, or one that was won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ballot {
    pub(crate) term: u64,
    pub(crate) server: ServerId,
    pub(crate) won: bool,
}

impl From<&VoteOf<Types>> for Ballot {
    fn from(vote: &VoteOf<Types>) -> Self {
        let leader = vote.leader_id;
        Self { term: leader.term, server: leader.voted_for, won: vote.committed }
    }
}

impl From<Ballot> for VoteOf<Types> {
    fn from(ballot: Ballot) -> Self {
        let vote = Vote::new(ballot.term, ballot.server);
        Self { committed: ballot.won, ..vote }
    }
}

/// Who belongs to the cell, and whose votes count: in more than one set while the voters change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct MembershipRecord {
    pub(crate) voters: Vec<BTreeSet<ServerId>>,
    pub(crate) peers: BTreeMap<ServerId, Peer>,
}

impl MembershipRecord {
    pub(crate) fn alone(server: ServerId, peer: Peer) -> Self {
        Self { voters: vec![BTreeSet::from([server])], peers: BTreeMap::from([(server, peer)]) }
    }

    /// Whether a cell can have these members: somebody votes, and all who vote are known.
    pub(crate) fn check(&self) -> io::Result<()> {
        let has_empty = self.voters.is_empty() || self.voters.iter().any(BTreeSet::is_empty);
        let is_known = |voter: &ServerId| self.peers.contains_key(voter);
        if has_empty || !self.voters.iter().flatten().all(is_known) {
            let text = "these are no members of a cell: nobody votes, or somebody unknown";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }

    /// Whether this server decides by itself.
    pub(crate) fn is_alone(&self, server: ServerId) -> bool {
        !self.voters.is_empty() && self.voters.iter().flatten().all(|voter| *voter == server)
    }
}

impl From<&Membership<ServerId, Peer>> for MembershipRecord {
    fn from(membership: &Membership<ServerId, Peer>) -> Self {
        let peers = membership.nodes().map(|(id, peer)| (*id, peer.clone())).collect();
        Self { voters: membership.get_joint_config().clone(), peers }
    }
}

impl TryFrom<MembershipRecord> for Membership<ServerId, Peer> {
    type Error = io::Error;
    fn try_from(roster: MembershipRecord) -> io::Result<Self> {
        if roster.voters.is_empty() {
            return Ok(Self::default());
        }
        Self::new(roster.voters, roster.peers).map_err(io::Error::other)
    }
}

/// What a snapshot holds besides the state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) last: Option<Mark>,
    /// The entry that made the roster.
    pub(crate) roster_at: Option<Mark>,
    pub(crate) roster: MembershipRecord,
}

impl Header {
    pub(crate) fn new(last: Option<Mark>, membership: &StoredMembershipOf<Types>) -> Self {
        let roster_at = membership.log_id().as_ref().map(Mark::from);
        Self { last, roster_at, roster: membership.membership().into() }
    }

    pub(crate) fn membership(&self) -> io::Result<StoredMembershipOf<Types>> {
        let at = self.roster_at.map(Into::into);
        Ok(StoredMembershipOf::<Types>::new(at, self.roster.clone().try_into()?))
    }

    pub(crate) fn meta(&self) -> io::Result<SnapshotMetaOf<Types>> {
        let last_log_id = self.last.map(Into::into);
        Ok(SnapshotMetaOf::<Types> { last_log_id, last_membership: self.membership()? })
    }
}

impl From<&SnapshotMetaOf<Types>> for Header {
    fn from(meta: &SnapshotMetaOf<Types>) -> Self {
        Self::new(meta.last_log_id.as_ref().map(Mark::from), &meta.last_membership)
    }
}

const BLANK: u8 = 0;
const COMMAND: u8 = 1;
const ROSTER: u8 = 2;

/// kind, term, committed
pub(crate) const ENTRY_HEADER: usize = 1 + 8 + 8;

/// The most bytes that the members of a cell may take: there are a few, and decoded they take many times as much.
const MAX_ROSTER: usize = 1 << 20;

/// How much longer an entry is than its command.
pub(crate) const ENTRY_OVERHEAD: usize = ENTRY_HEADER + plimsoll_seal::OVERHEAD;

/// An entry as it is written. It carries how far the log was committed when it was written, so that a server that
/// starts without its peers knows what it may apply; that costs no write of its own.
pub(crate) fn encode_entry(entry: &Entry, committed: Option<u64>) -> io::Result<Arc<[u8]>> {
    let roster;
    let (kind, body) = match &entry.payload {
        EntryPayload::Blank => (BLANK, &[][..]),
        EntryPayload::Normal(Proposal(bytes)) => (COMMAND, &bytes[..]),
        EntryPayload::Membership(membership) => {
            roster = postcard::to_stdvec(&MembershipRecord::from(membership))
                .map_err(io::Error::other)?;
            (ROSTER, &roster[..])
        }
    };
    let mut bytes = Vec::with_capacity(ENTRY_HEADER + body.len());
    bytes.push(kind);
    bytes.extend_from_slice(&entry.log_id.leader_id.to_le_bytes());
    bytes.extend_from_slice(&committed.map_or(0, |index| index + 1).to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes.into())
}

/// The entry at an index, and how far the log was committed when it was written.
pub(crate) fn decode_entry(index: u64, bytes: &[u8]) -> io::Result<(Entry, Option<u64>)> {
    let wrong = |what: &str| {
        let text = format!("log entry {index} {what}; it needs a newer plimsoll");
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let (header, body) =
        bytes.split_at_checked(ENTRY_HEADER).ok_or_else(|| wrong("is cut short"))?;
    let number = |at: usize| {
        u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes of the header"))
    };
    let payload = match header[0] {
        BLANK => EntryPayload::Blank,
        COMMAND => EntryPayload::Normal(Proposal(Arc::from(body))),
        ROSTER => {
            if body.len() > MAX_ROSTER {
                return Err(wrong("holds a roster of an unknown size"));
            }
            let roster: MembershipRecord =
                postcard::from_bytes(body).map_err(|_| wrong("holds an unknown roster"))?;
            roster.check()?;
            EntryPayload::Membership(roster.try_into()?)
        }
        _ => return Err(wrong("is of an unknown kind")),
    };
    let log_id = LogId::new_term_index(number(1), index);
    Ok((Entry { log_id, payload }, number(9).checked_sub(1)))
}

/// Bytes that are written as bytes and not one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob(pub(crate) Arc<[u8]>);

impl Blob {
    pub(crate) fn of(value: &impl Serialize) -> Self {
        Self(postcard::to_stdvec(value).expect("our own types can be written").into())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Blob;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob(Arc::from(bytes)))
            }
        }
        source.deserialize_bytes(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_as_it_was_written() {
        let roster = MembershipRecord::alone(ServerId(3), Peer::default());
        for payload in [
            EntryPayload::Blank,
            EntryPayload::Normal(Proposal(Arc::from(&b"command"[..]))),
            EntryPayload::Membership(roster.try_into().unwrap()),
        ] {
            let entry = Entry { log_id: LogId::new_term_index(5, 9), payload };
            for committed in [None, Some(0), Some(8)] {
                let bytes = encode_entry(&entry, committed).unwrap();
                assert_eq!(decode_entry(9, &bytes).unwrap(), (entry.clone(), committed));
            }
        }
        for bytes in [&[][..], &[0; 5], &[9; 17], &[ROSTER; 18]] {
            assert!(decode_entry(1, bytes).is_err(), "{bytes:?}");
        }
    }
}
