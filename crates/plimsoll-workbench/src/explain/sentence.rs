//! Why, in a sentence: the first line of an explanation.

use plimsoll_kernel::explain::{PlacementExplanation, misplaced};
use plimsoll_kernel::place::{NodeVerdict, Score};
use plimsoll_kernel::plan::{ReplicaFate, ReplicaOutcome};
use plimsoll_model::reason::Filter;
use plimsoll_model::{Mode, MoveCause, NodeId};

use crate::decided::Decided;
use crate::text::count;

pub(super) fn of_replica(
    decided: &Decided,
    outcome: &ReplicaOutcome,
    explanation: &PlacementExplanation,
) -> String {
    match &outcome.fate {
        ReplicaFate::Placed { .. } => choice(explanation, &outcome.node),
        ReplicaFate::Moved { from, cause, .. } => {
            let reason = cause_of(decided, outcome, from, *cause);
            if *from == outcome.node {
                return reason;
            }
            format!("{reason}, and {} is {}", outcome.node, choice(explanation, &outcome.node))
        }
        ReplicaFate::Retired { .. } => retired(decided, outcome),
        ReplicaFate::Preempted { by, .. } => by.to_string(),
        ReplicaFate::Stays { why, .. } => why.to_string(),
    }
}

/// Where one more replica of a service would go.
pub(super) fn next_of(explanation: &PlacementExplanation) -> String {
    if explanation.mode == Mode::Global.word() {
        return "one on every node that may hold it".to_owned();
    }
    match explanation.verdicts.first().filter(|best| best.score.is_some()) {
        Some(best) => {
            format!("the next would go to {}, {}", best.node, choice(explanation, &best.node))
        }
        None => "no node could take one more".to_owned(),
    }
}

/// Why this node, of all.
fn choice(explanation: &PlacementExplanation, node: &NodeId) -> String {
    if explanation.mode == Mode::Global.word() {
        return "global runs one replica on every node that may hold it".to_owned();
    }
    let total = |verdict: &&NodeVerdict| verdict.score.map(Score::total);
    let able: Vec<&NodeVerdict> =
        explanation.verdicts.iter().filter(|verdict| verdict.score.is_some()).collect();
    let score = able.iter().find(|verdict| verdict.node == *node).and_then(total);
    let (Some(score), Some(best)) = (score, able.iter().filter_map(total).max()) else {
        return "where it is".to_owned();
    };
    let equals = able.iter().filter(|verdict| total(verdict) == Some(best)).count();
    let nodes = count(able.len(), "node");
    match (able.len(), equals) {
        (1, _) => "the only node that can take it".to_owned(),
        _ if score < best => format!("one of {nodes} that can take it, with score {score}"),
        (_, 1) => format!("the best of {nodes} that can take it, with score {score}"),
        (_, equals) => {
            let order = tie(explanation.mode);
            format!("{order} of the {equals} best nodes, with score {score}")
        }
    }
}

/// What decides between nodes of equal score.
fn tie(mode: &str) -> &'static str {
    match mode {
        "pack" => "the emptiest, then first by name,",
        "binpack" => "the fullest with room, then first by name,",
        "hosts" => "the first by name",
        _ => "the first in its ring order",
    }
}

fn cause_of(
    decided: &Decided,
    outcome: &ReplicaOutcome,
    from: &NodeId,
    cause: MoveCause,
) -> String {
    match cause {
        MoveCause::NodeLost => format!("{from} is down"),
        MoveCause::RuntimeLost => format!("the container runtime of {from} does not answer"),
        MoveCause::Outdated => "it runs an older spec".to_owned(),
        MoveCause::Restart => "a restart was requested".to_owned(),
        MoveCause::Optimize => "a better layout was requested".to_owned(),
        MoveCause::Pressure => format!("{from} stays hot"),
        MoveCause::Reschedule => format!("another node suits it better than {from}"),
        MoveCause::Preempted => format!("a replica of higher priority needs its room on {from}"),
        MoveCause::Misplaced => unfit(decided, outcome, from),
    }
}

/// Why the node it was on may not hold it any more.
fn unfit(decided: &Decided, outcome: &ReplicaOutcome, from: &NodeId) -> String {
    let service = decided.after.service(&outcome.id.service);
    let spec = service.and_then(|service| service.desired());
    let why = spec.zip(decided.after.node(from));
    let roles = |spec| decided.after.roles_for(spec);
    let why = why.and_then(|(spec, node)| misplaced(spec, from, node, roles(spec)));
    match why {
        Some(Filter::Draining) => format!("{from} is being drained"),
        Some(Filter::NotListed) => format!("{from} is not among the service's hosts"),
        Some(Filter::Constraint { wants, .. }) => format!("{from} does not meet {wants}"),
        _ => format!("{from} may not hold it any more"),
    }
}

fn retired(decided: &Decided, outcome: &ReplicaOutcome) -> String {
    let service = decided.before.state.service(&outcome.id.service);
    let wanted = service.and_then(|service| service.desired()?.placement.mode.replicas());
    match wanted {
        Some(wanted) => format!("the service wants only {}", count(wanted as usize, "replica")),
        None => unfit(decided, outcome, &outcome.node),
    }
}
