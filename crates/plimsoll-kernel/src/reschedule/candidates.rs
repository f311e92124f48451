//! Which replicas are worth comparing with every node: a look that costs the same for each, whatever the size of the cell.
//!
//! It may name one too many, never one too few: it takes every node that suits a service for one with room.

use std::cmp::Reverse;

use plimsoll_model::reason::UnplacedReason;
use plimsoll_model::spec::{MountSource, Reschedule};
use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, Millis, Mode, Pressure, Replica, ReplicaId, Rollout, ServiceKey, ServiceSpec, Slot,
    State, Timestamp,
};

use super::shares::NodeShares;
use super::stay::StayReason;
use super::walk::Walk;
use crate::budget::{DisruptionBudget, DisruptionCost};
use crate::data::has_data;
use crate::place::Roster;
use crate::place::filter::{PlacementRequest, misplaced};
use crate::place::rank::MOST_BESIDE_EVENNESS;
use crate::place::roster::Schedulability;
use crate::policy::Policy;

/// A replica that may be better off elsewhere.
#[derive(Debug)]
pub(super) struct Candidate<'s> {
    pub(super) id: ReplicaId,
    pub(super) service: &'s Service,
    pub(super) spec: &'s ServiceSpec,
    pub(super) assignment: &'s Assignment,
    /// Its node's place in the roster.
    pub(super) at: usize,
    pub(super) threshold: u16,
    /// Its node has more of the service than it may.
    pub(super) is_one_too_many: bool,
    pub(super) may_fill: bool,
    pub(super) order: CandidateOrder,
}

/// What is looked at first: who has no room, then who may score better, service by service and where it is most crowded,
/// and then the largest on the fullest node.
type CandidateOrder =
    (Reverse<bool>, bool, (u64, Reverse<(u32, u32)>), Reverse<(Pressure, Pressure, u32)>, u64);

pub(super) struct Finder<'s, 'r> {
    pub(super) state: &'s State,
    pub(super) roster: &'r Roster,
    pub(super) shares: &'r NodeShares,
    pub(super) policy: &'r Policy,
    pub(super) walk: Walk,
    pub(super) now: Timestamp,
}

impl<'s> Finder<'s, '_> {
    /// The candidates among the services of this cycle, in the order they are to be compared.
    pub(super) fn find(&self) -> Vec<Candidate<'s>> {
        let mut found = Vec::new();
        let mut crowd = ServiceCrowd::new(self.roster);
        for (key, service) in self.state.services() {
            if self.walk.includes(key)
                && let Ok(spec) = may_move(service)
            {
                self.look(key, service, spec, &mut crowd, &mut found);
                crowd.clear();
            }
        }
        found.sort_unstable_by_key(|candidate: &Candidate<'_>| candidate.order);
        found
    }

    fn look(
        &self,
        key: &ServiceKey,
        service: &'s Service,
        spec: &'s ServiceSpec,
        crowd: &mut ServiceCrowd,
        found: &mut Vec<Candidate<'s>>,
    ) {
        let Self { state, roster, shares, policy, now, .. } = *self;
        let threshold = self.threshold(spec);
        crowd.gather(roster, service);
        let ask = PlacementRequest::new(spec, &service.row.failures, policy, now);
        crowd.measure(roster, &ask);
        let (turn, no_turn) = (self.walk.turn(key), (0, Reverse((0, 0))));
        let asks_even = spec.placement.mode.is_even();
        for (slot, replica) in &service.replicas {
            let movable = movable((state, roster, policy, now), (service, spec), slot, replica);
            let Ok((assignment, at)) = movable else { continue };
            let is_one_too_many = crowd.is_one_too_many(spec, at);
            let has_no_room = is_one_too_many || shares.is_overfull(at);
            let may_score =
                threshold < MOST_BESIDE_EVENNESS || (asks_even && crowd.is_uneven(roster, at));
            let may_fill = shares.may_fill(at, spec, assignment.at);
            if (has_no_room || may_score || may_fill) && misplaced(&ask, roster, at).is_none() {
                let id = ReplicaId::new(key.clone(), slot.clone());
                let weight = shares.reserved(at).millionths()
                    - shares.without(at, spec).millionths().min(shares.reserved(at).millionths());
                let order = (
                    Reverse(has_no_room),
                    !may_score,
                    if may_score { (turn, Reverse(crowd.around(roster, at))) } else { no_turn },
                    Reverse((
                        Pressure::from_millionths(weight),
                        shares.reserved(at),
                        shares.replicas(at),
                    )),
                    self.walk.order(&id),
                );
                found.push(Candidate {
                    id,
                    service,
                    spec,
                    assignment,
                    at,
                    threshold,
                    is_one_too_many,
                    may_fill,
                    order,
                });
            }
        }
    }

    /// What a node must beat the current one by, for this service.
    fn threshold(&self, spec: &ServiceSpec) -> u16 {
        match spec.reschedule {
            Reschedule::Default | Reschedule::Never => self.policy.reschedule.threshold,
            Reschedule::Above(score) => score,
        }
    }

    /// One replica as a candidate, without the quick look: whoever asks for it wants to know what every node says.
    pub(super) fn candidate(
        &self,
        id: &ReplicaId,
        service: &'s Service,
        replica: &'s Replica,
    ) -> Result<Candidate<'s>, StayReason> {
        let spec = may_move(service)?;
        let given = (self.state, self.roster, self.policy, self.now);
        let (assignment, at) = movable(given, (service, spec), &id.slot, replica)?;
        let ask = PlacementRequest::new(spec, &service.row.failures, self.policy, self.now);
        if misplaced(&ask, self.roster, at).is_some() {
            return Err(StayReason::NodeUnavailable);
        }
        let mut crowd = ServiceCrowd::new(self.roster);
        crowd.gather(self.roster, service);
        let nothing = Pressure::ZERO;
        Ok(Candidate {
            id: id.clone(),
            service,
            spec,
            assignment,
            at,
            threshold: self.threshold(spec),
            is_one_too_many: crowd.is_one_too_many(spec, at),
            may_fill: self.shares.may_fill(at, spec, assignment.at),
            order: (Reverse(false), false, (0, Reverse((0, 0))), Reverse((nothing, nothing, 0)), 0),
        })
    }
}

