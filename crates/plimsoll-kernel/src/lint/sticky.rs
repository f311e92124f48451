//! Nothing moves that could stay: a replica on a node that may hold it, with the spec it should have, is left alone.

use plimsoll_model::{Availability, Mode, MoveCause, NodeStatus};

use super::BatchPlan;

pub(super) fn check(plan: &BatchPlan<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for new in &plan.new {
        let (Some(cause), Some(replica)) = (new.cause, plan.state.replica(new.replica)) else {
            continue;
        };
        let Some(assignment) = &replica.assignment else { continue };
        let node = plan.state.node(&assignment.node);
        let is_up = node.is_some_and(|node| node.status == NodeStatus::Ready);
        let is_allowed = node.is_some_and(|node| {
            let placement = &new.spec.placement;
            let meets = placement.constraints.iter().all(|c| node.facts.meets(&assignment.node, c))
                && new.spec.container.lacking(&node.facts.runtime).is_none();
            let listed = match &placement.mode {
                Mode::Hosts { hosts, .. } => hosts.contains(&assignment.node),
                Mode::Spread { .. } | Mode::Pack { .. } | Mode::Global => true,
            };
            meets && listed && node.availability != Availability::Draining
        });
        let is_true = match cause {
            MoveCause::NodeLost => !is_up,
            MoveCause::RuntimeLost => {
                is_up && node.is_some_and(|node| node.outage.is_some()) && !replica.runs(assignment)
            }
            MoveCause::Misplaced => is_up && !is_allowed,
            MoveCause::Pressure | MoveCause::Reschedule => {
                is_up && is_allowed && assignment.node != *new.node
            }
            MoveCause::Restart => {
                let is_asked = replica.is_stale(assignment) || replica.is_stopped(assignment);
                is_up && is_allowed && is_asked
            }
            MoveCause::Outdated => is_up && is_allowed && assignment.spec != new.spec.hash,
        };
        if !is_true {
            broken.push(format!("{} leaves {} for {}", new.replica, assignment.node, cause.word()));
        }
        let service = plan.state.service(&new.replica.service);
        let has = service.and_then(|service| service.spec_of(assignment));
        let deployment = &new.replica.service.deployment;
        let mut volumes = new.spec.container.local_volumes(deployment);
        // What has no data yet may follow a volume that it gets.
        let is_at_volume = volumes
            .any(|it| plan.state.nodes_with_volume(deployment, &it).any(|node| node == new.node))
            || super::volumes::has_declared_on(plan, new);
        let is_stateful =
            has.is_some_and(|has| has.is_stateful()) || (new.spec.is_stateful() && !is_at_volume);
        let moves_data = is_stateful && assignment.node != *new.node;
        if moves_data {
            broken.push(format!("{} has its data on {}", new.replica, assignment.node));
        }
    }
    broken
}
