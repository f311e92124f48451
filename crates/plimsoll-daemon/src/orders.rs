//! What one node is asked to run, read off the state and told again whenever it changes.
//!
//! The agent sees the cell only through these [`Brief`]s, so that it works alike beside the log and far from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use plimsoll_kernel::{agent, depends};
use plimsoll_model::spec::Dependency;
use plimsoll_model::{
    Event, Generation, NodeId, Observation, Replica, ReplicaId, ServiceKey, ServiceName,
    ServiceSpec, State,
};
use plimsoll_store::{Applied, Lagged, Machine};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a dispatch that nobody needs any more may stay.
const LOOK_AROUND: Duration = Duration::from_secs(5);

/// What the cell asks of this node about one replica.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Brief {
    /// To run: the assignment, and the successor beside it while it moves.
    pub wanted: Vec<Wanted>,
    /// The cell waits to hear that these have stopped.
    pub leaving: Vec<Generation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub generation: Generation,
    pub spec: Arc<ServiceSpec>,
    /// What the cell last heard of it.
    pub observed: Option<Observation>,
    /// What it depends on and cannot start before.
    pub awaits: Option<(ServiceName, Dependency)>,
    /// It has one job: an end with status 0 is a success.
    pub is_job: bool,
}

/// What changed of what is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Telling {
    /// All there is: what is not in it, is not asked for.
    All(BTreeMap<ReplicaId, Brief>),
    /// Only these; none where nothing of the replica is asked for any more.
    Some(Vec<(ReplicaId, Option<Brief>)>),
}

impl Brief {
    /// What the state asks of the node about the replica; none if nothing.
    pub fn of(state: &State, node: &NodeId, id: &ReplicaId) -> Option<Self> {
        let service = state.service(&id.service)?;
        let replica = state.replica(id)?;
        let wanted = agent::wanted(node, Some(replica)).filter_map(|assignment| {
            let spec = Arc::clone(service.spec_of(assignment)?);
            Some(Wanted {
                generation: assignment.generation,
                observed: replica.observation(assignment).cloned(),
                awaits: depends::unmet(state, &id.service.deployment, &spec),
                is_job: depends::is_job(state, &id.service),
                spec,
            })
        });
        let leaving = replica.leaving.iter().filter(|held| held.node == *node);
        let brief = Self {
            wanted: wanted.collect(),
            leaving: leaving.map(|held| held.generation).collect(),
        };
        (!brief.wanted.is_empty() || !brief.leaving.is_empty()).then_some(brief)
    }
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
    pending: Mutex<Pending>,
    wake: Notify,
}

/// What a listener has not been told yet.
#[derive(Debug)]
enum Pending {
    All,
    Some(BTreeSet<ReplicaId>),
}

/// The orders of one node, as they change.
#[derive(Debug)]
pub struct Orders {
    listener: Arc<Listener>,
    machine: Arc<Machine>,
}

