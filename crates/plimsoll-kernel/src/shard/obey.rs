//! What a cell makes of the coordinator's instructions. Each is fenced by its term and done once; what takes a while is answered when
//! it has ended. Nothing is drained by force: at worst a drain was for nothing.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::fleet::{
    Ack, AckError, Bucket, Instruction, InstructionId, MachineId, Order, Pool, TransferId,
};
use plimsoll_model::machines::{Deed, MachineChange, MachineState, Machines, Task, TaskGoal};
use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::{Availability, Change, Guarded, Millis, NodeId, ReplicaId, State, Timestamp};

use super::reclaim::{nodes_with_data, runs_nothing};
use super::{change, step};

/// What a donor keeps of its idle machines of a pool whatever it is asked for: a tenth, and at least one.
const KEEP_PERCENT: usize = 10;

/// How long a machine that is another cell's is kept from use here while it is emptied: as long as that may take.
const FORGET_HOLD: Millis = Millis::minutes(24 * 60);

/// Everything that one answer of the coordinator says, each instruction as a batch of its own: one that is refused holds up no other.
/// Answers that it has heard are forgotten: it does not ask for those any more.
pub fn obey_all(state: &State, instructions: &[Instruction], now: Timestamp) -> Vec<Vec<Guarded>> {
    let asked: BTreeSet<InstructionId> = instructions.iter().map(|it| it.id).collect();
    let seen = state.machines().term();
    let is_old = instructions.iter().any(|it| it.term < seen);
    let heard = state.machines().acks().keys().filter(|id| !is_old && !asked.contains(id));
    let heard: BTreeSet<InstructionId> = heard.copied().collect();
    let mut batches = Vec::new();
    if !heard.is_empty() {
        batches.push(vec![change(MachineChange::Heard { ids: heard })]);
    }
    batches.extend(instructions.iter().map(|it| obey(state, it, now)));
    batches.retain(|batch| !batch.is_empty());
    batches
}

/// What is done about one instruction. Nothing, if it was done before or comes from a coordinator that leads no longer.
pub fn obey(state: &State, instruction: &Instruction, now: Timestamp) -> Vec<Guarded> {
    let Instruction { term, id, transfer, order } = instruction;
    let machines = state.machines();
    if *term < machines.term() || machines.has_obeyed(*id) {
        return Vec::new();
    }
    let mut batch = Vec::new();
    let paused = Deed::Refuse { reason: AckError::Paused };
    let deed = match order {
        Order::Reserve { .. } | Order::Drain { .. } if machines.is_paused() => paused,
        Order::Reserve { pool, count, ttl } => {
            let given = idle_to_give(state, pool, *count);
            if given.is_empty() {
                Deed::Refuse { reason: AckError::NothingToGive }
            } else {
                Deed::Reserve { machines: given, until: now.plus(*ttl) }
            }
        }
        Order::Drain { pool, count, below_priority, ttl } => {
            let given = to_drain(state, pool, *count, *below_priority);
            for node in given.values() {
                batch.push(drain_node(node));
            }
            if given.is_empty() {
                Deed::Refuse { reason: AckError::NothingToGive }
            } else {
                Deed::Drain { machines: given.into_keys().collect(), until: now.plus(*ttl) }
            }
        }
        Order::Forget { machines: given } => forget(state, (given, *transfer), now, &mut batch),
        Order::Adopt { machines: given } => adopt(state, given),
        Order::Release { machines } => Deed::Release { machines: machines.clone() },
        Order::SetQuota { pool, slice } => {
            let used = super::report::supply(machines).get(pool).map_or(0, |it| it.quota_used);
            let before = machines.quota(pool);
            if used > *slice && before.is_none_or(|before| *slice < before) {
                Deed::Refuse { reason: AckError::InUse }
            } else {
                Deed::SetQuota { pool: pool.clone(), slice: *slice }
            }
        }
    };
    let (term, id, transfer) = (*term, *id, *transfer);
    batch.push(change(MachineChange::Obey { term, id, transfer, deed }));
    batch
}

