//! The leader's relief of hot nodes: takes in what was measured, runs one cycle of the rebalancer every interval, and
//! makes one entry in the log of a cycle that has something to say.

use std::collections::BTreeMap;

use plimsoll_kernel::Policy;
use plimsoll_kernel::place::Roster;
use plimsoll_kernel::rebalance::case::Case;
use plimsoll_kernel::rebalance::{self, Habit, Limits, Memory, Readings, Sample, Usage, Weighing};
use plimsoll_model::{Generation, Guarded, NodeId, ReplicaId, State, Timestamp};

use crate::sampler::Pace;
use crate::soft::Facts;
use crate::view::build::{self, Source};

/// What a leader smooths and counts. A new one begins anew.
#[derive(Debug, Clone)]
pub struct Reliever {
    limits: Limits,
    memory: Memory,
    /// Of each replica and what it was when measured: a new generation may be another program.
    habits: BTreeMap<ReplicaId, (Generation, Habit)>,
    readings: Readings,
}

impl Reliever {
    pub fn new(pace: Pace) -> Self {
        Self {
            limits: pace.limits(),
            memory: Memory::default(),
            habits: BTreeMap::new(),
            readings: Readings::default(),
        }
    }

    /// One cycle: the batch to write, which is empty where there is nothing to say.
    pub fn cycle(
        &mut self,
        state: &State,
        roster: &Roster,
        policy: &Policy,
        facts: &Facts,
        now: Timestamp,
    ) -> Vec<Guarded> {
        self.hear(state, facts, now);
        let Self { limits, memory, readings, .. } = self;
        rebalance::cycle(state, roster, policy, limits, readings, memory, now).batch()
    }

    /// What there is to say of a node, as of the last cycle.
    pub fn weigh(&self, source: &Source<'_>, node: &NodeId) -> Option<Weighing> {
        let (policy, now) = (Policy::default(), source.here.now);
        let signals = build::signals(source.facts, &policy, now);
        let roster = Roster::new(source.state, &signals, &policy);
        let Self { limits, readings, memory, .. } = self;
        rebalance::weigh(source.state, &roster, &policy, limits, readings, memory, node, now)
    }

    /// What the next cycle would be told, if it were now. Whoever replays it decides the same.
    pub fn case(&self, state: &State, facts: &Facts, now: Timestamp) -> Case {
        let mut then = self.clone();
        then.hear(state, facts, now);
        let mut case = Case::of(state, &then.memory);
        case.push(now, &then.readings);
        case
    }

    /// Takes in what nodes measured, by the times they measured it.
    fn hear(&mut self, state: &State, facts: &Facts, now: Timestamp) {
        let nodes = facts.nodes.iter().filter_map(|(node, fact)| {
            let pressure = fact.reading.as_ref()?.pressure()?;
            Some((node.clone(), Sample { at: fact.measured_at?, pressure }))
        });
        self.readings.nodes = nodes.collect();
        for ((replica, generation), fact) in &facts.replicas {
            let held = state.replica(replica).and_then(|row| row.assignment.as_ref());
            let Some(held) = held.filter(|held| held.generation == *generation) else { continue };
            let at = self.readings.nodes.get(&held.node).map(|sample| sample.at);
            let (Some(at), Some(cpu), Some(memory)) = (at, fact.cpu, fact.memory) else { continue };
            self.accustom(replica, *generation, at, Usage { cpu, memory });
        }
        let since = Timestamp(now.0.saturating_sub(self.limits.stale_after.0));
        self.habits.retain(|_, (_, habit)| habit.at() >= since);
        let usages = self.habits.iter();
        self.readings.replicas =
            usages.map(|(replica, (_, habit))| (replica.clone(), habit.usage())).collect();
    }

