//! The machines that a cell owns, as replicated state: the owned set must survive every leader, and what the coordinator of a fleet
//! was promised must survive every restart.
//!
//! A cell may own half a million of them, of which few are nodes. So a row has twelve bytes beside its name: what many machines have
//! in common is kept once, and what few have is kept beside the rows. How rows change is in [`apply`](crate::apply), what is done with
//! machines is decided in `plimsoll-kernel`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::fleet::{
    Accepts, Ack, Bucket, InstructionId, MachineId, Pool, Profile, Shortfall, TransferId,
};
use crate::ids::NodeId;
use crate::units::{Resources, Term, Timestamp};

mod change;
mod event;
mod machine_state;

#[cfg(test)]
pub(crate) mod tests;

pub use change::{Deed, MachineChange, MachineRefusal};
pub use event::MachineEvent;
pub use machine_state::MachineState;

/// The most machines one cell may own: twice what it is built for.
pub const MAX_MACHINES: usize = 1_000_000;

/// The most kinds of machines. A provider that describes every machine differently is refused, rather than that rows grow.
pub const MAX_CLASSES: usize = crate::fleet::MAX_POOLS;

/// The most labels of one kind of machine, and the most bytes of one of their names or values.
pub const MAX_CLASS_LABELS: usize = 64;
pub const MAX_CLASS_LABEL_BYTES: usize = 255;

/// How many instructions are remembered as carried out. The coordinator has at most a quarter as many waiting, so that one which is
/// older than all of these was answered long ago.
pub const MAX_OBEYED: usize = 4 * crate::fleet::MAX_PENDING;

/// The most shortfalls that are kept: many times what a report says.
pub const MAX_LEDGER: usize = 10 * crate::fleet::MAX_SHORTFALLS;

/// What a join token is called that makes a node of a machine.
pub const TOKEN_PREFIX: &str = "machine:";

/// The label of nodes that are machines, which constraints can ask for.
pub const TYPE_LABEL: &str = "machine-type";

/// Who pays for a machine and how it is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineKind {
    /// Its provider may take it back at any time.
    Spot,
    OnDemand,
    /// It is there whether it is used or not.
    BareMetal,
}

impl MachineKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "on_demand",
            Self::BareMetal => "bare_metal",
        }
    }
}

/// What machines have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineClass {
    pub pool: Pool,
    pub capacity: Resources,
    pub kind: MachineKind,
    /// What its nodes are labelled with, beside [`TYPE_LABEL`].
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// One machine. Twelve bytes, see above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// It grows with each owner of the machine. A provider takes nothing of an older one.
    pub epoch: u32,
    /// Since when it is in its state, in seconds since the Unix epoch.
    since: u32,
    class: u16,
    pub state: MachineState,
}

impl Machine {
    pub(crate) fn new(epoch: u32, at: Timestamp, class: u16, state: MachineState) -> Self {
        Self { epoch, since: u32::try_from(at.0 / 1_000).unwrap_or(u32::MAX), class, state }
    }

    /// Since when it is in its state, to the second.
    pub fn since(&self) -> Timestamp {
        Timestamp(u64::from(self.since) * 1_000)
    }

    /// Which of [`Machines::classes`] it is of.
    pub fn class(&self) -> usize {
        usize::from(self.class)
    }

    pub(crate) fn of_class(self, class: u16) -> Self {
        Self { class, ..self }
    }
}

/// A machine that is set aside for another cell. Nothing here uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub transfer: TransferId,
    /// It is the cell's own again from then on, unless it has been forgotten.
    pub until: Timestamp,
}

/// A need that no machine of the cell meets, and for how long that is so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    pub deficit: Resources,
    pub min_unit: Resources,
    pub accepts: Accepts,
    pub priority: i32,
    pub bucket: Option<Bucket>,
    pub is_topology_constrained: bool,
    /// In cycles, counted from one.
    pub age: u64,
    pub since: Timestamp,
}

impl LedgerEntry {
    pub fn shortfall(&self, profile: &Profile) -> Shortfall {
        Shortfall {
            profile: profile.clone(),
            deficit: self.deficit,
            min_unit: self.min_unit,
            accepts: self.accepts.clone(),
            priority: self.priority,
            bucket: self.bucket,
            age: self.age,
            is_topology_constrained: self.is_topology_constrained,
        }
    }
}

