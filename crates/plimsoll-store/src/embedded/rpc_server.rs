//! The other end of [`Network`](super::network::Network): what this server says when another one asks.

use std::io;

use openraft::alias::SnapshotOf;
use openraft::async_runtime::WatchReceiver;
use plimsoll_model::level::{VERSION, outdated};

use super::Embedded;
use super::door::Sender;
use super::incarnation::signer;
use super::types::{Ballot, Mark, Types};
use super::wire::{self, AppendReply, Opening, RaftRequest, RaftResponse, SnapshotPiece};
use crate::aside::aside;
use crate::level;

impl Embedded {
    /// Answers a request of another server. Its carrier says who sent it, and must be certain; whether that is a server, and
    /// the one it speaks for, is settled here before anything else of the message is looked at. A refusal changes nothing.
    pub async fn answer(&self, sender: &Sender, request: &[u8]) -> Vec<u8> {
        let response = match self.hear(sender, request) {
            Ok(request) => self.respond(request).await,
            Err(refused) => refused,
        };
        let response = response.unwrap_or_else(|error| RaftResponse::Refused(error.to_string()));
        wire::encode(&response)
    }

    /// Answers a server that is not of the cell any more: whether its cell goes on without it, and nothing else.
    pub fn turn_away(&self, request: &[u8]) -> Vec<u8> {
        let admitted =
            wire::decode::<Opening>(request).map(|opening| self.is_of_its_life(&opening));
        let response = match admitted {
            Ok(Err(response)) => response,
            Ok(Ok(())) => RaftResponse::Refused("this server was removed from the cell".to_owned()),
            Err(error) => RaftResponse::Refused(error.to_string()),
        };
        wire::encode(&response)
    }

    fn is_of_its_life(&self, opening: &Opening) -> Result<(), RaftResponse> {
        let sign = signer(self.door.notary(), &self.machine);
        self.guard.admit(opening.envelope.to, opening.envelope.of, sign)
    }

