//! Named volumes: where they are and who uses them; a copy of one is removed, or all that tie services together move.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::volume_moves;
use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::access::Scope;
use plimsoll_model::spec::{VolumeGroup, declared_name};
use plimsoll_model::volumes::{VolumeChange, VolumeHolders, Volumes};
use plimsoll_model::{
    Author, Change, Command, DeploymentName, Guarded, Mode, NodeId, ServiceKey, ServiceName,
    ServiceSpec, State, Term, Timestamp, Writer,
};

use super::volume_holds::shown;
use super::{Caller, Error, find_node};
use crate::context::{NodeContext, now};
use plimsoll_api::suggest;
use plimsoll_api::view::{
    PlannedVolumeMove, Reason, Time, Volume, VolumeChanged, VolumeCopy, VolumeMoving, VolumeUser,
};

/// Every volume that deployments of the scope use or used, by deployment and name.
pub fn volumes(state: &State, scope: &Scope) -> Vec<Volume> {
    let users = users(state);
    let mut all = Vec::new();
    for (deployment, volumes) in state.volumes() {
        if scope.admits(deployment.as_str()) {
            let held = volumes.held.iter();
            all.extend(held.map(|it| told(state, deployment, volumes, it, &users)));
        }
    }
    all
}

pub fn volume(state: &State, deployment: &str, volume: &str) -> Result<Volume, Error> {
    let (deployment, volumes, held) = find(state, deployment, volume)?;
    Ok(told(state, deployment, volumes, held, &users(state)))
}

/// Has a node remove its copy; `force`: has the cell forget that of a node that is down.
pub async fn remove_volume(
    cell: &NodeContext,
    caller: &Caller,
    deployment: &str,
    name: &str,
    node: Option<&str>,
    force: bool,
) -> Result<VolumeChanged, Error> {
    let (change, changed) = cell.engine.machine().read(|state| {
        let (deployment, _, (volume, holders)) = find(state, deployment, name)?;
        let node = match node {
            Some(node) => holder(holders, node).map_or_else(|| find_node(state, node), Ok)?,
            None => only_copy(volume, holders)?,
        };
        let changed = VolumeChanged {
            deployment: deployment.to_string(),
            volumes: vec![volume.clone()],
            node: node.to_string(),
            services: Vec::new(),
            index: None,
        };
        let (deployment, volume) = (deployment.clone(), volume.clone());
        let change = if force {
            VolumeChange::Forget { deployment, volume, node }
        } else {
            VolumeChange::Remove { deployment, volume, node }
        };
        Ok::<_, Error>((change, changed))
    })?;
    let index = caller.write(cell, vec![Change::Volume { change }.free()]).await?;
    Ok(VolumeChanged { index: Some(index), ..changed })
}

/// Begins to move the volume to a node, with all it is tied to.
pub async fn move_volume(
    cell: &NodeContext,
    caller: &Caller,
    deployment: &str,
    name: &str,
    to: &str,
) -> Result<VolumeChanged, Error> {
    let signals = cell.measurements.lock().signals(&cell.policy, now());
    let (change, changed) = cell.engine.machine().read(|state| {
        let (deployment, known, (volume, holders)) = find(state, deployment, name)?;
        let dst = find_node(state, to)?;
        let src = only_holder(volume, holders)?;
        let group = volume_moves::tied(state, deployment, volume);
        let (volumes, services) = if let Some(group) = &group {
            check_group(deployment, group, volume)?;
            let roster = Roster::new(state, &signals, &cell.policy);
            if src != dst
                && let Some((service, filter)) = volume_moves::refused_by(
                    state,
                    &roster,
                    &cell.policy,
                    deployment,
                    group,
                    &dst,
                    now(),
                )
            {
                let (volume, why) = (volume.clone(), filter.to_string());
                return Err(Error::VolumeUnfit { volume, node: dst, service, why });
            }
            (held_of(known, group), services_of(group))
        } else {
            check_alone(state, deployment, volume, holders)?;
            let mut volumes = known.declared_beside(volume);
            volumes.insert(volume.clone());
            (volumes, Vec::new())
        };
        let changed = VolumeChanged {
            deployment: deployment.to_string(),
            volumes: volumes.iter().cloned().collect(),
            node: dst.to_string(),
            services,
            index: None,
        };
        let deployment = deployment.clone();
        Ok((VolumeChange::Move { deployment, volumes, src, dst }, changed))
    })?;
    let index = caller.write(cell, vec![Change::Volume { change }.free()]).await?;
    Ok(VolumeChanged { index: Some(index), ..changed })
}

