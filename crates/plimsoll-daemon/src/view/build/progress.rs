//! Whether a deployment is as it was asked for, and if not, whether it is on its way there.
//!
//! Each thing that is not as it should be is under way, waits for its turn, or is held up. While anything is under way
//! the deployment works; once all that is left is held up, or waits behind what is, it is stuck.

use plimsoll_model::reason::Waiting;
use plimsoll_model::replica::ObservedCode;
use plimsoll_model::rollout::Phase;
use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, DeploymentName, Mode, NodeStatus, ObservedState, Replica, ReplicaId, ServiceKey,
    ServiceSpec, State,
};

use super::service::wanted;
use super::{Services, Source, reason};
use crate::soft::Facts;
use crate::view::{Progress, Reason};

/// How many reasons a deployment gives; replicas say the rest themselves.
const MAX_REASONS: usize = 50;

/// The word for what is on a node that is not heard.
const NODE_DOWN: &str = "node_down";

/// The word of a start that went wrong, which an engine that is gone is one cause of.
const START_FAILED: &str = "start_failed";

/// How a thing that is not as it should be stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Something happens now, or will without anyone's help.
    UnderWay,
    /// It begins when something else is done.
    InTurn,
    /// Nothing happens, or only the same try again and again.
    HeldUp,
}

/// What is not as it should be, so far.
#[derive(Debug, Default)]
struct Tally {
    under_way: Vec<Reason>,
    in_turn: Vec<Reason>,
    held_up: Vec<Reason>,
}

impl Tally {
    fn add(&mut self, pace: Pace, reason: Reason) {
        match pace {
            Pace::UnderWay => self.under_way.push(reason),
            Pace::InTurn => self.in_turn.push(reason),
            Pace::HeldUp => self.held_up.push(reason),
        }
    }
}

pub(super) fn of(source: &Source<'_>, name: &DeploymentName, services: &Services<'_>) -> Progress {
    let mut tally = Tally::default();
    for (key, row) in services {
        service(source, key, row, &mut tally);
        ports(source.facts, key, &mut tally);
    }
    let Tally { under_way, in_turn, held_up } = tally;
    if under_way.is_empty() && !held_up.is_empty() {
        let why = held_up.into_iter().chain(in_turn);
        return Progress::Stuck { why: bounded(name, why.collect()) };
    }
    let doing: Vec<Reason> = under_way.into_iter().chain(in_turn).collect();
    if doing.is_empty() {
        return Progress::Steady;
    }
    Progress::Working { doing: bounded(name, doing) }
}

fn bounded(name: &DeploymentName, mut reasons: Vec<Reason>) -> Vec<Reason> {
    if reasons.len() > MAX_REASONS {
        let more = reasons.len() - MAX_REASONS;
        reasons.truncate(MAX_REASONS);
        reasons.push(reason(name, "more", format!("and {more} more")));
    }
    reasons
}

fn service(source: &Source<'_>, key: &ServiceKey, row: &Service, tally: &mut Tally) {
    let state = source.state;
    let mut live = 0;
    for (slot, held) in &row.replicas {
        let id = || ReplicaId::new(key.clone(), slot.clone());
        live += u32::from(held.assignment.is_some());
        if let Some(found) = replica(state, row, held) {
            let (pace, word, text) = silenced(source.facts, held, found);
            tally.add(pace, reason(&id(), word, text));
        }
    }
    let Some(spec) = row.desired() else {
        if row.replicas.is_empty() {
            tally.add(Pace::UnderWay, reason(key, "retired", "it is no longer asked for"));
        }
        return;
    };
    if let Some((pace, word, text)) = rollout(state, key, row) {
        tally.add(pace, reason(key, word, text));
    }
    let wanted = wanted(state, row, spec);
    if let Some(unplaced) = &row.row.unplaced {
        let (missing, why) = (unplaced.missing, &unplaced.why);
        tally.add(
            Pace::HeldUp,
            reason(key, why.word(), format!("{missing} without a place: {why}")),
        );
    } else if live != wanted {
        tally.add(Pace::UnderWay, reason(key, "scaling", format!("{live} replicas of {wanted}")));
    }
}

/// A rollout that does not end as it was asked for.
fn rollout(state: &State, key: &ServiceKey, row: &Service) -> Option<(Pace, &'static str, String)> {
    let rollout = row.row.rollout.as_ref()?;
    let is_latest = state
        .deployments()
        .get(&key.deployment)
        .is_some_and(|deployment| deployment.revision == rollout.revision);
    let first = rollout.failed.iter().next().map(|(slot, failure)| {
        let id = ReplicaId::new(key.clone(), slot.clone());
        format!("; {id} {failure}")
    });
    let why = rollout.why.map(|why| why.to_string()).unwrap_or_default();
    let why = format!("{why}{}", first.unwrap_or_default());
    let to = format!("revision {}", rollout.revision.0);
    let from = rollout.from.as_ref().map(|from| format!("revision {}", from.revision.0));
    let back = from.unwrap_or_default();
    match rollout.phase {
        Phase::Paused => Some((Pace::HeldUp, "paused", format!("the roll to {to} pauses: {why}"))),
        Phase::Undoing => {
            Some((Pace::UnderWay, "undoing", format!("it returns from {to} to {back}: {why}")))
        }
        Phase::Undone if is_latest => {
            Some((Pace::HeldUp, "rolled_back", format!("{to} was undone, {back} runs: {why}")))
        }
        Phase::Rolling | Phase::Done | Phase::Undone => None,
    }
}

