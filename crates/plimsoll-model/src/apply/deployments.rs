//! Changes to deployments and the services they name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Txn, ports, quota, schedules};
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{DeploymentName, ReplicaId, ServiceKey, ServiceName};
use crate::reason::Unplaced;
use crate::replica::Replica;
use crate::rollout::RolloutPhase;
use crate::spec::{RouteSpec, ServiceSpec, SpecHash, awaited_jobs};
use crate::state::{
    Deployment, MAX_NAMES, MAX_REPLICAS, MAX_REQUEST, MAX_REVISIONS, MAX_ROUTES, MAX_SERVICES,
    RevisionRecord, Service, ServiceRow,
};
use crate::units::Revision;

pub(super) type Services = BTreeMap<ServiceName, Arc<ServiceSpec>>;

impl Txn<'_> {
    pub(super) fn deploy(
        &mut self,
        name: &DeploymentName,
        services: &Services,
        routes: &[RouteSpec],
    ) -> Result<(), Refusal> {
        if self.state.fleet.is_some() {
            return Err(Refusal::Coordinator);
        }
        let services = &with_jobs(services);
        within_bounds(services)?;
        schedules::check(services)?;
        self.check_files(services)?;
        self.check_routes(name, services, routes)?;
        let current = self.state.deployments.get(name);
        let before = current.and_then(Deployment::current).map(|record| &record.services);
        ports::check(self.state, name, before, services)?;
        let is_same = |r: &RevisionRecord| r.services == *services && r.routes == *routes;
        if let Some(current) = current
            && current.current().is_some_and(is_same)
        {
            let revision = current.revision;
            self.desire_all(name, services, revision);
            return self.retry(name);
        }

        let revision = self.write_revision(name, services, routes)?;
        self.spare_volumes(name);

        for key in self.services_of(name) {
            if !services.contains_key(&key.service) {
                self.retire_service(&key);
            }
        }
        self.desire_all(name, services, revision);
        self.retry(name)
    }

    /// The next revision of the deployment. What its services should run is not changed by it.
    pub(super) fn write_revision(
        &mut self,
        name: &DeploymentName,
        services: &Services,
        routes: &[RouteSpec],
    ) -> Result<Revision, Refusal> {
        let current = self.state.deployments.get(name);
        let names = self.state.counters.revision.len() + self.state.counters.next_index.len();
        if names + services.len() >= MAX_NAMES {
            let what = "names of deployments and services, now or ever".to_owned();
            return Err(Refusal::TooMany { what, found: names + services.len(), max: MAX_NAMES });
        }
        let last = self.state.counters.revision.get(name).map_or(0, |revision| revision.0);
        let revision = Revision(last.saturating_add(1));
        let mut history = current.map(|d| d.history.clone()).unwrap_or_default();
        let (at, by, bytes) = (self.at, self.by.clone(), quota::size(services, routes));
        let (services_kept, routes) = (services.clone(), routes.to_vec());
        let record = RevisionRecord { at, by, services: services_kept, routes, bytes };
        history.insert(revision, record);
        while history.len() > MAX_REVISIONS || quota::is_over(&history) {
            history.pop_first();
        }
        quota::check(self.state, name, bytes, quota::bytes(&history))?;
        self.set_revision_counter(name, revision);
        self.set_deployment(name, Some(Deployment { revision, history }));
        self.audit(AuditKind::Deployed { deployment: name.clone(), revision });
        Ok(revision)
    }

    /// Each route leads to a service of its own deployment, and is nobody else's. Checked here, where nothing comes between
    /// the look and the write.
    fn check_routes(
        &self,
        name: &DeploymentName,
        services: &Services,
        routes: &[RouteSpec],
    ) -> Result<(), Refusal> {
        if routes.len() > MAX_ROUTES {
            let (what, found) = ("routes".to_owned(), routes.len());
            return Err(Refusal::TooMany { what, found, max: MAX_ROUTES });
        }
        for (at, route) in routes.iter().enumerate() {
            if !services.contains_key(&route.service) {
                let (route, service) = (route.to_string(), route.service.clone());
                return Err(Refusal::RouteNowhere { route, service });
            }
            let beside = routes[..at].iter().map(|other| (name, other));
            let elsewhere = self.state.routes().filter(|(owner, _)| *owner != name);
            let mut others = beside.chain(elsewhere);
            if let Some((by, _)) = others.find(|(_, other)| other.is_same_claim(route)) {
                return Err(Refusal::RouteTaken { route: route.to_string(), by: by.clone() });
            }
        }
        Ok(())
    }

    /// Whoever applies a file, even the same one, wants another try of what was given up.
    fn retry(&mut self, name: &DeploymentName) -> Result<(), Refusal> {
        for key in self.services_of(name) {
            let Some(service) = self.state.services.get(&key) else { continue };
            let rollout = service.row.rollout.as_ref();
            if rollout
                .is_some_and(|r| matches!(r.phase, RolloutPhase::Rolling | RolloutPhase::Paused))
            {
                self.resume_rollout(&key)?;
            }
            let Some(service) = self.state.services.get(&key) else { continue };
            let given_up = service.replicas.iter().filter(|(_, replica)| replica.has_given_up());
            let ids: Vec<ReplicaId> =
                given_up.map(|(slot, _)| ReplicaId::new(key.clone(), slot.clone())).collect();
            for id in ids {
                self.try_again(&id)?;
            }
        }
        Ok(())
    }

    pub(super) fn undeploy(&mut self, name: &DeploymentName) -> Result<(), Refusal> {
        if !self.state.deployments.contains_key(name) {
            return Err(Refusal::NoSuchDeployment { deployment: name.clone() });
        }
        self.set_deployment(name, None);
        for key in self.services_of(name) {
            self.retire_service(&key);
        }
        self.audit(AuditKind::Undeployed { deployment: name.clone() });
        Ok(())
    }

    pub(super) fn set_unplaced(
        &mut self,
        key: &ServiceKey,
        unplaced: Option<&Unplaced>,
    ) -> Result<(), Refusal> {
        let service = self.service(key)?;
        if service.row.unplaced.as_ref() == unplaced {
            return Ok(());
        }
        let mut row = ServiceRow { unplaced: unplaced.cloned(), ..service.row.clone() };
        if unplaced.is_none() {
            row.preempted = None;
        }
        self.set_service(key, Some(row));
        let service = key.clone();
        self.audit(match unplaced {
            Some(Unplaced { missing, why, .. }) => {
                AuditKind::Unplaced { service, missing: *missing, why: why.clone() }
            }
            None => AuditKind::AllPlaced { service },
        });
        Ok(())
    }

    fn desire_all(&mut self, name: &DeploymentName, services: &Services, revision: Revision) {
        for (service, spec) in services {
            self.desire(&ServiceKey::new(name.clone(), service.clone()), spec, revision);
        }
    }

    /// The service should run this spec from now on.
    pub(super) fn desire(&mut self, key: &ServiceKey, spec: &Arc<ServiceSpec>, revision: Revision) {
        let spec = self.with_declared(key, spec);
        let (spec, schedule) = self.with_schedule(key, &spec);
        let spec = &spec;
        let old = self.state.services.get(key);
        if old.is_some_and(|service| service.desired() == Some(spec)) {
            return;
        }
        let is_same = old.is_some_and(|service| service.row.desired == Some(spec.hash));
        let rollout = if is_same {
            old.and_then(|service| service.row.rollout.clone())
        } else {
            self.begin_rollout(key, spec, revision)
        };
        let old = self.state.services.get(key);
        let mut specs = old.map(specs_in_use).unwrap_or_default();
        specs.insert(spec.hash, spec.clone());
        // Where it failed is forgotten with the container that failed, not when the service is merely scaled.
        let same = old.filter(|service| service.row.desired == Some(spec.hash));
        let failures = same.map(|service| service.row.failures.clone()).unwrap_or_default();
        let row = ServiceRow {
            desired: Some(spec.hash),
            revision,
            specs,
            unplaced: None,
            failures,
            rollout,
            preempted: None,
            schedule,
        };
        self.set_service(key, Some(row));
        self.sort_into_runs(key);
        if spec.retries().is_none() {
            self.renew_completed(key, spec.hash);
        }
    }

    /// What completed while that was what it was for should serve from now on.
    fn renew_completed(&mut self, key: &ServiceKey, spec: SpecHash) {
        let Some(service) = self.state.services.get(key) else { return };
        let is_over = |replica: &Replica| {
            let mut held = replica.assignment.iter().filter(|at| at.spec == spec);
            held.any(|at| replica.is_over(at))
        };
        let over = service.replicas.iter().filter(|(_, replica)| is_over(replica));
        let ids: Vec<ReplicaId> =
            over.map(|(slot, _)| ReplicaId::new(key.clone(), slot.clone())).collect();
        for id in ids {
            self.renew(&id).expect("a replica with an assignment can be renewed");
        }
    }

    fn retire_service(&mut self, key: &ServiceKey) {
        let Some(service) = self.state.services.get(key) else { return };
        if service.row.desired.is_none() {
            return;
        }
        let row =
            ServiceRow { desired: None, unplaced: None, schedule: None, ..service.row.clone() };
        let is_empty = service.replicas.is_empty();
        self.set_service(key, (!is_empty).then_some(row));
    }

    fn services_of(&self, name: &DeploymentName) -> Vec<ServiceKey> {
        self.state.services_of(name).cloned().collect()
    }

    pub(super) fn service(&self, key: &ServiceKey) -> Result<&Service, Refusal> {
        self.state.services.get(key).ok_or_else(|| Refusal::NoSuchService { service: key.clone() })
    }
}

