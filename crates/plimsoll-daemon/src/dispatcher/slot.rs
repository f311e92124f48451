//! The way of a node's orders to its agent. Whoever brings them never waits, and an agent that does not look finds the
//! latest of them when it does, and never a queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use plimsoll_model::ReplicaId;
use tokio::sync::mpsc;

use super::{AssignmentUpdate, Assignments};
use crate::volume_orders::VolumeOrders;

/// Both ends.
pub fn slot() -> (AssignmentSender, AssignmentReceiver) {
    // One word to wake is enough, however much there is to take.
    let (wake, woken) = mpsc::channel(1);
    let pending: Arc<Mutex<PendingUpdate>> = Arc::default();
    (
        AssignmentSender { pending: Arc::clone(&pending), wake },
        AssignmentReceiver { pending, woken },
    )
}

#[derive(Debug, Clone)]
pub struct AssignmentSender {
    pending: Arc<Mutex<PendingUpdate>>,
    wake: mpsc::Sender<()>,
}

#[derive(Debug)]
pub struct AssignmentReceiver {
    pending: Arc<Mutex<PendingUpdate>>,
    woken: mpsc::Receiver<()>,
}

impl AssignmentSender {
    /// Brings what changed.
    pub fn put(&self, update: AssignmentUpdate) {
        locked(&self.pending).put(update);
        // One that is full will wake it, and one that is closed has nobody to wake.
        let _ = self.wake.try_send(());
    }

    /// Returns once nobody takes them any more.
    pub async fn closed(&self) {
        self.wake.closed().await;
    }
}

impl AssignmentReceiver {
    /// What is new; waits until something is. None once nobody brings any more. Nothing is lost where it is given up.
    pub async fn recv(&mut self) -> Option<AssignmentUpdate> {
        loop {
            let update = locked(&self.pending).take();
            if update.is_some() {
                return update;
            }
            if self.woken.recv().await.is_none() {
                return locked(&self.pending).take();
            }
        }
    }
}

fn locked(pending: &Mutex<PendingUpdate>) -> MutexGuard<'_, PendingUpdate> {
    pending.lock().expect("nobody panics while holding what is pending")
}

/// What the agent has not taken yet.
#[derive(Debug, Default)]
struct PendingUpdate {
    all: Option<BTreeMap<ReplicaId, Assignments>>,
    /// Besides it.
    some: BTreeMap<ReplicaId, Option<Assignments>>,
    volumes: Option<VolumeOrders>,
}

impl PendingUpdate {
    fn put(&mut self, update: AssignmentUpdate) {
        match update {
            AssignmentUpdate::All(all) => *self = Self { all: Some(all), ..Self::default() },
            AssignmentUpdate::Some(some) => match &mut self.all {
                Some(all) => some.into_iter().for_each(|(id, assignments)| {
                    match assignments {
                        Some(assignments) => all.insert(id, assignments),
                        None => all.remove(&id),
                    };
                }),
                None => self.some.extend(some),
            },
            AssignmentUpdate::Volumes(volumes) => self.volumes = Some(volumes),
        }
    }

    /// Replicas go before volumes, for the reason that [`Orders`](super::Orders) has.
    fn take(&mut self) -> Option<AssignmentUpdate> {
        if let Some(all) = self.all.take() {
            return Some(AssignmentUpdate::All(all));
        }
        if !self.some.is_empty() {
            let some = std::mem::take(&mut self.some);
            return Some(AssignmentUpdate::Some(some.into_iter().collect()));
        }
        self.volumes.take().map(AssignmentUpdate::Volumes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use plimsoll_model::testkit::replica_id;
    use plimsoll_model::{DeploymentName, Generation, ReplicaId, Revision};
    use tokio::time::timeout;

    use super::*;

    fn asked(generation: u64) -> Assignments {
        Assignments { wanted: Vec::new(), leaving: vec![Generation(generation)] }
    }

    fn all(asked: &[(&str, Assignments)]) -> BTreeMap<ReplicaId, Assignments> {
        asked.iter().map(|(id, asked)| (replica_id(id), asked.clone())).collect()
    }

    fn some(id: &str, asked: Option<Assignments>) -> AssignmentUpdate {
        AssignmentUpdate::Some(vec![(replica_id(id), asked)])
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_look_finds_the_latest_and_never_a_queue() {
        let (web, job) = ("shop/web/1", "shop/job/1");
        let doomed = |revision| {
            let old = DeploymentName::new("old").unwrap();
            let doomed = [(old, Revision(revision))].into();
            AssignmentUpdate::Volumes(VolumeOrders { doomed, ..VolumeOrders::default() })
        };
        let (sender, mut receiver) = slot();
        for generation in 1..100 {
            sender.put(some(web, Some(asked(generation))));
        }
        sender.put(doomed(1));
        sender.put(doomed(2));
        sender.put(some(job, None));
        let both = vec![(replica_id(job), None), (replica_id(web), Some(asked(99)))];
        assert_eq!(receiver.recv().await, Some(AssignmentUpdate::Some(both)));
        assert_eq!(receiver.recv().await, Some(doomed(2)), "volumes go last");

        sender.put(doomed(3));
        sender.put(AssignmentUpdate::All(all(&[(web, asked(100)), (job, asked(101))])));
        sender.put(some(job, None));
        let told = AssignmentUpdate::All(all(&[(web, asked(100))]));
        assert_eq!(receiver.recv().await, Some(told), "what is after it is in it");
        let early = timeout(Duration::from_secs(9), receiver.recv()).await;
        assert!(early.is_err(), "all says that no volumes are to go: {early:?}");

        sender.put(doomed(4));
        drop(sender);
        assert_eq!(receiver.recv().await, Some(doomed(4)), "what was brought is not lost");
        assert_eq!(receiver.recv().await, None);
        let (sender, receiver) = slot();
        drop(receiver);
        sender.closed().await;
    }
}
