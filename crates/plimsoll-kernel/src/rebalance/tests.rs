use plimsoll_model::testkit::{Cell, cell, cpus, node_id, pack, replica_id, spread};
use plimsoll_model::{Millis, ObservedState, Writer};

use super::*;
use crate::Signals;
use crate::testkit::Passes;

const CYCLE: Millis = Millis::seconds(30);

/// A cell and its rebalancer. Each replica uses what it is given, in thousandths of its node's four cores.
struct Bench {
    cell: Cell,
    memory: Memory,
    readings: Readings,
}

impl Bench {
    fn new(cell: Cell) -> Self {
        let cell = cell.settle().later(Millis::minutes(20));
        Self { cell, memory: Memory::default(), readings: Readings::default() }
    }

    /// What a replica uses, of four cores: 240 is 0.24 of its node.
    fn uses(mut self, replica: &str, thousandths: u64) -> Self {
        let usage = Usage { cpu: MilliCpus(4 * thousandths), memory: Bytes(0) };
        self.readings.replicas.insert(replica_id(replica), usage);
        self
    }

    fn cycle(&mut self, cpu: &[(&str, u32)]) -> Outcome {
        self.cycle_of(&cpu.iter().map(|(node, it)| (*node, *it, 0)).collect::<Vec<_>>())
    }

    /// One cycle with these samples, in hundredths of cpu and memory.
    fn cycle_of(&mut self, samples: &[(&str, u32, u32)]) -> Outcome {
        self.cell.now = self.cell.now.plus(CYCLE);
        self.readings.nodes = samples
            .iter()
            .map(|(node, cpu, memory)| {
                let pressure = [Pressure::percent(*cpu), Pressure::percent(*memory)];
                (node_id(node), Sample { at: self.cell.now, pressure })
            })
            .collect();
        let policy = Policy::default();
        let roster = Roster::new(&self.cell.state, &Signals::default(), &policy);
        let (state, readings) = (&self.cell.state, &self.readings);
        let (limits, now) = (Limits::default(), self.cell.now);
        cycle(state, &roster, &policy, &limits, readings, &mut self.memory, now)
    }

    fn take(&mut self, relief: &Relief) {
        let batch = vec![relief.change.clone()];
        self.cell.apply(Writer::Scheduler, batch).unwrap();
    }
}

fn why(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Skipped { why, .. } => Some(why.word()),
        Outcome::Calm | Outcome::Moved(_) => None,
    }
}

fn moved(outcome: Outcome) -> Relief {
    let Outcome::Moved(relief) = outcome else { panic!("{outcome:?}") };
    *relief
}

/// Four replicas of a packed service on ash, none on birch.
fn hot() -> Bench {
    let cell = cell().node("ash", cpus(4)).deploy("d", [("s", pack(4))]).settle();
    Bench::new(cell.node("birch", cpus(4)))
        .uses("d/s/1", 240)
        .uses("d/s/2", 240)
        .uses("d/s/3", 240)
        .uses("d/s/4", 240)
}

#[test]
fn one_hot_cycle_is_a_spike_and_two_are_a_trend() {
    let mut bench = hot();
    let samples = [("ash", 96), ("birch", 10)];
    assert_eq!(bench.cycle(&samples), Outcome::Calm);
    let relief = moved(bench.cycle(&samples));
    assert_eq!((relief.replica.to_string().as_str(), relief.dst.as_str()), ("d-s-1", "birch"));
    assert_eq!((relief.relief, relief.score), (Pressure::percent(24), 230_000));
    assert_eq!(
        (relief.src_before, relief.src_after),
        (Pressure::percent(96), Pressure::percent(72))
    );
    assert_eq!(
        (relief.dst_before, relief.dst_after),
        (Pressure::percent(10), Pressure::percent(34))
    );
}

#[test]
fn a_gap_restarts_the_count() {
    let mut bench = hot();
    let samples = [("ash", 96), ("birch", 10)];
    assert_eq!(bench.cycle(&samples), Outcome::Calm);
    assert_eq!(bench.cycle(&[("birch", 10)]), Outcome::Calm, "silence is not data");
    assert_eq!(bench.cycle(&samples), Outcome::Calm, "it begins anew");
    assert!(matches!(bench.cycle(&samples), Outcome::Moved(_)));
}

#[test]
fn one_hotspot_costs_one_move_and_not_three() {
    let mut bench = hot();
    let samples = [("ash", 96), ("birch", 10)];
    bench.cycle(&samples);
    let relief = moved(bench.cycle(&samples));
    bench.take(&relief);
    assert_eq!(bench.cycle(&samples), Outcome::Calm, "what is on its way counts at both ends");
    bench.cell = bench.cell.clone().obey().pass().obey();
    assert!(bench.cell.state.replica(&relief.replica).unwrap().successor.is_none());
    for _ in 0..20 {
        assert_eq!(
            bench.cycle(&[("ash", 72), ("birch", 34)]),
            Outcome::Calm,
            "the mean has followed"
        );
    }
}

