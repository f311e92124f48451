//! Any bytes at the raft door, from a seed: noise, messages with numbers that no server sends, cut and flipped ones, from
//! strangers and from a server that has gone mad. Nothing panics, the log ends for nobody, and strangers change nothing.
//! Openraft's own assertions are on in this build, so what it takes for granted is checked too.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::{EntryPayload, LogId};
use plimsoll_fuzz::{Dice, Vigil, length, seed};
use plimsoll_model::access::Digest;
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{Author, CellId, Change, Command, Level, Term, Timestamp, Writer};
use serde::Serialize;

use super::channel::TestNotary;
use super::door::Sender;
use super::types::{Ballot, Blob, Entry, Header, Mark, MembershipRecord, Proposal, encode_entry};
use super::wire::{self, RaftResponse};
use super::{Embedded, EmbeddedConfig, Founding, Incarnation, Timing};
use crate::disk::sim::SimDisk;
use crate::engine::{Engine, Peer, ServerId};

/// How many messages one server gets: after that many of a mad one it has heard most of what it will.
const ROUND: usize = 1_000;

const US: ServerId = ServerId(2);
const LEADER: ServerId = ServerId(1);

/// Messages by chance from a seed.
struct Messages(Dice);

impl Messages {
    fn below(&mut self, end: u64) -> u64 {
        self.0.roll() % end
    }

    fn coin(&mut self) -> bool {
        self.0.coin()
    }

    /// A number as one stands in a log, or one that breaks arithmetic.
    fn number(&mut self) -> u64 {
        const EDGES: [u64; 6] =
            [0, wire::MAX_NUMBER - 1, wire::MAX_NUMBER, u64::MAX - 1, u64::MAX, 1 << 32];
        match self.below(8) {
            0 => EDGES[usize::try_from(self.below(6)).unwrap()],
            1 => self.0.roll(),
            _ => self.below(12),
        }
    }

    fn mark(&mut self) -> Option<Mark> {
        let (term, index) = (self.number(), self.number());
        (self.below(4) > 0).then_some(Mark { term, index })
    }

    fn ballot(&mut self, server: ServerId) -> Ballot {
        let server = if self.below(8) == 0 { ServerId(self.number()) } else { server };
        Ballot { term: self.number(), server, won: self.below(3) > 0 }
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.0.byte()).collect()
    }

    fn entry(&mut self) -> Blob {
        if self.below(6) == 0 {
            return Blob(self.bytes(40).into());
        }
        let payload = match self.below(4) {
            0 => EntryPayload::Blank,
            1 => {
                let roster = MembershipRecord::alone(LEADER, Peer::default());
                EntryPayload::Membership(roster.try_into().unwrap())
            }
            _ => {
                EntryPayload::Normal(Proposal(Arc::from(postcard::to_stdvec(&command()).unwrap())))
            }
        };
        let entry = Entry { log_id: LogId::new_term_index(self.number(), 0), payload };
        Blob(encode_entry(&entry, None).unwrap())
    }

    /// A message of any kind, in its right form, with any numbers.
    fn message(&mut self, sender: ServerId) -> Vec<u8> {
        let to = if self.below(16) == 0 { ServerId(self.number()) } else { US };
        let of = if self.below(16) == 0 {
            Incarnation { since: self.number(), salt: 7, is_heir: self.coin(), line: 0 }
        } else {
            Incarnation::default()
        };
        let level = if self.below(16) == 0 { Level(999) } else { Level::BUILD };
        let seat = (self.below(8) == 0).then(|| (self.number(), self.number(), self.bytes(80)));
        let envelope = (to, of, level, seat);
        let ballot = self.ballot(sender);
        match self.below(5) {
            0 => {
                let (previous, committed) = (self.mark(), self.mark());
                let follows = previous.map_or(0, |mark| mark.index.wrapping_add(1));
                let first = if self.below(8) == 0 { self.number() } else { follows };
                let count = self.below(4);
                let entries: Vec<Blob> = (0..count).map(|_| self.entry()).collect();
                encoded(&(envelope, 0_u32, (ballot, previous, committed, first, entries)))
            }
            kind @ (1 | 2) => {
                let kind = u32::try_from(kind).unwrap();
                encoded(&(envelope, kind, (ballot, self.mark(), self.coin())))
            }
            3 => {
                let roster = match self.below(3) {
                    0 => MembershipRecord::default(),
                    _ => MembershipRecord::alone(LEADER, Peer::default()),
                };
                let header = Header { last: self.mark(), roster_at: self.mark(), roster };
                let header =
                    if self.coin() { Blob::of(&header) } else { Blob(self.bytes(60).into()) };
                let bytes = self.bytes(200);
                let total = if self.coin() { bytes.len() as u64 } else { self.number() };
                let offset = if self.coin() { 0 } else { self.number() };
                encoded(&(envelope, 3_u32, (ballot, header, offset, total, Blob(bytes.into()))))
            }
            _ => encoded(&(envelope, 4_u32, (ballot, ServerId(self.number()), self.mark()))),
        }
    }

    /// The message, or what is left of it after a bad line.
    fn garbled(&mut self, mut message: Vec<u8>) -> Vec<u8> {
        match self.below(6) {
            0 => message.truncate(usize::try_from(self.below(message.len() as u64)).unwrap()),
            1 => {
                let at = usize::try_from(self.below(message.len() as u64)).unwrap();
                message[at] ^= 1 << self.below(8);
            }
            2 => message = self.bytes(120),
            _ => {}
        }
        message
    }
}

