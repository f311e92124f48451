//! Measured cycles replayed through the shipped one. What a cycle decides is written, and done by the scheduler's own pass once
//! moves have had their time.

use std::collections::BTreeSet;

use plimsoll_model::{
    Author, Change, Command, Guarded, Millis, Observation, ObservedState, Rejection, ReplicaId,
    State, Term, Timestamp, Writer,
};

use super::view::CycleInputs;
use super::{
    CycleOutcome, NodeEvaluation, NodeTrend, Readings, RebalanceMemory, cycle, look, weigh_at,
};
use crate::place::Roster;
use crate::policy::Policy;
use crate::signals::Signals;
use crate::{Scope, reconcile};

/// What a cycle was told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredCycle {
    pub at: Timestamp,
    pub readings: Readings,
}

/// One cycle as it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedCycle {
    pub at: Timestamp,
    /// What was known of each node once its sample was taken in.
    pub trends: Vec<NodeTrend>,
    /// What the gates said of the hottest node; none where no node is known.
    pub weighing: Option<NodeEvaluation>,
    pub outcome: CycleOutcome,
}

/// What each cycle comes to, in a cell as it was before the first and with what its leader remembered. Cycles are in order of
/// time. A move is done before the first cycle that comes `moves_take` after it began.
pub fn replay(
    state: State,
    memory: RebalanceMemory,
    cycles: &[MeasuredCycle],
    moves_take: Millis,
    policy: &Policy,
) -> Result<Vec<ReplayedCycle>, Rejection> {
    let roster = Roster::new(&state, &Signals::default(), policy);
    let under_way = state.replicas().filter_map(|(id, replica)| {
        Some((id, replica.successor.as_ref()?.assignment.at.plus(moves_take)))
    });
    let moving = under_way.collect();
    let mut replay = Replay { state, roster, memory, moving, moves_take, policy };
    let mut steps = Vec::new();
    for (nth, measured) in cycles.iter().enumerate() {
        // What was under way before is so in the first cycle.
        if nth > 0 {
            replay.finish_moves(measured.at)?;
        }
        steps.push(replay.step(measured)?);
    }
    Ok(steps)
}

struct Replay<'c> {
    state: State,
    roster: Roster,
    memory: RebalanceMemory,
    /// What is under way, and when it gets there.
    moving: Vec<(ReplicaId, Timestamp)>,
    moves_take: Millis,
    policy: &'c Policy,
}

impl Replay<'_> {
    fn step(&mut self, measured: &MeasuredCycle) -> Result<ReplayedCycle, Rejection> {
        let MeasuredCycle { at: now, readings } = measured;
        let now = *now;
        let Self { state, roster, policy, .. } = self;
        let view = CycleInputs::new(state, roster, policy, readings, now);
        let mut seen = self.memory.clone();
        let predicted = look(&view, &mut seen);
        let hottest = (0..predicted.len()).rev().max_by_key(|at| predicted[*at].mean.top());
        let weighing = hottest.map(|at| weigh_at(&view, &seen, &predicted, at));
        let outcome = cycle(state, roster, policy, readings, &mut self.memory, now);
        if let CycleOutcome::Moved { change, relief } = &outcome {
            self.apply(now, Writer::Scheduler, vec![(**change).clone()])?;
            self.moving.push((relief.replica.clone(), now.plus(self.moves_take)));
        }
        Ok(ReplayedCycle { at: now, trends: seen.nodes().to_vec(), weighing, outcome })
    }

    fn finish_moves(&mut self, now: Timestamp) -> Result<(), Rejection> {
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
    fn report(&mut self, id: &ReplicaId, now: Timestamp) -> Result<(), Rejection> {
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

    fn apply(
        &mut self,
        at: Timestamp,
        writer: Writer,
        batch: Vec<Guarded>,
    ) -> Result<(), Rejection> {
        let command = Command::new(at, Term(1), Author::new(writer, "case"), batch);
        let events = self.state.apply(&command)?;
        self.roster.follow(&self.state, &Signals::default(), self.policy, &events);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_model::testkit::{Cell, cell, cpus, node_id, pack, replica_id, spread};
    use plimsoll_model::{Bytes, MilliCpus, NodePressure, Pressure};

    use super::super::{PressureSample, ReplicaUsage};
    use super::*;
    use crate::testkit::Passes;

    /// A cell with a bit of everything, long after it was placed.
    fn mixed() -> Cell {
        let cell = cell().node("ash", cpus(4)).deploy(
            "d",
            [
                ("a", pack(4).reserve(200, 128)),
                ("b", spread(1).volume("data").reserve(300, 64)),
                ("c", spread(1).host_port(80)),
            ],
        );
        let cell = cell.settle().node("birch", cpus(8)).node("cedar", cpus(2)).cordon("cedar");
        cell.later(Millis::minutes(30))
    }

    /// One cycle after another, half a minute apart, with ash as busy as this.
    fn measured(cell: &Cell, ash: &[u32]) -> Vec<MeasuredCycle> {
        let usage = |milli| ReplicaUsage { cpu: MilliCpus(milli), memory: Bytes(77 << 20) };
        let cycle = |(nth, ash): (u64, &u32)| {
            let at = cell.now.plus(Millis::seconds(30 * nth));
            let sample = |percent| {
                let cpu = Pressure::percent(percent);
                let pressure = NodePressure::new(cpu, Pressure::percent(percent / 2));
                PressureSample { at, pressure }
            };
            let nodes = [("ash", *ash), ("birch", 11), ("cedar", 3)];
            let nodes = nodes.map(|(node, percent)| (node_id(node), sample(percent)));
            let replicas = (1..=4)
                .map(|nth| (replica_id(&format!("d/a/{nth}")), usage(500 + 100 * nth)))
                .collect();
            MeasuredCycle { at, readings: Readings { nodes: BTreeMap::from(nodes), replicas } }
        };
        (1..).zip(ash).map(cycle).collect()
    }

    fn replayed(cell: &Cell, ash: &[u32], moves_take: Millis) -> Vec<ReplayedCycle> {
        let (state, memory) = (cell.state.clone(), RebalanceMemory::default());
        replay(state, memory, &measured(cell, ash), moves_take, &Policy::default()).unwrap()
    }

    #[test]
    fn a_sequence_carries_its_moves_out() {
        let letter = |step: &ReplayedCycle| match step.outcome {
            CycleOutcome::Calm => 'c',
            CycleOutcome::Skipped(_) => 's',
            CycleOutcome::Moved { .. } => 'M',
        };
        let cell = mixed();
        for (case, moves_take) in [
            ("one move is enough", Millis(0)),
            ("what is under way counts as done", Millis::minutes(10)),
        ] {
            let steps = replayed(&cell, &[96, 96, 96, 60, 60, 60], moves_take);
            assert_eq!(steps.iter().map(letter).collect::<String>(), "cMcccc", "{case}");
        }
    }

    #[test]
    fn what_gates_say_stands_beside_what_was_decided() {
        let steps = replayed(&mixed(), &[96, 96], Millis(0));
        let CycleOutcome::Moved { relief, .. } = &steps[1].outcome else { panic!("{steps:?}") };
        let weighing = steps[1].weighing.as_ref().unwrap();
        assert!(weighing.gates.iter().all(|gate| gate.passes), "{weighing:?}");
        let first = &weighing.candidates[0];
        assert_eq!((&first.replica, &first.dst), (&relief.replica, &relief.dst));
        assert!(first.gates.iter().all(|gate| gate.passes), "{first:?}");
    }
}
