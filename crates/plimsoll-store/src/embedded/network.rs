//! How servers reach each other. [`Network`] carries bytes, and is all that a transport has to be; what the bytes say
//! stays in this crate.

use std::fmt::Debug;
use std::future::Future;
use std::io::{self, Write as _};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};
use openraft::alias::{SnapshotOf, VoteOf};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use super::addresses::Addresses;
use super::door::Door;
use super::incarnation::IncarnationGuard;
use super::snapshot::{SnapshotWriter, Snapshots, StateFile};
use super::types::{Ballot, Blob, Header, Types};
use super::wire::{self, Append, RaftRequest, RaftResponse, SnapshotPiece, VoteCall};
use crate::aside::aside;
use crate::engine::{Peer, ServerId};
use crate::machine::Machine;

/// How much of a snapshot goes into one message.
const SNAPSHOT_PIECE: usize = 1 << 20;

/// The most bytes a snapshot may have: more than any state that servers hold in memory, as they do. What has arrived is on
/// disk.
pub(crate) const MAX_SNAPSHOT: u64 = 64 << 30;

pub type Sent<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send + 'a>>;

/// Carries a request to another server's [`Embedded::answer`](super::Embedded::answer), and its answer back.
///
/// It must know whom it speaks to and who speaks: both ends settle by that whether they believe what arrives.
pub trait Network: Debug + Send + Sync + 'static {
    fn send<'a>(
        &'a self,
        to: ServerId,
        peer: &'a Peer,
        request: Vec<u8>,
        within: Duration,
    ) -> Sent<'a>;
}

/// The network of a cell of one.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNetwork;

impl Network for NoNetwork {
    fn send<'a>(&'a self, _: ServerId, _: &'a Peer, _: Vec<u8>, _: Duration) -> Sent<'a> {
        Box::pin(async { Err(io::ErrorKind::NotConnected.into()) })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct PeerClientFactory {
    pub(crate) network: Arc<dyn Network>,
    pub(crate) guard: Arc<IncarnationGuard>,
    pub(crate) door: Arc<Door>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) addresses: Arc<Addresses>,
}

impl RaftNetworkFactory<Types> for PeerClientFactory {
    type Network = PeerClient;

    async fn new_client(&mut self, target: ServerId, node: &Peer) -> PeerClient {
        let (network, guard) = (Arc::clone(&self.network), Arc::clone(&self.guard));
        let (machine, addresses) = (Arc::clone(&self.machine), Arc::clone(&self.addresses));
        let door = Arc::clone(&self.door);
        addresses.note(target, node);
        PeerClient { network, guard, door, machine, addresses, target, peer: node.clone() }
    }
}

/// The way to one server.
#[derive(Debug)]
pub(crate) struct PeerClient {
    network: Arc<dyn Network>,
    guard: Arc<IncarnationGuard>,
    door: Arc<Door>,
    machine: Arc<Machine>,
    addresses: Arc<Addresses>,
    target: ServerId,
    /// Where it was when the way was made.
    peer: Peer,
}

type CallError = Unreachable<Types>;

impl PeerClient {
    async fn call(
        &self,
        request: &RaftRequest,
        within: Duration,
    ) -> Result<RaftResponse, CallError> {
        if self.guard.is_superseded() {
            return Err(CallError::new(&io::Error::other(
                "the cell was recovered without this server",
            )));
        }
        let level = self.machine.level();
        let envelope = self.guard.envelope(self.target, level, self.door.seat());
        let bytes = wire::encode(&(envelope, request));
        let found = self.addresses.of(self.target);
        let peer = found.as_ref().unwrap_or(&self.peer);
        let sending = self.network.send(self.target, peer, bytes, within);
        let answered = tokio::time::timeout(within, sending).await.map_err(io::Error::from);
        let response = answered.flatten().and_then(|bytes| {
            let response: RaftResponse = wire::decode(&bytes)?;
            response.check()?;
            Ok(response)
        });
        match response.map_err(|error| CallError::new(&error))? {
            RaftResponse::Refused(why) => Err(CallError::new(&io::Error::other(why))),
            RaftResponse::Superseded(claim) => {
                let given_up = self.guard.give_up(&claim, self.door.notary());
                let why = given_up.err().unwrap_or_else(|| io::Error::other("superseded"));
                Err(CallError::new(&why))
            }
            response => Ok(response),
        }
    }

