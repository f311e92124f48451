//! What one node is asked to do with volumes, read off the state: remove those of deployments that ended, remove single
//! copies, copy some from another node, and let another node copy.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::volume_holds::{HoldPurpose, VolumeHoldPhase};
use plimsoll_model::volumes::VolumeMovePhase;
use plimsoll_model::{DeploymentName, Generation, NodeId, Revision, State};
use plimsoll_runtime::VolumeRef;
use serde::{Deserialize, Serialize};

/// All of it: what is not in it, is not asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumeOrders {
    /// The deployments whose volumes are to go, each with the revision it ended at.
    pub doomed: BTreeMap<DeploymentName, Revision>,
    pub discards: BTreeMap<VolumeRef, VolumeDiscard>,
    pub copies: BTreeMap<Generation, VolumeCopy>,
    pub exports: BTreeMap<Generation, VolumeExport>,
    /// Volumes here that somebody may read or replace through a server.
    pub holds: BTreeMap<Generation, HeldVolume>,
}

/// A copy that is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeDiscard {
    pub order: Generation,
    /// It is what is left of a move, and is removed only by the node that knows to have made it for that.
    pub is_remnant: bool,
}

/// Volumes that the node is to copy from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCopy {
    pub deployment: DeploymentName,
    pub src: NodeId,
    /// Where that one is reached.
    pub address: String,
    pub volumes: BTreeSet<String>,
}

/// Volumes that another node may read here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeExport {
    pub deployment: DeploymentName,
    pub dst: NodeId,
    pub volumes: BTreeSet<String>,
}

/// A volume of the node that is backed up or restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVolume {
    pub deployment: DeploymentName,
    pub volume: String,
    pub purpose: HoldPurpose,
    /// There is none yet.
    pub is_new: bool,
}

impl VolumeOrders {
    pub fn of(state: &State, node: &NodeId) -> Self {
        let mut orders = Self::default();
        for (name, volumes) in state.volumes() {
            if let Some(revision) = volumes.doomed
                && volumes.nodes().contains(node)
            {
                orders.doomed.insert(name.clone(), revision);
            }
            for (volume, holders) in &volumes.held {
                if let Some(order) = holders.discards.get(node).copied() {
                    let is_remnant = !holders.nodes.contains(node) && !holders.old.contains(node);
                    let discard = VolumeDiscard { order, is_remnant };
                    orders.discards.insert(VolumeRef::new(name, volume), discard);
                }
            }
            let hold = volumes.hold.as_ref().filter(|hold| hold.node == *node);
            if let Some(hold) = hold.filter(|hold| hold.phase == VolumeHoldPhase::Open) {
                let content = HeldVolume {
                    deployment: name.clone(),
                    volume: hold.volume.clone(),
                    purpose: hold.purpose,
                    is_new: hold.is_new,
                };
                orders.holds.insert(hold.order, content);
            }
            let moving = volumes.moving.as_ref();
            let Some(moving) = moving.filter(|it| it.phase == VolumeMovePhase::Copying) else {
                continue;
            };
            let (deployment, volumes) = (name.clone(), moving.volumes.clone());
            if moving.src == *node {
                let dst = moving.dst.clone();
                let export = VolumeExport { deployment, dst, volumes };
                orders.exports.insert(moving.order, export);
            } else if moving.dst == *node {
                let src = moving.src.clone();
                let address = state.node(&src).and_then(|it| it.facts.address.clone());
                let address = address.unwrap_or_default();
                let copy = VolumeCopy { deployment, src, address, volumes };
                orders.copies.insert(moving.order, copy);
            }
        }
        orders
    }

    /// The nodes that are asked to do something with the deployment's volumes.
    pub fn nodes(state: &State, name: &DeploymentName) -> BTreeSet<NodeId> {
        let Some(volumes) = state.volumes().get(name) else { return BTreeSet::new() };
        let doomed = if volumes.doomed.is_some() { volumes.nodes() } else { BTreeSet::new() };
        let discards = volumes.held.values().flat_map(|holders| holders.discards.keys().cloned());
        let moving = volumes.moving.iter();
        let moving = moving.flat_map(|moving| [moving.src.clone(), moving.dst.clone()]);
        let held = volumes.hold.iter().map(|hold| hold.node.clone());
        doomed.into_iter().chain(discards).chain(moving).chain(held).collect()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
