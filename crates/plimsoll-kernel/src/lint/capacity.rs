//! No node is promised more than it has, of anything that the plan asks more of.

use plimsoll_model::Resources;

use super::BatchPlan;

pub(super) fn check(plan: &BatchPlan<'_>) -> Vec<String> {
    let over = plan.added.iter().filter(|(node, added)| {
        let capacity = plan.state.node(node).map(|node| node.facts.capacity);
        capacity.is_some_and(|capacity| is_over(**added, plan.reserved(node), capacity))
    });
    over.map(|(node, _)| format!("{node} would hold {:?}", plan.reserved(node))).collect()
}

fn is_over(added: Resources, reserved: Resources, capacity: Resources) -> bool {
    let is_over = |added: u64, reserved: u64, capacity: u64| added > 0 && reserved > capacity;
    is_over(added.cpu.0, reserved.cpu.0, capacity.cpu.0)
        || is_over(added.memory.0, reserved.memory.0, capacity.memory.0)
        || is_over(added.gpus.into(), reserved.gpus.into(), capacity.gpus.into())
}
