//! What servers say to each other. Every message begins with the version of this form; one that is newer, cut, garbled or
//! that no server would send is refused in words and changes nothing. Openraft takes its messages for true and asserts what
//! must hold among their numbers, so they are checked here: no bytes get so far that an assertion could meet them.
//!
//! Who sent a message is settled before it is decoded: its [`Opening`] says for whom it speaks.

use openraft::alias::{SnapshotMetaOf, VoteOf};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use plimsoll_model::Level;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::io;

use super::door::Seat;
use super::incarnation::{Incarnation, IncarnationClaim};
use super::types::{
    Ballot, Blob, ENTRY_HEADER, Entry, Header, Mark, Types, decode_entry, encode_entry,
};
use crate::engine::ServerId;
use crate::log::MAX_ENTRY;

/// The form this build writes. It is raised with the level, and then written from that level on.
const VERSION: u8 = 4;

/// The forms it reads.
const READ: std::ops::RangeInclusive<u8> = 4..=VERSION;

/// The newest term and the last index that are believed. What adds to them must not overflow, and no cell gets this far: at
/// a million elections a second it would take a hundred thousand years.
pub(crate) const MAX_NUMBER: u64 = 1 << 62;

/// The most entries in one message: many times what openraft puts into one. Without a bound, a message of empty entries
/// would take fifty times its size in memory.
const MAX_APPENDED: usize = 4_096;

/// The most bytes that what a snapshot holds besides the state may have: its members, of which there are a few.
const MAX_HEADER: usize = 1 << 20;

/// How long an entry can be on its way, before the receiver seals it: as its log takes it afterwards.
const ENTRY_SIZES: std::ops::RangeInclusive<usize> =
    ENTRY_HEADER..=MAX_ENTRY - plimsoll_seal::OVERHEAD;

/// Whom a message is for, and of which life of the cell its sender is. An address may have passed to another server, and
/// a server may come back from before a recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) to: ServerId,
    pub(crate) of: Incarnation,
    /// The cell's level as the sender knows it. A server that cannot read that much takes nothing.
    pub(crate) level: Level,
    /// The authority's word on whom the sender speaks for; none where it does not hold the authority's key yet.
    pub(crate) seat: Option<Seat>,
}

