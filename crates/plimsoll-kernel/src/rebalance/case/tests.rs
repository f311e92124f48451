use plimsoll_model::testkit::{Cell, cell, cpus, node_id, pack, replica_id, spread};
use plimsoll_model::{Bytes, MilliCpus, Writer};

use super::super::{Limits, Outcome, cycle};
use super::*;
use crate::place::Roster;
use crate::policy::Policy;
use crate::signals::Signals;
use crate::testkit::Passes;

/// A cell with a bit of everything, long after it was placed.
fn mixed() -> Cell {
    let cell = cell().node("ash", cpus(4).label("disk", "ssd")).deploy(
        "d",
        [
            ("a", pack(4).reserve(200, 128)),
            ("b", spread(1).volume("data").reserve(300, 64)),
            ("c", spread(1).wants_label("disk", "ssd").host_port(80)),
        ],
    );
    let cell = cell.settle().node("birch", cpus(8)).node("cedar", cpus(2)).cordon("cedar");
    cell.later(Millis::minutes(30))
}

/// What a live leader would do, and the case written down before each cycle.
struct Live {
    cell: Cell,
    memory: Memory,
}

impl Live {
    fn readings(&self, ash: u32) -> Readings {
        let sample = |percent| Sample {
            at: Timestamp(self.cell.now.0 - 1_234),
            pressure: [Pressure::percent(percent), Pressure::percent(percent / 2)],
        };
        let usage = |milli| Usage { cpu: MilliCpus(milli), memory: Bytes(77 << 20) };
        Readings {
            nodes: BTreeMap::from([
                (node_id("ash"), sample(ash)),
                (node_id("birch"), sample(11)),
                (node_id("cedar"), sample(3)),
            ]),
            replicas: (1..=4)
                .map(|nth| (replica_id(&format!("d/a/{nth}")), usage(500 + 100 * nth)))
                .collect(),
        }
    }

    /// One cycle, with its case.
    fn cycle(&mut self, ash: u32) -> (Case, Outcome) {
        self.cell.now = self.cell.now.plus(Millis::seconds(30));
        let (now, readings) = (self.cell.now, self.readings(ash));
        let mut case = Case::of(&self.cell.state, &self.memory);
        case.push(now, &readings);
        let (policy, limits) = (Policy::default(), Limits::default());
        let roster = Roster::new(&self.cell.state, &Signals::default(), &policy);
        let state = &self.cell.state;
        let outcome = cycle(state, &roster, &policy, &limits, &readings, &mut self.memory, now);
        (case, outcome)
    }
}

/// All of it but which generation it was decided on: a replay numbers its own.
fn told(outcome: &Outcome) -> String {
    let Outcome::Moved { change, relief } = outcome else { return format!("{outcome:?}") };
    format!("{:?} {relief:?}", change.change)
}

#[test]
fn a_case_that_a_live_cell_writes_replays_to_what_was_decided() {
    let mut live = Live { cell: mixed(), memory: Memory::default() };
    let mut decided = Vec::new();
    for (nth, ash) in [96, 96, 97, 99, 99, 99, 99, 99, 99, 99, 99, 99, 70].into_iter().enumerate() {
        let (case, outcome) = live.cycle(ash);
        let steps = case.replay(&Policy::default(), &Limits::default()).unwrap();
        let [step] = &steps[..] else { panic!("one cycle") };
        assert_eq!(told(&step.outcome), told(&outcome), "cycle {nth}");
        if let Outcome::Moved { change, .. } = &outcome {
            live.cell.apply(Writer::Scheduler, vec![(**change).clone()]).unwrap();
            decided.push(nth);
        } else if nth % 3 == 0 {
            live.cell = live.cell.clone().obey().pass().obey();
        }
    }
    assert!(decided.len() > 1, "something was decided: {decided:?}");
}

#[test]
fn a_sequence_carries_its_moves_out() {
    let live = Live { cell: mixed(), memory: Memory::default() };
    let mut case = Case::of(&live.cell.state, &live.memory);
    for nth in 1..=6 {
        let now = live.cell.now.plus(Millis::seconds(30 * nth));
        let at = Live { cell: Cell { now, ..live.cell.clone() }, memory: Memory::default() };
        case.push(now, &at.readings(if nth < 4 { 96 } else { 60 }));
    }
    let outcomes = |case: &Case| -> String {
        let steps = case.replay(&Policy::default(), &Limits::default()).unwrap();
        let letter = |step: &Step| match step.outcome {
            Outcome::Calm => 'c',
            Outcome::Skipped(_) => 's',
            Outcome::Moved { .. } => 'M',
        };
        steps.iter().map(letter).collect()
    };
    assert_eq!(outcomes(&case), "cMcccc", "one move is enough");
    case.moves_take = Millis::minutes(10);
    assert_eq!(outcomes(&case), "cMcccc", "what is under way counts as done");
    case.cycles.swap(0, 5);
    let wrong = case.replay(&Policy::default(), &Limits::default()).unwrap_err();
    assert!(wrong.to_string().starts_with("cycle 2 lies at "), "{wrong}");
}

#[test]
fn a_case_that_cannot_be_is_refused() {
    let live = Live { cell: mixed(), memory: Memory::default() };
    let mut case = Case::of(&live.cell.state, &live.memory);
    case.nodes.remove(&node_id("ash"));
    let wrong = case.replay(&Policy::default(), &Limits::default()).unwrap_err();
    assert_eq!(wrong.to_string(), "the case describes a cell that cannot be: there is no node ash");
}

#[test]
fn what_gates_say_stands_beside_what_was_decided() {
    let mut live = Live { cell: mixed(), memory: Memory::default() };
    live.cycle(96);
    let (case, outcome) = live.cycle(96);
    let Outcome::Moved { relief, .. } = outcome else { panic!("{outcome:?}") };
    let steps = case.replay(&Policy::default(), &Limits::default()).unwrap();
    let weighing = steps[0].weighing.as_ref().unwrap();
    assert!(weighing.gates.iter().all(|gate| gate.passes), "{weighing:?}");
    let first = &weighing.candidates[0];
    assert_eq!((&first.replica, &first.dst), (&relief.replica, &relief.dst));
    assert!(first.gates.iter().all(|gate| gate.passes), "{first:?}");
}
