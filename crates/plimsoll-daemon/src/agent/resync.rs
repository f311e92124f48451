//! Looking at the runtime: what is here, what ended, what vanished. One look at a time, soon after something happened and
//! every half minute in any case. What the agent itself changed since a look began is left to the next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_kernel::agent::ContainerPhase;
use plimsoll_model::{Generation, ObservedCode, ObservedState, ReplicaId};
use plimsoll_runtime::{ContainerInfo, ContainerStatus, Description, Error, Exit, chain};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::container::Sight;
use super::outage::Survivors;
use super::work::{FinishedWork, WorkOutcome};
use super::{Agent, Unit};
use plimsoll_api::view;

/// How long an event waits for others before the agent looks: containers of a stack tend to end together.
const GATHER: Duration = Duration::from_millis(100);

/// A look that no event asked for: events can be lost, and are while an engine restarts.
const EVERY: Duration = Duration::from_secs(30);

/// While the runtime does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// When to look at the runtime next.
#[derive(Debug)]
pub(super) struct Sweeps {
    due: Instant,
    is_under_way: bool,
    has_looked: bool,
    last: LastAnswer,
}

/// What the runtime said when it was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastAnswer {
    /// It was not asked yet.
    None,
    Answered,
    Silence,
}

impl Default for Sweeps {
    fn default() -> Self {
        let (is_under_way, has_looked, last) = (false, false, LastAnswer::None);
        Self { due: Instant::now(), is_under_way, has_looked, last }
    }
}

impl Sweeps {
    pub(super) fn due(&self) -> Instant {
        // While one is under way its end is what wakes the agent.
        if self.is_under_way { Instant::now() + EVERY } else { self.due }
    }

    pub(super) fn has_looked(&self) -> bool {
        self.has_looked
    }

    /// Whether the runtime did not answer when it was last asked.
    pub(super) fn is_out(&self) -> bool {
        self.last == LastAnswer::Silence
    }

    pub(super) fn want_now(&mut self) {
        self.due = Instant::now();
    }

    pub(super) fn want_soon(&mut self) {
        self.due = self.due.min(Instant::now() + GATHER);
    }
}

impl Agent {
    /// Begins a look if one is due.
    pub(super) fn begin_sweep(&mut self) {
        if self.sweeps.is_under_way || self.sweeps.due > Instant::now() {
            return;
        }
        self.sweeps.is_under_way = true;
        self.sweeps.due = Instant::now() + EVERY;
        let (runtime, began) = (Arc::clone(&self.runtime), self.touches);
        self.beside(async move { WorkOutcome::Swept { began, found: runtime.list().await } });
    }

    pub(super) fn swept(&mut self, began: u64, found: Result<Vec<ContainerInfo>, Error>) {
        self.sweeps.is_under_way = false;
        match found {
            Ok(found) => {
                self.note_processes(&found);
                self.compare(began, found);
                if self.sweeps.last != LastAnswer::Answered {
                    self.answered();
                }
            }
            Err(error) => {
                self.sweeps.due = Instant::now() + RETRY;
                self.silent(&error);
            }
        }
    }

    fn compare(&mut self, began: u64, found: Vec<ContainerInfo>) {
        let is_first = !std::mem::replace(&mut self.sweeps.has_looked, true);
        let mut here: BTreeSet<(ReplicaId, Generation)> = BTreeSet::new();
        for ContainerInfo { tag, status, address, .. } in found {
            let key = (tag.replica, tag.generation);
            self.measurements.reach(key.0.clone(), key.1, address);
            self.see(&key.0, key.1, &status, began);
            here.insert(key);
        }
        let missing = self.units.iter().flat_map(|(id, units)| {
            let gone = units.iter().filter(|unit| unit.has_container && unit.touched <= began);
            gone.map(|unit| (id.clone(), unit.generation))
        });
        let missing: Vec<_> = missing.filter(|unit| !here.contains(unit)).collect();
        for (id, generation) in missing {
            self.vanished(&id, generation);
        }
        // Before the first orders everything here would pass for an orphan.
        if !is_first {
            let known: Vec<ReplicaId> = self.units.keys().cloned().collect();
            for id in known {
                self.advance(&id);
            }
        }
    }

    fn see(
        &mut self,
        id: &ReplicaId,
        generation: Generation,
        status: &ContainerStatus,
        began: u64,
    ) {
        let Some(unit) = self.unit_mut(id, generation) else {
            let unit = Unit::adopted(generation, status, began);
            self.units.entry(id.clone()).or_default().push(unit);
            return;
        };
        if unit.touched > began {
            if !status.is_running() {
                self.sweeps.want_soon();
            }
            return;
        }
        match (unit.phase, status) {
            (Some(ContainerPhase::Up), ContainerStatus::Exited { exit, .. }) => {
                self.ended(id, generation, *exit)
            }
            (Some(ContainerPhase::Up), ContainerStatus::Running { since }) => {
                let before = std::mem::replace(&mut unit.sight, Sight::Seen);
                // It was taken for gone, and runs: it is watched from here on, and told anew.
                if unit.told.as_ref().is_some_and(|(state, _)| *state == ObservedState::Unknown) {
                    unit.since = Some(*since);
                }
                if before == Sight::UnseenHealthy {
                    self.tell(id, generation, (ObservedState::Running, None));
                }
            }
            (Some(ContainerPhase::Up), ContainerStatus::Created) => {
                unit.phase = Some(ContainerPhase::Pulled)
            }
            // Started by someone else, or by a start that was given up for lost.
            (
                None | Some(ContainerPhase::Exited | ContainerPhase::Pulled),
                ContainerStatus::Running { since },
            ) => {
                (unit.phase, unit.end) = (Some(ContainerPhase::Up), None);
                (unit.has_container, unit.has_started) = (true, true);
                unit.sight = Sight::Seen;
                unit.since = Some(*since);
            }
            _ => {}
        }
    }

