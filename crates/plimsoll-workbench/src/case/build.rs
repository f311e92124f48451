//! Case to cell: every entry becomes the command that would have brought it about, and is refused as that would be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use plimsoll_api::suggest;
use plimsoll_kernel::{Policy, Signals, depends};
use plimsoll_model::{
    Author, Availability, CellId, Change, Command, DeploymentName, Millis, Mode, NodeId,
    NodePressure, NodeStatus, Observation, ObservedState, Refusal, ReplicaId, ServiceKey,
    ServiceSpec, Slot, SpecHash, State, Term, Timestamp, Writer,
};
use serde_saphyr::Location;

use super::entries::{CaseEntry, ReplicaEntry};
use super::measured::{self, known_node};
use super::{Case, CellSnapshot};
use crate::entries::deployment::{self, Services};
use crate::entries::node::{NodeEntry, NodeNames};
use crate::error::Result;
use crate::mistake::{InputText, Mistake};

mod room;

/// When the case is looked at, where no cycle says so. Only how long ago things happened matters, so any moment will do that
/// lies well after the first: a day.
const NOW: Timestamp = Timestamp(24 * 60 * 60 * 1_000);

/// When nodes joined, and replicas were placed where the case does not say.
const LONG_AGO: Timestamp = Timestamp(0);

/// How long a node has been down where the case does not say: beyond any grace.
const DOWN_FOR: Millis = Millis::minutes(10);

pub(super) fn build(case: &CaseEntry, page: InputText, directory: &Path) -> Result<Case> {
    let wrong = |mistake: Mistake| mistake.on(&page);
    let cell_id =
        case.cell_id.clone().unwrap_or_else(|| CellId::new("case").expect("a valid name"));
    let times = measured::times(case.cycles.as_deref().unwrap_or_default(), NOW).map_err(wrong)?;
    let mut builder = CaseBuilder {
        state: State::new(cell_id),
        signals: Signals::default(),
        names: NodeNames::default(),
        now: times.first().copied().unwrap_or(NOW),
        may_share_ports: case.may_share_ports,
    };
    for node in &case.nodes {
        builder.node(node).map_err(wrong)?;
    }
    let (mut deployments, mut warnings) = (BTreeMap::new(), Vec::new());
    for entry in &case.deployments {
        let (name, services) = deployment::load(entry, &page, directory, &mut warnings)?;
        depends::check(&services).map_err(|mistake| {
            let message = format!("deployment {name} is refused: {mistake}");
            Mistake::new(entry.referenced, message).on(&page)
        })?;
        builder.deploy(&name, &services).map_err(|refusal| {
            let message = format!("deployment {name} is refused: {refusal}");
            Mistake::new(entry.referenced, message).on(&page)
        })?;
        if deployments.insert(name.clone(), services).is_some() {
            let mistake =
                Mistake::new(entry.referenced, format!("deployment {name} is there twice"));
            return Err(mistake.hint("give one of them another `name`").on(&page));
        }
    }
    let measured = builder
        .replicas(&case.replicas, &mut deployments)
        .and_then(|()| builder.ended(case))
        .and_then(|()| builder.room(&case.nodes))
        .and_then(|()| builder.conditions(&case.nodes))
        .and_then(|()| measured::of(case, &times, &builder.state))
        .map_err(wrong)?;
    let CaseBuilder { state, mut signals, now, .. } = builder;
    let policy = Policy::default();
    // Of a node that the case says nothing else of, the first cycle tells how busy it is.
    let first = measured.as_ref().and_then(|it| it.cycles.first());
    for (node, sample) in first.into_iter().flat_map(|cycle| &cycle.readings.nodes) {
        let pressure = signals.pressure(node).or_else(|| sample.fresh_pressure(&policy, now));
        signals.set(node, pressure);
    }
    let cell = CellSnapshot { state, signals, policy, now };
    Ok(Case { cell, measured, warnings, text: page })
}

/// A cell under construction.
struct CaseBuilder {
    state: State,
    signals: Signals,
    names: NodeNames,
    now: Timestamp,
    may_share_ports: bool,
}

