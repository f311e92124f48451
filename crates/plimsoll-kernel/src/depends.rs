//! Which services start before which: whether an order exists at all, what a replica still waits for, and who has to be
//! told when that changes. Asked before the first start of a generation, anywhere in the cell; once it has started, it is
//! on its own, as with Compose.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use plimsoll_model::spec::Dependency;
use plimsoll_model::state::{Deployment, Service};
use plimsoll_model::{
    Assignment, NodeId, NodeStatus, ObservedState, Replica, ServiceKey, ServiceName, ServiceSpec,
    SpecHash, State,
};

/// Why services start in no order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartOrderMistake {
    /// One waits for a service that there is not.
    Missing { service: ServiceName, on: ServiceName },
    /// They wait for each other; the first comes last again.
    Circle(Vec<ServiceName>),
}

impl fmt::Display for StartOrderMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { service, on } => {
                write!(f, "{service} depends on {on}, which does not exist")
            }
            Self::Circle(names) => {
                let names: Vec<&str> = names.iter().map(ServiceName::as_str).collect();
                write!(f, "the services wait for each other in a circle: {}", names.join(" → "))
            }
        }
    }
}

/// Whether the services of a file can start at all, one after the other.
pub fn check<S: Borrow<ServiceSpec>>(
    services: &BTreeMap<ServiceName, S>,
) -> Result<(), StartOrderMistake> {
    for (name, spec) in services {
        let missing = spec.borrow().depends_on.keys().find(|on| !services.contains_key(*on));
        if let Some(on) = missing {
            return Err(StartOrderMistake::Missing { service: name.clone(), on: on.clone() });
        }
    }
    circle(services).map_or(Ok(()), |circle| Err(StartOrderMistake::Circle(circle)))
}

/// A circle of services that wait for each other, if there is one: takes away those that wait for nothing until none is
/// left, or only circles and what waits for them are.
fn circle<S: Borrow<ServiceSpec>>(services: &BTreeMap<ServiceName, S>) -> Option<Vec<ServiceName>> {
    let depends_on = |name: &ServiceName| &services[name].borrow().depends_on;
    let mut left: BTreeSet<&ServiceName> = services.keys().collect();
    loop {
        let before = left.len();
        let is_free = |name: &&ServiceName| depends_on(name).keys().all(|on| !left.contains(on));
        let free: Vec<&ServiceName> = left.iter().copied().filter(is_free).collect();
        for name in free {
            left.remove(name);
        }
        if left.len() == before {
            break;
        }
    }
    // Each of those left waits for another of them, so walking on must come back to where it was.
    let mut walk = vec![left.first().copied()?];
    loop {
        let next = depends_on(walk.last()?).keys().find(|on| left.contains(on))?;
        if let Some(at) = walk.iter().position(|name| *name == next) {
            return Some(walk[at..].iter().copied().chain([next]).cloned().collect());
        }
        walk.push(next);
    }
}

/// The first service, by name, that the assignment still waits for, and what it is waited for to do.
///
/// It waits for what both its own spec and the file as it is now ask for. A copy of an older revision waits for nothing
/// that was taken out of the file since, which would never come; and since no file has a circle, copies of two revisions
/// never wait for each other.
pub fn unmet(
    state: &State,
    key: &ServiceKey,
    assignment: &Assignment,
) -> Option<(ServiceName, Dependency)> {
    let spec = state.service(key)?.spec_of(assignment)?;
    let deployment = state.deployments().get(&key.deployment)?;
    let asked = &deployment.current()?.services.get(&key.service)?.depends_on;
    let both = spec.depends_on.iter().filter(|(name, _)| asked.contains_key(*name));
    both.map(|(name, until)| (name.clone(), *until)).find(|(name, until)| {
        let on = ServiceKey::new(key.deployment.clone(), name.clone());
        // One replica that came so far is enough: a cell that lacks room for the others must still start the rest.
        !state.service(&on).is_some_and(|service| match until {
            Dependency::Started => is_seen(state, service, is_started),
            Dependency::Healthy => is_seen(state, service, is_healthy),
            Dependency::Completed => {
                let asked_for = specs_asked_for(deployment, name, assignment);
                // What was taken back had its own job, which ran before the one that failed took its place.
                let is_of_before = deployment.current().is_some_and(|now| {
                    now.services.get(&key.service).is_some_and(|spec| spec.hash != assignment.spec)
                });
                has_completed(service, &asked_for) || (is_of_before && has_failed(service))
            }
        })
    })
}

/// The services of the deployment that may wait for this one.
pub fn dependents<'s>(
    state: &'s State,
    key: &'s ServiceKey,
) -> impl Iterator<Item = ServiceKey> + 's {
    let current = state.deployments().get(&key.deployment).and_then(Deployment::current);
    let services = current.into_iter().flat_map(|record| &record.services);
    let waits = services.filter(|(_, spec)| spec.depends_on.contains_key(&key.service));
    waits.map(|(name, _)| ServiceKey::new(key.deployment.clone(), name.clone()))
}

/// Whether a replica was last seen so, where someone would have noticed otherwise.
fn is_seen(state: &State, service: &Service, is_it: impl Fn(ObservedState) -> bool) -> bool {
    let is_up = |node: &NodeId| state.node(node).is_some_and(|it| it.status == NodeStatus::Ready);
    let is_so = |replica: &Replica, held: &Assignment| {
        let seen = replica.observation(held);
        seen.is_some_and(|seen| is_it(seen.state))
            && (is_up(&held.node) || replica.has_completed(held))
    };
    service.replicas.values().any(|replica| replica.holds().any(|held| is_so(replica, held)))
}

fn is_started(seen: ObservedState) -> bool {
    matches!(seen, ObservedState::Starting | ObservedState::Degraded) || is_healthy(seen)
}

/// What has completed was as well as it will ever be.
fn is_healthy(seen: ObservedState) -> bool {
    matches!(seen, ObservedState::Running | ObservedState::Completed)
}

fn has_completed(service: &Service, specs: &BTreeSet<SpecHash>) -> bool {
    let is_done = |replica: &Replica, held: &Assignment| {
        specs.contains(&held.spec) && replica.has_completed(held)
    };
    service.replicas.values().any(|replica| replica.holds().any(|held| is_done(replica, held)))
}

/// Whether what the job is now will not complete any more.
fn has_failed(service: &Service) -> bool {
    let mut replicas = service.replicas.values();
    replicas.any(|replica| {
        let assignment = replica.assignment.as_ref();
        assignment.is_some_and(|it| replica.is_over(it) && !replica.has_completed(it))
    })
}

/// What the job is to have run for the assignment to start: what is asked for now, or what was asked for together with it.
/// That an earlier job was done is not enough for what comes with a later one.
fn specs_asked_for(
    deployment: &Deployment,
    job: &ServiceName,
    assignment: &Assignment,
) -> BTreeSet<SpecHash> {
    let beside = deployment.history.get(&assignment.revision);
    let records = deployment.current().into_iter().chain(beside);
    records.filter_map(|record| record.services.get(job)).map(|spec| spec.hash).collect()
}

#[cfg(test)]
mod tests;
