//! What the engine's task writes and everyone else reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use plimsoll_model::Term;
use plimsoll_store::{Error, Leadership, Machine, Member, Peer, ServerId};
use tokio::sync::watch;

use crate::layout::Leader;

/// Who leads and for how long yet, for those who look after the cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    pub term: Term,
    pub leader: Option<(ServerId, Peer)>,
    /// How long ago this server saw that leader begin.
    pub since: Option<Duration>,
    /// What is left of this server's own lease by its own clock; none if it has none.
    pub lease_left: Option<Duration>,
    /// How many leaders this server has seen.
    pub elections: u64,
    /// Why this server has no part in it at the moment.
    pub trouble: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) server: ServerId,
    pub(crate) machine: Arc<Machine>,
    pub(crate) leadership: watch::Sender<Leadership>,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    members: BTreeMap<ServerId, Peer>,
    leader: Option<(ServerId, Peer)>,
    since: Option<Instant>,
    fence: Option<Instant>,
    elections: u64,
    trouble: Option<String>,
    /// Why it ended, if it did not end because it was told to.
    failed: Option<Arc<str>>,
}

impl Shared {
    pub(crate) fn new(server: ServerId, machine: Arc<Machine>) -> Self {
        let leadership = watch::Sender::new(Leadership::default());
        Self { server, machine, leadership, notes: Mutex::new(Notes::default()) }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().expect("no holder of the notes panics")
    }

    /// Says who leads, at which term; none: nobody that we know of.
    pub(crate) fn announce(&self, leader: Option<(&Leader, i64)>, is_me: bool) {
        let mut notes = self.notes();
        let newest = self.leadership.borrow().term;
        let term = leader.map_or(newest, |(_, term)| newest.max(term_of(term)));
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

    pub(crate) fn trouble(&self, trouble: Option<String>) {
        self.notes().trouble = trouble;
    }

    pub(crate) fn fail(&self, why: &str) {
        self.notes().failed = Some(why.into());
    }

    pub(crate) fn set_member(&self, server: ServerId, peer: Option<Peer>) {
        let mut notes = self.notes();
        match peer {
            Some(peer) => notes.members.insert(server, peer),
            None => notes.members.remove(&server),
        };
    }

    pub(crate) fn set_members(&self, members: BTreeMap<ServerId, Peer>) {
        self.notes().members = members;
    }

    /// Anyone who is there may come to lead.
    pub(crate) fn members(&self) -> Vec<Member> {
        let notes = self.notes();
        let mut members = notes.members.clone();
        members.extend(notes.leader.clone());
        members.into_iter().map(|(id, peer)| Member { id, peer, votes: true }).collect()
    }

    pub(crate) fn standing(&self) -> Standing {
        let notes = self.notes();
        let now = Instant::now();
        Standing {
            term: self.leadership.borrow().term,
            leader: notes.leader.clone(),
            since: notes.since.map(|since| now.saturating_duration_since(since)),
            lease_left: notes.fence.map(|fence| fence.saturating_duration_since(now)),
            elections: notes.elections,
            trouble: notes.trouble.clone(),
        }
    }

    /// Why a command is not taken, if it is not. Asked of the clock too: the task may not have had its turn yet.
    pub(crate) fn check_leading(&self) -> Result<(), Error> {
        if let Some(level) = self.machine.outgrown() {
            return Err(Error::Outgrown { level });
        }
        let notes = self.notes();
        if let Some(why) = &notes.failed {
            return Err(Error::Disk(Arc::clone(why)));
        }
        let now = *self.leadership.borrow();
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
}

/// Revisions are positive.
pub(crate) fn term_of(revision: i64) -> Term {
    Term(u64::try_from(revision).unwrap_or(0))
}
