//! Where named volumes lie. Data outlives the containers and the deployment, so the cell remembers the nodes that may hold some
//! until it has been told that it is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{DeploymentName, NodeId, ReplicaId, ServiceKey, ServiceName};
use crate::replica::Replica;
use crate::spec::{ServiceSpec, declared_name};
use crate::state::State;
use crate::units::{Generation, Revision, Timestamp};
use crate::volume_holds::{HoldPurpose, VolumeHold, VolumeHoldFailure};

/// The named volumes that one deployment uses, or used when there was one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Volumes {
    /// By the name each has on an engine.
    pub held: BTreeMap<String, VolumeHolders>,
    /// They are to go, because someone asked for that when the deployment ended at this revision. A node that is away
    /// removes them when it is back.
    pub doomed: Option<Revision>,
    /// Some of them move to another node. One move of a deployment at a time.
    pub moving: Option<VolumeMove>,
    /// How the last move failed, until the next one begins.
    pub move_failed: Option<FailedVolumeMove>,
    /// One of them is backed up or restored. None is while some move.
    pub hold: Option<VolumeHold>,
}

/// Who has a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumeHolders {
    /// The nodes that were told to run something with it, and so may have made it.
    pub nodes: BTreeSet<NodeId>,
    /// It was there before the deployment, and stays when that goes with all its volumes.
    pub is_external: bool,
    /// An image declares it, and not the file.
    pub declared: Option<DeclaredVolume>,
    /// The nodes that kept their copy when the volume moved away. Nothing uses it, and it counts for no second one.
    pub old: BTreeSet<NodeId>,
    /// The nodes that are to remove their copy, each with the number of the order. Until a node has said that it did, what
    /// it was to the volume stays.
    pub discards: BTreeMap<NodeId, Generation>,
}

/// Whose a volume is that an image declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredVolume {
    pub service: ServiceName,
    /// The replica's among those of its service that have data. A new replica takes over a number that nobody has.
    pub number: u32,
    /// Where it is mounted.
    pub path: String,
    /// When the last replica that had it went; none while one has it. Of several, the last one's is taken over first.
    pub released: Option<Timestamp>,
}

/// Volumes of one replica that images declared, and that no replica has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VacantData {
    pub number: u32,
    /// One of them, by the name it has on an engine.
    pub volume: String,
    /// Who has any of them.
    pub nodes: BTreeSet<NodeId>,
    released: Option<Timestamp>,
}

/// A move of volumes under way: what uses them stops, the destination copies them, and then the claim changes in one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMove {
    /// By which nodes and the log tell this move from another.
    pub order: Generation,
    pub volumes: BTreeSet<String>,
    pub src: NodeId,
    pub dst: NodeId,
    pub phase: VolumeMovePhase,
    pub since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeMovePhase {
    /// What uses the volumes is stopped at the source.
    Stopping,
    /// Nothing uses them, and the destination copies them.
    Copying,
}

impl VolumeMovePhase {
    pub fn word(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::Copying => "copying",
        }
    }
}

/// A move that was given up. The volumes are where they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedVolumeMove {
    pub order: Generation,
    pub dst: NodeId,
    pub why: VolumeMoveFailure,
}

/// Why volumes stayed where they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeMoveFailure {
    /// The node that has them went down.
    SourceLost,
    /// The node that was to have them went down.
    DestinationLost,
    /// What uses them did not stop in time.
    NotStopped,
    /// The destination could not copy them.
    Copy { error: String },
    /// They are to be removed.
    Removed,
}

impl fmt::Display for VolumeMoveFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SourceLost => f.write_str("the node that has the data went down"),
            Self::DestinationLost => f.write_str("the destination went down"),
            Self::NotStopped => f.write_str("what uses the volume did not stop in time"),
            Self::Copy { error } => write!(f, "the destination could not copy it: {error}"),
            Self::Removed => f.write_str("the volumes are to be removed"),
        }
    }
}

