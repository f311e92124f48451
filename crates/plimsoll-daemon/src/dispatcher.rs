//! What one node is asked to run, read off the state and told again whenever it changes.
//!
//! The agent sees the cell only through these [`Assignments`]s, so that it works alike beside the log and far from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use plimsoll_kernel::agent::WantedContainer;
use plimsoll_kernel::orders;
use plimsoll_model::registries::RegistryAuth;
use plimsoll_model::spec::Dependency;
use plimsoll_model::{
    ContainerSpec, DeploymentName, Event, Generation, NodeId, Observation, Replica, ReplicaId,
    ServiceName, ServiceSpec, State,
};
use plimsoll_store::{AppliedCommand, Lagged, Machine, aside};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::volume_orders::VolumeOrders;

mod slot;

pub use slot::{AssignmentReceiver, AssignmentSender, slot};

/// How long a dispatch that nobody needs any more may stay.
const LOOK_AROUND: Duration = Duration::from_secs(5);

/// What the cell asks of this node about one replica.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Assignments {
    /// To run: the assignment, and the successor beside it while it moves.
    pub wanted: Vec<DesiredReplica>,
    /// The cell waits to hear that these have stopped.
    pub leaving: Vec<Generation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredReplica {
    pub generation: Generation,
    pub spec: Arc<ServiceSpec>,
    /// What the cell last heard of it.
    pub observed: Option<Observation>,
    /// What it depends on and cannot start before.
    pub awaits: Option<(ServiceName, Dependency)>,
    /// It ended for good, and is kept for its logs alone.
    pub is_over: bool,
    /// What to show the registry of its image. It is in memory alone, and in no print.
    pub registry_auth: Option<Arc<RegistryAuth>>,
    /// The volumes that its image declares and it may mount, each path with the key of its volume in the deployment.
    pub declared: BTreeMap<String, String>,
}

impl DesiredReplica {
    pub(crate) fn wanted(&self) -> WantedContainer {
        let (generation, is_over) = (self.generation, self.is_over);
        WantedContainer { generation, is_held: self.awaits.is_some(), is_over }
    }
}

/// What changed of what is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AssignmentUpdate {
    /// All there is: what is not in it, is not asked for.
    All(BTreeMap<ReplicaId, Assignments>),
    /// Only these; none where nothing of the replica is asked for any more.
    Some(Vec<(ReplicaId, Option<Assignments>)>),
    /// What is to be done with volumes, all of it. Nothing after [`All`](Self::All) until this comes.
    Volumes(VolumeOrders),
}

impl Assignments {
    /// What the state asks of the node about the replica; none if nothing.
    pub fn of(state: &State, node: &NodeId, id: &ReplicaId) -> Option<Self> {
        let replica = state.replica(id)?;
        let wanted = orders::of(state, node, id).map(|order| DesiredReplica {
            generation: order.assignment.generation,
            observed: replica.observation(order.assignment).cloned(),
            awaits: order.awaits,
            is_over: order.is_over,
            registry_auth: registry_auth(state, node, &order.spec.container),
            declared: order.declared,
            // Here secrets leave the state: with the order to run what uses them, for the node that is to.
            spec: state.with_contents(order.spec),
        });
        let leaving = replica.leaving.iter().filter(|held| held.node == *node);
        let brief = Self {
            wanted: wanted.collect(),
            leaving: leaving.map(|held| held.generation).collect(),
        };
        (!brief.wanted.is_empty() || !brief.leaving.is_empty()).then_some(brief)
    }
}

/// For a node that pulls, and no other.
fn registry_auth(
    state: &State,
    node: &NodeId,
    container: &ContainerSpec,
) -> Option<Arc<RegistryAuth>> {
    let auth = state.registry_auth(container)?;
    let pulls = state.node(node).is_some_and(|node| node.facts.runtime.pulls_images());
    pulls.then(|| Arc::new(auth))
}

/// Tells every node that listens what is asked of it. One task follows the log for all of them, and marks for each
/// what changed; a node that is slow finds the latest of it when it looks, and never a queue.
#[derive(Debug)]
pub struct Dispatch {
    machine: Arc<Machine>,
    listeners: Mutex<Vec<Weak<Listener>>>,
}

