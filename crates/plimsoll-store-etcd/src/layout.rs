//! What is stored where, and how it is written.
//!
//! ```text
//! <prefix>cell                              whose prefix it is
//! <prefix><role>/entry/<index>                 the log: a term and a command
//! <prefix><role>/leader                        who leads, under its lease
//! <prefix><role>/lost                          who has applied entries that are not here any more
//! <prefix><role>/members/<server>              who is there, each under its lease
//! <prefix><role>/part/<index>/<term>/<nth>     commands that are too large for one key
//! <prefix><role>/snapshot                      which snapshot holds
//! <prefix><role>/state/<index>-<term>/<nth>    and its parts
//! ```
//!
//! Commands and states are sealed, see [`seal`](crate::seal); the rest is for people to read.
//!
//! Numbers have leading zeros, so that keys sort as they count. A standby watches from the entries to the members, a
//! leader from its own key to the members: in both cases that is one range without anything else in it.

use std::hash::{BuildHasher as _, Hasher as _};

use bytes::Bytes;
use plimsoll_etcd::Keys;
use plimsoll_model::CellId;
use plimsoll_seal::OpenError;
use plimsoll_store::{Peer, ServerId};
use serde::{Deserialize, Serialize};

use crate::migrate::{Moved, Reached};
use crate::seal::ValueSeal;

/// The newest form of what is stored that this build knows.
pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Clone)]
pub(crate) struct Layout {
    prefix: String,
    base: String,
}

/// What a key that is watched holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParsedKey {
    Entry(u64),
    Leader,
    Lost,
    Member(ServerId),
    Unknown,
}

impl Layout {
    /// The prefix ends with a slash.
    pub(crate) fn new(prefix: &str, role: &str) -> Self {
        Self { prefix: prefix.to_owned(), base: format!("{prefix}{role}/") }
    }

    fn key(&self, rest: impl std::fmt::Display) -> Bytes {
        format!("{}{rest}", self.base).into()
    }

    pub(crate) fn cell_id(&self) -> Bytes {
        format!("{}cell", self.prefix).into()
    }

    pub(crate) fn leader(&self) -> Bytes {
        self.key("leader")
    }

    pub(crate) fn lost(&self) -> Bytes {
        self.key("lost")
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn member(&self, server: ServerId) -> Bytes {
        self.key(format_args!("members/{:020}", server.0))
    }

    pub(crate) fn entry(&self, index: u64) -> Bytes {
        self.key(format_args!("entry/{index:020}"))
    }

    /// Entries from one to before another.
    pub(crate) fn entries(&self, from: u64, to: u64) -> Keys {
        Keys::between(self.entry(from), self.entry(to))
    }

    /// The first byte after a slash is a zero's.
    fn after_members(&self) -> Bytes {
        self.key("members0")
    }

    pub(crate) fn all_entries(&self) -> Keys {
        Keys::prefix(self.key("entry/"))
    }

    pub(crate) fn standby_watches(&self) -> Keys {
        Keys::between(self.key("entry/"), self.after_members())
    }

    pub(crate) fn leader_watches(&self) -> Keys {
        Keys::between(self.leader(), self.after_members())
    }

    /// The entries from one on, the leader and the members: all that a standby needs to be up to date.
    pub(crate) fn news(&self, from: u64) -> Keys {
        Keys::between(self.entry(from), self.after_members())
    }

    pub(crate) fn part(&self, index: u64, term: i64, nth: usize) -> Bytes {
        self.key(format_args!("part/{index:020}/{term:020}/{nth:06}"))
    }

    pub(crate) fn parts(&self, index: u64, term: u64) -> Keys {
        Keys::prefix(self.key(format_args!("part/{index:020}/{term:020}/")))
    }

    /// The parts of all entries from one to before another.
    pub(crate) fn parts_between(&self, from: u64, to: u64) -> Keys {
        let at = |index: u64| self.key(format_args!("part/{index:020}/"));
        Keys::between(at(from), at(to))
    }

    pub(crate) fn snapshot(&self) -> Bytes {
        self.key("snapshot")
    }

    pub(crate) fn state_part(&self, index: u64, term: i64, nth: usize) -> Bytes {
        self.key(format_args!("state/{index:020}-{term:020}/{nth:06}"))
    }

    pub(crate) fn state(&self, index: u64, term: i64) -> Keys {
        Keys::prefix(self.key(format_args!("state/{index:020}-{term:020}/")))
    }

    /// The parts of all snapshots.
    pub(crate) fn states(&self) -> Keys {
        Keys::prefix(self.key("state/"))
    }

    pub(crate) fn is_state(&self, key: &[u8]) -> bool {
        key.starts_with(&self.key("state/"))
    }

    /// The parts of every other snapshot.
    pub(crate) fn other_states(&self, index: u64, term: i64) -> [Keys; 2] {
        let this = self.key(format_args!("state/{index:020}-{term:020}/"));
        let after = self.key(format_args!("state/{index:020}-{term:020}0"));
        [Keys::between(self.key("state/"), this), Keys::between(after, self.key("state0"))]
    }

    pub(crate) fn thing(&self, key: &[u8]) -> ParsedKey {
        let rest =
            key.strip_prefix(self.base.as_bytes()).and_then(|rest| str::from_utf8(rest).ok());
        match rest.map(|rest| rest.split_once('/').unwrap_or((rest, ""))) {
            Some(("leader", "")) => ParsedKey::Leader,
            Some(("lost", "")) => ParsedKey::Lost,
            Some(("entry", index)) => index.parse().map_or(ParsedKey::Unknown, ParsedKey::Entry),
            Some(("members", server)) => server
                .parse()
                .map_or(ParsedKey::Unknown, |server| ParsedKey::Member(ServerId(server))),
            _ => ParsedKey::Unknown,
        }
    }
}

/// Whose prefix it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) format: u32,
    pub(crate) cell_id: CellId,
    /// Which key of the cell its values are sealed with.
    pub(crate) seal: String,
    /// The last term that the cell had before it came here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) terms_after: u64,
    /// How far it had come there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) came: Option<Reached>,
    /// Where it went since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) moved: Option<Moved>,
    /// Chance, so that a cell that is begun again below an emptied prefix is not taken for the one that was there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) salt: u64,
}