/// The specs that some assignment still names; the rest are dropped when a new one comes.
pub(super) fn specs_in_use(service: &Service) -> BTreeMap<SpecHash, Arc<ServiceSpec>> {
    let holds = service.replicas.values().flat_map(Replica::holds);
    let used: BTreeSet<SpecHash> = holds.map(|assignment| assignment.spec).collect();
    let specs = service.row.specs.iter().filter(|(hash, _)| used.contains(*hash));
    specs.map(|(hash, spec)| (*hash, spec.clone())).collect()
}

/// The services, those that others wait for to complete and those on a schedule as jobs.
fn with_jobs(services: &Services) -> Services {
    let mut services = services.clone();
    for spec in services.values_mut().filter(|spec| spec.schedule.is_some()) {
        let spec = Arc::make_mut(spec);
        if let Some(schedule) = &mut spec.schedule {
            schedule.copies = None;
        }
        if !spec.is_job() {
            spec.become_job();
        }
    }
    for name in awaited_jobs(services.values().map(AsRef::as_ref)) {
        if let Some(spec) = services.get_mut(&name).filter(|spec| !spec.is_job()) {
            Arc::make_mut(spec).become_job();
        }
    }
    services
}

fn within_bounds(services: &Services) -> Result<(), Refusal> {
    if services.len() > MAX_SERVICES {
        let (what, found) = ("services".to_owned(), services.len());
        return Err(Refusal::TooMany { what, found, max: MAX_SERVICES });
    }
    for (name, spec) in services {
        let much = |what: &str, found: u64, max: u64| {
            let what = format!("{what} of service {name}");
            if found > max { Err(Refusal::TooMuch { what, found, max }) } else { Ok(()) }
        };
        let request = spec.request();
        much("replicas", spec.placement.mode.replicas().unwrap_or(0).into(), MAX_REPLICAS.into())?;
        much("the cpu reservation", request.cpu.0, MAX_REQUEST.cpu.0)?;
        much("the memory reservation", request.memory.0, MAX_REQUEST.memory.0)?;
        much("the gpu reservation", request.gpus.into(), MAX_REQUEST.gpus.into())?;
        if let Some(excess) = spec.excesses().first() {
            much(excess.field, excess.found.number(), excess.max.number())?;
        }
    }
    Ok(())
}
