//! What the coordinator is told of a cell, from its state alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_model::fleet::{
    MAX_POOLS, MAX_SHORTFALLS, Pool, Preemptible, Registration, Report, ReportOrder, ShardId,
    Shortfall, Supply,
};
use plimsoll_model::machines::{MachineState, Machines};
use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::{Resources, State};

use super::obey::stake;
use super::reclaim::nodes_with_data;

/// What a machine of each type has. Of two kinds with one name the smaller counts: nobody is promised more than there is.
pub fn registration(machines: &Machines) -> Registration {
    let mut types: BTreeMap<_, Resources> = BTreeMap::new();
    for class in machines.classes() {
        let known = types.entry(class.pool.machine_type.clone()).or_insert(class.capacity);
        known.cpu = known.cpu.min(class.capacity.cpu);
        known.memory = known.memory.min(class.capacity.memory);
        known.gpus = known.gpus.min(class.capacity.gpus);
    }
    Registration { types }
}

/// Everything that is said of the cell in one report.
pub fn report(state: &State, shard: ShardId, order: ReportOrder) -> Report {
    let machines = state.machines();
    Report {
        shard,
        order,
        is_paused: machines.is_paused(),
        supply: supply(machines),
        shortfalls: shortfalls(machines),
        preemptible: preemptible(state),
    }
}

/// Machines by type and zone. What is set aside is not idle, and what could be made is nothing yet.
pub(super) fn supply(machines: &Machines) -> BTreeMap<Pool, Supply> {
    let mut of_class = vec![Supply::default(); machines.classes().len()];
    let mut reserved = machines.reservations().keys().peekable();
    for (id, row) in machines.all() {
        while reserved.next_if(|held| *held < id).is_some() {}
        let Some(supply) = of_class.get_mut(row.class()) else { continue };
        supply.quota_used += u32::from(row.state.exists());
        match row.state {
            MachineState::Idle if reserved.peek() != Some(&id) => supply.idle += 1,
            MachineState::Configured => supply.configured += 1,
            _ => {}
        }
    }
    let mut pools: BTreeMap<Pool, Supply> = BTreeMap::new();
    for (class, count) in machines.classes().iter().zip(of_class) {
        if count == Supply::default() {
            continue;
        }
        let row = pools.entry(class.pool.clone()).or_default();
        row.idle += count.idle;
        row.configured += count.configured;
        row.quota_used += count.quota_used;
    }
    pools
}

/// The most important ones, of a cell that lacks more than a report holds.
fn shortfalls(machines: &Machines) -> Vec<Shortfall> {
    let mut rows: Vec<_> = machines.ledger().iter().collect();
    rows.sort_by_key(|(profile, row)| (Reverse(row.priority), Reverse(row.age), *profile));
    rows.truncate(MAX_SHORTFALLS);
    rows.into_iter().map(|(profile, row)| row.shortfall(profile)).collect()
}

/// Machines in use that could be drained, those that matter least first.
fn preemptible(state: &State) -> Vec<Preemptible> {
    let machines = state.machines();
    let with_data = nodes_with_data(state);
    let mut rows = BTreeMap::new();
    for (id, node) in machines.nodes() {
        let row = machines.get(id).filter(|row| row.state == MachineState::Configured);
        let Some(class) = row.and_then(|row| machines.class_of(row)) else { continue };
        let is_open = state.node(node).is_some_and(plimsoll_model::Node::is_open);
        if !is_open || with_data.contains(node) || machines.reservations().contains_key(id) {
            continue;
        }
        let Some(risked) = stake(state, node) else { continue };
        *rows.entry((risked.priority, risked.bucket, &class.pool)).or_insert(0) += 1;
    }
    let rows = rows.into_iter().take(MAX_POOLS);
    let row = |((priority, bucket, pool), machines): ((i32, _, &Pool), u32)| Preemptible {
        pool: pool.clone(),
        priority,
        bucket,
        machines,
        // Each replica has its time to leave, and they leave beside each other.
        grace: DRAIN_TIMEOUT,
    };
    rows.map(row).collect()
}
