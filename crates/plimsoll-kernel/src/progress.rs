//! Whether a deployment is as it was asked for, and if not, whether it is on its way there.
//!
//! Each thing that is not as it should be makes progress, waits for its turn, or is blocked. While anything makes progress the
//! deployment is working; once all that is left is blocked, or waits behind what is, it is stuck. What is the matter with a
//! replica is settled in [`condition`](crate::condition).

use std::fmt;

use plimsoll_model::reason::{Unplaced, UnplacedReason};
use plimsoll_model::replica::ObservedCode;
use plimsoll_model::rollout::RolloutPhase;
use plimsoll_model::state::Service;
use plimsoll_model::{
    NodeId, Replica, ReplicaId, Revision, Rollout, ServiceKey, ServiceSpec, Slot, State, Timestamp,
};

use crate::condition::{BehindOutage, ReplicaCondition, Startup};
use crate::explain::misplaced;
use crate::policy::Policy;

#[cfg(test)]
mod tests;

/// How a deployment stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeploymentProgress {
    Steady,
    /// On its way; what makes progress stands first.
    Working(Vec<ProgressItem>),
    /// Nothing will change without help; what is blocked stands first.
    Stuck(Vec<ProgressItem>),
}

/// One thing that is not as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressItem {
    pub subject: ProgressSubject,
    pub reason: ProgressReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgressSubject {
    Service(ServiceKey),
    Replica(ReplicaId),
}

/// Why a deployment is not steady, with the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgressReason {
    /// The service is no longer asked for.
    Retired,
    RolloutPaused(RolloutNote),
    RolloutUndoing(RolloutNote),
    RolledBack(RolloutNote),
    Unplaced(Unplaced),
    Scaling {
        live: u32,
        wanted: u32,
    },
    Replica(ReplicaCondition),
    /// Nothing happens to the replica while the runtime of its node does not answer.
    RuntimeUnavailable {
        runtime: String,
        node: NodeId,
        why: String,
    },
    /// Replicas that run behind a port that nobody can connect to are of no use.
    PortUnavailable {
        why: String,
    },
}

/// What is said of a rollout that does not end as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutNote {
    pub to: Revision,
    pub from: Option<Revision>,
    /// The halt, and the first replica that failed.
    pub why: String,
}

/// What only the edges know: the state says nothing of it.
pub trait EdgeReports {
    /// Why each published port of the service cannot be bound.
    fn unbound_ports(&self, service: &ServiceKey) -> Vec<String>;

    /// The runtime of a node that does not answer: its name, and what came instead of an answer.
    fn runtime_down(&self, node: &NodeId) -> Option<(String, String)>;
}

/// Edges that have nothing to report.
#[derive(Debug, Clone, Copy)]
pub struct NoReports;

impl EdgeReports for NoReports {
    fn unbound_ports(&self, _: &ServiceKey) -> Vec<String> {
        Vec::new()
    }

    fn runtime_down(&self, _: &NodeId) -> Option<(String, String)> {
        None
    }
}

/// How a thing that is not as it should be stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Something happens now, or will without anyone's help.
    Progressing,
    /// It begins when something else is done.
    Queued,
    /// Nothing happens, or only the same retry again and again.
    Blocked,
}

/// The progress of a deployment that consists of these services, also of those that are retired and still stop.
pub fn progress<'s>(
    state: &State,
    policy: &Policy,
    services: impl IntoIterator<Item = (&'s ServiceKey, &'s Service)>,
    edges: &dyn EdgeReports,
    now: Timestamp,
) -> DeploymentProgress {
    let mut items = Vec::new();
    for (key, service) in services {
        of_service(state, policy, (key, service), edges, now, &mut items);
    }
    let pace_of = |item: &ProgressItem| item.reason.pace();
    let has = |pace: Pace| items.iter().any(|item| pace_of(item) == pace);
    let is_stuck = has(Pace::Blocked) && !has(Pace::Progressing);
    let first = if is_stuck { Pace::Blocked } else { Pace::Progressing };
    // A deployment that works says what it does, and not what else is in the way.
    items.retain(|item| is_stuck || pace_of(item) != Pace::Blocked);
    items.sort_by_key(|item| pace_of(item) != first);
    match (items.is_empty(), is_stuck) {
        (true, _) => DeploymentProgress::Steady,
        (false, true) => DeploymentProgress::Stuck(items),
        (false, false) => DeploymentProgress::Working(items),
    }
}

