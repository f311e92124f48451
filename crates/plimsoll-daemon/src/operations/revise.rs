//! Changes to what was applied before: another number of replicas, an earlier revision; and the list of revisions.

use std::sync::Arc;

use plimsoll_model::state::Deployment;
use plimsoll_model::{DeploymentName, Revision, ServiceSpec, State};

use super::apply::applied;
use super::diff::changes;
use super::{
    Caller, DeploymentContent, Error, Revised, Services, current, find_deployment, find_service,
    revise, routes,
};
use crate::context::NodeContext;
use crate::views::revision_specs;
use plimsoll_api::view::{self, Applied, RevisionSpecs, Rollback, Scale, Time};

/// Another number of replicas, as a revision of its own.
pub async fn scale(
    cell: &NodeContext,
    caller: &Caller,
    name: &str,
    scale: &Scale,
) -> Result<Applied, Error> {
    if scale.services.is_empty() {
        return Err(Error::NothingToScale);
    }
    let name = cell.engine.machine().read(|state| find_deployment(state, name))?;
    let decide = |state: &State| {
        let name = find_deployment(state, name.as_str())?;
        let (revision, before) = current(state, &name).unwrap_or_default();
        let mut content = before.clone();
        let services = &mut content.services;
        for (service, replicas) in &scale.services {
            let service = find_service(&name, services, service)?;
            let spec = &services[&service];
            let mode = (spec.placement.mode.scaled(*replicas))
                .ok_or_else(|| Error::GlobalReplicas { service: service.clone() })?;
            let mut spec = ServiceSpec::clone(spec);
            spec.placement.mode = mode;
            services.insert(service, Arc::new(spec));
        }
        Ok(Revised { before: Some((revision, before)), content })
    };
    let (index, revised) = revise(cell, caller, &name, decide).await?;
    Ok(applied(cell, &name, index, &revised))
}

/// What an earlier revision asked for, whole, as a revision of its own.
pub async fn rollback(
    cell: &NodeContext,
    caller: &Caller,
    name: &str,
    back: &Rollback,
) -> Result<Applied, Error> {
    let name = cell.engine.machine().read(|state| find_deployment(state, name))?;
    let decide = |state: &State| {
        let name = find_deployment(state, name.as_str())?;
        let deployment = &state.deployments()[&name];
        let to = target(&name, deployment, back.to)?;
        let content = DeploymentContent::of(&deployment.history[&to]);
        Ok(Revised { before: current(state, &name), content })
    };
    let (index, revised) = revise(cell, caller, &name, decide).await?;
    Ok(applied(cell, &name, index, &revised))
}

fn target(
    name: &DeploymentName,
    deployment: &Deployment,
    to: Option<u64>,
) -> Result<Revision, Error> {
    let now = deployment.revision;
    let Some(to) = to else {
        let earlier = deployment.history.range(..now).next_back();
        return earlier.map(|(revision, _)| *revision).ok_or_else(|| Error::NoEarlierRevision {
            deployment: name.clone(),
            revision: now.0.into(),
        });
    };
    if to == u64::from(now.0) {
        return Err(Error::SameRevision { deployment: name.clone(), revision: to });
    }
    kept(name, deployment, to)
}

fn kept(name: &DeploymentName, deployment: &Deployment, asked: u64) -> Result<Revision, Error> {
    let number = u32::try_from(asked).ok().map(Revision);
    number.filter(|revision| deployment.history.contains_key(revision)).ok_or_else(|| {
        let kept = deployment.history.keys().map(|revision| revision.0.into()).collect();
        Error::NoSuchRevision { deployment: name.clone(), revision: asked, kept }
    })
}

/// Every revision that is kept, the newest first, with what it changed.
pub fn history(state: &State, name: &str) -> Result<Vec<view::Revision>, Error> {
    let name = find_deployment(state, name)?;
    let deployment = &state.deployments()[&name];
    let nothing = (Services::new(), Vec::new());
    let mut before = (&nothing.0, &nothing.1);
    let mut revisions = Vec::with_capacity(deployment.history.len());
    for (revision, record) in &deployment.history {
        revisions.push(view::Revision {
            revision: revision.0.into(),
            at: Time(record.at),
            by: record.by.identity.to_string(),
            is_current: *revision == deployment.revision,
            changes: changes(before.0, &record.services),
            routes: routes::changes(before.1, &record.routes),
        });
        before = (&record.services, &record.routes);
    }
    revisions.reverse();
    Ok(revisions)
}

/// What one revision asked for.
pub fn revision(state: &State, name: &str, asked: u64) -> Result<RevisionSpecs, Error> {
    let name = find_deployment(state, name)?;
    let deployment = &state.deployments()[&name];
    let revision = kept(&name, deployment, asked)?;
    Ok(revision_specs(deployment, revision, &deployment.history[&revision]))
}
