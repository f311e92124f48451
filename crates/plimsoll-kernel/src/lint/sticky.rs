//! Nothing moves that could stay: a replica on a node that may hold it, with the spec it should have, is left alone.

use plimsoll_model::preemption::Preemption;
use plimsoll_model::{Availability, Mode, MoveCause, NodeStatus};

use super::BatchPlan;

pub(super) fn check(plan: &BatchPlan<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for (nth, new) in plan.new.iter().enumerate() {
        let (Some(cause), Some(replica)) = (new.cause, plan.state.replica(new.replica)) else {
            continue;
        };
        let Some(assignment) = &replica.assignment else { continue };
        let node = plan.state.node(&assignment.node);
        let is_up = node.is_some_and(|node| node.status == NodeStatus::Ready);
        let is_allowed = node.is_some_and(|node| {
            let placement = &new.spec.placement;
            let (at, role) = (&assignment.node, plan.role(&assignment.node));
            let meets = placement.constraints.iter().all(|it| node.facts.meets(at, role, it))
                && new.spec.container.lacking(&node.facts.runtime).is_none();
            let listed = match &placement.mode {
                Mode::Hosts { hosts, .. } => hosts.contains(&assignment.node),
                Mode::Spread { .. } | Mode::Pack { .. } | Mode::Binpack { .. } | Mode::Global => {
                    true
                }
            };
            meets && listed && node.availability != Availability::Draining
        });
        let is_true = match cause {
            MoveCause::NodeLost => !is_up,
            MoveCause::RuntimeLost => {
                // Nothing runs any more of what has completed.
                let runs = replica.runs(assignment) && !replica.has_completed(assignment);
                is_up && node.is_some_and(|node| node.outage.is_some()) && !runs
            }
            MoveCause::Misplaced => is_up && !is_allowed,
            MoveCause::Pressure | MoveCause::Reschedule | MoveCause::Optimize => {
                is_up && is_allowed && assignment.node != *new.node
            }
            MoveCause::Preempted => {
                let makes_way = |it: &Preemption| {
                    let victim = it.victims.get(new.replica);
                    victim.is_some_and(|victim| victim.generation == assignment.generation)
                };
                is_up && is_allowed && plan.preemptions().any(|(_, it)| makes_way(it))
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
        let is_at_volume = volumes.any(|it| {
            plan.state.nodes_with_volume(deployment, &it).any(|node| node == new.node)
                || super::volumes::begins_on(&plan.new[..nth], deployment, &it, new.node)
        }) || super::volumes::has_declared_on(plan, new);
        // An old copy of a volume, which a move has left here, is none of its data.
        let is_barred = super::volumes::is_old_copy_on(plan, new, &assignment.node);
        let gets_data = new.spec.is_stateful() && !is_at_volume && !is_barred;
        let is_stateful = has.is_some_and(|has| has.is_stateful()) || gets_data;
        let moves_data = is_stateful && assignment.node != *new.node;
        if moves_data {
            broken.push(format!("{} has its data on {}", new.replica, assignment.node));
        }
    }
    broken
}
