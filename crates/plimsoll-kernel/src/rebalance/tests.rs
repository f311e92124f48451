use plimsoll_model::reason::{Unplaced, UnplacedReason};
use plimsoll_model::spec::UpdateOrder;
use plimsoll_model::testkit::{Cell, cell, cpus, global, hosts, node_id, pack, replica_id, spread};
use plimsoll_model::{
    Availability, Change, Generation, Millis, MoveCause, NodePressure, ObservedState, Writer,
};

use super::*;
use crate::Signals;
use crate::testkit::Passes;

const CYCLE: Millis = Millis::seconds(30);

/// A cell and its rebalancer. Each replica uses what it is given, in thousandths of its node's four cores.
struct Bench {
    cell: Cell,
    memory: RebalanceMemory,
    readings: Readings,
}

impl Bench {
    fn new(cell: Cell) -> Self {
        let cell = cell.settle().later(Millis::minutes(20));
        Self { cell, memory: RebalanceMemory::default(), readings: Readings::default() }
    }

    /// What a replica uses, of four cores: 240 is 0.24 of its node.
    fn uses(mut self, replica: &str, thousandths: u64) -> Self {
        let usage = ReplicaUsage { cpu: MilliCpus(4 * thousandths), memory: Bytes(0) };
        self.readings.replicas.insert(replica_id(replica), usage);
        self
    }

    fn cycle(&mut self, cpu: &[(&str, u32)]) -> CycleOutcome {
        self.cycle_of(&cpu.iter().map(|(node, it)| (*node, *it, 0)).collect::<Vec<_>>())
    }

    /// One cycle with these samples, in hundredths of cpu and memory.
    fn cycle_of(&mut self, samples: &[(&str, u32, u32)]) -> CycleOutcome {
        self.cell.now = self.cell.now.plus(CYCLE);
        self.readings.nodes = samples
            .iter()
            .map(|(node, cpu, memory)| {
                let pressure =
                    NodePressure::new(Pressure::percent(*cpu), Pressure::percent(*memory));
                (node_id(node), PressureSample { at: self.cell.now, pressure })
            })
            .collect();
        let policy = Policy::default();
        let roster = Roster::new(&self.cell.state, &Signals::default(), &policy);
        let (state, readings) = (&self.cell.state, &self.readings);
        let now = self.cell.now;
        cycle(state, &roster, &policy, readings, &mut self.memory, now)
    }

    /// What a replica uses of memory, in thousandths of its node's.
    fn uses_memory(mut self, replica: &str, cpu: u64, thousandths: u64) -> Self {
        let memory = Bytes(cpus(4).capacity.memory.0 / 1_000 * thousandths);
        let usage = ReplicaUsage { cpu: MilliCpus(4 * cpu), memory };
        self.readings.replicas.insert(replica_id(replica), usage);
        self
    }

    /// Two cycles alike, of which the second may act.
    fn twice(&mut self, cpu: &[(&str, u32)]) -> CycleOutcome {
        assert_eq!(self.cycle(cpu), CycleOutcome::Calm, "one hot cycle is a spike");
        self.cycle(cpu)
    }

    fn take(&mut self, relief: &Relief) {
        let Relief { replica, dst, .. } = relief.clone();
        let spec = self.cell.state.service(&replica.service).unwrap().desired().unwrap().hash;
        let (node, cause) = (dst, MoveCause::Pressure);
        self.cell.change(Writer::Scheduler, Change::Succeed { replica, node, spec, cause });
    }
}

fn why(outcome: &CycleOutcome) -> Option<&'static str> {
    match outcome {
        CycleOutcome::Skipped(skipped) => Some(skipped.why.word()),
        CycleOutcome::Calm | CycleOutcome::Moved { .. } => None,
    }
}

fn moved(outcome: CycleOutcome) -> Relief {
    let CycleOutcome::Moved { relief, .. } = outcome else { panic!("{outcome:?}") };
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
    assert_eq!(bench.cycle(&samples), CycleOutcome::Calm);
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
    assert_eq!(bench.cycle(&samples), CycleOutcome::Calm);
    assert_eq!(bench.cycle(&[("birch", 10)]), CycleOutcome::Calm, "silence is not data");
    assert_eq!(bench.cycle(&samples), CycleOutcome::Calm, "it begins anew");
    assert!(matches!(bench.cycle(&samples), CycleOutcome::Moved { .. }));
}

