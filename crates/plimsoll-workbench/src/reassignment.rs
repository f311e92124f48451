//! How good a search for cheaper layouts can be: instances of the machine reassignment problem in the format of the
//! ROADEF/EURO challenge of 2012, searched for a stated time, beside what the winners of the challenge published.
//!
//! The search is `plimsoll-optimize`; what it costs to read the clock, and which clock, is the caller's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_optimize::search::WHOLE;
use plimsoll_optimize::{Limits, Problem, referee, search};

mod facts;
mod read;

#[cfg(test)]
mod tests;

pub use facts::{ReassignmentFacts, ReassignmentRow};

use crate::trace::TraceError;

/// A problem and the cost that the winning team published for it after 300 seconds.
#[derive(Debug, Clone)]
pub struct Instance {
    pub name: String,
    pub problem: Problem,
    pub winner: Option<i64>,
}

/// How long to search, how many processes may move, and with which chance.
#[derive(Debug, Clone, Copy)]
pub struct SearchTerms {
    pub time: Duration,
    /// The most processes that may be away from where they began, in percent of all.
    pub moved_percent: Option<u32>,
    pub seed: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    #[error(transparent)]
    Files(#[from] TraceError),
    #[error("{} holds no instance", .0.display())]
    Empty(PathBuf),
    #[error("{} has no instance {name}", path.display())]
    NoInstance { path: PathBuf, name: String, known: Vec<String> },
    #[error("{} has no assignment_{name}.txt beside its model", path.display())]
    NoAssignment { path: PathBuf, name: String },
    #[error("{}: {message}", path.display())]
    Malformed { path: PathBuf, message: String },
    #[error("instance {name}: {mistake}")]
    Unsound { name: String, mistake: plimsoll_optimize::ProblemError },
    #[error("instance {name} breaks a rule before anything moves: {broken}")]
    BrokenStart { name: String, broken: referee::Violation },
}

impl InstanceError {
    /// Whether other arguments or files would do: else the world is at fault.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Files(error) => error.is_refusal(),
            _ => true,
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Files(error) => error.hint(),
            Self::NoInstance { known, .. } => Some(format!("it has {}", known.join(", "))),
            _ => {
                let hint =
                    "an instance is model_<name>.txt and assignment_<name>.txt, gzipped or not";
                Some(hint.to_owned())
            }
        }
    }
}

/// The instances of a directory, by name; of those named, if any are.
pub fn instances(directory: &Path, only: &[String]) -> Result<Vec<Instance>, InstanceError> {
    let all = read::instances(directory, only)?;
    for instance in &all {
        let name = || instance.name.clone();
        let problem = &instance.problem;
        problem.check().map_err(|mistake| InstanceError::Unsound { name: name(), mistake })?;
        let broken = referee::violations(problem, &problem.start);
        if let Some(broken) = broken.first().copied() {
            return Err(InstanceError::BrokenStart { name: name(), broken });
        }
    }
    Ok(all)
}

/// Searches one instance. `elapsed` says how long it has been at it.
pub fn improve(
    instance: &Instance,
    terms: SearchTerms,
    elapsed: &mut dyn FnMut() -> Duration,
) -> ReassignmentRow {
    let problem = &instance.problem;
    let all = problem.processes.len();
    let most_moved = terms.moved_percent.map_or(all, |percent| all * percent as usize / 100);
    let mut marks = [(Duration::from_secs(1), None), (Duration::from_secs(5), None)];
    let mut spent = |best: i64| {
        let now = elapsed();
        for (at, cost) in &mut marks {
            if now >= *at && terms.time > *at {
                cost.get_or_insert(best);
            }
        }
        let share = now.as_micros() * u128::from(WHOLE) / terms.time.as_micros().max(1);
        u32::try_from(share).unwrap_or(u32::MAX)
    };
    let limits = Limits { most_moved, seed: terms.seed };
    let found = search(problem, limits, &mut spent);
    // The referee has the last word: neither the cost nor the rules are taken on trust.
    let moved = found.layout.iter().zip(&problem.start).filter(|(to, from)| to != from);
    ReassignmentRow {
        instance: instance.name.clone(),
        moved_percent: terms.moved_percent,
        machines: problem.machines.len(),
        processes: all,
        start: referee::cost(problem, &problem.start).total(),
        after_1s: marks[0].1,
        after_5s: marks[1].1,
        cost: referee::cost(problem, &found.layout).total(),
        winner: instance.winner,
        moved: moved.count(),
        violations: referee::violations(problem, &found.layout).len(),
        steps: found.steps,
        layout: found.layout,
    }
}
