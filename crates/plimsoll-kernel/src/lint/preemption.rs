//! Nobody makes way but for a replica of strictly higher priority, on a node where that then fits, and no more of them than it
//! takes; nobody loses more than its disruption budget but to one that outranks it; nothing with data makes way; and room that
//! is freed for one replica is given to no other of the same or a lower priority.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::preemption::{Preemption, Victim};
use plimsoll_model::{NodeId, Replica, ReplicaId, Resources, ServiceKey};

use super::BatchPlan;

/// From how much higher a priority on a budget does not protect. Written here again: a rule that is read from the planner checks
/// nothing.
const OUTRANKS_ABOVE: i64 = 100_000;

pub(super) fn check(plan: &BatchPlan<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for (node, it) in &plan.preempted {
        broken.extend(
            check_begun(plan, node, it)
                .into_iter()
                .map(|why| format!("{} preempts on {node}, though {why}", it.by)),
        );
    }
    for replica in &plan.evicted {
        let makes_way = |(_, it): (&NodeId, &Preemption)| it.victims.contains_key(*replica);
        if !plan.preemptions().any(makes_way) {
            broken.push(format!("{replica} is stopped, and makes way for nobody"));
        }
    }
    broken.extend(check_held(plan));
    broken
}

fn check_begun(plan: &BatchPlan<'_>, node: &NodeId, begun: &Preemption) -> Vec<String> {
    let mut broken = Vec::new();
    let spec = plan.state.service(&begun.by.service).and_then(|it| it.desired());
    let Some(spec) = spec else { return vec!["it is not asked for".to_owned()] };
    if spec.priority != begun.priority {
        broken.push(format!("its priority is {}", spec.priority));
    }
    let mut by_service: BTreeMap<&ServiceKey, usize> = BTreeMap::new();
    for (id, victim) in &begun.victims {
        *by_service.entry(&id.service).or_default() += 1;
        let Some(service) = plan.state.service(&id.service) else { continue };
        let own = service.desired().map_or(i32::MIN, |it| it.priority);
        if own >= spec.priority || own != victim.priority {
            broken.push(format!("{id} has priority {own}"));
        }
        let Some(replica) = service.replicas.get(&id.slot) else {
            broken.push(format!("there is no {id}"));
            continue;
        };
        if replica.holds().filter_map(|it| service.spec_of(it)).any(|it| it.is_stateful()) {
            broken.push(format!("{id} has data"));
        }
        if replica.successor.is_some() {
            broken.push(format!("{id} is moving"));
        }
    }
    for (key, count) in by_service {
        let own = plan.state.service(key).and_then(|it| it.desired()).map_or(0, |it| it.priority);
        if i64::from(spec.priority) - i64::from(own) > OUTRANKS_ABOVE {
            continue;
        }
        let disturbed = disturbed(plan, node, key);
        let serving = begun
            .victims
            .keys()
            .filter(|id| id.service == *key)
            .any(|id| plan.state.replica(id).is_some_and(Replica::is_running));
        if count > 1 || (serving && disturbed > 0) {
            broken.push(format!("{key} loses {count} and {disturbed} are disturbed already"));
        }
    }
    let all: BTreeSet<&ReplicaId> = begun.victims.keys().collect();
    if !fits_without(plan, node, begun, &all) {
        broken.push("it does not fit there with all of them gone".to_owned());
    }
    // Where the same batch withdraws another preemption, its victims may stay or go: what is spared is seen by the next pass.
    let is_alone = !plan.withdrawn.contains(node);
    for spared in begun.victims.keys().filter(|_| is_alone) {
        let others: BTreeSet<&ReplicaId> = all.iter().copied().filter(|it| *it != spared).collect();
        if fits_without(plan, node, begun, &others) {
            broken.push(format!("it fits there with {spared} as well"));
        }
    }
    broken
}

/// How many replicas of the service are missing, moving, down, or make way elsewhere.
fn disturbed(plan: &BatchPlan<'_>, node: &NodeId, key: &ServiceKey) -> usize {
    let Some(service) = plan.state.service(key) else { return 0 };
    let wanted =
        service.desired().and_then(|it| it.placement.mode.replicas()).unwrap_or(0) as usize;
    let live = service.replicas.iter().filter(|(_, it)| it.assignment.is_some());
    let (mut count, mut has) = (0, 0);
    for (slot, replica) in live {
        has += 1;
        let id = ReplicaId::new(key.clone(), slot.clone());
        let generation = replica.assignment.as_ref().map(|it| it.generation);
        let is_it = |victim: &Victim| Some(victim.generation) == generation;
        let elsewhere = plan.state.preemptions().in_flight().iter();
        let makes_way = elsewhere
            .filter(|(at, it)| {
                *at != node && !plan.withdrawn.contains(at) && !is_taken(plan, at, it)
            })
            .any(|(_, it)| it.victims.get(&id).is_some_and(is_it));
        count += usize::from(replica.successor.is_some() || !replica.is_running() || makes_way);
    }
    count + wanted.saturating_sub(has)
}

/// Whether who the room is held for takes it in this batch, whoever was to make way.
fn is_taken(plan: &BatchPlan<'_>, node: &NodeId, held: &Preemption) -> bool {
    let mut arrivals = plan.new_of(&held.by.service);
    arrivals.any(|new| new.node == node && !new.is_in_place)
}

/// Whether room and ports are enough with these gone, counted replica by replica. What the same batch puts there comes on top.
fn fits_without(
    plan: &BatchPlan<'_>,
    node: &NodeId,
    begun: &Preemption,
    gone: &BTreeSet<&ReplicaId>,
) -> bool {
    let Some(row) = plan.state.node(node) else { return false };
    let capacity = row.facts.capacity;
    let mut reserved = plan.added.get(node).copied().unwrap_or(Resources::NONE);
    let load = plan.state.load(node);
    for tenant in load.into_iter().flat_map(|load| &load.tenants).filter(|it| !gone.contains(it)) {
        let Some(service) = plan.state.service(&tenant.service) else { continue };
        let holds = service.replicas.get(&tenant.slot).into_iter().flat_map(Replica::holds);
        for held in holds.filter(|held| held.node == *node) {
            let request = service.spec_of(held).map_or(Resources::NONE, |it| it.request());
            reserved = reserved.plus(request.on(capacity));
        }
    }
    let holders = load.into_iter().flat_map(|load| &load.ports);
    let is_taken =
        holders.filter(|(port, by)| begun.ports.contains(port) && !gone.contains(&by)).count();
    is_taken == 0 && reserved.plus(begun.request.on(capacity)).fits_in(capacity)
}

/// Room on its way to one replica is not given to another that does not outrank it.
fn check_held(plan: &BatchPlan<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for (node, it) in plan.preemptions() {
        // What is left then is anybody's.
        if is_taken(plan, node, it) {
            continue;
        }
        let takes = |new: &&super::New<'_>| {
            new.node == node
                && !new.is_in_place
                && new.replica.service != it.by.service
                && new.spec.priority <= it.priority
        };
        // What is begun in this batch comes after whatever the batch placed there for those of higher priority.
        let Some(new) = plan.new.iter().find(takes) else { continue };
        let all: BTreeSet<&ReplicaId> = it.victims.keys().collect();
        let asks_for_some = new.spec.request() != Resources::NONE
            || new.spec.host_ports().any(|port| it.ports.contains(&port));
        if asks_for_some && !fits_without(plan, node, it, &all) {
            broken.push(format!("{} takes room on {node} that is held for {}", new.replica, it.by));
        }
    }
    broken
}