/// Where the replica is, if it runs there as it should, has been there for long enough and leaves nothing behind.
pub(super) fn movable<'s>(
    (state, roster, policy, now): (&State, &Roster, &Policy, Timestamp),
    (service, spec): (&Service, &ServiceSpec),
    slot: &Slot,
    replica: &'s Replica,
) -> Result<(&'s Assignment, usize), StayReason> {
    let assignment = replica.assignment.as_ref().ok_or(StayReason::Unsettled)?;
    let (rested, needed) = (now.since(assignment.at), policy.rebalance.cooldown_replica);
    let at = roster.place_of(&assignment.node).ok_or(StayReason::NodeUnavailable)?;
    let is_up = match roster.slots[at].schedulability {
        Schedulability::Schedulable | Schedulability::Cordoned => true,
        Schedulability::NotReady
        | Schedulability::Draining
        | Schedulability::RuntimeUnavailable => false,
    };
    // Nothing runs of a job that is done, and what a hot node was relieved of stays where it cooled down.
    if !is_up {
        Err(StayReason::NodeUnavailable)
    } else if rested < needed {
        Err(StayReason::Rests { left: Millis(needed.0 - rested.0) })
    } else if assignment.spec != spec.hash || replica.is_stale(assignment) {
        Err(StayReason::Unsettled)
    } else if state.preemptions().is_victim(assignment.generation) {
        Err(StayReason::Preempted)
    } else if replica.has_completed(assignment) {
        Err(StayReason::Completed)
    } else if replica.is_relieved {
        Err(StayReason::Relieved)
    } else if !matches!(slot, Slot::Index(_)) {
        Err(StayReason::Global)
    } else if has_data(service, replica) {
        Err(StayReason::KeepsData)
    } else {
        Ok((assignment, at))
    }
}

/// The service's spec, if its replicas may be moved for something better: it runs whole, nothing of it is under way, it can
/// run twice for a while, and it leaves nothing behind.
pub(super) fn may_move(service: &Service) -> Result<&ServiceSpec, StayReason> {
    let spec = service.desired().ok_or(StayReason::Unsettled)?;
    let mut mounts = spec.container.mounts.iter();
    let keeps_data =
        mounts.any(|it| matches!(it.source, MountSource::Bind { .. } | MountSource::Volume { .. }));
    let said = service.row.unplaced.as_ref();
    let is_refused =
        said.is_some_and(|it| matches!(it.why, UnplacedReason::DecisionRefused { .. }));
    let is_rolling = service.row.rollout.as_ref().is_some_and(|it: &Rollout| !it.is_over());
    let reasons = [
        (spec.reschedule == Reschedule::Never, StayReason::Never),
        (spec.placement.mode == Mode::Global, StayReason::Global),
        (keeps_data, StayReason::KeepsData),
        (!spec.can_run_twice(), StayReason::StopsFirst),
        (is_refused, StayReason::DecisionRefused),
        (is_rolling, StayReason::RollingOut),
    ];
    if let Some((_, why)) = reasons.into_iter().find(|(holds, _)| *holds) {
        return Err(why);
    }
    let replicas = service.replicas.values().filter(|replica| replica.heading().is_some());
    let budget = replicas.map(|replica| (replica.successor.is_some(), replica.is_running()));
    let allows = DisruptionBudget::new(budget).allows(1, DisruptionCost::OneServing);
    if allows { Ok(&**spec) } else { Err(StayReason::ServiceBudget) }
}

