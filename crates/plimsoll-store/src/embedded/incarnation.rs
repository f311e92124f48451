//! Which life of its cell a server is of. A cell that was recovered or restored begins another, and its servers do not hear
//! those of the one before: an old majority that comes back must not overrule what was decided without it.
//!
//! A recovered cell takes the place of the one before. A server that is shown so by the cell's authority gives up: it writes
//! that down, and neither votes nor leads again until it has joined anew, or is itself recovered. Nothing short of the
//! authority's signature does that: what a message says of its own life only decides whether it is heard.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use plimsoll_model::Level;
use serde::{Deserialize, Serialize};

use super::door::{Notary, Seat};
use super::start::ServerIdentity;
use super::types::Blob;
use super::wire::{Envelope, RaftResponse};
use crate::disk::Disk;
use crate::engine::ServerId;
use crate::machine::Machine;

/// What a signature on an incarnation is of begins with this: the authority signs other things too.
const CLAIM: &str = "plimsoll incarnation 1";

/// One life of a cell; as it was founded, all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Incarnation {
    /// The term it began in: later lives begin far above the terms of earlier ones.
    pub since: u64,
    /// Tells two apart that began from the same term.
    pub salt: u64,
    /// Whether it takes the place of the one before, as a recovered cell does. A restored one stands beside it.
    pub is_heir: bool,
    /// Whose heir it can be: a restored cell begins a line of its own, and a recovery goes on with the line it is of. Two
    /// cells from one backup share their authority, and a recovery of one must not end the other.
    #[serde(default)]
    pub line: u64,
}

impl Incarnation {
    /// Whether servers of the other must give up for this one.
    pub fn supersedes(self, other: Self) -> bool {
        self.is_heir && self.line == other.line && self.since > other.since
    }
}

/// An incarnation with the authority's word that it is one of the cell. It may be repeated by anybody, to anybody: it says
/// what is so, to servers of an earlier life in the same line of the same cell, and nothing to all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IncarnationClaim {
    pub(crate) of: Incarnation,
    pub(crate) signature: Blob,
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
    pub(crate) fn envelope(&self, to: ServerId, level: Level, seat: Option<Seat>) -> Envelope {
        Envelope { to, of: self.identity.incarnation, level, seat }
    }

    /// Whether a message is for this server and of its cell's life; else what to say to it. Nothing changes by it.
    pub(crate) fn admit(
        &self,
        to: ServerId,
        of: Incarnation,
        sign: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<(), RaftResponse> {
        let ours = self.identity.incarnation;
        let refuse = |why: String| Err(RaftResponse::Refused(why));
        if self.is_superseded() {
            return refuse("this server's cell was recovered without it".to_owned());
        }
        if ours.supersedes(of)
            && let Some(signature) = sign(&self.text(ours))
        {
            let signature = Blob(signature.into());
            return Err(RaftResponse::Superseded(IncarnationClaim { of: ours, signature }));
        }
        if of != ours {
            return refuse(format!("it is of incarnation {of} of the cell, this server of {ours}"));
        }
        if to != self.identity.server {
            return refuse(format!("it is for {to}, this is {}", self.identity.server));
        }
        Ok(())
    }

    /// Gives up, where the authority has signed that a later life took the place of this server's. It is on disk before it
    /// counts.
    pub(crate) fn give_up(&self, claim: &IncarnationClaim, notary: &dyn Notary) -> io::Result<()> {
        let by = claim.of;
        if !by.supersedes(self.identity.incarnation) || self.is_superseded() {
            return Ok(());
        }
        if !notary.has_signed(&self.text(by), &claim.signature.0) {
            let why = "it claims a later life of the cell, which the authority has not signed";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let identity = ServerIdentity { superseded: Some(by), ..self.identity.clone() };
        identity.write(self.disk.as_ref(), &self.data_dir).map_err(io::Error::other)?;
        // Whoever else was told so at this moment was told the same.
        let _ = self.superseded.set(by);
        Ok(())
    }

    fn text(&self, of: Incarnation) -> Vec<u8> {
        let said = (CLAIM, &self.identity.cell_id, of);
        postcard::to_stdvec(&said).expect("a name and numbers can be written")
    }
}

/// Signs with the authority in the state.
pub(crate) fn signer<'a>(
    notary: &'a dyn Notary,
    machine: &'a Machine,
) -> impl FnOnce(&[u8]) -> Option<Vec<u8>> + use<'a> {
    move |text| machine.read(|state| notary.sign(state, text))
}

