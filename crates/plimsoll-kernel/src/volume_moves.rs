//! How a move of volumes goes on: what uses them is stopped, then the destination may copy. That it has, or could not, its
//! node says; here it is decided when to begin, and when to give up. Also which nodes could have them.

use plimsoll_model::reason::{Filter, UnplacedReason};
use plimsoll_model::spec::VolumeGroup;
use plimsoll_model::state::Service;
use plimsoll_model::volumes::{
    VolumeChange, VolumeMove, VolumeMoveFailure, VolumeMovePhase, Volumes,
};
use plimsoll_model::{
    Change, DeploymentName, Guarded, Millis, NodeId, NodeStatus, Resources, ServiceKey,
    ServiceName, ServiceSpec, State, Timestamp,
};

use crate::place::Roster;
use crate::place::filter::{PlacementRequest, filter};
use crate::policy::Policy;
use crate::reconcile::Pass;
use crate::signals::Signals;

/// How long what uses a volume may take to stop. A runtime kills after the grace of the spec, which is far shorter; only one
/// that does not answer takes longer.
const STOP_TIMEOUT: Millis = Millis::minutes(30);

/// The next step of every move, and when to look again though nothing happens.
pub(crate) fn next(state: &State, now: Timestamp) -> (Vec<Guarded>, Option<Timestamp>) {
    let moving = state.volumes().iter().filter_map(|(name, it)| Some((name, it.moving.as_ref()?)));
    let (mut changes, mut wake) = (Vec::new(), None);
    for (deployment, moving) in moving {
        let (deployment, order) = (deployment.clone(), moving.order);
        let until = moving.since.plus(STOP_TIMEOUT);
        let change = if let Some(why) = failure(state, moving, now) {
            VolumeChange::GiveUp { deployment, order, why }
        } else if moving.phase == VolumeMovePhase::Stopping && !is_used(state, moving) {
            VolumeChange::Copy { deployment, order }
        } else {
            if moving.phase == VolumeMovePhase::Stopping {
                wake = Some(wake.map_or(until, |wake: Timestamp| wake.min(until)));
            }
            continue;
        };
        changes.push(Change::Volume { change }.free());
    }
    (changes, wake)
}

fn failure(state: &State, moving: &VolumeMove, now: Timestamp) -> Option<VolumeMoveFailure> {
    let is_ready =
        |node: &NodeId| state.node(node).is_some_and(|it| it.status == NodeStatus::Ready);
    if !is_ready(&moving.src) {
        return Some(VolumeMoveFailure::SourceLost);
    }
    if !is_ready(&moving.dst) {
        return Some(VolumeMoveFailure::DestinationLost);
    }
    let is_late = now >= moving.since.plus(STOP_TIMEOUT);
    (moving.phase == VolumeMovePhase::Stopping && is_late).then_some(VolumeMoveFailure::NotStopped)
}

fn is_used(state: &State, moving: &VolumeMove) -> bool {
    moving.volumes.iter().any(|volume| !state.users_of_volume(volume).is_empty())
}

impl<'s> Pass<'s> {
    pub(crate) fn volume_moves(&mut self) {
        let (changes, wake) = next(self.state, self.now);
        self.decision.batch.extend(changes);
        if let Some(at) = wake {
            self.wake_at(at);
        }
    }

    /// Whether the service is stopped because its volumes move; then it is.
    pub(crate) fn is_paused_for_move(
        &mut self,
        roster: &mut Roster,
        key: &'s ServiceKey,
        service: &'s Service,
        spec: &ServiceSpec,
    ) -> bool {
        let Some(moving) = self.state.volume_move_for(&key.deployment, spec) else { return false };
        self.retire_all(roster, key, service);
        let wanted = spec.placement.mode.replicas().unwrap_or(1) as usize;
        let why = UnplacedReason::VolumeMoving { to: moving.dst.clone() };
        self.explain_missing(key, service, wanted, (wanted > 0).then_some(why));
        true
    }
}

/// What moves with a volume: none where nothing mounts it that runs on one node.
pub fn tied<'s>(
    state: &'s State,
    deployment: &DeploymentName,
    volume: &str,
) -> Option<VolumeGroup<'s>> {
    let services = state.services_of(deployment).filter_map(|key| {
        let service = state.service(key)?;
        Some((&key.service, service.desired()?.as_ref()))
    });
    let mut groups = VolumeGroup::all(deployment, services).into_iter();
    groups.find(|group| group.volumes.contains(volume))
}

/// Why the node could not take the whole group, by the filters that any placement has to pass. What runs of it elsewhere is
/// stopped first, and counts for nothing here.
pub fn refused_by(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    deployment: &DeploymentName,
    group: &VolumeGroup<'_>,
    node: &NodeId,
    now: Timestamp,
) -> Option<(ServiceName, Filter)> {
    let at = roster.place_of(node)?;
    let mut total = Resources::NONE;
    for (name, spec) in &group.services {
        let key = ServiceKey::new(deployment.clone(), (*name).clone());
        let service = state.service(&key)?;
        let replicas = spec.placement.mode.replicas().unwrap_or(1);
        total = (0..replicas).fold(total, |sum, _| sum.plus(spec.request()));
        let mut ask = PlacementRequest::new(spec, &service.row.failures, policy, now);
        // All that came before it is there by then.
        ask.request = total;
        if let Some(filter) = filter(&ask, roster, at, 0) {
            return Some(((*name).clone(), filter));
        }
    }
    None
}

/// The node that would have the whole group: of those that can, the one with the most room.
pub fn destination(
    state: &State,
    signals: &Signals,
    policy: &Policy,
    deployment: &DeploymentName,
    group: &VolumeGroup<'_>,
    src: &NodeId,
    now: Timestamp,
) -> Option<NodeId> {
    let roster = Roster::new(state, signals, policy);
    let volumes = state.volumes().get(deployment);
    let has_copy = |node: &NodeId| volumes.is_some_and(|it| has_copy(it, group, node));
    let free = |node: &NodeId| {
        let capacity = state.node(node)?.facts.capacity;
        let reserved = state.load(node).map_or(Resources::NONE, |load| load.reserved);
        Some(capacity.minus(reserved.on(capacity)).memory)
    };
    let others = state.nodes().keys().filter(|node| *node != src && !has_copy(node));
    let fit = others
        .filter(|node| refused_by(state, &roster, policy, deployment, group, node, now).is_none());
    // Of equals the first by name, so that every leader chooses the same.
    fit.max_by(|a, b| free(a).cmp(&free(b)).then_with(|| b.cmp(a))).cloned()
}

fn has_copy(volumes: &Volumes, group: &VolumeGroup<'_>, node: &NodeId) -> bool {
    let mut held = group.volumes.iter().filter_map(|volume| volumes.held.get(volume));
    held.any(|holders| holders.has_copy(node))
}

#[cfg(test)]
mod tests;
