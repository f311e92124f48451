//! Which machines serve which needs: what is on its way first, then idle ones, then those that could be made.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_model::fleet::{MachineId, Pool};
use plimsoll_model::machines::{Machine, MachineClass, MachineState, Machines};
use plimsoll_model::{Guarded, Resources, State, Timestamp};

use super::needs::{Need, empty_nodes, times};
use super::step;

/// Machines of one class that are alike to a need.
#[derive(Debug, Default)]
struct Stock<'s> {
    /// Machines that will be nodes soon, or idle soon, whether a need takes them or not.
    coming: u32,
    idle: Vec<&'s MachineId>,
    speculative: Vec<&'s MachineId>,
    /// What is left on machines that needs before this one share.
    open: Vec<Resources>,
}

/// Where machines are from, the cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Coming,
    Idle,
    Speculative,
}

pub(super) struct Plan<'s> {
    machines: &'s Machines,
    stock: Vec<Stock<'s>>,
    /// How many machines of each pool may still be made.
    to_make: BTreeMap<&'s Pool, u32>,
    taken: Vec<(&'s MachineId, Source)>,
}

impl<'s> Plan<'s> {
    pub(super) fn new(state: &'s State, now: Timestamp) -> Self {
        let machines = state.machines();
        let classes = machines.classes();
        let mut stock: Vec<Stock<'s>> = classes.iter().map(|_| Stock::default()).collect();
        let mut used: BTreeMap<&Pool, u32> = BTreeMap::new();
        // Few are set aside: a walk beside the rows is quicker than a look-up for each.
        let mut reserved = machines.reservations().keys().peekable();
        for (id, row) in machines.all() {
            while reserved.next_if(|held| *held < id).is_some() {}
            let is_reserved = reserved.peek() == Some(&id);
            let (Some(stock), Some(class)) = (stock.get_mut(row.class()), classes.get(row.class()))
            else {
                continue;
            };
            if row.state.exists() && !machines.quotas().is_empty() {
                *used.entry(&class.pool).or_default() += 1;
            }
            match row.state {
                _ if is_reserved => {}
                MachineState::Creating | MachineState::Configuring | MachineState::Draining => {
                    stock.coming += 1;
                }
                MachineState::Idle => stock.idle.push(id),
                MachineState::Speculative => stock.speculative.push(id),
                MachineState::Configured | MachineState::Deleting | MachineState::Failed => {}
            }
        }
        // Nodes that have only just joined: the scheduler has not looked at everything since.
        for (id, _) in empty_nodes(state, now).filter(|(_, is_tried)| !is_tried) {
            let class = machines.get(id).map(Machine::class);
            if let Some(stock) = class.and_then(|class| stock.get_mut(class)) {
                stock.coming += 1;
            }
        }
        // They are taken from the end: the one with the least name first.
        for stock in &mut stock {
            stock.idle.reverse();
            stock.speculative.reverse();
        }
        let left = |(pool, slice): (&'s Pool, &u32)| {
            (pool, slice.saturating_sub(used.get(pool).copied().unwrap_or(0)))
        };
        let to_make = machines.quotas().iter().map(left).collect();
        Self { machines, stock, to_make, taken: Vec::new() }
    }

    /// Takes machines for the need, and says how many of its replicas are still without one.
    pub(super) fn serve(&mut self, need: &Need) -> u32 {
        let classes = self.machines.classes();
        let mut usable: Vec<(usize, u32)> = classes
            .iter()
            .enumerate()
            .map(|(at, class)| (at, need.held_by_class(at, class)))
            .filter(|(_, held)| *held > 0)
            .collect();
        // The class that takes the least room in all serves first, and of two alike the one known longer.
        usable.sort_by_key(|(at, held)| (waste(&classes[*at], need.missing, *held), *at));
        let mut left = need.missing;
        for (at, _) in &usable {
            left = self.share(*at, need, left);
        }
        for source in [Source::Coming, Source::Idle, Source::Speculative] {
            for (at, held) in &usable {
                left = self.take(source, *at, need, (*held, left));
            }
        }
        left
    }

    /// Room that needs before it left on machines they share.
    fn share(&mut self, at: usize, need: &Need, mut left: u32) -> u32 {
        for room in &mut self.stock[at].open {
            let count = need.fit_in(*room).min(left);
            if count > 0 {
                *room = room.minus(times(need.request.on(*room), count));
                left -= count;
            }
        }
        left
    }

    fn take(
        &mut self,
        source: Source,
        at: usize,
        need: &Need,
        (held, mut left): (u32, u32),
    ) -> u32 {
        let class = &self.machines.classes()[at];
        while left > 0 && self.take_one(source, at, class) {
            let count = held.min(left);
            left -= count;
            let room = class.capacity.minus(times(need.request.on(class.capacity), count));
            // A need after this one may share it. One by one would be endless for a thousand machines: the fullest are forgotten.
            let open = &mut self.stock[at].open;
            if open.len() < MAX_OPEN {
                open.push(room);
            }
        }
        left
    }

    fn take_one(&mut self, source: Source, at: usize, class: &MachineClass) -> bool {
        let stock = &mut self.stock[at];
        let taken = match source {
            Source::Coming => {
                let is_there = stock.coming > 0;
                stock.coming = stock.coming.saturating_sub(1);
                return is_there;
            }
            Source::Idle => stock.idle.pop(),
            Source::Speculative => match self.to_make.get_mut(&class.pool) {
                Some(0) => None,
                Some(left) if !stock.speculative.is_empty() => {
                    *left -= 1;
                    stock.speculative.pop()
                }
                _ => stock.speculative.pop(),
            },
        };
        self.taken.extend(taken.map(|id| (id, source)));
        taken.is_some()
    }

    /// What is done with the machines that needs took.
    pub(super) fn steps(&self) -> Vec<Guarded> {
        let steps = self.taken.iter().map(|(id, source)| match source {
            Source::Speculative => step(id, MachineState::Speculative, MachineState::Creating),
            Source::Idle | Source::Coming => {
                step(id, MachineState::Idle, MachineState::Configuring)
            }
        });
        steps.collect()
    }
}

/// How many machines with room left over are kept in mind for the needs that follow.
const MAX_OPEN: usize = 64;

/// How much room of the class the need would take: cpu, then memory, then the kind that is given up most easily.
fn waste(class: &MachineClass, missing: u32, held: u32) -> (u64, u64, Reverse<u32>) {
    let count = u64::from(missing.div_ceil(held.max(1)));
    let (cpu, memory) = (class.capacity.cpu.0, class.capacity.memory.0);
    (cpu.saturating_mul(count), memory.saturating_mul(count), Reverse(held))
}
