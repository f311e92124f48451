//! Which services wait for which, as files have it, and how files change it.

use std::sync::Arc;

use plimsoll_kernel::depends;
use plimsoll_model::spec::Dependency;
use plimsoll_model::{ServiceName, ServiceSpec};

use crate::rng::SimRng;
use crate::scenario::Services;

/// A job that others wait for is rarer than a service that they wait for.
const CONDITIONS: [Dependency; 5] = [
    Dependency::Started,
    Dependency::Started,
    Dependency::Healthy,
    Dependency::Healthy,
    Dependency::Completed,
];

/// Some of the services wait for others, in an order that there is.
pub(crate) fn draw(services: &mut Services, chance: &mut SimRng) {
    for _ in 0..chance.below(3) {
        let before = services.clone();
        wait(services, chance);
        if depends::check(services).is_err() {
            *services = before;
        }
    }
}

/// One waits for another, in another way, or not any more. What comes of it may be a circle, which is refused.
pub(super) fn change(services: &mut Services, chance: &mut SimRng) {
    let waiting = services.iter().filter(|(_, spec)| !spec.depends_on.is_empty());
    let waiting: Vec<ServiceName> = waiting.map(|(name, _)| name.clone()).collect();
    match chance.pick(&waiting) {
        Some(name) if chance.percent(30) => respec(services, name, |spec| spec.depends_on.clear()),
        _ => wait(services, chance),
    }
}

/// Nobody waits for this one any more.
pub(crate) fn forget(services: &mut Services, gone: &ServiceName) {
    let names: Vec<ServiceName> = services.keys().cloned().collect();
    for name in names {
        respec(services, &name, |spec| {
            spec.depends_on.remove(gone);
        });
    }
}

fn wait(services: &mut Services, chance: &mut SimRng) {
    let names: Vec<ServiceName> = services.keys().cloned().collect();
    let (Some(name), Some(on)) = (chance.pick(&names).cloned(), chance.pick(&names).cloned())
    else {
        return;
    };
    let until = *chance.pick(&CONDITIONS).unwrap_or(&Dependency::Started);
    if name != on || chance.percent(5) {
        respec(services, &name, |spec| {
            spec.depends_on.insert(on, until);
        });
    }
}

fn respec(services: &mut Services, name: &ServiceName, change: impl FnOnce(&mut ServiceSpec)) {
    if let Some(spec) = services.get_mut(name) {
        change(Arc::make_mut(spec));
    }
}
