//! Apply: a deployment becomes what a file says, or it is said what that would do.

use std::collections::BTreeSet;

use plimsoll_kernel::plan;
use plimsoll_model::spec::{self, RouteSpec, Tls};
use plimsoll_model::{DeploymentName, NodeId, Replica, ServiceKey, State, Timestamp, Writer};

use super::diff::changes;
use super::{
    Caller, DeploymentContent, Error, ResolvedImages, Revised, Services, check, current, files,
    images, refused, revise, routes,
};
use crate::context::{NodeContext, WriteError, now};
use crate::views::of_image_volumes;
use plimsoll_api::view::{Applied, Apply, DataPin, Plan, Reason, ReasonCode};

/// A file that may be applied by who asked. Its images are looked up next, and by nobody who may not apply it.
#[derive(Debug)]
pub struct CheckedApply {
    name: DeploymentName,
    expected: Option<u64>,
    content: DeploymentContent,
}

impl CheckedApply {
    pub fn services(&self) -> &Services {
        &self.content.services
    }
}

pub fn check_apply(
    cell: &NodeContext,
    caller: &Caller,
    name: &str,
    apply: Apply,
) -> Result<CheckedApply, Error> {
    let name = DeploymentName::new(name)?;
    let (expected, content) = (apply.expect, checked(cell, caller, &name, apply)?);
    Ok(CheckedApply { name, expected, content })
}

/// Writes the services as the deployment's next revision. The same services again are no new revision, only another try of
/// what was given up.
pub async fn apply(
    cell: &NodeContext,
    caller: &Caller,
    asked: CheckedApply,
    images: &ResolvedImages,
) -> Result<Applied, Error> {
    let CheckedApply { name, expected, content } = asked;
    let decide = |state: &State| {
        let before = current(state, &name);
        expect(&name, expected, before.as_ref())?;
        let content = pinned(images, before.as_ref(), content.clone());
        Ok(Revised { before, content })
    };
    let (index, revised) = revise(cell, caller, &name, decide).await?;
    let mut applied = applied(cell, &name, index, &revised);
    let before = revised.before.as_ref().map(|(_, content)| &content.services);
    applied.warnings.extend(images.warnings(&name, before, &revised.content.services));
    Ok(applied)
}

/// What [`apply`] would do, and what the scheduler would make of it to the end. Nothing is written.
pub fn dry_run(
    cell: &NodeContext,
    caller: &Caller,
    asked: CheckedApply,
    images: &ResolvedImages,
) -> Result<Applied, Error> {
    let CheckedApply { name, expected, content } = asked;
    let state = cell.engine.machine().read(Clone::clone);
    let before = current(&state, &name);
    expect(&name, expected, before.as_ref())?;
    let mut content = pinned(images, before.as_ref(), content);
    let had = before.as_ref().map(|(_, content)| &content.services);
    content.services = caller.vouch(&state, had, content.services)?;
    check::fields(&content.services)?;
    let PlannedApply { revision, plan, image_volumes, pinned } =
        planned(cell, state, &name, &content, now())?;
    let not_pinned = images.warnings(&name, had, &content.services);
    let old = before.as_ref().map(|(_, content)| content.clone()).unwrap_or_default();
    let routed = routes::changes(&old.routes, &content.routes);
    let mut warnings = warnings(cell, true);
    warnings.extend(unserved(cell, &routed, &content));
    warnings.extend(not_pinned);
    warnings.extend(image_volumes);
    Ok(Applied {
        changes: changes(&old.services, &content.services),
        routes: routed,
        deployment: name.to_string(),
        revision: revision.into(),
        index: None,
        plan: Some(plan),
        pinned,
        warnings,
    })
}

/// The file with each image as its registry has it now.
fn pinned(
    images: &ResolvedImages,
    before: Option<&(u32, DeploymentContent)>,
    content: DeploymentContent,
) -> DeploymentContent {
    let before = before.map(|(_, content)| &content.services);
    DeploymentContent { services: images.pin(before, content.services), ..content }
}

/// What would come of an apply.
struct PlannedApply {
    revision: u32,
    plan: Plan,
    /// What is known of its images.
    image_volumes: Vec<Reason>,
    pinned: Vec<DataPin>,
}

/// What data keeps where, in the cell as it will be.
fn pins(after: &State, deployment: &DeploymentName) -> Vec<DataPin> {
    let services = after
        .services_of(deployment)
        .filter_map(|key| Some((&key.service, after.service(key)?.desired()?.as_ref())));
    let pins = spec::DataPin::all(deployment, services);
    let told = pins.iter().map(|pin| {
        let holders = pin.volumes.iter().flat_map(|it| after.nodes_with_volume(deployment, it));
        let replicas = pin.services.iter().flat_map(|name| {
            let key = ServiceKey::new(deployment.clone(), (*name).clone());
            let service = after.service(&key).into_iter();
            service.flat_map(|service| service.replicas.values()).filter_map(Replica::heading)
        });
        let nodes: BTreeSet<&NodeId> = holders.chain(replicas.map(|it| &it.node)).collect();
        let nodes = nodes.into_iter().map(ToString::to_string).collect();
        DataPin { nodes, ..DataPin::from(pin) }
    });
    told.collect()
}

