//! What the agent sets going beside itself: each piece of work is one task, and ends in one [`FinishedWork`].

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_kernel::agent::ContainerPhase;
use plimsoll_model::spec::PortMode;
use plimsoll_model::{
    ContainerSpec, DeploymentName, Generation, ObservedState, ReplicaId, Revision,
};
use plimsoll_runtime::health::{Check, HealthReport, Monitor};
use plimsoll_runtime::{
    BindRoots, Binding, BoxFuture, ContainerInfo, Description, Error, Pull, PullError, Runtime,
    StartRequest, Tag, chain,
};
use tokio::time::sleep;

use super::container::Then;
use super::volume_work::VolumeWorkDone;
use super::{Agent, Unit, declared};
use crate::context;

/// A stop or removal that fails is tried again, ever more seldom, until it succeeds: nothing else can be done about it.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The longest that requests to what leaves are waited for, whatever its grace: the node is wanted for something else.
const LONGEST_PARTING: Duration = Duration::from_secs(10);

/// Work that is over.
#[derive(Debug)]
pub(super) struct FinishedWork {
    /// Which container it was about, if it was about one.
    pub(super) about: Option<(ReplicaId, Generation)>,
    pub(super) outcome: WorkOutcome,
}

#[derive(Debug)]
pub(super) enum WorkOutcome {
    /// With where the image declares volumes that the file does not mount.
    Pulled(Result<BTreeSet<String>, PullError>),
    Started(Result<(), Error>),
    Stopped,
    Removed,
    /// A look at the runtime, and what the agent had done when it began.
    Swept {
        began: u64,
        found: Result<Vec<ContainerInfo>, Error>,
    },
    Described(Result<Description, Error>),
    /// The volumes of a deployment, as asked when it ended at this revision.
    Cleared {
        deployment: DeploymentName,
        revision: Revision,
        result: Result<Vec<String>, Error>,
    },
    Volume(VolumeWorkDone),
    /// The processes of containers are on disk, or are not.
    Kept(std::io::Result<()>),
}

/// What a check says of one run.
#[derive(Debug)]
pub(super) struct ReplicaHealth {
    pub(super) replica: ReplicaId,
    pub(super) generation: Generation,
    /// Which watch: a word on an earlier run does not count for the next.
    pub(super) watch: u64,
    pub(super) health: HealthReport,
}

impl Agent {
    pub(super) fn pull(&mut self, id: &ReplicaId, generation: Generation) {
        let Some(unit) = self.touch(id, generation) else { return };
        let Some(spec) = unit.spec.clone() else { return };
        unit.phase = Some(ContainerPhase::Pulling);
        if unit.pull_failures == 0 && unit.subnet_failures == 0 {
            self.tell(id, generation, (ObservedState::Pulling, None));
        }
        let pull = Pull::of(&spec.container).with_auth(self.registry_auth(id, generation));
        let runtime = Arc::clone(&self.runtime);
        let pulling = self.spawn(id, generation, async move {
            WorkOutcome::Pulled(match runtime.pull(&pull).await {
                Ok(()) => declared::find(runtime.as_ref(), &spec.container).await,
                Err(error) => Err(error),
            })
        });
        if let Some(unit) = self.unit_mut(id, generation) {
            unit.pulling = Some(pulling);
        }
    }

    pub(super) fn start(&mut self, id: &ReplicaId, generation: Generation) {
        let tag = self.tag(id, generation);
        let declared = self.declared_mounts(id, generation);
        let Some(unit) = self.touch(id, generation) else { return };
        let Some(spec) = unit.spec.clone() else { return };
        unit.phase = Some(ContainerPhase::Starting);
        unit.has_container = true;
        let container = Arc::new(spec.container.clone());
        let bindings = bindings(&container);
        let order = StartRequest { bindings, declared, ..StartRequest::new(tag, container) };
        let (runtime, starts) = (Arc::clone(&self.runtime), Arc::clone(&self.starts));
        let roots = self.bind_roots.clone();
        self.spawn(id, generation, async move {
            let _turn = starts.acquire().await;
            // Before every start: who writes below a root can plant a symlink there at any time.
            WorkOutcome::Started(match held(roots, order).await {
                Ok(order) => runtime.start(&order).await,
                Err(refused) => Err(refused),
            })
        });
    }

    /// A start under way is not broken off, since what it has done by then nobody could tell; it is stopped when it is
    /// over.
    pub(super) fn stop(&mut self, id: &ReplicaId, generation: Generation, then: Then) {
        let tag = self.tag(id, generation);
        let Some(unit) = self.touch(id, generation) else { return };
        unit.unwatch();
        if unit.phase == Some(ContainerPhase::Starting) {
            (unit.phase, unit.then) = (Some(ContainerPhase::Stopping), Then::Stop);
            return;
        }
        let parting = unit.parting().filter(|_| then == Then::Orders);
        (unit.phase, unit.then) = (Some(ContainerPhase::Stopping), then);
        let parting = parting.and_then(|patience| Some((self.traffic.clone()?, patience)));
        let runtime = Arc::clone(&self.runtime);
        self.spawn(id, generation, async move {
            if let Some((traffic, patience)) = parting {
                traffic.parted(&tag.replica, tag.generation, patience).await;
            }
            until_done("stop", &tag, || runtime.stop(&tag)).await;
            WorkOutcome::Stopped
        });
    }

