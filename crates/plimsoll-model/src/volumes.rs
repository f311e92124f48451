//! Where named volumes lie. Data outlives the containers and the deployment, so the cell remembers the nodes that may hold some
//! until it has been told that it is gone.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ServiceName};
use crate::units::{Revision, Timestamp};

/// The named volumes that one deployment uses, or used when there was one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Volumes {
    /// By the name each has on an engine.
    pub held: BTreeMap<String, VolumeHolders>,
    /// They are to go, because someone asked for that when the deployment ended at this revision. A node that is away
    /// removes them when it is back.
    pub doomed: Option<Revision>,
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

impl Volumes {
    /// The nodes that have a volume of the deployment's own.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        let own = self.held.values().filter(|holders| !holders.is_external);
        own.flat_map(|holders| &holders.nodes).cloned().collect()
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
        let mut vacant: Vec<VacantData> = vacant.into_values().collect();
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

    /// The nodes that have this one.
    pub fn nodes_of(&self, volume: &str) -> impl Iterator<Item = &NodeId> {
        self.held.get(volume).into_iter().flat_map(|holders| &holders.nodes)
    }
}
