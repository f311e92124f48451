//! A cell from one of its servers, when too many of the others are lost to elect a leader.
//!
//! The server becomes the only one of a new life of the cell, with all that its own log holds. Servers of the life before
//! are forgotten; one that comes back is told so and gives up, see [`Incarnation`]. What was acknowledged and never reached
//! this server is lost, which is why nothing here happens by itself.
//!
//! There is a way back: a server that has given up can be recovered itself, where that is asked for. Its cell then goes on
//! from it, and those for whom it gave up give up in turn.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::EntryPayload;
use plimsoll_model::{Author, CellId, Change, Command, NodeId, Rejection, Term, Timestamp};
use plimsoll_model::{State, Writer};
use plimsoll_seal::UnlockKey;
use thiserror::Error;

use crate::backup;
use crate::disk::{Disk, RealDisk};
use crate::embedded::Incarnation;
use crate::embedded::OpenError;
pub use crate::embedded::replay::TERM_STEP;
use crate::embedded::replay::{LogEnd, ReplayUntil, replay};
use crate::embedded::start::{self, OpenedStore, ServerIdentity};
use crate::embedded::store::Meta;
use crate::embedded::types::{Ballot, Entry, Mark, MembershipRecord, Proposal};
use crate::engine::{Member, ServerId};
use crate::log;

/// Who stands behind what a recovery or a restore writes.
const IDENTITY: &str = "recovery";

/// What a stopped server holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedServer {
    pub cell_id: CellId,
    pub server: ServerId,
    /// The node it runs on.
    pub node: String,
    /// Its last entry, and the newest term it has seen. Of several survivors the one with the most has lost the least.
    pub last: u64,
    pub last_term: Term,
    pub term: Term,
    /// Entries in its log that it was not told to be committed; they are kept.
    pub unconfirmed: u64,
    /// The other servers, which are given up.
    pub others: Vec<Member>,
    /// The life of the cell that it has given up for.
    pub superseded: Option<Incarnation>,
}

/// What becomes of a server that has given up for a recovered cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// It stays so.
    Stays,
    /// It comes back, and takes the place of the cell that took its own.
    Returns,
}

/// What a recovery did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub found: StoppedServer,
    pub incarnation: Incarnation,
    /// The state as it was before.
    pub backup: PathBuf,
}

/// Why a cell was not recovered. What was there is still there.
#[derive(Debug, Error)]
pub enum Error {
    #[error(
        "the server in {} is the only one, so there is nothing to recover; start it with `plimsoll up`",
        dir.display()
    )]
    Alone { dir: PathBuf },
    #[error("the server in {} is no longer a member of its cell; recover another", dir.display())]
    Outsider { dir: PathBuf },
    #[error(
        "the cell was recovered without the server in {}; join it again with a new token, or say `--force` to have this \
         server take the place of the recovered cell",
        dir.display()
    )]
    Superseded { dir: PathBuf },
    #[error("its node {node:?} is not in the state")]
    Node { node: String },
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("cannot back up the state")]
    Backup(#[from] backup::Error),
    #[error("cannot remove the other servers from the state")]
    Refused(#[from] Rejection),
}

/// A stopped server that its cell may go on with.
#[derive(Debug, Clone, Copy)]
pub struct Survivor<'s> {
    pub store: &'s Path,
    pub given_up: GivenUp,
    /// For a store that is locked.
    pub unlock: Option<&'s UnlockKey>,
}

/// Looks at the store of a stopped server, and changes nothing.
pub fn look(survivor: Survivor<'_>) -> Result<StoppedServer, Error> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    Ok(look_on(&disk, survivor)?.0)
}

/// Makes the stopped server the only one of its cell. `at` is this machine's clock.
pub fn recover(survivor: Survivor<'_>, backup: &Path, at: Timestamp) -> Result<Recovered, Error> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    recover_on(&disk, survivor, backup, at, salt())
}

