//! The applied state of a cell: engines write it, everyone else reads it, watches it and waits for it.
//!
//! It holds the model's [`State`] behind a lock, and a bounded ring of what the last commands changed. Watchers read
//! from that one ring at their own pace; one that falls behind its end is told so and looks at the state instead.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use plimsoll_model::{Command, Event, Level, Rejection, State};
use thiserror::Error;
use tokio::sync::watch;

/// How many applied commands can be watched in hindsight.
const MAX_RING: usize = 4_096;

/// How many events they may have together: a few large batches must not hold memory that small ones would not.
const MAX_RING_EVENTS: usize = 262_144;

#[derive(Debug)]
pub struct Machine {
    inner: RwLock<MachineInner>,
    applied: watch::Sender<u64>,
    /// The cell's, read with every message and so without the lock.
    level: AtomicU32,
    /// What the cell was found to speak and this build cannot read.
    outgrown: OnceLock<Level>,
    /// What its leader said that the cell speaks; none is zero. Another leader's word counts in its place.
    announced: AtomicU32,
    /// Applying a command panicked. What is read from then on is what was applied before it, and perhaps a part of it.
    has_panicked: AtomicBool,
}

#[derive(Debug)]
struct MachineInner {
    state: State,
    ring: Ring,
}

/// What one command changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedCommand {
    pub index: u64,
    pub events: Arc<[Event]>,
}

/// A watcher was too slow, or asked for what is long gone: read the state, then watch from `resume`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("changes from {from} on are no longer held; read the state and watch from {resume}")]
pub struct Lagged {
    pub from: u64,
    pub resume: u64,
}

/// Changes in the order they were applied.
#[derive(Debug)]
pub struct Watcher {
    machine: Arc<Machine>,
    applied: watch::Receiver<u64>,
    next: u64,
}

impl Machine {
    /// The state as of an index.
    pub fn new(state: State, applied: u64) -> Self {
        let (ring, level) = (Ring::starting_after(applied), AtomicU32::new(state.level().0));
        let (inner, applied) =
            (RwLock::new(MachineInner { state, ring }), watch::Sender::new(applied));
        let (outgrown, announced) = (OnceLock::new(), AtomicU32::new(0));
        Self { inner, applied, level, outgrown, announced, has_panicked: AtomicBool::new(false) }
    }

    /// The cell's level, as applied here.
    pub fn level(&self) -> Level {
        Level(self.level.load(Ordering::Relaxed))
    }

    /// The cell has written what this build cannot read. Called by the engine alone.
    pub fn outgrow(&self, level: Level) {
        // It is the first that counts: levels never sink.
        let _ = self.outgrown.set(level);
    }

    /// Whoever leads says that the cell speaks what this build cannot read. Called by the engine alone.
    pub fn announce(&self, level: Level) {
        self.announced.store(level.0, Ordering::Relaxed);
    }

    /// Whoever leads speaks what this build can read. Called by the engine alone.
    pub fn keep_up(&self) {
        self.announced.store(0, Ordering::Relaxed);
    }

    /// The level the cell was found to speak, if this build cannot read it.
    pub fn outgrown(&self) -> Option<Level> {
        let applied = Some(self.level()).filter(|level| !level.is_readable());
        let announced = Some(self.announced.load(Ordering::Relaxed)).filter(|level| *level > 0);
        self.outgrown.get().copied().or(applied).or(announced.map(Level))
    }