    fn odd(&self) -> CallError {
        CallError::new(&io::Error::other(format!("unexpected response from {}", self.target)))
    }

    async fn call_vote(
        &self,
        request: &RaftRequest,
        option: &RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.call(request, option.hard_ttl()).await? {
            RaftResponse::Vote { vote, granted, last } => {
                let vote = VoteOf::<Types>::from(vote);
                Ok(VoteResponse::new(vote, last.map(Into::into), granted))
            }
            _ => Err(self.odd().into()),
        }
    }
}

impl RaftNetworkV2<Types> for PeerClient {
    type SnapshotData = StateFile;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let append = Append::new(&rpc).map_err(|error| CallError::new(&error))?;
        match self.call(&RaftRequest::Append(append), option.hard_ttl()).await? {
            RaftResponse::Append(appended) => Ok(appended.into()),
            _ => Err(self.odd().into()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.call_vote(&RaftRequest::Vote(VoteCall::from(&rpc)), &option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.call_vote(&RaftRequest::PreVote(VoteCall::from(&rpc)), &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Types>,
        snapshot: SnapshotOf<Types, StateFile>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let pieces = async {
            let header = Blob::of(&Header::from(&snapshot.meta));
            let state = snapshot.snapshot;
            let mut offset = 0;
            loop {
                let bytes = aside(|| state.piece(offset, SNAPSHOT_PIECE));
                let bytes = bytes.map_err(|error| CallError::new(&error))?;
                let end = offset + bytes.len() as u64;
                let piece = SnapshotPiece {
                    vote: Ballot::from(&vote),
                    header: header.clone(),
                    offset,
                    total: state.length(),
                    bytes: Blob(bytes.into()),
                };
                match self.call(&RaftRequest::Snapshot(piece), option.hard_ttl()).await? {
                    RaftResponse::More if end < state.length() => offset = end,
                    RaftResponse::Snapshot { vote } => {
                        return Ok(SnapshotResponse::new(vote.into()));
                    }
                    _ => return Err(self.odd().into()),
                }
            }
        };
        match future::select(pin!(pieces), pin!(cancel)).await {
            Either::Left((sent, _)) => sent,
            Either::Right((closed, _)) => Err(closed.into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        match self.call(&RaftRequest::TakeOver((&req).into()), option.hard_ttl()).await? {
            RaftResponse::TakeOver { refused: None } => Ok(Ok(())),
            RaftResponse::TakeOver { refused: Some(why) } => {
                Err(CallError::new(&io::Error::other(why)).into())
            }
            _ => Err(self.odd().into()),
        }
    }
}

/// The snapshot that is arriving: one at a time, since only one server leads.
#[derive(Debug)]
pub(crate) struct Arrivals {
    snapshots: Snapshots,
    now: Option<Arrival>,
}

#[derive(Debug)]
struct Arrival {
    vote: Ballot,
    header: Blob,
    writer: SnapshotWriter,
}

impl Arrivals {
    pub(crate) fn new(snapshots: Snapshots) -> Self {
        Self { snapshots, now: None }
    }

    /// Takes a piece, and gives the whole once it is there.
    pub(crate) fn take(&mut self, piece: &SnapshotPiece) -> io::Result<Option<StateFile>> {
        let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why.to_owned()));
        if piece.total > MAX_SNAPSHOT {
            return refuse("the snapshot is too large");
        }
        // Before any of it is kept: a snapshot that cannot be taken is not gathered either.
        let header = piece.header()?;
        let mut arrival = match self.now.take() {
            _ if piece.offset == 0 => {
                let writer = self.snapshots.begin(&header)?;
                Arrival { vote: piece.vote, header: piece.header.clone(), writer }
            }
            Some(arrival) if arrival.is_followed_by(piece) => arrival,
            _ => return refuse("snapshot chunks are out of order"),
        };
        arrival.writer.write_all(&piece.bytes.0)?;
        if arrival.writer.length() == piece.total {
            return arrival.writer.finish().map(Some);
        }
        if arrival.writer.length() > piece.total {
            return refuse("the snapshot is longer than it should be");
        }
        self.now = Some(arrival);
        Ok(None)
    }
}

impl Arrival {
    fn is_followed_by(&self, piece: &SnapshotPiece) -> bool {
        self.vote == piece.vote
            && self.header == piece.header
            && self.writer.length() == piece.offset
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_seal::Keyring;

    use super::super::types::{Mark, MembershipRecord};
    use super::*;
    use crate::disk::Disk;
    use crate::disk::sim::SimDisk;

    fn piece(offset: u64, total: u64, bytes: usize) -> SnapshotPiece {
        let vote = Ballot { term: 3, server: ServerId(1), won: true };
        let bytes = Blob(vec![7; bytes].into());
        let last = Some(Mark { term: 2, index: 9 });
        let roster = MembershipRecord::alone(ServerId(1), Peer::default());
        let header = Blob::of(&Header { last, roster_at: last, roster });
        SnapshotPiece { vote, header, offset, total, bytes }
    }

    #[test]
    fn a_snapshot_that_arrives_is_written_as_it_comes_and_what_is_given_up_is_removed() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let keys = Arc::new(Keyring::generate().unwrap());
        let snapshots = Snapshots::new(&disk, Path::new("data"), &keys);
        let mut arrivals = Arrivals::new(snapshots.clone());
        let files = || disk.list(Path::new("data")).unwrap();
        let (beyond, size) = ((1 << 30) + 5, SNAPSHOT_PIECE as u64);
        for nth in 0..3 {
            assert!(arrivals.take(&piece(nth * size, beyond, SNAPSHOT_PIECE)).unwrap().is_none());
        }
        assert_eq!(files(), ["snapshot-1.new"], "what has come of more than a gigabyte");
        assert!(arrivals.take(&piece(5 * size, beyond, 1)).is_err(), "out of order");
        assert_eq!(files(), Vec::<String>::new());
        assert!(arrivals.take(&piece(0, MAX_SNAPSHOT + 1, 1)).is_err());

        let total = 2 * size + 5;
        let of = piece(0, total, 1).header().unwrap();
        for (offset, bytes) in [(0, SNAPSHOT_PIECE), (size, SNAPSHOT_PIECE), (2 * size, 5)] {
            let whole = arrivals.take(&piece(offset, total, bytes)).unwrap();
            assert_eq!(whole.is_some(), offset + bytes as u64 == total);
            let Some(state) = whole else { continue };
            assert_eq!(state.whole().unwrap(), vec![7; usize::try_from(total).unwrap()]);
            snapshots.place(&of, &state).unwrap();
        }
        assert_eq!(files(), ["snapshot"]);
        let (header, state) = snapshots.read().unwrap().unwrap();
        assert_eq!((header, state.length()), (of, total));
        assert_eq!(state.piece(total - 3, SNAPSHOT_PIECE).unwrap(), [7; 3]);
    }

    #[test]
    fn a_snapshot_that_was_overtaken_by_a_newer_one_is_left() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let keys = Arc::new(Keyring::generate().unwrap());
        let snapshots = Snapshots::new(&disk, Path::new("data"), &keys);
        let of = |index| Header { last: Some(Mark { term: 1, index }), ..Header::default() };
        let write =
            |index, byte: u8| snapshots.write(&of(index), |to| to.write_all(&[byte; 9])).unwrap();
        let (older, newer) = (write(5, 1), write(8, 2));
        snapshots.place(&of(8), &newer).unwrap();
        snapshots.place(&of(5), &older).unwrap();
        assert_eq!(older.whole().unwrap(), [1; 9], "who has it reads it still");
        drop((older, newer));
        assert_eq!(disk.list(Path::new("data")).unwrap(), ["snapshot"]);
        let (header, state) = snapshots.read().unwrap().unwrap();
        assert_eq!((header, state.whole().unwrap()), (of(8), vec![2; 9]));
        // What a process that was killed had begun.
        drop(disk.create(Path::new("data/snapshot-7.new")).unwrap());
        snapshots.clear().unwrap();
        assert_eq!(disk.list(Path::new("data")).unwrap(), ["snapshot"]);
    }
}
