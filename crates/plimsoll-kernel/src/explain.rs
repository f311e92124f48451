//! Why a replica is where it is, or is nowhere: what every node had to say, in the numbers that decided.

use plimsoll_model::reason::Filter;
use plimsoll_model::state::Service;
use plimsoll_model::{
    Availability, Node, NodeId, ReplicaId, ServiceKey, ServiceSpec, State, Timestamp,
};

use crate::data::{Promised, VolumeBinding};
use crate::place::filter::{PlacementRequest, misfit};
use crate::place::{NodeVerdict, Placer, Roster};
use crate::policy::Policy;

/// What each node says to one replica, best first, as if the replica were nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementExplanation {
    pub replica: ReplicaId,
    pub mode: &'static str,
    pub node: Option<NodeId>,
    pub verdicts: Vec<NodeVerdict>,
}

/// Why a node may not keep a replica of the service that it has, if it may not.
pub fn misplaced(spec: &ServiceSpec, id: &NodeId, node: &Node) -> Option<Filter> {
    misfit(spec, id, &node.facts, node.availability == Availability::Draining)
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
