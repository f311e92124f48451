//! Of a volume that a single replica mounts, or several services, there is one in the cell: nothing starts beside an empty
//! twin of it.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{DeploymentName, Mode, NodeId, ServiceKey};

use super::{BatchPlan, New};

pub(super) fn check(plan: &BatchPlan<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut begun: BTreeMap<String, &NodeId> = BTreeMap::new();
    for new in plan.new.iter().filter(|new| new.spec.placement.mode != Mode::Global) {
        for volume in ones(plan, new) {
            let deployment = &new.replica.service.deployment;
            let mut has = plan.state.nodes_with_volume(deployment, &volume).peekable();
            let is_first = has.peek().is_none();
            let begun_on = begun.entry(volume.clone()).or_insert(new.node);
            let is_elsewhere =
                if is_first { *begun_on != new.node } else { !has.any(|node| node == new.node) };
            if is_elsewhere {
                broken.push(format!("{} goes to {} without {volume}", new.replica, new.node));
            }
        }
    }
    broken
}

/// Whether what the batch gave out before has the volume on the node.
pub(super) fn begins_on(
    before: &[New<'_>],
    deployment: &DeploymentName,
    volume: &str,
    node: &NodeId,
) -> bool {
    let mut there = before
        .iter()
        .filter(|new| new.node == node && new.replica.service.deployment == *deployment);
    there.any(|new| new.spec.container.local_volumes(deployment).any(|it| it == volume))
}

/// Whether what the node has of one of its volumes is an old copy, or to be removed.
pub(super) fn is_old_copy_on(plan: &BatchPlan<'_>, new: &New<'_>, node: &NodeId) -> bool {
    let deployment = &new.replica.service.deployment;
    let Some(volumes) = plan.state.volumes().get(deployment) else { return false };
    let mut local = new.spec.container.local_volumes(deployment);
    local.any(|volume| volumes.held.get(&volume).is_some_and(|it| it.is_spoilt(node)))
}

/// Whether the node has data of the service that its image declares.
pub(super) fn has_declared_on(plan: &BatchPlan<'_>, new: &New<'_>) -> bool {
    let key = &new.replica.service;
    let volumes = plan.state.volumes().get(&key.deployment);
    let data =
        volumes.map(|it| it.vacant(&key.service, &new.spec.declared.paths, &BTreeSet::new()));
    data.into_iter().flatten().any(|data| data.nodes.contains(new.node))
}

/// Whether its volumes have a say in where it goes.
pub(super) fn have_a_say(plan: &BatchPlan<'_>, new: &New<'_>) -> bool {
    let deployment = &new.replica.service.deployment;
    let mut local = new.spec.container.local_volumes(deployment);
    local.any(|volume| plan.state.nodes_with_volume(deployment, &volume).next().is_some())
        || ones(plan, new).next().is_some()
        || new.spec.has_declared()
}

/// The volumes of it of which there is one.
fn ones<'p>(plan: &'p BatchPlan<'_>, new: &'p New<'_>) -> impl Iterator<Item = String> {
    let key = &new.replica.service;
    let is_single = new.spec.copies() == Some(1);
    let local = new.spec.container.local_volumes(&key.deployment);
    local.filter(move |volume| {
        let others: Vec<&Mode> = others_with(plan, key, volume).collect();
        let is_everywhere = others.iter().any(|mode| **mode == Mode::Global);
        !is_everywhere && (is_single || !others.is_empty())
    })
}

/// How the other services of the deployment are laid out that mount the volume.
fn others_with<'p>(
    plan: &'p BatchPlan<'_>,
    key: &'p ServiceKey,
    volume: &'p str,
) -> impl Iterator<Item = &'p Mode> {
    let others = plan.state.services_of(&key.deployment).filter(move |other| *other != key);
    let specs = others.filter_map(|other| plan.state.service(other)?.desired());
    let mounting = specs
        .filter(move |spec| spec.container.local_volumes(&key.deployment).any(|it| it == volume));
    mounting.map(|spec| &spec.placement.mode)
}
