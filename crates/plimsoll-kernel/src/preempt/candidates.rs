//! Which replicas of a node may make way for one of higher priority, and which are kept.

use std::collections::BTreeMap;

use plimsoll_model::spec::HostPort;
use plimsoll_model::state::Service;
use plimsoll_model::{
    Generation, Mode, NodeId, Replica, ReplicaId, Resources, ServiceKey, SpecHash,
};

use super::{KeptReplicas, VictimSearch, outranks_budget};
use crate::budget::{DisruptionBudget, DisruptionCost};
use crate::data::has_data;

/// A replica that may make way.
#[derive(Debug)]
pub(super) struct Candidate<'s> {
    pub(super) id: ReplicaId,
    pub(super) generation: Generation,
    pub(super) request: Resources,
    pub(super) priority: i32,
    pub(super) penalty: u8,
    /// Those of one class are interchangeable; the first goes first.
    pub(super) class: usize,
    /// Which of the services on the node it is of.
    pub(super) service_number: usize,
    /// How many of its service may go; none: as many as it takes.
    cap: Option<usize>,
    key: ClassKey<'s>,
}

type ClassKey<'s> = (i32, u8, &'s ServiceKey, bool, SpecHash);

/// Which replicas of a service its disruption budget lets go.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    serving: bool,
    idle: bool,
}

/// What services may give, found once in a search.
#[derive(Debug, Default)]
pub(crate) struct Allowances(BTreeMap<ServiceKey, (bool, bool)>);

impl KeptReplicas {
    pub(super) fn count(self) -> usize {
        [self.priority, self.data, self.budget, self.moving].iter().map(|it| *it as usize).sum()
    }
}

/// What is set aside on the node for the replica, also for an old copy that a new one replaces there: all of it comes free when
/// the replica goes.
pub(crate) fn set_aside(service: &Service, replica: &Replica, node: &NodeId) -> Resources {
    let here = replica.holds().filter(|it| it.node == *node && !replica.has_vacated(it));
    let requests = here.filter_map(|it| service.spec_of(it)).map(|spec| spec.request());
    requests.fold(Resources::NONE, Resources::plus)
}

/// How many of each service may go.
pub(super) fn caps(candidates: &[Candidate<'_>]) -> Vec<usize> {
    let services = candidates.iter().map(|it| it.service_number + 1).max().unwrap_or(0);
    let mut caps = vec![usize::MAX; services];
    for candidate in candidates {
        caps[candidate.service_number] = candidate.cap.unwrap_or(usize::MAX);
    }
    caps
}

/// As many of each service as may go, the first ones.
pub(super) fn within_caps<'c, 's>(candidates: &'c [Candidate<'s>]) -> Vec<&'c Candidate<'s>> {
    let mut left = caps(candidates);
    let may_go = |it: &&Candidate<'_>| {
        let left = &mut left[it.service_number];
        let goes = *left > 0;
        *left = left.saturating_sub(1);
        goes
    };
    candidates.iter().filter(may_go).collect()
}

