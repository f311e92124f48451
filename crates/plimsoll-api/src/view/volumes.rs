//! Named volumes, as they are told and asked for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Reason, Time};

/// Services that their data keeps on a node, together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DataPin {
    pub services: Vec<String>,
    /// Volumes by their names, paths of the node, and what images declare, each with its kind: `volume shop_db`.
    pub data: Vec<String>,
    /// Who has it, or will have. None as long as nobody asked a cell; several where each replica has its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

impl From<&plimsoll_model::spec::DataPin<'_>> for DataPin {
    fn from(pin: &plimsoll_model::spec::DataPin<'_>) -> Self {
        let kind = |kind: &str, name: &str| format!("{kind} {name}");
        let volumes = pin.volumes.iter().map(|name| kind("volume", name));
        let binds = pin.binds.iter().map(|path| kind("bind", path));
        let declared = pin.declared.iter().map(|path| kind("image volume", path));
        Self {
            services: pin.services.iter().map(ToString::to_string).collect(),
            data: volumes.chain(binds).chain(declared).collect(),
            nodes: Vec::new(),
        }
    }
}

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
    /// It is backed up or restored.
    #[serde(default)]
    pub held: Option<VolumeHold>,
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

/// A backup or restore under way. What uses the volume is stopped meanwhile, but for a live backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeHold {
    /// By which whoever holds it names the hold.
    pub order: u64,
    /// Whose copy.
    pub node: String,
    pub purpose: HoldPurpose,
    /// `stopping`: what uses it is stopped; `open`: it may be read or replaced.
    pub phase: String,
    pub since: Time,
    /// The services that are stopped.
    pub services: Vec<String>,
    /// There was no such volume before.
    pub is_new: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoldPurpose {
    Backup,
    /// What uses the volume runs on, and may write while it is read.
    LiveBackup,
    Restore,
}

/// What a volume is to be held for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldVolume {
    pub purpose: HoldPurpose,
    /// Whose copy, where several nodes have one; where a volume that is nowhere yet is to be.
    #[serde(default)]
    pub node: Option<String>,
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
