//! What a leader keeps and does in one turn, without a clock, a log or a network.
//!
//! A turn is a few steps, each a pure decision that gives one batch, which may be empty. Whoever runs the loop gives it
//! time, tells it what was heard and what was applied, and commits the batch of a step before it asks for the next one. A
//! daemon does that over a real log, the simulator under a clock of its own. Nothing here is replicated: a new leader
//! begins anew.

use plimsoll_model::optimize::OptimizedMove;
use plimsoll_model::{
    Event, Generation, Guarded, Millis, NodeId, NodePressure, Rejection, ReplicaId, State,
    Timestamp, Writer,
};

use crate::dirty::Dirty;
use crate::liveness::{self, Heartbeats};
use crate::optimize::pursuit::Pursuit;
use crate::place::Roster;
use crate::policy::Policy;
use crate::rebalance::{NodeEvaluation, Rebalancer, ReplicaUsage};
use crate::reschedule::{RescheduleVerdict, Rescheduler, verdict};
use crate::shard::ShardCycles;
use crate::signals::{PressureSample, Signals};
use crate::{Scope, reconcile, review, rotation};

mod refused;

#[cfg(test)]
mod tests;

use refused::RefusedServices;

/// How long a change waits for others, so that one pass decides on all of them.
pub const DEBOUNCE: Millis = Millis(50);

/// How long they may postpone it.
pub const MAX_DEBOUNCE: Millis = Millis::seconds(1);

const NEVER: Timestamp = Timestamp(u64::MAX);

/// One decision of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaderStep {
    /// Which nodes are down, and which are back.
    Liveness,
    /// What is placed, moved and retired.
    Schedule,
    /// What leaves a hot node, where a cycle of that is due.
    Rebalance,
    /// What came of moves that were chosen some time ago, in the turn of such a cycle.
    Review,
    /// What a better place is found for, in the turn of such a cycle.
    Reschedule,
    /// How a change of the authority goes on.
    Rotate,
    /// What becomes of the cell's machines, where a cycle of that is due.
    Shard,
}

impl LeaderStep {
    /// A whole turn, in order: each step sees what the ones before it wrote.
    pub const TURN: [Self; 7] = [
        Self::Liveness,
        Self::Schedule,
        Self::Rebalance,
        Self::Review,
        Self::Reschedule,
        Self::Rotate,
        Self::Shard,
    ];

    /// In whose name its batch is written.
    pub fn writer(self) -> Writer {
        match self {
            Self::Liveness => Writer::Liveness,
            Self::Schedule | Self::Review | Self::Rotate => Writer::Scheduler,
            Self::Rebalance => Writer::Rebalancer,
            Self::Reschedule => Writer::Rescheduler,
            Self::Shard => Writer::Shard,
        }
    }
}

/// What a leader keeps while it leads.
#[derive(Debug, Clone)]
pub struct Leader {
    policy: Policy,
    heard: Heartbeats,
    signals: Signals,
    /// None when it must be built anew.
    roster: Option<Roster>,
    dirty: Dirty,
    refused: RefusedServices,
    rebalancer: Rebalancer,
    rescheduler: Rescheduler,
    /// A better layout that somebody asked for, as far as it is not reached yet.
    pursuit: Option<Pursuit>,
    /// When to look again what of that may begin.
    pursue_at: Option<Timestamp>,
    shard: ShardCycles,
    /// Moves are looked at again in the turn of a cycle.
    is_review_due: bool,
    /// When everything is looked at again.
    full_at: Timestamp,
    /// When something in the last decision said to look again.
    wake_at: Option<Timestamp>,
    /// When hot nodes are looked for again.
    rebalance_at: Timestamp,
    /// No sample that counts now is too old before this.
    stale_from: Timestamp,
}

/// Whether the time has come. One that lies further ahead than it is ever set was set by a clock that has been put back since.
pub(crate) fn is_due(at: Timestamp, period: Millis, now: Timestamp) -> bool {
    at <= now || at > now.plus(period)
}

impl Leader {
    /// A leader that begins now: every node gets one TTL, everything is looked at first, and hot nodes have to be so anew.
    pub fn new(policy: Policy, now: Timestamp) -> Self {
        Self {
            policy,
            heard: Heartbeats::from(now),
            signals: Signals::default(),
            roster: None,
            dirty: Dirty::default(),
            refused: RefusedServices::default(),
            rebalancer: Rebalancer::default(),
            rescheduler: Rescheduler::default(),
            pursuit: None,
            pursue_at: None,
            shard: ShardCycles::new(now),
            is_review_due: false,
            full_at: now,
            wake_at: None,
            rebalance_at: now.plus(policy.sample_interval),
            stale_from: NEVER,
        }
    }

