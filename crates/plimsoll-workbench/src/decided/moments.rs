//! The cell as it was when a replica's turn came: what its node was chosen from, not what the rest of the pass made
//! of it.

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::plan::{ReplicaFate, ReplicaOutcome};
use plimsoll_model::{Change, Guarded, ServiceKey, State};

use super::{Decided, apply};

/// Goes along with a pass. Asked in the order of the batch, it takes one step for each change; asked out of order, it
/// starts again.
#[derive(Debug)]
pub struct Moments<'d> {
    decided: &'d Decided,
    before: CellMoment,
    going: CellMoment,
    /// How many changes of the batch `going` has seen.
    seen: usize,
    /// The service whose retired replicas `going` has let go of, if it has.
    let_go: Option<ServiceKey>,
    after: CellMoment,
}

/// A state, and the roster true to it.
#[derive(Debug)]
pub struct CellMoment {
    pub state: State,
    pub roster: Roster,
}

impl<'d> Moments<'d> {
    pub fn new(decided: &'d Decided) -> Self {
        let moment = |state: &State| {
            let cell = &decided.before;
            let roster = Roster::new(state, &cell.signals, &cell.policy);
            CellMoment { state: state.clone(), roster }
        };
        let before = moment(&decided.before.state);
        let going = moment(&decided.before.state);
        Self { decided, before, going, seen: 0, let_go: None, after: moment(&decided.after) }
    }

    /// When the outcome was decided; for what stays, when all is done.
    pub fn of(&mut self, outcome: &ReplicaOutcome) -> &mut CellMoment {
        match (&outcome.fate, self.decided.position(&outcome.id)) {
            (ReplicaFate::Retired { .. } | ReplicaFate::Preempted { .. }, _) => &mut self.before,
            // Where the old copy stands beside the new one, or makes way for it, only the cell before makes sense.
            (ReplicaFate::Moved { from, .. }, _) if *from == outcome.node => &mut self.before,
            (ReplicaFate::Placed { .. } | ReplicaFate::Moved { .. }, Some(position)) => {
                self.go_to(position);
                &mut self.going
            }
            (ReplicaFate::Placed { .. } | ReplicaFate::Moved { .. }, None)
            | (ReplicaFate::Stays { .. }, _) => &mut self.after,
        }
    }

    /// When the pass is over.
    pub fn end(&mut self) -> &mut CellMoment {
        &mut self.after
    }

    fn go_to(&mut self, position: usize) {
        let cell = &self.decided.before;
        let batch = &self.decided.batch;
        let service = batch[position].change.replica().map(|replica| &replica.service);
        if self.seen > position + 1 || (self.let_go.is_some() && self.let_go.as_ref() != service) {
            (self.seen, self.let_go) = (0, None);
            self.going.state = cell.state.clone();
            self.going.roster = Roster::new(&cell.state, &cell.signals, &cell.policy);
        }
        let next: Vec<Guarded> = (self.seen..=position)
            .filter(|at| counts(batch, *at, service))
            .map(|at| batch[at].clone())
            .collect();
        if next
            .iter()
            .any(|guarded| matches!(guarded.change, Change::Retire { .. } | Change::Evict { .. }))
        {
            self.let_go = service.cloned();
        }
        let events =
            apply(&mut self.going.state, cell, &next).expect("the whole batch could be applied");
        self.going.roster.follow(&self.going.state, &cell.signals, &cell.policy, &events);
        self.seen = position + 1;
    }
}

/// Whether a change counts for what is decided after it in the same pass. What leaves still holds its room until its
/// node has stopped it, so to other services it is as if it stayed; and what is renewed in its own place takes no
/// more room than it had.
fn counts(batch: &[Guarded], at: usize, service: Option<&ServiceKey>) -> bool {
    let replica = batch[at].change.replica();
    match &batch[at].change {
        Change::Retire { replica } | Change::Evict { replica } => Some(&replica.service) == service,
        Change::Promote { .. } => false,
        Change::Succeed { .. } => !batch.get(at + 1).is_some_and(|next| {
            matches!(next.change, Change::Promote { .. }) && next.change.replica() == replica
        }),
        _ => true,
    }
}
