//! `spread` and `hosts` are even: no replica goes where there are already two more than where else it could have gone,
//! in zones before nodes; and of zones with equally many, it goes to the node with the fewest. What leaves a hot node goes to
//! the coldest instead, and is not asked.

use std::collections::BTreeMap;

use plimsoll_model::{Mode, MoveCause, Node, NodeId, ServiceKey, Zone};

use super::{BatchPlan, New, volumes};

pub(super) fn check(plan: &BatchPlan<'_>) -> Vec<String> {
    plan.by_service.keys().flat_map(|key| check_service(plan, key)).collect()
}

fn check_service<'a>(plan: &BatchPlan<'a>, key: &ServiceKey) -> Vec<String> {
    let is_asked = |new: &&New<'_>| {
        let mode = &new.spec.placement.mode;
        !new.is_in_place
            // These go by more than evenness: by how busy nodes are, and how long they have been there.
            && !new.cause.is_some_and(|it| it.is_chosen() || it == MoveCause::Preempted)
            && !volumes::have_a_say(plan, new)
            && matches!(mode, Mode::Spread { .. } | Mode::Hosts { .. })
    };
    let news: Vec<&New<'_>> =
        plan.new_of(key).filter(is_asked).filter(|new| !stays(plan, new)).collect();
    if news.is_empty() {
        return Vec::new();
    }
    let counts = plan.counts(key);
    let mut zones: BTreeMap<Option<&Zone>, u32> = BTreeMap::new();
    // A node that has left is in no zone, and what was on it is nowhere until it is replaced.
    for (node, count) in counts.iter().filter(|(node, _)| plan.state.node(node).is_some()) {
        *zones.entry(zone_of(plan, node)).or_default() += count;
    }
    let place = |(id, node): (&'a NodeId, &'a Node)| {
        let zone = node.facts.zone.as_ref();
        let there = counts.get(id).copied().unwrap_or(0);
        let in_zone = zones.get(&zone).copied().unwrap_or(0);
        NodeCount { id, node, zone, there, in_zone }
    };
    // Where else they could have gone: the same for every new replica, so it is read once.
    // Room that another gave up later in the batch was held when these were placed.
    let nodes = plan.state.nodes().iter().filter(|(id, _)| !plan.withdrawn.contains(id));
    let places: Vec<NodeCount<'_>> = nodes.map(place).collect();
    let mut broken = Vec::new();
    for new in news {
        let (here, zone) = (counts[new.node], zone_of(plan, new.node));
        let in_zone = zones[&zone];
        for other in &places {
            // With this replica there instead of here: one more in the other zone and node, one fewer in these.
            let better_zone = other.in_zone + 1 < in_zone;
            let better_node =
                other.there + 1 < here && (other.in_zone < in_zone || other.zone == zone);
            if (better_zone || better_node)
                && could_take(plan, new, other.id, other.node, other.there)
            {
                let (replica, node, id, there) = (new.replica, new.node, other.id, other.there);
                broken.push(format!("{replica} goes to {node} ({here}), not {id} ({there})"));
            }
        }
    }
    broken
}

/// A node, and how many replicas of the service it and its zone have.
struct NodeCount<'a> {
    id: &'a NodeId,
    node: &'a Node,
    zone: Option<&'a Zone>,
    there: u32,
    in_zone: u32,
}

/// A renewed replica stays on its node, however uneven that is: evening out is not what it moves for.
fn stays(plan: &BatchPlan<'_>, new: &New<'_>) -> bool {
    let old = plan.state.replica(new.replica).and_then(|replica| replica.assignment.as_ref());
    old.is_some_and(|assignment| assignment.node == *new.node)
}

fn zone_of<'a>(plan: &BatchPlan<'a>, node: &NodeId) -> Option<&'a Zone> {
    plan.state.node(node).and_then(|node| node.facts.zone.as_ref())
}

/// Whether the node could take the replica besides all that the plan puts there, and has not failed at it.
fn could_take(plan: &BatchPlan<'_>, new: &New<'_>, id: &NodeId, node: &Node, here: u32) -> bool {
    let placement = &new.spec.placement;
    let service = plan.state.service(&new.replica.service);
    let has_failed = service.is_some_and(|service| service.row.failures.contains_key(id));
    let is_listed = match &placement.mode {
        Mode::Hosts { hosts, .. } => hosts.contains(id),
        Mode::Spread { .. } | Mode::Pack { .. } | Mode::Binpack { .. } | Mode::Global => true,
    };
    let load = plan.state.load(id);
    let takes_port = |port| load.is_some_and(|load| load.port_holder(port).is_some());
    let planned = |port| {
        let mut others = plan.new.iter().filter(|other| other.node == id);
        others.any(|other| other.spec.host_ports().any(|p| p == port))
    };
    // Room that is being freed for another is not to be had.
    let is_held = plan.preemptions().any(|(at, it)| {
        at == id && it.by.service != new.replica.service && it.priority >= new.spec.priority
    });
    node.is_open()
        && !is_held
        && is_listed
        && placement.constraints.iter().all(|it| node.facts.meets(id, plan.role(id), it))
        && new.spec.container.lacking(&node.facts.runtime).is_none()
        && placement.max_per_node.is_none_or(|max| here < max)
        && !has_failed
        && !new.spec.host_ports().any(|port| takes_port(port) || planned(port))
        && plan.reserved(id).plus(new.spec.request()).fits_in(node.facts.capacity)
}