/// A step of what is done with single volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeChange {
    /// The node is to remove its copy, which nothing uses.
    Remove { deployment: DeploymentName, volume: String, node: NodeId },
    /// The cell forgets the copy of a node that is down.
    Forget { deployment: DeploymentName, volume: String, node: NodeId },
    /// A node's word that it has removed its copy. A stale one changes nothing.
    Removed { deployment: DeploymentName, volume: String, node: NodeId, order: Generation },
    /// These volumes move, all that ties services together.
    Move { deployment: DeploymentName, volumes: BTreeSet<String>, src: NodeId, dst: NodeId },
    /// Nothing uses them any more: the destination may copy.
    Copy { deployment: DeploymentName, order: Generation },
    /// The destination's word that it has all of them. From here on it is the one that does.
    Copied { deployment: DeploymentName, node: NodeId, order: Generation },
    /// The move is given up: the volumes stay, and what the destination has of them goes.
    GiveUp { deployment: DeploymentName, order: Generation, why: VolumeMoveFailure },
    /// Somebody is to read or replace what is in the node's copy. What uses it is stopped, but for a live backup.
    Hold { deployment: DeploymentName, volume: String, node: NodeId, purpose: HoldPurpose },
    /// Nothing uses it any more.
    OpenHold { deployment: DeploymentName, order: Generation },
    /// Whoever holds it is still there.
    RenewHold { deployment: DeploymentName, order: Generation },
    /// It is over. Without a failure it is refused where the hold was lost in between: then what was read or replaced meanwhile
    /// counts for nothing.
    EndHold { deployment: DeploymentName, order: Generation, failure: Option<VolumeHoldFailure> },
}

impl VolumeChange {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Remove { .. } => "remove_volume",
            Self::Forget { .. } => "forget_volume",
            Self::Removed { .. } => "volume_removed",
            Self::Move { .. } => "move_volumes",
            Self::Copy { .. } => "copy_volumes",
            Self::Copied { .. } => "volumes_copied",
            Self::GiveUp { .. } => "give_up_volume_move",
            Self::Hold { .. } => "hold_volume",
            Self::OpenHold { .. } => "open_volume_hold",
            Self::RenewHold { .. } => "renew_volume_hold",
            Self::EndHold { .. } => "end_volume_hold",
        }
    }

    pub fn deployment(&self) -> &DeploymentName {
        match self {
            Self::Remove { deployment, .. }
            | Self::Forget { deployment, .. }
            | Self::Removed { deployment, .. }
            | Self::Move { deployment, .. }
            | Self::Copy { deployment, .. }
            | Self::Copied { deployment, .. }
            | Self::GiveUp { deployment, .. }
            | Self::Hold { deployment, .. }
            | Self::OpenHold { deployment, .. }
            | Self::RenewHold { deployment, .. }
            | Self::EndHold { deployment, .. } => deployment,
        }
    }
}

impl VolumeHolders {
    /// Whether the node has a copy of any kind.
    pub fn has_copy(&self, node: &NodeId) -> bool {
        self.nodes.contains(node) || self.old.contains(node) || self.discards.contains_key(node)
    }

    /// Whether the node has a copy that must not be taken for the data: an old one, or what is left of a move.
    pub fn is_spoilt(&self, node: &NodeId) -> bool {
        let is_left = self.discards.contains_key(node) && !self.nodes.contains(node);
        is_left || self.old.contains(node)
    }

    /// Every node that has a copy of any kind.
    pub fn copies(&self) -> BTreeSet<NodeId> {
        let doomed = self.discards.keys();
        self.nodes.iter().chain(&self.old).chain(doomed).cloned().collect()
    }
}