#[derive(Debug)]
struct Listener {
    node: NodeId,
    pending: Mutex<PendingReplicas>,
    wake: Notify,
}

/// What a listener has not been told yet.
#[derive(Debug, Default)]
struct PendingReplicas {
    all: bool,
    replicas: BTreeSet<ReplicaId>,
    volumes: bool,
}

/// The orders of one node, as they change.
#[derive(Debug)]
pub struct Orders {
    listener: Arc<Listener>,
    machine: Arc<Machine>,
    /// What was last told of volumes: nothing, where all was told since.
    volumes: VolumeOrders,
}

impl Dispatch {
    /// Follows the log until nobody holds it any more.
    pub fn start(machine: Arc<Machine>) -> Arc<Self> {
        Self::start_with(machine, ())
    }

    /// The same, with something that is dropped when it ends, also where it panics.
    pub fn start_with(machine: Arc<Machine>, ending: impl Send + 'static) -> Arc<Self> {
        let dispatch =
            Arc::new(Self { machine: Arc::clone(&machine), listeners: Mutex::default() });
        let next = *machine.applied().borrow() + 1;
        let (weak, mut watcher) = (Arc::downgrade(&dispatch), machine.watch(next));
        tokio::spawn(async move {
            let _ending = ending;
            let mut holders = Holders::default();
            machine.read(|state| holders.fill(state));
            while let Some(dispatch) = weak.upgrade() {
                let marks = aside(|| watcher.look(|state, changes| holders.follow(state, changes)));
                dispatch.mark(&marks);
                drop(dispatch);
                // Now and then it looks whether anyone still needs it.
                let _ = timeout(LOOK_AROUND, watcher.changed()).await;
            }
        });
        dispatch
    }

    /// Everything asked of the node first, then every change.
    pub fn listen(&self, node: NodeId) -> Orders {
        let (pending, wake) = (Mutex::default(), Notify::new());
        let listener = Arc::new(Listener { node, pending, wake });
        listener.mark_all();
        self.listeners().push(Arc::downgrade(&listener));
        Orders { listener, machine: Arc::clone(&self.machine), volumes: VolumeOrders::default() }
    }

    fn mark(&self, marks: &Marks) {
        self.listeners().retain(|listener| {
            let Some(listener) = listener.upgrade() else { return false };
            match marks {
                Marks::All => listener.mark_all(),
                Marks::Some { replicas, volumes } => {
                    let replicas = replicas.get(&listener.node);
                    let volumes = volumes.contains(&listener.node);
                    if replicas.is_some() || volumes {
                        listener.mark(replicas.into_iter().flatten(), volumes);
                    }
                }
            }
            true
        });
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<Listener>>> {
        self.listeners.lock().expect("nobody panics while holding the listeners")
    }
}

impl Listener {
    fn mark<'r>(&self, replicas: impl Iterator<Item = &'r ReplicaId>, volumes: bool) {
        let mut pending = self.pending();
        pending.volumes |= volumes;
        // Those who are told of all are told of these as well.
        if !pending.all {
            pending.replicas.extend(replicas.cloned());
        }
        drop(pending);
        self.wake.notify_one();
    }

    fn mark_all(&self) {
        *self.pending() = PendingReplicas { all: true, replicas: BTreeSet::new(), volumes: true };
        self.wake.notify_one();
    }

    fn pending(&self) -> MutexGuard<'_, PendingReplicas> {
        self.pending.lock().expect("nobody panics while holding what is pending")
    }
}

impl Orders {
    /// What is new; waits until something is.
    pub async fn next(&mut self) -> AssignmentUpdate {
        loop {
            if let Some(update) = self.take() {
                return update;
            }
            self.listener.wake.notified().await;
        }
    }

