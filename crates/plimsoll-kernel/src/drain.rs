//! Drains that take too long.

use plimsoll_model::{Change, Guarded, NodeId, State, Timestamp};

/// The drains to give up now, and when to look again at the others.
pub(crate) fn judge(state: &State, now: Timestamp) -> (Vec<Guarded>, Option<Timestamp>) {
    let (mut overdue, mut look_again) = (Vec::new(), None);
    for id in state.draining() {
        let Some(drain) = state.node(id).and_then(|node| node.drain) else { continue };
        if !holds_any(state, id) {
            continue;
        }
        let deadline = drain.deadline();
        if now >= deadline {
            overdue.push(Change::GiveUpDrain { node: id.clone() }.free());
        } else {
            look_again = Some(look_again.map_or(deadline, |at: Timestamp| at.min(deadline)));
        }
    }
    (overdue, look_again)
}

/// Whether replicas are still assigned to the node and not stopped there by force.
fn holds_any(state: &State, node: &NodeId) -> bool {
    let tenants = state.load(node).into_iter().flat_map(|load| &load.tenants);
    tenants.filter_map(|id| state.replica(id)).any(|replica| {
        let here = replica.assignment.as_ref().filter(|assignment| assignment.node == *node);
        here.is_some_and(|assignment| !replica.is_stopped(assignment))
    })
}
