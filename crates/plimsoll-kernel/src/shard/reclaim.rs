//! Which nodes nobody needs any more. They go back to being idle slowly: after a hold, a few a cycle, and not on the word of one look
//! at a demand that has just collapsed.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::fleet::MachineId;
use plimsoll_model::machines::{MachineKind, MachineState};
use plimsoll_model::{Availability, Millis, Mode, NodeId, NodeRole, Roles, State, Timestamp};

use super::needs::Need;

/// How long a node stays empty before it goes back: what an hour of it costs says how long, and bare metal costs the same either way.
fn hold(kind: MachineKind) -> Option<Millis> {
    match kind {
        MachineKind::OnDemand => Some(Millis::minutes(10)),
        MachineKind::Spot => Some(Millis::minutes(1)),
        MachineKind::BareMetal => None,
    }
}

/// The most that go back in one cycle: a twentieth of the nodes, and at least one.
const CAP_PERCENT: usize = 5;

/// A demand below half of what it was has collapsed.
const COLLAPSE: u64 = 2;

/// So many looks in a row must find a collapsed demand before it is believed.
const REPEATS: u32 = 3;

#[derive(Debug, Clone, Default)]
pub(super) struct Reclaim {
    /// Since when each machine's node is empty.
    empty_since: BTreeMap<MachineId, Timestamp>,
    /// What the cell was last believed to need: replicas, and thousandths of cpus.
    believed: Option<(u64, u64)>,
    /// How often in a row it needed far less.
    collapsed: u32,
}

impl Reclaim {
    /// The machines whose nodes go back in this cycle, those of least value to keep first.
    pub(super) fn choose(
        &mut self,
        state: &State,
        needs: &[Need],
        now: Timestamp,
    ) -> Vec<(MachineId, NodeId)> {
        let is_believed = self.believe(demand(state));
        self.look(state, now);
        if !is_believed {
            return Vec::new();
        }
        let machines = state.machines();
        let candidates = self.empty_since.iter().filter_map(|(id, since)| {
            let row = machines.get(id)?;
            let class = machines.class_of(row)?;
            let is_held = hold(class.kind).is_none_or(|hold| now.since(*since) < hold);
            let is_needed = || needs.iter().any(|need| need.held_by(class) > 0);
            if is_held || machines.reservations().contains_key(id) || is_needed() {
                return None;
            }
            Some((class.kind, *since, id, machines.node_of(id)?))
        });
        let mut candidates: Vec<_> = candidates.collect();
        candidates.sort_unstable();
        let configured = machines.nodes().len();
        let most = (configured * CAP_PERCENT / 100).max(1);
        let chosen = candidates.into_iter().map(|(_, _, id, node)| (id.clone(), node.clone()));
        without_servers(state, chosen).take(most).collect()
    }

    /// Whether what the cell needs now is to be gone by.
    fn believe(&mut self, demand: (u64, u64)) -> bool {
        // A new leader has nothing to compare with, and looks as often as at a collapse.
        let has_collapsed = self.believed.is_none_or(|(replicas, cpu)| {
            demand.0 < replicas / COLLAPSE || demand.1 < cpu / COLLAPSE
        });
        self.collapsed = if has_collapsed { self.collapsed + 1 } else { 0 };
        if has_collapsed && self.collapsed < REPEATS {
            return false;
        }
        (self.believed, self.collapsed) = (Some(demand), 0);
        true
    }

    fn look(&mut self, state: &State, now: Timestamp) {
        let machines = state.machines();
        let with_data = nodes_with_data(state);
        let is_empty = |id: &MachineId, node: &NodeId| {
            let is_configured =
                machines.get(id).is_some_and(|it| it.state == MachineState::Configured);
            // An operator who cordons a node has plans for it.
            let is_active =
                state.node(node).is_some_and(|it| it.availability == Availability::Active);
            is_configured && is_active && !with_data.contains(node) && runs_nothing(state, node)
        };
        let empty = machines.nodes().iter().filter(|(id, node)| is_empty(id, node));
        let before = std::mem::take(&mut self.empty_since);
        self.empty_since = empty
            .map(|(id, _)| {
                // A time that lies ahead was read from a clock that has been put back since.
                let since = before.get(id).copied().filter(|since| *since <= now).unwrap_or(now);
                (id.clone(), since)
            })
            .collect();
    }
}

/// A node that holds nothing but replicas of services that belong on every node: those leave with it.
pub(super) fn runs_nothing(state: &State, node: &NodeId) -> bool {
    let tenants = state.load(node).into_iter().flat_map(|load| &load.tenants);
    tenants.map(|id| state.service(&id.service)).all(|service| {
        let spec = service.and_then(|service| service.desired());
        spec.is_some_and(|spec| spec.placement.mode == Mode::Global)
    })
}

/// Data stays: a node that has some is not given back, whoever runs there.
pub(super) fn nodes_with_data(state: &State) -> BTreeSet<&NodeId> {
    let held = state.volumes().values().flat_map(|volumes| volumes.held.values());
    held.flat_map(|holders| &holders.nodes).collect()
}

/// Nodes that hold the log go one at a time, so that the cell has moved it before the next one goes.
fn without_servers(
    state: &State,
    chosen: impl Iterator<Item = (MachineId, NodeId)>,
) -> impl Iterator<Item = (MachineId, NodeId)> {
    let roles = Roles::of(state.nodes());
    let is_server = move |node: &NodeId| {
        let node = state.node(node).filter(|node| node.server.is_some());
        node.is_some_and(|node| roles.role(node) != NodeRole::Worker)
    };
    let mut is_one_going = state.draining().iter().any(&is_server);
    chosen.filter(move |(_, node)| {
        let is_server = is_server(node);
        let may_go = !is_server || !is_one_going;
        is_one_going |= is_server && may_go;
        may_go
    })
}

/// What all services ask for, whether it runs or not.
fn demand(state: &State) -> (u64, u64) {
    state.services().values().filter_map(|service| service.desired()).fold(
        (0, 0),
        |(count, cpu), spec| {
            let replicas = u64::from(spec.placement.mode.replicas().unwrap_or(0));
            (count + replicas, cpu + replicas.saturating_mul(spec.request().cpu.0))
        },
    )
}
