//! Named volumes, as they are told and asked for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Reason, Time};

/// A named volume that a deployment uses, or used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// As a container engine has it.
    pub name: String,
    pub deployment: String,
    /// It was there before the deployment, which does not remove it.
    pub is_external: bool,
    /// The nodes that have a copy of it.
    pub copies: Vec<VolumeCopy>,
    /// The services of the deployment that mount it.
    pub services: Vec<String>,
    /// The replicas that have it mounted now.
    pub used_by: Vec<VolumeUser>,
    /// Several nodes have it, and one is meant to: what mounts it waits until one copy is removed.
    pub is_split: bool,
    /// It is on its way to another node.
    pub moving: Option<VolumeMoving>,
    /// Why the last move of the deployment's volumes failed.
    pub move_failed: Option<String>,
    /// What the services that mount it wait for.
    pub reasons: Vec<Reason>,
}

/// A copy of a volume on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeCopy {
    pub node: String,
    /// `data`: it is the volume; `old`: the volume has moved away and nothing uses what is left; `removing`.
    pub state: String,
    /// Asked of the node for one volume; none in a list, and where the node does not say.
    pub size: Option<VolumeSize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeSize {
    pub files: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeUser {
    pub replica: String,
    pub node: String,
}

/// A move under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMoving {
    pub from: String,
    pub to: String,
    /// `stopping`: what uses it is stopped; `copying`.
    pub phase: String,
    pub since: Time,
    /// All that move together.
    pub volumes: Vec<String>,
    /// How much has arrived, where the destination says so.
    pub copied: Option<VolumeSize>,
}

/// Where a volume is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveVolume {
    pub node: String,
}

/// What was begun with a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeChanged {
    pub deployment: String,
    /// All that it is about.
    pub volumes: Vec<String>,
    pub node: String,
    /// The services that stop meanwhile.
    pub services: Vec<String>,
    pub index: Option<u64>,
}

/// A move that a drain begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedVolumeMove {
    pub deployment: String,
    pub volumes: Vec<String>,
    pub services: Vec<String>,
    /// None: no node can take all that is tied to them.
    pub to: Option<String>,
}
