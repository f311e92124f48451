//! Decides for the cell while this node leads it.
//!
//! Woken by changes of the state, it waits a moment for more, asks the kernel for one pass over what changed, and commits
//! the answer as one batch; a batch that was overtaken is decided again. What was measured it takes from [`Soft`], and it
//! keeps nothing that a new leader could not build in a moment.
//!
//! [`Soft`]: crate::soft::Soft

use std::time::Duration;

use plimsoll_kernel::dirty::Dirty;
use plimsoll_kernel::liveness::{self, Heard};
use plimsoll_kernel::place::Roster;
use plimsoll_kernel::{Policy, Scope, Signals, reconcile};
use plimsoll_model::{Event, Guarded, State, Timestamp, Writer};
use plimsoll_store::{Applied, Lagged, Leadership, Watcher};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::cell::{Cell, WriteError, now};
use crate::relief::Reliever;
use crate::sampler::Pace;
use crate::view::build;

/// How long a change waits for others to be decided on together.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// How long they may put it off.
const MAX_DEBOUNCE: Duration = Duration::from_secs(1);

/// A pass over everything, in case something was overlooked.
const FULL_PASS: Duration = Duration::from_secs(30);

/// How often silence is looked at.
const LISTEN: Duration = Duration::from_secs(1);

/// How long to wait when the store does not take a batch, and it is still ours to write.
const RETRY: Duration = Duration::from_millis(200);

/// Who the audit says it was.
const IDENTITY: &str = "leader";

