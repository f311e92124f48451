//! The state machine as openraft wants it: it applies entries to the [`Machine`], and makes, keeps and takes over
//! snapshots of it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::alias::{LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use plimsoll_model::Command;

use super::addresses::Addresses;
use super::door::Door;
use super::snapshot::{Snapshots, StateFile, stream_state};
use super::types::{Header, Mark, Types};
use crate::aside::aside;
use crate::fault;
use crate::level::{self, Undecoded};
use crate::machine::Machine;

/// How many entries are applied before others may look in between.
const MAX_APPLIED: usize = 64;

#[derive(Debug)]
pub(crate) struct StateMachine {
    pub(crate) machine: Arc<Machine>,
    pub(crate) applied: Option<Mark>,
    pub(crate) membership: StoredMembershipOf<Types>,
    pub(crate) snapshots: Snapshots,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) door: Arc<Door>,
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = StateFile;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(
        &mut self,
    ) -> io::Result<(Option<LogIdOf<Types>>, StoredMembershipOf<Types>)> {
        Ok((self.applied.map(Into::into), self.membership.clone()))
    }

    async fn apply<S>(&mut self, entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        // As many at a time as are there, so that stepping aside costs little.
        let mut entries = entries.ready_chunks(MAX_APPLIED);
        while let Some(next) = entries.next().await {
            aside(|| self.apply_guarded(next))?;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        // Written here, between two entries, so that it is of this very index; made safe while others are applied.
        let header = Header::new(self.applied, &self.membership);
        let written = aside(|| {
            self.snapshots.write(&header, |to| self.machine.read(|state| stream_state(state, to)))
        });
        SnapshotBuilder { header, written: Some(written), snapshots: self.snapshots.clone() }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Types>,
        arrived: StateFile,
    ) -> io::Result<()> {
        let header = Header::from(meta);
        let state = aside(|| arrived.decode())?
            .map_err(|why| self.unread(&why, &format!("the leader's snapshot: {why}")))?;
        let (snapshots, of) = (self.snapshots.clone(), header.clone());
        tokio::task::spawn_blocking(move || snapshots.place(&of, &arrived)).await??;
        aside(|| self.machine.replace(state, header.last.map_or(0, |mark| mark.index)));
        self.applied = header.last;
        self.membership = meta.last_membership.clone();
        self.note_members();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, StateFile>>> {
        let snapshots = self.snapshots.clone();
        let found = tokio::task::spawn_blocking(move || snapshots.read()).await?;
        let Some((header, snapshot)) = found.map_err(io::Error::other)? else { return Ok(None) };
        Ok(Some(SnapshotOf::<Types, _> { meta: header.meta()?, snapshot }))
    }
}

impl StateMachine {
    /// A command that panics ends the log of this server, and not its process: containers and their ports go on.
    fn apply_guarded(&mut self, entries: Vec<io::Result<EntryResponder<Types>>>) -> io::Result<()> {
        let applied = catch_unwind(AssertUnwindSafe(|| self.apply_all(entries)));
        applied.unwrap_or_else(|_| {
            self.machine.note_panic();
            let next = self.applied.map_or(0, |mark| mark.index + 1);
            Err(io::Error::other(format!("applying entry {next} of the log panicked")))
        })
    }

    fn note_members(&self) {
        let members = self.membership.membership();
        self.addresses.replace(members);
        self.door.know(self.membership.log_id().as_ref().map(Mark::from), members);
    }

    fn apply_all(&mut self, entries: Vec<io::Result<EntryResponder<Types>>>) -> io::Result<()> {
        fault::reach("log-apply");
        for next in entries {
            let (entry, responder) = next?;
            let mark = Mark::from(&entry.log_id);
            let reply = match &entry.payload {
                EntryPayload::Normal(proposal) => {
                    let command = level::decode(&proposal.0);
                    let command =
                        command.map_err(|why| self.unread(&why, &undecoded(mark.index, &why)))?;
                    Some(self.machine.apply(mark.index, &command))
                }
                EntryPayload::Blank => {
                    self.machine.pass(mark.index);
                    None
                }
                EntryPayload::Membership(membership) => {
                    let at = Some(mark.into());
                    self.membership = StoredMembershipOf::<Types>::new(at, membership.clone());
                    self.note_members();
                    self.machine.pass(mark.index);
                    None
                }
            };
            self.applied = Some(mark);
            if let Some(responder) = responder {
                responder.send(reply);
            }
        }
        Ok(())
    }

    /// The server ends with this, and is known to be too old where that is why.
    fn unread(&self, why: &Undecoded, text: &str) -> io::Error {
        if let Undecoded::Newer(level) = why {
            self.machine.outgrow(*level);
        }
        io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
    }
}

/// A command that cannot be read cannot be skipped either: the other servers may have applied it.
pub(crate) fn decode_command(index: u64, bytes: &[u8]) -> io::Result<Command> {
    let command = level::decode(bytes);
    command.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, undecoded(index, &why)))
}

fn undecoded(index: u64, why: &Undecoded) -> String {
    format!("log entry {index} cannot be read: {why}")
}

/// A snapshot that is written and not safe yet.
#[derive(Debug)]
pub(crate) struct SnapshotBuilder {
    header: Header,
    /// None once it was taken.
    written: Option<io::Result<StateFile>>,
    snapshots: Snapshots,
}

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    type SnapshotData = StateFile;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, StateFile>> {
        let (snapshots, header) = (self.snapshots.clone(), self.header.clone());
        let written = self.written.take();
        let snapshot = written.ok_or_else(|| io::Error::other("it was built before"))??;
        let state = snapshot.clone();
        tokio::task::spawn_blocking(move || snapshots.place(&header, &state)).await??;
        Ok(SnapshotOf::<Types, _> { meta: self.header.meta()?, snapshot })
    }
}