impl<'a> VictimSearch<'a> {
    /// In the order they are taken, of those that are alike: lowest priority, least penalty, what does not serve, the newest.
    pub(super) fn candidates(
        &self,
        node: &NodeId,
        allowances: &mut Allowances,
    ) -> (Vec<Candidate<'a>>, KeptReplicas) {
        let mut kept = KeptReplicas::default();
        let mut found = Vec::new();
        let tenants = self.state.load(node).into_iter().flat_map(|load| &load.tenants);
        for id in tenants {
            let Some((key, service)) = self.state.services().get_key_value(&id.service) else {
                continue;
            };
            let Some(replica) = service.replicas.get(&id.slot) else { continue };
            let Some(spec) = service.desired() else { continue };
            let here = replica.assignment.as_ref().filter(|it| it.node == *node);
            let (Some(here), None) = (here, &replica.successor) else {
                kept.moving += 1;
                continue;
            };
            // What has completed holds no room that it could give; what failed for good would be run once more.
            if replica.is_over(here) {
                continue;
            }
            if spec.priority >= self.ask.spec.priority || key == self.key {
                kept.priority += 1;
                continue;
            }
            if has_data(service, replica) {
                kept.data += 1;
                continue;
            }
            let is_outranked = outranks_budget(self.ask.spec.priority, spec.priority);
            if !is_outranked {
                let allowance = self.allowance(node, key, service, allowances);
                let is_allowed =
                    if replica.is_running() { allowance.serving } else { allowance.idle };
                if !is_allowed {
                    kept.budget += 1;
                    continue;
                }
            }
            let request = set_aside(service, replica, node);
            let penalty = spec.interruption_penalty;
            found.push(Candidate {
                id: id.clone(),
                generation: here.generation,
                request,
                priority: spec.priority,
                penalty,
                class: 0,
                service_number: 0,
                cap: (!is_outranked).then_some(1),
                key: (spec.priority, penalty, key, replica.is_running(), here.spec),
            });
        }
        // What gives more goes first: one with an old copy beside its new one gives twice.
        let gives = |it: &Candidate<'_>| {
            let Resources { cpu, memory, gpus, all_gpus } = it.request;
            (cpu, memory, gpus, all_gpus)
        };
        found.sort_by(|a, b| {
            let by_room = || gives(b).cmp(&gives(a));
            a.key.cmp(&b.key).then_with(by_room).then_with(|| b.id.cmp(&a.id))
        });
        let mut services: Vec<&ServiceKey> = found.iter().map(|it| it.key.2).collect();
        services.sort_unstable();
        services.dedup();
        for i in 0..found.len() {
            let is_alike = i > 0
                && found[i].key == found[i - 1].key
                && found[i].request == found[i - 1].request;
            let class = if i == 0 { 0 } else { found[i - 1].class + usize::from(!is_alike) };
            found[i].class = class;
            found[i].service_number = services.binary_search(&found[i].key.2).unwrap_or_default();
        }
        (found, kept)
    }

    /// What the service may lose now without going below its budget: one at a time, none while another has no place, and none
    /// that serves while another does not.
    fn allowance(
        &self,
        node: &NodeId,
        key: &ServiceKey,
        service: &Service,
        allowances: &mut Allowances,
    ) -> Allowance {
        // Victims on this node of a preemption that would be replaced make way for nobody then.
        let is_replaced = self.in_flight.contains_key(node);
        if !is_replaced && let Some((serving, idle)) = allowances.0.get(key) {
            return Allowance { serving: *serving, idle: *idle };
        }
        let makes_way = |id: &ReplicaId, replica: &Replica| {
            let generation = replica.assignment.as_ref().map(|it| it.generation);
            self.in_flight.iter().any(|(at, it)| {
                at != node && it.victims.get(id).is_some_and(|v| Some(v.generation) == generation)
            })
        };
        let live = service.replicas.iter().filter(|(_, replica)| replica.assignment.is_some());
        let mut states: Vec<(bool, bool)> = live
            .map(|(slot, replica)| {
                let id = ReplicaId::new(key.clone(), slot.clone());
                (replica.successor.is_some() || makes_way(&id, replica), replica.is_running())
            })
            .collect();
        let mode = service.desired().map(|spec| &spec.placement.mode);
        let wanted = match mode {
            Some(Mode::Global) => {
                // What it lacks is written, since no number says how many there should be.
                let unplaced = service.row.unplaced.as_ref().map_or(0, |it| it.missing as usize);
                states.len() + unplaced
            }
            mode => mode.and_then(Mode::replicas).unwrap_or(0) as usize,
        };
        let missing = wanted.saturating_sub(states.len());
        states.extend(std::iter::repeat_n((false, false), missing));
        let budget = DisruptionBudget::new(states.into_iter());
        let serving = budget.allows(1, DisruptionCost::OneServing);
        let idle = missing == 0 && budget.allows(1, DisruptionCost::Nothing);
        if !is_replaced {
            allowances.0.insert(key.clone(), (serving, idle));
        }
        Allowance { serving, idle }
    }
}

impl crate::place::Roster {
    /// Who holds the ports on the node.
    pub(super) fn port_holders(&self, at: usize, ports: &[HostPort]) -> Vec<ReplicaId> {
        let held = self.slots[at].ports.iter().filter(|(port, _)| ports.contains(port));
        held.map(|(_, by)| by.clone()).collect()
    }
}
