//! Whether an applied file can be honoured at all. A compose file was checked by its reader already; whoever speaks to the
//! API by other means gets the same answers here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_kernel::depends::{self, StartOrderMistake};
use plimsoll_model::{DeploymentName, RuntimeFacts, ServiceName, ServiceSpec, SpecHash, State};

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
    let services = asked.into_iter().map(|(name, mut spec)| {
        // Two containers that differ must never share a hash, so it is not taken on trust.
        spec.hash = SpecHash::of(&spec.container);
        (name, Arc::new(spec))
    });
    Ok(services.collect())
}

/// Refuses every field that no file could have, and every number above its ceiling.
pub(super) fn fields(services: &Services) -> Result<(), Error> {
    let mut reasons = Vec::new();
    for (service, spec) in services {
        let mistakes = spec.mistakes().into_iter().map(|mistake| mistake.to_string());
        let excesses = spec.excesses().into_iter().map(|excess| excess.to_string());
        reasons.extend(mistakes.chain(excesses).map(|why| (service.clone(), why)));
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