    /// A node was heard at this time.
    pub fn heartbeat(&mut self, node: &NodeId, at: Timestamp) {
        self.heard.note(node, at);
    }

    /// A node says why its container runtime does not answer, or that it does.
    pub fn runtime(&mut self, node: &NodeId, trouble: Option<&str>) {
        self.heard.note_runtime(node, trouble);
    }

    /// How busy a node last said it is; none where it has not said so.
    pub fn sample(&mut self, node: &NodeId, sample: Option<PressureSample>, now: Timestamp) {
        self.rebalancer.sample(node, sample);
        let sample = sample.filter(|sample| sample.is_fresh(&self.policy, now));
        if let Some(sample) = sample {
            self.stale_from = self.stale_from.min(self.stale_from(&sample));
        }
        self.feel(node, sample.map(|sample| sample.pressure));
    }

    /// What replicas were found to use. Asked for only [when a cycle is due](Self::is_rebalance_due).
    pub fn usage<'a>(
        &mut self,
        state: &State,
        usages: impl IntoIterator<Item = (&'a ReplicaId, Generation, ReplicaUsage)>,
    ) {
        self.rebalancer.usage(state, &self.policy, usages);
    }

    /// What was applied, in the order it was, up to this state.
    pub fn follow(&mut self, state: &State, events: &[Event]) {
        self.dirty.note(state, events);
        if let Some(roster) = &mut self.roster {
            roster.follow(state, &self.signals, &self.policy, events);
        }
    }

    /// The state refused a batch: something changed since it was decided, and the next look sees it. Where the very same is
    /// refused twice, the decision is at fault: its service waits, and the rest goes on without it. True if so.
    pub fn refused(
        &mut self,
        step: LeaderStep,
        state: &State,
        batch: &[Guarded],
        rejection: &Rejection,
        now: Timestamp,
    ) -> bool {
        self.start_over(now);
        step == LeaderStep::Schedule && self.refused.note(state, batch, rejection, now)
    }

    /// What was applied is not known: everything is looked at again.
    pub fn start_over(&mut self, now: Timestamp) {
        self.full_at = now;
        self.roster = None;
    }

    /// Whether something was applied that the next turn should look at.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// When the next turn is due though nothing happens.
    pub fn due(&self) -> Timestamp {
        let due = self.full_at.min(self.rebalance_at).min(self.shard.due());
        [self.wake_at, self.pursue_at].into_iter().flatten().fold(due, Timestamp::min)
    }

    pub fn is_rebalance_due(&self, now: Timestamp) -> bool {
        is_due(self.rebalance_at, self.policy.sample_interval, now)
    }

    /// One step of a turn: the batch to commit before the next. The leader must have followed all that was applied to the
    /// state.
    pub fn decide(&mut self, step: LeaderStep, state: &State, now: Timestamp) -> Vec<Guarded> {
        match step {
            LeaderStep::Liveness => liveness::judge(state, &self.heard, &self.policy, now),
            LeaderStep::Schedule => self.schedule(state, now),
            LeaderStep::Rebalance => self.rebalance(state, now),
            LeaderStep::Review => self.review(state, now),
            LeaderStep::Reschedule => self.reschedule(state, now),
            LeaderStep::Rotate => rotation::next(state),
            LeaderStep::Shard => self.shard.turn(state, now),
        }
    }

    /// One pass over what changed, or over everything when that is due.
    fn schedule(&mut self, state: &State, now: Timestamp) -> Vec<Guarded> {
        self.forget_stale(now);
        let Self { policy, signals, roster, dirty, refused, full_at, wake_at, .. } = self;
        let is_full =
            is_due(*full_at, policy.full_pass, now) || wake_at.is_some_and(|at| at <= now);
        let roster = roster.get_or_insert_with(|| Roster::new(state, signals, policy));
        let (waiting, until) = refused.waiting(state, now);
        let mut services = dirty.take();
        services.retain(|key| !waiting.contains(key));
        let scope = if is_full { Scope::AllBut(&waiting) } else { Scope::Services(&services) };
        let mut decision = reconcile(state, roster, policy, scope, now);
        decision.batch.extend(refused.alarms(state, &waiting));
        if is_full {
            (*full_at, *wake_at) = (now.plus(policy.full_pass), None);
        }
        *wake_at = [*wake_at, decision.wake, decision.next_slot, until].into_iter().flatten().min();
        decision.batch
    }

