//! Apply: a deployment becomes what a file says, or it is said what that would do.

use std::collections::BTreeSet;

use plimsoll_kernel::Policy;
use plimsoll_model::DeploymentName;
use plimsoll_model::spec::{RouteSpec, Tls};

use super::diff::changes;
use super::{Caller, Content, Error, Revised, check, current, plan, revise, routes};
use crate::cell::{Cell, now};
use crate::view::build::signals;
use crate::view::{Applied, Apply, Reason};

/// Writes the services as the deployment's next revision. The same services again are no new revision, only another try of
/// what was given up.
pub async fn apply(
    cell: &Cell,
    caller: &Caller,
    name: &str,
    apply: Apply,
) -> Result<Applied, Error> {
    let name = DeploymentName::new(name)?;
    let (expected, content) = (apply.expect, checked(cell, &name, apply)?);
    let decide = |state: &plimsoll_model::State| {
        let before = current(state, &name);
        expect(&name, expected, before.as_ref())?;
        Ok(Revised { before, content: content.clone() })
    };
    let (index, revised) = revise(cell, caller, &name, decide).await?;
    Ok(applied(cell, &name, index, &revised))
}

/// What [`apply`] would do, and what the scheduler would make of it at first. Nothing is written.
pub fn dry_run(cell: &Cell, caller: &Caller, name: &str, apply: Apply) -> Result<Applied, Error> {
    let name = DeploymentName::new(name)?;
    let (expected, content) = (apply.expect, checked(cell, &name, apply)?);
    let state = cell.engine.machine().read(Clone::clone);
    let before = current(&state, &name);
    expect(&name, expected, before.as_ref())?;
    let had = before.as_ref().map(|(_, content)| &content.services);
    caller.check_privileges(had, &content.services)?;
    let (policy, now) = (Policy::default(), now());
    let signals = signals(&cell.soft.facts(), &policy, now);
    let (revision, plan) = plan::of(state, &signals, &policy, &name, &content, now)?;
    let old = before.as_ref().map(|(_, content)| content.clone()).unwrap_or_default();
    let routed = routes::changes(&old.routes, &content.routes);
    let mut warnings = warnings(cell, true);
    warnings.extend(unserved(cell, &routed, &content));
    Ok(Applied {
        changes: changes(&old.services, &content.services),
        routes: routed,
        deployment: name.to_string(),
        revision: revision.into(),
        index: None,
        plan,
        warnings,
    })
}

/// What was written, as it is told.
pub(super) fn applied(
    cell: &Cell,
    name: &DeploymentName,
    index: u64,
    revised: &Revised,
) -> Applied {
    let revision = cell.engine.machine().read(|state| revised.revision(state, name));
    let nothing = Content::default();
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
        plan: Vec::new(),
        warnings,
    }
}

fn checked(cell: &Cell, name: &DeploymentName, asked: Apply) -> Result<Content, Error> {
    let services = check::services(name, asked.services)?;
    check::can_run(cell.runtime.as_ref(), &runtime_name(cell), &services)?;
    routes::check(&asked.routes)?;
    Ok(Content { services, routes: asked.routes })
}

fn expect(
    deployment: &DeploymentName,
    expected: Option<u64>,
    found: Option<&(u32, Content)>,
) -> Result<(), Error> {
    let found = found.map_or(0, |(revision, _)| u64::from(*revision));
    match expected {
        Some(expected) if expected != found => {
            Err(Error::RevisionChanged { deployment: deployment.clone(), expected, found })
        }
        _ => Ok(()),
    }
}

fn runtime_name(cell: &Cell) -> String {
    let facts = cell.soft.facts();
    let runtime = facts.nodes.get(&cell.node).and_then(|fact| fact.runtime.as_ref());
    runtime.map_or_else(|| "this node's runtime".to_owned(), |runtime| runtime.name.clone())
}

/// Routes are served where a node was told to, which is easily forgotten; it is said when they change.
fn unserved(cell: &Cell, changed: &[String], content: &Content) -> Option<Reason> {
    let (plain, secure) = cell.soft.facts().entrances;
    let lacks = |is_there: bool, option, is_such: fn(&RouteSpec) -> bool| {
        (!is_there && content.routes.iter().any(is_such)).then_some(option)
    };
    let without = lacks(plain, "--http", |route| route.tls == Tls::Off);
    let without =
        without.into_iter().chain(lacks(secure, "--https", |route| route.tls != Tls::Off));
    let without: Vec<&str> = without.collect();
    (!changed.is_empty() && !without.is_empty()).then(|| Reason {
        subject: cell.node.to_string(),
        word: "routes_not_served".to_owned(),
        text: format!("it was started without {}", without.join(" and ")),
    })
}

/// What to know of this node's runtime before relying on it. How it isolates is said once, not at every apply.
fn warnings(cell: &Cell, with_limits: bool) -> Vec<Reason> {
    let facts = cell.soft.facts();
    let about = |word: &str, text: &str| Reason {
        subject: cell.node.to_string(),
        word: word.to_owned(),
        text: text.to_owned(),
    };
    let runtime = facts.nodes.get(&cell.node).and_then(|fact| fact.runtime.as_ref());
    let Some(runtime) = runtime else { return Vec::new() };
    match &runtime.trouble {
        Some(trouble) => vec![about("runtime_unavailable", trouble)],
        None if with_limits => {
            let limits: BTreeSet<&String> = runtime.limits.iter().collect();
            limits.into_iter().map(|limit| about("not_isolated", limit)).collect()
        }
        None => Vec::new(),
    }
}
