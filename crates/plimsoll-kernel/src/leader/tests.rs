use plimsoll_model::reason::UnplacedReason;
use plimsoll_model::testkit::{Cell, cell, cpus, node_id, pack, replica_id, spread};
use plimsoll_model::{Bytes, MilliCpus, NodeStatus, Pressure};

use super::*;
use crate::rebalance::replay;
use crate::testkit::Passes;

/// A cell and who leads it, with nodes that do at once as they are told.
struct Led {
    cell: Cell,
    leader: Leader,
    /// A node that does not say that it is alive.
    silent: Option<NodeId>,
}

impl Led {
    fn new(cell: Cell) -> Self {
        Self { leader: Leader::new(Policy::default(), cell.now), cell, silent: None }
    }

    fn later(mut self, span: Millis) -> Self {
        self.cell = self.cell.later(span);
        self
    }

    /// Each node says how busy it is, in hundredths of cpu, and each replica uses a core less a little; all of it measured
    /// so long ago.
    fn measure(&mut self, nodes: &[(&str, u32)], ago: Millis) {
        let (now, at) = (self.cell.now, Timestamp(self.cell.now.0 - ago.0));
        for (node, percent) in nodes {
            let pressure = NodePressure::new(Pressure::percent(*percent), Pressure::percent(10));
            self.leader.sample(&node_id(node), Some(PressureSample { at, pressure }), now);
        }
        let usage = ReplicaUsage { cpu: MilliCpus(960), memory: Bytes(1 << 20) };
        let replicas = self
            .cell
            .state
            .replicas()
            .filter_map(|(id, replica)| Some((id, replica.assignment.as_ref()?.generation)));
        let replicas: Vec<_> = replicas.collect();
        let usages = replicas.iter().map(|(id, generation)| (id, *generation, usage));
        self.leader.usage(&self.cell.state, usages);
    }

    /// A whole turn: what each step wrote, as the audit tells it.
    fn turn(&mut self) -> Vec<String> {
        let nodes = self.cell.state.nodes().keys();
        for node in nodes.filter(|node| self.silent.as_ref() != Some(node)) {
            self.leader.heartbeat(node, self.cell.now);
        }
        let before = self.cell.state.audit().next_seq();
        for step in LeaderStep::TURN {
            let batch = self.leader.decide(step, &self.cell.state, self.cell.now);
            let events = self.cell.apply(step.writer(), batch).expect("decided on this very state");
            self.leader.follow(&self.cell.state, &events);
        }
        let said = self.cell.state.audit().since(before).map(|event| event.what.to_string());
        said.collect()
    }
}

/// Four replicas on one node, and another that has none and joined since.
fn hot() -> Led {
    let cell = cell().node("ash", cpus(4)).deploy("d", [("s", pack(4))]).settle();
    Led::new(cell.node("birch", cpus(4)).later(Millis::minutes(20)))
}

const HOT: [(&str, u32); 2] = [("ash", 96), ("birch", 10)];
const CYCLE: Millis = Millis::seconds(30);

#[test]
fn what_nodes_say_of_themselves_moves_one_replica_off_the_one_that_stays_hot() {
    let mut led = hot();
    led.turn();
    for cycle in ["one cycle is a spike", "two are a trend"] {
        led = led.later(CYCLE);
        led.measure(&HOT, Millis::seconds(4));
        let said = led.turn();
        if cycle.starts_with("one") {
            assert_eq!(said, Vec::<String>::new(), "{cycle}");
            continue;
        }
        assert_eq!(
            said,
            [
                "d-s-1 moves ash → birch (pressure)",
                "d-s-1 relieves ash of 0.24 cpu and goes to birch: ash 0.96 → 0.72, birch 0.10 → 0.34, score 0.23",
            ]
        );
    }
}

#[test]
fn a_cycle_that_is_replayed_decides_the_same() {
    let mut led = hot();
    led.turn();
    for nth in 0..3 {
        led = led.later(CYCLE);
        led.measure(&HOT, Millis::seconds(4));
        let (state, policy, now) = (&led.cell.state, Policy::default(), led.cell.now);
        let (memory, cycle) = led.leader.rebalancer().next_cycle(state, &policy, now);
        let steps = replay(state.clone(), memory, &[cycle], Millis(0), &policy).unwrap();
        let replayed = steps.into_iter().next().unwrap().outcome.batch();
        let live = led.leader.decide(LeaderStep::Rebalance, state, now);
        let changes =
            |batch: &[Guarded]| batch.iter().map(|it| it.change.clone()).collect::<Vec<_>>();
        assert_eq!(changes(&replayed), changes(&live), "cycle {nth}");
        assert_eq!(live.is_empty(), nth == 0);
    }
}

#[test]
fn what_was_measured_too_long_ago_is_silence_and_one_sample_is_one_cycle() {
    let mut led = hot();
    led.turn();
    for _ in 0..4 {
        led = led.later(CYCLE);
        led.measure(&HOT, Millis::seconds(91));
        assert_eq!(led.turn(), Vec::<String>::new());
    }
    led = led.later(CYCLE);
    led.measure(&HOT, Millis(0));
    for _ in 0..3 {
        assert_eq!(led.turn(), Vec::<String>::new(), "the same sample");
        led = led.later(CYCLE);
    }
}