    fn rebalance(&mut self, state: &State, now: Timestamp) -> Vec<Guarded> {
        // Without a roster the last batch was refused: the next turn knows more.
        let Some(roster) = self.roster.as_ref().filter(|_| self.is_rebalance_due(now)) else {
            return Vec::new();
        };
        self.rebalance_at = now.plus(self.policy.sample_interval);
        self.rescheduler.wake();
        self.is_review_due = true;
        self.rebalancer.cycle(state, roster, &self.policy, now).batch()
    }

    /// It sees the means that the cycle of the same turn left behind.
    fn review(&mut self, state: &State, now: Timestamp) -> Vec<Guarded> {
        let roster = self.roster.as_ref().filter(|_| std::mem::take(&mut self.is_review_due));
        let Some(roster) = roster else { return Vec::new() };
        review::reviews(state, roster, &self.policy, &self.rebalancer, now)
    }

    /// It sees what the rebalancer began in the same turn, and counts for it from then on.
    fn reschedule(&mut self, state: &State, now: Timestamp) -> Vec<Guarded> {
        // While a better layout is under way nothing else is looked for: it would be another one.
        if self.pursuit.is_some() {
            return self.go_on(state, now);
        }
        let Self { roster, rescheduler, rebalancer, policy, .. } = self;
        // Without a roster the last batch was refused: the next cycle knows more.
        let Some(roster) = roster.as_ref().filter(|_| rescheduler.take_due()) else {
            return Vec::new();
        };
        rescheduler.cycle(state, roster, policy, rebalancer, now)
    }

    /// These moves are begun in their order, each as soon as it may. What was left of an earlier plan is dropped.
    pub fn pursue(&mut self, moves: Vec<OptimizedMove>, now: Timestamp) {
        self.pursuit = Some(Pursuit::new(moves, self.pursuit.as_ref(), now));
        self.pursue_at = Some(now);
    }

    /// How many moves of such a plan are yet to begin, and how many are under way.
    pub fn pursued(&self) -> (usize, usize) {
        self.pursuit.as_ref().map_or((0, 0), Pursuit::left)
    }

    fn go_on(&mut self, state: &State, now: Timestamp) -> Vec<Guarded> {
        let Self { roster, rebalancer, policy, pursuit, .. } = self;
        let (Some(roster), Some(plan)) = (roster, pursuit.as_mut()) else { return Vec::new() };
        let batch = plan.next(state, roster, policy, rebalancer, now);
        self.pursue_at = Some(now.plus(policy.heartbeat));
        if plan.is_over() {
            (self.pursuit, self.pursue_at) = (None, None);
        }
        batch
    }

    /// What the gates say to moving anything off a node, as of the last cycle.
    pub fn weigh(&self, state: &State, node: &NodeId, now: Timestamp) -> Option<NodeEvaluation> {
        let roster = Roster::new(state, &self.signals, &self.policy);
        self.rebalancer.weigh(state, &roster, &self.policy, node, now)
    }

    /// What the rescheduler would say of one replica.
    pub fn reschedule_verdict(
        &self,
        state: &State,
        id: &ReplicaId,
        now: Timestamp,
    ) -> Option<RescheduleVerdict> {
        let Self { policy, rebalancer, rescheduler, .. } = self;
        let roster = Roster::new(state, &self.signals, policy);
        verdict(state, &roster, policy, rebalancer, rescheduler, id, now)
    }

    pub fn rebalancer(&self) -> &Rebalancer {
        &self.rebalancer
    }

    pub fn rescheduler(&self) -> &Rescheduler {
        &self.rescheduler
    }

    pub fn shard(&self) -> &ShardCycles {
        &self.shard
    }

    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    pub fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }

    fn feel(&mut self, node: &NodeId, pressure: Option<NodePressure>) {
        if self.signals.pressure(node) != pressure {
            self.signals.set(node, pressure);
            if let Some(roster) = &mut self.roster {
                roster.feel(node, pressure);
            }
        }
    }

    /// A node that says nothing new is silent once its last word is too old, though nobody says so.
    fn forget_stale(&mut self, now: Timestamp) {
        if now < self.stale_from {
            return;
        }
        let samples = self.rebalancer.samples().iter();
        let (fresh, stale): (Vec<_>, Vec<_>) =
            samples.partition(|(_, sample)| sample.is_fresh(&self.policy, now));
        let next = fresh.iter().map(|(_, sample)| self.stale_from(sample)).min();
        let stale: Vec<NodeId> = stale.into_iter().map(|(node, _)| node.clone()).collect();
        self.stale_from = next.unwrap_or(NEVER);
        for node in stale {
            self.feel(&node, None);
        }
    }

    fn stale_from(&self, sample: &PressureSample) -> Timestamp {
        sample.at.plus(Millis(self.policy.stale_after().0 + 1))
    }
}
