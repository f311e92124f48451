//! Which life of its cell a server is of. A cell that was recovered or restored begins another, and its servers do not hear
//! those of the one before: an old majority that comes back must not overrule what was decided without it.
//!
//! A recovered cell takes the place of the one before. A server that learns of it gives up: it writes that down, and
//! neither votes nor leads again until it has joined anew.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use plimsoll_model::Level;
use serde::{Deserialize, Serialize};

use super::start::ServerIdentity;
use super::wire::{Envelope, RaftResponse};
use crate::disk::Disk;
use crate::engine::ServerId;

/// One life of a cell; as it was founded, all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Incarnation {
    /// The term it began in: later lives begin far above the terms of earlier ones.
    pub since: u64,
    /// Tells two apart that began from the same term.
    pub salt: u64,
    /// Whether it takes the place of the one before, as a recovered cell does. A restored one stands beside it.
    pub is_heir: bool,
}

impl Incarnation {
    /// Whether servers of the other must give up for this one.
    pub fn supersedes(self, other: Self) -> bool {
        self.is_heir && self.since > other.since
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.since, self.salt & 0xffff_ffff)
    }
}

/// What one server knows of its own life and of one that took its place.
pub(crate) struct IncarnationGuard {
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    identity: ServerIdentity,
    superseded: OnceLock<Incarnation>,
}

impl fmt::Debug for IncarnationGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncarnationGuard").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl IncarnationGuard {
    pub(crate) fn new(disk: &Arc<dyn Disk>, data_dir: PathBuf, identity: ServerIdentity) -> Self {
        let superseded = identity.superseded.map_or_else(OnceLock::new, OnceLock::from);
        Self { disk: Arc::clone(disk), data_dir, identity, superseded }
    }

    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.get().is_some()
    }

    /// What a message to that server must carry.
    pub(crate) fn envelope(&self, to: ServerId, level: Level) -> Envelope {
        Envelope { to, of: self.identity.incarnation, level }
    }

    /// Whether a message is for this server and of its cell's life; else what to say to it.
    pub(crate) fn admit(&self, envelope: Envelope) -> io::Result<Result<(), RaftResponse>> {
        let Envelope { to, of, .. } = envelope;
        let ours = self.identity.incarnation;
        let refuse = |why: String| Ok(Err(RaftResponse::Refused(why)));
        if of.supersedes(ours) {
            self.give_up(of)?;
        }
        if self.is_superseded() {
            return refuse("this server's cell was recovered without it".to_owned());
        }
        if ours.supersedes(of) {
            return Ok(Err(RaftResponse::Superseded(ours)));
        }
        if of != ours {
            return refuse(format!("it is of incarnation {of} of the cell, this server of {ours}"));
        }
        if to != self.identity.server {
            return refuse(format!("it is for {to}, this is {}", self.identity.server));
        }
        Ok(Ok(()))
    }

    /// Takes another's word that a life of the cell took the place of this server's. It is on disk before it counts.
    pub(crate) fn give_up(&self, by: Incarnation) -> io::Result<()> {
        if by.supersedes(self.identity.incarnation) && !self.is_superseded() {
            let identity = ServerIdentity { superseded: Some(by), ..self.identity.clone() };
            identity.write(self.disk.as_ref(), &self.data_dir).map_err(io::Error::other)?;
            // Whoever else was told so at this moment was told the same.
            let _ = self.superseded.set(by);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;

    fn of(since: u64, salt: u64, is_heir: bool) -> Incarnation {
        Incarnation { since, salt, is_heir }
    }

    fn server(incarnation: Incarnation) -> IncarnationGuard {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let (cell_id, server) = ("test".parse().unwrap(), ServerId(3));
        let identity =
            ServerIdentity { cell_id, server, founded: true, incarnation, superseded: None };
        disk.create_dir("data".as_ref()).unwrap();
        IncarnationGuard::new(&disk, "data".into(), identity)
    }

    #[test]
    fn a_server_hears_those_of_its_own_life_who_mean_it() {
        let first = Incarnation::default();
        let (heir, twin, copy) = (of(100, 7, true), of(100, 8, true), of(100, 9, false));
        for (case, ours, theirs, to, said) in [
            ("founded together", first, first, 3, "heard"),
            ("meant for whoever had its address before", first, first, 2, "it is for server 2"),
            ("from before the recovery", heir, first, 3, "superseded"),
            ("from another recovery of the same cell", heir, twin, 3, "of incarnation"),
            ("from before the restore", copy, first, 3, "of incarnation"),
            ("from a restored copy", first, copy, 3, "of incarnation"),
            ("from after a recovery", first, heir, 3, "was recovered without it"),
        ] {
            let server = server(ours);
            let (to, level) = (ServerId(to), Level::FIRST);
            let admitted = server.admit(Envelope { to, of: theirs, level }).unwrap();
            let found = match admitted {
                Ok(()) => "heard".to_owned(),
                Err(RaftResponse::Superseded(by)) if by == ours => "superseded".to_owned(),
                Err(RaftResponse::Refused(why)) => why,
                Err(other) => panic!("{case}: {other:?}"),
            };
            assert!(found.contains(said), "{case}: {found}");
            assert_eq!(server.is_superseded(), theirs == heir && ours == first, "{case}");
        }
    }
}