impl CaseBuilder {
    fn node(&mut self, entry: &NodeEntry) -> Result<(), Mistake> {
        let at = entry.name.referenced;
        let pressure =
            entry.pressure.as_ref().map(|p| NodePressure::new(p.value.cpu.0, p.value.memory.0));
        for (name, facts) in entry.nodes()? {
            self.names.add(&name, at)?;
            let change = Change::PutNode { node: name.clone(), facts };
            self.apply(LONG_AGO, Writer::Operator, change)
                .map_err(|refusal| Mistake::new(at, refusal.to_string()))?;
            self.signals.set(&name, pressure);
        }
        Ok(())
    }

    /// What is the matter with nodes comes last: it befell them with their replicas on them.
    fn conditions(&mut self, nodes: &[NodeEntry]) -> Result<(), Mistake> {
        for entry in nodes {
            for (node, _) in entry.nodes()? {
                self.condition(entry, node)?;
            }
        }
        Ok(())
    }

    fn condition(&mut self, entry: &NodeEntry, node: NodeId) -> Result<(), Mistake> {
        let refused = |refusal| Mistake::new(entry.name.referenced, format!("{refusal}"));
        let availability = entry.availability.as_ref().map_or(Availability::Active, |a| a.value);
        if availability != Availability::Active {
            // A drain has its time from now on.
            let change = Change::SetAvailability { node: node.clone(), availability };
            self.apply(self.now, Writer::Operator, change).map_err(refused)?;
        }
        if let Some(span) = &entry.runtime_down_for {
            let since = Timestamp(self.now.since(Timestamp(span.value.0.0)).0);
            let outage = Some("it does not answer".to_owned());
            let change = Change::SetRuntime { node: node.clone(), outage };
            self.apply(since, Writer::Liveness, change).map_err(refused)?;
        }
        let status = entry.status.as_ref().map_or(NodeStatus::Ready, |status| status.value);
        match (status, &entry.down_for) {
            (NodeStatus::Ready, Some(down_for)) => {
                let message = format!("node {node} is ready, so it is not down for any time");
                Err(Mistake::new(down_for.referenced, message)
                    .hint("add `status: down`, or remove `down_for`"))
            }
            (NodeStatus::Ready, None) => Ok(()),
            (NodeStatus::Down, down_for) => {
                let span = down_for.as_ref().map_or(DOWN_FOR, |span| span.value.0);
                let since = Timestamp(self.now.since(Timestamp(span.0)).0);
                let change = Change::SetStatus { node, status: NodeStatus::Down };
                self.apply(since, Writer::Liveness, change).map_err(refused)
            }
        }
    }

    /// Places what runs now, each service's replicas in the order of their indices, since those only ever grow.
    fn replicas(
        &mut self,
        entries: &[ReplicaEntry],
        deployments: &mut BTreeMap<DeploymentName, Services>,
    ) -> Result<(), Mistake> {
        let desired = deployments.clone();
        let index = |entry: &ReplicaEntry| entry.index.as_ref().map_or(u32::MAX, |i| i.value);
        let mut sorted: Vec<&ReplicaEntry> = entries.iter().collect();
        sorted.sort_by_key(|entry| (entry.service.value.0.clone(), index(entry)));
        let mut placed = Vec::new();
        for entry in sorted {
            let key = &entry.service.value.0;
            let spec = desired.get(&key.deployment).and_then(|all| all.get(&key.service));
            let Some(spec) = spec else { return Err(self.no_such_service(entry)) };
            let own = older(spec, entry);
            let services = deployments.get_mut(&key.deployment).expect("looked up just above");
            if services.get(&key.service) != Some(&own) {
                services.insert(key.service.clone(), own.clone());
                let services = services.clone();
                self.deploy(&key.deployment, &services).map_err(|refusal| {
                    Mistake::new(entry.service.referenced, format!("{refusal}"))
                })?;
            }
            let id = self.replica(entry, &own)?;
            placed.push(PlacedRow { id, entry, own, desired: spec.hash });
        }
        // The failures of an older spec were forgotten with it; those of the present one belong to its rollout.
        self.report(placed.iter().filter(|row| row.is_older()))?;
        self.begin_rollouts(&placed, deployments, &desired);
        self.report(placed.iter().filter(|row| !row.is_older()))?;
        // What is on its way goes to the spec that the service has now.
        for row in placed {
            self.successor(&row.id, row.entry, row.desired)?;
        }
        Ok(())
    }

