//! How a move of volumes goes on: what uses them is stopped, then the destination may copy. That it has, or could not, its
//! node says; here it is decided when to begin, and when to give up. Likewise a backup or restore, which a client carries out.
//! Also which nodes could have volumes, and what moves with one.

use std::collections::BTreeSet;

use plimsoll_model::reason::{Filter, UnplacedReason};
use plimsoll_model::spec::VolumeGroup;
use plimsoll_model::state::Service;
use plimsoll_model::volume_holds::{VolumeHold, VolumeHoldFailure, VolumeHoldPhase};
use plimsoll_model::volumes::{
    VolumeChange, VolumeMove, VolumeMoveFailure, VolumeMovePhase, Volumes,
};
use plimsoll_model::{
    Change, DeploymentName, Guarded, Millis, Mode, NodeId, NodeStatus, Replica, Resources,
    ServiceKey, ServiceName, ServiceSpec, Slot, State, Timestamp,
};

use crate::data::declared_home;
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
    let held = state.volumes().iter().filter_map(|(name, it)| Some((name, it.hold.as_ref()?)));
    for (deployment, hold) in held {
        let (deployment, order) = (deployment.clone(), hold.order);
        let is_used = || !state.users_of_volume(&hold.volume).is_empty();
        let change = if let Some(failure) = hold_failure(state, hold, now) {
            VolumeChange::EndHold { deployment, order, failure: Some(failure) }
        } else if hold.phase == VolumeHoldPhase::Stopping && !is_used() {
            VolumeChange::OpenHold { deployment, order }
        } else {
            wake = Some(wake.map_or(hold.until, |wake: Timestamp| wake.min(hold.until)));
            continue;
        };
        changes.push(Change::Volume { change }.free());
    }
    (changes, wake)
}

fn is_ready(state: &State, node: &NodeId) -> bool {
    state.node(node).is_some_and(|it| it.status == NodeStatus::Ready)
}

/// Whether the runtime of the node does not answer.
fn is_out(state: &State, node: &NodeId) -> bool {
    state.node(node).is_some_and(|it| it.outage.is_some())
}

fn hold_failure(state: &State, hold: &VolumeHold, now: Timestamp) -> Option<VolumeHoldFailure> {
    let is_stopping = hold.phase == VolumeHoldPhase::Stopping;
    // Without its runtime nothing is stopped there; what has stopped can be read all the same.
    if !is_ready(state, &hold.node) || (is_stopping && is_out(state, &hold.node)) {
        Some(VolumeHoldFailure::NodeLost)
    } else if now >= hold.until {
        Some(VolumeHoldFailure::Lapsed)
    } else if is_stopping && now >= hold.since.plus(STOP_TIMEOUT) {
        Some(VolumeHoldFailure::NotStopped)
    } else {
        None
    }
}

fn failure(state: &State, moving: &VolumeMove, now: Timestamp) -> Option<VolumeMoveFailure> {
    if !is_ready(state, &moving.src) {
        return Some(VolumeMoveFailure::SourceLost);
    }
    // Whatever it has copied, nothing could be started there.
    if !is_ready(state, &moving.dst) || is_out(state, &moving.dst) {
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

    /// Whether the service is stopped because its volumes move, or one is backed up or restored; then it is.
    pub(crate) fn is_paused_for_volumes(
        &mut self,
        roster: &mut Roster,
        key: &'s ServiceKey,
        service: &'s Service,
        spec: &ServiceSpec,
    ) -> bool {
        let why = if let Some(moving) = self.state.volume_move_for(key, spec) {
            UnplacedReason::VolumeMoving { to: moving.dst.clone() }
        } else if let Some(hold) = self.state.volume_hold_for(key, spec) {
            UnplacedReason::VolumeHeld { volume: hold.volume.clone(), purpose: hold.purpose }
        } else {
            return false;
        };
        // What has completed uses nothing any more, and would be run again.
        let is_over = |replica: &Replica| replica.heading().is_some_and(|at| replica.is_over(at));
        // What is left from when it was `global`, or was not, is not of those it asks for.
        let is_global = spec.placement.mode == Mode::Global;
        let own =
            service.replicas.iter().filter(|(slot, _)| matches!(slot, Slot::Node(_)) == is_global);
        let over = own.filter(|(_, replica)| is_over(replica)).count();
        self.retire_those(roster, key, service, |replica| !is_over(replica));
        let wanted = spec.placement.mode.replicas().unwrap_or(1) as usize;
        let wanted = wanted.saturating_sub(over);
        self.explain_missing(key, service, wanted, (wanted > 0).then_some(why));
        true
    }
}

/// What moves with a volume: none where nothing mounts it that runs on one node. Of a service with one replica, what its image
/// declares moves along.
pub fn tied<'s>(
    state: &'s State,
    deployment: &DeploymentName,
    volume: &str,
) -> Option<VolumeGroup<'s>> {
    let volumes = state.volumes().get(deployment);
    let held = volumes.and_then(|volumes| volumes.held.get(volume));
    let declared = held.and_then(|holders| holders.declared.as_ref());
    let is_meant = |group: &VolumeGroup<'_>| match declared {
        Some(declared) => group.services.iter().any(|(name, _)| **name == declared.service),
        None => group.volumes.contains(volume),
    };
    let mut group = groups(state, deployment).into_iter().find(is_meant)?;
    group.volumes.extend(volumes.map(|it| it.declared_beside(volume)).unwrap_or_default());
    Some(group)
}

/// All that ties services of the deployment to nodes, and to each other.
pub fn groups<'s>(state: &'s State, deployment: &DeploymentName) -> Vec<VolumeGroup<'s>> {
    let services: Vec<(&ServiceName, &ServiceSpec)> = state
        .services_of(deployment)
        .filter_map(|key| Some((&key.service, state.service(key)?.desired()?.as_ref())))
        .collect();
    let mut groups = VolumeGroup::all(deployment, services.iter().copied());
    let is_in = |groups: &[VolumeGroup<'_>], name: &ServiceName| {
        groups.iter().any(|group| group.services.iter().any(|(it, _)| *it == name))
    };
    for (name, spec) in services {
        let is_everywhere = spec.placement.mode == Mode::Global;
        if spec.has_declared() && !is_everywhere && !is_in(&groups, name) {
            groups.push(VolumeGroup { services: vec![(name, spec)], volumes: BTreeSet::new() });
        }
    }
    for group in &mut groups {
        for (name, spec) in group.services.clone() {
            let key = ServiceKey::new(deployment.clone(), name.clone());
            group.volumes.extend(own_declared(state, &key, spec));
        }
    }
    groups
}

/// What the image of a service with one replica declared of that one.
fn own_declared(state: &State, key: &ServiceKey, spec: &ServiceSpec) -> BTreeSet<String> {
    let Some(volumes) = state.volumes().get(&key.deployment) else { return BTreeSet::new() };
    if spec.copies() != Some(1) {
        return BTreeSet::new();
    }
    let home = declared_home(state, key, spec);
    home.map(|home| volumes.declared_beside(&home.volume)).unwrap_or_default()
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
        let replicas = spec.copies().unwrap_or(1);
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
    src: Option<&NodeId>,
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
    let others = state.nodes().keys().filter(|node| Some(*node) != src && !has_copy(node));
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
mod declared_tests;
#[cfg(test)]
mod hold_tests;
#[cfg(test)]
mod tests;
