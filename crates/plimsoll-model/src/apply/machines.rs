//! Changes to the machines of a cell.

use std::collections::{BTreeMap, BTreeSet};

use super::Txn;
use super::undo::{Undo, put};
use crate::audit::AuditKind;
use crate::command::{Event, Refusal};
use crate::fleet::{Ack, InstructionId, MachineId, Pool, TransferId};
use crate::ids::NodeId;
use crate::machines::{
    Deed, LedgerEntry, MAX_CLASS_LABEL_BYTES, MAX_CLASS_LABELS, MAX_CLASSES, MAX_LEDGER,
    MAX_MACHINES, MAX_OBEYED, Machine, MachineChange, MachineClass, MachineEvent, MachineRefusal,
    MachineState, Machines, Reservation, ShardBook, TOKEN_PREFIX, Task, TaskGoal,
};
use crate::state::MAX_CAPACITY;
use crate::transition::{self, Writer};
use crate::units::{Resources, Timestamp};

/// What was there before, of the parts that [`Machines`] has.
#[derive(Debug)]
pub(super) enum MachinesUndo {
    Row(MachineId, Option<Machine>),
    Node(MachineId, Option<NodeId>),
    Reservation(MachineId, Option<Reservation>),
    Forgotten(MachineId, Option<u32>),
    Book(Box<ShardBook>),
}

impl MachinesUndo {
    pub(super) fn take_back(self, machines: &mut Machines) {
        match self {
            Self::Row(id, row) => {
                put(&mut machines.rows, &id, row);
            }
            Self::Node(id, node) => drop(put(&mut machines.nodes, &id, node)),
            Self::Reservation(id, row) => {
                put(&mut machines.reservations, &id, row);
            }
            Self::Forgotten(id, epoch) => {
                put(&mut machines.forgotten, &id, epoch);
            }
            Self::Book(book) => machines.book = *book,
        }
    }
}

