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
                Event::Replica(id) => drop(self.services.insert(id.service.clone())),
                Event::Freed(node) => {
                    self.services.extend(state.unplaced().iter().cloned());
                    let held = state.preemptions().in_flight().get(node);
                    self.services.extend(held.map(|held| held.by.service.clone()));
                }
                Event::Node(node) => {
                    let tenants = state
                        .load(node)
                        .into_iter()
                        .flat_map(plimsoll_model::state::load::NodeLoad::everyone);
                    self.services.extend(tenants.map(|replica| replica.service.clone()));
                    self.services.extend(state.unplaced().iter().cloned());
                    self.services.extend(globals(state).cloned());
                }
                // Who waits for a volume, or waits because there are two of it.
                Event::Volumes(name) => self.services.extend(state.services_of(name).cloned()),
                Event::Access
                | Event::Deployment(_)
                | Event::Load(_)
                | Event::Audit(_)
                | Event::Certificates
                | Event::Registry(_)
                | Event::Machines
                | Event::Fleet => {}
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

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cell, cpus, global, node_id, replica_id, service_key, spread};
    use plimsoll_model::{Change, NodeStatus, ObservedState, Writer};

    use super::*;
    use crate::testkit::Passes;

    #[test]
    fn only_what_an_event_concerns_is_looked_at_again() {
        let full = spread(9).reserve(900, 64);
        let mut cell = cell()
            .node("ash", cpus(4))
            .node("birch", cpus(4))
            .deploy("d", [("a", spread(1)), ("full", full), ("all", global()), ("b", spread(2))])
            .settle();
        let dirty_after = |cell: &plimsoll_model::testkit::Cell, events: &[Event]| {
            let mut dirty = Dirty::default();
            dirty.note(&cell.state, events);
            dirty.take().iter().map(|key| key.service.to_string()).collect::<Vec<_>>()
        };
        let (id, a) = (replica_id("d/a/1"), service_key("d/a"));
        let generation = cell.state.service(&a).unwrap().replicas[&id.slot]
            .assignment
            .as_ref()
            .unwrap()
            .generation;
        let state = ObservedState::Degraded;
        let observation = plimsoll_model::Observation { state, code: None, at: cell.now };
        let report = Change::Observe { replica: id, generation, observation };
        let events = cell.change(Writer::Agent, report);
        assert_eq!(dirty_after(&cell, &events), ["a"], "a report concerns its own service");

        let full =
            cell.state.replicas().find(|(id, _)| id.service.service.as_str() == "full").unwrap().0;
        let events = cell.change(Writer::Scheduler, Change::Retire { replica: full });
        assert_eq!(dirty_after(&cell, &events), ["full"]);

        let down = Change::SetStatus { node: node_id("ash"), status: NodeStatus::Down };
        let events = cell.change(Writer::Liveness, down);
        let dirty = dirty_after(&cell, &events);
        assert!(
            dirty.contains(&"all".to_owned()),
            "a node concerns every global service: {dirty:?}"
        );
    }
}
