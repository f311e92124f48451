//! Passes over a test cell: each one linted, applied, and, where asked, obeyed until nothing is left to do.

use std::collections::BTreeSet;

use plimsoll_model::testkit::Cell;
use plimsoll_model::{ServiceKey, Writer};

use crate::place::Roster;
use crate::{Decision, Policy, Scope, Signals, lint, reconcile};

/// What a pass would do now.
pub(crate) fn decide(cell: &Cell) -> Decision {
    let policy = Policy::default();
    let mut roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let before = format!("{roster:?}");
    let decision = reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now);
    assert_eq!(before, format!("{roster:?}"), "a pass leaves the roster as it was");
    let all: BTreeSet<ServiceKey> = cell.state.services().keys().cloned().collect();
    let scope = Scope::Services(&all);
    let by_looking = reconcile(&cell.state, &mut roster, &policy, scope, cell.now);
    assert_eq!(decision, by_looking, "a service passed over has no replica with something to do");
    let broken = lint::plan(&cell.state, &decision.batch);
    assert!(broken.is_empty(), "the plan breaks {broken:#?}");
    decision
}

pub(crate) trait Passes {
    /// One pass, applied.
    fn pass(self) -> Self;
    /// Passes, with every node doing as it is told, until there is nothing left to do.
    fn settle(self) -> Self;
}

impl Passes for Cell {
    fn pass(mut self) -> Self {
        let decision = decide(&self);
        self.apply(Writer::Scheduler, decision.batch).expect("a decision can be applied");
        self
    }

    fn settle(mut self) -> Self {
        for _ in 0..1_000 {
            if decide(&self).batch.is_empty() {
                return self;
            }
            self = self.pass().obey();
        }
        panic!("the cell does not settle: {:?}", decide(&self).batch);
    }
}