/// Idle machines of the pool that nobody was promised, those of least value to keep first: what can be taken away at any time, then
/// what was idle longest. Some are kept.
fn idle_to_give(state: &State, pool: &Pool, count: u32) -> BTreeSet<MachineId> {
    let machines = state.machines();
    let idle = machines.all().iter().filter_map(|(id, row)| {
        let class = machines.class_of(row).filter(|class| class.pool == *pool)?;
        let is_free = row.state == MachineState::Idle && !machines.reservations().contains_key(id);
        is_free.then(|| (class.kind, row.since(), id))
    });
    let mut idle: Vec<_> = idle.collect();
    idle.sort_unstable();
    let keep = (idle.len() * KEEP_PERCENT).div_ceil(100).max(1);
    let most = idle.len().saturating_sub(keep).min(usize::try_from(count).unwrap_or(usize::MAX));
    idle.into_iter().take(most).map(|(_, _, id)| id.clone()).collect()
}

/// What would be interrupted on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stake {
    /// The highest priority of anything there.
    pub(super) priority: i32,
    /// The most that an interruption of anything there would cost, if that was said of everything.
    pub(super) bucket: Option<Bucket>,
    pub(super) replicas: usize,
}

/// What a drain of the node would interrupt; none where it holds something that no drain moves, or nothing at all.
pub(super) fn stake(state: &State, node: &NodeId) -> Option<Stake> {
    let load = state.load(node)?;
    if runs_nothing(state, node) {
        return None;
    }
    let (mut priority, mut bucket) = (i32::MIN, Some(Bucket(0)));
    for id in &load.tenants {
        let spec = spec_of(state, id)?;
        let said = Bucket::of_penalty(spec.interruption_penalty);
        if said == Some(Bucket::PINNED) {
            return None;
        }
        priority = priority.max(spec.priority);
        bucket = bucket.zip(said).map(|(a, b)| a.max(b));
    }
    Some(Stake { priority, bucket, replicas: load.tenants.len() })
}

fn spec_of<'s>(state: &'s State, id: &ReplicaId) -> Option<&'s plimsoll_model::ServiceSpec> {
    state.service(&id.service)?.desired().map(AsRef::as_ref)
}

/// Machines of the pool whose work matters less than this, those with the least at stake first.
fn to_drain(
    state: &State,
    pool: &Pool,
    count: u32,
    below_priority: i32,
) -> BTreeMap<MachineId, NodeId> {
    let machines = state.machines();
    let with_data = nodes_with_data(state);
    let candidates = machines.nodes().iter().filter_map(|(id, node)| {
        let row = machines.get(id).filter(|row| row.state == MachineState::Configured)?;
        machines.class_of(row).filter(|class| class.pool == *pool)?;
        let is_open = state.node(node).is_some_and(plimsoll_model::Node::is_open);
        if !is_open || with_data.contains(node) || machines.reservations().contains_key(id) {
            return None;
        }
        // Where nobody said what an interruption costs, none is worth it.
        let risked = stake(state, node).filter(|it| it.bucket.is_some())?;
        if risked.priority >= below_priority {
            return None;
        }
        Some((risked, id, node))
    });
    let mut candidates: Vec<_> = candidates.collect();
    candidates.sort_unstable();
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let chosen = candidates.into_iter().take(most);
    chosen.map(|(_, id, node)| (id.clone(), node.clone())).collect()
}

