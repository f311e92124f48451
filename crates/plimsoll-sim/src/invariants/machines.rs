//! A machine is in one state and takes legal edges only, the owned set survives every leader, no node that runs something is given
//! back, and the ledger ages once a cycle.

use std::collections::BTreeMap;

use plimsoll_model::fleet::{MachineId, Profile};
use plimsoll_model::machines::MachineState;
use plimsoll_model::{Event, Mode, NodeId, State};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct OwnedMachines {
    states: BTreeMap<MachineId, MachineState>,
    cycle: u64,
    ages: BTreeMap<Profile, u64>,
}

impl Invariant for OwnedMachines {
    fn name(&self) -> &'static str {
        "machines"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let mut events = world.applied.iter().flat_map(|applied| &applied.events);
        if !events.any(|event| *event == Event::Machines) {
            return Ok(());
        }
        let machines = world.state.machines();
        for (id, row) in machines.all() {
            let is_node = machines.node_of(id).is_some();
            if is_node && !row.state.is_in_use() {
                return Err(format!("machine {id} is {} and a node", row.state));
            }
            if row.state == MachineState::Configured && !is_node {
                return Err(format!("machine {id} is configured and no node"));
            }
            let before = self.states.get(id).copied();
            if let Some(before) = before.filter(|before| *before != row.state) {
                Self::edge(&world.state, id, before, row.state)?;
            }
        }
        for (id, state) in &self.states {
            let is_gone = machines.get(id).is_none();
            if is_gone && state.is_in_use() {
                return Err(format!("machine {id} was {state} and is gone"));
            }
        }
        self.ledger(&world.state)?;
        self.states = machines.all().iter().map(|(id, row)| (id.clone(), row.state)).collect();
        Ok(())
    }
}

impl OwnedMachines {
    fn edge(
        state: &State,
        id: &MachineId,
        from: MachineState,
        to: MachineState,
    ) -> Result<(), String> {
        let mut edges = MachineState::EDGES.iter();
        if !edges.any(|edge| edge.from == from && edge.to.contains(&to)) {
            return Err(format!("machine {id} went from {from} to {to}"));
        }
        let machines = state.machines();
        let is_asked_for = machines.reservations().contains_key(id);
        let node = machines.node_of(id).filter(|_| to == MachineState::Draining && !is_asked_for);
        match node.and_then(|node| Some((node, running(state, node)?))) {
            Some((node, replica)) => Err(format!("{node} is given back and runs {replica}")),
            None => Ok(()),
        }
    }

    fn ledger(&mut self, state: &State) -> Result<(), String> {
        let machines = state.machines();
        let cycles = machines.cycle().checked_sub(self.cycle);
        let Some(cycles) = cycles.filter(|cycles| *cycles <= 1) else {
            return Err(format!("cycle {} follows cycle {}", machines.cycle(), self.cycle));
        };
        for (profile, row) in machines.ledger() {
            let expected = self.ages.get(profile).map_or(1, |age| age + cycles);
            if row.age != expected {
                return Err(format!("shortfall {profile} has age {}, not {expected}", row.age));
            }
        }
        self.cycle = machines.cycle();
        self.ages = machines.ledger().iter().map(|(it, row)| (it.clone(), row.age)).collect();
        Ok(())
    }
}

/// Something on the node that does not belong on every node.
fn running(state: &State, node: &NodeId) -> Option<String> {
    let tenants = state.load(node).into_iter().flat_map(|load| &load.tenants);
    let mut bound = tenants.filter(|id| {
        let spec = state.service(&id.service).and_then(|service| service.desired());
        spec.is_none_or(|spec| spec.placement.mode != Mode::Global)
    });
    bound.next().map(ToString::to_string)
}