impl Owner {
    /// A cell that begins here.
    pub(crate) fn new(cell_id: CellId, seal: &ValueSeal) -> Self {
        let seal = seal.id();
        let salt = std::hash::RandomState::new().build_hasher().finish();
        Self { format: FORMAT, cell_id, seal, terms_after: 0, came: None, moved: None, salt }
    }

    /// Whether the keys beside the other are those of the same cell, begun at the same time.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.cell_id, self.salt, self.terms_after)
            == (&other.cell_id, other.salt, other.terms_after)
    }
}

/// Says that a server has applied entries that etcd lost. While it is there nobody writes: whoever does not know what is
/// missing would write in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostMark {
    pub(crate) server: ServerId,
    #[serde(flatten)]
    pub(crate) peer: Peer,
    /// The last entry that it has applied.
    pub(crate) applied: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaderClaim {
    pub(crate) server: ServerId,
    #[serde(flatten)]
    pub(crate) peer: Peer,
    /// For people: the revision that created the key says the same. It is known only once the key is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) term: Option<u64>,
}

/// Which snapshot holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) format: u32,
    pub(crate) index: u64,
    pub(crate) term: i64,
    /// Before they were sealed. Every part is bound to it, so a snapshot that lacks one is refused.
    pub(crate) bytes: u64,
}

/// These are read by people too.
pub(crate) fn to_json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("plain structures can be written").into()
}

pub(crate) fn from_json<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

const WHOLE: u8 = 1;
const SPLIT: u8 = 2;

/// An entry of the log: the term it was written in, and a sealed command, here or in parts elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub(crate) term: u64,
    kind: u8,
    sealed: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Whole(Bytes),
    Split { bytes: u64 },
}

impl LogEntry {
    /// As it is stored under a key. The term stands in the clear, to be compared; a changed one does not open.
    pub(crate) fn encode(seal: &ValueSeal, key: &[u8], term: u64, body: &Body) -> Bytes {
        let length;
        let (kind, plain) = match body {
            Body::Whole(command) => (WHOLE, &command[..]),
            Body::Split { bytes } => {
                length = bytes.to_le_bytes();
                (SPLIT, &length[..])
            }
        };
        let sealed = seal.seal(key, &Self::context(kind, term), plain);
        let mut value = Vec::with_capacity(9 + sealed.len());
        value.push(kind);
        value.extend_from_slice(&term.to_le_bytes());
        value.extend_from_slice(&sealed);
        value.into()
    }