/// How many replicas of one service each node and zone has. Kept from service to service, so that each costs what it has.
#[derive(Debug)]
struct ServiceCrowd {
    /// By place in the roster.
    by_node: Vec<u32>,
    touched: Vec<usize>,
    by_zone: Vec<u32>,
    /// How many nodes of each zone could take the service.
    suitable: Vec<u32>,
    /// The fewest that one of those has.
    least: u32,
}

impl ServiceCrowd {
    fn new(roster: &Roster) -> Self {
        let zones = roster.zones as usize;
        Self {
            by_node: vec![0; roster.len()],
            touched: Vec::new(),
            by_zone: vec![0; zones],
            suitable: vec![0; zones],
            least: 0,
        }
    }

    fn add(&mut self, roster: &Roster, at: usize) {
        if self.by_node[at] == 0 {
            self.touched.push(at);
        }
        self.by_node[at] += 1;
        self.by_zone[roster.class_of(at).zone as usize] += 1;
    }

    fn clear(&mut self) {
        self.touched.drain(..).for_each(|at| self.by_node[at] = 0);
        self.by_zone.fill(0);
        self.suitable.fill(0);
    }

    /// Counts where the replicas of the service are or will be.
    fn gather(&mut self, roster: &Roster, service: &Service) {
        let headings = service.replicas.values().filter_map(Replica::heading);
        headings.filter_map(|it| roster.place_of(&it.node)).for_each(|at| self.add(roster, at));
    }

    /// Whether the node has more of the service than it may.
    fn is_one_too_many(&self, spec: &ServiceSpec, at: usize) -> bool {
        spec.placement.max_per_node.is_some_and(|most| self.by_node[at] > most)
    }

    /// How many its zone has, and how many the node itself.
    fn around(&self, roster: &Roster, at: usize) -> (u32, u32) {
        (self.by_zone[roster.class_of(at).zone as usize], self.by_node[at])
    }

    /// Counts the nodes that could take the service.
    fn measure(&mut self, roster: &Roster, ask: &PlacementRequest<'_>) {
        let is_open = |at: usize| roster.slots[at].schedulability == Schedulability::Schedulable;
        let zone_of = |at: usize| roster.class_of(at).zone as usize;
        let mut least = u32::MAX;
        if let Mode::Hosts { hosts, .. } = &ask.spec.placement.mode {
            let listed = hosts.iter().filter_map(|host| roster.place_of(host));
            for at in listed.filter(|at| is_open(*at)) {
                self.suitable[zone_of(at)] += 1;
                least = least.min(self.by_node[at]);
            }
            self.least = least;
            return;
        }
        let mut nodes = 0;
        let mut suits = vec![false; roster.classes.len()];
        for (class, suits) in roster.classes.iter().zip(&mut suits).filter(|(it, _)| it.open > 0) {
            *suits = ask.suits_class(class);
            if *suits {
                self.suitable[class.zone as usize] += class.open;
                nodes += class.open;
            }
        }
        let mut holders = 0;
        for at in &self.touched {
            if is_open(*at) && suits[roster.slots[*at].class as usize] {
                holders += 1;
                least = least.min(self.by_node[*at]);
            }
        }
        self.least = if holders < nodes { 0 } else { least };
    }

    /// Whether a replica on the node could be anywhere less crowded, were it nowhere.
    fn is_uneven(&self, roster: &Roster, at: usize) -> bool {
        let own = roster.class_of(at).zone as usize;
        let in_zone = |zone: usize| self.by_zone[zone] - u32::from(zone == own);
        let zones = (0..self.suitable.len()).filter(|zone| self.suitable[*zone] > 0);
        let is_zone_crowded = zones.map(in_zone).min().is_some_and(|least| in_zone(own) > least);
        is_zone_crowded || self.by_node[at] - 1 > self.least
    }
}