/// Leads whenever the engine says so, until told to stop.
pub async fn run(cell: Cell, policy: Policy, pace: Pace, mut shutdown: watch::Receiver<bool>) {
    let mut leadership = cell.engine.leadership();
    loop {
        tokio::select! {
            elected = leadership.wait_for(|leadership| leadership.is_me) => {
                if elected.is_err() {
                    return;
                }
            }
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        let term = leadership.borrow().term;
        tracing::info!(term = term.0, "this node leads the cell");
        tokio::select! {
            () = Desk::open(&cell, policy, pace).lead() => {}
            _ = leadership.wait_for(|now: &Leadership| !now.is_me || now.term != term) => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        *cell.soft.relief() = None;
        tracing::info!(term = term.0, "this node no longer leads the cell");
    }
}

/// What a leader keeps while it leads.
struct Desk<'c> {
    cell: &'c Cell,
    policy: Policy,
    watcher: Watcher,
    signals: Signals,
    heard: Heard,
    /// None when it must be made anew.
    roster: Option<Roster>,
    dirty: Dirty,
    /// When everything is looked at again.
    full_at: Instant,
    /// When something in the last decision said to look again.
    wake_at: Option<Instant>,
    pace: Pace,
    /// When hot nodes are looked for again.
    relief_at: Instant,
}

impl<'c> Desk<'c> {
    fn open(cell: &'c Cell, policy: Policy, pace: Pace) -> Self {
        // What an earlier term smoothed and counted is too old by now.
        *cell.soft.relief() = None;
        let machine = cell.engine.machine();
        let next = *machine.applied().borrow() + 1;
        Self {
            cell,
            policy,
            watcher: machine.watch(next),
            signals: Signals::default(),
            heard: Heard::from(now()),
            roster: None,
            dirty: Dirty::default(),
            full_at: Instant::now(),
            wake_at: None,
            pace,
            relief_at: Instant::now() + pace.interval,
        }
    }

    /// Decides and commits until the store takes nothing more from this node.
    async fn lead(mut self) {
        loop {
            self.listen();
            let listened = self.judge();
            if !self.commit(Writer::Liveness, listened).await {
                return;
            }
            let decided = self.decide();
            if !self.commit(Writer::Scheduler, decided).await {
                return;
            }
            let relief = self.relieve();
            if !self.commit(Writer::Rebalancer, relief).await {
                return;
            }
            self.rest().await;
        }
    }

    /// Takes in what nodes said since the last time.
    fn listen(&mut self) {
        let facts = self.cell.soft.facts();
        for (node, fact) in &facts.nodes {
            if let Some(at) = fact.heard_at {
                self.heard.note(node, at);
            }
            let pressure = build::pressure(fact, &self.policy, now());
            if self.signals.pressure(node) != pressure {
                self.signals.set(node, pressure);
                if let Some(roster) = &mut self.roster {
                    roster.feel(node, pressure);
                }
            }
        }
    }

    fn judge(&self) -> Vec<Guarded> {
        let machine = self.cell.engine.machine();
        machine.read(|state| liveness::judge(state, &self.heard, &self.policy, now()))
    }

    /// One pass over what changed, or over everything when that is due.
    fn decide(&mut self) -> Vec<Guarded> {
        let Self { watcher, roster, dirty, signals, policy, full_at, wake_at, .. } = self;
        let is_due = |at: Instant| at <= Instant::now();
        let mut is_full = is_due(*full_at) || wake_at.is_some_and(is_due);
        let decision = watcher.look(|state, changes| {
            is_full |= follow(state, changes, roster, dirty, signals, policy);
            let roster = roster.get_or_insert_with(|| Roster::new(state, signals, policy));
            let services = dirty.take();
            let scope = if is_full { Scope::All } else { Scope::Services(&services) };
            reconcile(state, roster, policy, scope, now())
        });
        if is_full {
            *full_at = Instant::now() + FULL_PASS;
            *wake_at = None;
        }
        if let Some(wake) = decision.wake {
            let wake = instant(wake);
            *wake_at = Some(wake_at.map_or(wake, |at| at.min(wake)));
        }
        decision.batch
    }

    /// What is to be moved off a hot node, where a cycle of that is due.
    fn relieve(&mut self) -> Vec<Guarded> {
        let Some(roster) = self.roster.as_ref().filter(|_| self.relief_at <= Instant::now()) else {
            return Vec::new();
        };
        // Copied, so that the facts and the state are never held at once.
        let facts = self.cell.soft.facts().clone();
        let (batch, gone) = self.cell.engine.machine().read(|state| {
            let mut relief = self.cell.soft.relief();
            let reliever = relief.get_or_insert_with(|| Reliever::new(self.pace));
            let batch = reliever.cycle(state, roster, &self.policy, &facts, now());
            (batch, facts.gone(state))
        });
        self.relief_at = Instant::now() + self.pace.interval;
        self.cell.soft.facts().forget(&gone);
        batch
    }

    /// Whether this node may go on leading.
    async fn commit(&mut self, writer: Writer, batch: Vec<Guarded>) -> bool {
        if batch.is_empty() {
            return true;
        }
        match self.cell.write(writer, IDENTITY, batch).await {
            Ok(_) => true,
            Err(WriteError::Refused(rejection)) => {
                // Something changed between the look and the write. The next look sees it.
                tracing::debug!(%rejection, "a batch was overtaken");
                self.start_over();
                true
            }
            Err(WriteError::Store(error)) => {
                use plimsoll_store::Error::{NoLeader, NotLeader, Stopped};
                self.start_over();
                if matches!(error, NoLeader | NotLeader { .. } | Stopped) {
                    return false;
                }
                tracing::warn!(%error, "a batch was not written");
                sleep(RETRY).await;
                true
            }
        }
    }

    fn start_over(&mut self) {
        self.full_at = Instant::now();
        self.roster = None;
    }

    /// Until there is something to decide on: a change and what follows close upon it, or a time that was set.
    async fn rest(&mut self) {
        let due = self.wake_at.map_or(self.full_at, |wake| wake.min(self.full_at));
        let due = due.min(self.relief_at).min(Instant::now() + LISTEN);
        tokio::select! {
            () = self.watcher.changed() => {
                let latest = Instant::now() + MAX_DEBOUNCE;
                while Instant::now() < latest
                    && timeout(DEBOUNCE, self.watcher.changed()).await.is_ok()
                {}
            }
            () = sleep_until(due) => {}
        }
    }
}

/// Brings the roster and the list of what to look at up to the state. Whether everything must be looked at.
fn follow(
    state: &State,
    changes: Result<Vec<Applied>, Lagged>,
    roster: &mut Option<Roster>,
    dirty: &mut Dirty,
    signals: &Signals,
    policy: &Policy,
) -> bool {
    let Ok(changes) = changes else {
        *roster = None;
        return true;
    };
    let events: Vec<Event> =
        changes.iter().flat_map(|applied| applied.events.iter()).cloned().collect();
    dirty.note(state, &events);
    if let Some(roster) = roster {
        roster.follow(state, signals, policy, &events);
    }
    false
}

fn instant(at: Timestamp) -> Instant {
    Instant::now() + Duration::from_millis(at.since(now()).0)
}

#[cfg(test)]
mod tests;