/// Replicas that run behind a port that leads nowhere are of no use to whoever asked for it.
fn ports(facts: &Facts, key: &ServiceKey, tally: &mut Tally) {
    let own = facts.ports.iter().filter(|((service, _), _)| service == key);
    for (_, why) in own {
        tally.add(Pace::HeldUp, reason(key, "port_unavailable", why));
    }
}

/// What should happen on a node whose runtime does not answer does not happen while that lasts.
fn silenced(
    facts: &Facts,
    held: &Replica,
    found: (Pace, &'static str, String),
) -> (Pace, &'static str, String) {
    let moves = found.0 == Pace::UnderWay && found.1 != NODE_DOWN;
    let successor = held.successor.as_ref().map(|successor| &successor.assignment);
    let on = successor.or(held.assignment.as_ref()).or(held.leaving.first());
    let Some(on) = on.filter(|_| moves || found.1 == START_FAILED) else { return found };
    let runtime = facts.nodes.get(&on.node).and_then(|fact| fact.runtime.as_ref());
    let Some((runtime, trouble)) = runtime.and_then(|it| Some((&it.name, it.trouble.as_ref()?)))
    else {
        return found;
    };
    let text = format!("{runtime} on {} does not answer: {trouble}", on.node);
    (Pace::HeldUp, "runtime_unavailable", text)
}

/// What is the matter with one replica, if anything.
fn replica(state: &State, row: &Service, held: &Replica) -> Option<(Pace, &'static str, String)> {
    let Some(assignment) = &held.assignment else {
        return Some(stopping(held.leaving.first()?));
    };
    let Some(spec) = row.desired() else {
        return Some((Pace::UnderWay, "retired", format!("it ends on {}", assignment.node)));
    };
    if let Some(successor) = &held.successor {
        return Some(coming(held, &successor.assignment, successor.cause.word()));
    }
    if let Some(waiting) = &held.waiting {
        return Some((Pace::HeldUp, waiting.word(), waited(waiting)));
    }
    if let Some(found) = node_trouble(state, spec, assignment) {
        return Some(found);
    }
    if !held.runs(assignment) {
        let found = coming(held, assignment, "starting");
        // What runs an older spec than it should is replaced, however badly it does.
        let is_current = assignment.spec == spec.hash && !held.is_stale(assignment);
        return Some(if is_current { found } else { (Pace::UnderWay, found.1, found.2) });
    }
    if assignment.spec != spec.hash {
        return Some((
            Pace::InTurn,
            "outdated",
            "its turn to get the new spec will come".to_owned(),
        ));
    }
    if held.is_stale(assignment) {
        return Some((Pace::InTurn, "restart", "its turn to start anew will come".to_owned()));
    }
    held.leaving.first().map(stopping)
}

fn waited(waiting: &Waiting) -> String {
    match waiting {
        Waiting::Stalled { .. } => format!("{waiting}; the old one serves on"),
        Waiting::Stateful | Waiting::MassLoss { .. } | Waiting::NoPlace(_) => waiting.to_string(),
    }
}

fn stopping(leaving: &Assignment) -> (Pace, &'static str, String) {
    (Pace::UnderWay, "stopping", format!("its old container stops on {}", leaving.node))
}

fn node_trouble(
    state: &State,
    spec: &ServiceSpec,
    assignment: &Assignment,
) -> Option<(Pace, &'static str, String)> {
    let node = &assignment.node;
    let is_down = state.node(node).is_none_or(|node| node.status == NodeStatus::Down);
    // A `global` replica has no other place to go; any other is replaced once the grace is over.
    let pace = if spec.placement.mode == Mode::Global { Pace::HeldUp } else { Pace::UnderWay };
    is_down.then(|| (pace, NODE_DOWN, format!("{node} is down")))
}

/// How an assignment that should run and does not is getting there.
fn coming(
    held: &Replica,
    assignment: &Assignment,
    word: &'static str,
) -> (Pace, &'static str, String) {
    let node = &assignment.node;
    let Some(seen) = held.observation(assignment) else {
        return (Pace::UnderWay, word, format!("{node} was told to start it"));
    };
    if let Some(code) = &seen.code {
        let pace = match code {
            ObservedCode::ImagePullFailed { .. }
            | ObservedCode::StartFailed { .. }
            | ObservedCode::RestartExhausted { .. } => Pace::HeldUp,
            ObservedCode::AwaitsService { .. } => Pace::InTurn,
            ObservedCode::Unhealthy { .. }
            | ObservedCode::Exited { .. }
            | ObservedCode::OutOfMemory
            | ObservedCode::Vanished
            | ObservedCode::Completed => Pace::UnderWay,
        };
        return (pace, code.word(), code.to_string());
    }
    let text = match seen.state {
        ObservedState::Pending => format!("{node} is about to start it"),
        ObservedState::Pulling => format!("{node} pulls its image"),
        ObservedState::Starting => format!("{node} starts it"),
        ObservedState::Running => format!("it runs on {node} and is about to take over"),
        ObservedState::Degraded => format!("it is not well on {node}"),
        ObservedState::Failed => format!("it failed on {node} and is tried again"),
        ObservedState::Stopped => format!("it stopped on {node}"),
    };
    (Pace::UnderWay, seen.state.word(), text)
}
