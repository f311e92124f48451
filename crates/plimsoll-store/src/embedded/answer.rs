//! The other end of [`Network`](super::network::Network): what this server says when another one asks.

use std::io;

use openraft::alias::SnapshotOf;

use super::Embedded;
use super::types::{Ballot, Types};
use super::wire::{self, Appended, Envelope, Request, Response, SnapshotPiece};

impl Embedded {
    /// Answers a request of another server. Whoever calls this has made sure that it is one.
    pub async fn answer(&self, request: &[u8]) -> Vec<u8> {
        self.answer_if(request, |_| true).await
    }

    /// Answers a node of the cell of which this server does not know that it is a server. A leader is heard all the same:
    /// this server may be too far behind to know it yet. But nobody votes for a stranger, who may have been let go.
    pub async fn answer_stranger(&self, request: &[u8]) -> Vec<u8> {
        let is_leaders =
            |request: &Request| matches!(request, Request::Append(_) | Request::Snapshot(_));
        self.answer_if(request, is_leaders).await
    }

    async fn answer_if(&self, request: &[u8], is_heard: impl Fn(&Request) -> bool) -> Vec<u8> {
        let response = match wire::decode::<(Envelope, Request)>(request) {
            Ok((envelope, request)) => match self.allegiance.admit(envelope) {
                Ok(Ok(())) if is_heard(&request) => self.respond(request).await,
                Ok(Ok(())) => Ok(Response::Refused("you are not a server of this cell".to_owned())),
                Ok(Err(response)) => Ok(response),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let response = response.unwrap_or_else(|error| Response::Refused(error.to_string()));
        wire::encode(&response)
    }

    async fn respond(&self, request: Request) -> io::Result<Response> {
        match request {
            Request::Append(append) => {
                let appended = self.raft.append_entries(append.into_request()?).await;
                let appended = Appended::from(appended.map_err(io::Error::other)?);
                if !matches!(appended, Appended::HigherVote(_)) {
                    self.seat.heard();
                }
                Ok(Response::Append(appended))
            }
            Request::Vote(call) => {
                Ok(self.raft.vote(call.into()).await.map_err(io::Error::other)?.into())
            }
            Request::PreVote(call) => {
                Ok(self.raft.pre_vote(call.into()).await.map_err(io::Error::other)?.into())
            }
            Request::Snapshot(piece) => self.take_piece(piece).await,
            Request::TakeOver(call) => {
                let taken = self.raft.handle_transfer_leader(call.into()).await;
                let refused = taken.map_err(io::Error::other)?.err().map(|error| error.to_string());
                Ok(Response::TakeOver { refused })
            }
        }
    }

    async fn take_piece(&self, piece: SnapshotPiece) -> io::Result<Response> {
        let whole = {
            let mut arrivals = self.arrivals.lock().expect("no holder of the arrivals panics");
            arrivals.take(&piece)?
        };
        let Some(snapshot) = whole else { return Ok(Response::More) };
        let snapshot = SnapshotOf::<Types, _> { meta: piece.meta()?, snapshot };
        let installed = self.raft.install_full_snapshot(piece.vote(), snapshot).await;
        let vote = installed.map_err(io::Error::other)?.vote;
        Ok(Response::Snapshot { vote: Ballot::from(&vote) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use openraft::raft::VoteRequest;

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::embedded::{Config, Timing};
    use crate::engine::ServerId;

    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_votes_for_a_stranger() {
        let config = Config {
            timing: Some(Timing::from_append(Duration::from_millis(1))),
            disk: Arc::new(SimDisk::new()),
            ..Config::alone("data", "test".parse().unwrap())
        };
        let engine = Embedded::start(config).await.unwrap();
        let vote = Ballot { term: 99, server: ServerId(9), won: false };
        let call = || VoteRequest::<Types>::new(vote.into(), None);
        let envelope = engine.allegiance.envelope(engine.id());
        for request in [Request::Vote((&call()).into()), Request::PreVote((&call()).into())] {
            let asked = wire::encode(&(envelope, &request));
            let said = wire::decode::<Response>(&engine.answer_stranger(&asked).await).unwrap();
            assert!(matches!(said, Response::Refused(_)), "{said:?}");
            let said = wire::decode::<Response>(&engine.answer(&asked).await).unwrap();
            assert!(matches!(said, Response::Vote { .. }), "{said:?}");
        }
        engine.raft.shutdown().await.unwrap();
    }
}
