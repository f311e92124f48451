//! Holds a volume while somebody backs it up or restores it, and lets it go.

use plimsoll_kernel::volume_moves;
use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::node::Availability;
use plimsoll_model::volume_holds::{HoldPurpose, VolumeHold, VolumeHoldFailure, VolumeHoldPhase};
use plimsoll_model::volumes::VolumeChange;
use plimsoll_model::{
    Change, DeploymentName, Generation, Node, NodeId, NodeStatus, Resources, State, Timestamp,
};
use plimsoll_runtime::VolumeRef;

use super::volumes::{find, mounting, one_of};
use super::{Caller, Error, find_node};
use crate::context::{NodeContext, now};
use crate::volume_copy::AskedContent;
use plimsoll_api::view::{self, Time};

/// The most bytes of a client's own words on why nothing came of it.
const MAX_WHY: usize = 512;

/// The most bytes that the name of a volume may have on an engine.
const MAX_VOLUME_NAME: usize = 255;

/// Begins a backup or restore: what uses the volume is stopped.
pub async fn hold_volume(
    cell: &NodeContext,
    caller: &Caller,
    deployment: &str,
    volume: &str,
    asked: &view::HoldVolume,
) -> Result<view::VolumeHold, Error> {
    let signals = cell.measurements.lock().signals(&cell.policy, now());
    let purpose = match asked.purpose {
        view::HoldPurpose::Backup => HoldPurpose::Backup,
        view::HoldPurpose::LiveBackup => HoldPurpose::LiveBackup,
        view::HoldPurpose::Restore => HoldPurpose::Restore,
    };
    let change = cell.engine.machine().read(|state| {
        let name = DeploymentName::new(deployment)?;
        check_plain(state, &name, volume)?;
        let held = state.volumes().get(&name).and_then(|it| it.held.get(volume));
        let nodes = held.map(|holders| holders.nodes.clone()).unwrap_or_default();
        let node = match &asked.node {
            Some(node) => find_node(state, node)?,
            None if !nodes.is_empty() => one_of(volume, nodes)?,
            None if purpose == HoldPurpose::Restore => {
                let home = home_for(state, &signals, &cell.policy, &name, volume, now());
                home.ok_or_else(|| Error::VolumeNowhere { volume: volume.to_owned() })?
            }
            None => return Err(find(state, deployment, volume).err().unwrap_or(Error::Unforeseen)),
        };
        if held.is_none() && purpose == HoldPurpose::Restore {
            check_name(&name, volume)?;
        }
        let (deployment, volume) = (name, volume.to_owned());
        Ok::<_, Error>(VolumeChange::Hold { deployment, volume, node, purpose })
    })?;
    caller.write(cell, vec![Change::Volume { change }.free()]).await?;
    hold_of(cell, deployment, volume, None)
}

/// Says that it goes on.
pub async fn renew_hold(
    cell: &NodeContext,
    caller: &Caller,
    deployment: &str,
    volume: &str,
    order: Option<Generation>,
) -> Result<view::VolumeHold, Error> {
    let seen = hold_of(cell, deployment, volume, order)?;
    let (deployment, order) = (DeploymentName::new(deployment)?, Generation(seen.order));
    let change = VolumeChange::RenewHold { deployment, order };
    caller.write(cell, vec![Change::Volume { change }.free()]).await?;
    Ok(seen)
}

/// Ends it, well or not.
pub async fn end_hold(
    cell: &NodeContext,
    caller: &Caller,
    deployment: &str,
    volume: &str,
    order: Option<Generation>,
    failed: Option<String>,
) -> Result<view::VolumeHold, Error> {
    let seen = hold_of(cell, deployment, volume, order)?;
    let (deployment, order) = (DeploymentName::new(deployment)?, Generation(seen.order));
    let failure = failed.map(|why| {
        let error = why.chars().filter(|it| !it.is_control()).take(MAX_WHY).collect();
        VolumeHoldFailure::Client { error }
    });
    let change = VolumeChange::EndHold { deployment, order, failure };
    caller.write(cell, vec![Change::Volume { change }.free()]).await?;
    Ok(seen)
}

/// The node whose copy may be read or replaced now, and what to ask it for.
pub(crate) fn open_hold(
    state: &State,
    deployment: &str,
    volume: &str,
    order: Option<Generation>,
) -> Result<(NodeId, AskedContent), Error> {
    let (deployment, hold) = found(state, deployment, volume, order)?;
    if hold.phase != VolumeHoldPhase::Open {
        return Err(Error::VolumeNotHeld { volume: volume.to_owned() });
    }
    let volume = VolumeRef::new(deployment, volume);
    Ok((hold.node.clone(), AskedContent { volume, order: hold.order }))
}