    fn context(kind: u8, term: u64) -> String {
        format!("{kind} {term}")
    }

    /// None if it was written by a newer plimsoll, or by nobody we know.
    pub(crate) fn decode(value: &Bytes) -> Option<Self> {
        let (kind, rest) = value.split_first()?;
        let (term, sealed) = rest.split_first_chunk()?;
        let is_known = matches!(*kind, WHOLE | SPLIT);
        let (kind, term, sealed) = (*kind, u64::from_le_bytes(*term), value.slice_ref(sealed));
        is_known.then_some(Self { term, kind, sealed })
    }

    /// What it holds, found under a key.
    pub(crate) fn open(&self, seal: &ValueSeal, key: &[u8]) -> Result<Body, OpenError> {
        let plain = seal.open(key, &Self::context(self.kind, self.term), &self.sealed)?;
        if self.kind == WHOLE {
            return Ok(Body::Whole(plain));
        }
        let bytes = plain[..].try_into().map_err(|_| OpenError::Foreign)?;
        Ok(Body::Split { bytes: u64::from_le_bytes(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_seal::CellKey;

    use super::*;

    #[test]
    fn keys_are_where_an_operator_looks_for_them_and_sort_as_they_count() {
        let layout = Layout::new("/plimsoll/test/", "scheduler");
        assert_eq!(layout.leader(), "/plimsoll/test/scheduler/leader");
        assert_eq!(layout.cell_id(), "/plimsoll/test/cell");
        assert!(layout.entry(9) < layout.entry(10) && layout.entry(u64::MAX) < layout.leader());
        assert!(layout.leader() < layout.lost() && layout.lost() < layout.member(ServerId(1)));
        assert!(layout.member(ServerId(u64::MAX)) < layout.after_members());
        assert!(layout.after_members() < layout.part(1, 1, 0));
        assert!(layout.after_members() < layout.snapshot());
    }

    #[test]
    fn a_key_says_what_it_holds() {
        let layout = Layout::new("/p/", "scheduler");
        for (key, expected) in [
            (layout.entry(12), ParsedKey::Entry(12)),
            (layout.leader(), ParsedKey::Leader),
            (layout.lost(), ParsedKey::Lost),
            (layout.member(ServerId(3)), ParsedKey::Member(ServerId(3))),
            (layout.snapshot(), ParsedKey::Unknown),
            (Bytes::from("/p/scheduler/entry/x"), ParsedKey::Unknown),
            (Bytes::from("/q/scheduler/leader"), ParsedKey::Unknown),
        ] {
            assert_eq!(layout.thing(&key), expected, "{key:?}");
        }
    }

    #[test]
    fn an_entry_reads_as_it_was_written_and_in_its_own_place_only() {
        let seal = ValueSeal::new(&CellKey::generate().unwrap());
        for body in [Body::Whole(Bytes::from("command")), Body::Split { bytes: 1 << 40 }] {
            let value = LogEntry::encode(&seal, b"entry/7", 77, &body);
            let entry = LogEntry::decode(&value).unwrap();
            assert_eq!((entry.term, entry.open(&seal, b"entry/7")), (77, Ok(body)));
            assert!(entry.open(&seal, b"entry/8").is_err(), "in another's place");
            for at in 0..value.len() {
                let mut wrong = value.to_vec();
                wrong[at] ^= 3;
                let wrong = LogEntry::decode(&wrong.into());
                let opened = wrong.map(|wrong| wrong.open(&seal, b"entry/7"));
                assert!(opened.is_none_or(|it| it.is_err()), "byte {at} was changed");
            }
        }
        for noise in [&b""[..], b"\x01", b"\x09\0\0\0\0\0\0\0\0x"] {
            assert_eq!(LogEntry::decode(&Bytes::from_static(noise)), None);
        }
    }

    #[test]
    fn a_leader_is_written_so_that_people_can_read_it() {
        let peer = Peer { name: "ash".into(), address: "10.0.0.1:7600".into() };
        let leader = LeaderClaim { server: ServerId(4), peer, term: Some(12) };
        let text = to_json(&leader);
        assert_eq!(text, r#"{"server":4,"name":"ash","address":"10.0.0.1:7600","term":12}"#);
        assert_eq!(from_json(&text), Some(leader));
    }
}
