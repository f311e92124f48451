//! One pass over a cell and what became of each replica in it: placed, moved, retired, or left where it is.
//!
//! The deciding is the kernel's own; here its batch is checked, applied to a copy, and read back by replica.

use std::collections::BTreeMap;

use plimsoll_kernel::explain::misplaced;
use plimsoll_kernel::place::{Roster, Score};
use plimsoll_kernel::{Decision, Scope, lint, reconcile};
use plimsoll_model::reason::{Unplaced, Waiting};
use plimsoll_model::{
    Author, Change, Command, Event, Guarded, Millis, Mode, MoveCause, NodeId, NodeStatus,
    Rejection, Replica, ReplicaId, ServiceKey, State, Term, Writer,
};

use crate::case::Cell;
use crate::output::note;
use crate::trouble::Trouble;

mod moments;

pub(crate) use moments::{Moment, Moments};

/// How many comparisons the brute-force check of a plan may cost: a second or two. It grows with what is placed times
/// the nodes, and a cell beyond it is checked by the tests of the kernel instead.
const MAX_LINT_STEPS: usize = 100_000_000;

/// A cell, what the scheduler decides on it, and the cell once that is applied.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) before: Cell,
    pub(crate) after: State,
    decision: Decision,
    /// By replica.
    pub(crate) outcomes: Vec<Outcome>,
}

/// What becomes of one replica.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) id: ReplicaId,
    /// Where it is, or goes; of a retired one, where it was.
    pub(crate) node: NodeId,
    pub(crate) fate: Fate,
    /// Which change of the batch decided it.
    pub(crate) position: Option<usize>,
}

#[derive(Debug, Clone)]
pub(crate) enum Fate {
    /// New; `global` takes every node it may, so it has no score.
    Placed {
        score: Option<Score>,
    },
    Moved {
        from: NodeId,
        cause: MoveCause,
        score: Option<Score>,
    },
    Retired,
    Stays(Stay),
}

/// Why a replica is left where it is.
#[derive(Debug, Clone)]
pub(crate) enum Stay {
    /// Its node may hold it, and existing placements on eligible nodes stay.
    Settled,
    /// Its node is down but may come back.
    InGrace { left: Millis },
    /// Its node is down, and a `global` service has no other place for it.
    NodeDown,
    /// It has to change, but one replica of a service does so at a time.
    InTurn(MoveCause),
    /// It has to move and cannot.
    Waits(Waiting),
}

impl Stay {
    /// Why it stays: a word, and the rest as a person reads it.
    pub(crate) fn words(&self) -> (&'static str, String) {
        match self {
            Self::Settled => ("settled", "existing placements on eligible nodes stay".to_owned()),
            Self::InGrace { left } => (
                "in_grace",
                format!("its node is down; it is replaced in {left} unless it returns"),
            ),
            Self::NodeDown => {
                ("node_down", "its node is down, and global has no other place for it".to_owned())
            }
            Self::InTurn(cause) => {
                let why = match cause {
                    MoveCause::Outdated => "it runs an older spec",
                    MoveCause::Restart => "it is to start anew",
                    MoveCause::Pressure => "its node stays hot",
                    MoveCause::Misplaced => "its node may not hold it any more",
                    MoveCause::NodeLost => "its node is lost",
                };
                ("in_turn", format!("{why}; one replica of a service changes at a time"))
            }
            Self::Waits(waiting) => (waiting.word(), waiting.to_string()),
        }
    }
}

impl Decided {
    pub(crate) fn new(before: Cell) -> Result<Self, Trouble> {
        let mut roster = Roster::new(&before.state, &before.signals, &before.policy);
        let decision =
            reconcile(&before.state, &mut roster, &before.policy, Scope::All, before.now);
        check(&before.state, &decision)?;
        let mut after = before.state.clone();
        apply(&mut after, &before, &decision.batch).map_err(|rejection| {
            bug(&format!("the state refuses its own scheduler's plan: {rejection}"))
        })?;
        let mut decided = Self { before, after, decision, outcomes: Vec::new() };
        decided.outcomes = decided.read_back();
        Ok(decided)
    }