fn found<'s>(
    state: &'s State,
    deployment: &str,
    volume: &str,
    order: Option<Generation>,
) -> Result<(&'s DeploymentName, &'s VolumeHold), Error> {
    let volumes = state.volumes().get_key_value(deployment);
    let hold = volumes.and_then(|(name, volumes)| Some((name, volumes.hold.as_ref()?)));
    let is_meant = |(_, hold): &(&DeploymentName, &VolumeHold)| {
        hold.volume == volume && order.is_none_or(|order| hold.order == order)
    };
    hold.filter(is_meant).ok_or_else(|| Error::VolumeNotHeld { volume: volume.to_owned() })
}

/// The hold on a volume as it is.
pub fn hold_of(
    cell: &NodeContext,
    deployment: &str,
    volume: &str,
    order: Option<Generation>,
) -> Result<view::VolumeHold, Error> {
    cell.engine.machine().read(|state| {
        let (deployment, hold) = found(state, deployment, volume, order)?;
        Ok(shown(state, deployment, hold))
    })
}

pub(super) fn shown(
    state: &State,
    deployment: &DeploymentName,
    hold: &VolumeHold,
) -> view::VolumeHold {
    let services = mounting(state, deployment, &hold.volume);
    let services = services.iter().map(|(key, _)| key.service.to_string());
    view::VolumeHold {
        order: hold.order.0,
        node: hold.node.to_string(),
        purpose: match hold.purpose {
            HoldPurpose::Backup => view::HoldPurpose::Backup,
            HoldPurpose::LiveBackup => view::HoldPurpose::LiveBackup,
            HoldPurpose::Restore => view::HoldPurpose::Restore,
        },
        phase: hold.phase.word().to_owned(),
        since: Time(hold.since),
        services: if hold.purpose.stops() { services.collect() } else { Vec::new() },
        is_new: hold.is_new,
    }
}

/// Refuses a volume that is more than a directory.
fn check_plain(state: &State, deployment: &DeploymentName, volume: &str) -> Result<(), Error> {
    for (key, spec) in mounting(state, deployment, volume) {
        let mut declared = spec.container.volumes.iter();
        let is_driven = declared.any(|(name, it)| {
            it.name_on_engine(deployment, name) == volume
                && (it.driver.is_some() || !it.driver_opts.is_empty())
        });
        if is_driven {
            let (volume, service) = (volume.to_owned(), key.service.clone());
            return Err(Error::VolumeDriven { volume, service });
        }
    }
    Ok(())
}

/// A volume that is not there yet is made under a name of the deployment's own, and no other's.
fn check_name(deployment: &DeploymentName, volume: &str) -> Result<(), Error> {
    let key = volume.strip_prefix(deployment.as_str()).and_then(|rest| rest.strip_prefix('_'));
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let is_good = key.is_some_and(|key| {
        key.starts_with(|first: char| first.is_ascii_alphanumeric()) && key.bytes().all(is_word)
    });
    if is_good && volume.len() <= MAX_VOLUME_NAME {
        return Ok(());
    }
    let why = format!("a new volume of it is called {deployment}_NAME");
    let (deployment, volume) = (deployment.to_string(), volume.to_owned());
    Err(Error::BadVolumeName { deployment, volume, why })
}

/// Where a volume that is nowhere yet goes: to what it will be used beside, else to the node with the most room.
fn home_for(
    state: &State,
    signals: &Signals,
    policy: &Policy,
    deployment: &DeploymentName,
    volume: &str,
    at: Timestamp,
) -> Option<NodeId> {
    if let Some(group) = volume_moves::tied(state, deployment, volume) {
        let known = state.volumes().get(deployment);
        let beside = group.volumes.iter().filter_map(|it| known?.nodes_of(it).next());
        let beside = beside.min().cloned();
        return beside.or_else(|| {
            volume_moves::destination(state, signals, policy, deployment, &group, None, at)
        });
    }
    let others = state
        .volumes()
        .get(deployment)
        .map(plimsoll_model::volumes::Volumes::nodes)
        .unwrap_or_default();
    if others.len() == 1 {
        return others.into_iter().next();
    }
    let is_open =
        |node: &Node| node.status == NodeStatus::Ready && node.availability == Availability::Active;
    let free = |id: &NodeId, node: &Node| {
        let reserved = state.load(id).map_or(Resources::NONE, |load| load.reserved);
        node.facts.capacity.minus(reserved.on(node.facts.capacity)).memory
    };
    let open = state.nodes().iter().filter(|(_, node)| is_open(node));
    open.max_by(|(a, x), (b, y)| free(a, x).cmp(&free(b, y)).then_with(|| b.cmp(a)))
        .map(|(id, _)| id.clone())
}