fn planned(
    cell: &NodeContext,
    state: State,
    name: &DeploymentName,
    content: &DeploymentContent,
    now: Timestamp,
) -> Result<PlannedApply, Error> {
    let policy = cell.policy;
    let signals = cell.measurements.lock().signals(&policy, now);
    let mut services: BTreeSet<ServiceKey> = state.services_of(name).cloned().collect();
    let changes = (Writer::Operator, vec![content.clone().deploy(name)]);
    let (plan, after) = plan::what_if(state, &signals, &policy, changes, now)
        .map_err(|rejection| refused(WriteError::Refused(rejection)))?;
    services.extend(after.services_of(name).cloned());
    let revision = after.deployments().get(name).map_or(0, |deployment| deployment.revision.0);
    let known = after
        .services_of(name)
        .filter_map(|key| of_image_volumes(key, after.service(key)?.desired()?));
    let (image_volumes, pinned) = (known.collect(), pins(&after, name));
    let plan = Plan::from(&plan.about(&services));
    Ok(PlannedApply { revision, plan, image_volumes, pinned })
}

/// What was written, as it is told.
pub(super) fn applied(
    cell: &NodeContext,
    name: &DeploymentName,
    index: u64,
    revised: &Revised,
) -> Applied {
    let revision = cell.engine.machine().read(|state| revised.revision(state, name));
    let nothing = DeploymentContent::default();
    let old = revised.before.as_ref().map_or(&nothing, |(_, content)| content);
    let routed = routes::changes(&old.routes, &revised.content.routes);
    let mut warnings = warnings(cell, revised.before.is_none());
    warnings.extend(unserved(cell, &routed, &revised.content));
    Applied {
        changes: changes(&old.services, &revised.content.services),
        routes: routed,
        deployment: name.to_string(),
        revision: revision.into(),
        index: Some(index),
        plan: None,
        pinned: Vec::new(),
        warnings,
    }
}

fn checked(
    cell: &NodeContext,
    caller: &Caller,
    name: &DeploymentName,
    asked: Apply,
) -> Result<DeploymentContent, Error> {
    let services = check::services(name, asked.services)?;
    let services = cell.engine.machine().read(|state| {
        let services = files::resolve(state, services)?;
        // What the caller may not ask for is said before what no node can run.
        let before = current(state, name);
        let before = before.as_ref().map(|(_, content)| &content.services);
        caller.vouch(state, before, images::as_deployed(before, services.clone()))?;
        check::can_run(state, &services)?;
        check::can_share(state, name, &services)?;
        Ok::<_, Error>(services)
    })?;
    routes::check(&asked.routes, &services)?;
    Ok(DeploymentContent { services, routes: asked.routes })
}

fn expect(
    deployment: &DeploymentName,
    expected: Option<u64>,
    found: Option<&(u32, DeploymentContent)>,
) -> Result<(), Error> {
    let found = found.map_or(0, |(revision, _)| u64::from(*revision));
    match expected {
        Some(expected) if expected != found => {
            Err(Error::RevisionChanged { deployment: deployment.clone(), expected, found })
        }
        _ => Ok(()),
    }
}

/// Routes are served where a node was told to, which is easily forgotten; it is said when they change.
fn unserved(cell: &NodeContext, changed: &[String], content: &DeploymentContent) -> Option<Reason> {
    let (plain, secure) = {
        let ingress = cell.ingress.lock();
        (ingress.serves_http, ingress.serves_https)
    };
    let lacks = |is_there: bool, option, is_such: fn(&RouteSpec) -> bool| {
        (!is_there && content.routes.iter().any(is_such)).then_some(option)
    };
    let without = lacks(plain, "--http", |route| route.tls == Tls::Off);
    let without =
        without.into_iter().chain(lacks(secure, "--https", |route| route.tls != Tls::Off));
    let without: Vec<&str> = without.collect();
    (!changed.is_empty() && !without.is_empty()).then(|| {
        let text = format!("it was started without {}", without.join(" and "));
        Reason::new(&cell.node, ReasonCode::RoutesNotServed, text)
    })
}

/// Runtimes that isolate what they run.
const CONTAINER_ENGINES: [&str; 2] = ["docker", "podman"];

/// What to know of this node's runtime before relying on it. How it isolates is said once, not at every apply.
fn warnings(cell: &NodeContext, with_limits: bool) -> Vec<Reason> {
    let measured = cell.measurements.lock();
    let about = |word: ReasonCode, text: &String| Reason::new(&cell.node, word, text);
    let runtime = measured.nodes.get(&cell.node).and_then(|it| it.runtime.as_ref());
    let Some(runtime) = runtime else { return Vec::new() };
    match &runtime.trouble {
        Some(trouble) => vec![about(ReasonCode::RuntimeUnavailable, trouble)],
        // What an engine does not do is no want of isolation; the node says it when it starts.
        None if with_limits && !CONTAINER_ENGINES.contains(&runtime.name.as_str()) => {
            let limits: BTreeSet<&String> = runtime.limits.iter().collect();
            limits.into_iter().map(|limit| about(ReasonCode::NotIsolated, limit)).collect()
        }
        None => Vec::new(),
    }
}
