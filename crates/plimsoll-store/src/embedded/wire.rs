//! What servers say to each other. Every message begins with the version of this form; one that is newer, cut or
//! garbled is refused in words and changes nothing.

use openraft::alias::{SnapshotMetaOf, VoteOf};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use plimsoll_model::Level;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;

use super::incarnation::Incarnation;
use super::types::{Ballot, Blob, Header, Mark, Types, decode_entry, encode_entry};
use crate::engine::ServerId;

/// The form this build writes. It is raised with the level, and then written from that level on.
const VERSION: u8 = 3;

/// The forms it reads.
const READ: std::ops::RangeInclusive<u8> = 3..=VERSION;

/// Whom a message is for, and of which life of the cell its sender is. An address may have passed to another server, and
/// a server may come back from before a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) to: ServerId,
    pub(crate) of: Incarnation,
    /// The cell's level as the sender knows it. A server that cannot read that much takes nothing.
    pub(crate) level: Level,
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
    pub(crate) header: Header,
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
    Superseded(Incarnation),
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

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    match bytes.split_first() {
        Some((version, body)) if READ.contains(version) => postcard::from_bytes(body)
            .map_err(|error| wrong(format!("cannot decode the message ({error})"))),
        Some((version, _)) => Err(wrong(format!(
            "the message is of version {version}, this server speaks {VERSION}; run the same plimsoll on both"
        ))),
        None => Err(wrong("the message is empty".to_owned())),
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

    pub(crate) fn into_request(self) -> io::Result<AppendEntriesRequest<Types>> {
        let numbered = (self.first..).zip(&self.entries);
        let entries: io::Result<Vec<_>> =
            numbered.map(|(index, blob)| Ok(decode_entry(index, &blob.0)?.0)).collect();
        Ok(AppendEntriesRequest {
            vote: self.vote.into(),
            prev_log_id: self.previous.map(Into::into),
            leader_commit: self.committed.map(Into::into),
            entries: entries?,
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

    pub(crate) fn meta(&self) -> io::Result<SnapshotMetaOf<Types>> {
        self.header.meta()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_not_ours_is_refused_in_words() {
        let ours = encode(&RaftResponse::More);
        assert!(decode::<RaftResponse>(&ours).is_ok());
        for (case, bytes) in [
            ("nothing", &[][..]),
            ("another version", &[1, 0]),
            ("cut", &ours[..1]),
            ("noise", &[2, 99, 3, 255, 255, 255, 255, 255]),
        ] {
            let error = decode::<RaftResponse>(bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{case}");
        }
    }
}
