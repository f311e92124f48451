//! Whether a node can take a replica at all, and if not, why: the first filter that turns it away.

use std::collections::BTreeMap;

use plimsoll_model::reason::{Filter, GpusAsked, Shortage};
use plimsoll_model::spec::{Attribute, HostPort, Preference};
use plimsoll_model::{
    Millis, Mode, NodeFacts, NodeId, NodeRole, ReplicaId, Resources, ServiceSpec, Timestamp,
};

use super::roster::{NodeClass, NodeSlot, Roster, Schedulability};
use super::tree::Need;
use crate::data::VolumeBinding;
use crate::policy::Policy;

/// What a service asks of a node for one more replica.
#[derive(Debug)]
pub(crate) struct PlacementRequest<'a> {
    pub(crate) spec: &'a ServiceSpec,
    pub(crate) request: Resources,
    pub(crate) ports: Vec<HostPort>,
    /// What its volumes ask for; none where they ask for nothing.
    pub(crate) binding: Option<VolumeBinding<'a>>,
    failures: &'a BTreeMap<NodeId, Vec<Timestamp>>,
    limit: u32,
    window: Millis,
    now: Timestamp,
}

impl<'a> PlacementRequest<'a> {
    pub(crate) fn new(
        spec: &'a ServiceSpec,
        failures: &'a BTreeMap<NodeId, Vec<Timestamp>>,
        policy: &Policy,
        now: Timestamp,
    ) -> Self {
        Self {
            spec,
            request: spec.request(),
            ports: spec.host_ports().collect(),
            binding: None,
            failures,
            limit: policy.failure_limit,
            window: policy.failure_window,
            now,
        }
    }

    /// With what its volumes ask for.
    pub(crate) fn bound(self, binding: Option<VolumeBinding<'a>>) -> Self {
        Self { binding, ..self }
    }

    /// What it asks for with all that goes to the same node because of shared volumes.
    pub(crate) fn whole_request(&self) -> Resources {
        let shared = self.binding.as_ref().map_or(Resources::NONE, VolumeBinding::request);
        Resources {
            cpu: self.request.cpu.max(shared.cpu),
            memory: self.request.memory.max(shared.memory),
            gpus: self.request.gpus.max(shared.gpus),
            all_gpus: self.request.all_gpus.max(shared.all_gpus),
        }
    }

    pub(super) fn need(&self) -> Need {
        let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        Need {
            cpu: signed(self.request.cpu.0),
            memory: signed(self.request.memory.0),
            gpus: self.request.gpus.into(),
            is_all_gpus: self.request.all_gpus > 0,
        }
    }

    /// Whether nodes of the class are worth a look: their names aside, they meet every constraint, and their runtime can.
    pub(crate) fn suits_class(&self, class: &NodeClass) -> bool {
        let constraints = self.spec.placement.constraints.iter();
        let mut named = constraints.filter(|c| c.on != Attribute::Name);
        // Only a constraint on the name looks at the name, so any will do here.
        let anyone = NodeId::new("any").expect("a valid name");
        self.spec.container.lacking(&class.facts.runtime).is_none()
            && named.all(|constraint| class.facts.meets(&anyone, class.role, constraint))
    }

    /// The only nodes it may run on, where it names them, or where its volumes are.
    pub(super) fn listed(&self) -> Option<Vec<NodeId>> {
        if let Some(nodes) = self.binding.as_ref().and_then(VolumeBinding::nodes) {
            return Some(nodes.iter().cloned().collect());
        }
        if let Mode::Hosts { hosts, .. } = &self.spec.placement.mode {
            return Some(hosts.iter().cloned().collect());
        }
        let mut constraints = self.spec.placement.constraints.iter();
        let named = constraints.find(|c| c.on == Attribute::Name && c.equal)?;
        Some(NodeId::new(&named.value).into_iter().collect())
    }

    /// Whether nodes of one class can suit it unequally, by their names or for what others ask of them.
    pub(super) fn is_particular(&self) -> bool {
        self.binding.as_ref().is_some_and(VolumeBinding::is_particular) || self.prefers_names()
    }

    fn prefers_names(&self) -> bool {
        self.spec.placement.preferences.iter().any(|p| p.constraint.on == Attribute::Name)
    }

