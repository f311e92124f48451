//! The machines of a cell, one cycle every ten seconds: needs that found no room take idle machines and then ones that could be made,
//! nodes that nobody needs go back, and what is left over is a shortfall with an age.
//!
//! Pure: what the cell needs is in [`needs`], which machines serve it in [`take`], which nodes go back in [`reclaim`], what is made of
//! the coordinator's instructions in [`obey`], what the coordinator is told in [`report`]. Providers are asked by the edge, for
//! machines whose state says what is to be done with them. A replica that yields to one of higher priority inside the cell is a matter
//! of the scheduler: what it found room for so is no need by the time this step looks.

use std::collections::BTreeMap;

use plimsoll_model::fleet::MachineId;
use plimsoll_model::machines::{
    LedgerEntry, MAX_LEDGER, MachineChange, MachineState, Machines, TaskGoal,
};
use plimsoll_model::{Availability, Change, Guarded, Millis, State, Timestamp};

use crate::leader::is_due;

pub mod needs;
pub mod obey;
mod reclaim;
pub mod report;
mod take;

#[cfg(test)]
mod tests;

pub use needs::{Need, needs};
pub use obey::{obey, obey_all};
use reclaim::Reclaim;
pub use report::{registration, report};
use take::Plan;

/// How often a cycle is due.
pub const CYCLE: Millis = Millis::seconds(10);

/// How long a provider may take to make a machine. Bare metal that is installed over the network takes a quarter of an hour.
pub const CREATE_TIMEOUT: Millis = Millis::minutes(30);

/// How long a machine may take to join once it is told to.
pub const CONFIGURE_TIMEOUT: Millis = Millis::minutes(10);

/// How long a failed machine is left alone before it is given back: whoever looks into it has time to see it.
pub const FAILED_HOLD: Millis = Millis::minutes(5);

/// The most machines that one cycle sets in motion, so that one entry stays small; the next cycle goes on.
pub const MAX_STEPS: usize = 1_000;

/// What a leader keeps about machines while it leads. A new one begins anew, and so gives nothing back too early.
#[derive(Debug, Clone)]
pub struct ShardCycles {
    due_at: Timestamp,
    /// Whether the cell had machines or was in a fleet when it was last looked at: one without either needs no turn of its own.
    is_on: bool,
    reclaim: Reclaim,
}

impl ShardCycles {
    /// The first cycle is a whole one after the leader begins: the last leader may just have closed one.
    pub fn new(now: Timestamp) -> Self {
        Self { due_at: now.plus(CYCLE), is_on: false, reclaim: Reclaim::default() }
    }

    /// When the next cycle is due; never in a cell without machines that is in no fleet.
    pub(crate) fn due(&self) -> Timestamp {
        if self.is_on { self.due_at } else { Timestamp(u64::MAX) }
    }

    pub(crate) fn turn(&mut self, state: &State, now: Timestamp) -> Vec<Guarded> {
        let machines = state.machines();
        self.is_on = !machines.is_empty() || state.fleet_membership().is_some();
        if !self.is_on {
            self.due_at = now;
            return Vec::new();
        }
        if !is_due(self.due_at, CYCLE, now) {
            return Vec::new();
        }
        self.due_at = now.plus(CYCLE);
        self.cycle(state, now)
    }

    /// One cycle. Everything is computed while the cell is paused too, and nothing is set in motion.
    pub fn cycle(&mut self, state: &State, now: Timestamp) -> Vec<Guarded> {
        let machines = state.machines();
        let needs = needs(state, now);
        let mut plan = Plan::new(state, now);
        let mut steps = Vec::new();
        let mut ledger = BTreeMap::new();
        for need in &needs {
            let left = plan.serve(need);
            need.add_to(&mut ledger, left);
        }
        let reclaimed = self.reclaim.choose(state, &needs, now);
        steps.extend(housekeeping(state, now));
        if !machines.is_paused() {
            steps.extend(plan.steps());
            for (machine, node) in reclaimed {
                steps.extend(obey::drain(&machine, &node));
            }
            steps.truncate(MAX_STEPS);
        }
        steps.extend(close(machines, ledger));
        steps
    }
}

/// The ledger at the end of the cycle. Where nothing was missing and nothing is, nothing is written.
fn close(
    machines: &Machines,
    mut ledger: BTreeMap<plimsoll_model::fleet::Profile, LedgerEntry>,
) -> Option<Guarded> {
    if ledger.len() > MAX_LEDGER {
        let mut least: Vec<_> = ledger.iter().map(|(it, row)| (row.priority, it.clone())).collect();
        least.sort_unstable();
        for (_, profile) in least.into_iter().take(ledger.len() - MAX_LEDGER) {
            ledger.remove(&profile);
        }
    }
    if ledger.is_empty() && machines.ledger().is_empty() {
        return None;
    }
    let cycle = machines.cycle().saturating_add(1);
    Some(change(MachineChange::CloseCycle { cycle, ledger }))
}