fn look_on(
    disk: &Arc<dyn Disk>,
    survivor: Survivor<'_>,
) -> Result<(StoppedServer, OpenedStore, LogEnd), Error> {
    let Survivor { store: data_dir, given_up, unlock } = survivor;
    let dir = || data_dir.to_owned();
    let mut opened = start::open(disk, data_dir, None, unlock)?;
    let unread = |source| Error::Io { action: "read the log in", path: dir(), source };
    let ended = replay(&mut opened, ReplayUntil::End).map_err(unread)?;
    let ServerIdentity { cell_id, server, superseded, .. } = opened.identity.clone();
    if superseded.is_some() && given_up == GivenUp::Stays {
        return Err(Error::Superseded { dir: dir() });
    }
    if superseded.is_none() && ended.roster.is_alone(server) {
        return Err(Error::Alone { dir: dir() });
    }
    let peers = &ended.roster.peers;
    let own = peers.get(&server).ok_or_else(|| Error::Outsider { dir: dir() })?;
    let votes = |id: &ServerId| ended.roster.voters.iter().any(|set| set.contains(id));
    let others = peers.iter().filter(|(id, _)| **id != server);
    let others = others.map(|(id, peer)| Member { id: *id, peer: peer.clone(), votes: votes(id) });
    let known = opened.store.committed().unwrap_or(0);
    let held = opened.header.last.map_or(0, |mark| mark.index);
    let found = StoppedServer {
        cell_id,
        server,
        node: own.name.clone(),
        last: ended.last.index,
        last_term: Term(ended.last.term),
        term: Term(ended.term),
        unconfirmed: ended.last.index.saturating_sub(known.max(held)),
        others: others.collect(),
        superseded,
    };
    Ok((found, opened, ended))
}

fn recover_on(
    disk: &Arc<dyn Disk>,
    survivor: Survivor<'_>,
    backup: &Path,
    at: Timestamp,
    salt: u64,
) -> Result<Recovered, Error> {
    let data_dir = survivor.store;
    let (found, opened, ended) = look_on(disk, survivor)?;
    // The store is held until the end: nobody starts it meanwhile.
    let OpenedStore { identity, store, mut state, .. } = opened;
    backup::write(disk.as_ref(), backup, &state, ended.last.index, found.term)?;

    // Above the cell that it has given up for too, whose servers are to give up in turn.
    let newest = found.superseded.map_or(0, |by| by.since).max(ended.term);
    let term = newest.saturating_add(TERM_STEP);
    let line = identity.incarnation.line;
    let incarnation = Incarnation { since: term, salt, is_heir: true, line };
    let node = NodeId::new(&found.node).map_err(|_| Error::Node { node: found.node.clone() })?;
    let others = found.others.iter().filter_map(|other| NodeId::new(&other.peer.name).ok());
    let lost = others.filter(|other| *other != node && state.node(other).is_some()).collect();
    let command = survive(&mut state, node, found.server, lost, Term(term), at)?;

    // In this order a crash leaves a server that nobody hears, and that can be recovered again, or one that is.
    let io = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    };
    let identity = ServerIdentity { incarnation, superseded: None, ..identity };
    identity.write(disk.as_ref(), data_dir)?;
    let log_dir = start::log_dir(data_dir);
    let vote = Some(Ballot { term, server: found.server, won: false });
    let meta = Meta { vote, ..store.meta() }.encode();
    log::write_meta(disk.as_ref(), &log_dir, &meta).map_err(io("write", &log_dir))?;
    let own = ended.roster.peers.get(&found.server).cloned().unwrap_or_default();
    let entries = entries(&ended, term, &command, MembershipRecord::alone(found.server, own));
    let appended = entries.and_then(|entries| store.append_stopped(&entries));
    appended.map_err(io("append to the log in", &log_dir))?;
    Ok(Recovered { found, incarnation, backup: backup.to_owned() })
}

/// What was decided goes into the log as if a leader had: whoever joins later is told all of it. The command comes first,
/// so that a log cut between the two is still one of a cell that can be recovered.
fn entries(
    ended: &LogEnd,
    term: u64,
    command: &Command,
    roster: MembershipRecord,
) -> io::Result<Vec<Entry>> {
    let bytes = postcard::to_stdvec(command).map_err(io::Error::other)?;
    let payloads = [
        EntryPayload::Normal(Proposal(bytes.into())),
        EntryPayload::Membership(roster.try_into()?),
    ];
    let numbered = (ended.last.index + 1..).zip(payloads);
    let entry = |(index, payload)| Entry { log_id: Mark { term, index }.into(), payload };
    Ok(numbered.map(entry).collect())
}