impl Dispatch {
    /// Follows the log until nobody holds it any more.
    pub fn start(machine: Arc<Machine>) -> Arc<Self> {
        let dispatch =
            Arc::new(Self { machine: Arc::clone(&machine), listeners: Mutex::default() });
        let next = *machine.applied().borrow() + 1;
        let (weak, mut watcher) = (Arc::downgrade(&dispatch), machine.watch(next));
        tokio::spawn(async move {
            let mut holders = Holders::default();
            machine.read(|state| holders.fill(state));
            while let Some(dispatch) = weak.upgrade() {
                let marks = watcher.look(|state, changes| holders.follow(state, changes));
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
        let (pending, wake) = (Mutex::new(Pending::All), Notify::new());
        let listener = Arc::new(Listener { node, pending, wake });
        self.listeners().push(Arc::downgrade(&listener));
        Orders { listener, machine: Arc::clone(&self.machine) }
    }

    fn mark(&self, marks: &Marks) {
        self.listeners().retain(|listener| {
            let Some(listener) = listener.upgrade() else { return false };
            match marks {
                Marks::All => listener.mark_all(),
                Marks::Some(nodes) => {
                    if let Some(replicas) = nodes.get(&listener.node) {
                        listener.mark(replicas);
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
    fn mark(&self, replicas: &BTreeSet<ReplicaId>) {
        if let Pending::Some(some) = &mut *self.pending() {
            some.extend(replicas.iter().cloned());
        }
        self.wake.notify_one();
    }

    fn mark_all(&self) {
        *self.pending() = Pending::All;
        self.wake.notify_one();
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("nobody panics while holding what is pending")
    }
}

impl Orders {
    /// What is new; waits until something is.
    pub async fn next(&mut self) -> Telling {
        loop {
            let pending =
                std::mem::replace(&mut *self.listener.pending(), Pending::Some(BTreeSet::new()));
            let node = &self.listener.node;
            match pending {
                Pending::All => {
                    return Telling::All(self.machine.read(|state| everything(state, node)));
                }
                Pending::Some(some) if !some.is_empty() => {
                    let briefs = self.machine.read(|state| {
                        let brief = |id: &ReplicaId| Brief::of(state, node, id);
                        some.into_iter().map(|id| (id.clone(), brief(&id))).collect()
                    });
                    return Telling::Some(briefs);
                }
                Pending::Some(_) => self.listener.wake.notified().await,
            }
        }
    }
}

/// Which nodes hold something of each replica, so that a node is told also of what is taken from it.
#[derive(Debug, Default)]
struct Holders(BTreeMap<ReplicaId, BTreeSet<NodeId>>);

/// What to tell whom.
#[derive(Debug)]
enum Marks {
    All,
    Some(BTreeMap<NodeId, BTreeSet<ReplicaId>>),
}

impl Holders {
    fn fill(&mut self, state: &State) {
        self.0 = state.replicas().map(|(id, replica)| (id, nodes_of(replica))).collect();
    }

    fn follow(&mut self, state: &State, changes: Result<Vec<Applied>, Lagged>) -> Marks {
        let Ok(changes) = changes else {
            self.fill(state);
            return Marks::All;
        };
        let mut marks: BTreeMap<NodeId, BTreeSet<ReplicaId>> = BTreeMap::new();
        for id in touched(state, changes.iter().flat_map(|applied| applied.events.iter())) {
            let now = state.replica(&id).map(nodes_of).unwrap_or_default();
            let before = self.0.get(&id).cloned().unwrap_or_default();
            for node in now.union(&before) {
                marks.entry(node.clone()).or_default().insert(id.clone());
            }
            if now.is_empty() {
                self.0.remove(&id);
            } else {
                self.0.insert(id, now);
            }
        }
        Marks::Some(marks)
    }
}

fn nodes_of(replica: &Replica) -> BTreeSet<NodeId> {
    replica.holds().map(|held| held.node.clone()).collect()
}

fn everything(state: &State, node: &NodeId) -> BTreeMap<ReplicaId, Brief> {
    let tenants = state.load(node).into_iter().flat_map(|load| &load.tenants);
    tenants.filter_map(|id| Some((id.clone(), Brief::of(state, node, id)?))).collect()
}

/// The replicas that the events are about, and those that may wait for what the events are about.
fn touched<'e>(state: &State, events: impl Iterator<Item = &'e Event>) -> BTreeSet<ReplicaId> {
    let mut replicas: BTreeSet<ReplicaId> = BTreeSet::new();
    let mut services: BTreeSet<ServiceKey> = BTreeSet::new();
    for event in events {
        match event {
            Event::Replica(id) => {
                replicas.insert(id.clone());
                services.extend(dependents(state, &id.service));
            }
            Event::Service(key) => {
                services.insert(key.clone());
                services.extend(dependents(state, key));
            }
            Event::Access
            | Event::Node(_)
            | Event::Deployment(_)
            | Event::Load(_)
            | Event::Freed(_)
            | Event::Audit(_) => {}
        }
    }
    for key in services {
        let slots = state.service(&key).into_iter().flat_map(|service| service.replicas.keys());
        replicas.extend(slots.map(|slot| ReplicaId::new(key.clone(), slot.clone())));
    }
    replicas
}

fn dependents(state: &State, key: &ServiceKey) -> Vec<ServiceKey> {
    let Some(deployment) = state.deployments().get(&key.deployment) else { return Vec::new() };
    let Some(record) = deployment.history.get(&deployment.revision) else { return Vec::new() };
    let waits = record.services.iter().filter(|(_, s)| s.depends_on.contains_key(&key.service));
    waits.map(|(name, _)| ServiceKey::new(key.deployment.clone(), name.clone())).collect()
}

#[cfg(test)]
mod tests;