/// What of a node's data a drain moves, and where: for each deployment all that ties services to the node, to one that can
/// take all of them.
pub(super) fn moves_off(
    state: &State,
    signals: &Signals,
    policy: &Policy,
    node: &NodeId,
    at: Timestamp,
) -> (Vec<Guarded>, Vec<PlannedVolumeMove>) {
    let (mut changes, mut planned) = (Vec::new(), Vec::new());
    let mut scratch = state.clone();
    for (deployment, known) in state.volumes() {
        let mut groups = volume_moves::groups(state, deployment);
        for group in &mut groups {
            group.volumes.extend(declared_on(known, group, node));
        }
        let groups = groups.into_iter();
        let is_here = |group: &VolumeGroup<'_>| {
            !is_per_replica(deployment, group)
                && group.volumes.iter().any(|it| known.nodes_of(it).any(|on| on == node))
        };
        // A deployment has one move at a time, so all of it goes together.
        let Some(all) = groups.filter(is_here).reduce(|mut all, next| {
            all.services.extend(next.services);
            all.volumes.extend(next.volumes);
            all
        }) else {
            continue;
        };
        let to =
            volume_moves::destination(state, signals, policy, deployment, &all, Some(node), at);
        let volumes = held_of(known, &all);
        planned.push(PlannedVolumeMove {
            deployment: deployment.to_string(),
            volumes: volumes.iter().cloned().collect(),
            services: services_of(&all),
            to: to.as_ref().map(ToString::to_string),
        });
        let Some(dst) = to else { continue };
        let name = deployment;
        let (deployment, src) = (deployment.clone(), node.clone());
        let change = VolumeChange::Move { deployment, volumes, src, dst };
        let change = Change::Volume { change }.free();
        // What the state refuses, as a volume that is external or moves already, stays and does not keep the rest.
        let author = Author::new(Writer::Operator, "plan");
        let command = Command::new(at, Term(0), author, vec![change.clone()]);
        if scratch.apply(&command).is_ok() && check_group(name, &all, "").is_ok() {
            changes.push(change);
        } else if let Some(last) = planned.last_mut() {
            last.to = None;
        }
    }
    (changes, planned)
}

pub(super) type Held<'s> = (&'s String, &'s VolumeHolders);

pub(super) fn find<'s>(
    state: &'s State,
    deployment: &str,
    volume: &str,
) -> Result<(&'s DeploymentName, &'s Volumes, Held<'s>), Error> {
    let absent = || {
        let known = state.volumes().get(deployment).into_iter().flat_map(|it| it.held.keys());
        let hint = suggest::hint(volume, "volume", known.map(String::as_str));
        let (deployment, volume) = (deployment.to_owned(), volume.to_owned());
        Error::NoSuchVolume { deployment, volume, hint }
    };
    let (name, volumes) = state.volumes().get_key_value(deployment).ok_or_else(absent)?;
    let held = volumes.held.get_key_value(volume).ok_or_else(absent)?;
    Ok((name, volumes, held))
}

/// Also one that was given up with its volumes, and is no node of the cell.
fn holder(holders: &VolumeHolders, name: &str) -> Option<NodeId> {
    holders.copies().into_iter().find(|node| node.as_str() == name)
}

fn only_copy(volume: &str, holders: &VolumeHolders) -> Result<NodeId, Error> {
    one_of(volume, holders.copies())
}

fn only_holder(volume: &str, holders: &VolumeHolders) -> Result<NodeId, Error> {
    one_of(volume, holders.nodes.clone())
}

pub(super) fn one_of(volume: &str, mut nodes: BTreeSet<NodeId>) -> Result<NodeId, Error> {
    match nodes.len() {
        1 => nodes.pop_first().ok_or(Error::Unforeseen),
        _ => {
            Err(Error::VolumeOnSeveral { volume: volume.to_owned(), nodes: Vec::from_iter(nodes) })
        }
    }
}

/// Whether each replica has what the file mounts for itself. What an image declares is told apart by number, and moves.
fn is_per_replica(deployment: &DeploymentName, group: &VolumeGroup<'_>) -> bool {
    matches!(group.services.as_slice(), [(_, only)] if only.copies() != Some(1)
        && only.container.local_volumes(deployment).next().is_some())
}

/// Refuses what each node has of a service that is on every node.
fn check_alone(
    state: &State,
    deployment: &DeploymentName,
    volume: &str,
    holders: &VolumeHolders,
) -> Result<(), Error> {
    let Some(declared) = &holders.declared else { return Ok(()) };
    let key = ServiceKey::new(deployment.clone(), declared.service.clone());
    match state.service(&key).and_then(|service| service.desired()) {
        Some(_) => {
            let (volume, service) = (volume.to_owned(), declared.service.clone());
            Err(Error::VolumePerReplica { volume, service })
        }
        None => Ok(()),
    }
}

/// Refuses what cannot be moved as a directory.
fn check_group(
    deployment: &DeploymentName,
    group: &VolumeGroup<'_>,
    volume: &str,
) -> Result<(), Error> {
    if is_per_replica(deployment, group) {
        let service = group.services[0].0.clone();
        return Err(Error::VolumePerReplica { volume: volume.to_owned(), service });
    }
    for (service, spec) in &group.services {
        let mut declared = spec.container.volumes.values();
        if declared.any(|it| it.driver.is_some() || !it.driver_opts.is_empty()) {
            let service = (*service).clone();
            return Err(Error::VolumeDriven { volume: volume.to_owned(), service });
        }
    }
    Ok(())
}

