//! Leads the cell while this node is told to: gives the kernel's [`Leader`] time, measurements and a log.
//!
//! Woken by changes of the state, it waits a moment for more, then takes one turn: each step of it is decided on the state as
//! it is by then, and committed as one batch before the next. A batch that was overtaken is decided again. It keeps nothing
//! that a new leader could not build in a moment.

use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_kernel::leader::{DEBOUNCE, MAX_DEBOUNCE};
use plimsoll_kernel::{Leader, LeaderStep, batch};
use plimsoll_model::{Event, Guarded, Timestamp};
use plimsoll_store::{Leadership, Watcher, aside};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::cell::backup_key;
use crate::context::{NodeContext, WriteError, now, span};
use crate::pressure_history::PressureHistory;

/// How often silence is looked at.
const LISTEN: Duration = Duration::from_secs(1);

/// How long to wait when the store does not take a batch, and it is still ours to write.
const RETRY: Duration = Duration::from_millis(200);

/// Who the audit says it was.
const IDENTITY: &str = "leader";

/// Leads whenever the engine says so, until told to stop.
pub async fn run(cell: NodeContext, mut shutdown: watch::Receiver<bool>) {
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
            () = begin_and_lead(&cell) => {}
            _ = leadership.wait_for(|now: &Leadership| !now.is_me || now.term != term) => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        *cell.leader.lock() = None;
        tracing::info!(term = term.0, "this node no longer leads the cell");
    }
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Committed {
    Taken,
    /// It is decided again.
    Refused,
    /// The store takes nothing more from this node.
    Deposed,
}

async fn begin_and_lead(cell: &NodeContext) {
    if let Err(error) = backup_key::ensure(cell).await {
        tracing::warn!(%error, "the cell has no backup key yet");
    }
    match &cell.coordinator {
        Some(coordinator) => {
            let log = cell.log();
            tokio::select! {
                () = LeaderLoop::new(cell).lead() => {}
                () = coordinator.lead(&log) => {}
            }
        }
        None => LeaderLoop::new(cell).lead().await,
    }
}

struct LeaderLoop<'c> {
    cell: &'c NodeContext,
    watcher: Watcher,
}

impl<'c> LeaderLoop<'c> {
    /// What an earlier term kept is too old by now.
    fn new(cell: &'c NodeContext) -> Self {
        *cell.leader.lock() = Some(Leader::new(cell.policy, now()));
        *cell.pressure_history.lock() = PressureHistory::default();
        let machine = cell.engine.machine();
        let next = *machine.applied().borrow() + 1;
        Self { cell, watcher: machine.watch(next) }
    }

    /// Takes turns until the store takes nothing more from this node.
    async fn lead(mut self) {
        loop {
            self.listen();
            let mut left = LeaderStep::TURN.into_iter();
            while let Some((step, batch)) = self.next_decision(&mut left) {
                if !self.commit_all(step, batch).await {
                    return;
                }
            }
            self.rest().await;
        }
    }

    /// Takes in what nodes said since the last turn.
    fn listen(&self) {
        self.with_leader(|leader| {
            let measured = self.cell.measurements.lock();
            for (node, measured) in &measured.nodes {
                if let Some(at) = measured.heard_at {
                    leader.heartbeat(node, at);
                }
                leader.sample(node, measured.sample(), now());
                if let Some(runtime) = &measured.runtime {
                    leader.runtime(node, runtime.trouble.as_deref());
                }
            }
        });
    }

    /// The next of the steps that has anything to write; none once they are done.
    fn next_decision(
        &mut self,
        left: &mut impl Iterator<Item = LeaderStep>,
    ) -> Option<(LeaderStep, Vec<Guarded>)> {
        // A long pass, and whoever waits for the state behind it, must not keep heartbeats from being sent. All of them at
        // once: stepping aside wakes another thread, and most turns of a cell at rest have nothing to write.
        aside(|| left.map(|step| (step, self.decide(step))).find(|(_, batch)| !batch.is_empty()))
    }

    /// One step, on the state as it is now.
    fn decide(&mut self, step: LeaderStep) -> Vec<Guarded> {
        let cell = self.cell;
        self.watcher.look(|state, changes| {
            let now = now();
            with_leader(cell, |leader| {
                match changes {
                    Ok(changes) => {
                        let events = changes.iter().flat_map(|applied| applied.events.iter());
                        leader.follow(state, &events.cloned().collect::<Vec<Event>>());
                    }
                    Err(_) => leader.start_over(now),
                }
                let is_cycle = step == LeaderStep::Rebalance && leader.is_rebalance_due(now);
                if is_cycle {
                    let mut measured = cell.measurements.lock();
                    measured.forget_gone(state);
                    leader.usage(state, measured.usages());
                }
                let batch = leader.decide(step, state, now);
                if is_cycle {
                    cell.pressure_history.lock().note(state, leader.rebalancer(), now);
                }
                batch
            })
        })
    }

    /// Piece by piece; the rest of a batch is decided again once one was not taken. Whether this node may go on leading.
    async fn commit_all(&mut self, step: LeaderStep, batch: Vec<Guarded>) -> bool {
        for piece in batch::pieces(batch, self.cell.policy.max_changes) {
            match self.commit(step, piece).await {
                Committed::Taken => {}
                Committed::Refused => return true,
                Committed::Deposed => return false,
            }
        }
        true
    }

    async fn commit(&mut self, step: LeaderStep, batch: Vec<Guarded>) -> Committed {
        match self.cell.write(step.writer(), IDENTITY, batch.clone()).await {
            Ok(_) => Committed::Taken,
            Err(WriteError::Refused(rejection)) => {
                self.cell.refused_batches.fetch_add(1, Ordering::Relaxed);
                let waits = self.cell.engine.machine().read(|state| {
                    let note = |leader: &mut Leader| {
                        leader.refused(step, state, &batch, &rejection, now())
                    };
                    self.with_leader(note)
                });
                if waits {
                    tracing::error!(%rejection, "a decision was refused twice; its service waits");
                } else {
                    tracing::debug!(%rejection, "a batch was outdated; deciding again");
                }
                Committed::Refused
            }
            Err(WriteError::Store(error)) => {
                use plimsoll_store::Error::{NoLeader, NotLeader, Stopped};
                self.with_leader(|leader| leader.start_over(now()));
                if matches!(error, NoLeader | NotLeader { .. } | Stopped) {
                    return Committed::Deposed;
                }
                tracing::warn!(%error, "cannot write a batch");
                sleep(RETRY).await;
                Committed::Refused
            }
        }
    }

    /// Until there is something to decide on: a change and what follows close upon it, or a time that was set.
    async fn rest(&mut self) {
        let due = instant(self.with_leader(|leader| leader.due())).min(Instant::now() + LISTEN);
        tokio::select! {
            () = self.watcher.changed() => {
                let latest = Instant::now() + span(MAX_DEBOUNCE);
                while Instant::now() < latest
                    && timeout(span(DEBOUNCE), self.watcher.changed()).await.is_ok()
                {}
            }
            () = sleep_until(due) => {}
        }
    }

    fn with_leader<T>(&self, with: impl FnOnce(&mut Leader) -> T) -> T {
        with_leader(self.cell, with)
    }
}

/// Only this loop puts a leader there and takes it away.
fn with_leader<T>(cell: &NodeContext, with: impl FnOnce(&mut Leader) -> T) -> T {
    let mut leader = cell.leader.lock();
    with(leader.get_or_insert_with(|| Leader::new(cell.policy, now())))
}

fn instant(at: Timestamp) -> Instant {
    Instant::now() + span(at.since(now()))
}

#[cfg(test)]
mod tests;