/// Makes the state that of a cell that goes on with one server; returns the command that did.
pub(crate) fn survive(
    state: &mut State,
    node: NodeId,
    server: ServerId,
    lost: Vec<NodeId>,
    term: Term,
    at: Timestamp,
) -> Result<Command, Rejection> {
    let change = Change::Survive { node, server: server.0, lost };
    let by = Author::new(Writer::Operator, IDENTITY);
    let command = Command::new(at, term, by, vec![change.free()]);
    state.apply(&command)?;
    Ok(command)
}

/// Chance, from the system: two survivors that are both recovered must not take each other for their own.
pub(crate) fn salt() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use plimsoll_model::access::KeyBytes;
    use plimsoll_model::testkit::{cpus, node_id};

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::engine::Peer;

    const DIR: &str = "data";
    const NAMES: [&str; 3] = ["ash", "birch", "cedar"];

    /// The stopped store of server 3 of 3, which knows three nodes.
    fn stopped() -> SimDisk {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let fresh = ServerIdentity {
            cell_id: "test".parse().unwrap(),
            server: ServerId(3),
            founded: false,
            incarnation: Incarnation::default(),
            superseded: None,
        };
        let opened = start::open(&disk, DIR.as_ref(), Some(fresh), None).unwrap();
        let ids: BTreeSet<ServerId> = [1, 2, 3].map(ServerId).into();
        let peer = |name: &str| Peer { name: name.to_owned(), address: String::new() };
        let peers: BTreeMap<_, _> = ids.iter().copied().zip(NAMES.map(peer)).collect();
        let roster = MembershipRecord { voters: vec![ids], peers };
        let put = |name: &str| Change::PutNode { node: node_id(name), facts: cpus(4) }.free();
        let by = Author::new(Writer::Operator, "test");
        let key = Change::CreateBackupKey { secret: KeyBytes([7; 32]) }.free();
        let batch = NAMES.map(put).into_iter().chain([key]).collect();
        let nodes = Command::new(Timestamp(1), Term(4), by, batch);
        let bytes = postcard::to_stdvec(&nodes).unwrap();
        let payloads = [
            EntryPayload::Membership(roster.try_into().unwrap()),
            EntryPayload::Normal(Proposal(bytes.into())),
        ];
        let entry = |(index, payload)| Entry { log_id: Mark { term: 4, index }.into(), payload };
        let entries: Vec<Entry> = (0..).zip(payloads).map(entry).collect();
        opened.store.append_stopped(&entries).unwrap();
        sim
    }

    fn survivor() -> Survivor<'static> {
        Survivor { store: DIR.as_ref(), given_up: GivenUp::Stays, unlock: None }
    }

    fn recover(sim: &SimDisk) -> Result<Recovered, Error> {
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        recover_on(&disk, survivor(), "before.backup".as_ref(), Timestamp(9), 7)
    }

    #[test]
    fn a_recovery_that_is_cut_short_can_be_done_again_or_was_done() {
        let sim = stopped();
        let before = sim.operations();
        recover(&sim).unwrap();
        let operations = before..sim.operations() + 1;
        for (nth, crash_at) in operations.enumerate() {
            let sim = stopped();
            sim.crash_at(crash_at);
            let cut_short = recover(&sim);
            let sim = sim.after_crash(nth as u64);
            let disk: Arc<dyn Disk> = Arc::new(sim.clone());
            match look_on(&disk, survivor()) {
                Ok((found, opened, ended)) => {
                    assert!(cut_short.is_err(), "{crash_at}: it said that it was done");
                    assert!(found.last >= 1 && found.others.len() == 2, "{crash_at}: {found:?}");
                    drop((opened, ended));
                    recover(&sim).unwrap();
                }
                Err(Error::Alone { .. }) => {}
                Err(error) => panic!("{crash_at}: {error}"),
            }
            let mut opened = start::open(&disk, DIR.as_ref(), None, None).unwrap();
            let ended = replay(&mut opened, ReplayUntil::End).unwrap();
            assert!(ended.roster.is_alone(ServerId(3)), "{crash_at}");
            assert!(opened.identity.incarnation.supersedes(Incarnation::default()), "{crash_at}");
            assert!(ended.term >= TERM_STEP, "{crash_at}");
            let nodes: Vec<_> = opened.state.nodes().keys().map(NodeId::as_str).collect();
            assert_eq!(nodes, ["cedar"], "{crash_at}");
        }
    }
}