fn encoded(message: &impl Serialize) -> Vec<u8> {
    wire::encode(message)
}

fn command() -> Command {
    let by = Author::new(Writer::Operator, "ann");
    let change = Change::PutNode { node: node_id("ash"), facts: cpus(4) };
    Command::new(Timestamp(1), Term(1), by, vec![change.free()])
}

async fn server() -> Arc<Embedded> {
    let config = EmbeddedConfig::alone(Path::new("data"), CellId::new("test").unwrap());
    let started = Embedded::start(EmbeddedConfig {
        server: US,
        founding: Founding::Join,
        notary: Arc::new(TestNotary::new("test", "birch")),
        disk: Arc::new(SimDisk::new()),
        timing: Some(Timing::from_append(Duration::from_millis(1))),
        ..config
    });
    started.await.unwrap()
}

#[tokio::test]
async fn no_broken_message_of_a_stranger_changes_anything() {
    let server = server().await;
    let vigil = Vigil::begin("raft of a stranger");
    let mut messages = Messages(Dice::new(seed()));
    let stranger = Sender::Node { node: node_id("mallory"), key: Digest([9; 32]) };
    let looks = || {
        let metrics = server.raft.metrics();
        let metrics = openraft::async_runtime::WatchReceiver::borrow_watched(&metrics);
        (metrics.current_term, metrics.last_log_index, server.log_position().outgrown)
    };
    let (before, begun, mut count) = (looks(), Instant::now(), 0);
    while begun.elapsed() < length(2) {
        let speaks_for = ServerId(messages.below(4));
        let message = messages.message(speaks_for);
        let message = messages.garbled(message);
        let answer = server.answer(&stranger, &message).await;
        let said: RaftResponse = wire::decode(&answer).unwrap();
        assert!(matches!(said, RaftResponse::Refused(_)), "{count}: {said:?}");
        let turned: RaftResponse = wire::decode(&server.turn_away(&message)).unwrap();
        assert!(matches!(turned, RaftResponse::Refused(_)), "{count}: {turned:?}");
        count += 1;
    }
    assert_eq!(looks(), before);
    assert!(!server.log_position().is_superseded && server.trouble().is_none());
    server.shutdown().await.unwrap();
    vigil.end(count);
}

/// With seeds of its own and not by time: a server that breaks the rules of the log with the right keys can have openraft apply
/// less than it says, which a build with assertions notices (seeds 18 and 103). What such a server may do is not promised.
#[tokio::test]
async fn a_server_gone_mad_ends_no_other() {
    for seed in 1..=6 {
        let server = server().await;
        let mut messages = Messages(Dice::new(seed));
        let mut taken = 0;
        for nth in 0..ROUND {
            let message = messages.message(LEADER);
            let message = messages.garbled(message);
            // It may wait for what its own commands never complete, and so may we.
            let answering = server.answer(&Sender::Server(LEADER), &message);
            let answered = tokio::time::timeout(Duration::from_secs(20), answering).await;
            let answer = answered.unwrap_or_else(|_| panic!("seed {seed}, {nth}: no answer"));
            let said: RaftResponse = wire::decode(&answer).unwrap();
            taken += u32::from(!matches!(said, RaftResponse::Refused(_)));
            assert_eq!(server.trouble(), None, "seed {seed}, message {nth}: {said:?}");
        }
        assert!(taken > 20, "seed {seed}: only {taken} messages were heard, which tests little");
        assert!(!server.log_position().is_superseded);
        server.shutdown().await.unwrap();
    }
}