    /// Whether applying a command panicked. The engine has ended then, or is about to.
    pub fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::Relaxed)
    }

    /// Called by the engine alone.
    pub(crate) fn note_panic(&self) {
        self.has_panicked.store(true, Ordering::Relaxed);
    }

    // A lock is poisoned by a panic of who applies a command. The engine ends with it; whoever reads goes on, so that
    // traffic is routed by what was known until another start has the whole state again.
    fn inner(&self) -> RwLockReadGuard<'_, MachineInner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn inner_mut(&self) -> RwLockWriteGuard<'_, MachineInner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the state. Nothing is applied while the closure runs, so let it be brief.
    pub fn read<T>(&self, reader: impl FnOnce(&State) -> T) -> T {
        self.read_at(|state, _| reader(state))
    }

    /// Looks at the state, together with the index it is of.
    pub fn read_at<T>(&self, reader: impl FnOnce(&State, u64) -> T) -> T {
        let inner = self.inner();
        // Read under the lock: it changes only while the lock is held for writing.
        let applied = *self.applied.borrow();
        reader(&inner.state, applied)
    }

    /// The index of the last entry applied; it changes when another one is.
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Changes from the given index on: those still held at once, then those to come.
    pub fn watch(self: &Arc<Self>, from: u64) -> Watcher {
        Watcher { machine: Arc::clone(self), applied: self.applied(), next: from }
    }

    /// Applies the command at an index. Called by one engine, in order.
    pub fn apply(&self, index: u64, command: &Command) -> Result<Arc<[Event]>, Rejection> {
        let mut inner = self.inner_mut();
        let outcome = inner.state.apply(command).map(Arc::<[Event]>::from);
        if let Ok(events) = &outcome
            && !events.is_empty()
        {
            inner.ring.push(AppliedCommand { index, events: Arc::clone(events) });
        }
        self.level.store(inner.state.level().0, Ordering::Relaxed);
        self.applied.send_replace(index);
        outcome
    }

    /// An entry that is the engine's own business was applied.
    pub fn pass(&self, index: u64) {
        let _inner = self.inner_mut();
        self.applied.send_replace(index);
    }

    /// Takes another state in place of this one; watchers are told that they lag. Called by the engine alone.
    pub fn replace(&self, state: State, index: u64) {
        let mut inner = self.inner_mut();
        self.level.store(state.level().0, Ordering::Relaxed);
        inner.state = state;
        inner.ring = Ring::starting_after(index);
        self.applied.send_replace(index);
    }
}

impl Watcher {
    /// The next change. After [`Lagged`] it goes on from where that says.
    pub async fn next(&mut self) -> Result<AppliedCommand, Lagged> {
        loop {
            self.applied.mark_unchanged();
            if let Some(applied) = self.try_next()? {
                return Ok(applied);
            }
            // The machine is held by this watcher, so its sender lives.
            self.applied.changed().await.expect("the machine outlives its watchers");
        }
    }

    /// Looks at the state together with the changes that led to it since the last look: what is decided on both is
    /// decided on one moment.
    pub fn look<T>(
        &mut self,
        reader: impl FnOnce(&State, Result<Vec<AppliedCommand>, Lagged>) -> T,
    ) -> T {
        let inner = self.machine.inner();
        let (from, resume) = (self.next, *self.machine.applied.borrow() + 1);
        self.applied.mark_unchanged();
        self.next = resume;
        if from < inner.ring.from {
            return reader(&inner.state, Err(Lagged { from, resume }));
        }
        let at = inner.ring.held.partition_point(|applied| applied.index < from);
        reader(&inner.state, Ok(inner.ring.held.range(at..).cloned().collect()))
    }

    /// Waits until something was applied since the last look.
    pub async fn changed(&mut self) {
        self.applied.changed().await.expect("the machine outlives its watchers");
    }

    /// The next change, if it is there already.
    pub fn try_next(&mut self) -> Result<Option<AppliedCommand>, Lagged> {
        let inner = self.machine.inner();
        let from = self.next;
        if from < inner.ring.from {
            self.next = *self.machine.applied.borrow() + 1;
            return Err(Lagged { from, resume: self.next });
        }
        let found = inner.ring.first_from(from);
        if let Some(applied) = &found {
            self.next = applied.index + 1;
        }
        Ok(found)
    }
}

/// The last changes. Entries without any are not in it.
#[derive(Debug)]
struct Ring {
    /// Changes from this index on are all here.
    from: u64,
    held: VecDeque<AppliedCommand>,
    events: usize,
}

impl Ring {
    fn starting_after(index: u64) -> Self {
        Self { from: index + 1, held: VecDeque::new(), events: 0 }
    }

