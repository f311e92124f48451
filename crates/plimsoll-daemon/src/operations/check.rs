//! Whether an applied file can be honoured at all. A compose file was checked by its reader already; whoever speaks to the
//! API by other means gets the same answers here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_kernel::depends::{self, StartOrderMistake};
use plimsoll_model::schedule::InvalidZone;
use plimsoll_model::spec::{VolumeGroup, VolumeSpec};
use plimsoll_model::{
    DeploymentName, Mode, Node, NodeId, RuntimeFacts, ServiceName, ServiceSpec, SpecHash, State,
};

use super::{Error, Services};
use plimsoll_api::suggest;

/// The services as they are written down, or why they cannot be.
pub(super) fn services(
    deployment: &DeploymentName,
    asked: BTreeMap<ServiceName, ServiceSpec>,
) -> Result<Services, Error> {
    if asked.is_empty() {
        return Err(Error::NoServices { deployment: deployment.clone() });
    }
    depends::check(&asked).map_err(|mistake| match mistake {
        StartOrderMistake::Missing { service, on } => {
            let hint = suggest::hint(on.as_str(), "service", asked.keys().map(ServiceName::as_str));
            Error::MissingDependency { service, on, hint }
        }
        StartOrderMistake::Circle(circle) => {
            let circle = circle.iter().map(ToString::to_string).collect();
            Error::CircularDependency { circle }
        }
    })?;
    let reasons: Vec<(ServiceName, String)> = declared_twice(&asked).into_iter().collect();
    if !reasons.is_empty() {
        return Err(Error::BadSpec { reasons });
    }
    let services = asked.into_iter().map(|(name, mut spec)| {
        // Two containers that differ must never share a hash, so it is not taken on trust.
        spec.hash = SpecHash::of(&spec.container);
        (name, Arc::new(spec))
    });
    Ok(services.collect())
}

/// A volume that two services declare differently, which no file can: where it is could not be said.
fn declared_twice(services: &BTreeMap<ServiceName, ServiceSpec>) -> Option<(ServiceName, String)> {
    let mut seen: BTreeMap<&str, (&ServiceName, &VolumeSpec)> = BTreeMap::new();
    for (service, spec) in services {
        for (name, declared) in &spec.container.volumes {
            let (first, known) = seen.entry(name).or_insert((service, declared));
            if *known != declared {
                let why = format!("volumes: {name} is declared otherwise by {first}");
                return Some((service.clone(), why));
            }
        }
    }
    None
}

/// Refuses every field that no file could have, and every number above its ceiling.
pub(super) fn fields(services: &Services) -> Result<(), Error> {
    let mut reasons = Vec::new();
    for (service, spec) in services {
        let mistakes = spec.mistakes().into_iter().map(|mistake| mistake.to_string());
        let excesses = spec.excesses().into_iter().map(|excess| excess.to_string());
        let zone = spec.schedule.as_ref().and_then(|schedule| schedule.zone.as_ref());
        let zone = zone.filter(|zone| !zone.is_known());
        let zones = zone.map(|name| InvalidZone { name: name.to_string() }.to_string());
        let all = mistakes.chain(excesses).chain(zones);
        reasons.extend(all.map(|why| (service.clone(), why)));
    }
    if reasons.is_empty() { Ok(()) } else { Err(Error::BadSpec { reasons }) }
}

/// Everything that keeps the services from running on any node of the cell, by what nodes say of their runtimes. What only
/// some nodes can run is placed on those.
pub(super) fn can_run(state: &State, services: &Services) -> Result<(), Error> {
    let runtimes: BTreeSet<&RuntimeFacts> =
        state.nodes().values().map(|node| &node.facts.runtime).collect();
    let mut reasons = Vec::new();
    for (service, spec) in services {
        let mut say = |why: String| reasons.push((service.clone(), why));
        for why in plimsoll_runtime::invalid(&spec.container) {
            say(why.to_string());
        }
        if runtimes.iter().all(|runtime| spec.container.lacking(runtime).is_some()) {
            for runtime in &runtimes {
                for it in spec.container.all_lacking(runtime) {
                    say(format!("the {} runtime cannot {it}; {}", runtime.name, it.remedy()));
                }
            }
        }
    }
    if reasons.is_empty() { Ok(()) } else { Err(Error::CannotRun { reasons }) }
}

/// Services that share a volume run on one node. Where no node is open to all of them by what it is, however empty, that is
/// said now and not by waiting for ever.
pub(super) fn can_share(
    state: &State,
    deployment: &DeploymentName,
    services: &Services,
) -> Result<(), Error> {
    let specs = services.iter().map(|(name, spec)| (name, spec.as_ref()));
    let mut reasons = Vec::new();
    for group in VolumeGroup::all(deployment, specs).iter().filter(|it| it.services.len() > 1) {
        let may_run = |spec: &ServiceSpec, (id, node): (&NodeId, &Node)| {
            let is_listed = match &spec.placement.mode {
                Mode::Hosts { hosts, .. } => hosts.contains(id),
                Mode::Spread { .. } | Mode::Pack { .. } | Mode::Binpack { .. } | Mode::Global => {
                    true
                }
            };
            let role = state.roles_for(spec).role(node);
            is_listed && spec.placement.constraints.iter().all(|it| node.facts.meets(id, role, it))
        };
        let on_its_own = |spec: &ServiceSpec| state.nodes().iter().any(|node| may_run(spec, node));
        let together = state
            .nodes()
            .iter()
            .any(|node| group.services.iter().all(|(_, spec)| may_run(spec, node)));
        // What may run nowhere even alone waits for a node, as it always did.
        if together || !group.services.iter().all(|(_, spec)| on_its_own(spec)) {
            continue;
        }
        let names: Vec<&str> = group.services.iter().map(|(name, _)| name.as_str()).collect();
        let volumes: Vec<&str> = group.volumes.iter().map(String::as_str).collect();
        let why = format!(
            "{} share {} and run on one node, but no node meets the constraints of all; \
             change the constraints, or give each a volume of its own",
            names.join(", "),
            volumes.join(", "),
        );
        reasons.extend(group.services.first().map(|(name, _)| ((*name).clone(), why)));
    }
    if reasons.is_empty() { Ok(()) } else { Err(Error::CannotRun { reasons }) }
}
