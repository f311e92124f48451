//! The cell of a plan: a copy of the state on which passes are carried out, and what is noted of them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::preemption::PreemptedBy;
use plimsoll_model::{
    AuditEntry, Author, Change, Command, Event, Guarded, Millis, NodeId, NodeStatus, Observation,
    ObservedState, Rejection, Replica, ReplicaId, ServiceKey, State, Term, Timestamp, Writer,
};

use super::loops::Loops;
use super::{Plan, ReplicaFate, ReplicaOutcome, ReplicaShortfall, StayReason, StoppedRollout};
use crate::agent::wanted;
use crate::condition::ReplicaCondition;
use crate::dirty::Dirty;
use crate::place::{Roster, Score};
use crate::policy::Policy;
use crate::reconcile::scheduled::is_of_schedule;
use crate::{Decision, Scope, Signals, reconcile};

/// More passes than any cell takes: each brings at least one replica where it belongs, or waits for a time that comes.
const MAX_PASSES: usize = 100_000;

pub(crate) struct Foresight<'f> {
    pub(super) state: State,
    pub(super) roster: Roster,
    pub(super) signals: Cow<'f, Signals>,
    pub(super) policy: &'f Policy,
    pub(super) now: Timestamp,
    /// When something was last begun.
    begun_at: Timestamp,
    /// How many replicas of each service ran before anything was done.
    ran: BTreeMap<ServiceKey, u32>,
    plan: Plan,
    /// The last round in which something was begun, and the one that moves under way belong to.
    round: u32,
    first_round: u32,
    /// What the next pass looks at; none: everything.
    scope: Option<BTreeSet<ServiceKey>>,
    /// Replicas about which their nodes may have something to do.
    stirred: BTreeSet<ReplicaId>,
    /// What moves replicas though nobody asked for it, where the plan is about that as well.
    loops: Option<Box<Loops>>,
}

impl<'f> Foresight<'f> {
    pub(crate) fn new(
        state: State,
        signals: &'f Signals,
        policy: &'f Policy,
        now: Timestamp,
    ) -> Self {
        let roster = Roster::new(&state, signals, policy);
        let mut ran: BTreeMap<ServiceKey, u32> = BTreeMap::new();
        for (id, _) in state.replicas().filter(|(_, replica)| runs(&state, replica)) {
            *ran.entry(id.service).or_default() += 1;
        }
        Self {
            state,
            roster,
            signals: Cow::Borrowed(signals),
            policy,
            now,
            begun_at: now,
            ran,
            plan: Plan::default(),
            round: 0,
            first_round: 0,
            scope: None,
            stirred: BTreeSet::new(),
            loops: None,
        }
    }

    /// From now on what nodes bear is followed, and [`play_on`](Self::play_on) has the loops do their part.
    pub(crate) fn follow_loops(&mut self, loops: Loops) {
        self.loops = Some(Box::new(loops));
    }

    /// Makes the changes that the plan is about.
    pub(crate) fn suppose(
        &mut self,
        writer: Writer,
        changes: Vec<Change>,
    ) -> Result<(), Rejection> {
        self.apply(writer, changes.into_iter().map(Change::free).collect())?;
        let services: BTreeSet<ServiceKey> = self.ran.keys().cloned().collect();
        self.count(&services);
        Ok(())
    }

    /// Passes and what nodes make of them, until there is nothing left to do, or `is_late` says that it has taken too long.
    /// Whether it came to an end.
    pub(crate) fn play(&mut self, is_late: &mut dyn FnMut() -> bool) -> Result<bool, Rejection> {
        self.stirred = self.state.replicas().map(|(id, _)| id).collect();
        self.note_moves_under_way();
        self.first_round = u32::from(!self.plan.outcomes.is_empty());
        self.scope = None;
        self.passes(is_late)
    }