/// What a request begins with, whatever its kind: every kind has its ballot first.
#[derive(Debug, Deserialize)]
pub(crate) struct Opening {
    pub(crate) envelope: Envelope,
    _kind: u32,
    pub(crate) ballot: Ballot,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RaftRequest {
    Append(Append),
    Vote(VoteCall),
    /// Would you vote for me? Nothing is written down.
    PreVote(VoteCall),
    Snapshot(SnapshotPiece),
    TakeOver(TakeOver),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Append {
    vote: Ballot,
    previous: Option<Mark>,
    committed: Option<Mark>,
    first: u64,
    #[serde(deserialize_with = "bounded")]
    entries: Vec<Blob>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct VoteCall {
    vote: Ballot,
    last: Option<Mark>,
    by_transfer: bool,
}

/// A part of a snapshot; parts come in order, and the last one makes the whole.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotPiece {
    pub(crate) vote: Ballot,
    /// An encoded [`Header`].
    pub(crate) header: Blob,
    pub(crate) offset: u64,
    pub(crate) total: u64,
    pub(crate) bytes: Blob,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TakeOver {
    from: Ballot,
    to: ServerId,
    last: Option<Mark>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RaftResponse {
    Append(AppendReply),
    Vote {
        vote: Ballot,
        granted: bool,
        last: Option<Mark>,
    },
    /// More of the snapshot is awaited.
    More,
    Snapshot {
        vote: Ballot,
    },
    TakeOver {
        refused: Option<String>,
    },
    Refused(String),
    /// The cell was recovered without the one who asks.
    Superseded(IncarnationClaim),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AppendReply {
    All,
    Through(Option<Mark>),
    Conflict,
    HigherVote(Ballot),
}

pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let bytes = vec![VERSION];
    postcard::to_extend(message, bytes).expect("every message can be written")
}

/// The beginning of a message, or all of it: what follows is not looked at.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    match bytes.split_first() {
        Some((version, body)) if READ.contains(version) => postcard::from_bytes(body)
            .map_err(|error| wrong(format!("cannot decode the message ({error})"))),
        Some((version, _)) => Err(wrong(format!(
            "the message is of version {version}, this server speaks {VERSION}; run the same plimsoll on both"
        ))),
        None => Err(wrong("the message is empty".to_owned())),
    }
}

fn wrong(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// As many entries as one message may have, each of a size that the log takes.
fn bounded<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<Blob>, D::Error> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<Blob>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX_APPENDED} entries")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Vec<Blob>, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = source.next_element::<Blob>()? {
                if entries.len() == MAX_APPENDED {
                    return Err(serde::de::Error::invalid_length(MAX_APPENDED + 1, &self));
                }
                if !ENTRY_SIZES.contains(&entry.0.len()) {
                    let found = serde::de::Unexpected::Other("an entry of an unknown size");
                    return Err(serde::de::Error::invalid_value(found, &self));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    source.deserialize_seq(Entries)
}

/// Whether a place in the log can be one that this ballot's server has seen.
fn check_mark(mark: Option<Mark>, ballot: Ballot) -> io::Result<()> {
    match mark {
        Some(mark) if mark.term > ballot.term => Err(wrong(format!(
            "it names an entry of term {}, and is itself of term {}",
            mark.term, ballot.term
        ))),
        Some(mark) if mark.index >= MAX_NUMBER => {
            Err(wrong(format!("it names entry {}, which no log has", mark.index)))
        }
        _ => Ok(()),
    }
}

fn check_ballot(ballot: Ballot, must_have_won: bool) -> io::Result<()> {
    if ballot.term >= MAX_NUMBER {
        return Err(wrong(format!("it is of term {}, which no cell reaches", ballot.term)));
    }
    if ballot.won != must_have_won {
        let text =
            if ballot.won { "who has won asks for no votes" } else { "only a leader says this" };
        return Err(wrong(text));
    }
    Ok(())
}

impl RaftRequest {
    /// Whether only who leads, or believes so, says this.
    pub(crate) fn is_leaders(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Snapshot(_) | Self::TakeOver(_))
    }

    /// Whether a server could have sent this, whatever the receiver's log holds. What is in entries and in a snapshot is
    /// checked where they are decoded.
    pub(crate) fn check(&self) -> io::Result<()> {
        let (ballot, marks) = match self {
            Self::Append(append) => (append.vote, [append.previous, append.committed]),
            Self::Vote(call) | Self::PreVote(call) => (call.vote, [call.last, None]),
            Self::Snapshot(piece) => (piece.vote, [None, None]),
            Self::TakeOver(call) => (call.from, [call.last, None]),
        };
        check_ballot(ballot, self.is_leaders())?;
        marks.into_iter().try_for_each(|mark| check_mark(mark, ballot))
    }
}

impl RaftResponse {
    /// Whether a server could answer this.
    pub(crate) fn check(&self) -> io::Result<()> {
        let (ballot, mark) = match self {
            Self::Vote { vote, last, .. } => (Some(*vote), *last),
            Self::Snapshot { vote } | Self::Append(AppendReply::HigherVote(vote)) => {
                (Some(*vote), None)
            }
            Self::Append(AppendReply::Through(last)) => (None, *last),
            _ => (None, None),
        };
        let terms = ballot.map(|ballot| ballot.term).into_iter().chain(mark.map(|mark| mark.term));
        let mut numbers = terms.chain(mark.map(|mark| mark.index));
        match numbers.find(|number| *number >= MAX_NUMBER) {
            Some(number) => Err(wrong(format!("the answer names {number}, which no cell reaches"))),
            None => Ok(()),
        }
    }
}

impl Append {
    pub(crate) fn new(request: &AppendEntriesRequest<Types>) -> io::Result<Self> {
        let entries = request.entries.iter();
        let entries: io::Result<Vec<Blob>> =
            entries.map(|entry| Ok(Blob(encode_entry(entry, None)?))).collect();
        Ok(Self {
            vote: Ballot::from(&request.vote),
            previous: request.prev_log_id.as_ref().map(Mark::from),
            committed: request.leader_commit.as_ref().map(Mark::from),
            first: request.entries.first().map_or(0, |entry| entry.log_id.index),
            entries: entries?,
        })
    }