    fn push(&mut self, applied: AppliedCommand) {
        self.events += applied.events.len();
        self.held.push_back(applied);
        while self.held.len() > MAX_RING || (self.events > MAX_RING_EVENTS && self.held.len() > 1) {
            let Some(oldest) = self.held.pop_front() else { break };
            self.events -= oldest.events.len();
            self.from = oldest.index + 1;
        }
    }

    fn first_from(&self, index: u64) -> Option<AppliedCommand> {
        let at = self.held.partition_point(|applied| applied.index < index);
        self.held.get(at).cloned()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cpus, node_id};
    use plimsoll_model::{Author, CellId, Change, Term, Timestamp, Writer};

    use super::*;

    fn machine() -> Arc<Machine> {
        Arc::new(Machine::new(State::new(CellId::new("test").unwrap()), 0))
    }

    fn join(name: &str) -> Command {
        let change = Change::PutNode { node: node_id(name), facts: cpus(4) };
        let by = Author::new(Writer::Operator, "test");
        Command::new(Timestamp(1), Term(1), by, vec![change.free()])
    }

    #[tokio::test]
    async fn a_watcher_sees_each_change_once_and_in_order() {
        let machine = machine();
        machine.apply(1, &join("ash")).unwrap();
        let mut watcher = machine.watch(1);
        assert_eq!(watcher.next().await.unwrap().index, 1);
        assert_eq!(watcher.try_next().unwrap(), None);
        machine.apply(2, &join("ash")).unwrap();
        machine.pass(3);
        let waiting = tokio::spawn(async move { watcher.next().await.map(|a| a.index) });
        machine.apply(4, &join("birch")).unwrap();
        assert_eq!(
            waiting.await.unwrap(),
            Ok(4),
            "a repeated write and the engine's own say nothing"
        );
        assert_eq!(*machine.applied().borrow(), 4);
    }

    #[tokio::test]
    async fn a_look_has_the_state_and_just_the_changes_since_the_last() {
        let machine = machine();
        let mut watcher = machine.watch(1);
        for (names, seen) in [(&["ash", "birch"][..], 2), (&[], 0), (&["cedar"], 1)] {
            for name in names {
                let next = *machine.applied().borrow() + 1;
                machine.apply(next, &join(name)).unwrap();
            }
            let found = watcher.look(|state, changes| {
                let newest = names.last().map(|name| state.node(&node_id(name)).is_some());
                (changes.unwrap().len(), newest.unwrap_or(true))
            });
            assert_eq!(found, (seen, true));
        }
        for index in 4..=MAX_RING as u64 + 10 {
            machine.apply(index, &join(&format!("n{index}"))).unwrap();
        }
        assert!(watcher.look(|_, changes| changes).is_err(), "more than the ring holds");
        assert_eq!(watcher.look(|_, changes| changes.map(|some| some.len())), Ok(0));
    }

    #[tokio::test]
    async fn a_slow_watcher_is_told_that_it_lags_and_where_to_resume() {
        let machine = machine();
        let mut watcher = machine.watch(1);
        let count = MAX_RING as u64 + 10;
        for index in 1..=count {
            machine.apply(index, &join(&format!("n{index}"))).unwrap();
        }
        let lagged = Lagged { from: 1, resume: count + 1 };
        assert_eq!(watcher.next().await, Err(lagged));
        machine.apply(count + 1, &join("late")).unwrap();
        assert_eq!(watcher.next().await.unwrap().index, count + 1);
        assert_eq!(machine.watch(12).next().await.unwrap().index, 12, "the ring's end is held");
    }

    #[tokio::test]
    async fn a_state_taken_over_makes_every_watcher_look_anew() {
        let machine = machine();
        machine.apply(1, &join("ash")).unwrap();
        let mut watcher = machine.watch(2);
        machine.replace(State::new(CellId::new("test").unwrap()), 50);
        assert_eq!(watcher.next().await, Err(Lagged { from: 2, resume: 51 }));
        assert_eq!(machine.read_at(|state, index| (state.nodes().len(), index)), (0, 50));
    }
}
