//! Views of a cell, made of its replicated state and of what is measured. Plain functions: what they are given is what
//! they show.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_kernel::Policy;
use plimsoll_kernel::reschedule::FillSurvey;
use plimsoll_model::state::Service;
use plimsoll_model::{
    DeploymentName, Generation, NodeId, Observation, ObservedCode, ObservedState, ReplicaId,
    ServiceKey, State, Timestamp,
};

use crate::ingress_status::IngressStatus;
use crate::measurements::Measurements;
use plimsoll_api::view::{CellSummary, Deployment, Node, Problem, Replica, Status, Time};

mod audit;
mod authority;
mod certificates;
mod explain;
mod fleet;
mod leadership;
mod node;
mod progress;
mod relief;
mod reschedule;
mod routes;
mod schedule;
mod service;
mod specs;
mod subjects;

#[cfg(test)]
mod tests;

pub use audit::{AuditSpan, audit, changed, changed_of, changed_within, event};
pub use authority::authority;
pub use certificates::certificates;
pub use explain::{explanation, of_image_volumes};
pub use fleet::fleet_status;
pub use leadership::leadership_info;
pub use relief::account;
pub use reschedule::{reschedule_status, reschedule_verdict};
pub use routes::{explain_route, routes, word as tls_word};
pub use specs::{bare, revision_specs};
pub use subjects::Subjects;

/// Who answers, and what it knows of the cell beyond its state.
#[derive(Debug, Clone)]
pub struct Responder {
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
    /// What keeps writes from being taken.
    pub trouble: Option<Problem>,
    pub now: Timestamp,
}

/// All that a view is made of.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub state: &'a State,
    pub measured: &'a Measurements,
    pub ingress: &'a IngressStatus,
    pub policy: &'a Policy,
    pub here: &'a Responder,
}

/// The services of one deployment, also those that are retired and still stop.
type Services<'a> = Vec<(&'a ServiceKey, &'a Service)>;

impl Source<'_> {
    /// What an observation says is the matter. Of a replica that is starting while its check fails it is what the last
    /// check printed, which is measured; the log has the first.
    fn observed_code(
        &self,
        id: &ReplicaId,
        generation: Generation,
        seen: Option<&Observation>,
    ) -> Option<ObservedCode> {
        let Observation { state, code, .. } = seen?;
        let code = code.clone()?;
        if *state != ObservedState::Starting || !matches!(code, ObservedCode::Unhealthy { .. }) {
            return Some(code);
        }
        let measured = self.measured.replicas.get(&(id.clone(), generation));
        let failed = measured.and_then(|measured| measured.failed_checks.as_ref());
        Some(failed.map_or(code, |failed| ObservedCode::Unhealthy { output: failed.to_string() }))
    }

    pub fn status(&self) -> Status {
        Status { cell: self.cell(), nodes: self.nodes(), deployments: self.deployments() }
    }

    /// One deployment, if there is anything of it, and the nodes that hold its replicas.
    pub fn status_of(&self, name: &DeploymentName) -> Status {
        let nodes = Subjects::of_deployment(self.state, name).nodes;
        Status {
            cell: self.cell(),
            nodes: nodes.iter().filter_map(|node| self.node(node)).collect(),
            deployments: self.deployment(name).into_iter().collect(),
        }
    }

    pub fn cell(&self) -> CellSummary {
        CellSummary {
            name: self.state.cell_id().to_string(),
            node: self.here.node.to_string(),
            version: self.here.version.to_owned(),
            leader: self.here.leader.clone(),
            term: self.here.term,
            applied: self.here.applied,
            lag: self.here.lag,
            heard_ms: self.here.heard_ms,
            trouble: self.here.trouble.clone(),
        }
    }

    pub fn nodes(&self) -> Vec<Node> {
        let survey = FillSurvey::new(self.state);
        let nodes = self.state.nodes().iter().map(|(id, node)| {
            let plan = survey.plan(self.policy, id, self.here.now);
            let fill = plan.map(|plan| reschedule::fill_status(&plan, self.here.now));
            Node { fill, ..node::view(self, id, node) }
        });
        nodes.collect()
    }

    pub fn node(&self, id: &NodeId) -> Option<Node> {
        Some(node::view(self, id, self.state.node(id)?))
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
        let services = self.state.services_of(name);
        let services: Services<'_> =
            services.filter_map(|key| Some((key, self.state.service(key)?))).collect();
        let exists = self.state.deployments().contains_key(name) || !services.is_empty();
        exists.then(|| self.deployment_of(name, &services))
    }

    pub fn replicas(&self) -> Vec<Replica> {
        let services = self.state.services().iter();
        services.flat_map(|(key, service)| service::replicas(self, key, service)).collect()
    }

    /// Those that the node holds, also while they only come or go.
    pub fn replicas_on(&self, node: &NodeId) -> Vec<Replica> {
        let tenants = self
            .state
            .load(node)
            .into_iter()
            .flat_map(plimsoll_model::state::load::NodeLoad::everyone);
        tenants.filter_map(|id| self.replica(id)).collect()
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
