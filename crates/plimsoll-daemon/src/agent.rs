//! Keeps this node's containers as the cell asks.
//!
//! One task holds what it knows of every container and never waits for any of them: pulls, starts, stops and removals
//! run beside it and report back. What to do next about a replica is chosen by `plimsoll_kernel::agent`, when to try
//! again by `plimsoll_kernel::restart`; here it is begun, gated by time and dependencies, and told to the cell. What is
//! true of a container is learnt from looking at the runtime, in `sweep`; events only say that it is time to look.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_kernel::Policy;
use plimsoll_kernel::agent::{
    self, ContainerPhase, ContainerStep, LocalContainer, WantedContainer,
};
use plimsoll_model::registries::RegistryAuth;
use plimsoll_model::{
    CellId, Generation, Millis, NodeId, ObservedCode, ObservedState, ReplicaId, Timestamp,
};
use plimsoll_runtime::health::HealthReport;
use plimsoll_runtime::health::probe::HealthState;
use plimsoll_runtime::{BindRoots, BoxFuture, Error, PullError, Runtime, Tag, chain};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::context::NodeContext;
use crate::dispatcher::{AssignmentReceiver, AssignmentUpdate, Assignments, DesiredReplica};
use crate::link::{self, Report};
use crate::measurements::{FailedChecks, SharedMeasurements};
use crate::volume_copy::CopyNotes;
use crate::volume_door::VolumeSwap;
use crate::volume_orders::VolumeOrders;
use crate::volume_restore;
use plimsoll_peer::PeerClient;

mod clock;
mod container;
mod declared;
mod outage;
mod resync;
mod volume_work;
mod volumes;
mod work;

#[cfg(test)]
mod tests;

use clock::AgentClock;
use container::{Seen, Sight, Then, Unit};
use outage::KnownProcesses;
use resync::Sweeps;
use volume_work::VolumeWork;
use volumes::Doomed;
use work::{FinishedWork, ReplicaHealth, WorkOutcome};

/// Starts at once. An engine serves a handful of them no faster than these, and everyone else has to wait for more.
const MAX_STARTS: usize = 8;

/// How soon to try again what failed only because the runtime did not answer.
const RUNTIME_RETRY: Millis = Millis::seconds(1);

/// Who sends requests to this node's containers, and knows when none is under way.
pub trait Traffic: Debug + Send + Sync {
    /// Returns once nothing is sent to the container any more and nothing is under way to it, or patience ends.
    fn parted<'a>(
        &'a self,
        replica: &'a ReplicaId,
        generation: Generation,
        patience: Duration,
    ) -> BoxFuture<'a, ()>;
}

#[derive(Debug)]
pub struct Agent {
    runtime: Arc<dyn Runtime>,
    cell_id: CellId,
    node: NodeId,
    measurements: SharedMeasurements,
    policy: Policy,
    clock: AgentClock,
    briefs: BTreeMap<ReplicaId, Assignments>,
    units: BTreeMap<ReplicaId, Vec<Unit>>,
    /// When to look at a replica again, though nothing happened.
    timers: BTreeSet<(Timestamp, ReplicaId)>,
    /// Counts what was begun and ended, so that an older look at the runtime is known for one.
    touches: u64,
    tasks: JoinSet<FinishedWork>,
    starts: Arc<Semaphore>,
    words: (mpsc::UnboundedSender<ReplicaHealth>, mpsc::UnboundedReceiver<ReplicaHealth>),
    swaps: (mpsc::UnboundedSender<VolumeSwap>, mpsc::UnboundedReceiver<VolumeSwap>),
    reports: mpsc::UnboundedSender<Report>,
    sweeps: Sweeps,
    doomed: Doomed,
    volume_work: VolumeWork,
    processes: KnownProcesses,
    /// What was told to be unknown before the runtime was ever looked at.
    unseen: BTreeSet<(ReplicaId, Generation)>,
    traffic: Option<Arc<dyn Traffic>>,
    bind_roots: BindRoots,
}