    /// The entries follow the one before them, and terms never sink along a log.
    pub(crate) fn into_request(self) -> io::Result<AppendEntriesRequest<Types>> {
        let follows = self.previous.map_or(0, |mark| mark.index + 1);
        if !self.entries.is_empty() && self.first != follows {
            return Err(wrong(format!("entry {} does not follow {follows}", self.first)));
        }
        let numbered = (self.first..).zip(&self.entries);
        let entries: io::Result<Vec<Entry>> =
            numbered.map(|(index, blob)| Ok(decode_entry(index, &blob.0)?.0)).collect();
        let entries = entries?;
        let mut newest = self.previous.map_or(0, |mark| mark.term);
        for entry in &entries {
            let mark = Mark::from(&entry.log_id);
            check_mark(Some(mark), self.vote)?;
            if mark.term < newest {
                let (index, term) = (mark.index, mark.term);
                return Err(wrong(format!("entry {index} of term {term} follows one of {newest}")));
            }
            newest = mark.term;
        }
        Ok(AppendEntriesRequest {
            vote: self.vote.into(),
            prev_log_id: self.previous.map(Into::into),
            leader_commit: self.committed.map(Into::into),
            entries,
        })
    }
}

impl From<AppendEntriesResponse<Types>> for AppendReply {
    fn from(response: AppendEntriesResponse<Types>) -> Self {
        match response {
            AppendEntriesResponse::Success => Self::All,
            AppendEntriesResponse::PartialSuccess(last) => {
                Self::Through(last.as_ref().map(Mark::from))
            }
            AppendEntriesResponse::Conflict => Self::Conflict,
            AppendEntriesResponse::HigherVote(vote) => Self::HigherVote(Ballot::from(&vote)),
        }
    }
}

impl From<AppendReply> for AppendEntriesResponse<Types> {
    fn from(appended: AppendReply) -> Self {
        match appended {
            AppendReply::All => Self::Success,
            AppendReply::Through(last) => Self::PartialSuccess(last.map(Into::into)),
            AppendReply::Conflict => Self::Conflict,
            AppendReply::HigherVote(vote) => Self::HigherVote(vote.into()),
        }
    }
}

impl From<&VoteRequest<Types>> for VoteCall {
    fn from(request: &VoteRequest<Types>) -> Self {
        Self {
            vote: Ballot::from(&request.vote),
            last: request.last_log_id.as_ref().map(Mark::from),
            by_transfer: request.leadership_transfer,
        }
    }
}

impl From<VoteCall> for VoteRequest<Types> {
    fn from(call: VoteCall) -> Self {
        Self {
            leadership_transfer: call.by_transfer,
            ..Self::new(call.vote.into(), call.last.map(Into::into))
        }
    }
}

impl From<VoteResponse<Types>> for RaftResponse {
    fn from(response: VoteResponse<Types>) -> Self {
        Self::Vote {
            vote: Ballot::from(&response.vote),
            granted: response.vote_granted,
            last: response.last_log_id.as_ref().map(Mark::from),
        }
    }
}

impl From<&TransferLeaderRequest<Types>> for TakeOver {
    fn from(request: &TransferLeaderRequest<Types>) -> Self {
        Self {
            from: Ballot::from(request.from_leader()),
            to: *request.to_node_id(),
            last: request.last_log_id().map(Mark::from),
        }
    }
}

impl From<TakeOver> for TransferLeaderRequest<Types> {
    fn from(call: TakeOver) -> Self {
        Self::new(call.from.into(), call.to, call.last.map(Into::into))
    }
}

impl SnapshotPiece {
    pub(crate) fn vote(&self) -> VoteOf<Types> {
        self.vote.into()
    }

    /// What the snapshot is of.
    pub(crate) fn header(&self) -> io::Result<Header> {
        if self.header.0.len() > MAX_HEADER {
            return Err(wrong("the snapshot's header is too large"));
        }
        let header: Header = postcard::from_bytes(&self.header.0)
            .map_err(|error| wrong(format!("cannot decode the snapshot's header ({error})")))?;
        check_mark(header.last, self.vote)?;
        if header.last.is_none() || header.roster_at > header.last {
            return Err(wrong("the snapshot is of no entry, or its members are of a later one"));
        }
        header.roster.check()?;
        Ok(header)
    }

    pub(crate) fn meta(&self) -> io::Result<SnapshotMetaOf<Types>> {
        self.header()?.meta()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_costs_memory_for_what_a_server_sends_and_no_more() {
        let vote = Ballot { term: 1, server: ServerId(1), won: true };
        let append = |count: usize, size: usize| {
            let entry = Blob(vec![0; size].into());
            let entries = vec![entry; count];
            encode(&Append { vote, previous: None, committed: None, first: 0, entries })
        };
        for (case, bytes, is_read) in [
            ("as many as there may be", append(MAX_APPENDED, ENTRY_HEADER), true),
            ("one more", append(MAX_APPENDED + 1, ENTRY_HEADER), false),
            ("a million of no size", append(1 << 20, 0), false),
            ("one that the log does not take", append(1, MAX_ENTRY + 1), false),
        ] {
            assert_eq!(decode::<Append>(&bytes).is_ok(), is_read, "{case}");
        }
    }

    #[test]
    fn a_message_that_is_not_ours_is_refused_in_words() {
        let ours = encode(&RaftResponse::More);
        assert!(decode::<RaftResponse>(&ours).is_ok());
        for (case, bytes) in [
            ("nothing", &[][..]),
            ("another version", &[1, 0]),
            ("cut", &ours[..1]),
            ("noise", &[4, 99, 3, 255, 255, 255, 255, 255]),
        ] {
            let error = decode::<RaftResponse>(bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{case}");
        }
    }
}