    /// Replicas go before volumes: what is asked for of a deployment keeps its volumes, whatever was said before.
    fn take(&mut self) -> Option<AssignmentUpdate> {
        let node = &self.listener.node;
        let mut pending = self.listener.pending();
        if std::mem::take(&mut pending.all) {
            drop(pending);
            self.volumes = VolumeOrders::default();
            let all = aside(|| self.machine.read(|state| everything(state, node)));
            return Some(AssignmentUpdate::All(all));
        }
        let some = std::mem::take(&mut pending.replicas);
        if !some.is_empty() {
            drop(pending);
            let of = |state: &State| {
                let brief = |id: &ReplicaId| Assignments::of(state, node, id);
                some.into_iter().map(|id| (id.clone(), brief(&id))).collect()
            };
            return Some(AssignmentUpdate::Some(aside(|| self.machine.read(of))));
        }
        let volumes = std::mem::take(&mut pending.volumes);
        drop(pending);
        if !volumes {
            return None;
        }
        let orders = self.machine.read(|state| VolumeOrders::of(state, node));
        if orders == self.volumes {
            return None;
        }
        self.volumes = orders.clone();
        Some(AssignmentUpdate::Volumes(orders))
    }
}

/// Which nodes hold something of each replica or of volumes that are to go, so that a node is told also of what is
/// taken from it.
#[derive(Debug, Default)]
struct Holders {
    replicas: BTreeMap<ReplicaId, BTreeSet<NodeId>>,
    volumes: BTreeMap<DeploymentName, BTreeSet<NodeId>>,
}

/// What to tell whom.
#[derive(Debug)]
enum Marks {
    All,
    Some { replicas: BTreeMap<NodeId, BTreeSet<ReplicaId>>, volumes: BTreeSet<NodeId> },
}

impl Holders {
    fn fill(&mut self, state: &State) {
        self.replicas = state.replicas().map(|(id, replica)| (id, nodes_of(replica))).collect();
        let volumes = state.volumes().keys();
        let asked = volumes.map(|name| (name.clone(), VolumeOrders::nodes(state, name)));
        self.volumes = asked.filter(|(_, nodes)| !nodes.is_empty()).collect();
    }

    fn follow(&mut self, state: &State, changes: Result<Vec<AppliedCommand>, Lagged>) -> Marks {
        let Ok(changes) = changes else {
            self.fill(state);
            return Marks::All;
        };
        let mut marks: BTreeMap<NodeId, BTreeSet<ReplicaId>> = BTreeMap::new();
        for id in orders::touched(state, changes.iter().flat_map(|applied| applied.events.iter())) {
            let now = state.replica(&id).map(nodes_of).unwrap_or_default();
            let before = self.replicas.get(&id).cloned().unwrap_or_default();
            for node in now.union(&before) {
                marks.entry(node.clone()).or_default().insert(id.clone());
            }
            if now.is_empty() {
                self.replicas.remove(&id);
            } else {
                self.replicas.insert(id, now);
            }
        }
        let mut volumes = BTreeSet::new();
        for event in changes.iter().flat_map(|applied| applied.events.iter()) {
            if let Event::Volumes(name) = event {
                volumes.extend(self.follow_volumes(state, name));
            }
        }
        Marks::Some { replicas: marks, volumes }
    }

    /// The nodes that have to hear of it.
    fn follow_volumes(&mut self, state: &State, name: &DeploymentName) -> BTreeSet<NodeId> {
        let now = VolumeOrders::nodes(state, name);
        let before = if now.is_empty() {
            self.volumes.remove(name)
        } else {
            self.volumes.insert(name.clone(), now.clone())
        };
        before.unwrap_or_default().union(&now).cloned().collect()
    }
}

fn nodes_of(replica: &Replica) -> BTreeSet<NodeId> {
    replica.holds().map(|held| held.node.clone()).collect()
}

fn everything(state: &State, node: &NodeId) -> BTreeMap<ReplicaId, Assignments> {
    let tenants =
        state.load(node).into_iter().flat_map(plimsoll_model::state::load::NodeLoad::everyone);
    tenants.filter_map(|id| Some((id.clone(), Assignments::of(state, node, id)?))).collect()
}

#[cfg(test)]
mod tests;
