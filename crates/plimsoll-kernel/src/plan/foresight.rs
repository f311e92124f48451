//! The cell of a plan: a copy of the state on which passes are carried out, and what is noted of them.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{
    Author, Change, Command, Event, Guarded, NodeStatus, Observation, ObservedState, Rejection,
    Replica, ReplicaId, ServiceKey, State, Term, Timestamp, Writer,
};

use super::{Plan, ReplicaFate, ReplicaOutcome, ReplicaShortfall, StayReason, StoppedRollout};
use crate::agent::wanted;
use crate::condition::ReplicaCondition;
use crate::dirty::Dirty;
use crate::place::{Roster, Score};
use crate::policy::Policy;
use crate::{Decision, Scope, Signals, reconcile};

/// More passes than any cell takes: each brings at least one replica where it belongs, or waits for a time that comes.
const MAX_PASSES: usize = 100_000;

pub(super) struct Foresight<'f> {
    state: State,
    roster: Roster,
    signals: &'f Signals,
    policy: &'f Policy,
    now: Timestamp,
    /// How many replicas of each service ran before anything was done.
    ran: BTreeMap<ServiceKey, u32>,
    plan: Plan,
    /// The last round in which something was begun.
    round: u32,
    /// What the next pass looks at; none: everything.
    scope: Option<BTreeSet<ServiceKey>>,
    /// Replicas about which their nodes may have something to do.
    stirred: BTreeSet<ReplicaId>,
}

impl<'f> Foresight<'f> {
    pub(super) fn new(
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
            signals,
            policy,
            now,
            ran,
            plan: Plan::default(),
            round: 0,
            scope: None,
            stirred: BTreeSet::new(),
        }
    }

    /// Makes the changes that the plan is about.
    pub(super) fn suppose(
        &mut self,
        writer: Writer,
        changes: Vec<Change>,
    ) -> Result<(), Rejection> {
        self.apply(writer, changes.into_iter().map(Change::free).collect())?;
        let services: BTreeSet<ServiceKey> = self.ran.keys().cloned().collect();
        self.count(&services);
        Ok(())
    }

    /// Passes and what nodes make of them, until there is nothing left to do.
    pub(super) fn play(&mut self) -> Result<(), Rejection> {
        self.stirred = self.state.replicas().map(|(id, _)| id).collect();
        self.note_moves_under_way();
        let first_round = u32::from(!self.plan.outcomes.is_empty());
        self.scope = None;
        for _ in 0..MAX_PASSES {
            let mut decision = self.decide();
            // A plan shows what is done in time: that a drain is given up is no part of it.
            let is_step = |it: &Guarded| !matches!(it.change, Change::GiveUpDrain { .. });
            if decision.batch.iter().any(is_step) {
                decision.batch.retain(is_step);
                self.begin(decision)?;
            } else if self.stirred.is_empty() {
                match (self.scope.take(), decision.wake) {
                    // What a look at a few services finds nothing to do about, one at all of them may.
                    (Some(_), _) => {}
                    (None, Some(at)) if at > self.now => self.now = at,
                    (None, _) => break,
                }
                continue;
            }
            self.round = self.round.max(first_round);
            self.obey()?;
        }
        Ok(())
    }

    pub(super) fn decide(&mut self) -> Decision {
        let Self { state, roster, policy, scope, now, .. } = self;
        let scope = scope.as_ref().map_or(Scope::All, Scope::Services);
        reconcile(state, roster, policy, scope, *now)
    }

    /// Notes what a pass begins, and writes it.
    pub(super) fn begin(&mut self, decision: Decision) -> Result<(), Rejection> {
        self.note(&decision);
        let touched = self.apply(Writer::Scheduler, decision.batch)?;
        self.count(&touched);
        self.scope = Some(touched);
        Ok(())
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
            self.round = round;
        }
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
        let command = Command::new(self.now, Term(u64::MAX), author, batch);
        let events = self.state.apply(&command)?;
        self.roster.follow(&self.state, self.signals, self.policy, &events);
        self.stirred.extend(events.iter().filter_map(|event| match event {
            Event::Replica(id) => Some(id.clone()),
            _ => None,
        }));
        let mut dirty = Dirty::default();
        dirty.note(&self.state, &events);
        Ok(dirty.take())
    }
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
