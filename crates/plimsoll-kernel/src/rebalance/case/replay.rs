//! A case replayed through the shipped cycle. What a cycle decides is written, and done by the scheduler's own pass once moves
//! have had their time.

use std::collections::BTreeSet;

use plimsoll_model::{
    Author, Change, Command, Guarded, Observation, ObservedState, Refusal, ReplicaId, State, Term,
    Timestamp, Writer,
};
use thiserror::Error;

use super::super::view::{View, top};
use super::super::{Felt, Limits, Memory, Outcome, Weighing, cycle, look, weigh_at};
use super::{Case, CycleEntry};
use crate::place::Roster;
use crate::policy::Policy;
use crate::signals::Signals;
use crate::{Scope, reconcile};

/// One cycle as it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub at: Timestamp,
    /// What was known of each node once its sample was taken in.
    pub felt: Vec<Felt>,
    /// What the gates said of the hottest node; none where no node is known.
    pub weighing: Option<Weighing>,
    pub outcome: Outcome,
}

/// Why a case cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unfit {
    #[error("the case describes a cell that cannot be: {0}")]
    Cell(Refusal),
    #[error("cycle {nth} lies at {at}, before the one in front of it; sort cycles by time")]
    Backwards { nth: usize, at: u64 },
}

impl Case {
    /// What each cycle comes to.
    pub fn replay(&self, policy: &Policy, limits: &Limits) -> Result<Vec<Step>, Unfit> {
        let state = self.build().map_err(Unfit::Cell)?;
        let roster = Roster::new(&state, &Signals::default(), policy);
        let successors = self.replicas.iter().filter_map(|(id, entry)| {
            Some((id.clone(), entry.successor.as_ref()?.at.plus(self.moves_take)))
        });
        let moving = successors.collect();
        let memory = self.memory.recall();
        let mut replay = Replay { state, roster, memory, moving, policy, limits };
        let mut before = Timestamp(0);
        let mut steps = Vec::new();
        for (nth, entry) in self.cycles.iter().enumerate() {
            if entry.at < before {
                return Err(Unfit::Backwards { nth: nth + 1, at: entry.at.0 });
            }
            // What was under way when the case was written is so in its first cycle.
            if nth > 0 {
                replay.finish_moves(entry.at).map_err(Unfit::Cell)?;
            }
            steps.push(replay.step(entry, self).map_err(Unfit::Cell)?);
            before = entry.at;
        }
        Ok(steps)
    }
}

struct Replay<'c> {
    state: State,
    roster: Roster,
    memory: Memory,
    /// What is under way, and when it gets there.
    moving: Vec<(ReplicaId, Timestamp)>,
    policy: &'c Policy,
    limits: &'c Limits,
}

impl Replay<'_> {
    fn step(&mut self, entry: &CycleEntry, case: &Case) -> Result<Step, Refusal> {
        let (readings, now) = (entry.readings(), entry.at);
        let Self { state, roster, policy, limits, .. } = self;
        let view = View { state, roster, policy, limits, readings: &readings, now };
        let mut seen = self.memory.clone();
        let felt = look(&view, &mut seen);
        let hottest = (0..felt.len()).rev().max_by_key(|at| top(felt[*at].mean));
        let weighing = hottest.map(|at| weigh_at(&view, &seen, &felt, at));
        let outcome = cycle(state, roster, policy, limits, &readings, &mut self.memory, now);
        if let Outcome::Moved { change, relief } = &outcome {
            self.apply(now, Writer::Scheduler, vec![(**change).clone()])?;
            self.moving.push((relief.replica.clone(), now.plus(case.moves_take)));
        }
        Ok(Step { at: now, felt: seen.nodes().to_vec(), weighing, outcome })
    }

    fn finish_moves(&mut self, now: Timestamp) -> Result<(), Refusal> {
        let due = |(_, due): &mut (ReplicaId, Timestamp)| *due <= now;
        let done: Vec<(ReplicaId, Timestamp)> = self.moving.extract_if(.., due).collect();
        for (id, _) in done {
            self.report(&id, now)?;
            let only = BTreeSet::from([id.service.clone()]);
            let scope = Scope::Services(&only);
            let step = reconcile(&self.state, &mut self.roster, self.policy, scope, now);
            let of_it = |it: &Guarded| it.change.replica() == Some(&id);
            let batch = step.batch.into_iter().filter(of_it).collect();
            self.apply(now, Writer::Scheduler, batch)?;
            self.report(&id, now)?;
        }
        Ok(())
    }

    /// All that is held of the replica does as it was told.
    fn report(&mut self, id: &ReplicaId, now: Timestamp) -> Result<(), Refusal> {
        let Some(row) = self.state.replica(id) else { return Ok(()) };
        let leaves = |generation| row.leaving.iter().any(|it| it.generation == generation);
        let reports = row.holds().map(|held| {
            let is_over = leaves(held.generation);
            let state = if is_over { ObservedState::Stopped } else { ObservedState::Running };
            let observation = Observation { state, code: None, at: now };
            let (replica, generation) = (id.clone(), held.generation);
            Change::Observe { replica, generation, observation }.free()
        });
        let reports = reports.collect();
        self.apply(now, Writer::Agent, reports)
    }

    fn apply(&mut self, at: Timestamp, writer: Writer, batch: Vec<Guarded>) -> Result<(), Refusal> {
        let command = Command::new(at, Term(1), Author::new(writer, "case"), batch);
        let events = self.state.apply(&command).map_err(|rejection| rejection.reason)?;
        self.roster.follow(&self.state, &Signals::default(), self.policy, &events);
        Ok(())
    }
}
