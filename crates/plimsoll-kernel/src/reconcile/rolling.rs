//! What a pass does about the rollout of a service as a whole.

use plimsoll_model::state::Service;
use plimsoll_model::{
    Change, NodeId, NodeStatus, Replica, ReplicaId, ServiceKey, ServiceSpec, Slot,
};

use super::Pass;
use crate::rollout::{RolloutContext, RolloutDecision, judge};

impl Pass<'_> {
    /// Whether steps may begin; none once the service should run something else. It is judged by the replicas that stay.
    pub(super) fn rollout(
        &mut self,
        key: &ServiceKey,
        service: &Service,
        spec: &ServiceSpec,
        stays: impl Fn(&Slot) -> bool,
    ) -> Option<bool> {
        let Some(rollout) = &service.row.rollout else { return Some(true) };
        let given = RolloutContext { spec, policy: self.policy, now: self.now };
        // What is on a node that is down says nothing of the new spec.
        let is_down =
            |node: &NodeId| self.state.node(node).is_none_or(|it| it.status == NodeStatus::Down);
        let is_there = |(slot, replica): &(&Slot, &Replica)| {
            stays(slot)
                && replica.assignment.as_ref().is_some_and(|assignment| !is_down(&assignment.node))
        };
        match judge(rollout, given, service.replicas.iter().filter(is_there)) {
            RolloutDecision::Go => Some(true),
            RolloutDecision::Hold(until) => {
                if let Some(until) = until {
                    self.wake_at(until);
                }
                Some(false)
            }
            RolloutDecision::Late(slots) => {
                for slot in slots {
                    let id = ReplicaId::new(key.clone(), slot);
                    self.about(&id, Change::StepLate { replica: id.clone() });
                }
                Some(false)
            }
            RolloutDecision::Pause(why) => {
                self.of_service(key, Change::PauseRollout { service: key.clone(), why });
                Some(false)
            }
            RolloutDecision::Abort(why) => {
                self.of_service(key, Change::AbortRollout { service: key.clone(), why });
                None
            }
            RolloutDecision::End => {
                self.of_service(key, Change::EndRollout { service: key.clone() });
                Some(true)
            }
        }
    }

    /// Adds a change that holds only while the deployment is at the revision it was decided on.
    pub(super) fn of_service(&mut self, key: &ServiceKey, change: Change) {
        let revision = self.state.deployments().get(&key.deployment).map(|d| d.revision);
        self.decision.batch.push(change.at_revision(revision));
    }
}