    /// The weight of the preferences that the node meets, of the weight of all.
    pub(crate) fn preferred(&self, class: &NodeClass, node: &NodeId) -> (u32, u32) {
        let preferences = &self.spec.placement.preferences;
        let weight = |met: bool| {
            let meets = |p: &&Preference| class.facts.meets(node, class.role, &p.constraint);
            let counted = preferences.iter().filter(|p| !met || meets(p));
            counted.map(|p| u32::from(p.weight)).sum()
        };
        (weight(true), weight(false))
    }

    /// How often the service failed on the node within the window, where that makes it the last choice.
    pub(super) fn recent_failures(&self, node: &NodeId) -> Option<Filter> {
        let times = self.failures.get(node)?;
        let recent = times.iter().filter(|at| self.now.since(**at) < self.window).count();
        let failures = u32::try_from(recent).unwrap_or(u32::MAX);
        (failures >= self.limit).then_some(Filter::RecentFailures { failures, within: self.window })
    }
}

/// Why a replica that is on the node already has to leave it, if it does: not for want of room.
pub(crate) fn misplaced(ask: &PlacementRequest<'_>, roster: &Roster, at: usize) -> Option<Filter> {
    let (slot, class) = (&roster.slots[at], roster.class_of(at));
    let is_draining = slot.schedulability == Schedulability::Draining;
    misfit(ask.spec, &slot.id, &class.facts, class.role, is_draining)
}

/// The same of a node that stands alone.
pub(crate) fn misfit(
    spec: &ServiceSpec,
    id: &NodeId,
    facts: &NodeFacts,
    role: NodeRole,
    is_draining: bool,
) -> Option<Filter> {
    let draining = is_draining.then_some(Filter::Draining);
    draining
        .or_else(|| unlisted(spec, id))
        .or_else(|| unmet(spec, id, facts, role))
        .or_else(|| runtime_lacks(spec, facts))
}

/// Why the replica's new copy cannot take the place of its old one, which set `freed` aside here. What it does not ask for
/// more of is its own already, however full the node is.
pub(crate) fn in_place(
    ask: &PlacementRequest<'_>,
    slot: &NodeSlot,
    replica: &ReplicaId,
    freed: Resources,
) -> Option<Filter> {
    if let Some(spoilt) = ask.binding.as_ref().and_then(|it| it.spoilt_on(&slot.id)) {
        return Some(spoilt);
    }
    let (asked, freed) = (ask.request.on(slot.capacity), freed.on(slot.capacity));
    let (raised, gpus) = (asked.minus(freed), GpusAsked::of(ask.request));
    let free = slot.free();
    let own = free.plus(freed);
    let shortage = if raised.gpus > 0 && asked.gpus > slot.capacity.gpus {
        return Some(Filter::NoGpu { asked: gpus, capacity: slot.capacity.gpus });
    } else if raised.cpu > free.cpu {
        Some(Shortage::Cpu { asked: asked.cpu, free: own.cpu })
    } else if raised.memory > free.memory {
        Some(Shortage::Memory { asked: asked.memory, free: own.memory })
    } else if raised.gpus > free.gpus {
        Some(Shortage::Gpus { asked: gpus, free: own.gpus })
    } else {
        None
    };
    shortage.map(Filter::InsufficientCapacity).or_else(|| port_conflict(ask, slot, Some(replica)))
}

/// Why one more replica cannot go on the node, if it cannot; `here` are the service's replicas on it.
pub(crate) fn filter(
    ask: &PlacementRequest<'_>,
    roster: &Roster,
    at: usize,
    here: u32,
) -> Option<Filter> {
    let (slot, class) = (&roster.slots[at], roster.class_of(at));
    unschedulable(slot)
        .or_else(|| unlisted(ask.spec, &slot.id))
        .or_else(|| unmet(ask.spec, &slot.id, &class.facts, class.role))
        .or_else(|| runtime_lacks(ask.spec, &class.facts))
        .or_else(|| ask.binding.as_ref().and_then(|binding| bound(binding, roster, at)))
        .or_else(|| insufficient(ask.request, slot))
        .or_else(|| port_conflict(ask, slot, None))
        .or_else(|| max_per_node(ask, here))
        .or_else(|| ask.recent_failures(&slot.id))
}

/// Why the node has not the room or the ports for one more replica, whatever else there is to say of it.
pub(crate) fn no_room(ask: &PlacementRequest<'_>, slot: &NodeSlot) -> Option<Filter> {
    insufficient(ask.request, slot).or_else(|| port_conflict(ask, slot, None))
}

