//! A `spread` service is even: no replica goes where there are already two more than where else it could have gone,
//! zones before nodes.

use std::collections::BTreeMap;

use plimsoll_model::{Mode, Node, NodeId, Zone};

use super::{New, Plan};

pub(super) fn check(plan: &Plan<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for key in &plan.services {
        let mut news = plan
            .new
            .iter()
            .filter(|new| new.replica.service == **key && !new.is_in_place)
            .peekable();
        let is_spread =
            news.peek().is_some_and(|new| matches!(new.spec.placement.mode, Mode::Spread { .. }));
        if !is_spread {
            continue;
        }
        let counts = plan.counts(key);
        let mut zones: BTreeMap<Option<&Zone>, u32> = BTreeMap::new();
        for (node, count) in &counts {
            *zones.entry(zone_of(plan, node)).or_default() += count;
        }
        for new in news.filter(|new| !stays(plan, new)) {
            let here = counts[new.node];
            let zone = zone_of(plan, new.node);
            for (other, node) in plan.state.nodes() {
                let there = counts.get(other).copied().unwrap_or(0);
                if other == new.node || !could_take(plan, new, other, node, there) {
                    continue;
                }
                let other_zone = node.facts.zone.as_ref();
                let (in_zone, in_other) =
                    (zones[&zone], zones.get(&other_zone).copied().unwrap_or(0));
                let better_zone = in_other + 1 < in_zone;
                let better_node = other_zone == zone && there + 1 < here;
                if better_zone || better_node {
                    broken.push(format!(
                        "{} goes to {} ({here}), not {other} ({there})",
                        new.replica, new.node
                    ));
                }
            }
        }
    }
    broken
}

/// A renewed replica stays on its node, however uneven that is: evening out is not what it moves for.
fn stays(plan: &Plan<'_>, new: &New<'_>) -> bool {
    let old = plan.state.replica(new.replica).and_then(|replica| replica.assignment.as_ref());
    old.is_some_and(|assignment| assignment.node == *new.node)
}

fn zone_of<'a>(plan: &Plan<'a>, node: &NodeId) -> Option<&'a Zone> {
    plan.state.node(node).and_then(|node| node.facts.zone.as_ref())
}

/// Whether the node could take the replica besides all that the plan puts there, and has not failed at it.
fn could_take(plan: &Plan<'_>, new: &New<'_>, id: &NodeId, node: &Node, here: u32) -> bool {
    let placement = &new.spec.placement;
    let service = plan.state.service(&new.replica.service);
    let has_failed = service.is_some_and(|service| service.row.failures.contains_key(id));
    let load = plan.state.load(id);
    let takes_port = |port| load.is_some_and(|load| load.port_holder(port).is_some());
    let planned = |port| {
        let mut others = plan.new.iter().filter(|other| other.node == id);
        others.any(|other| other.spec.host_ports().any(|p| p == port))
    };
    node.is_open()
        && placement.constraints.iter().all(|constraint| node.facts.meets(id, constraint))
        && placement.max_per_node.is_none_or(|max| here < max)
        && !has_failed
        && !new.spec.host_ports().any(|port| takes_port(port) || planned(port))
        && plan.reserved(id).plus(new.spec.request()).fits_in(node.facts.capacity)
}
