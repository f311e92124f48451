//! Why a replica is where it is, or is nowhere: what every node had to say, in the numbers that decided.

use plimsoll_model::reason::Filter;
use plimsoll_model::state::Service;
use plimsoll_model::{
    Availability, Node, NodeId, ReplicaId, Roles, ServiceKey, ServiceSpec, State, Timestamp,
};

use crate::data::{Promised, VolumeBinding};
use crate::place::filter::{PlacementRequest, misfit};
use crate::place::{NodeVerdict, Placer, Roster};
use crate::policy::Policy;
use crate::preempt::{Allowances, Effort, NoVictims, VictimSearch, VictimSet, is_held_against};

/// What each node says to one replica, best first, as if the replica were nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementExplanation {
    pub replica: ReplicaId,
    pub mode: &'static str,
    pub node: Option<NodeId>,
    pub verdicts: Vec<NodeVerdict>,
}

/// Why a node may not keep a replica of the service that it has, if it may not.
pub fn misplaced(spec: &ServiceSpec, id: &NodeId, node: &Node, roles: Roles) -> Option<Filter> {
    let is_draining = node.availability == Availability::Draining;
    misfit(spec, id, &node.facts, roles.role(node), is_draining)
}

/// Explains a replica that exists.
pub fn replica(
    state: &State,
    roster: &mut Roster,
    policy: &Policy,
    id: &ReplicaId,
    now: Timestamp,
) -> Option<PlacementExplanation> {
    placed(state, state, roster, policy, id, now)
}

/// Explains a replica that got its place a moment ago, by where volumes were before: it had none of its own then.
pub fn placed(
    state: &State,
    before: &State,
    roster: &mut Roster,
    policy: &Policy,
    id: &ReplicaId,
    now: Timestamp,
) -> Option<PlacementExplanation> {
    let service = state.service(&id.service)?;
    let node = service.replicas.get(&id.slot)?.heading().map(|assignment| assignment.node.clone());
    explain((state, before), roster, policy, service, id, node, now)
}

/// Explains the replica that a service would get next.
pub fn next_of(
    state: &State,
    roster: &mut Roster,
    policy: &Policy,
    service: &ServiceKey,
    now: Timestamp,
) -> Option<PlacementExplanation> {
    let id = ReplicaId::indexed(service, state.next_index(service));
    explain((state, state), roster, policy, state.service(service)?, &id, None, now)
}

/// Who would make way for a replica that finds no room, node by node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptionExplanation {
    pub replica: ReplicaId,
    pub priority: i32,
    /// The node that would be chosen, or is: the fewest and cheapest make way there.
    pub best: Option<NodeId>,
    /// By name.
    pub nodes: Vec<(NodeId, Result<VictimSet, NoVictims>)>,
}

/// Explains where others could make way for a replica as if it were nowhere; none where its service is not asked for.
pub fn preemption(
    state: &State,
    roster: &mut Roster,
    policy: &Policy,
    id: &ReplicaId,
    now: Timestamp,
) -> Option<PreemptionExplanation> {
    let service = state.service(&id.service)?;
    let spec = service.desired()?;
    let others = service.replicas.iter().filter(|(slot, _)| **slot != id.slot);
    let headings = others.filter_map(|(_, replica)| replica.heading());
    let binding = VolumeBinding::new(state, &id.service, spec, &Promised::new());
    let ask = PlacementRequest::new(spec, &service.row.failures, policy, now).bound(binding);
    let counted = PlacementRequest::new(spec, &service.row.failures, policy, now);
    let placer = Placer::new(roster, counted, headings.map(|assignment| &assignment.node));
    let tally = placer.close();
    let in_flight = state.preemptions().in_flight();
    // What is under way for the service itself is no obstacle to it.
    let others = in_flight.iter().filter(|(_, it)| it.by.service != id.service);
    let others = others.map(|(node, it)| (node.clone(), it.clone())).collect();
    for node in in_flight.keys() {
        let held = in_flight.get(node).filter(|it| is_held_against(it, &id.service, spec.priority));
        if let Some(at) = roster.place_of(node) {
            roster.hold(at, held);
        }
    }
    let (key, limits) = (&id.service, &policy.preempt);
    let search =
        VictimSearch { state, in_flight: &others, key, ask: &ask, tally: &tally, limits, now };
    let mut effort = Effort::default();
    let mut nodes = Vec::new();
    for at in 0..roster.len() {
        let found = search.on_node(roster, at, &mut Allowances::default(), &mut effort);
        nodes.push((roster.id_at(at).clone(), found));
    }
    roster.forget_pass(state);
    nodes.sort_by(|(a, _), (b, _)| a.cmp(b));
    let sets = nodes.iter().filter_map(|(node, found)| Some((&found.as_ref().ok()?.cost, node)));
    let best = sets.min().map(|(_, node)| node.clone());
    Some(PreemptionExplanation { replica: id.clone(), priority: spec.priority, best, nodes })
}

fn explain(
    (state, volumes): (&State, &State),
    roster: &mut Roster,
    policy: &Policy,
    service: &Service,
    id: &ReplicaId,
    node: Option<NodeId>,
    now: Timestamp,
) -> Option<PlacementExplanation> {
    let spec = service.desired()?;
    for (node, held) in state.preemptions().in_flight() {
        if let Some(at) = roster.place_of(node) {
            let counts = is_held_against(held, &id.service, spec.priority);
            roster.hold(at, Some(held).filter(|_| counts));
        }
    }
    let headings = service.replicas.values().filter_map(|replica| replica.heading());
    let binding = VolumeBinding::new(volumes, &id.service, spec, &Promised::new());
    let ask = PlacementRequest::new(spec, &service.row.failures, policy, now).bound(binding);
    let mut placer = Placer::new(roster, ask, headings.map(|assignment| &assignment.node));
    if let Some(node) = &node {
        placer.lift_whole(id, node);
    }
    let verdicts = placer.verdicts(id);
    placer.close();
    roster.forget_pass(state);
    Some(PlacementExplanation {
        replica: id.clone(),
        mode: spec.placement.mode.word(),
        node,
        verdicts,
    })
}
