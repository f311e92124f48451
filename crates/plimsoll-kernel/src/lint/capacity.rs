//! No node is promised more than it has.

use std::collections::BTreeSet;

use super::Plan;

pub(super) fn check(plan: &Plan<'_>) -> Vec<String> {
    let nodes: BTreeSet<_> =
        plan.new.iter().filter(|new| !new.is_in_place).map(|new| new.node).collect();
    let over = nodes.into_iter().filter(|node| {
        let capacity = plan.state.node(node).map(|node| node.facts.capacity);
        capacity.is_some_and(|capacity| !plan.reserved(node).fits_in(capacity))
    });
    over.map(|node| format!("{node} would hold {:?}", plan.reserved(node))).collect()
}
