//! One pass over a cell and what became of each replica in it: placed, moved, retired, or left where it is.
//!
//! The deciding and the plan are the kernel's own; here the batch is checked.

use std::collections::BTreeMap;

use plimsoll_kernel::plan::{self, Plan, PlannedPass};
use plimsoll_kernel::{Decision, lint};
use plimsoll_model::{
    Author, Change, Command, Event, Guarded, Rejection, ReplicaId, State, Term, Writer,
};

use crate::case::CellSnapshot;
use crate::error::PlanError;

mod moments;

pub use moments::{CellMoment, Moments};

/// How many comparisons the brute-force check of a plan may cost: a second or two. It grows with what is placed times
/// the nodes, and a cell beyond it is checked by the tests of the kernel instead.
const MAX_LINT_STEPS: usize = 100_000_000;

/// A cell, what the scheduler decides on it, and the cell once that is applied.
#[derive(Debug)]
pub struct Decided {
    pub before: CellSnapshot,
    pub after: State,
    /// Whether the plan was small enough to be checked by brute force.
    pub is_checked: bool,
    batch: Vec<Guarded>,
    pub plan: Plan,
    /// Which change of the batch decided on a replica.
    positions: BTreeMap<ReplicaId, usize>,
}

impl Decided {
    pub fn new(before: CellSnapshot) -> Result<Self, PlanError> {
        let CellSnapshot { state, signals, policy, now } = &before;
        let PlannedPass { decision, plan, after } =
            plan::next_pass(state, signals, policy, *now)
                .map_err(|rejection| PlanError::Rejected(Box::new(rejection)))?;
        let is_checked = check(state, &decision)?;
        let batch = decision.batch;
        let positions = batch.iter().enumerate().filter_map(|(position, guarded)| {
            let (Change::Place { replica, .. }
            | Change::Succeed { replica, .. }
            | Change::Evict { replica }
            | Change::Retire { replica }) = &guarded.change
            else {
                return None;
            };
            Some((replica.clone(), position))
        });
        let positions = positions.collect();
        Ok(Self { before, after, is_checked, batch, plan, positions })
    }

    /// Which change of the batch decided on the replica; none for one that stays.
    pub fn position(&self, id: &ReplicaId) -> Option<usize> {
        self.positions.get(id).copied()
    }
}

fn apply(
    state: &mut State,
    cell: &CellSnapshot,
    batch: &[Guarded],
) -> Result<Vec<Event>, Rejection> {
    let author = Author::new(Writer::Scheduler, "case");
    let command = Command::new(cell.now, Term(1), author, batch.to_vec());
    state.apply(&command)
}

/// A plan that breaks a rule must not be shown as if it were good; whether it was checked at all.
fn check(state: &State, decision: &Decision) -> Result<bool, PlanError> {
    let chosen = decision.batch.len();
    if chosen.saturating_mul(state.nodes().len()) > MAX_LINT_STEPS {
        return Ok(false);
    }
    let broken = lint::plan(state, &decision.batch);
    if broken.is_empty() { Ok(true) } else { Err(PlanError::Broken(broken)) }
}