    pub(super) fn remove(&mut self, id: &ReplicaId, generation: Generation) {
        let tag = self.tag(id, generation);
        let Some(unit) = self.touch(id, generation) else { return };
        unit.give_up_pull();
        if !unit.has_container {
            let is_told = unit.told.is_some();
            if is_told {
                self.tell(id, generation, (ObservedState::Stopped, None));
            }
            self.forget(id, generation);
            return;
        }
        // Nothing runs of it any more, which is all the cell waits for.
        unit.phase = Some(ContainerPhase::Stopping);
        self.tell(id, generation, (ObservedState::Stopped, None));
        let runtime = Arc::clone(&self.runtime);
        self.spawn(id, generation, async move {
            until_done("remove", &tag, || runtime.remove(&tag)).await;
            WorkOutcome::Removed
        });
    }

    /// Watches a run by its check, or by how long it lasts.
    pub(super) fn watch(&mut self, id: &ReplicaId, generation: Generation) {
        self.touches += 1;
        let (watch, tag) = (self.touches, self.tag(id, generation));
        let (runtime, words) = (Arc::clone(&self.runtime), self.words.0.clone());
        let Some(unit) = self.unit_mut(id, generation) else { return };
        let Some(spec) = unit.spec.clone() else { return };
        let since = unit.since.take();
        let age = since.map_or(0, |since| context::now().since(since).0);
        let watching = tokio::spawn(async move {
            let check = check(runtime.as_ref(), &spec.container).await;
            let age = Duration::from_millis(age);
            let mut monitor = Monitor::begin(runtime, tag.clone(), check, age);
            while let Some(health) = monitor.next().await {
                let Tag { replica, generation, .. } = tag.clone();
                if words.send(ReplicaHealth { replica, generation, watch, health }).is_err() {
                    return;
                }
            }
        });
        unit.unwatch();
        unit.watch = watch;
        unit.watching = Some(watching.abort_handle());
    }

    fn spawn(
        &mut self,
        id: &ReplicaId,
        generation: Generation,
        work: impl Future<Output = WorkOutcome> + Send + 'static,
    ) -> tokio::task::AbortHandle {
        let about = Some((id.clone(), generation));
        self.tasks.spawn(async move { FinishedWork { about, outcome: work.await } })
    }
}

impl Unit {
    pub(super) fn is_up(&self) -> bool {
        self.phase == Some(ContainerPhase::Up)
    }

    /// How long its requests may take to end before it is stopped; none for what gets no requests, as it is not well.
    fn parting(&self) -> Option<Duration> {
        // What an earlier agent left behind was told to that one.
        let is_well = self.told.as_ref().is_none_or(|(state, _)| *state == ObservedState::Running);
        let grace = self.spec.as_ref().map_or(LONGEST_PARTING, |spec| {
            Duration::from_millis(spec.container.effective_stop_grace().0)
        });
        (self.is_up() && is_well).then_some(grace.min(LONGEST_PARTING))
    }
}

async fn check(runtime: &dyn Runtime, spec: &ContainerSpec) -> Check {
    // Without a word from the runtime the image is taken to bring no check: the service's own still counts.
    let image = runtime.image_check(&spec.pinned_image()).await.unwrap_or_default();
    Check::of(spec.healthcheck.as_ref(), image.as_ref())
}

/// The order with its binds as they are found below the node's roots, or why it may not start.
async fn held(roots: BindRoots, order: StartRequest) -> Result<StartRequest, Error> {
    if order.spec.asked_by.is_none() {
        return Ok(order);
    }
    // A path on a network file system can keep whoever looks at it waiting.
    let held = tokio::task::spawn_blocking(move || roots.hold(order));
    held.await.expect("looking at a path does not panic")
}

async fn until_done<'a>(
    what: &str,
    tag: &Tag,
    work: impl Fn() -> BoxFuture<'a, Result<(), Error>>,
) {
    let (mut pause, most) = RETRY;
    while let Err(error) = work().await {
        tracing::warn!(%tag, error = %chain(&error), "cannot {what}; retrying");
        sleep(pause).await;
        pause = (pause * 2).min(most);
    }
}

/// Ports that belong to this one container; those that lead to any healthy replica are not bound to one.
fn bindings(spec: &ContainerSpec) -> Vec<Binding> {
    let host = spec.ports.iter().filter(|port| port.mode == PortMode::Host);
    host.map(|port| Binding {
        target: port.target,
        protocol: port.protocol,
        address: port
            .host_ip
            .as_ref()
            .and_then(|ip| ip.parse().ok())
            .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        port: port.published.unwrap_or(0),
    })
    .collect()
}
