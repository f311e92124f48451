//! Why each replica of a described cell is where it is, or why it is nowhere: a sentence, and what every node has to say.

use plimsoll_kernel::explain::{self, PlacementExplanation, PreemptionExplanation};
use plimsoll_kernel::place::{NodeVerdict, Score};
use plimsoll_kernel::plan::{ReplicaFate, ReplicaOutcome};
use plimsoll_kernel::preempt::NoVictims;
use plimsoll_model::{Mode, NodeId, ReplicaId, ServiceKey, Slot, State};
use serde::Serialize;
use serde_json::Value;

use crate::decided::{CellMoment, Decided, Moments};
use crate::text::count;

mod name;
mod sentence;

pub use name::NameError;
use name::NamedSubject;

#[derive(Debug, Serialize)]
pub struct SubjectExplanation {
    /// The replica's name, or the service's.
    pub subject: String,
    pub service: String,
    pub placement: &'static str,
    /// Where the replica is or goes; none for one that has no place.
    pub node: Option<NodeId>,
    /// What becomes of it: placed, moved, stays or retired; of a service, complete or unplaced.
    pub outcome: &'static str,
    pub why: String,
    /// Best first.
    pub nodes: Vec<NodeExplanation>,
    /// What becomes of it, as a sentence begins.
    #[serde(skip)]
    pub headline: String,
}

/// What one node had to say.
#[derive(Debug, Serialize)]
pub struct NodeExplanation {
    pub node: NodeId,
    /// `chosen` for the replica's new node, `here` for the one it stays on.
    pub place: Option<&'static str>,
    /// Other replicas of the service there.
    pub replicas: u32,
    pub score: Option<u16>,
    pub parts: Option<Score>,
    pub filter: Option<FilterExplanation>,
    /// Of a `global` service: the replica the node has already.
    pub holds: Option<String>,
    /// Of a service that finds no room: who would make way for it there, or why nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct FilterExplanation {
    pub word: String,
    pub detail: String,
    /// The numbers that decided; null where the word says it all.
    pub numbers: Value,
}

/// Every replica, then every service that lacks some.
pub fn all(decided: &Decided) -> Vec<SubjectExplanation> {
    let mut moments = Moments::new(decided);
    // In the order they were decided, so that the cell is built up once.
    let mut explained: Vec<(&ReplicaId, SubjectExplanation)> = decided
        .plan
        .outcomes
        .iter()
        .filter_map(|outcome| {
            let of = SubjectExplanation::of_replica(decided, outcome, moments.of(outcome))?;
            Some((&outcome.id, of))
        })
        .collect();
    explained.sort_by_key(|(id, _)| *id);
    let lacking: Vec<SubjectExplanation> = decided
        .plan
        .unplaced
        .keys()
        .filter_map(|key| SubjectExplanation::of_service(decided, key, moments.end()))
        .collect();
    explained.into_iter().map(|(_, of)| of).chain(lacking).collect()
}

/// The replica or service that a person means by this name.
pub fn subject(decided: &Decided, text: &str) -> Result<SubjectExplanation, NameError> {
    let mut moments = Moments::new(decided);
    let explained = match name::find(decided, text)? {
        NamedSubject::Replica(outcome) => {
            SubjectExplanation::of_replica(decided, outcome, moments.of(outcome))
        }
        NamedSubject::Service(key) => SubjectExplanation::of_service(decided, key, moments.end()),
    };
    explained.ok_or_else(|| NameError::Unexplained(text.to_owned()))
}

impl SubjectExplanation {
    fn of_replica(
        decided: &Decided,
        outcome: &ReplicaOutcome,
        moment: &mut CellMoment,
    ) -> Option<Self> {
        let (cell, CellMoment { state, roster }) = (&decided.before, moment);
        let volumes = match &outcome.fate {
            ReplicaFate::Placed { .. } => &cell.state,
            ReplicaFate::Moved { .. }
            | ReplicaFate::Retired { .. }
            | ReplicaFate::Preempted { .. }
            | ReplicaFate::Stays { .. } => &*state,
        };
        let explanation =
            explain::placed(state, volumes, roster, &cell.policy, &outcome.id, cell.now)?;
        let why = sentence::of_replica(decided, outcome, &explanation);
        let headline = match &outcome.fate {
            ReplicaFate::Placed { .. } => format!("goes to {}", outcome.node),
            ReplicaFate::Moved { from, .. } if *from == outcome.node => {
                format!("is being replaced on {from}")
            }
            ReplicaFate::Moved { from, .. } => format!("moves from {from} to {}", outcome.node),
            ReplicaFate::Retired { .. } => format!("leaves {}", outcome.node),
            ReplicaFate::Preempted { .. } => format!("is stopped on {}", outcome.node),
            ReplicaFate::Stays { .. } => format!("stays on {}", outcome.node),
        };
        let is_retired =
            matches!(outcome.fate, ReplicaFate::Retired { .. } | ReplicaFate::Preempted { .. });
        let mut nodes = nodes(state, &explanation);
        for node in nodes.iter_mut().filter(|node| node.node == outcome.node) {
            let is_chosen = decided.position(&outcome.id).is_some();
            node.place = Some(if is_chosen { "chosen" } else { "here" });
        }
        if is_retired {
            nodes.clear();
        }
        Some(Self {
            subject: outcome.id.to_string(),
            service: outcome.id.service.to_string(),
            placement: explanation.mode,
            node: Some(outcome.node.clone()).filter(|_| !is_retired),
            outcome: outcome.fate.word(),
            why,
            nodes,
            headline,
        })
    }

