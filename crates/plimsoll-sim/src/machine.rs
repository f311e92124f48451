//! A modelled host: what it has of each replica, and how it goes from one phase to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_kernel::agent::{Local, Phase};
use plimsoll_model::{Generation, ObservedState, ReplicaId, ServiceSpec, Timestamp};

/// Whether the leader and the machine hear of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Up,
    /// It runs on unheard.
    Cut,
    /// It has no power.
    Off,
}

#[derive(Debug, Clone)]
pub struct Machine {
    pub link: Link,
    /// When the link last changed.
    pub since: Timestamp,
    /// Counts the times it lost power: what was set going before that never ends.
    pub boots: u64,
    pub containers: BTreeMap<ReplicaId, Vec<Container>>,
    pub images: BTreeSet<String>,
}

#[derive(Debug, Clone)]
pub struct Container {
    pub local: Local,
    pub is_healthy: bool,
    pub spec: Arc<ServiceSpec>,
    /// Which of the scenario's usages, counted in their order, is its own; none where it uses what it reserves.
    pub(crate) usage: Option<usize>,
    /// How often it ended by itself, for the back-off.
    pub exits: u32,
}

impl Container {
    pub fn is_up(&self) -> bool {
        matches!(self.local.phase, Phase::Up | Phase::Stopping)
    }

    /// What the machine says of it.
    pub(crate) fn observed(&self) -> ObservedState {
        match self.local.phase {
            Phase::Pulling => ObservedState::Pulling,
            Phase::Up | Phase::Stopping if self.is_healthy => ObservedState::Running,
            Phase::Pulled | Phase::Starting | Phase::Up | Phase::Stopping => {
                ObservedState::Starting
            }
            Phase::Exited => ObservedState::Failed,
        }
    }
}

impl Machine {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            link: Link::Up,
            since: now,
            boots: 0,
            containers: BTreeMap::new(),
            images: BTreeSet::new(),
        }
    }

    pub fn container(&self, replica: &ReplicaId, generation: Generation) -> Option<&Container> {
        self.containers.get(replica)?.iter().find(|c| c.local.generation == generation)
    }

    pub(crate) fn container_mut(
        &mut self,
        replica: &ReplicaId,
        generation: Generation,
    ) -> Option<&mut Container> {
        self.containers.get_mut(replica)?.iter_mut().find(|c| c.local.generation == generation)
    }

    pub(crate) fn locals(&self, replica: &ReplicaId) -> Vec<Local> {
        self.containers
            .get(replica)
            .into_iter()
            .flatten()
            .map(|container| container.local)
            .collect()
    }

    pub(crate) fn remove(&mut self, replica: &ReplicaId, generation: Generation) {
        if let Some(containers) = self.containers.get_mut(replica) {
            containers.retain(|container| container.local.generation != generation);
            if containers.is_empty() {
                self.containers.remove(replica);
            }
        }
    }
}