impl Agent {
    /// An agent that reports what it sees.
    pub fn new(cell: &NodeContext, reports: mpsc::UnboundedSender<Report>) -> Self {
        let cell_id = cell.engine.machine().read(|state| state.cell_id().clone());
        let (runtime, measurements) = (Arc::clone(&cell.runtime), cell.measurements.clone());
        let (node, policy) = (cell.node.clone(), &cell.policy);
        let mut agent = Self::reporting(reports, runtime, measurements, cell_id, node, policy);
        agent.volume_work.exports = cell.volume_exports.clone();
        agent.volume_work.door = cell.volume_door.clone();
        agent.volume_work.door.lock().swaps = Some(agent.swaps.0.clone());
        agent
    }

    fn reporting(
        reports: mpsc::UnboundedSender<Report>,
        runtime: Arc<dyn Runtime>,
        measurements: SharedMeasurements,
        cell_id: CellId,
        node: NodeId,
        policy: &Policy,
    ) -> Self {
        Self {
            runtime,
            cell_id,
            node,
            measurements,
            policy: *policy,
            clock: AgentClock::start(),
            briefs: BTreeMap::new(),
            units: BTreeMap::new(),
            timers: BTreeSet::new(),
            touches: 0,
            tasks: JoinSet::new(),
            starts: Arc::new(Semaphore::new(MAX_STARTS)),
            words: mpsc::unbounded_channel(),
            swaps: mpsc::unbounded_channel(),
            reports,
            sweeps: Sweeps::default(),
            doomed: Doomed::default(),
            volume_work: VolumeWork::default(),
            processes: KnownProcesses::default(),
            unseen: BTreeSet::new(),
            traffic: None,
            bind_roots: BindRoots::default(),
        }
    }

    /// From now on what leaves is stopped once its requests have ended.
    #[must_use]
    pub fn beside_traffic(mut self, traffic: Arc<dyn Traffic>) -> Self {
        self.traffic = Some(traffic);
        self
    }

    /// From now on it keeps below this directory which processes its containers have.
    #[must_use]
    pub fn with_data_dir(mut self, data_dir: &Path) -> Self {
        self.processes = KnownProcesses::read(data_dir);
        self.volume_work.notes = CopyNotes::below(data_dir);
        self.volume_work.door.lock().data_dir = Some(data_dir.to_owned());
        volume_restore::clear_left(data_dir);
        self
    }

    /// From now on it copies volumes from other nodes.
    #[must_use]
    pub fn with_peers(mut self, client: PeerClient) -> Self {
        self.volume_work.client = Some(client);
        self
    }

    /// From now on those who are no admins may bind below these.
    #[must_use]
    pub fn with_bind_roots(mut self, bind_roots: BindRoots) -> Self {
        self.bind_roots = bind_roots;
        self
    }