    fn of_service(decided: &Decided, key: &ServiceKey, moment: &mut CellMoment) -> Option<Self> {
        let (cell, CellMoment { state, roster }) = (&decided.before, moment);
        let explanation = explain::next_of(state, roster, &cell.policy, key, cell.now)?;
        let service = state.service(key)?;
        let mut nodes = nodes(state, &explanation);
        if service.row.unplaced.is_some() {
            let id = &explanation.replica;
            let found = explain::preemption(state, roster, &cell.policy, id, cell.now);
            note_preemption(state, &mut nodes, found);
        }
        let (headline, why, outcome) = if let Some(unplaced) = &service.row.unplaced {
            let missing = count(unplaced.missing as usize, "replica");
            (format!("lacks {missing}"), unplaced.why.to_string(), "unplaced")
        } else {
            let have = service.replicas.values().filter(|r| r.assignment.is_some()).count();
            let headline = format!("is complete with {}", count(have, "replica"));
            (headline, sentence::next_of(&explanation), "complete")
        };
        Some(Self {
            subject: key.to_string(),
            service: key.to_string(),
            placement: explanation.mode,
            node: None,
            outcome,
            why,
            nodes,
            headline,
        })
    }
}

/// Who would make way on each node, where anything in the cell has a lower priority.
fn note_preemption(
    state: &State,
    nodes: &mut [NodeExplanation],
    found: Option<PreemptionExplanation>,
) {
    let Some(found) = found else { return };
    let mut services = state.services().values().filter_map(|it| it.desired());
    if !services.any(|spec| spec.priority < found.priority) {
        return;
    }
    for node in nodes {
        let said = found.nodes.iter().find(|(id, _)| *id == node.node).map(|(_, said)| said);
        node.preemption = match said {
            None | Some(Err(NoVictims::Closed(_))) => None,
            Some(Err(why)) => Some(format!("nobody makes way: {why}")),
            Some(Ok(set)) => {
                let victims: Vec<String> = set.victims.keys().map(ToString::to_string).collect();
                let word = if found.best.as_ref() == Some(&node.node) { "would" } else { "could" };
                Some(format!("{} {word} make way", victims.join(", ")))
            }
        };
    }
}

fn nodes(state: &State, explanation: &PlacementExplanation) -> Vec<NodeExplanation> {
    let is_global = explanation.mode == Mode::Global.word();
    let view = |verdict: &NodeVerdict| {
        let other =
            ReplicaId::new(explanation.replica.service.clone(), Slot::Node(verdict.node.clone()));
        let held = state.replica(&other).is_some_and(|replica| replica.assignment.is_some());
        let is_held = is_global && held && other != explanation.replica;
        // A `global` service does not choose between nodes, so it has no use for a score.
        let parts = verdict.score.filter(|_| !is_global);
        NodeExplanation {
            node: verdict.node.clone(),
            place: None,
            replicas: verdict.here,
            score: parts.map(Score::total),
            parts,
            filter: verdict.filter.as_ref().filter(|_| !is_held).map(|filter| FilterExplanation {
                word: filter.word().to_string(),
                detail: filter.to_string(),
                numbers: numbers(filter),
            }),
            holds: is_held.then(|| other.to_string()),
            preemption: None,
        }
    };
    explanation.verdicts.iter().map(view).collect()
}

fn numbers(filter: &plimsoll_model::reason::Filter) -> Value {
    match serde_json::to_value(filter) {
        Ok(Value::Object(tagged)) => tagged.into_iter().next().map_or(Value::Null, |(_, v)| v),
        _ => Value::Null,
    }
}
