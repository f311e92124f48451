//! What one node is asked to run of a replica, and whose orders may change with what happened. The node's edge tells it and
//! the agent carries it out; the simulator does both under its own clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_model::spec::Dependency;
use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, DeploymentName, Event, NodeId, ReplicaId, ServiceKey, ServiceName, ServiceSpec,
    State,
};

use crate::agent::{self, WantedContainer};
use crate::{declared, depends};

/// To run this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order<'s> {
    pub assignment: &'s Assignment,
    pub spec: &'s Arc<ServiceSpec>,
    /// What it depends on and cannot start before.
    pub awaits: Option<(ServiceName, Dependency)>,
    /// It ended for good, and is kept for its logs alone.
    pub is_over: bool,
    /// The volumes that its image declares and it may mount now, each path with the key of its volume.
    pub declared: BTreeMap<String, String>,
}

impl Order<'_> {
    pub fn wanted(&self) -> WantedContainer {
        let generation = self.assignment.generation;
        WantedContainer { generation, is_held: self.awaits.is_some(), is_over: self.is_over }
    }
}

/// What the node is asked to run of the replica now.
pub fn of<'s>(
    state: &'s State,
    node: &'s NodeId,
    id: &'s ReplicaId,
) -> impl Iterator<Item = Order<'s>> {
    let service = state.service(&id.service);
    agent::wanted(state, node, id).filter_map(move |assignment| {
        Some(Order {
            assignment,
            spec: service?.spec_of(assignment)?,
            awaits: depends::unmet(state, &id.service, assignment),
            is_over: state.replica(id).is_some_and(|replica| replica.is_over(assignment)),
            declared: declared::granted(state, id, assignment),
        })
    })
}

/// The replicas that the events are about, and those that may wait for what the events are about.
pub fn touched<'e>(state: &State, events: impl Iterator<Item = &'e Event>) -> BTreeSet<ReplicaId> {
    let mut replicas: BTreeSet<ReplicaId> = BTreeSet::new();
    // Those whose replicas come or go or are seen otherwise, and those all of whose replicas are concerned.
    let mut seen: BTreeSet<ServiceKey> = BTreeSet::new();
    let mut whole: BTreeSet<ServiceKey> = BTreeSet::new();
    // Those in which somebody may wait for another's data.
    let mut deployments: BTreeSet<&DeploymentName> = BTreeSet::new();
    for event in events {
        match event {
            Event::Replica(id) => {
                if !seen.contains(&id.service) {
                    seen.insert(id.service.clone());
                }
                replicas.insert(id.clone());
                deployments.insert(&id.service.deployment);
                // Another may wait for its data.
                if !whole.contains(&id.service) && has_declared(state, &id.service) {
                    whole.insert(id.service.clone());
                }
            }
            Event::Service(key) => {
                seen.insert(key.clone());
                whole.insert(key.clone());
            }
            // What it has may be held back or let go with it, and so may what depends on that.
            Event::Node(node) => {
                for id in state
                    .load(node)
                    .into_iter()
                    .flat_map(plimsoll_model::state::load::NodeLoad::everyone)
                {
                    seen.insert(id.service.clone());
                    replicas.insert(id.clone());
                }
            }
            Event::Registry(registry) => {
                let pulls = |service: &Service| {
                    let mut specs = service.row.specs.values();
                    specs.any(|spec| spec.container.registry().as_ref() == Some(registry))
                };
                let users = state.services().iter().filter(|(_, service)| pulls(service));
                whole.extend(users.map(|(key, _)| key.clone()));
            }
            Event::Access
            | Event::Deployment(_)
            | Event::Load(_)
            | Event::Freed(_)
            | Event::Audit(_)
            | Event::Volumes(_)
            | Event::Certificates
            | Event::Machines
            | Event::Fleet => {}
        }
    }
    whole.extend(seen.iter().flat_map(|key| depends::dependents(state, key)));
    for deployment in deployments {
        replicas.extend(waiting_for_data(state, deployment));
    }
    for key in whole {
        let slots = state.service(&key).into_iter().flat_map(|service| service.replicas.keys());
        replicas.extend(slots.map(|slot| ReplicaId::new(key.clone(), slot.clone())));
    }
    replicas
}

/// The replicas of services with data that have not begun. The service of what they wait for may be gone with it.
fn waiting_for_data<'s>(
    state: &'s State,
    deployment: &'s DeploymentName,
) -> impl Iterator<Item = ReplicaId> + 's {
    let services = state.services_of(deployment).filter_map(|key| Some((key, state.service(key)?)));
    let stateful =
        services.filter(|(_, service)| service.desired().is_some_and(|spec| spec.mounts_data()));
    stateful.flat_map(|(key, service)| {
        let fresh = service.replicas.iter().filter(|(_, replica)| agent::is_to_begin(replica));
        fresh.map(|(slot, _)| ReplicaId::new(key.clone(), slot.clone()))
    })
}

fn has_declared(state: &State, key: &ServiceKey) -> bool {
    let desired = state.service(key).and_then(Service::desired);
    desired.is_some_and(|spec| spec.has_declared())
}

#[cfg(test)]
mod tests {
    use plimsoll_model::ObservedState;
    use plimsoll_model::spec::Dependency;
    use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, service_key, spread};

    use super::*;
    use crate::testkit::Passes;

    fn after(other: &str, until: Dependency) -> ServiceSpec {
        let mut spec = spread(1);
        spec.depends_on = [(ServiceName::new(other).unwrap(), until)].into();
        spec
    }

    #[test]
    fn a_node_is_told_what_holds_a_replica_back_and_what_has_ended_for_good() {
        let cell = cell()
            .node("ash", cpus(4))
            .deploy("shop", [("app", after("job", Dependency::Completed)), ("job", spread(1))])
            .pass();
        let (ash, app, job) = (node_id("ash"), replica_id("shop/app/1"), replica_id("shop/job/1"));
        let orders = |cell: &Cell, id| {
            of(&cell.state, &ash, id).map(|it| (it.awaits, it.spec.is_job(), it.is_over)).next()
        };
        let job_name = ServiceName::new("job").unwrap();
        let awaits = Some((job_name, Dependency::Completed));
        assert_eq!(orders(&cell, &app), Some((awaits, false, false)));
        assert_eq!(orders(&cell, &job), Some((None, true, false)));
        let mut cell = cell;
        let generation = cell.state.replica(&job).unwrap().heading().unwrap().generation;
        cell.report(&job, generation, ObservedState::Completed, None);
        assert_eq!(orders(&cell, &app), Some((None, false, false)));
        assert_eq!(orders(&cell, &job), Some((None, true, true)));
    }

    #[test]
    fn whoever_waits_is_told_of_what_it_waits_for() {
        let cell = cell()
            .node("ash", cpus(4))
            .deploy("shop", [("app", after("job", Dependency::Completed)), ("job", spread(1))])
            .pass();
        let (app, job) = (replica_id("shop/app/1"), replica_id("shop/job/1"));
        let of_node = [app.clone(), job.clone()];
        for (event, expected) in [
            (Event::Replica(job.clone()), &of_node[..]),
            (Event::Service(service_key("shop/job")), &of_node),
            (Event::Node(node_id("ash")), &of_node),
            (Event::Replica(app.clone()), std::slice::from_ref(&app)),
            (Event::Access, &[]),
        ] {
            let touched: Vec<ReplicaId> =
                touched(&cell.state, [&event].into_iter()).into_iter().collect();
            assert_eq!(touched, expected, "{event:?}");
        }
    }
}