    fn report<'r>(&mut self, rows: impl Iterator<Item = &'r PlacedRow<'r>>) -> Result<(), Mistake> {
        for PlacedRow { id, entry, .. } in rows {
            self.observe(id, placed_at(entry), entry.state)
                .map_err(|refusal| refused(entry.service.referenced, &refusal))?;
        }
        Ok(())
    }

    /// Every service goes to the spec it has now, from the one before it.
    fn begin_rollouts(
        &mut self,
        placed: &[PlacedRow<'_>],
        deployments: &mut BTreeMap<DeploymentName, Services>,
        desired: &BTreeMap<DeploymentName, Services>,
    ) {
        let earlier = earlier_specs(placed);
        for (key, spec) in &earlier {
            let services = deployments.get_mut(&key.deployment).expect("it has replicas");
            if services.insert(key.service.clone(), spec.clone()).as_ref() != Some(spec) {
                let services = services.clone();
                self.deploy(&key.deployment, &services).expect("it was deployed before");
            }
            let end = Change::EndRollout { service: key.clone() };
            self.apply(LONG_AGO, Writer::Scheduler, end).expect("it was rolled out for a replica");
        }
        for (name, services) in desired {
            if deployments.get(name) != Some(services) {
                self.deploy(name, services).expect("it was deployed before");
            }
        }
    }

    fn replica(&mut self, entry: &ReplicaEntry, spec: &ServiceSpec) -> Result<ReplicaId, Mistake> {
        let key = &entry.service.value.0;
        let node = known_node(&self.state, &entry.node)?;
        let slot = match (&entry.index, &spec.placement.mode) {
            (Some(index), Mode::Global) => {
                let message = format!("{key} is global: its replicas are named after their nodes");
                return Err(Mistake::new(index.referenced, message).hint("remove `index`"));
            }
            (None, Mode::Global) => Slot::Node(node.clone()),
            (Some(index), _) => Slot::Index(index.value),
            (None, _) => Slot::Index(self.state.next_index(key)),
        };
        let id = ReplicaId::new(key.clone(), slot);
        let at = entry.index.as_ref().map_or(entry.service.referenced, |index| index.referenced);
        // No node could have started it: the port was bound.
        let load = self.state.load(node);
        let holder = |port| Some((port, load?.port_holder(port)?));
        if let Some((port, by)) = spec.host_ports().find_map(holder)
            && !self.may_share_ports
        {
            let message = format!("{id} cannot run on {node}: {by} holds {port}");
            return Err(Mistake::new(entry.node.referenced, message)
                .hint("put one of them on another node"));
        }
        let place = Change::Place { replica: id.clone(), node: node.clone(), spec: spec.hash };
        self.apply(placed_at(entry), Writer::Scheduler, place)
            .map_err(|refusal| refused(at, &refusal))?;
        Ok(id)
    }

    fn successor(
        &mut self,
        id: &ReplicaId,
        entry: &ReplicaEntry,
        spec: SpecHash,
    ) -> Result<(), Mistake> {
        let Some(next) = &entry.successor else { return Ok(()) };
        let (node, cause) = (known_node(&self.state, &next.value.node)?.clone(), next.value.cause);
        let since = next.value.at.map_or(self.now, |at| Timestamp(at.0.0.0));
        let wrong = |refusal: Refusal| refused(next.referenced, &refusal);
        let change = Change::Succeed { replica: id.clone(), node, spec, cause };
        self.apply(since, Writer::Scheduler, change).map_err(wrong)?;
        let Some(state) = next.value.state else { return Ok(()) };
        let row = self.state.replica(id).and_then(|row| row.successor.as_ref());
        let generation = row.expect("given just above").assignment.generation;
        let observation = Observation { state, code: None, at: since };
        let report = Change::Observe { replica: id.clone(), generation, observation };
        self.apply(since, Writer::Agent, report).map_err(wrong)
    }

    /// Reports the same of all that is held of a replica.
    fn observe(
        &mut self,
        id: &ReplicaId,
        at: Timestamp,
        state: ObservedState,
    ) -> Result<(), Refusal> {
        let row = self.state.replica(id).into_iter();
        let held: Vec<_> = row.flat_map(|row| row.holds().map(|it| it.generation)).collect();
        for generation in held {
            let observation = Observation { state, code: None, at };
            let replica = id.clone();
            self.apply(at, Writer::Agent, Change::Observe { replica, generation, observation })?;
        }
        Ok(())
    }

    fn no_such_service(&self, entry: &ReplicaEntry) -> Mistake {
        self.unknown_service(&entry.service.value.0, entry.service.referenced)
    }

    fn unknown_service(&self, key: &ServiceKey, at: Location) -> Mistake {
        let names: BTreeSet<String> =
            self.state.services().keys().map(ServiceKey::to_string).collect();
        let hint = suggest::hint(&key.to_string(), "service", names.iter().map(String::as_str));
        Mistake::new(at, format!("there is no service {key}")).hint(hint)
    }

    fn deploy(&mut self, name: &DeploymentName, services: &Services) -> Result<(), Refusal> {
        let (deployment, services) = (name.clone(), services.clone());
        let change = Change::Deploy { deployment, services, routes: Vec::new() };
        self.apply(LONG_AGO, Writer::Operator, change)
    }

    fn apply(&mut self, at: Timestamp, writer: Writer, change: Change) -> Result<(), Refusal> {
        let author = Author::new(writer, "case");
        let command = Command::new(at, Term(1), author, vec![change.free()]);
        self.state.apply(&command).map(drop).map_err(|rejection| rejection.reason)
    }
}