#[cfg(test)]
mod tests {
    use super::super::channel::TestNotary;
    use super::*;
    use crate::disk::sim::SimDisk;

    fn of(since: u64, salt: u64, is_heir: bool) -> Incarnation {
        Incarnation { since, salt, is_heir, line: 0 }
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
    fn a_server_hears_those_of_its_own_life_who_mean_it_and_changes_for_none() {
        let first = Incarnation::default();
        let (heir, twin, copy) = (of(100, 7, true), of(100, 8, true), of(100, 9, false));
        let of_copy = Incarnation { since: 200, line: 9, ..heir };
        for (case, ours, theirs, to, said) in [
            ("founded together", first, first, 3, "heard"),
            ("meant for whoever had its address before", first, first, 2, "it is for server 2"),
            ("from before the recovery", heir, first, 3, "superseded"),
            ("from another recovery of the same cell", heir, twin, 3, "of incarnation"),
            ("from before the restore", copy, first, 3, "of incarnation"),
            ("from a restored copy", first, copy, 3, "of incarnation"),
            ("from after a recovery", first, heir, 3, "of incarnation"),
            ("from a recovered copy", first, of_copy, 3, "of incarnation"),
            ("to a recovered copy", of_copy, first, 3, "of incarnation"),
        ] {
            let server = server(ours);
            let notary = TestNotary::new("test", "ash");
            let admitted = server.admit(ServerId(to), theirs, |text| Some(notary.seal(text)));
            let found = match admitted {
                Ok(()) => "heard".to_owned(),
                Err(RaftResponse::Superseded(claim)) if claim.of == ours => "superseded".to_owned(),
                Err(RaftResponse::Refused(why)) => why,
                Err(other) => panic!("{case}: {other:?}"),
            };
            assert!(found.contains(said), "{case}: {found}");
            assert!(!server.is_superseded(), "{case}: a message alone ends no server");
        }
    }

    #[test]
    fn a_server_gives_up_for_what_the_authority_has_signed_and_for_nothing_else() {
        let (first, heir) = (Incarnation::default(), of(100, 7, true));
        let signed = |by: &IncarnationGuard, cell: &str, of: Incarnation| {
            let signature = TestNotary::new(cell, "ash").seal(&by.text(of));
            IncarnationClaim { of, signature: Blob(signature.into()) }
        };
        let notary = TestNotary::new("test", "cedar");
        let unsigned = IncarnationClaim { of: heir, signature: Blob(Arc::from(&b""[..])) };
        let moved = |claim: IncarnationClaim, of| IncarnationClaim { of, ..claim };
        let any = server(first);
        for (case, ours, claim, gives_up) in [
            ("signed", first, signed(&any, "test", heir), true),
            ("unsigned", first, unsigned, false),
            ("by another authority", first, signed(&any, "other", heir), false),
            (
                "of another number",
                first,
                moved(signed(&any, "test", heir), of(101, 7, true)),
                false,
            ),
            ("said again to its own", heir, signed(&any, "test", heir), false),
            ("said again to a later one", of(200, 1, true), signed(&any, "test", heir), false),
            ("to a copy", of(50, 1, false), signed(&any, "test", of(100, 7, false)), false),
        ] {
            let server = server(ours);
            let _ = server.give_up(&claim, &notary);
            assert_eq!(server.is_superseded(), gives_up, "{case}");
        }
    }
}