/// What images of services with several replicas declared, of those whose data is on the node.
fn declared_on(known: &Volumes, group: &VolumeGroup<'_>, node: &NodeId) -> BTreeSet<String> {
    let is_of_several = |service: &ServiceName| {
        let mut own = group.services.iter().filter(|(name, _)| *name == service);
        own.any(|(_, spec)| spec.copies() != Some(1))
    };
    let held = known.held.iter().filter(|(_, holders)| holders.nodes.contains(node));
    let declared = held.filter(|(_, holders)| {
        holders.declared.as_ref().is_some_and(|declared| is_of_several(&declared.service))
    });
    declared.map(|(volume, _)| volume.clone()).collect()
}

fn held_of(known: &Volumes, group: &VolumeGroup<'_>) -> BTreeSet<String> {
    group.volumes.iter().filter(|volume| known.held.contains_key(*volume)).cloned().collect()
}

fn services_of(group: &VolumeGroup<'_>) -> Vec<String> {
    let mut names: Vec<String> = group.services.iter().map(|(name, _)| name.to_string()).collect();
    names.sort_unstable();
    names
}

fn told(
    state: &State,
    deployment: &DeploymentName,
    volumes: &Volumes,
    (name, holders): Held<'_>,
    users: &VolumeUsers,
) -> Volume {
    let mounting = mounting(state, deployment, name);
    let services = mounting.iter().map(|(key, _)| key.service.to_string()).collect();
    let copies = holders.copies().into_iter().map(|node| {
        let word = if holders.discards.contains_key(&node) || volumes.doomed.is_some() {
            "removing"
        } else if holders.old.contains(&node) {
            "old"
        } else {
            "data"
        };
        VolumeCopy { node: node.to_string(), state: word.to_owned(), size: None }
    });
    let reasons = mounting.iter().filter_map(|(key, _)| {
        let why = &state.service(key)?.row.unplaced.as_ref()?.why;
        Some(Reason::new(key, why, why.to_string()))
    });
    let moving = volumes.moving.as_ref().filter(|moving| moving.volumes.contains(name));
    Volume {
        name: name.clone(),
        deployment: deployment.to_string(),
        is_external: holders.is_external,
        copies: copies.collect(),
        services,
        used_by: users.get(name).cloned().unwrap_or_default(),
        is_split: holders.nodes.len() > 1 && is_one(&mounting),
        moving: moving.map(|moving| VolumeMoving {
            from: moving.src.to_string(),
            to: moving.dst.to_string(),
            phase: moving.phase.word().to_owned(),
            since: Time(moving.since),
            volumes: moving.volumes.iter().cloned().collect(),
            copied: None,
        }),
        move_failed: volumes.move_failed.as_ref().map(|failed| failed.why.to_string()),
        held: volumes
            .hold
            .as_ref()
            .filter(|hold| hold.volume == *name)
            .map(|hold| shown(state, deployment, hold)),
        reasons: reasons.collect(),
    }
}

/// Who has each volume mounted. Gathered once for all volumes: a cell may have thousands of both.
type VolumeUsers = BTreeMap<String, Vec<VolumeUser>>;

fn users(state: &State) -> VolumeUsers {
    let mut users = VolumeUsers::new();
    for (id, replica) in state.replicas() {
        let Some(service) = state.service(&id.service) else { continue };
        for held in replica.holds() {
            let Some(spec) = service.spec_of(held) else { continue };
            let (deployment, service) = (&id.service.deployment, &id.service.service);
            let mounted = spec.container.mounted_volumes().map(|volume| volume.name(deployment));
            let declared = replica.data.into_iter().flat_map(|number| {
                let paths = spec.declared.paths.iter();
                paths.map(move |path| declared_name(deployment, service, number, path))
            });
            for volume in mounted.chain(declared) {
                let (replica, node) = (id.to_string(), held.node.to_string());
                users.entry(volume).or_default().push(VolumeUser { replica, node });
            }
        }
    }
    users
}

pub(super) fn mounting<'s>(
    state: &'s State,
    deployment: &DeploymentName,
    volume: &str,
) -> Vec<(&'s ServiceKey, &'s ServiceSpec)> {
    let held = state.volumes().get(deployment).and_then(|it| it.held.get(volume));
    let declared = held.and_then(|it| it.declared.as_ref()).map(|declared| &declared.service);
    let specs = state.services_of(deployment).filter_map(|key| {
        let spec = state.service(key)?.desired()?.as_ref();
        let mut mounted = spec.container.mounted_volumes();
        let is_mounted = mounted.any(|it| it.name(deployment) == volume);
        (is_mounted || declared == Some(&key.service)).then_some((key, spec))
    });
    specs.collect()
}

/// Whether there is to be one of it in the cell.
fn is_one(mounting: &[(&ServiceKey, &ServiceSpec)]) -> bool {
    let modes: Vec<&Mode> = mounting.iter().map(|(_, spec)| &spec.placement.mode).collect();
    match modes.as_slice() {
        [only] => only.replicas() == Some(1),
        modes => modes.len() > 1 && modes.iter().all(|mode| **mode != Mode::Global),
    }
}