    /// The request, if it is to be heard; else what is said to it.
    fn hear(
        &self,
        sender: &Sender,
        request: &[u8],
    ) -> Result<RaftRequest, io::Result<RaftResponse>> {
        let opening: Opening = wire::decode(request).map_err(Err)?;
        self.is_of_its_life(&opening).map_err(Ok)?;
        let Opening { envelope, ballot, .. } = opening;
        let admitted = self.door.admit(sender, ballot.server, envelope.seat.as_ref());
        admitted.map_err(|why| Ok(RaftResponse::Refused(why)))?;
        let (_, request): (wire::Envelope, RaftRequest) = wire::decode(request).map_err(Err)?;
        request.check().map_err(Err)?;
        if !envelope.level.is_readable() {
            // Nothing of it must get into the log: this server could not go on, nor start again. That the cell speaks
            // this level is for its leader to say: a candidate speaks for nobody yet.
            if request.is_leaders() {
                self.machine.announce(envelope.level);
            }
            let why = outdated(VERSION, envelope.level);
            return Err(Err(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        Ok(request)
    }

    /// What is committed stays: an entry up to the last of these is of its term or an earlier one, an entry after it of its
    /// term or a later one. Whoever says otherwise is not of this log.
    fn check_committed(&self, marks: impl IntoIterator<Item = Mark>) -> io::Result<()> {
        let committed = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            metrics.last_applied.as_ref().max(metrics.local_committed.as_ref()).map(Mark::from)
        };
        let Some(committed) = committed else { return Ok(()) };
        let fits = |mark: &Mark| {
            let is_after = mark.index > committed.index;
            if is_after { mark.term >= committed.term } else { mark.term <= committed.term }
        };
        match marks.into_iter().find(|mark| !fits(mark)) {
            None => Ok(()),
            Some(Mark { term, index }) => {
                let text = format!("entry {index} of term {term} contradicts what is committed");
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
        }
    }

    async fn respond(&self, request: RaftRequest) -> io::Result<RaftResponse> {
        match request {
            RaftRequest::Append(append) => {
                let request = append.into_request()?;
                let entries = request.entries.iter().map(|entry| Mark::from(&entry.log_id));
                let previous = request.prev_log_id.as_ref().map(Mark::from);
                self.check_committed(previous.into_iter().chain(entries))?;
                let appended = self.raft.append_entries(request).await;
                let appended = AppendReply::from(appended.map_err(io::Error::other)?);
                if !matches!(appended, AppendReply::HigherVote(_)) {
                    self.tracker.heard();
                    self.machine.keep_up();
                }
                Ok(RaftResponse::Append(appended))
            }
            RaftRequest::Vote(call) => {
                Ok(self.raft.vote(call.into()).await.map_err(io::Error::other)?.into())
            }
            RaftRequest::PreVote(call) => {
                Ok(self.raft.pre_vote(call.into()).await.map_err(io::Error::other)?.into())
            }
            RaftRequest::Snapshot(piece) => self.take_piece(piece).await,
            RaftRequest::TakeOver(call) => {
                let taken = self.raft.handle_transfer_leader(call.into()).await;
                let refused = taken.map_err(io::Error::other)?.err().map(|error| error.to_string());
                Ok(RaftResponse::TakeOver { refused })
            }
        }
    }

    async fn take_piece(&self, piece: SnapshotPiece) -> io::Result<RaftResponse> {
        let whole = aside(|| {
            let mut arrivals = self.arrivals.lock().expect("no holder of the arrivals panics");
            arrivals.take(&piece)
        })?;
        let Some(snapshot) = whole else { return Ok(RaftResponse::More) };
        self.check_committed(piece.header()?.last)?;
        // A server ends that cannot read what it has installed, so it is read before.
        if let Err(why) = aside(|| snapshot.decode())? {
            if let level::Undecoded::Newer(level) = why {
                self.machine.announce(level);
            }
            let text = format!("the snapshot cannot be read: {why}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let snapshot = SnapshotOf::<Types, _> { meta: piece.meta()?, snapshot };
        let installed = self.raft.install_full_snapshot(piece.vote(), snapshot).await;
        let vote = installed.map_err(io::Error::other)?.vote;
        Ok(RaftResponse::Snapshot { vote: Ballot::from(&vote) })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use openraft::raft::AppendEntriesRequest;
    use openraft::{EntryPayload, LogId};
    use plimsoll_model::{Author, CellId, Command, Level, Term, Timestamp, Writer};

    use super::super::types::{Entry, MembershipRecord, Proposal};
    use super::super::wire::Append;
    use super::super::{EmbeddedConfig, Founding, Timing};
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::engine::{Engine, Error, Peer, ServerId};

    const NEXT: Level = Level(Level::BUILD.0 + 1);
    const LEADER: ServerId = ServerId(1);
    const US: ServerId = ServerId(2);

    async fn joiner() -> Arc<Embedded> {
        let config = EmbeddedConfig::alone(Path::new("data"), CellId::new("test").unwrap());
        let started = Embedded::start(EmbeddedConfig {
            server: US,
            founding: Founding::Join,
            disk: Arc::new(SimDisk::new()),
            timing: Some(Timing::from_append(Duration::from_millis(1))),
            ..config
        });
        started.await.unwrap()
    }

    fn command() -> Command {
        Command::new(Timestamp(1), Term(1), Author::new(Writer::Operator, "ann"), Vec::new())
    }

    /// The leader's first two entries, who it is and a command, both committed.
    async fn hear(server: &Embedded, level: Level, command: &[u8]) -> RaftResponse {
        let at = |index| LogId::new_term_index(1, index);
        let roster = MembershipRecord::alone(LEADER, Peer::default()).try_into().unwrap();
        let entries = vec![
            Entry { log_id: at(0), payload: EntryPayload::Membership(roster) },
            Entry { log_id: at(1), payload: EntryPayload::Normal(Proposal(Arc::from(command))) },
        ];
        let vote = Ballot { term: 1, server: LEADER, won: true }.into();
        let request =
            AppendEntriesRequest { vote, prev_log_id: None, leader_commit: Some(at(1)), entries };
        let envelope = server.guard.envelope(US, level, None);
        let message = (envelope, RaftRequest::Append(Append::new(&request).unwrap()));
        let from = Sender::Server(LEADER);
        wire::decode(&server.answer(&from, &wire::encode(&message)).await).unwrap()
    }

    #[tokio::test]
    async fn of_a_cell_that_speaks_a_newer_level_nothing_gets_into_the_log() {
        let readable = postcard::to_stdvec(&command()).unwrap();
        let server = joiner().await;
        let said = hear(&server, NEXT, &readable).await;
        let expected = outdated(VERSION, NEXT);
        assert!(matches!(&said, RaftResponse::Refused(why) if *why == expected), "{said:?}");
        assert_eq!(server.held(), 0..0);
        assert_eq!(server.log_position().outgrown, Some(NEXT));
        let error = server.propose(command()).await.unwrap_err();
        assert_eq!(error, Error::Outgrown { level: NEXT });
        // Whoever leads by what all agreed on is heard, and then the word of before counts no more.
        let said = hear(&server, Level::BUILD, &readable).await;
        assert!(matches!(said, RaftResponse::Append(AppendReply::All)), "{said:?}");
        assert_eq!(server.log_position().outgrown, None);
        server.shutdown().await.unwrap();

        // It was for the level alone.
        let server = joiner().await;
        let said = hear(&server, Level::BUILD, &readable).await;
        assert!(matches!(said, RaftResponse::Append(AppendReply::All)), "{said:?}");
        server.machine().applied().wait_for(|applied| *applied == 1).await.unwrap();
        server.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_holds_what_it_cannot_read_ends_and_is_known_to_be_too_old() {
        let mut newer = postcard::to_stdvec(&NEXT).unwrap();
        newer.extend_from_slice(b"in another form");
        let server = joiner().await;
        hear(&server, Level::BUILD, &newer).await;
        assert_eq!(server.broken().await, Error::Outgrown { level: NEXT });
        assert_eq!(server.trouble(), Some(Error::Outgrown { level: NEXT }));
        assert_eq!(*server.machine().applied().borrow(), 0, "nothing is passed over");
    }

    #[tokio::test]
    async fn what_some_server_cannot_read_is_not_written() {
        let config = EmbeddedConfig::alone(Path::new("data"), CellId::new("test").unwrap());
        let disk = Arc::new(SimDisk::new());
        let server = Embedded::start(EmbeddedConfig { disk, ..config }).await.unwrap();
        let before = server.held();
        let early = server.propose(Command { level: NEXT, ..command() }).await;
        assert_eq!(early.unwrap_err(), Error::Early { needed: NEXT, cell: Level::FIRST });
        assert_eq!(server.held(), before);
        server.propose(command()).await.unwrap();
        server.shutdown().await.unwrap();
    }
}