fn unschedulable(slot: &NodeSlot) -> Option<Filter> {
    match slot.schedulability {
        Schedulability::Schedulable => None,
        Schedulability::NotReady => Some(Filter::NotReady),
        Schedulability::RuntimeUnavailable => Some(Filter::RuntimeUnavailable),
        Schedulability::Cordoned => Some(Filter::Cordoned),
        Schedulability::Draining => Some(Filter::Draining),
    }
}

fn unlisted(spec: &ServiceSpec, id: &NodeId) -> Option<Filter> {
    match &spec.placement.mode {
        Mode::Hosts { hosts, .. } if !hosts.contains(id) => Some(Filter::NotListed),
        _ => None,
    }
}

fn unmet(spec: &ServiceSpec, id: &NodeId, facts: &NodeFacts, role: NodeRole) -> Option<Filter> {
    let mut constraints = spec.placement.constraints.iter();
    let wants = constraints.find(|constraint| !facts.meets(id, role, constraint))?;
    let found = facts.attribute(id, role, &wants.on).map(str::to_owned);
    Some(Filter::Constraint { wants: wants.clone(), found })
}

fn runtime_lacks(spec: &ServiceSpec, facts: &NodeFacts) -> Option<Filter> {
    let needs = spec.container.lacking(&facts.runtime)?;
    Some(Filter::RuntimeLacks { runtime: facts.runtime.name.clone(), needs })
}

/// Why a volume keeps it from the node: because it is elsewhere, or because not all that share it could go there.
fn bound(binding: &VolumeBinding<'_>, roster: &Roster, at: usize) -> Option<Filter> {
    let (slot, class) = (&roster.slots[at], roster.class_of(at));
    let (facts, role) = (&class.facts, class.role);
    let unfit = |spec: &ServiceSpec| {
        unlisted(spec, &slot.id)
            .or_else(|| unmet(spec, &slot.id, facts, role))
            .or_else(|| runtime_lacks(spec, facts))
            .or_else(|| insufficient(binding.request(), slot))
    };
    binding.filter(&slot.id).or_else(|| {
        binding.sharers().iter().find_map(|sharer| {
            let (service, why) = (sharer.service.clone(), Box::new(unfit(sharer.spec)?));
            Some(Filter::VolumeSharer { service, why })
        })
    })
}

fn insufficient(request: Resources, slot: &NodeSlot) -> Option<Filter> {
    let (asked, gpus) = (request.on(slot.capacity), GpusAsked::of(request));
    if asked.gpus > slot.capacity.gpus {
        return Some(Filter::NoGpu { asked: gpus, capacity: slot.capacity.gpus });
    }
    if let Some(has) = slot.full_of_replicas() {
        return Some(Filter::InsufficientCapacity(Shortage::Replicas { has }));
    }
    let free = slot.free();
    // A node that is over its line holds nothing more, not even a replica that asks for nothing.
    let (reserved, capacity) = (slot.taken().on(slot.capacity), slot.capacity);
    let shortage = if asked.cpu > free.cpu || reserved.cpu > capacity.cpu {
        Shortage::Cpu { asked: asked.cpu, free: free.cpu }
    } else if asked.memory > free.memory || reserved.memory > capacity.memory {
        Shortage::Memory { asked: asked.memory, free: free.memory }
    } else if asked.gpus > free.gpus || reserved.gpus > capacity.gpus {
        Shortage::Gpus { asked: gpus, free: free.gpus }
    } else {
        return None;
    };
    Some(Filter::InsufficientCapacity(shortage))
}

/// `own` may share its ports with itself.
fn port_conflict(
    ask: &PlacementRequest<'_>,
    slot: &NodeSlot,
    own: Option<&ReplicaId>,
) -> Option<Filter> {
    ask.ports.iter().find_map(|port| {
        let is_other = |by: &ReplicaId| own.is_none_or(|own| own != by);
        let mut holders = slot.ports.iter().chain(&slot.held_ports);
        let (_, by) = holders.find(|(held, by)| held == port && is_other(by))?;
        Some(Filter::PortTaken { port: *port, by: by.clone() })
    })
}

fn max_per_node(ask: &PlacementRequest<'_>, here: u32) -> Option<Filter> {
    let max = ask.spec.placement.max_per_node?;
    (here >= max).then_some(Filter::MaxPerNode { has: here, max })
}