fn refused(at: Location, refusal: &Refusal) -> Mistake {
    let mistake = Mistake::new(at, refusal.to_string());
    match refusal {
        Refusal::ReplicaExists { .. } => mistake.hint("give one of them another `index`"),
        _ => mistake,
    }
}

/// A replica of the case that has been placed.
struct PlacedRow<'c> {
    id: ReplicaId,
    entry: &'c ReplicaEntry,
    /// What it was started from.
    own: Arc<ServiceSpec>,
    /// What its service has now.
    desired: SpecHash,
}

impl PlacedRow<'_> {
    fn is_older(&self) -> bool {
        self.own.hash != self.desired
    }
}

fn placed_at(entry: &ReplicaEntry) -> Timestamp {
    entry.at.map_or(LONG_AGO, |at| Timestamp(at.0.0.0))
}

/// What services had before the spec they have now, as far as their replicas tell: what one of them was given last; of two
/// given at the same time, what more of them run, and then the greater hash. The order of rows says nothing.
fn earlier_specs(placed: &[PlacedRow<'_>]) -> BTreeMap<ServiceKey, Arc<ServiceSpec>> {
    let mut found: BTreeMap<(&ServiceKey, SpecHash), (Timestamp, u32, &Arc<ServiceSpec>)> =
        BTreeMap::new();
    for row in placed.iter().filter(|row| row.is_older()) {
        let none_yet = (LONG_AGO, 0, &row.own);
        let (last, count, _) = found.entry((&row.id.service, row.own.hash)).or_insert(none_yet);
        (*last, *count) = (placed_at(row.entry).max(*last), *count + 1);
    }
    let mut ranked: Vec<_> = found.into_iter().collect();
    ranked.sort_by_key(|((_, hash), (last, count, _))| (*last, *count, *hash));
    // The last of a service is the one that stays.
    ranked.into_iter().map(|((key, _), (_, _, spec))| (key.clone(), spec.clone())).collect()
}

/// The spec a replica was started from, where it is not the one the service has now.
fn older(spec: &Arc<ServiceSpec>, entry: &ReplicaEntry) -> Arc<ServiceSpec> {
    let image = entry.image.as_ref().filter(|image| **image != spec.container.image);
    let hash = entry.spec.filter(|hash| *hash != spec.hash);
    if image.is_none() && hash.is_none() {
        return spec.clone();
    }
    let mut older = ServiceSpec::clone(spec);
    if let Some(image) = image {
        older.container.image.clone_from(image);
    }
    older.hash = hash.unwrap_or_else(|| SpecHash::of(&older.container));
    Arc::new(older)
}