#[test]
fn a_uniformly_busy_cell_moves_nothing_and_says_nothing() {
    let mut bench = hot();
    for _ in 0..10 {
        assert_eq!(bench.cycle(&[("ash", 90), ("birch", 85)]), Outcome::Calm);
    }
    let mut gap = hot();
    gap.cycle(&[("ash", 85), ("birch", 60)]);
    let outcome = gap.cycle(&[("ash", 85), ("birch", 60)]);
    assert_eq!(why(&outcome), Some("dst_cap"), "a gap of exactly 0.25 passes, then a gate says no");
}

#[test]
fn samples_that_take_turns_trigger_nothing() {
    let mut bench = hot();
    for nth in 0..40 {
        let (ash, memory) = if nth % 2 == 0 { (90, 10) } else { (10, 90) };
        let outcome = bench.cycle_of(&[("ash", ash, memory), ("birch", 0, 0)]);
        // The first sample seeds the mean; what is promised is of the means.
        assert!(nth == 0 || outcome == Outcome::Calm, "{nth}: {outcome:?}");
    }
}

#[test]
fn without_data_or_others_nothing_happens() {
    let mut bench = hot();
    for samples in [&[][..], &[("ash", 99)][..]] {
        for _ in 0..3 {
            assert_eq!(bench.cycle(samples), Outcome::Calm);
        }
    }
}

#[test]
fn what_has_data_is_never_moved_even_where_nothing_else_is() {
    let cell = cell().node("ash", cpus(4)).deploy("d", [("s", spread(1).volume("v"))]).settle();
    let mut bench = Bench::new(cell.node("birch", cpus(4)));
    bench.cycle(&[("ash", 99), ("birch", 5)]);
    assert_eq!(why(&bench.cycle(&[("ash", 99), ("birch", 5)])), Some("no_candidate"));
}

#[test]
fn each_gate_is_named_by_the_one_that_blocks_first() {
    let samples = [("ash", 96), ("birch", 10)];
    let mut fresh = hot();
    fresh.cell = fresh.cell.clone().later(Millis(0));
    let cell = cell().node("ash", cpus(4)).deploy("d", [("s", pack(1))]).settle();
    let mut young = Bench {
        cell: cell.node("birch", cpus(4)).later(Millis::minutes(1)),
        memory: Memory::default(),
        readings: Readings::default(),
    };
    young.cycle(&samples);
    assert_eq!(why(&young.cycle(&samples)), Some("cooldown_replica"));

    let mut small = hot().uses("d/s/1", 90).uses("d/s/2", 90).uses("d/s/3", 90).uses("d/s/4", 90);
    small.cycle(&samples);
    assert_eq!(why(&small.cycle(&samples)), Some("relief_floor"));

    let mut near = hot();
    near.cycle(&[("ash", 96), ("birch", 60)]);
    assert_eq!(why(&near.cycle(&[("ash", 96), ("birch", 60)])), Some("dst_cap"));
}

#[test]
fn of_unknown_use_the_declared_limit_counts_and_else_a_guess() {
    let mut declared = pack(1);
    declared.container.limits.cpu = MilliCpus(1_000);
    let cell = cell().node("ash", cpus(4)).deploy("d", [("s", declared), ("t", pack(1))]).settle();
    let mut bench = Bench::new(cell.node("birch", cpus(4)));
    bench.cycle(&[("ash", 96), ("birch", 10)]);
    let relief = moved(bench.cycle(&[("ash", 96), ("birch", 10)]));
    assert_eq!(
        (relief.replica.to_string().as_str(), relief.relief),
        ("d-s-1", Pressure::percent(25))
    );
    let mut guess = hot();
    guess.readings.replicas.clear();
    guess.cycle(&[("ash", 96), ("birch", 10)]);
    let relief = moved(guess.cycle(&[("ash", 96), ("birch", 10)]));
    assert_eq!(relief.relief, Pressure::percent(12));
}

#[test]
fn a_spread_service_does_not_meet_itself() {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let mut bench = Bench::new(cell.deploy("d", [("s", spread(2))]));
    bench.cycle(&[("ash", 96), ("birch", 10)]);
    assert_eq!(why(&bench.cycle(&[("ash", 96), ("birch", 10)])), Some("anti_affinity"));
}

#[test]
fn a_move_for_relief_is_carried_out_by_the_same_path_and_not_called_needless() {
    let mut bench = hot();
    bench.cycle(&[("ash", 96), ("birch", 10)]);
    let relief = moved(bench.cycle(&[("ash", 96), ("birch", 10)]));
    bench.take(&relief);
    let id = relief.replica.clone();
    let mut cell = bench.cell.clone().pass();
    assert!(cell.state.replica(&id).unwrap().successor.is_some(), "it waits for the successor");
    let next = cell.state.replica(&id).unwrap().successor.clone().unwrap().assignment;
    cell.report(&id, next.generation, ObservedState::Running, None);
    let cell = cell.pass();
    let at = cell.state.replica(&id).unwrap().assignment.as_ref().unwrap();
    assert_eq!(at.node, relief.dst);
    let received = cell.state.node(&relief.dst).unwrap().received_at;
    assert!(received.is_some(), "the destination rests from now on");
}
