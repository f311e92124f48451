//! What the engine's task writes and everyone else reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use plimsoll_model::Term;
use plimsoll_store::{
    Error, Leadership, LeadershipInfo, LogPosition, Machine, Member, Peer, ServerId, ServerRole,
};
use tokio::sync::watch;

use crate::layout::LeaderClaim;

/// What this engine is called.
const ENGINE: &str = "etcd";

#[derive(Debug)]
pub(crate) struct EtcdShared {
    pub(crate) server: ServerId,
    peer: Peer,
    /// What the revision of the leader's key is counted from, so that no term is below one that a cell had elsewhere.
    terms_after: u64,
    pub(crate) machine: Arc<Machine>,
    pub(crate) leadership: watch::Sender<Leadership>,
    /// Why it ended, if it did not end because it was told to.
    pub(crate) failed: watch::Sender<Option<Arc<str>>>,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    members: BTreeMap<ServerId, Peer>,
    /// How much was applied when these became the members.
    members_since: u64,
    leader: Option<(ServerId, Peer)>,
    since: Option<Instant>,
    fence: Option<Instant>,
    elections: u64,
    hindrance: Option<Arc<str>>,
    /// What etcd lost, as far as anybody knows.
    lost: Option<Arc<str>>,
    /// What etcd says while it has no space.
    full: Option<Arc<str>>,
    /// The last entry that etcd was seen to hold.
    newest: u64,
    /// When etcd last said anything.
    heard: Option<Instant>,
}

impl EtcdShared {
    pub(crate) fn new(
        server: ServerId,
        peer: Peer,
        terms_after: u64,
        machine: Arc<Machine>,
    ) -> Self {
        let (leadership, failed) =
            (watch::Sender::new(Leadership::default()), watch::Sender::new(None));
        let notes = Mutex::default();
        Self { server, peer, terms_after, machine, leadership, failed, notes }
    }

    /// Revisions are positive.
    pub(crate) fn term_of(&self, revision: i64) -> Term {
        Term(self.terms_after.saturating_add(u64::try_from(revision).unwrap_or(0)))
    }

    fn applied(&self) -> u64 {
        *self.machine.applied().borrow()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().expect("no holder of the notes panics")
    }

    /// Says who leads, at which term; none: nobody that we know of.
    pub(crate) fn announce(&self, leader: Option<(&LeaderClaim, i64)>, is_me: bool) {
        let mut notes = self.notes();
        let newest = self.leadership.borrow().term;
        let term = leader.map_or(newest, |(_, term)| newest.max(self.term_of(term)));
        if term > newest {
            notes.elections += 1;
            notes.since = Some(Instant::now());
        }
        notes.leader = leader.map(|(leader, _)| (leader.server, leader.peer.clone()));
        drop(notes);
        let leader = leader.map(|(leader, _)| leader.server);
        // A key of our number that we do not hold is of an earlier life of ours: it leads nothing any more.
        let leader = leader.filter(|leader| is_me || *leader != self.server);
        let now = Leadership { term, leader, is_me };
        self.leadership.send_if_modified(|before| std::mem::replace(before, now) != now);
    }

    pub(crate) fn fenced_at(&self, fence: Option<Instant>) {
        self.notes().fence = fence;
    }

    pub(crate) fn hinder(&self, why: Option<&str>) {
        self.notes().hindrance = why.map(Arc::from);
    }

    /// Nobody may write, because etcd lost what was acknowledged; none: it has all of it.
    pub(crate) fn lose(&self, why: Option<&str>) {
        let why: Option<Arc<str>> = why.map(Arc::from);
        let mut notes = self.notes();
        notes.hindrance.clone_from(&why);
        notes.lost = why;
    }

    /// Etcd has no space; none: it has.
    pub(crate) fn fill(&self, why: Option<&str>) {
        self.notes().full = why.map(Arc::from);
    }

    /// It cannot go on.
    pub(crate) fn fail(&self, why: &str) {
        self.hinder(Some(why));
        self.failed.send_replace(Some(why.into()));
    }