#[test]
fn one_hotspot_costs_one_move_and_not_three() {
    let mut bench = hot();
    let samples = [("ash", 96), ("birch", 10)];
    bench.cycle(&samples);
    let relief = moved(bench.cycle(&samples));
    bench.take(&relief);
    assert_eq!(bench.cycle(&samples), CycleOutcome::Calm, "what is on its way counts at both ends");
    bench.cell = bench.cell.clone().obey().pass().obey();
    assert!(bench.cell.state.replica(&relief.replica).unwrap().successor.is_none());
    for _ in 0..20 {
        assert_eq!(
            bench.cycle(&[("ash", 72), ("birch", 34)]),
            CycleOutcome::Calm,
            "the mean has followed"
        );
    }
}

#[test]
fn a_uniformly_busy_cell_moves_nothing_and_says_nothing() {
    let mut bench = hot();
    for _ in 0..10 {
        assert_eq!(bench.cycle(&[("ash", 90), ("birch", 85)]), CycleOutcome::Calm);
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
        assert!(nth == 0 || outcome == CycleOutcome::Calm, "{nth}: {outcome:?}");
    }
}

#[test]
fn without_data_or_others_nothing_happens() {
    let mut bench = hot();
    for samples in [&[][..], &[("ash", 99)][..]] {
        for _ in 0..3 {
            assert_eq!(bench.cycle(samples), CycleOutcome::Calm);
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
    let cell = cell().node("ash", cpus(4)).deploy("d", [("s", pack(1))]).settle();
    let mut young = Bench {
        cell: cell.node("birch", cpus(4)).later(Millis::minutes(1)),
        memory: RebalanceMemory::default(),
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

#[test]
fn a_move_that_ends_before_the_next_cycle_is_counted_all_the_same() {
    let mut bench = hot();
    let samples = [("ash", 96), ("birch", 10)];
    let relief = moved(bench.twice(&samples));
    bench.take(&relief);
    bench.cell = bench.cell.clone().obey().pass().obey();
    assert!(bench.cell.state.moving().is_empty());
    for nth in 0..20 {
        let outcome = bench.cycle(&[("ash", 72), ("birch", 34)]);
        assert_eq!(outcome, CycleOutcome::Calm, "{nth}: the mean was shifted");
    }
}

#[test]
fn a_move_that_was_never_written_shifts_nothing() {
    let mut bench = hot();
    let samples = [("ash", 96), ("birch", 10)];
    let first = moved(bench.twice(&samples));
    let again = moved(bench.cycle(&samples));
    assert_eq!(first.src_before, again.src_before);
}

#[test]
fn a_sample_that_was_counted_says_nothing_new() {
    let mut bench = hot();
    let samples = [("ash", 96), ("birch", 10)];
    assert_eq!(bench.cycle(&samples), CycleOutcome::Calm);
    let policy = Policy::default();
    for _ in 0..2 {
        bench.cell.now = bench.cell.now.plus(CYCLE);
        let roster = Roster::new(&bench.cell.state, &Signals::default(), &policy);
        let (state, readings, now) = (&bench.cell.state, &bench.readings, bench.cell.now);
        let outcome = cycle(state, &roster, &policy, readings, &mut bench.memory, now);
        assert_eq!(outcome, CycleOutcome::Calm, "nobody has spoken since");
    }
    assert!(matches!(bench.cycle(&samples), CycleOutcome::Moved { .. }));
}

#[test]
fn a_new_leader_waits_for_two_cycles_and_keeps_the_cooldowns() {
    let mut bench = hot();
    let samples = [("ash", 96), ("birch", 10)];
    bench.cycle(&samples);
    bench.memory = RebalanceMemory::default();
    let relief = moved(bench.twice(&samples));
    bench.take(&relief);
    bench.cell = bench.cell.clone().obey().pass().obey();
    bench.memory = RebalanceMemory::default();
    let outcome = bench.twice(&samples);
    assert_eq!(why(&outcome), Some("cooldown_node"), "birch was given one a minute ago");
    for _ in 0..2 {
        bench.cycle(&samples);
    }
    let relief = moved(bench.cycle(&samples));
    assert_eq!(relief.replica.to_string(), "d-s-2", "the first has its own cooldown");
}

#[test]
fn a_memory_hotspot_is_relieved_by_what_a_replica_takes_of_memory() {
    let mut bench = hot().uses_memory("d/s/1", 300, 20).uses_memory("d/s/2", 10, 200);
    let samples = [("ash", 40, 90), ("birch", 10, 10)];
    assert_eq!(bench.cycle_of(&samples), CycleOutcome::Calm);
    let relief = moved(bench.cycle_of(&samples));
    assert_eq!(
        (relief.replica.to_string().as_str(), relief.dominant),
        ("d-s-2", Dimension::Memory)
    );
    assert_eq!(relief.src_before, Pressure::percent(90));
    let mut tie = hot().uses_memory("d/s/1", 120, 400);
    tie.cycle_of(&[("ash", 90, 90), ("birch", 10, 10)]);
    let relief = moved(tie.cycle_of(&[("ash", 90, 90), ("birch", 10, 10)]));
    // The others would take cpu alone and leave it as hot as it is.
    assert_eq!((relief.dominant, relief.replica.to_string().as_str()), (Dimension::Cpu, "d-s-1"));
    assert_eq!((relief.src_after, relief.relief), (Pressure::percent(78), Pressure::percent(12)));
}

#[test]
fn what_relieves_one_dimension_alone_relieves_nothing() {
    let mut bench = hot();
    let samples = [("ash", 90, 90), ("birch", 10, 10)];
    bench.cycle_of(&samples);
    assert_eq!(why(&bench.cycle_of(&samples)), Some("relief_floor"));
}

#[test]
fn every_candidate_that_was_refused_is_named_with_its_gate() {
    let samples = [("ash", 96), ("birch", 10)];
    // The one that would relieve it most has just been placed.
    let mut bench = hot().uses("e/x/1", 500);
    bench.cell = bench.cell.clone().deploy("e", [("x", hosts(1, ["ash"]))]).settle();
    let relief = moved(bench.twice(&samples));
    let named = relief.refused.iter().map(|it| (it.replica.to_string(), it.why));
    let expected = [("e-x-1".to_owned(), Skip::CooldownReplica)];
    assert_eq!(named.collect::<Vec<_>>(), expected);
    let mut all = hot();
    all.cell.now = Timestamp(all.cell.now.0 - Millis::minutes(20).0);
    let CycleOutcome::Skipped(skipped) = all.twice(&samples) else { panic!("all are fresh") };
    assert_eq!(skipped.refused.len(), 4);
    assert!(skipped.refused.iter().all(|it| it.why == Skip::CooldownReplica));
}

#[test]
fn what_a_paused_rollout_left_outdated_stays_where_it_is() {
    let samples = [("ash", 96), ("birch", 10)];
    let mut bench = hot();
    bench.cell = bench.cell.clone().deploy("d", [("s", pack(4).image("app:2"))]);
    let service = plimsoll_model::testkit::service_key("d/s");
    let why_paused = plimsoll_model::rollout::RolloutHalt::Operator;
    bench.cell.change(Writer::Operator, Change::PauseRollout { service, why: why_paused });
    assert_eq!(why(&bench.twice(&samples)), Some("no_candidate"));
}

#[test]
fn a_service_whose_decisions_are_refused_is_left_where_it_is() {
    let mut bench = hot();
    let service = plimsoll_model::testkit::service_key("d/s");
    let said = UnplacedReason::DecisionRefused { why: "d-s-9 does not exist".to_owned() };
    let unplaced = Some(Unplaced { missing: 0, why: said, since: bench.cell.now });
    bench.cell.change(Writer::Scheduler, Change::SetUnplaced { service, unplaced });
    assert_eq!(why(&bench.twice(&[("ash", 96), ("birch", 10)])), Some("no_candidate"));
}

#[test]
fn of_equals_the_lower_id_goes_to_the_coldest_node_and_then_by_name() {
    let mut bench = hot();
    bench.cell = bench.cell.clone().node("cedar", cpus(4)).node("dogwood", cpus(4));
    let samples = [("ash", 96), ("birch", 30), ("cedar", 10), ("dogwood", 10)];
    let relief = moved(bench.twice(&samples));
    assert_eq!((relief.replica.to_string().as_str(), relief.dst.as_str()), ("d-s-1", "cedar"));
}

#[test]
fn the_most_relief_goes_first_where_it_is_admitted() {
    let mut bench = hot().uses("d/s/3", 400).uses("d/s/4", 250);
    let relief = moved(bench.twice(&[("ash", 96), ("birch", 45)]));
    assert_eq!(relief.replica.to_string(), "d-s-4", "0.40 more would be too much for birch");
}

#[test]
fn a_node_that_is_cool_for_a_moment_is_no_destination() {
    let mut bench = hot();
    for _ in 0..20 {
        bench.cycle(&[("ash", 50), ("birch", 80)]);
    }
    // Both change places. After ten minutes birch is cool, but was not long ago.
    let outcomes: Vec<CycleOutcome> =
        (0..120).map(|_| bench.cycle(&[("ash", 99), ("birch", 5)])).collect();
    assert_eq!(why(&outcomes[20]), Some("dst_cap"));
    let first = outcomes.iter().position(|it| matches!(it, CycleOutcome::Moved { .. })).unwrap();
    assert!((30..90).contains(&first), "within the hour it is forgotten: {first}");
}

#[test]
fn destinations_are_ready_open_and_heard() {
    let samples = [("ash", 96), ("birch", 10)];
    for (case, change) in [
        ("cordoned", (|cell| cell.cordon("birch")) as fn(Cell) -> Cell),
        ("draining", |cell| cell.drain("birch")),
    ] {
        let mut bench = hot();
        bench.cell = change(bench.cell.clone());
        assert_eq!(why(&bench.twice(&samples)), Some("no_eligible_dst"), "{case}");
    }
    let mut down = hot();
    down.cell = down.cell.clone().down("birch");
    assert_eq!(down.twice(&samples), CycleOutcome::Calm, "there is nothing to compare ash with");
    let mut stale = hot();
    stale.twice(&[("birch", 10), ("ash", 10)]);
    for _ in 0..4 {
        stale.cell.now = stale.cell.now.plus(CYCLE);
    }
    assert_eq!(stale.twice(&[("ash", 96)]), CycleOutcome::Calm, "birch has not spoken of late");
}

#[test]
fn listed_hosts_take_no_more_than_the_service_allows_a_node() {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let one_each = hosts(2, ["ash", "birch"]).max_per_node(1);
    let mut bench = Bench::new(cell.deploy("d", [("s", one_each)]));
    assert_eq!(why(&bench.twice(&[("ash", 96), ("birch", 10)])), Some("anti_affinity"));
}

#[test]
fn a_node_where_the_service_failed_of_late_is_no_destination() {
    let samples = [("ash", 96), ("birch", 10)];
    // One on birch, four on ash.
    let bench = || {
        let cell = cell().node("birch", cpus(4)).deploy("d", [("s", pack(1))]).settle();
        let cell = cell.node("ash", cpus(4)).cordon("birch").deploy("d", [("s", pack(5))]).settle();
        let all = (2..=5).map(|nth| format!("d/s/{nth}"));
        let mut bench = all.fold(Bench::new(cell), |bench, id| bench.uses(&id, 240));
        let (node, availability) = (node_id("birch"), Availability::Active);
        bench.cell.change(Writer::Operator, Change::SetAvailability { node, availability });
        bench
    };
    assert_eq!(moved(bench().twice(&samples)).dst, node_id("birch"));
    let (mut failed, id) = (bench(), replica_id("d/s/1"));
    for state in [ObservedState::Failed, ObservedState::Starting].repeat(5) {
        failed.cell.report(&id, Generation(1), state, None);
    }
    failed.cell.report(&id, Generation(1), ObservedState::Running, None);
    assert_eq!(why(&failed.twice(&samples)), Some("no_eligible_dst"));
}

#[test]
fn what_may_not_move_is_no_candidate() {
    let samples = [("ash", 96), ("birch", 10)];
    let global = cell().node("ash", cpus(4)).deploy("d", [("s", global())]).settle();
    let mut bench = Bench::new(global.node("birch", cpus(4)).settle());
    assert_eq!(why(&bench.twice(&samples)), Some("no_candidate"), "global");

    let mut gone = hot();
    gone.cell = gone.cell.clone().undeploy("d");
    assert_eq!(why(&gone.twice(&samples)), Some("no_candidate"), "its service has ended");

    let mut moving = hot().uses("d/s/1", 90);
    for index in 2..=4 {
        moving.readings.replicas.insert(replica_id(&format!("d/s/{index}")), ReplicaUsage::NOTHING);
    }
    let relief = Relief { replica: replica_id("d/s/1"), ..moved(hot().twice(&samples)) };
    moving.take(&relief);
    let outcome = moving.twice(&[("ash", 99), ("birch", 10)]);
    assert_eq!(why(&outcome), Some("no_candidate"), "one of the service at a time, for any cause");

    let mut once = pack(4);
    once.update.order = UpdateOrder::StopFirst;
    let cell = cell().node("ash", cpus(4)).deploy("d", [("s", once)]).settle();
    let mut bench = Bench::new(cell.node("birch", cpus(4)).settle());
    let said = why(&bench.twice(&samples));
    assert_eq!(said, Some("no_candidate"), "it would stop before it runs elsewhere");
}

#[test]
fn where_it_neither_fits_nor_may_be_the_room_is_named() {
    let samples = [("ash", 96), ("birch", 10)];
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let spec = spread(2).reserve(3_000, 64);
    let mut bench = Bench::new(cell.deploy("d", [("s", spec)]));
    let outcome = bench.twice(&samples);
    assert_eq!(why(&outcome), Some("resource_limits"), "birch holds the other, and has no room");
    let CycleOutcome::Skipped(skipped) = outcome else { panic!("{outcome:?}") };
    let nearest = skipped.nearest.unwrap();
    assert_eq!((nearest.dst.as_str(), nearest.relief), ("birch", Pressure::percent(12)));
}

#[test]
fn different_reasons_are_no_eligible_destination() {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let cell = cell.deploy("d", [("s", spread(2))]).settle().node("cedar", cpus(4));
    let mut bench = Bench::new(cell);
    let outcome = bench.twice(&[("ash", 96), ("birch", 10), ("cedar", 70)]);
    assert_eq!(why(&outcome), Some("no_eligible_dst"), "one collides, the other is too warm");
}

#[test]
fn what_is_kept_of_a_node_is_small() {
    assert!(size_of::<NodeTrend>() <= 100, "{}", size_of::<NodeTrend>());
    let mut bench = hot();
    bench.cycle(&[("ash", 96), ("birch", 10)]);
    let names: Vec<&str> = bench.memory.nodes().iter().map(|trend| trend.node.as_str()).collect();
    assert_eq!(names, ["ash", "birch"]);
    let (kept, _) = bench.cell.state.nodes().get_key_value(&node_id("ash")).unwrap();
    let shared = bench.memory.nodes()[0].node.as_str();
    assert!(std::ptr::eq(kept.as_str(), shared), "the name is the state's own");
}

#[test]
fn a_memory_that_was_written_down_goes_on_as_it_was() {
    let mut bench = hot();
    bench.cycle(&[("ash", 96), ("birch", 10)]);
    bench.cycle(&[("ash", 87), ("birch", 13)]);
    let (nodes, moving) = (bench.memory.nodes(), bench.memory.moving());
    let nodes = nodes.iter().rev().map(|trend| {
        let again = |it: Ewma| Ewma::recall(it.at(), it.fine());
        let recall = |it: SmoothedPressure| SmoothedPressure {
            cpu: again(it.cpu),
            memory: again(it.memory),
        };
        NodeTrend::new(trend.node.clone(), recall(trend.mean), recall(trend.peak), trend.hot)
    });
    let recalled = RebalanceMemory::recall(nodes.collect(), moving.clone());
    let mut other = Bench { cell: bench.cell.clone(), memory: recalled, ..hot() };
    for samples in [[("ash", 96), ("birch", 11)], [("ash", 50), ("birch", 12)]] {
        assert_eq!(bench.cycle(&samples), other.cycle(&samples));
        assert_eq!(bench.memory, other.memory);
    }
}

#[test]
fn a_sample_beyond_full_counts_as_full_and_one_move_is_still_enough() {
    let mut bench = hot();
    let relief = moved(bench.twice(&[("ash", 125), ("birch", 10)]));
    assert_eq!(relief.src_before, Pressure::FULL);
    bench.take(&relief);
    for _ in 0..5 {
        let outcome = bench.cycle(&[("ash", 125), ("birch", 10)]);
        assert_eq!(outcome, CycleOutcome::Calm, "it is on its way, and counted");
    }
}
