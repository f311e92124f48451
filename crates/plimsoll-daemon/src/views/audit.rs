//! What happened, as people read it; and what changed, as watchers do.

use std::collections::BTreeSet;

use plimsoll_model::access::Scope;
use plimsoll_model::audit::{AuditEvent as Event, AuditKind};
use plimsoll_model::{DeploymentName, Event as Change, State};
use plimsoll_store::AppliedCommand;

use plimsoll_api::view::{AuditEvent, Changed, MoveReview, Relief, Time};

pub fn event(event: &Event) -> AuditEvent {
    AuditEvent {
        seq: event.seq,
        at: Time(event.at),
        writer: event.by.writer.to_string(),
        by: event.by.identity.to_string(),
        what: event.what.word().to_owned(),
        text: event.what.to_string(),
        relief: Relief::of(&event.what),
        review: match &event.what {
            AuditKind::MoveReviewed { review } => Some(MoveReview::of(review, Time(event.at))),
            _ => None,
        },
    }
}

/// From which time on, and before which event.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuditSpan {
    pub since: Option<Time>,
    pub before: Option<u64>,
}

/// The last `limit` events that happened at `since` or later and are of one of the kinds, oldest first. No kinds: all.
pub fn audit(
    state: &State,
    AuditSpan { since, before }: AuditSpan,
    kinds: &BTreeSet<String>,
    limit: usize,
) -> Vec<AuditEvent> {
    let is_late = |at: &Event| since.is_none_or(|Time(since)| at.at >= since);
    let is_early = |at: &Event| before.is_none_or(|before| at.seq < before);
    let is_asked = |at: &Event| kinds.is_empty() || kinds.contains(at.what.word());
    let newest_first = state.audit().events().rev();
    let found = newest_first.filter(|at| is_late(at) && is_early(at) && is_asked(at)).take(limit);
    let mut events: Vec<AuditEvent> = found.map(event).collect();
    events.reverse();
    events
}

/// What one entry of the log changed, each thing named once.
pub fn changed(applied: &AppliedCommand) -> Changed {
    named(applied.index, applied.events.iter())
}

/// What it changed of this deployment or of a node that holds some of it; none where that is nothing.
pub fn changed_of(
    state: &State,
    name: &DeploymentName,
    applied: &AppliedCommand,
) -> Option<Changed> {
    let own: Vec<&Change> =
        applied.events.iter().filter(|event| concerns(state, name, event)).collect();
    (!own.is_empty()).then(|| named(applied.index, own.into_iter()))
}

/// What it changed of the deployments in the scope, or of any node; none where that is nothing.
pub fn changed_within(scope: &Scope, applied: &AppliedCommand) -> Option<Changed> {
    let is_own = |event: &&Change| match event {
        Change::Deployment(deployment) => scope.admits(deployment.as_str()),
        Change::Service(service) => scope.admits(service.deployment.as_str()),
        Change::Replica(replica) => scope.admits(replica.service.deployment.as_str()),
        Change::Node(_) => true,
        Change::Load(_)
        | Change::Freed(_)
        | Change::Access
        | Change::Audit(_)
        | Change::Volumes(_)
        | Change::Certificates
        | Change::Registry(_)
        | Change::Machines
        | Change::Fleet => false,
    };
    let own: Vec<&Change> = applied.events.iter().filter(is_own).collect();
    (!own.is_empty()).then(|| named(applied.index, own.into_iter()))
}

fn concerns(state: &State, name: &DeploymentName, event: &Change) -> bool {
    match event {
        Change::Deployment(deployment) => deployment == name,
        Change::Service(service) => service.deployment == *name,
        Change::Replica(replica) => replica.service.deployment == *name,
        Change::Node(node) => {
            let services = state.services_of(name).filter_map(|key| state.service(key));
            let mut replicas = services.flat_map(|service| service.replicas.values());
            replicas.any(|replica| replica.holds().any(|held| held.node == *node))
        }
        // How full a node is shows in the deployment only once the scheduler acts on it.
        Change::Load(_)
        | Change::Freed(_)
        | Change::Access
        | Change::Audit(_)
        | Change::Volumes(_)
        | Change::Certificates
        | Change::Registry(_)
        | Change::Machines
        | Change::Fleet => false,
    }
}

fn named<'e>(index: u64, events: impl Iterator<Item = &'e Change>) -> Changed {
    let (mut nodes, mut deployments) = (BTreeSet::new(), BTreeSet::new());
    let mut replicas = BTreeSet::new();
    for event in events {
        match event {
            Change::Node(node) | Change::Load(node) | Change::Freed(node) => {
                nodes.insert(node.to_string());
            }
            Change::Deployment(deployment) => {
                deployments.insert(deployment.to_string());
            }
            Change::Service(service) => {
                deployments.insert(service.deployment.to_string());
            }
            Change::Replica(replica) => {
                deployments.insert(replica.service.deployment.to_string());
                replicas.insert(replica.to_string());
            }
            Change::Access
            | Change::Audit(_)
            | Change::Volumes(_)
            | Change::Certificates
            | Change::Registry(_)
            | Change::Machines
            | Change::Fleet => {}
        }
    }
    Changed {
        index,
        nodes: nodes.into_iter().collect(),
        deployments: deployments.into_iter().collect(),
        replicas: replicas.into_iter().collect(),
        lagged: false,
    }
}
