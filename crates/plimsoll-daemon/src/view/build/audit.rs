//! What happened, as people read it; and what changed, as watchers do.

use std::collections::BTreeSet;

use plimsoll_model::audit::AuditEvent as Event;
use plimsoll_model::{Event as Change, State};
use plimsoll_store::Applied;

use super::relief::relief;
use crate::view::{AuditEvent, Changed, Time};

pub fn event(event: &Event) -> AuditEvent {
    AuditEvent {
        seq: event.seq,
        at: Time(event.at),
        writer: event.by.writer.to_string(),
        by: event.by.identity.to_string(),
        what: event.what.word().to_owned(),
        text: event.what.to_string(),
        relief: relief(&event.what),
    }
}

/// The last `limit` events that happened at `since` or later and are of one of the kinds, oldest first. No kinds: all.
pub fn audit(
    state: &State,
    since: Option<Time>,
    kinds: &BTreeSet<String>,
    limit: usize,
) -> Vec<AuditEvent> {
    let is_late = |at: &Event| since.is_none_or(|Time(since)| at.at >= since);
    let is_asked = |at: &Event| kinds.is_empty() || kinds.contains(at.what.word());
    let newest_first = state.audit().events().rev();
    let found = newest_first.filter(|at| is_late(at) && is_asked(at)).take(limit);
    let mut events: Vec<AuditEvent> = found.map(event).collect();
    events.reverse();
    events
}

/// What one entry of the log changed, each thing named once.
pub fn changed(applied: &Applied) -> Changed {
    let (mut nodes, mut deployments) = (BTreeSet::new(), BTreeSet::new());
    let mut replicas = BTreeSet::new();
    for event in &*applied.events {
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
            Change::Access | Change::Audit(_) | Change::Volumes(_) => {}
        }
    }
    Changed {
        index: applied.index,
        nodes: nodes.into_iter().collect(),
        deployments: deployments.into_iter().collect(),
        replicas: replicas.into_iter().collect(),
        lagged: false,
    }
}