/// An instruction that takes a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub transfer: TransferId,
    pub goal: TaskGoal,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskGoal {
    /// These are to be empty and set aside.
    Drain { machines: BTreeSet<MachineId>, until: Timestamp },
    /// These are to be described by the provider, each under this epoch; those that have been are gone from here.
    Adopt { machines: BTreeMap<MachineId, u32> },
}

/// What a cell keeps about its machines as a whole. Small: it is copied when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ShardBook {
    pub(crate) classes: Vec<MachineClass>,
    pub(crate) is_paused: bool,
    /// How many cycles the ledger has aged by.
    pub(crate) cycle: u64,
    pub(crate) ledger: BTreeMap<Profile, LedgerEntry>,
    /// How many machines of each kind may exist here. One that is not listed has no limit but its machines.
    #[serde(with = "crate::fleet::pairs")]
    pub(crate) quotas: BTreeMap<Pool, u32>,
    /// The newest term of the coordinator that was heard.
    pub(crate) term: Term,
    /// The newest instructions that were carried out.
    pub(crate) obeyed: BTreeSet<InstructionId>,
    /// Those up to here were carried out too, or are too old to be.
    pub(crate) obeyed_until: Option<InstructionId>,
    /// What the coordinator has not confirmed. It is said with every report.
    pub(crate) acks: BTreeMap<InstructionId, Ack>,
    pub(crate) tasks: BTreeMap<InstructionId, Task>,
}

/// Changed only by [`apply`](crate::apply).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machines {
    pub(crate) rows: BTreeMap<MachineId, Machine>,
    /// Which node each machine is, of those that are one.
    pub(crate) nodes: BTreeMap<MachineId, NodeId>,
    pub(crate) reservations: BTreeMap<MachineId, Reservation>,
    /// Machines that were given away, with the epoch they had here: a provider that still lists one for this cell has not heard.
    pub(crate) forgotten: BTreeMap<MachineId, u32>,
    pub(crate) book: ShardBook,
}

impl Machines {
    pub fn all(&self) -> &BTreeMap<MachineId, Machine> {
        &self.rows
    }

    pub fn get(&self, machine: &MachineId) -> Option<&Machine> {
        self.rows.get(machine)
    }

    pub fn classes(&self) -> &[MachineClass] {
        &self.book.classes
    }

    /// What the machine has in common with others.
    pub fn class_of(&self, machine: &Machine) -> Option<&MachineClass> {
        self.book.classes.get(machine.class())
    }

    /// Which node each machine is, of those that are one.
    pub fn nodes(&self) -> &BTreeMap<MachineId, NodeId> {
        &self.nodes
    }

    pub fn node_of(&self, machine: &MachineId) -> Option<&NodeId> {
        self.nodes.get(machine)
    }

    pub fn reservations(&self) -> &BTreeMap<MachineId, Reservation> {
        &self.reservations
    }

    /// Machines that were given away, with the epoch they had here.
    pub fn forgotten(&self) -> &BTreeMap<MachineId, u32> {
        &self.forgotten
    }

    /// An operator has paused it: it computes, reports, and carries nothing out.
    pub fn is_paused(&self) -> bool {
        self.book.is_paused
    }

    /// How many cycles the ledger has aged by.
    pub fn cycle(&self) -> u64 {
        self.book.cycle
    }

    pub fn ledger(&self) -> &BTreeMap<Profile, LedgerEntry> {
        &self.book.ledger
    }

    /// How many machines of the kind may exist here; none: as many as there are.
    pub fn quota(&self, pool: &Pool) -> Option<u32> {
        self.book.quotas.get(pool).copied()
    }

    pub fn quotas(&self) -> &BTreeMap<Pool, u32> {
        &self.book.quotas
    }

    /// The newest term of the coordinator that was heard; zero in a cell that is in no fleet.
    pub fn term(&self) -> Term {
        self.book.term
    }

    /// What the coordinator has not confirmed yet. It is said with every report.
    pub fn acks(&self) -> &BTreeMap<InstructionId, Ack> {
        &self.book.acks
    }

    pub fn tasks(&self) -> &BTreeMap<InstructionId, Task> {
        &self.book.tasks
    }

    /// Whether the instruction was carried out, or begun. One that failed was not.
    pub fn has_obeyed(&self, id: InstructionId) -> bool {
        let has_failed = matches!(self.book.acks.get(&id), Some(Ack::Failed { .. }));
        let is_old = self.book.obeyed_until.is_some_and(|until| id <= until);
        self.book.obeyed.contains(&id)
            || self.book.tasks.contains_key(&id)
            || (is_old && !has_failed)
    }

    /// Whether there is anything to look at.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
