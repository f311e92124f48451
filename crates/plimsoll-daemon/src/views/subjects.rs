//! What a view of a part of the cell is about, so that what is measured is copied for that part alone.

use std::collections::BTreeSet;

use plimsoll_model::{DeploymentName, Generation, NodeId, Replica, ReplicaId, State};

use crate::measurements::Measurements;

/// Everything that a view will look up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subjects {
    pub nodes: BTreeSet<NodeId>,
    containers: BTreeSet<(ReplicaId, Generation)>,
}

impl Subjects {
    /// The deployment's services and replicas, and the nodes that hold them.
    pub fn of_deployment(state: &State, name: &DeploymentName) -> Self {
        let mut subjects = Self::default();
        for key in state.services_of(name) {
            let Some(service) = state.service(key) else { continue };
            for (slot, replica) in &service.replicas {
                subjects.add(&ReplicaId::new(key.clone(), slot.clone()), replica);
            }
        }
        subjects
    }

    /// The node and the replicas that it holds.
    pub fn of_node(state: &State, node: &NodeId) -> Self {
        let mut subjects = Self::default();
        for id in
            state.load(node).into_iter().flat_map(plimsoll_model::state::load::NodeLoad::everyone)
        {
            if let Some(replica) = state.replica(id) {
                subjects.add(id, replica);
            }
        }
        subjects.nodes = BTreeSet::from([node.clone()]);
        subjects
    }

    /// The node itself, whatever it holds.
    pub fn only_node(node: NodeId) -> Self {
        Self { nodes: BTreeSet::from([node]), ..Self::default() }
    }

    /// One replica, wherever it is.
    pub fn of_replica(state: &State, id: &ReplicaId) -> Self {
        let mut subjects = Self::default();
        if let Some(replica) = state.replica(id) {
            subjects.add(id, replica);
        }
        subjects
    }

    /// What is known of these, and of nothing else.
    pub fn measurements(&self, all: &Measurements) -> Measurements {
        let nodes = self.nodes.iter().filter_map(|node| all.nodes.get_key_value(node));
        let containers = self.containers.iter().filter_map(|it| all.replicas.get_key_value(it));
        Measurements {
            nodes: nodes.map(|(node, it)| (node.clone(), it.clone())).collect(),
            replicas: containers.map(|(container, it)| (container.clone(), it.clone())).collect(),
        }
    }

    fn add(&mut self, id: &ReplicaId, replica: &Replica) {
        for held in replica.holds() {
            self.nodes.insert(held.node.clone());
            self.containers.insert((id.clone(), held.generation));
        }
    }
}