/// They are somebody else's. What is in use here though is emptied first, and the coordinator says it again until then.
/// Until then they are set aside, so that no need takes them again.
fn forget(
    state: &State,
    (given, transfer): (&BTreeSet<MachineId>, TransferId),
    now: Timestamp,
    batch: &mut Vec<Guarded>,
) -> Deed {
    let machines = state.machines();
    let in_use = given.iter().filter_map(|id| Some((id, machines.get(id)?)));
    let in_use: Vec<_> = in_use.filter(|(_, row)| row.state.is_in_use()).collect();
    if in_use.is_empty() {
        return Deed::Forget { machines: given.clone() };
    }
    if !machines.is_paused() {
        for (id, row) in in_use {
            if !machines.reservations().contains_key(id) {
                let (machine, until) = (id.clone(), now.plus(FORGET_HOLD));
                batch.push(change(MachineChange::Reserve { machine, transfer, until }));
            }
            // One that an operator cordoned is left to the operator.
            let may_go = |node: &&NodeId| {
                state.node(node).is_some_and(|row| row.availability != Availability::Cordoned)
            };
            let node = machines.node_of(id).filter(may_go);
            if let Some(node) = node.filter(|_| row.state == MachineState::Configured) {
                batch.extend(drain(id, node));
            }
        }
    }
    Deed::Fail { reason: AckError::InUse }
}

/// Those that it owns under such an epoch already are its own; the provider describes the others.
fn adopt(state: &State, given: &[(MachineId, u64)]) -> Deed {
    let machines = state.machines();
    let mut wanted = BTreeMap::new();
    for (id, epoch) in given {
        let Ok(epoch) = u32::try_from(*epoch) else {
            return Deed::Refuse { reason: AckError::Unknown };
        };
        if !is_settled(machines, id, epoch) {
            wanted.insert(id.clone(), epoch);
        }
    }
    Deed::Adopt { machines: wanted }
}

/// Whether the cell owns the machine under this epoch or a later one, or has given it away since.
pub(super) fn is_settled(machines: &Machines, id: &MachineId, epoch: u32) -> bool {
    let has = machines.get(id).map(|row| row.epoch);
    has.max(machines.forgotten().get(id).copied()).is_some_and(|known| known >= epoch)
}

/// A machine that leaves the cell: nothing new comes to its node, what is there moves away, and nothing is stopped. The step comes
/// first: should a long batch be cut after it, the next cycle takes it back.
pub(super) fn drain(machine: &MachineId, node: &NodeId) -> [Guarded; 2] {
    [step(machine, MachineState::Configured, MachineState::Draining), drain_node(node)]
}

fn drain_node(node: &NodeId) -> Guarded {
    Change::Drain { node: node.clone(), timeout: DRAIN_TIMEOUT, force: false }.free()
}

/// The answers to instructions that have come to an end.
pub(super) fn finish_tasks(state: &State, now: Timestamp) -> Vec<Guarded> {
    let ended = state.machines().tasks().iter().filter_map(|(id, task)| {
        let ack = ended(state, task, now)?;
        Some(change(MachineChange::Finish { id: *id, ack }))
    });
    ended.collect()
}

fn ended(state: &State, task: &Task, now: Timestamp) -> Option<Ack> {
    let machines = state.machines();
    match &task.goal {
        TaskGoal::Adopt { machines: wanted } => {
            let mut wanted = wanted.iter();
            wanted.all(|(id, epoch)| is_settled(machines, id, *epoch)).then_some(Ack::Done)
        }
        TaskGoal::Drain { machines: wanted, until } => {
            let is_going = |id: &&MachineId| {
                machines.get(id).is_some_and(|row| row.state == MachineState::Draining)
                    && machines.reservations().contains_key(*id)
            };
            if now < *until && wanted.iter().any(|id| is_going(&id)) {
                return None;
            }
            let is_ready = |id: &&MachineId| {
                let is_idle = machines.get(id).is_some_and(|row| row.state == MachineState::Idle);
                let held = machines.reservations().get(*id);
                is_idle && held.is_some_and(|it| it.transfer == task.transfer && now < it.until)
            };
            let ready: BTreeSet<MachineId> = wanted.iter().filter(is_ready).cloned().collect();
            Some(if ready.is_empty() && machines.is_paused() {
                Ack::Refused { reason: AckError::Paused }
            } else if ready.is_empty() {
                Ack::Refused { reason: AckError::InUse }
            } else {
                Ack::Reserved { machines: ready }
            })
        }
    }
}
