//! The other end of [`Network`](super::network::Network): what this server says when another one asks.

use std::io;

use openraft::alias::SnapshotOf;
use plimsoll_model::level::{VERSION, outdated};

use super::Embedded;
use super::types::{Ballot, Types};
use super::wire::{self, Appended, Envelope, Request, Response, SnapshotPiece};

impl Embedded {
    /// Answers a request of another server. Whoever calls this has made sure that it is a node of the cell. Whether it is
    /// a server, this one may be too far behind to know; it must hear a leader, and give a candidate its vote, all the
    /// same. A server that was let go gets no votes anyway: those who hear a leader give none, and its log is the shorter.
    pub async fn answer(&self, request: &[u8]) -> Vec<u8> {
        let response = match wire::decode::<(Envelope, Request)>(request) {
            Ok((envelope, request)) => match self.allegiance.admit(envelope) {
                Ok(Ok(())) if !envelope.level.is_readable() => {
                    // Nothing of it must get into the log: this server could not go on, nor start again.
                    self.machine.outgrow(envelope.level);
                    let why = outdated(VERSION, envelope.level);
                    Err(io::Error::new(io::ErrorKind::Unsupported, why))
                }
                Ok(Ok(())) => self.respond(request).await,
                Ok(Err(response)) => Ok(response),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let response = response.unwrap_or_else(|error| Response::Refused(error.to_string()));
        wire::encode(&response)
    }

    /// Answers a server that is not of the cell any more: whether its cell goes on without it, and nothing else.
    pub fn turn_away(&self, request: &[u8]) -> Vec<u8> {
        let admitted = wire::decode::<(Envelope, Request)>(request)
            .and_then(|(envelope, _)| self.allegiance.admit(envelope));
        let response = match admitted {
            Ok(Err(response)) => response,
            Ok(Ok(())) => Response::Refused("this server was removed from the cell".to_owned()),
            Err(error) => Response::Refused(error.to_string()),
        };
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