    /// A run ended by itself.
    fn ended(&mut self, id: &ReplicaId, generation: Generation, exit: Exit) {
        let (now, policy) = (self.clock.now(), self.policy);
        let is_wanted = self.is_wanted(id, generation);
        let Some(unit) = self.touch(id, generation) else { return };
        unit.unwatch();
        let seen = if is_wanted {
            unit.ends(exit, now, &policy)
        } else {
            unit.phase = Some(ContainerPhase::Exited);
            (ObservedState::Stopped, None)
        };
        self.tell(id, generation, seen);
    }

    /// The runtime has nothing of it any more.
    fn vanished(&mut self, id: &ReplicaId, generation: Generation) {
        let (now, policy) = (self.clock.now(), self.policy);
        let is_wanted = self.is_wanted(id, generation);
        let Some(unit) = self.touch(id, generation) else { return };
        match unit.phase {
            // Whoever stops or starts it finds out.
            Some(ContainerPhase::Starting | ContainerPhase::Stopping) => return,
            Some(ContainerPhase::Up) if is_wanted => {
                let seen = unit.fail(ObservedCode::Vanished, now, &policy);
                (unit.phase, unit.has_container) = (None, false);
                self.tell(id, generation, seen);
                return;
            }
            _ => (unit.phase, unit.has_container) = (None, false),
        }
        if !is_wanted {
            self.tell(id, generation, (ObservedState::Stopped, None));
            self.forget(id, generation);
        }
    }

    fn answered(&mut self) {
        self.sweeps.last = LastAnswer::Answered;
        if self.is_silent() {
            tracing::info!("the container runtime answers again");
        }
        let runtime = Arc::clone(&self.runtime);
        self.beside(async move { WorkOutcome::Described(runtime.describe().await) });
        // What failed for want of an answer is tried at once.
        let units = self.units.values_mut().flatten();
        for unit in units.filter(|unit| matches!(unit.phase, None | Some(ContainerPhase::Pulled))) {
            (unit.due, unit.pull_failures) = (None, 0);
        }
        let known: Vec<ReplicaId> = self.briefs.keys().cloned().collect();
        for id in known {
            self.advance(&id);
        }
        self.unseen.clear();
    }

    fn silent(&mut self, error: &Error) {
        let before = std::mem::replace(&mut self.sweeps.last, LastAnswer::Silence);
        let survivors = self.look_for_survivors();
        let trouble = chain(error);
        let runtime = match error {
            Error::Unavailable { runtime, .. } => runtime,
            _ => "the runtime",
        };
        if before == LastAnswer::Answered || !self.is_silent() {
            let Survivors { running, gone } = survivors;
            tracing::error!(
                %trouble, running, gone,
                "the container runtime does not answer; nothing can be started or stopped"
            );
            let name = (*runtime).to_owned();
            let trouble = Some(trouble);
            self.put_runtime(view::Runtime { name, version: None, trouble, limits: Vec::new() });
        }
    }

    pub(super) fn described(&mut self, described: Result<Description, Error>) {
        match described {
            Ok(Description { name, version, limits }) => {
                let (name, version) = (name.to_owned(), Some(version));
                self.put_runtime(view::Runtime { name, version, trouble: None, limits });
            }
            Err(error) => self.silent(&error),
        }
    }

    fn is_silent(&self) -> bool {
        let measured = self.measurements.lock();
        let runtime = measured.nodes.get(&self.node).and_then(|it| it.runtime.as_ref());
        runtime.is_some_and(|runtime| runtime.trouble.is_some())
    }

    fn put_runtime(&self, runtime: view::Runtime) {
        let mut measured = self.measurements.lock();
        measured.nodes.entry(self.node.clone()).or_default().runtime = Some(runtime);
    }

    /// Work that is about no one container.
    pub(super) fn beside(
        &mut self,
        work: impl Future<Output = WorkOutcome> + Send + 'static,
    ) -> AbortHandle {
        self.tasks.spawn(async move { FinishedWork { about: None, outcome: work.await } })
    }
}

impl Unit {
    /// Something the runtime had when the agent first looked.
    fn adopted(generation: Generation, status: &ContainerStatus, touched: u64) -> Self {
        let mut unit = Self::new(generation, touched);
        unit.has_container = true;
        unit.has_started = !matches!(status, ContainerStatus::Created);
        unit.sight = if status.is_running() { Sight::Seen } else { Sight::Unseen };
        unit.phase = Some(match status {
            ContainerStatus::Created => ContainerPhase::Pulled,
            ContainerStatus::Running { .. } => ContainerPhase::Up,
            ContainerStatus::Exited { .. } => ContainerPhase::Exited,
        });
        match status {
            ContainerStatus::Created => {}
            ContainerStatus::Running { since } => unit.since = Some(*since),
            ContainerStatus::Exited { exit, .. } => unit.exit = Some(*exit),
        }
        unit
    }
}
