//! Which services a command's events give reason to look at again.

use std::collections::BTreeSet;

use plimsoll_model::{Event, Mode, ServiceKey, State};

/// The services that the next pass looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dirty {
    services: BTreeSet<ServiceKey>,
}

impl Dirty {
    /// What the events touch, and who waits for what they may have freed. Anything overlooked here is found by the
    /// full pass, which looks at everything.
    pub fn note(&mut self, state: &State, events: &[Event]) {
        for event in events {
            match event {
                Event::Service(key) => drop(self.services.insert(key.clone())),
                Event::Replica(id) => {
                    self.services.insert(id.service.clone());
                    if state.replica(id).is_none_or(|replica| replica.leaving.is_empty()) {
                        self.services.extend(state.unplaced().iter().cloned());
                    }
                }
                Event::Node(node) => {
                    let tenants = state.load(node).into_iter().flat_map(|load| &load.tenants);
                    self.services.extend(tenants.map(|replica| replica.service.clone()));
                    self.services.extend(state.unplaced().iter().cloned());
                    self.services.extend(globals(state).cloned());
                }
                Event::Deployment(_) | Event::Load(_) | Event::Audit(_) => {}
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    pub fn take(&mut self) -> BTreeSet<ServiceKey> {
        std::mem::take(&mut self.services)
    }
}

fn globals(state: &State) -> impl Iterator<Item = &ServiceKey> {
    state
        .services()
        .iter()
        .filter(|(_, service)| {
            service.desired().is_some_and(|spec| spec.placement.mode == Mode::Global)
        })
        .map(|(key, _)| key)
}