#[test]
fn a_sample_stops_counting_for_placement_when_it_does_for_the_rebalancer() {
    let mut led = hot();
    let ash = node_id("ash");
    led.measure(&HOT, Millis(0));
    led.turn();
    for (case, later, placement, rebalancer) in [
        ("as long as it is fresh", Policy::default().stale_after(), true, true),
        ("a moment later, though nobody says anything", Millis(1), false, true),
        ("and at the next cycle", CYCLE, false, false),
    ] {
        led = led.later(later);
        led.turn();
        assert_eq!(led.leader.signals().pressure(&ash).is_some(), placement, "{case}");
        let weighed = led.leader.weigh(&led.cell.state, &ash, led.cell.now);
        assert_eq!(weighed.is_some(), rebalancer, "{case}");
        let fresh = Roster::new(&led.cell.state, led.leader.signals(), &Policy::default());
        let kept = led.leader.roster().unwrap();
        assert_eq!(format!("{kept:?}"), format!("{fresh:?}"), "{case}: what is kept is true");
    }
}

#[test]
fn one_turn_finds_a_node_down_and_the_next_steps_see_it() {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let mut led = Led::new(cell.deploy("d", [("s", spread(2))]).settle());
    led.turn();
    let policy = Policy::default();
    led.silent = Some(node_id("birch"));
    led = led.later(policy.node_ttl());
    assert_eq!(led.turn(), ["birch is down"]);
    assert_eq!(led.leader.due(), led.cell.now.plus(policy.loss_grace), "its grace was seen");
    led = led.later(policy.loss_grace);
    assert_eq!(led.turn(), ["d-s-2 moves birch → ash (node_lost)"]);
    assert_eq!(led.cell.state.node(&node_id("birch")).unwrap().status, NodeStatus::Down);
}

#[test]
fn a_new_leader_begins_anew_and_what_was_moved_keeps_its_cooldown() {
    let mut led = hot();
    led.turn();
    for _ in 0..2 {
        led = led.later(CYCLE);
        led.measure(&HOT, Millis(0));
        led.turn();
    }
    led.cell = led.cell.obey().settle();
    let moved = led.cell.placed("d/s")[0].clone();
    led = Led::new(led.cell);
    led.turn();
    for _ in 0..4 {
        led = led.later(CYCLE);
        // Now the other way round: what was just moved there is what there is to move.
        led.measure(&[("ash", 20), ("birch", 96)], Millis(0));
        led.turn();
    }
    let skipped = led.cell.state.audit().events().last().unwrap().what.to_string();
    assert!(skipped.contains("cooldown_replica"), "{skipped}");
    assert_eq!(led.cell.placed("d/s")[0], moved, "{:?}", replica_id("d/s/1"));
}

#[test]
fn a_service_whose_decisions_are_refused_waits_alone_and_loudly() {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let mut led = Led::new(cell.deploy("d", [("bad", spread(2)), ("good", spread(2))]));
    let is_bad = |guarded: &Guarded| {
        guarded.change.replica().is_some_and(|replica| replica.service.service.as_str() == "bad")
    };
    // The state takes nothing that is decided for one service, however often.
    let mut refusals = Vec::new();
    for turn in 0..40 {
        led.cell = led.cell.clone().later(Millis::seconds(5));
        let now = led.cell.now;
        for node in ["ash", "birch"] {
            led.leader.heartbeat(&node_id(node), now);
        }
        let batch = led.leader.decide(LeaderStep::Schedule, &led.cell.state, now);
        if let Some(position) = batch.iter().position(is_bad) {
            let reason = plimsoll_model::Refusal::NoSuchNode { node: node_id("ash") };
            let rejection = Rejection { position, reason };
            let step = LeaderStep::Schedule;
            led.leader.refused(step, &led.cell.state, &batch, &rejection, now);
            refusals.push(turn);
            continue;
        }
        let events = led.cell.apply(Writer::Scheduler, batch).unwrap();
        led.leader.follow(&led.cell.state, &events);
        led.cell = led.cell.clone().obey();
    }
    assert_eq!(led.cell.placed("d/good").len(), 2, "the rest is decided without it");
    // Twice, half a minute later twice, a minute later twice.
    assert_eq!(refusals, [0, 1, 7, 8, 20, 21]);
    let bad = plimsoll_model::testkit::service_key("d/bad");
    let unplaced = led.cell.state.service(&bad).unwrap().row.unplaced.clone().unwrap();
    assert!(matches!(&unplaced.why, UnplacedReason::DecisionRefused { .. }), "{unplaced:?}");
    let said = led.cell.state.audit().events().map(|event| event.what.to_string());
    assert!(said.filter(|said| said.contains("refused")).count() >= 1, "the audit has it");

    // Another revision is another decision.
    led.cell = led.cell.clone().deploy("d", [("bad", spread(1)), ("good", spread(2))]);
    led.leader.start_over(led.cell.now);
    led.turn();
    assert_eq!(led.cell.placed("d/bad").len(), 1);
    let unplaced = led.cell.state.service(&bad).unwrap().row.unplaced.clone();
    assert_eq!(unplaced, None, "the alarm clears itself");
}