impl Txn<'_> {
    pub(super) fn machines(&mut self, change: &MachineChange) -> Result<(), Refusal> {
        match change {
            MachineChange::Put { machine, class, state, epoch } => {
                self.put_machine(machine, class, *state, *epoch)
            }
            MachineChange::Drop { machine } => self.drop_machine(machine),
            MachineChange::Step { machine, from, to } => self.step_machine(machine, *from, *to),
            MachineChange::Reserve { machine, transfer, until } => {
                self.reserve(machine, &MachineState::ALL, *transfer, *until)
            }
            MachineChange::Unreserve { machine } => self.unreserve(machine),
            MachineChange::Pause { is_paused } => {
                self.pause_machines(*is_paused);
                Ok(())
            }
            MachineChange::CloseCycle { cycle, ledger } => self.close_cycle(*cycle, ledger),
            MachineChange::Obey { term, id, transfer, deed } => {
                let book = &self.state.machines.book;
                let (term, id, seen) = (*term, *id, book.term);
                if term < seen {
                    return Err(refused(MachineRefusal::OldTerm { id, term, seen }));
                }
                if self.state.machines.has_obeyed(id) {
                    return Err(refused(MachineRefusal::Obeyed { id }));
                }
                let same_again = match deed {
                    // It fails as it did before: nothing to write.
                    Deed::Fail { reason } => {
                        book.acks.get(&id) == Some(&Ack::Failed { reason: *reason }) && term == seen
                    }
                    _ => false,
                };
                if same_again {
                    return Ok(());
                }
                let ack = self.perform(id, *transfer, deed)?;
                self.mark_obeyed(term, id, ack);
                let deed = Box::new(deed.clone());
                let event = MachineEvent::Obeyed { transfer: *transfer, id, deed };
                self.audit(AuditKind::Machine { event });
                Ok(())
            }
            MachineChange::Finish { id, ack } => self.finish(*id, ack),
            MachineChange::Adopted { id, machine, class } => self.adopted(*id, machine, class),
            MachineChange::Heard { ids } => {
                self.heard(ids);
                Ok(())
            }
        }
    }

    fn put_machine(
        &mut self,
        id: &MachineId,
        class: &MachineClass,
        state: MachineState,
        epoch: u32,
    ) -> Result<(), Refusal> {
        check_class(id, class)?;
        if !matches!(state, MachineState::Speculative | MachineState::Idle) {
            return Err(refused(MachineRefusal::NotNew { machine: id.clone(), state }));
        }
        let machines = &self.state.machines;
        if let Some(gave) = machines.forgotten.get(id).copied().filter(|gave| epoch <= *gave) {
            return Err(refused(MachineRefusal::GivenAway { machine: id.clone(), gave, epoch }));
        }
        let known = machines.rows.get(id).copied();
        if let Some(known) = known {
            if known.epoch != epoch {
                let (machine, owned) = (id.clone(), known.epoch);
                return Err(refused(MachineRefusal::Epoch { machine, owned, epoch }));
            }
            let class = self.intern(class)?;
            if known.class() != usize::from(class) {
                self.set_machine(id, Some(known.of_class(class)));
            }
            return Ok(());
        }
        self.check_room()?;
        let class = self.intern(class)?;
        self.set_forgotten(id, None);
        self.set_machine(id, Some(Machine::new(epoch, self.at, class, state)));
        Ok(())
    }

    fn check_room(&self) -> Result<(), Refusal> {
        let found = self.state.machines.rows.len();
        if found < MAX_MACHINES {
            return Ok(());
        }
        Err(Refusal::TooMany { what: "machines".to_owned(), found: found + 1, max: MAX_MACHINES })
    }

    /// Only what nobody uses and nobody was promised.
    fn drop_machine(&mut self, id: &MachineId) -> Result<(), Refusal> {
        let state = self.machine(id)?.state;
        if !matches!(state, MachineState::Speculative | MachineState::Idle | MachineState::Failed) {
            return Err(refused(MachineRefusal::InUse { machine: id.clone(), state }));
        }
        self.check_unreserved(id)?;
        self.set_machine_node(id, None);
        self.set_machine(id, None);
        Ok(())
    }

    fn step_machine(
        &mut self,
        id: &MachineId,
        decided: MachineState,
        to: MachineState,
    ) -> Result<(), Refusal> {
        let known = *self.machine(id)?;
        let found = known.state;
        if found != decided {
            return Err(refused(MachineRefusal::Moved { machine: id.clone(), decided, found }));
        }
        if !transition::allows(MachineState::EDGES, &found, &to, self.by.writer) {
            return Err(self.illegal(&format!("machine {id}"), &found, &to));
        }
        // What is set aside is not taken into use, and not given back to the provider.
        if matches!(to, MachineState::Configuring | MachineState::Deleting) {
            self.check_unreserved(id)?;
        }
        self.change_state(id, known, to);
        Ok(())
    }

    fn change_state(&mut self, id: &MachineId, known: Machine, to: MachineState) {
        if !to.is_in_use() {
            self.set_machine_node(id, None);
        }
        let class = u16::try_from(known.class()).unwrap_or(u16::MAX);
        self.set_machine(id, Some(Machine::new(known.epoch, self.at, class, to)));
        let (machine, from) = (id.clone(), known.state);
        self.audit(AuditKind::Machine { event: MachineEvent::Stepped { machine, from, to } });
    }

    /// A node has joined with the token of a machine: it is that machine. One that is not known, or not expected, is a node like
    /// any other.
    pub(super) fn machine_joined(&mut self, token: &str, node: &NodeId) {
        let Some(id) = token.strip_prefix(TOKEN_PREFIX) else { return };
        let Ok(id) = MachineId::new(id) else { return };
        let Some(known) = self.state.machines.rows.get(&id).copied() else { return };
        let to = MachineState::Configured;
        if transition::allows(MachineState::EDGES, &known.state, &to, Writer::Agent) {
            self.change_state(&id, known, to);
            self.set_machine_node(&id, Some(node.clone()));
        }
    }

    fn unreserve(&mut self, id: &MachineId) -> Result<(), Refusal> {
        if !self.state.machines.reservations.contains_key(id) {
            return Err(refused(MachineRefusal::NotReserved { machine: id.clone() }));
        }
        self.set_reservation(id, None);
        Ok(())
    }

    fn pause_machines(&mut self, is_paused: bool) {
        if self.state.machines.book.is_paused != is_paused {
            self.write_book(|book| book.is_paused = is_paused);
            self.audit(AuditKind::Machine { event: MachineEvent::Paused { is_paused } });
        }
    }

    /// Each cycle is closed once, whoever leads: its number says so.
    fn close_cycle(
        &mut self,
        cycle: u64,
        missing: &BTreeMap<crate::fleet::Profile, LedgerEntry>,
    ) -> Result<(), Refusal> {
        let book = &self.state.machines.book;
        let next = book.cycle.saturating_add(1);
        if cycle != next {
            return Err(refused(MachineRefusal::Cycle { found: cycle, next }));
        }
        if missing.len() > MAX_LEDGER {
            let (what, found) = ("shortfalls".to_owned(), missing.len());
            return Err(Refusal::TooMany { what, found, max: MAX_LEDGER });
        }
        if let Some((profile, _)) = missing.iter().find(|(_, it)| it.deficit == Resources::NONE) {
            return Err(refused(MachineRefusal::Nothing { profile: profile.clone() }));
        }
        let aged = |(profile, entry): (&crate::fleet::Profile, &LedgerEntry)| {
            let known = book.ledger.get(profile);
            let (age, since) =
                known.map_or((1, self.at), |it| (it.age.saturating_add(1), it.since));
            (profile.clone(), LedgerEntry { age, since, ..entry.clone() })
        };
        let ledger = missing.iter().map(aged).collect();
        self.write_book(|book| (book.cycle, book.ledger) = (cycle, ledger));
        Ok(())
    }

    /// Does what an instruction asks for. None: it takes a while, and is answered when it has ended.
    fn perform(
        &mut self,
        id: InstructionId,
        transfer: TransferId,
        deed: &Deed,
    ) -> Result<Option<Ack>, Refusal> {
        match deed {
            Deed::Reserve { machines, until } => {
                for machine in machines {
                    self.reserve(machine, &[MachineState::Idle], transfer, *until)?;
                }
                Ok(Some(Ack::Reserved { machines: machines.clone() }))
            }
            Deed::Drain { machines, until } => {
                for machine in machines {
                    self.reserve(machine, &[MachineState::Configured], transfer, *until)?;
                    let known = *self.machine(machine)?;
                    self.change_state(machine, known, MachineState::Draining);
                }
                let goal = TaskGoal::Drain { machines: machines.clone(), until: *until };
                self.write_book(|book| drop(book.tasks.insert(id, Task { transfer, goal })));
                Ok(None)
            }
            Deed::Forget { machines } => {
                for machine in machines {
                    self.forget_machine(machine)?;
                }
                Ok(Some(Ack::Done))
            }
            Deed::Adopt { machines } => {
                for (machine, epoch) in machines {
                    self.may_adopt(machine, *epoch)?;
                }
                let goal = TaskGoal::Adopt { machines: machines.clone() };
                self.write_book(|book| drop(book.tasks.insert(id, Task { transfer, goal })));
                Ok(None)
            }
            Deed::Release { machines } => {
                for machine in machines {
                    self.set_reservation(machine, None);
                }
                Ok(Some(Ack::Done))
            }
            Deed::SetQuota { pool, slice } => {
                let (before, used) = (self.state.machines.quota(pool), self.used(pool));
                // A slice that shrinks must hold what is there. One that grows may still be too small.
                if used > *slice && before.is_none_or(|before| *slice < before) {
                    let (pool, slice) = (pool.clone(), *slice);
                    return Err(refused(MachineRefusal::Quota { pool, slice, used }));
                }
                self.write_book(|book| {
                    book.quotas.insert(pool.clone(), *slice);
                });
                Ok(Some(Ack::Done))
            }
            Deed::Refuse { reason } => Ok(Some(Ack::Refused { reason: *reason })),
            Deed::Fail { reason } => Ok(Some(Ack::Failed { reason: *reason })),
        }
    }

    /// How many machines of the pool exist here.
    fn used(&self, pool: &Pool) -> u32 {
        let machines = &self.state.machines;
        let is_of = |row: &&Machine| {
            row.state.exists() && machines.class_of(row).is_some_and(|class| class.pool == *pool)
        };
        u32::try_from(machines.rows.values().filter(is_of).count()).unwrap_or(u32::MAX)
    }

    fn reserve(
        &mut self,
        id: &MachineId,
        of: &[MachineState],
        transfer: TransferId,
        until: Timestamp,
    ) -> Result<(), Refusal> {
        let state = self.machine(id)?.state;
        if !of.contains(&state) {
            return Err(refused(MachineRefusal::InUse { machine: id.clone(), state }));
        }
        self.check_unreserved(id)?;
        self.set_reservation(id, Some(Reservation { transfer, until }));
        Ok(())
    }

    /// It belongs to somebody else. Whatever it was here, what is in use leaves first.
    fn forget_machine(&mut self, id: &MachineId) -> Result<(), Refusal> {
        let Some(known) = self.state.machines.rows.get(id).copied() else { return Ok(()) };
        if known.state.is_in_use() {
            let (machine, state) = (id.clone(), known.state);
            return Err(refused(MachineRefusal::InUse { machine, state }));
        }
        self.set_reservation(id, None);
        self.set_machine_node(id, None);
        self.set_machine(id, None);
        self.set_forgotten(id, Some(known.epoch));
        Ok(())
    }

    fn may_adopt(&self, id: &MachineId, epoch: u32) -> Result<(), Refusal> {
        let machines = &self.state.machines;
        if let Some(gave) = machines.forgotten.get(id).copied().filter(|gave| epoch <= *gave) {
            return Err(refused(MachineRefusal::GivenAway { machine: id.clone(), gave, epoch }));
        }
        match machines.rows.get(id) {
            Some(known) if known.epoch >= epoch => {
                let (machine, owned) = (id.clone(), known.epoch);
                Err(refused(MachineRefusal::Epoch { machine, owned, epoch }))
            }
            _ => Ok(()),
        }
    }

    fn adopted(
        &mut self,
        id: InstructionId,
        machine: &MachineId,
        class: &MachineClass,
    ) -> Result<(), Refusal> {
        let task = self.state.machines.book.tasks.get(&id);
        let Some(Task { goal: TaskGoal::Adopt { machines }, .. }) = task else {
            return Err(refused(MachineRefusal::NotUnderWay { id }));
        };
        let Some(epoch) = machines.get(machine).copied() else {
            return Err(refused(MachineRefusal::Unknown { machine: machine.clone() }));
        };
        check_class(machine, class)?;
        self.may_adopt(machine, epoch)?;
        self.check_room()?;
        let class = self.intern(class)?;
        self.set_forgotten(machine, None);
        self.set_machine(machine, Some(Machine::new(epoch, self.at, class, MachineState::Idle)));
        self.write_book(|book| {
            let goal = book.tasks.get_mut(&id).map(|task| &mut task.goal);
            if let Some(TaskGoal::Adopt { machines }) = goal {
                machines.remove(machine);
            }
        });
        Ok(())
    }

    fn finish(&mut self, id: InstructionId, ack: &Ack) -> Result<(), Refusal> {
        let Some(task) = self.state.machines.book.tasks.get(&id).cloned() else {
            return Err(refused(MachineRefusal::NotUnderWay { id }));
        };
        self.write_book(|book| drop(book.tasks.remove(&id)));
        let term = self.state.machines.book.term;
        self.mark_obeyed(term, id, Some(ack.clone()));
        let (transfer, ack) = (task.transfer, ack.clone());
        self.audit(AuditKind::Machine { event: MachineEvent::Finished { transfer, id, ack } });
        Ok(())
    }

    /// Remembered until the coordinator has heard the answer, and a good while longer, so that it is done once however often it
    /// is said. What failed is not remembered: it is tried again.
    fn mark_obeyed(&mut self, term: crate::Term, id: InstructionId, ack: Option<Ack>) {
        self.write_book(|book| {
            book.term = term;
            let Some(ack) = ack else { return };
            if !matches!(ack, Ack::Failed { .. }) {
                book.obeyed.insert(id);
                if book.obeyed.len() > MAX_OBEYED {
                    book.obeyed_until = book.obeyed_until.max(book.obeyed.pop_first());
                }
            }
            book.acks.insert(id, ack);
            if book.acks.len() > MAX_OBEYED {
                book.acks.pop_first();
            }
        });
    }

    fn heard(&mut self, ids: &BTreeSet<InstructionId>) {
        if ids.iter().any(|id| self.state.machines.book.acks.contains_key(id)) {
            self.write_book(|book| book.acks.retain(|id, _| !ids.contains(id)));
        }
    }

    fn machine(&self, id: &MachineId) -> Result<&Machine, Refusal> {
        let unknown = || refused(MachineRefusal::Unknown { machine: id.clone() });
        self.state.machines.rows.get(id).ok_or_else(unknown)
    }

    fn check_unreserved(&self, id: &MachineId) -> Result<(), Refusal> {
        match self.state.machines.reservations.get(id) {
            None => Ok(()),
            Some(held) => {
                let (machine, transfer) = (id.clone(), held.transfer);
                Err(refused(MachineRefusal::Reserved { machine, transfer }))
            }
        }
    }

    /// The number of a kind of machine, which is kept once.
    fn intern(&mut self, class: &MachineClass) -> Result<u16, Refusal> {
        let classes = &self.state.machines.book.classes;
        let at = match classes.iter().position(|known| known == class) {
            Some(at) => at,
            None if classes.len() >= MAX_CLASSES => {
                let (what, found) = ("kinds of machines".to_owned(), classes.len() + 1);
                return Err(Refusal::TooMany { what, found, max: MAX_CLASSES });
            }
            None => {
                let at = classes.len();
                self.write_book(|book| book.classes.push(class.clone()));
                at
            }
        };
        Ok(u16::try_from(at).unwrap_or(u16::MAX))
    }

    fn set_machine(&mut self, id: &MachineId, row: Option<Machine>) {
        let old = put(&mut self.state.machines.rows, id, row);
        self.machines_undo(MachinesUndo::Row(id.clone(), old));
    }

    fn set_machine_node(&mut self, id: &MachineId, node: Option<NodeId>) {
        if self.state.machines.nodes.get(id) != node.as_ref() {
            let old = put(&mut self.state.machines.nodes, id, node);
            self.machines_undo(MachinesUndo::Node(id.clone(), old));
        }
    }

    fn set_reservation(&mut self, id: &MachineId, row: Option<Reservation>) {
        if self.state.machines.reservations.get(id) != row.as_ref() {
            let old = put(&mut self.state.machines.reservations, id, row);
            self.machines_undo(MachinesUndo::Reservation(id.clone(), old));
        }
    }

    fn set_forgotten(&mut self, id: &MachineId, epoch: Option<u32>) {
        if self.state.machines.forgotten.get(id).copied() != epoch {
            let old = put(&mut self.state.machines.forgotten, id, epoch);
            self.machines_undo(MachinesUndo::Forgotten(id.clone(), old));
        }
    }

    /// Another coordinator counts its terms and instructions anew. What is set aside for another cell is the cell's own again in time.
    pub(super) fn forget_coordinator(&mut self) {
        let book = &self.state.machines.book;
        let kept = ShardBook {
            classes: book.classes.clone(),
            is_paused: book.is_paused,
            cycle: book.cycle,
            ledger: book.ledger.clone(),
            ..ShardBook::default()
        };
        if kept != *book {
            self.write_book(|book| *book = kept);
        }
    }

    fn write_book(&mut self, write: impl FnOnce(&mut ShardBook)) {
        let old = Box::new(self.state.machines.book.clone());
        write(&mut self.state.machines.book);
        self.machines_undo(MachinesUndo::Book(old));
    }

    fn machines_undo(&mut self, undo: MachinesUndo) {
        self.undo.push(Undo::Machines(undo));
        self.emit(Event::Machines);
    }
}

