//! One container of a replica on this node, or the beginnings of one: what phase it is in, what may be done to it when,
//! and what the cell was last told of it.

use std::sync::Arc;

use plimsoll_kernel::Policy;
use plimsoll_kernel::agent::{ContainerPhase, LocalContainer};
use plimsoll_kernel::restart::{self, NextRestart, RestartHistory, RestartRule};
use plimsoll_model::spec::Retries;
use plimsoll_model::{Generation, ObservedCode, ObservedState, ServiceSpec, Timestamp};
use plimsoll_runtime::Exit;
use tokio::task::AbortHandle;

use super::declared::FoundVolumes;
use crate::measurements::FailedChecks;

/// What the cell is told of a unit.
pub(super) type Seen = (ObservedState, Option<ObservedCode>);

#[derive(Debug)]
pub(super) struct Unit {
    pub(super) generation: Generation,
    /// None while there is nothing of it here, not even an image: before the first pull, and between tries of it.
    pub(super) phase: Option<ContainerPhase>,
    /// None for what nobody asks for.
    pub(super) spec: Option<Arc<ServiceSpec>>,
    pub(super) tries: RestartHistory,
    /// What its file grants it, where it is to run to its end.
    pub(super) retries: Option<Retries>,
    pub(super) pull_failures: u32,
    /// How often in a row its node had no addresses for its network.
    pub(super) subnet_failures: u32,
    /// The checks that failed since it was started, until one passes.
    pub(super) failed_checks: Option<FailedChecks>,
    /// Nothing is begun before then.
    pub(super) due: Option<Timestamp>,
    /// The runtime has, or may have, a container of it.
    pub(super) has_container: bool,
    /// Started at least once, so that nothing it depends on is waited for again.
    pub(super) has_started: bool,
    pub(super) sight: Sight,
    /// Nothing more is tried: it failed too often, or its job is done.
    pub(super) end: Option<ObservedCode>,
    /// What to do once what is under way ends.
    pub(super) then: Then,
    pub(super) told: Option<Seen>,
    /// When the agent last began or ended something with it, so that an older look at the runtime is not believed.
    pub(super) touched: u64,
    /// Since when it runs, if it ran before this agent came.
    pub(super) since: Option<Timestamp>,
    /// How it ended before this agent came.
    pub(super) exit: Option<Exit>,
    /// The number of the watch over it.
    pub(super) watch: u64,
    pub(super) pulling: Option<AbortHandle>,
    pub(super) watching: Option<AbortHandle>,
    /// What its image declares, once that is here.
    pub(super) declared: Option<FoundVolumes>,
}

/// Whether a look at the runtime has shown this run, and with it where it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    Unseen,
    /// Its check has passed already, which is told once it is seen.
    UnseenHealthy,
    Seen,
}

/// What follows when a start or a stop is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Then {
    /// Whatever the orders say.
    Orders,
    /// It was started for an order that no longer stands: stop it.
    Stop,
    /// It was stopped because it failed so: try again.
    Retry(ObservedCode),
}

impl Unit {
    pub(super) fn new(generation: Generation, touched: u64) -> Self {
        Self {
            generation,
            phase: None,
            spec: None,
            tries: RestartHistory::default(),
            retries: None,
            pull_failures: 0,
            subnet_failures: 0,
            failed_checks: None,
            due: None,
            has_container: false,
            has_started: false,
            sight: Sight::Unseen,
            end: None,
            then: Then::Orders,
            told: None,
            touched,
            since: None,
            exit: None,
            watch: 0,
            pulling: None,
            watching: None,
            declared: None,
        }
    }

    pub(super) fn local(&self) -> Option<LocalContainer> {
        let (generation, has_started) = (self.generation, self.has_started);
        self.phase.map(|phase| LocalContainer { generation, phase, has_started })
    }

    /// It failed: once for each time it did. Returns what the cell is to be told.
    pub(super) fn fail(&mut self, code: ObservedCode, now: Timestamp, policy: &Policy) -> Seen {
        self.phase = Some(ContainerPhase::Exited);
        self.unwatch();
        let rule = RestartRule { policy, retries: self.retries };
        self.tries.fails(now, &rule);
        let next = self.tries.next(&code, &rule);
        let code = next.told(code);
        match next {
            NextRestart::Exhausted { .. } | NextRestart::JobFailed { .. } => {
                self.end = Some(code.clone());
            }
            NextRestart::StartAt(at) => self.due = Some(at),
            NextRestart::Nothing => {}
        }
        (ObservedState::Failed, Some(code))
    }

    /// It ended by itself, so. Returns what the cell is to be told.
    pub(super) fn ends(&mut self, exit: Exit, now: Timestamp, policy: &Policy) -> Seen {
        match exit {
            Exit { status: Some(0), oom: false } if self.retries.is_some() => {
                self.phase = Some(ContainerPhase::Exited);
                self.unwatch();
                let attempts = self.tries.failures().saturating_add(1);
                self.end = Some(ObservedCode::JobCompleted { attempts });
                (ObservedState::Completed, self.end.clone())
            }
            Exit { oom: true, .. } => self.fail(ObservedCode::OutOfMemory, now, policy),
            Exit { status, .. } => self.fail(ObservedCode::Exited { status }, now, policy),
        }
    }

    pub(super) fn fail_pull(&mut self, now: Timestamp, policy: &Policy) {
        self.phase = None;
        self.pull_failures = self.pull_failures.saturating_add(1);
        let pause = restart::back_off(self.pull_failures, policy.max_pull_back_off);
        self.due = Some(now.plus(pause));
    }

    /// There is no network for it, which is no failure of its own: nothing of its tries is used up.
    pub(super) fn lack_subnet(&mut self, now: Timestamp, policy: &Policy) {
        self.phase = Some(ContainerPhase::Pulled);
        self.subnet_failures = self.subnet_failures.saturating_add(1);
        let pause = restart::back_off(self.subnet_failures, policy.max_pull_back_off);
        self.due = Some(now.plus(pause));
    }

    pub(super) fn unwatch(&mut self) {
        self.failed_checks = None;
        if let Some(watching) = self.watching.take() {
            watching.abort();
        }
    }

    pub(super) fn give_up_pull(&mut self) {
        if let Some(pulling) = self.pulling.take() {
            pulling.abort();
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.unwatch();
        self.give_up_pull();
    }
}
