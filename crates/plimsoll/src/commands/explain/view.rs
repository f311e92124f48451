//! One explanation as it is shown: a sentence, and a line for each node.

use plimsoll_kernel::explain::{self, Explanation};
use plimsoll_kernel::place::{Score, Verdict};
use plimsoll_model::{Mode, NodeId, ReplicaId, ServiceKey, Slot, State};
use serde::Serialize;
use serde_json::Value;

use super::sentence;
use crate::commands::decide::parts;
use crate::decided::{Decided, Fate, Moment, Outcome};
use crate::output::count;
use crate::table::Table;

#[derive(Debug, Serialize)]
pub(super) struct View {
    /// The replica's name, or the service's.
    subject: String,
    service: String,
    placement: &'static str,
    /// Where the replica is or goes; none for one that has no place.
    node: Option<NodeId>,
    /// What becomes of it: placed, moved, stays or retired; of a service, complete or unplaced.
    outcome: &'static str,
    why: String,
    /// Best first.
    nodes: Vec<NodeView>,
    #[serde(skip)]
    headline: String,
}

/// What one node had to say.
#[derive(Debug, Serialize)]
struct NodeView {
    node: NodeId,
    /// `chosen` for the replica's new node, `here` for the one it stays on.
    place: Option<&'static str>,
    /// Other replicas of the service there.
    replicas: u32,
    score: Option<u16>,
    parts: Option<Score>,
    filter: Option<FilterView>,
    /// Of a `global` service: the replica the node has already.
    holds: Option<String>,
}

#[derive(Debug, Serialize)]
struct FilterView {
    word: String,
    detail: String,
    /// The numbers that decided; null where the word says it all.
    numbers: Value,
}

impl View {
    pub(super) fn of_replica(
        decided: &Decided,
        outcome: &Outcome,
        moment: &mut Moment,
    ) -> Option<Self> {
        let (cell, Moment { state, roster }) = (&decided.before, moment);
        let explanation = explain::replica(state, roster, &cell.policy, &outcome.id, cell.now)?;
        let why = sentence::of_replica(decided, outcome, &explanation);
        let headline = match &outcome.fate {
            Fate::Placed { .. } => format!("goes to {}", outcome.node),
            Fate::Moved { from, .. } if *from == outcome.node => format!("is renewed on {from}"),
            Fate::Moved { from, .. } => format!("moves from {from} to {}", outcome.node),
            Fate::Retired => format!("leaves {}", outcome.node),
            Fate::Stays(_) => format!("stays on {}", outcome.node),
        };
        let is_retired = matches!(outcome.fate, Fate::Retired);
        let mut nodes = nodes(state, &explanation);
        for node in nodes.iter_mut().filter(|node| node.node == outcome.node) {
            node.place = Some(if outcome.position.is_some() { "chosen" } else { "here" });
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

    pub(super) fn of_service(
        decided: &Decided,
        key: &ServiceKey,
        moment: &mut Moment,
    ) -> Option<Self> {
        let (cell, Moment { state, roster }) = (&decided.before, moment);
        let explanation = explain::next_of(state, roster, &cell.policy, key, cell.now)?;
        let service = state.service(key)?;
        let nodes = nodes(state, &explanation);
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

    pub(super) fn text(&self) -> String {
        let mut table = Table::list(3);
        for node in &self.nodes {
            let (word, detail) = node.words(&self.service);
            table.row([node.node.to_string(), word, detail]);
        }
        format!("{} {}: {}\n{}", self.subject, self.headline, self.why, table.render())
    }
}

/// One line each.
pub(super) fn short(views: &[View]) -> String {
    let mut table = Table::new(["REPLICA", "NODE", "OUTCOME", "WHY"]);
    for view in views {
        let node = view.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        table.row([view.subject.clone(), node, view.outcome.to_owned(), view.why.clone()]);
    }
    table.render()
}

impl NodeView {
    fn words(&self, service: &str) -> (String, String) {
        if let Some(holds) = &self.holds {
            return ("holds".to_owned(), holds.clone());
        }
        let mut detail: Vec<String> = Vec::new();
        detail.extend(self.filter.as_ref().map(|filter| filter.detail.clone()));
        detail.extend(self.parts.map(parts));
        if self.filter.is_none() && self.replicas > 0 {
            detail.push(format!("has {} of {service}", self.replicas));
        }
        detail.extend(self.place.map(str::to_owned));
        let word = match (&self.filter, self.score) {
            (Some(filter), _) => filter.word.clone(),
            (None, Some(score)) => score.to_string(),
            (None, None) => "takes one".to_owned(),
        };
        (word, detail.join("; "))
    }
}

fn nodes(state: &State, explanation: &Explanation) -> Vec<NodeView> {
    let is_global = explanation.mode == Mode::Global.word();
    let view = |verdict: &Verdict| {
        let other =
            ReplicaId::new(explanation.replica.service.clone(), Slot::Node(verdict.node.clone()));
        let held = state.replica(&other).is_some_and(|replica| replica.assignment.is_some());
        let is_held = is_global && held && other != explanation.replica;
        // A `global` service does not choose between nodes, so it has no use for a score.
        let parts = verdict.score.filter(|_| !is_global);
        NodeView {
            node: verdict.node.clone(),
            place: None,
            replicas: verdict.here,
            score: parts.map(Score::total),
            parts,
            filter: verdict.filter.as_ref().filter(|_| !is_held).map(|filter| FilterView {
                word: filter.word().to_string(),
                detail: filter.to_string(),
                numbers: numbers(filter),
            }),
            holds: is_held.then(|| other.to_string()),
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

impl Fate {
    fn word(&self) -> &'static str {
        match self {
            Self::Placed { .. } => "placed",
            Self::Moved { .. } => "moved",
            Self::Retired => "retired",
            Self::Stays(_) => "stays",
        }
    }
}
