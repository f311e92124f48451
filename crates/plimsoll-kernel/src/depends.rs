//! Which of the services that a service depends on has not come far enough for it to start. Asked before the first start
//! of a generation, anywhere in the cell; once it has started, it is on its own, as with Compose.

use plimsoll_model::spec::Dependency;
use plimsoll_model::state::Service;
use plimsoll_model::{
    DeploymentName, Observation, ObservedCode, ObservedState, ServiceKey, ServiceName, ServiceSpec,
    State,
};

/// The first service, by name, that is still waited for, and what it is waited for to do.
pub fn unmet(
    state: &State,
    deployment: &DeploymentName,
    spec: &ServiceSpec,
) -> Option<(ServiceName, Dependency)> {
    spec.depends_on.iter().find_map(|(name, until)| {
        let service = state.service(&ServiceKey::new(deployment.clone(), name.clone()));
        // One replica that came so far is enough: a cell that lacks room for the others must still start the rest.
        let is_met = service.is_some_and(|service| seen(service).any(|seen| meets(seen, *until)));
        (!is_met).then(|| (name.clone(), *until))
    })
}

/// Whether others of the deployment wait for the service to complete: then it has one job, and ends when that is done.
pub fn is_job(state: &State, key: &ServiceKey) -> bool {
    let Some(deployment) = state.deployments().get(&key.deployment) else { return false };
    let current = deployment.history.get(&deployment.revision);
    current.is_some_and(|record| {
        record
            .services
            .values()
            .any(|spec| spec.depends_on.get(&key.service) == Some(&Dependency::Completed))
    })
}

fn seen(service: &Service) -> impl Iterator<Item = &Observation> {
    service.replicas.values().flat_map(|replica| replica.observed.values())
}

fn meets(seen: &Observation, until: Dependency) -> bool {
    match until {
        Dependency::Started => matches!(
            seen.state,
            ObservedState::Starting | ObservedState::Running | ObservedState::Degraded
        ),
        Dependency::Healthy => seen.state == ObservedState::Running,
        Dependency::Completed => seen.code == Some(ObservedCode::Completed),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_model::testkit::{cell, cpus, replica_id, service_key, spread};

    use super::*;
    use crate::testkit::Passes;

    #[test]
    fn a_service_waits_until_what_it_depends_on_has_come_far_enough() {
        use ObservedState::{Degraded, Pulling, Running, Starting};
        for (case, until, seen, code, is_met) in [
            ("nothing was said yet", Dependency::Started, None, None, false),
            ("pulling is not started", Dependency::Started, Some(Pulling), None, false),
            ("a process is", Dependency::Started, Some(Starting), None, true),
            ("but not healthy", Dependency::Healthy, Some(Starting), None, false),
            ("running is healthy", Dependency::Healthy, Some(Running), None, true),
            ("degraded is not", Dependency::Healthy, Some(Degraded), None, false),
            ("running is not complete", Dependency::Completed, Some(Running), None, false),
            (
                "complete is what its node calls so",
                Dependency::Completed,
                Some(Running),
                Some(ObservedCode::Completed),
                true,
            ),
        ] {
            let mut web = spread(1);
            web.depends_on = BTreeMap::from([(ServiceName::new("db").unwrap(), until)]);
            let mut cell = cell()
                .node("ash", cpus(4))
                .deploy("shop", [("db", spread(1)), ("web", web.clone())])
                .pass();
            let db = replica_id("shop/db/1");
            let generation = cell.state.replica(&db).unwrap().assignment.clone().unwrap();
            if let Some(state) = seen {
                cell.report(&db, generation.generation, state, code);
            }
            let unmet = unmet(&cell.state, &db.service.deployment, &web);
            assert_eq!(unmet.is_none(), is_met, "{case}: {unmet:?}");
            let job = is_job(&cell.state, &service_key("shop/db"));
            assert_eq!(job, until == Dependency::Completed, "{case}");
        }
    }
}
