//! No two replicas of a node share a host port.

use std::collections::BTreeMap;

use plimsoll_model::spec::HostPort;
use plimsoll_model::{NodeId, ReplicaId};

use super::BatchPlan;

pub(super) fn check(plan: &BatchPlan<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut taken: BTreeMap<(&NodeId, HostPort), &ReplicaId> = BTreeMap::new();
    for new in &plan.new {
        for port in new.spec.host_ports() {
            let load = plan.state.load(new.node);
            let held = load.into_iter().flat_map(|load| &load.ports);
            let mut holders = held.filter(|(other, _)| *other == port).map(|(_, replica)| replica);
            let before = holders.find(|holder| *holder != new.replica);
            if let Some(holder) = before.or(taken.insert((new.node, port), new.replica)) {
                broken.push(format!("{} takes {port} of {} from {holder}", new.replica, new.node));
            }
        }
    }
    broken
}