/// How many replicas of the service there should be: of a `global` one, one on each node that may take it, and on each that
/// has it and may keep it.
pub fn wanted(state: &State, service: &Service, spec: &ServiceSpec) -> u32 {
    if let Some(replicas) = spec.placement.mode.replicas() {
        return replicas;
    }
    let has = |node: &NodeId| {
        let replica = service.replicas.get(&Slot::Node(node.clone()));
        replica.is_some_and(|replica| replica.assignment.is_some())
    };
    let (nodes, roles) = (state.nodes().iter(), state.roles_for(spec));
    let eligible = nodes.filter(|(id, node)| misplaced(spec, id, node, roles).is_none());
    let count = eligible.filter(|(id, node)| node.is_open() || has(id)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn of_service(
    state: &State,
    policy: &Policy,
    (key, service): (&ServiceKey, &Service),
    edges: &dyn EdgeReports,
    now: Timestamp,
    items: &mut Vec<ProgressItem>,
) {
    let mut live = 0;
    // A node that may not have one any more keeps the record of what completed there.
    let roles = service.desired().map(|spec| (spec, state.roles_for(spec)));
    let counts = |slot: &Slot, replica: &Replica| match (slot, roles) {
        (Slot::Node(id), Some((spec, roles))) => {
            let node = state.node(id);
            !replica.assignment.as_ref().is_some_and(|at| replica.is_over(at))
                || node.is_some_and(|node| misplaced(spec, id, node, roles).is_none())
        }
        _ => true,
    };
    for (slot, replica) in &service.replicas {
        live += u32::from(replica.assignment.is_some() && counts(slot, replica));
        let condition = ReplicaCondition::of(state, policy, service, replica, now);
        let is_as_asked = matches!(
            condition,
            ReplicaCondition::Settled | ReplicaCondition::Completed | ReplicaCondition::RunFailed
        );
        if !is_as_asked {
            let subject = ProgressSubject::Replica(ReplicaId::new(key.clone(), slot.clone()));
            let reason = ProgressReason::Replica(condition);
            let reason = runtime_down(edges, replica, &reason).unwrap_or(reason);
            items.push(ProgressItem { subject, reason });
        }
    }
    let mut add = |reason: ProgressReason| {
        items.push(ProgressItem { subject: ProgressSubject::Service(key.clone()), reason });
    };
    if let Some(spec) = service.desired() {
        let rollout = service.row.rollout.as_ref();
        rollout.and_then(|rollout| of_rollout(state, key, rollout)).into_iter().for_each(&mut add);
        let wanted = wanted(state, service, spec);
        if let Some(unplaced) = &service.row.unplaced {
            add(ProgressReason::Unplaced(unplaced.clone()));
        } else if live != wanted {
            add(ProgressReason::Scaling { live, wanted });
        }
    } else if service.replicas.is_empty() {
        add(ProgressReason::Retired);
    }
    for why in edges.unbound_ports(key) {
        add(ProgressReason::PortUnavailable { why });
    }
}

/// What should happen on a node whose runtime does not answer does not happen while that lasts.
fn runtime_down(
    edges: &dyn EdgeReports,
    replica: &Replica,
    reason: &ProgressReason,
) -> Option<ProgressReason> {
    let ProgressReason::Replica(condition) = reason else { return None };
    let is_node_down = matches!(
        condition,
        ReplicaCondition::InGrace { .. }
            | ReplicaCondition::Lost { .. }
            | ReplicaCondition::NodeDown { .. }
            | ReplicaCondition::RuntimeDown { .. }
    );
    let progresses = reason.pace() == Pace::Progressing && !is_node_down;
    if !progresses && !has_failed_to_start(condition) {
        return None;
    }
    let successor = replica.successor.as_ref().map(|successor| &successor.assignment);
    let on = successor.or(replica.assignment.as_ref()).or(replica.leaving.first())?;
    let (runtime, why) = edges.runtime_down(&on.node)?;
    Some(ProgressReason::RuntimeUnavailable { runtime, node: on.node.clone(), why })
}

/// An engine that is gone is one cause of a start that fails.
fn has_failed_to_start(condition: &ReplicaCondition) -> bool {
    let startup = match condition {
        ReplicaCondition::Moving { successor, .. } => successor,
        ReplicaCondition::Starting { startup, .. } => startup,
        _ => return false,
    };
    let code = startup.observed.as_ref().and_then(|seen| seen.code.as_ref());
    matches!(code, Some(ObservedCode::StartFailed { .. }))
}

/// A rollout that does not end as it was asked for.
fn of_rollout(state: &State, key: &ServiceKey, rollout: &Rollout) -> Option<ProgressReason> {
    let deployment = state.deployments().get(&key.deployment);
    let is_latest = deployment.is_some_and(|it| it.revision == rollout.revision);
    let note = || {
        let first = rollout.failed.iter().next().map(|(slot, failure)| {
            let id = ReplicaId::new(key.clone(), slot.clone());
            format!("; {id} {failure}")
        });
        let why = rollout.why.map(|why| why.to_string()).unwrap_or_default();
        RolloutNote {
            to: rollout.revision,
            from: rollout.from.as_ref().map(|from| from.revision),
            why: format!("{why}{}", first.unwrap_or_default()),
        }
    };
    match rollout.phase {
        RolloutPhase::Paused => Some(ProgressReason::RolloutPaused(note())),
        RolloutPhase::Undoing => Some(ProgressReason::RolloutUndoing(note())),
        RolloutPhase::Undone if is_latest => Some(ProgressReason::RolledBack(note())),
        RolloutPhase::Rolling | RolloutPhase::Done | RolloutPhase::Undone => None,
    }
}

impl ProgressReason {
    fn pace(&self) -> Pace {
        match self {
            Self::Retired | Self::RolloutUndoing(_) | Self::Scaling { .. } => Pace::Progressing,
            // Room is on its way.
            Self::Unplaced(Unplaced { why: UnplacedReason::Preempting { .. }, .. }) => {
                Pace::Progressing
            }
            Self::RolloutPaused(_)
            | Self::RolledBack(_)
            | Self::Unplaced(_)
            | Self::RuntimeUnavailable { .. }
            | Self::PortUnavailable { .. } => Pace::Blocked,
            Self::Replica(condition) => pace_of_replica(condition),
        }
    }

    /// The word that programs compare.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Retired => "retired",
            Self::RolloutPaused(_) => "paused",
            Self::RolloutUndoing(_) => "undoing",
            Self::RolledBack(_) => "rolled_back",
            Self::Unplaced(unplaced) => unplaced.why.word(),
            Self::Scaling { .. } => "scaling",
            Self::Replica(condition) => condition.word(),
            Self::RuntimeUnavailable { .. } => "runtime_unavailable",
            Self::PortUnavailable { .. } => "port_unavailable",
        }
    }
}

