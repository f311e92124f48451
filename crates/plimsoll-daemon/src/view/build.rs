//! Views of a cell, made of its replicated state and of what is measured. Plain functions: what they are given is what
//! they show.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::state::Service;
use plimsoll_model::{DeploymentName, NodeId, ReplicaId, ServiceKey, State, Timestamp};

use super::{Cell, Deployment, Node, Progress, Reason, Replica, Status, Time};
use crate::soft::Facts;

mod audit;
mod explain;
mod node;
mod progress;
mod relief;
mod routes;
mod service;
mod signals;
mod specs;

#[cfg(test)]
mod tests;

pub use audit::{audit, changed, event};
pub use explain::explanation;
pub use relief::{account, relief};
pub use routes::{explain_route, routes};
pub use signals::{pressure, signals};
pub use specs::{bare, revision_specs};

/// Who answers, and what it knows of the cell beyond its state.
#[derive(Debug, Clone)]
pub struct Here {
    pub node: NodeId,
    pub version: &'static str,
    pub leader: Option<String>,
    /// The nodes that hold the replicated state.
    pub servers: BTreeSet<String>,
    pub term: u64,
    /// The index the state is of.
    pub applied: u64,
    /// How many entries are committed and not applied.
    pub lag: u64,
    /// How long ago a leader was last heard.
    pub heard_ms: Option<u64>,
    pub now: Timestamp,
}

/// All that a view is made of.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub state: &'a State,
    pub facts: &'a Facts,
    pub here: &'a Here,
}

/// The services of one deployment, also those that are retired and still stop.
type Services<'a> = Vec<(&'a ServiceKey, &'a Service)>;

impl Source<'_> {
    pub fn status(&self) -> Status {
        Status { cell: self.cell(), nodes: self.nodes(), deployments: self.deployments() }
    }

    pub fn cell(&self) -> Cell {
        Cell {
            cluster: self.state.cluster().to_string(),
            node: self.here.node.to_string(),
            version: self.here.version.to_owned(),
            leader: self.here.leader.clone(),
            term: self.here.term,
            applied: self.here.applied,
            lag: self.here.lag,
            heard_ms: self.here.heard_ms,
        }
    }

    pub fn nodes(&self) -> Vec<Node> {
        self.state.nodes().iter().map(|(id, node)| node::view(self, id, node)).collect()
    }

    pub fn deployments(&self) -> Vec<Deployment> {
        let mut names: BTreeMap<&DeploymentName, Services<'_>> =
            self.state.deployments().keys().map(|name| (name, Vec::new())).collect();
        for (key, service) in self.state.services() {
            names.entry(&key.deployment).or_default().push((key, service));
        }
        names.iter().map(|(name, services)| self.deployment_of(name, services)).collect()
    }

    /// None once nothing of it is left.
    pub fn deployment(&self, name: &DeploymentName) -> Option<Deployment> {
        let services = self.state.services().iter();
        let services: Services<'_> = services.filter(|(key, _)| key.deployment == *name).collect();
        let exists = self.state.deployments().contains_key(name) || !services.is_empty();
        exists.then(|| self.deployment_of(name, &services))
    }

    pub fn replicas(&self) -> Vec<Replica> {
        let services = self.state.services().iter();
        services.flat_map(|(key, service)| service::replicas(self, key, service)).collect()
    }

    pub fn replica(&self, id: &ReplicaId) -> Option<Replica> {
        let service = self.state.service(&id.service)?;
        let replica = service.replicas.get(&id.slot)?;
        Some(service::replica(self, id, service, replica))
    }

    fn deployment_of(&self, name: &DeploymentName, services: &Services<'_>) -> Deployment {
        let row = self.state.deployments().get(name);
        let record = row.and_then(|row| row.history.get(&row.revision));
        // Of a deleted deployment only its last containers still say anything.
        let held = services.iter().flat_map(|(_, service)| service.replicas.values());
        let last =
            held.flat_map(plimsoll_model::Replica::holds).map(|assignment| assignment.at).max();
        let last_revision = services.iter().map(|(_, service)| service.row.revision).max();
        Deployment {
            name: name.to_string(),
            revision: row.map(|row| row.revision).or(last_revision).unwrap_or_default().0.into(),
            applied_at: Time(record.map(|record| record.at).or(last).unwrap_or_default()),
            applied_by: record.map_or_else(String::new, |record| record.by.identity.to_string()),
            is_deleted: row.is_none(),
            progress: progress::of(self, name, services),
            services: services.iter().map(|(key, row)| service::view(self, key, row)).collect(),
        }
    }
}

impl Progress {
    pub fn is_steady(&self) -> bool {
        *self == Self::Steady
    }
}

pub(crate) fn reason(subject: &impl ToString, word: &str, text: impl Into<String>) -> Reason {
    Reason { subject: subject.to_string(), word: word.to_owned(), text: text.into() }
}