    /// Runs until told to stop. Containers run on: the next agent adopts them.
    pub async fn run(
        mut self,
        mut orders: AssignmentReceiver,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let mut events = self.runtime.events();
        loop {
            self.begin_sweep();
            self.begin_clearing();
            self.begin_discards();
            let wake = self.wake();
            tokio::select! {
                // What is here is learnt before what is asked: else everything would be started a second time.
                update = orders.recv(), if self.sweeps.has_looked() || self.sweeps.is_out() => match update {
                    Some(update) => self.hear(update),
                    None => return,
                },
                event = events.next() => match event {
                    Some(_) => self.sweeps.want_soon(),
                    None => return,
                },
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => self.done(done),
                    // Somebody gave it up.
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => tracing::error!(%error, "a task of the agent failed"),
                },
                Some(word) = self.words.1.recv() => self.heed(word),
                Some(swap) = self.swaps.1.recv() => self.swap_volume(swap),
                () = tokio::time::sleep_until(wake) => self.ring(),
                _ = shutdown.wait_for(|stop| *stop) => return,
            }
        }
    }

    fn wake(&self) -> Instant {
        let timer = self.timers.first().map(|(at, _)| self.clock.instant(*at));
        let sweep = self.sweeps.due();
        [timer, self.doomed.due(), self.volume_work.due()]
            .into_iter()
            .flatten()
            .fold(sweep, Instant::min)
    }

    /// Looks at every replica whose time has come.
    fn ring(&mut self) {
        let now = self.clock.now();
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, id)) = self.timers.pop_first() {
                self.advance(&id);
            }
        }
    }

    fn hear(&mut self, update: AssignmentUpdate) {
        let changed: Vec<ReplicaId> = match update {
            AssignmentUpdate::Volumes(orders) => {
                let VolumeOrders { doomed, discards, copies, exports, holds } = orders;
                self.doomed.ask(doomed);
                self.volume_work.discard(discards);
                *self.volume_work.exports.lock() = exports;
                self.volume_work.door.lock().holds = holds;
                self.copy_volumes(&copies);
                return;
            }
            AssignmentUpdate::All(briefs) => {
                for (id, brief) in &briefs {
                    self.welcome_auth(id, brief);
                }
                self.briefs = briefs;
                // What is to go of volumes comes next, if there is any. What is being copied is copied on until then.
                self.doomed.ask(BTreeMap::new());
                self.volume_work.discard(BTreeMap::new());
                self.volume_work.door.lock().holds.clear();
                let known: BTreeSet<_> = self.briefs.keys().chain(self.units.keys()).collect();
                known.into_iter().cloned().collect()
            }
            AssignmentUpdate::Some(some) => {
                let put = |(id, brief): (ReplicaId, Option<Assignments>)| {
                    match brief {
                        Some(brief) => {
                            self.welcome_auth(&id, &brief);
                            self.briefs.insert(id.clone(), brief)
                        }
                        None => self.briefs.remove(&id),
                    };
                    id
                };
                some.into_iter().map(put).collect()
            }
        };
        // Without a look nothing is begun: everything would be started a second time.
        if !self.sweeps.has_looked() {
            self.tell_unseen(&changed);
            return;
        }
        for id in changed {
            self.advance(&id);
        }
    }

    /// What came with the order to run it.
    fn registry_auth(&self, id: &ReplicaId, generation: Generation) -> Option<Arc<RegistryAuth>> {
        let wanted = self.briefs.get(id)?.wanted.iter();
        wanted.into_iter().find(|it| it.generation == generation)?.registry_auth.clone()
    }

    /// With other credentials what could not be pulled is tried again at once: somebody logged in for it.
    fn welcome_auth(&mut self, id: &ReplicaId, brief: &Assignments) {
        for wanted in &brief.wanted {
            let before = self.registry_auth(id, wanted.generation);
            if before != wanted.registry_auth
                && let Some(unit) = self.unit_mut(id, wanted.generation)
                && unit.phase.is_none()
            {
                unit.due = None;
            }
        }
    }

    /// Brings one replica a step nearer to what is asked.
    fn advance(&mut self, id: &ReplicaId) {
        let brief = self.briefs.get(id).cloned().unwrap_or_default();
        for wanted in &brief.wanted {
            self.take_order(id, wanted);
        }
        // Nothing of it is here: it waited for another try of its pull.
        let is_idle = |unit: &&Unit| unit.phase.is_none() && !self.is_wanted(id, unit.generation);
        let idle: Vec<Generation> =
            self.units_of(id).filter(is_idle).map(|u| u.generation).collect();
        for generation in idle {
            self.forget(id, generation);
        }
        let locals: Vec<LocalContainer> = self.units_of(id).filter_map(Unit::local).collect();
        let wanted = brief.wanted.iter().map(|wanted| WantedContainer {
            is_held: wanted.wanted().is_held || self.awaits_volumes(id, wanted),
            ..wanted.wanted()
        });
        let wanted: Vec<WantedContainer> = wanted.collect();
        for step in agent::next(&wanted, &locals) {
            self.begin(id, step, &brief);
        }
        // What leaves and is not here has stopped, perhaps while nobody watched.
        for generation in brief.leaving {
            if self.unit(id, generation).is_none() {
                self.tell(id, generation, (ObservedState::Stopped, None));
            }
        }
        if self.units.get(id).is_some_and(Vec::is_empty) {
            self.units.remove(id);
        }
    }

    /// Makes sure that what is wanted is known, and that what runs of it is watched.
    fn take_order(&mut self, id: &ReplicaId, wanted: &DesiredReplica) {
        let touches = self.touches;
        let was_unseen = self.unseen.contains(&(id.clone(), wanted.generation));
        let units = self.units.entry(id.clone()).or_default();
        let at = units.iter().position(|unit| unit.generation == wanted.generation);
        let at = at.unwrap_or_else(|| {
            units.push(Unit::new(wanted.generation, touches));
            units.len() - 1
        });
        let unit = &mut units[at];
        unit.retries = wanted.spec.retries();
        if unit.spec.is_none() {
            unit.spec = Some(Arc::clone(&wanted.spec));
            let observed = wanted.observed.as_ref();
            unit.told = observed.map(|seen| (seen.state, seen.code.clone()));
            if was_unseen {
                // The order was given before that was told.
                unit.told = Some(outage::UNKNOWN);
            }
            // The count of failures went with the process that counted; its result did not.
            let last = observed.and_then(|seen| seen.code.as_ref()).filter(|_| !unit.is_up());
            let is_end = |code: &&ObservedCode| {
                wanted.is_over || matches!(code, ObservedCode::RestartExhausted { .. })
            };
            unit.end = last.filter(is_end).cloned();
            // What ran to its end while nobody watched is not run a second time for that. Where nobody knows how it ended, it is.
            let exit = unit.exit.filter(|exit| exit.status.is_some() && unit.retries.is_some());
            if let Some(exit) = exit.filter(|_| unit.end.is_none()) {
                let (now, policy) = (self.clock.now(), self.policy);
                let seen = unit.ends(exit, now, &policy);
                self.tell(id, wanted.generation, seen);
                return;
            }
        }
        if unit.is_up() && unit.watching.is_none() {
            let is_known = unit.told.as_ref().is_some_and(|(state, _)| {
                matches!(state, ObservedState::Running | ObservedState::Degraded)
            });
            self.watch(id, wanted.generation);
            if !is_known {
                self.tell(id, wanted.generation, (ObservedState::Starting, None));
            }
        }
    }

    fn begin(&mut self, id: &ReplicaId, step: ContainerStep, brief: &Assignments) {
        let now = self.clock.now();
        let generation = match step {
            ContainerStep::Pull(g)
            | ContainerStep::Start(g)
            | ContainerStep::Await(g)
            | ContainerStep::Stop(g)
            | ContainerStep::Remove(g) => g,
        };
        let Some(unit) = self.unit(id, generation) else { return };
        let is_try = matches!(
            step,
            ContainerStep::Pull(_) | ContainerStep::Start(_) | ContainerStep::Await(_)
        );
        if is_try && unit.end.is_some() {
            return;
        }
        if is_try && let Some(due) = unit.due.filter(|due| *due > now) {
            self.timers.insert((due, id.clone()));
            return;
        }
        match step {
            ContainerStep::Pull(_) => self.pull(id, generation),
            ContainerStep::Start(_) if self.doomed.is_clearing(&id.service.deployment) => {}
            ContainerStep::Start(_) if self.volume_work.is_removing(&id.service.deployment) => {}
            ContainerStep::Start(_) => self.start(id, generation),
            ContainerStep::Await(_) => {
                let wanted = brief.wanted.iter().find(|wanted| wanted.generation == generation);
                if wanted.is_some_and(|wanted| self.awaits_volumes(id, wanted)) {
                    self.tell_volumes(id, generation);
                }
                if let Some((service, until)) = wanted.and_then(|wanted| wanted.awaits.clone()) {
                    let code = ObservedCode::AwaitsService { service, until };
                    self.tell(id, generation, (ObservedState::Pending, Some(code)));
                } else {
                    // What it waited for is there, and the cell has yet to say which volumes it has.
                    self.tell(id, generation, (ObservedState::Pulling, None));
                }
            }
            ContainerStep::Stop(_) => self.stop(id, generation, Then::Orders),
            ContainerStep::Remove(_) => self.remove(id, generation),
        }
    }

    /// Something that was begun is over.
    fn done(&mut self, done: FinishedWork) {
        let Some((id, generation)) = done.about else {
            match done.outcome {
                WorkOutcome::Swept { began, found } => self.swept(began, found),
                WorkOutcome::Described(described) => self.described(described),
                WorkOutcome::Cleared { deployment, revision, result } => {
                    self.cleared(&deployment, revision, result);
                }
                WorkOutcome::Volume(done) => self.volume_done(done),
                WorkOutcome::Kept(written) => self.kept_processes(written),
                _ => {}
            }
            return;
        };
        match done.outcome {
            WorkOutcome::Pulled(result) => self.pulled(&id, generation, result),
            WorkOutcome::Started(result) => self.started(&id, generation, result),
            WorkOutcome::Stopped => self.stopped(&id, generation),
            WorkOutcome::Removed => self.forget(&id, generation),
            WorkOutcome::Swept { .. }
            | WorkOutcome::Described(_)
            | WorkOutcome::Cleared { .. }
            | WorkOutcome::Volume(_)
            | WorkOutcome::Kept(_) => {}
        }
        self.advance(&id);
    }

    fn pulled(
        &mut self,
        id: &ReplicaId,
        generation: Generation,
        result: Result<BTreeSet<String>, PullError>,
    ) {
        let (now, policy) = (self.clock.now(), self.policy);
        let Some(unit) = self.touch(id, generation) else { return };
        unit.pulling = None;
        match result {
            Ok(declared) => {
                unit.phase = Some(ContainerPhase::Pulled);
                unit.due = None;
                self.found_volumes(id, generation, declared);
            }
            // Not the image's fault: it is not counted.
            Err(PullError::Unavailable { .. }) => {
                (unit.phase, unit.due) = (None, Some(now.plus(RUNTIME_RETRY)));
                self.sweeps.want_soon();
            }
            Err(error) => {
                tracing::warn!(replica = %id, %error, "cannot pull");
                unit.fail_pull(now, &policy);
                let image = error.image().to_owned();
                let code = ObservedCode::ImagePullFailed { image, error: error.to_string() };
                self.tell(id, generation, (ObservedState::Pending, Some(code)));
            }
        }
    }

    fn started(&mut self, id: &ReplicaId, generation: Generation, result: Result<(), Error>) {
        let (now, policy) = (self.clock.now(), self.policy);
        let Some(unit) = self.touch(id, generation) else { return };
        let is_over = std::mem::replace(&mut unit.then, Then::Orders) == Then::Stop;
        let told = match result {
            _ if is_over => None,
            Ok(()) => {
                (unit.phase, unit.due, unit.has_started) = (Some(ContainerPhase::Up), None, true);
                (unit.sight, unit.subnet_failures) = (Sight::Unseen, 0);
                Some((ObservedState::Starting, None))
            }
            // Not its fault: it is not counted.
            Err(error @ Error::Unavailable { .. }) => {
                (unit.phase, unit.due) =
                    (Some(ContainerPhase::Pulled), Some(now.plus(RUNTIME_RETRY)));
                let code = ObservedCode::StartFailed { error: chain(&error) };
                Some((ObservedState::Pending, Some(code)))
            }
            Err(error @ Error::SubnetPoolExhausted { .. }) => {
                tracing::warn!(replica = %id, error = %chain(&error), "cannot start");
                unit.lack_subnet(now, &policy);
                let code = ObservedCode::SubnetPoolExhausted { error: chain(&error) };
                Some((ObservedState::Pending, Some(code)))
            }
            Err(error) => {
                tracing::warn!(replica = %id, error = %chain(&error), "cannot start");
                Some(unit.fail(ObservedCode::StartFailed { error: chain(&error) }, now, &policy))
            }
        };
        if let Some(told) = told {
            self.tell(id, generation, told);
            self.sweeps.want_soon();
        } else {
            self.stop(id, generation, Then::Orders);
        }
    }

    fn stopped(&mut self, id: &ReplicaId, generation: Generation) {
        let (now, policy) = (self.clock.now(), self.policy);
        let is_wanted = self.is_wanted(id, generation);
        let Some(unit) = self.touch(id, generation) else { return };
        unit.phase = Some(ContainerPhase::Exited);
        unit.unwatch();
        match std::mem::replace(&mut unit.then, Then::Orders) {
            Then::Retry(code) if is_wanted => {
                let seen = unit.fail(code, now, &policy);
                self.tell(id, generation, seen);
            }
            _ if !is_wanted => self.tell(id, generation, (ObservedState::Stopped, None)),
            Then::Orders | Then::Stop | Then::Retry(_) => {}
        }
    }

    /// What its check says.
    fn heed(&mut self, word: ReplicaHealth) {
        let ReplicaHealth { replica: id, generation, watch, health } = word;
        let now = self.clock.now();
        let Some(unit) = self.unit_mut(&id, generation) else { return };
        if !unit.is_up() || unit.watch != watch {
            return;
        }
        match health {
            HealthReport::Changed(HealthState::Starting) => {}
            HealthReport::FailedSoFar { checks, output } => {
                unit.failed_checks = Some(FailedChecks::new(checks, output.clone()));
                // The first is written down, as the reason why it is not up yet; those after it are only measured.
                if checks == 1 {
                    let code = ObservedCode::Unhealthy { output };
                    self.tell(&id, generation, (ObservedState::Starting, Some(code)));
                } else {
                    self.note_tries(&id, generation);
                }
            }
            HealthReport::Changed(HealthState::Healthy) => {
                unit.tries.runs(now);
                unit.failed_checks = None;
                // Requests come once it is told, and by then this node must know where to send them.
                if unit.sight == Sight::Seen {
                    self.tell(&id, generation, (ObservedState::Running, None));
                } else {
                    unit.sight = Sight::UnseenHealthy;
                    self.sweeps.want_now();
                }
            }
            HealthReport::Changed(HealthState::Unhealthy { output }) => {
                let code = ObservedCode::Unhealthy { output };
                self.tell(&id, generation, (ObservedState::Degraded, Some(code.clone())));
                if self.is_wanted(&id, generation) {
                    self.stop(&id, generation, Then::Retry(code));
                }
            }
        }
    }

    /// Tells the cell, unless it was the last thing told.
    fn tell(&mut self, id: &ReplicaId, generation: Generation, seen: Seen) {
        self.note_tries(id, generation);
        if let Some(unit) = self.unit_mut(id, generation) {
            if unit.told.as_ref() == Some(&seen) {
                return;
            }
            unit.told = Some(seen.clone());
        }
        // Without a reporter the daemon is going down, and the next one looks for itself.
        let (state, code) = seen;
        let seen = link::Seen { replica: id.clone(), generation, state, code };
        let _ = self.reports.send(Report::Seen(seen));
    }

    fn note_tries(&self, id: &ReplicaId, generation: Generation) {
        let Some(unit) = self.unit(id, generation) else { return };
        let checks = unit.failed_checks.as_ref().map_or(0, |checks| checks.count);
        let failures = unit.tries.failures().max(unit.pull_failures).max(checks);
        let next_try = unit.due.filter(|_| unit.end.is_none());
        let mut measured = self.measurements.lock();
        let measured = measured.replicas.entry((id.clone(), generation)).or_default();
        (measured.failures, measured.next_try) = (failures, next_try);
        measured.failed_checks.clone_from(&unit.failed_checks);
    }

    fn forget(&mut self, id: &ReplicaId, generation: Generation) {
        if let Some(units) = self.units.get_mut(id) {
            units.retain(|unit| unit.generation != generation);
        }
        self.measurements.lock().replicas.remove(&(id.clone(), generation));
    }

    fn is_wanted(&self, id: &ReplicaId, generation: Generation) -> bool {
        self.brief_of(id, generation).is_some()
    }

    fn brief_of(&self, id: &ReplicaId, generation: Generation) -> Option<&DesiredReplica> {
        self.briefs.get(id)?.wanted.iter().find(|wanted| wanted.generation == generation)
    }

    fn units_of(&self, id: &ReplicaId) -> impl Iterator<Item = &Unit> {
        self.units.get(id).into_iter().flatten()
    }

    fn unit(&self, id: &ReplicaId, generation: Generation) -> Option<&Unit> {
        self.units_of(id).find(|unit| unit.generation == generation)
    }

    fn unit_mut(&mut self, id: &ReplicaId, generation: Generation) -> Option<&mut Unit> {
        self.units.get_mut(id)?.iter_mut().find(|unit| unit.generation == generation)
    }

    /// The unit, marked as changed now: what was seen of it before is stale.
    fn touch(&mut self, id: &ReplicaId, generation: Generation) -> Option<&mut Unit> {
        self.touches += 1;
        let touches = self.touches;
        let unit = self.unit_mut(id, generation)?;
        unit.touched = touches;
        Some(unit)
    }

    fn tag(&self, id: &ReplicaId, generation: Generation) -> Tag {
        Tag { cell_id: self.cell_id.clone(), replica: id.clone(), generation }
    }
}
