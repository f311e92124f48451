//! What each node holds, kept up to date as replicas change, so that nobody needs to walk the cell to know it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{NodeId, ReplicaId};
use crate::replica::{Assignment, Replica};
use crate::spec::{HostPort, ServiceSpec, SpecHash};
use crate::units::Resources;

/// What one node holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeLoad {
    /// Set aside by every assignment here, also by those still stopping.
    pub reserved: Resources,
    /// Replicas of any service that are here or on their way, without those leaving.
    pub replicas: u32,
    /// Who holds or will hold a host port. While one leaves and the next comes, a port has two holders.
    pub ports: BTreeSet<(HostPort, ReplicaId)>,
    /// Everyone with an assignment here of any kind, but for what has completed.
    pub tenants: BTreeSet<ReplicaId>,
    /// Those of whom something has completed here. Its container is kept for its logs, and holds nothing.
    pub completed: BTreeSet<ReplicaId>,
}

impl NodeLoad {
    /// Everyone whose containers may be on the node.
    pub fn everyone(&self) -> impl Iterator<Item = &ReplicaId> {
        self.tenants.union(&self.completed)
    }

    pub fn port_holder(&self, port: HostPort) -> Option<&ReplicaId> {
        self.ports.iter().find(|(held, _)| *held == port).map(|(_, replica)| replica)
    }
}

/// All nodes' loads; a node that holds nothing has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loads(BTreeMap<NodeId, NodeLoad>);

impl Loads {
    pub fn get(&self, node: &NodeId) -> Option<&NodeLoad> {
        self.0.get(node)
    }

    pub(crate) fn all(&self) -> &BTreeMap<NodeId, NodeLoad> {
        &self.0
    }

    /// Takes a replica from what it was to what it is now, and names each node whose load that changes, with whether
    /// anything came free there.
    pub(crate) fn exchange(
        &mut self,
        specs: &Specs,
        id: &ReplicaId,
        old: Option<&Replica>,
        new: Option<&Replica>,
        touched: &mut dyn FnMut(&NodeId, bool),
    ) {
        // A replica holds one to three assignments; those that stay as they are cost nothing here.
        let kept = |side: Option<&Replica>, a: &Holding<'_>| {
            side.is_some_and(|replica| holdings(replica).any(|b| b.is_same(a)))
        };
        let mut nodes: Vec<(&NodeId, bool)> = Vec::new();
        for held in old.into_iter().flat_map(holdings).filter(|held| !kept(new, held)) {
            if !held.has_vacated {
                self.subtract(specs.get(&held.at.spec), held.at, held.leaving);
            }
            nodes.push((&held.at.node, !held.has_vacated));
        }
        for held in new.into_iter().flat_map(holdings).filter(|held| !kept(old, held)) {
            self.add(specs.get(&held.at.spec), &held);
            nodes.push((&held.at.node, false));
        }
        for (node, is_freed) in nodes {
            self.settle(specs, node, id, new);
            touched(node, is_freed);
        }
    }

    fn add(&mut self, spec: Option<&Arc<ServiceSpec>>, held: &Holding<'_>) {
        let at = held.at;
        if !self.0.contains_key(&at.node) {
            self.0.insert(at.node.clone(), NodeLoad::default());
        }
        let load = self.0.get_mut(&at.node).expect("inserted just above");
        if held.has_vacated {
            return;
        }
        load.replicas += u32::from(!held.leaving);
        load.reserved = load.reserved.plus(spec.map_or(Resources::NONE, |spec| spec.request()));
    }

    fn subtract(&mut self, spec: Option<&Arc<ServiceSpec>>, at: &Assignment, leaving: bool) {
        let Some(load) = self.0.get_mut(&at.node) else { return };
        load.replicas -= u32::from(!leaving);
        load.reserved = load.reserved.minus(spec.map_or(Resources::NONE, |spec| spec.request()));
    }

    /// Whether the replica is a tenant of the node, and which ports it holds there, follows from what it is now:
    /// two assignments of one replica on one node share both.
    fn settle(&mut self, specs: &Specs, node: &NodeId, id: &ReplicaId, new: Option<&Replica>) {
        let Some(load) = self.0.get_mut(node) else { return };
        if !load.ports.is_empty() {
            load.ports.retain(|(_, holder)| holder != id);
        }
        load.tenants.remove(id);
        load.completed.remove(id);
        for held in new.into_iter().flat_map(holdings).filter(|held| held.at.node == *node) {
            if held.has_vacated {
                load.completed.insert(id.clone());
                continue;
            }
            load.tenants.insert(id.clone());
            if let Some(spec) = specs.get(&held.at.spec) {
                load.ports.extend(spec.host_ports().map(|port| (port, id.clone())));
            }
        }
        if load.tenants.is_empty() && load.completed.is_empty() {
            self.0.remove(node);
        }
    }
}

type Specs = BTreeMap<SpecHash, Arc<ServiceSpec>>;

/// An assignment of a replica, and what it still needs.
#[derive(Debug, Clone, Copy)]
struct Holding<'r> {
    at: &'r Assignment,
    leaving: bool,
    has_vacated: bool,
}

impl Holding<'_> {
    fn is_same(&self, other: &Holding<'_>) -> bool {
        self.at.generation == other.at.generation
            && self.leaving == other.leaving
            && self.has_vacated == other.has_vacated
    }
}

/// Every assignment of a replica.
fn holdings(replica: &Replica) -> impl Iterator<Item = Holding<'_>> {
    let here = replica.assignment.iter();
    let coming = replica.successor.as_ref().map(|successor| &successor.assignment);
    let staying = here.chain(coming).map(|at| (at, false));
    let all = staying.chain(replica.leaving.iter().map(|at| (at, true)));
    all.map(|(at, leaving)| Holding { at, leaving, has_vacated: replica.has_vacated(at) })
}