    fn passes(&mut self, is_late: &mut dyn FnMut() -> bool) -> Result<bool, Rejection> {
        for _ in 0..MAX_PASSES {
            if is_late() {
                return Ok(false);
            }
            let mut decision = self.decide();
            // A plan shows what is done in time: that a drain is given up is no part of it.
            // Nor are the slots of schedules that fall due meanwhile.
            let is_step = |it: &Guarded| {
                !matches!(it.change, Change::GiveUpDrain { .. }) && !is_of_schedule(it)
            };
            if decision.batch.iter().any(is_step) {
                decision.batch.retain(is_step);
                self.begin(Writer::Scheduler, decision)?;
            } else if self.stirred.is_empty() {
                match (self.scope.take(), decision.wake) {
                    // What a look at a few services finds nothing to do about, one at all of them may.
                    (Some(_), _) => {}
                    (None, Some(at)) if at > self.now => self.now = at,
                    (None, _) => return Ok(true),
                }
                continue;
            }
            self.round = self.round.max(self.first_round);
            self.obey()?;
        }
        Ok(false)
    }

    /// Goes on with the loops that nobody asks, cycle by cycle, until they leave everything where it is for as long as anything
    /// may still rest. What is used stays as it was measured, and goes along with its replicas.
    pub(crate) fn play_on(&mut self, is_late: &mut dyn FnMut() -> bool) -> Result<bool, Rejection> {
        let mut calm_since = self.now;
        while !is_late() {
            let relief = self.with_loops(|loops, cell| {
                loops.begin_cycle(cell, calm_since);
                loops.rebalance(cell)
            });
            let Some(relief) = relief else { return Ok(true) };
            let is_relieved = self.take_over(Writer::Rebalancer, relief)?;
            let offers = self.with_loops(|loops, cell| loops.reschedule(cell)).unwrap_or_default();
            if self.take_over(Writer::Rescheduler, offers)? || is_relieved {
                calm_since = self.now;
                self.obey()?;
                if !self.passes(is_late)? {
                    return Ok(false);
                }
            } else if self.with_loops(|loops, cell| loops.have_rested(cell, calm_since))
                == Some(true)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Begins what a loop decided. Whether there was anything.
    fn take_over(&mut self, by: Writer, moves: Vec<Guarded>) -> Result<bool, Rejection> {
        if moves.is_empty() {
            return Ok(false);
        }
        self.begin(by, decided(moves))?;
        Ok(true)
    }

    fn with_loops<T>(&mut self, with: impl FnOnce(&mut Loops, &mut Self) -> T) -> Option<T> {
        let mut loops = self.loops.take()?;
        let value = with(&mut loops, self);
        self.loops = Some(loops);
        Some(value)
    }

    /// How long it was waited between what was begun: for graces, pauses and cooldowns.
    pub(crate) fn waited_since(&self, start: Timestamp) -> Millis {
        self.begun_at.since(start)
    }

    pub(super) fn decide(&mut self) -> Decision {
        let Self { state, roster, policy, scope, now, .. } = self;
        let scope = scope.as_ref().map_or(Scope::All, Scope::Services);
        reconcile(state, roster, policy, scope, *now)
    }

    /// Notes what a pass begins, and writes it.
    pub(super) fn begin(&mut self, by: Writer, decision: Decision) -> Result<(), Rejection> {
        self.note(&decision);
        let touched = self.apply(by, decision.batch)?;
        self.count(&touched);
        self.scope = Some(touched);
        Ok(())
    }

    /// What was planned, what nodes bore meanwhile, and the cell as it is then. Of what stays where it should, nothing is said.
    pub(crate) fn end_followed(mut self) -> (Plan, Option<Box<Loops>>, State) {
        let loops = self.loops.take();
        let (mut plan, state) = self.end();
        plan.outcomes.retain(|it| it.fate.is_news());
        (plan, loops, state)
    }

    /// What was planned, and the cell as it is then.
    pub(super) fn end(mut self) -> (Plan, State) {
        let begun: BTreeSet<&ReplicaId> = self.plan.outcomes.iter().map(|it| &it.id).collect();
        let rest = self.state.replicas().filter(|(id, _)| !begun.contains(id));
        let stays: Vec<_> = rest.filter_map(|(id, replica)| self.stay(id, replica)).collect();
        self.plan.outcomes.extend(stays);
        let unplaced = self.state.unplaced().iter().filter_map(|key| {
            let unplaced = self.state.service(key)?.row.unplaced.as_ref()?;
            Some((key.clone(), unplaced.clone()))
        });
        self.plan.unplaced = unplaced.collect();
        (self.plan, self.state)
    }

    fn stay(&self, id: ReplicaId, replica: &Replica) -> Option<ReplicaOutcome> {
        let assignment = replica.assignment.as_ref()?;
        let service = self.state.service(&id.service);
        let condition = service.map_or(ReplicaCondition::Settled, |service| {
            ReplicaCondition::of(&self.state, self.policy, service, replica, self.now)
        });
        let why = StayReason::of(condition, self.now);
        let is_stopped = replica.is_stopped(assignment);
        let fate = ReplicaFate::Stays { why, is_stopped };
        Some(ReplicaOutcome { id, node: assignment.node.clone(), fate })
    }

    /// Moves that have begun already go on with the first round.
    fn note_moves_under_way(&mut self) {
        for (id, replica) in self.state.replicas() {
            let (Some(at), Some(next)) = (&replica.assignment, &replica.successor) else {
                continue;
            };
            let (from, cause) = (at.node.clone(), next.cause);
            let fate =
                ReplicaFate::Moved { from, cause, is_stop_first: false, score: None, round: 1 };
            let node = next.assignment.node.clone();
            self.plan.outcomes.push(ReplicaOutcome { id, node, fate });
        }
    }

    fn note(&mut self, decision: &Decision) {
        let scores: BTreeMap<usize, Score> = decision.scores.iter().copied().collect();
        let stop_first: BTreeSet<&ReplicaId> =
            decision.batch.windows(2).filter_map(made_way).collect();
        let round = self.round + 1;
        for (position, guarded) in decision.batch.iter().enumerate() {
            let score = scores.get(&position).copied();
            let home =
                |id: &ReplicaId| Some(self.state.replica(id)?.assignment.as_ref()?.node.clone());
            let (id, node, fate) = match &guarded.change {
                Change::Place { replica, node, .. } => {
                    (replica, node.clone(), ReplicaFate::Placed { score, round })
                }
                Change::Succeed { replica, node, cause, .. } => {
                    let Some(from) = home(replica) else { continue };
                    let is_stop_first = stop_first.contains(replica);
                    let cause = *cause;
                    let fate = ReplicaFate::Moved { from, cause, is_stop_first, score, round };
                    (replica, node.clone(), fate)
                }
                Change::Retire { replica } => {
                    let Some(node) = home(replica) else { continue };
                    (replica, node, ReplicaFate::Retired { round })
                }
                Change::Evict { replica } => {
                    let Some((node, by)) = home(replica).zip(self.preempted_by(replica)) else {
                        continue;
                    };
                    (replica, node, ReplicaFate::Preempted { by: Box::new(by), round })
                }
                Change::Abandon { replica, .. } => {
                    self.plan.outcomes.retain(|outcome| outcome.id != *replica);
                    continue;
                }
                Change::AbortRollout { service, why } => {
                    let stopped = StoppedRollout::Aborted(*why);
                    self.plan.stopped_rollouts.insert(service.clone(), stopped);
                    continue;
                }
                Change::PauseRollout { service, why } => {
                    let stopped = StoppedRollout::Paused(*why);
                    self.plan.stopped_rollouts.insert(service.clone(), stopped);
                    continue;
                }
                _ => continue,
            };
            self.plan.outcomes.push(ReplicaOutcome { id: id.clone(), node, fate });
            (self.round, self.begun_at) = (round, self.now);
        }
    }

    /// For whom the replica makes way.
    fn preempted_by(&self, id: &ReplicaId) -> Option<PreemptedBy> {
        let generation = self.state.replica(id)?.assignment.as_ref()?.generation;
        let (node, it, victim) = self.state.preemptions().of_victim(id, generation)?;
        let (by, node) = (it.by.clone(), node.clone());
        Some(PreemptedBy { by, node, priority: it.priority, own: victim.priority })
    }

    /// Every node that is up does at once as it was told, and what follows from that.
    fn obey(&mut self) -> Result<(), Rejection> {
        while !self.stirred.is_empty() {
            let stirred = std::mem::take(&mut self.stirred);
            let reports: Vec<Guarded> = stirred.iter().flat_map(|id| self.reports(id)).collect();
            if reports.is_empty() {
                break;
            }
            let touched = self.apply(Writer::Agent, reports)?;
            self.count(&touched);
            self.scope.get_or_insert_default().extend(touched);
        }
        Ok(())
    }

    /// What nodes have to say about a replica that they have not said yet.
    fn reports(&self, id: &ReplicaId) -> Vec<Guarded> {
        let Some(replica) = self.state.replica(id) else { return Vec::new() };
        let mut reports = Vec::new();
        for held in replica.holds() {
            let Some(node) = self.state.node(&held.node) else { continue };
            if node.status == NodeStatus::Down {
                continue;
            }
            let is_wanted = wanted(&self.state, &held.node, id).any(|it| it == held);
            let state = if is_wanted {
                ObservedState::Running
            } else if replica.leaving.contains(held) || node.is_cleared() {
                ObservedState::Stopped
            } else {
                // It waits for an older copy to stop elsewhere.
                continue;
            };
            if replica.observation(held).is_some_and(|seen| seen.state == state) {
                continue;
            }
            let observation = Observation { state, code: None, at: self.now };
            let (replica, generation) = (id.clone(), held.generation);
            reports.push(Change::Observe { replica, generation, observation }.free());
        }
        reports
    }

    /// Notes which of the services have too few replicas at this moment.
    fn count(&mut self, services: &BTreeSet<ServiceKey>) {
        for key in services {
            let Some(ran) = self.ran.get(key).copied() else { continue };
            let service = self.state.service(key);
            let spec = service.and_then(|service| service.desired());
            let Some((service, spec)) = service.zip(spec) else { continue };
            let of = spec.placement.mode.replicas().map_or(ran, |wanted| wanted.min(ran));
            let running = service.replicas.values().filter(|it| runs(&self.state, it)).count();
            let least = u32::try_from(running).unwrap_or(u32::MAX);
            if least < of {
                let none_yet = ReplicaShortfall { least, of };
                let short = self.plan.shortfalls.entry(key.clone()).or_insert(none_yet);
                short.least = short.least.min(least);
            }
        }
    }

    /// Returns the services it concerns.
    fn apply(
        &mut self,
        writer: Writer,
        batch: Vec<Guarded>,
    ) -> Result<BTreeSet<ServiceKey>, Rejection> {
        let author = Author::new(writer, "plan");
        let held = self.loops.as_ref().map(|_| self.held(&batch));
        let command = Command::new(self.now, Term(u64::MAX), author, batch);
        let events = self.state.apply(&command)?;
        self.roster.follow(&self.state, &self.signals, self.policy, &events);
        if let Some(held) = held {
            self.with_loops(|loops, cell| loops.shift(cell, &held));
        }
        self.stirred.extend(events.iter().filter_map(|event| match event {
            Event::Replica(id) => Some(id.clone()),
            _ => None,
        }));
        let mut dirty = Dirty::default();
        dirty.note(&self.state, &events);
        Ok(dirty.take())
    }

    /// The nodes that hold something of each replica that the batch is about.
    fn held(&self, batch: &[Guarded]) -> BTreeMap<ReplicaId, BTreeSet<NodeId>> {
        let replicas = batch.iter().filter_map(|guarded| guarded.change.replica());
        replicas.map(|id| (id.clone(), self.holders(id))).collect()
    }

    pub(super) fn holders(&self, id: &ReplicaId) -> BTreeSet<NodeId> {
        let holds = self.state.replica(id).into_iter().flat_map(Replica::holds);
        holds.map(|held| held.node.clone()).collect()
    }
}

/// The moves of a loop, with the score that the rescheduler found each destination to have.
fn decided(batch: Vec<Guarded>) -> Decision {
    let destinations =
        batch.windows(2).enumerate().filter_map(|(at, pair)| match &pair[1].change {
            Change::Record { entry: AuditEntry::Reschedule(moved) } => Some((at, moved.after)),
            _ => None,
        });
    let scores = destinations.collect();
    Decision { batch, scores, wake: None, next_slot: None }
}

/// Whether it runs, on a node that is up.
fn runs(state: &State, replica: &Replica) -> bool {
    let node = replica.assignment.as_ref().and_then(|it| state.node(&it.node));
    replica.is_running() && node.is_some_and(|node| node.status == NodeStatus::Ready)
}

/// The replica of two changes of a batch that has it make way for its own successor.
fn made_way(pair: &[Guarded]) -> Option<&ReplicaId> {
    let [Guarded { change: Change::Succeed { replica, .. }, .. }, next] = pair else { return None };
    matches!(&next.change, Change::Promote { replica: promoted } if promoted == replica)
        .then_some(replica)
}
