//! A whole run: steps until the end, invariants after each, and a settled cell at last.

use std::fmt;

use plimsoll_model::{Millis, Timestamp};

use crate::invariants::{self, Broken, settled};
use crate::report::Report;
use crate::scenario::Scenario;
use crate::world::{EPOCH, World};

/// A hot node may be relieved at any time. What is under way at the end has so long to come to its own.
const OVERTIME: Millis = Millis::minutes(3);

/// How long after the last scripted thing the cell may still be busy.
pub const SETTLING: Millis = Millis::minutes(10);

#[derive(Debug)]
pub struct RunOutcome {
    pub seed: u64,
    pub report: Report,
    pub failure: Option<InvariantFailure>,
}

/// A promise that was broken, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvariantFailure {
    pub seed: u64,
    pub at: Millis,
    pub broken: Broken,
}

impl fmt::Display for InvariantFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} with seed {}: {}", self.at, self.seed, self.broken)
    }
}

/// Runs the scenario with this seed. `progress` is told of the time now and then.
pub fn run(scenario: &Scenario, seed: u64, progress: &mut dyn FnMut(Millis)) -> RunOutcome {
    let mut world = World::new(scenario, seed);
    let mut report = Report::new(&world);
    let mut invariants = invariants::all();
    let end = EPOCH.plus(scenario.length);
    let mut failure = None;
    while failure.is_none() && world.step(end) {
        let broken = invariants::check(&mut invariants, &world).err();
        failure = broken.map(|broken| InvariantFailure { seed, at: world.elapsed(), broken });
        report.note(&world);
        if world.is_cycle {
            progress(world.elapsed());
        }
    }
    let quiet = scenario.length.0.saturating_sub(scenario.last_action().0);
    if failure.is_none() && quiet >= SETTLING.0 {
        failure = unsettled(&mut world, seed, end);
    }
    RunOutcome { seed, report, failure }
}

/// What is wrong with the cell at the end, unless there is a moment soon after it when nothing is.
fn unsettled(world: &mut World<'_>, seed: u64, end: Timestamp) -> Option<InvariantFailure> {
    let at = world.elapsed();
    let broken = settled::check(world).err()?;
    let mut is_settled = false;
    while !is_settled && world.step(end.plus(OVERTIME)) {
        is_settled = !world.applied.is_empty() && settled::check(world).is_ok();
    }
    (!is_settled).then_some(InvariantFailure { seed, at, broken })
}