/// What follows from time alone, and from what nodes and providers did since the last cycle.
fn housekeeping(state: &State, now: Timestamp) -> Vec<Guarded> {
    let machines = state.machines();
    let may_act = |machine: &MachineId| {
        !machines.is_paused() && !machines.reservations().contains_key(machine)
    };
    let mut batch = Vec::new();
    for (machine, row) in machines.all() {
        let waited = now.since(row.since());
        let to = match row.state {
            MachineState::Creating if waited >= CREATE_TIMEOUT => MachineState::Failed,
            MachineState::Configuring if waited >= CONFIGURE_TIMEOUT => MachineState::Failed,
            MachineState::Failed if waited >= FAILED_HOLD && may_act(machine) => {
                MachineState::Deleting
            }
            // Its node left the cell by other means.
            MachineState::Configured if !machines.is_paused() && node_is_gone(state, machine) => {
                MachineState::Draining
            }
            MachineState::Draining => {
                batch.extend(go_on_draining(state, machine, now));
                continue;
            }
            _ => continue,
        };
        batch.push(step(machine, row.state, to));
    }
    batch.extend(obey::finish_tasks(state, now));
    let is_over = |machine: &MachineId, until: Timestamp| {
        let is_ready = machines.get(machine).is_none_or(|row| row.state != MachineState::Draining);
        now >= until && is_ready
    };
    let over = machines.reservations().iter().filter(|(id, held)| is_over(id, held.until));
    batch.extend(over.map(|(id, _)| change(MachineChange::Unreserve { machine: id.clone() })));
    batch
}

fn node_is_gone(state: &State, machine: &MachineId) -> bool {
    state.machines().node_of(machine).is_none_or(|node| state.node(node).is_none())
}

/// A node that is empty leaves the cell; one that could not be emptied in time is taken back into use, with all that runs there. A
/// pause takes it back too.
fn go_on_draining(state: &State, machine: &MachineId, now: Timestamp) -> Vec<Guarded> {
    let Some(node) = state.machines().node_of(machine) else { return Vec::new() };
    let Some(row) = state.node(node) else { return Vec::new() };
    let is_empty = state.load(node).is_none_or(|load| load.tenants.is_empty());
    let is_paused = state.machines().is_paused();
    if row.availability == Availability::Draining && is_empty && !is_paused {
        return vec![Change::RemoveNode { node: node.clone() }.free()];
    }
    let held = state.machines().reservations().get(machine);
    let is_too_late = is_paused || held.is_some_and(|held| now >= held.until);
    if row.availability == Availability::Draining && !is_too_late {
        return Vec::new();
    }
    // The step comes last: a long batch may be cut anywhere, and until the step is taken the next cycle finds the rest.
    let mut batch = Vec::new();
    let was_late = row.drain.is_some_and(|drain| drain.has_timed_out);
    // One that an operator cordoned in the meantime stays so.
    if row.availability == Availability::Draining || was_late {
        let availability = Availability::Active;
        batch.push(Change::SetAvailability { node: node.clone(), availability }.free());
    }
    if held.is_some() {
        batch.push(change(MachineChange::Unreserve { machine: machine.clone() }));
    }
    batch.push(step(machine, MachineState::Draining, MachineState::Configured));
    batch
}

/// Whether the provider is to fetch machines that the cell was given.
pub fn adoptions(
    machines: &Machines,
) -> impl Iterator<Item = (plimsoll_model::fleet::InstructionId, &MachineId, u32)> {
    machines.tasks().iter().flat_map(|(id, task)| {
        let wanted = match &task.goal {
            TaskGoal::Adopt { machines } => Some(machines),
            TaskGoal::Drain { .. } => None,
        };
        let wanted = wanted.into_iter().flatten();
        let missing =
            wanted.filter(|(machine, epoch)| !obey::is_settled(machines, machine, **epoch));
        missing.map(|(machine, epoch)| (*id, machine, *epoch))
    })
}

pub(crate) fn change(change: MachineChange) -> Guarded {
    Change::Machines { change: Box::new(change) }.free()
}

pub(crate) fn step(machine: &MachineId, from: MachineState, to: MachineState) -> Guarded {
    change(MachineChange::Step { machine: machine.clone(), from, to })
}