    pub(crate) fn outcome(&self, id: &ReplicaId) -> Option<&Outcome> {
        let at = self.outcomes.binary_search_by(|outcome| outcome.id.cmp(id)).ok()?;
        self.outcomes.get(at)
    }

    /// The services that lack replicas, and why.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = (&ServiceKey, &Unplaced)> {
        self.after
            .unplaced()
            .iter()
            .filter_map(|key| Some((key, self.after.service(key)?.row.unplaced.as_ref()?)))
    }

    fn read_back(&self) -> Vec<Outcome> {
        let mut outcomes = BTreeMap::new();
        let scores: BTreeMap<usize, Score> = self.decision.scores.iter().copied().collect();
        for (position, guarded) in self.decision.batch.iter().enumerate() {
            let score = scores.get(&position).copied();
            let (id, node, fate) = match &guarded.change {
                Change::Place { replica, node, .. } => {
                    (replica, node.clone(), Fate::Placed { score })
                }
                Change::Succeed { replica, node, cause, .. } => {
                    let Some(from) = self.home(replica) else { continue };
                    (replica, node.clone(), Fate::Moved { from, cause: *cause, score })
                }
                Change::Retire { replica } => {
                    let Some(from) = self.home(replica) else { continue };
                    (replica, from, Fate::Retired)
                }
                _ => continue,
            };
            let outcome = Outcome { id: id.clone(), node, fate, position: Some(position) };
            outcomes.insert(id.clone(), outcome);
        }
        for (id, replica) in self.after.replicas() {
            let Some(assignment) = &replica.assignment else { continue };
            outcomes.entry(id.clone()).or_insert_with(|| Outcome {
                node: assignment.node.clone(),
                fate: Fate::Stays(self.stay(&id, replica)),
                position: None,
                id,
            });
        }
        outcomes.into_values().collect()
    }

    fn home(&self, id: &ReplicaId) -> Option<NodeId> {
        Some(self.before.state.replica(id)?.assignment.as_ref()?.node.clone())
    }

    fn stay(&self, id: &ReplicaId, replica: &Replica) -> Stay {
        if let Some(waiting) = &replica.waiting {
            return Stay::Waits(waiting.clone());
        }
        let service = self.after.service(&id.service);
        let (Some(assignment), Some(spec)) =
            (&replica.assignment, service.and_then(|service| service.desired()))
        else {
            return Stay::Settled;
        };
        let Some(node) = self.after.node(&assignment.node) else { return Stay::Settled };
        if node.status == NodeStatus::Down {
            let until = node.status_since.plus(self.before.policy.loss_grace);
            return match spec.placement.mode {
                Mode::Global => Stay::NodeDown,
                _ => Stay::InGrace { left: until.since(self.before.now) },
            };
        }
        if misplaced(spec, &assignment.node, node).is_some() {
            return Stay::InTurn(MoveCause::Misplaced);
        }
        if assignment.spec == spec.hash { Stay::Settled } else { Stay::InTurn(MoveCause::Outdated) }
    }
}

fn apply(state: &mut State, cell: &Cell, batch: &[Guarded]) -> Result<Vec<Event>, Rejection> {
    let author = Author::new(Writer::Scheduler, "case");
    let command = Command::new(cell.now, Term(1), author, batch.to_vec());
    state.apply(&command)
}

/// A plan that breaks a rule must not be printed as if it were good.
fn check(state: &State, decision: &Decision) -> Result<(), Trouble> {
    let chosen = decision.batch.len();
    if chosen.saturating_mul(state.nodes().len()) > MAX_LINT_STEPS {
        note("note: the plan is too large to be checked by brute force here");
        return Ok(());
    }
    let broken = lint::plan(state, &decision.batch);
    if broken.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = broken.iter().map(|violation| format!("\n  {violation}")).collect();
    Err(bug(&format!("the plan breaks its own rules:{}", list.concat())))
}

fn bug(message: &str) -> Trouble {
    Trouble::failed(message).hint("this is a bug in plimsoll: please report it with the case file")
}
