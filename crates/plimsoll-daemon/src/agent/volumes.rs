//! Removes the named volumes of deployments that ended, where somebody asked for that. It waits until nothing of the
//! deployment is asked for or left here, and nothing of it starts while it is at it: a deployment that comes back finds
//! its data whole, or none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::{DeploymentName, ReplicaId, Revision};
use plimsoll_runtime::{Error, chain};
use tokio::time::Instant;

use super::Agent;
use super::work::WorkOutcome;
use crate::link::{Cleared, Report};

/// How long until it is tried again: an engine refuses while it still clears away a container.
const RETRY: Duration = Duration::from_secs(1);

/// What is to be removed here.
#[derive(Debug, Default)]
pub(super) struct Doomed {
    /// Whose volumes, by which end of the deployment, and when to try next.
    asked: BTreeMap<DeploymentName, (Revision, Instant)>,
    /// Under way, whether or not it is still asked for.
    clearing: BTreeSet<DeploymentName>,
    /// Done, and told to the cell.
    cleared: BTreeMap<DeploymentName, Revision>,
}

impl Doomed {
    /// When there is something to try; none while there is not.
    pub(super) fn due(&self) -> Option<Instant> {
        let idle = self.asked.iter().filter(|(name, _)| !self.clearing.contains(*name));
        idle.map(|(_, (_, due))| *due).filter(|due| *due > Instant::now()).min()
    }

    pub(super) fn is_clearing(&self, deployment: &DeploymentName) -> bool {
        self.clearing.contains(deployment)
    }

    /// All that is to be removed, as of now.
    pub(super) fn ask(&mut self, all: BTreeMap<DeploymentName, Revision>) {
        self.cleared.retain(|name, revision| all.get(name) == Some(revision));
        let now = Instant::now();
        let asked = all.into_iter().filter(|(name, _)| !self.cleared.contains_key(name));
        self.asked = asked.map(|(name, revision)| (name, (revision, now))).collect();
    }
}

impl Agent {
    /// Begins what can be begun.
    pub(super) fn begin_clearing(&mut self) {
        if self.doomed.asked.is_empty() {
            return;
        }
        let now = Instant::now();
        let asked = self.doomed.asked.iter().filter(|(name, (_, due))| {
            *due <= now && !self.doomed.is_clearing(name) && !self.has_any_of(name)
        });
        let ready: Vec<_> = asked.map(|(name, (revision, _))| (name.clone(), *revision)).collect();
        for (deployment, revision) in ready {
            self.doomed.clearing.insert(deployment.clone());
            let runtime = Arc::clone(&self.runtime);
            self.beside(async move {
                let result = runtime.remove_volumes(&deployment).await;
                WorkOutcome::Cleared { deployment, revision, result }
            });
        }
    }

    pub(super) fn cleared(
        &mut self,
        deployment: &DeploymentName,
        revision: Revision,
        result: Result<Vec<String>, Error>,
    ) {
        self.doomed.clearing.remove(deployment);
        match result {
            Ok(removed) => {
                tracing::info!(%deployment, ?removed, "volumes removed");
                self.doomed.asked.remove(deployment);
                self.doomed.cleared.insert(deployment.clone(), revision);
                let cleared = Cleared { deployment: deployment.clone(), revision };
                // Without a reporter the daemon is going down, and the next one is asked again.
                let _ = self.reports.send(Report::Cleared(cleared));
            }
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(%deployment, error, "cannot remove volumes; retrying");
                if let Some((_, due)) = self.doomed.asked.get_mut(deployment) {
                    *due = Instant::now() + RETRY;
                }
            }
        }
        // What was to start meanwhile has waited for this.
        self.go_on_with(deployment);
    }

    fn has_any_of(&self, deployment: &DeploymentName) -> bool {
        let own = |id: &ReplicaId| id.service.deployment == *deployment;
        self.briefs.keys().any(own) || self.units.keys().any(own)
    }
}