    fn accustom(
        &mut self,
        replica: &ReplicaId,
        generation: Generation,
        at: Timestamp,
        usage: Usage,
    ) {
        match self.habits.get_mut(replica).filter(|(known, _)| *known == generation) {
            Some((_, habit)) => habit.feed(at, usage, self.limits.habit_window),
            None => {
                self.habits.insert(replica.clone(), (generation, Habit::seed(at, usage)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_kernel::{Scope, Signals, reconcile};
    use plimsoll_model::testkit::{Cell, cell, cpus, node_id, pack, replica_id};
    use plimsoll_model::{Bytes, MilliCpus, Millis, Pressure, Writer};
    use plimsoll_runtime::pressure::{Reading, Share, Stalls};

    use super::*;
    use crate::soft::{NodeFact, ReplicaFact};

    fn settled(mut cell: Cell) -> Cell {
        for _ in 0..5 {
            let policy = Policy::default();
            let mut roster = Roster::new(&cell.state, &Signals::default(), &policy);
            let decided = reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now);
            cell.apply(Writer::Scheduler, decided.batch).unwrap();
            cell = cell.obey();
        }
        cell
    }

    /// Each node as busy as this, and each replica on it with an equal part of that, measured so long ago.
    fn measured(cell: &Cell, nodes: &[(&str, u32)], ago: Millis) -> Facts {
        let mut facts = Facts::default();
        for (node, percent) in nodes {
            let share = Share { used: MilliCpus(0), pressure: Pressure::percent(*percent) };
            let memory = Share { used: Bytes(0), pressure: Pressure::percent(10) };
            let stalls = Stalls::default();
            let reading = Reading { cpu: Some(share), memory: Some(memory), stalls };
            let fact = NodeFact {
                heard_at: Some(cell.now),
                reading: Some(reading),
                measured_at: Some(Timestamp(cell.now.0 - ago.0)),
                ..NodeFact::default()
            };
            facts.nodes.insert(node_id(node), fact);
        }
        for (id, replica) in cell.state.replicas() {
            let generation = replica.assignment.as_ref().unwrap().generation;
            let (cpu, memory) = (Some(MilliCpus(960)), Some(Bytes(1 << 20)));
            let fact = ReplicaFact { cpu, memory, ..ReplicaFact::default() };
            facts.replicas.insert((id, generation), fact);
        }
        facts
    }

    fn cycle(reliever: &mut Reliever, cell: &Cell, facts: &Facts) -> Vec<String> {
        let policy = Policy::default();
        let roster = Roster::new(&cell.state, &Signals::default(), &policy);
        let mut after = cell.clone();
        let batch = reliever.cycle(&cell.state, &roster, &policy, facts, cell.now);
        let before = after.state.audit().next_seq();
        after.apply(Writer::Rebalancer, batch).unwrap();
        after.state.audit().since(before).map(|event| event.what.to_string()).collect()
    }

    #[test]
    fn what_nodes_say_of_themselves_moves_one_replica_off_the_one_that_stays_hot() {
        let cell = settled(cell().node("ash", cpus(4)).deploy("d", [("s", pack(4))]));
        let mut cell = cell.node("birch", cpus(4)).later(Millis::minutes(20));
        let mut reliever = Reliever::new(Pace::default());
        let hot = [("ash", 96), ("birch", 10)];
        let first = cycle(&mut reliever, &cell, &measured(&cell, &hot, Millis::seconds(4)));
        assert_eq!(first, Vec::<String>::new(), "one cycle is a spike");
        cell = cell.later(Millis::seconds(30));
        let second = cycle(&mut reliever, &cell, &measured(&cell, &hot, Millis::seconds(4)));
        assert_eq!(
            second,
            [
                "d-s-1 moves ash → birch (pressure)",
                "d-s-1 relieves ash of 0.24 cpu and goes to birch: ash 0.96 → 0.72, birch 0.10 → 0.34, score 0.23",
            ]
        );
    }

    #[test]
    fn a_cell_that_is_written_down_decides_the_same_when_it_is_replayed() {
        let cell = settled(cell().node("ash", cpus(4)).deploy("d", [("s", pack(4))]));
        let mut cell = cell.node("birch", cpus(4)).later(Millis::minutes(20));
        let mut reliever = Reliever::new(Pace::default());
        let hot = [("ash", 96), ("birch", 10)];
        for nth in 0..3 {
            let facts = measured(&cell, &hot, Millis::seconds(4));
            let case = reliever.case(&cell.state, &facts, cell.now);
            let written = serde_json::to_string(&case).unwrap();
            let read: Case = serde_json::from_str(&written).unwrap();
            let steps = read.replay(&Policy::default(), &Limits::default()).unwrap();
            let replayed = steps.into_iter().next().unwrap().outcome.batch();
            let policy = Policy::default();
            let roster = Roster::new(&cell.state, &Signals::default(), &policy);
            let live = reliever.cycle(&cell.state, &roster, &policy, &facts, cell.now);
            let deeds =
                |batch: &[Guarded]| batch.iter().map(|it| it.change.clone()).collect::<Vec<_>>();
            assert_eq!(deeds(&replayed), deeds(&live), "cycle {nth}");
            assert_eq!(live.is_empty(), nth == 0);
            cell = cell.later(Millis::seconds(30));
        }
    }

    #[test]
    fn what_the_cell_holds_nowhere_any_more_is_forgotten() {
        let cell = settled(cell().node("ash", cpus(4)).deploy("d", [("s", pack(2))]));
        let mut facts = measured(&cell, &[("ash", 50)], Millis(0));
        let old = (replica_id("d/s/1"), Generation(99));
        let ended = (replica_id("d/s/7"), Generation(1));
        for key in [&old, &ended] {
            facts.replicas.insert(key.clone(), ReplicaFact::default());
        }
        let gone = facts.gone(&cell.state);
        assert_eq!(gone, [old, ended]);
        facts.forget(&gone);
        assert_eq!(facts.replicas.len(), 2, "what runs is still known");
    }

    #[test]
    fn what_was_measured_too_long_ago_is_silence_and_so_is_what_was_counted_before() {
        let cell = settled(cell().node("ash", cpus(4)).deploy("d", [("s", pack(4))]));
        let mut cell = cell.node("birch", cpus(4)).later(Millis::minutes(20));
        let hot = [("ash", 96), ("birch", 10)];
        let mut reliever = Reliever::new(Pace::default());
        for _ in 0..4 {
            let facts = measured(&cell, &hot, Millis::seconds(91));
            assert_eq!(cycle(&mut reliever, &cell, &facts), Vec::<String>::new());
            cell = cell.later(Millis::seconds(30));
        }
        let facts = measured(&cell, &hot, Millis(0));
        for _ in 0..3 {
            assert_eq!(
                cycle(&mut reliever, &cell, &facts),
                Vec::<String>::new(),
                "the same sample"
            );
        }
    }
}