fn pace_of_replica(condition: &ReplicaCondition) -> Pace {
    match condition {
        ReplicaCondition::Settled
        | ReplicaCondition::Completed
        | ReplicaCondition::RunFailed
        | ReplicaCondition::Retired { .. }
        | ReplicaCondition::Stopping { .. }
        | ReplicaCondition::InGrace { .. }
        | ReplicaCondition::Lost { .. }
        | ReplicaCondition::RuntimeDown {
            stage: BehindOutage::InGrace { .. } | BehindOutage::Lost,
            ..
        }
        // What is replaced is replaced however badly it does.
        | ReplicaCondition::Starting { replaced_for: Some(_), .. } => Pace::Progressing,
        ReplicaCondition::Misplaced { .. }
        | ReplicaCondition::Outdated
        | ReplicaCondition::RestartDue => Pace::Queued,
        ReplicaCondition::Waiting(_)
        | ReplicaCondition::NodeDown { .. }
        | ReplicaCondition::RuntimeDown {
            stage: BehindOutage::RunsOn | BehindOutage::Global,
            ..
        } => Pace::Blocked,
        ReplicaCondition::Moving { successor, .. } => pace_of_startup(successor),
        ReplicaCondition::Starting { startup, replaced_for: None } => pace_of_startup(startup),
    }
}

fn pace_of_startup(startup: &Startup) -> Pace {
    match startup.observed.as_ref().and_then(|seen| seen.code.as_ref()) {
        Some(
            ObservedCode::ImagePullFailed { .. }
            | ObservedCode::StartFailed { .. }
            | ObservedCode::SubnetPoolExhausted { .. }
            | ObservedCode::RestartExhausted { .. }
            | ObservedCode::JobFailed { .. },
        ) => Pace::Blocked,
        Some(ObservedCode::AwaitsService { .. }) => Pace::Queued,
        Some(
            ObservedCode::Unhealthy { .. }
            | ObservedCode::Exited { .. }
            | ObservedCode::OutOfMemory
            | ObservedCode::Vanished
            | ObservedCode::RuntimeUnavailable
            | ObservedCode::JobCompleted { .. }
            | ObservedCode::Completed,
        )
        | None => Pace::Progressing,
    }
}

impl fmt::Display for ProgressReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |revision: Option<Revision>| {
            revision.map(|revision| format!("revision {}", revision.0)).unwrap_or_default()
        };
        match self {
            Self::Retired => f.write_str("it is no longer asked for"),
            Self::RolloutPaused(RolloutNote { to, why, .. }) => {
                write!(f, "the rollout of revision {} is paused: {why}", to.0)
            }
            Self::RolloutUndoing(RolloutNote { to, from, why }) => {
                write!(f, "rolling back from revision {} to {}: {why}", to.0, shown(*from))
            }
            Self::RolledBack(RolloutNote { to, from, why }) => {
                write!(f, "revision {} was undone, {} runs: {why}", to.0, shown(*from))
            }
            Self::Unplaced(Unplaced { missing: 0, why, .. }) => why.fmt(f),
            Self::Unplaced(Unplaced { missing, why, .. }) => {
                write!(f, "{missing} without a place: {why}")
            }
            Self::Scaling { live, wanted } => write!(f, "{live} replicas of {wanted}"),
            Self::Replica(condition) => condition.fmt(f),
            Self::RuntimeUnavailable { runtime, node, why } => {
                write!(f, "{runtime} on {node} does not answer: {why}")
            }
            Self::PortUnavailable { why } => f.write_str(why),
        }
    }
}

impl fmt::Display for ProgressSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(key) => key.fmt(f),
            Self::Replica(id) => id.fmt(f),
        }
    }
}