impl Volumes {
    /// The nodes that have a volume of the deployment's own.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        let own = self.held.values().filter(|holders| !holders.is_external);
        own.flat_map(VolumeHolders::copies).collect()
    }

    /// The paths at which images of the service declared volumes that are still there.
    pub fn declared_paths<'v>(&'v self, service: &'v ServiceName) -> impl Iterator<Item = &'v str> {
        self.declared_of(service).map(|(_, _, declared)| declared.path.as_str())
    }

    /// The numbers of its replicas that have any.
    pub fn declared_numbers<'v>(&'v self, service: &'v ServiceName) -> impl Iterator<Item = u32> {
        self.declared_of(service).map(|(_, _, declared)| declared.number)
    }

    /// What images of the service declared at these paths and none of the numbers in use has: what was let go last comes
    /// first.
    pub fn vacant(
        &self,
        service: &ServiceName,
        paths: &BTreeSet<String>,
        in_use: &BTreeSet<u32>,
    ) -> Vec<VacantData> {
        let mut vacant: BTreeMap<u32, VacantData> = BTreeMap::new();
        let free = self.declared_of(service).filter(|(_, _, it)| !in_use.contains(&it.number));
        for (volume, holders, declared) in free.filter(|(_, _, it)| paths.contains(&it.path)) {
            let (number, released) = (declared.number, declared.released);
            let data = vacant.entry(number).or_insert_with(|| VacantData {
                number,
                volume: volume.clone(),
                nodes: BTreeSet::new(),
                released,
            });
            data.nodes.extend(holders.nodes.iter().cloned());
            data.released = data.released.max(released);
        }
        // Of what moved away and was lost there, the old copy is not the data.
        let mut vacant: Vec<VacantData> =
            vacant.into_values().filter(|data| !data.nodes.is_empty()).collect();
        vacant.sort_by_key(|data| std::cmp::Reverse(data.released));
        vacant
    }

    pub(crate) fn declared_of<'v>(
        &'v self,
        service: &'v ServiceName,
    ) -> impl Iterator<Item = (&'v String, &'v VolumeHolders, &'v DeclaredVolume)> {
        let declared =
            self.held.iter().filter_map(|(name, it)| Some((name, it, it.declared.as_ref()?)));
        declared.filter(move |(_, _, declared)| declared.service == *service)
    }

    /// Whether the service uses the volume: the file mounts it, or its image declares it.
    fn is_of(&self, key: &ServiceKey, spec: &ServiceSpec, volume: &str) -> bool {
        let declared = self.held.get(volume).and_then(|holders| holders.declared.as_ref());
        declared.is_some_and(|declared| declared.service == key.service)
            || spec.container.local_volumes(&key.deployment).any(|it| it == *volume)
    }

    /// All that the image declared of the same replica as this one, itself among them.
    pub fn declared_beside(&self, volume: &str) -> BTreeSet<String> {
        let Some(own) = self.held.get(volume).and_then(|it| it.declared.as_ref()) else {
            return BTreeSet::new();
        };
        let of = self.declared_of(&own.service);
        of.filter(|(_, _, it)| it.number == own.number).map(|(name, _, _)| name.clone()).collect()
    }

    /// The nodes that have this one.
    pub fn nodes_of(&self, volume: &str) -> impl Iterator<Item = &NodeId> {
        self.held.get(volume).into_iter().flat_map(|holders| &holders.nodes)
    }
}

impl State {
    /// Every copy of a replica that has the volume mounted and may still write to it, with the node it is on. Also those of
    /// other deployments: a volume may go by a name that its file gives it for all.
    pub fn users_of_volume(&self, volume: &str) -> Vec<(ReplicaId, NodeId)> {
        let mut users = Vec::new();
        for (key, service) in &self.services {
            for (slot, replica) in &service.replicas {
                // What has completed writes nothing any more.
                let held = replica.holds().filter(|held| !replica.has_vacated(held));
                let held = held.filter(|held| {
                    let spec = service.spec_of(held);
                    spec.is_some_and(|spec| {
                        mounts(&key.deployment, spec, volume)
                            || has_declared(key, replica, spec, volume)
                    })
                });
                let id = ReplicaId::new(key.clone(), slot.clone());
                users.extend(held.map(|held| (id.clone(), held.node.clone())));
            }
        }
        users
    }

    /// The move under way that the service waits for, because it mounts a volume of it.
    pub fn volume_move_for(&self, key: &ServiceKey, spec: &ServiceSpec) -> Option<&VolumeMove> {
        let volumes = self.volumes.get(&key.deployment)?;
        let moving = volumes.moving.as_ref()?;
        let mut moved = moving.volumes.iter();
        moved.any(|volume| volumes.is_of(key, spec, volume)).then_some(moving)
    }

    /// The hold that the service waits for, because it mounts the volume.
    pub fn volume_hold_for(&self, key: &ServiceKey, spec: &ServiceSpec) -> Option<&VolumeHold> {
        let volumes = self.volumes.get(&key.deployment)?;
        let hold = volumes.hold.as_ref().filter(|hold| hold.purpose.stops())?;
        volumes.is_of(key, spec, &hold.volume).then_some(hold)
    }

    /// The copies that a node is to remove, with the number of each order.
    pub fn discards_on(
        &self,
        node: &NodeId,
    ) -> impl Iterator<Item = (&DeploymentName, &String, Generation)> {
        self.volumes.iter().flat_map(move |(deployment, volumes)| {
            volumes.held.iter().filter_map(move |(volume, holders)| {
                Some((deployment, volume, *holders.discards.get(node)?))
            })
        })
    }
}

/// Whether it is what its image declares of this replica.
fn has_declared(key: &ServiceKey, replica: &Replica, spec: &ServiceSpec, volume: &str) -> bool {
    let named = |number, path: &String| {
        declared_name(&key.deployment, &key.service, number, path) == volume
    };
    replica.data.is_some_and(|number| spec.declared.paths.iter().any(|path| named(number, path)))
}

fn mounts(deployment: &DeploymentName, spec: &ServiceSpec, volume: &str) -> bool {
    spec.container.mounted_volumes().any(|it| it.name(deployment) == volume)
}