fn refused(refusal: MachineRefusal) -> Refusal {
    Refusal::Machine(refusal)
}

/// A machine that cannot be is refused, and what was known of it stays.
fn check_class(machine: &MachineId, class: &MachineClass) -> Result<(), Refusal> {
    let (has, max) = (class.capacity, MAX_CAPACITY);
    let is_too_large = has.cpu > max.cpu || has.memory > max.memory || has.gpus > max.gpus;
    let why = if has.cpu.0 == 0 || has.memory.0 == 0 {
        "it has no cpu or no memory".to_owned()
    } else if is_too_large {
        format!("it has {} cpu, {} and {} gpus", has.cpu, has.memory, has.gpus)
    } else if class.labels.len() > MAX_CLASS_LABELS {
        format!("it has {} labels, at most {MAX_CLASS_LABELS} are allowed", class.labels.len())
    } else if let Some((name, _)) = class
        .labels
        .iter()
        .find(|(name, value)| name.len().max(value.len()) > MAX_CLASS_LABEL_BYTES)
    {
        let name: String = name.chars().take(32).collect();
        format!("label {name} has more than {MAX_CLASS_LABEL_BYTES} bytes")
    } else {
        return Ok(());
    };
    Err(refused(MachineRefusal::Malformed { machine: machine.clone(), why }))
}