    /// Etcd said something.
    pub(crate) fn heard(&self) {
        self.notes().heard = Some(Instant::now());
    }

    /// Etcd holds this entry.
    pub(crate) fn saw(&self, index: u64) {
        let mut notes = self.notes();
        notes.newest = notes.newest.max(index);
    }

    pub(crate) fn set_member(&self, server: ServerId, peer: Option<&Peer>) {
        let applied = self.applied();
        let mut notes = self.notes();
        let before = match peer {
            Some(peer) => notes.members.insert(server, peer.clone()),
            None => notes.members.remove(&server),
        };
        if before.as_ref() != peer {
            notes.members_since = applied;
        }
    }

    pub(crate) fn set_members(&self, members: BTreeMap<ServerId, Peer>) {
        let applied = self.applied();
        let mut notes = self.notes();
        if notes.members != members {
            (notes.members, notes.members_since) = (members, applied);
        }
    }

    /// Who leads has the last word on the members, whatever the one before said at the end.
    pub(crate) fn vouch_for_members(&self) {
        let applied = self.applied();
        self.notes().members_since = applied;
    }

    pub(crate) fn members_since(&self) -> u64 {
        self.notes().members_since
    }

    /// Anyone who is there may come to lead, without a vote. This server is there as long as it can say so.
    pub(crate) fn members(&self) -> Vec<Member> {
        let notes = self.notes();
        let mut members = notes.members.clone();
        members.extend(notes.leader.clone());
        members.insert(self.server, self.peer.clone());
        members.into_iter().map(|(id, peer)| Member { id, peer, votes: false }).collect()
    }

    pub(crate) fn others(&self) -> bool {
        self.notes().members.keys().any(|server| *server != self.server)
    }

    pub(crate) fn leadership_info(&self) -> LeadershipInfo {
        let is_led = self.leadership.borrow().leader.is_some();
        let notes = self.notes();
        let now = Instant::now();
        let since = notes.since.filter(|_| is_led);
        LeadershipInfo {
            engine: ENGINE,
            since: since.map(|since| now.saturating_duration_since(since)),
            elections: notes.elections,
            lease_left: notes.fence.map(|fence| fence.saturating_duration_since(now)),
            hindrance: notes.hindrance.clone(),
        }
    }

    pub(crate) fn log_position(&self) -> LogPosition {
        let leads = self.leadership.borrow().is_me;
        let (applied, notes) = (self.applied(), self.notes());
        let newest = notes.newest.max(applied);
        LogPosition {
            role: if leads { ServerRole::Leader } else { ServerRole::Standby },
            applied,
            committed: newest,
            last: newest,
            is_superseded: false,
            outgrown: self.machine.outgrown(),
            heard: notes.heard.map(|heard| heard.elapsed()),
        }
    }

    /// Why a command is not taken, if it is not. Asked of the clock too: the task may not have had its turn yet.
    pub(crate) fn check_leading(&self) -> Result<(), Error> {
        if let Some(level) = self.machine.outgrown() {
            return Err(Error::Outgrown { level });
        }
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let (notes, now) = (self.notes(), *self.leadership.borrow());
        match now {
            Leadership { is_me: true, .. } => {
                let holds = notes.fence.is_some_and(|fence| Instant::now() < fence);
                if holds { Ok(()) } else { Err(Error::NoLeader) }
            }
            Leadership { leader: Some(leader), .. } if leader != self.server => {
                Err(Error::NotLeader { leader })
            }
            Leadership { .. } => Err(Error::NoLeader),
        }
    }

    /// What keeps writes from being taken, also while this server leads.
    pub(crate) fn impairment(&self) -> Option<Error> {
        self.failure().or_else(|| self.notes().full.clone().map(Error::StoreFull))
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        let failed = self.failed.borrow().clone().map(Error::Disk);
        failed.or_else(|| self.notes().lost.clone().map(Error::LogLost))
    }
}
