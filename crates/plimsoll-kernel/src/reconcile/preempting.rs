//! Preemption in a pass: what is under way is judged first, a service that lacks room seeks victims in its turn, and those
//! that make way are moved or, once their time is over, stopped. Who they are is settled in [`preempt`](crate::preempt).

use std::cell::OnceCell;
use std::collections::BTreeMap;

use plimsoll_model::preemption::{
    MAX_PREEMPTIONS, PreemptedBy, Preemption, Victim, WithdrawReason,
};
use plimsoll_model::reason::{UnplacedReason, WaitReason};
use plimsoll_model::state::Service;
use plimsoll_model::{
    Change, NodeId, Replica, ReplicaId, Resources, ServiceKey, ServiceSpec, Slot, State, Timestamp,
};

use super::Pass;
use super::unplaced::CandidateNodes;
use crate::condition::PlacementCondition;
use crate::data::has_data;
use crate::place::filter::{PlacementRequest, filter};
use crate::place::{Roster, ring};
use crate::preempt::{Effort, VictimSearch, is_held_against, outranks_budget, set_aside};

/// The most preemptions that one pass begins: the next begins the others. It keeps a pass short, and a batch small.
const MOST_BEGUN: usize = 16;

/// The preemptions as a pass sees them: those under way, without what it has withdrawn, and with what it has begun.
#[derive(Debug, Default)]
pub(super) struct Preempting {
    in_flight: BTreeMap<NodeId, Preemption>,
    victims: BTreeMap<ReplicaId, NodeId>,
    /// For whom the roster shows what is held: a priority, and a service that has some held for itself.
    shown_for: Option<(i32, Option<ServiceKey>)>,
    begun: usize,
    effort: Effort,
    lowest: OnceCell<Option<i32>>,
}

impl Preempting {
    pub(super) fn new(state: &State) -> Self {
        let in_flight = state.preemptions().in_flight().clone();
        let mut preempting = Self::default();
        for (node, preemption) in in_flight {
            preempting.add(node, preemption);
        }
        preempting
    }

    fn add(&mut self, node: NodeId, preemption: Preemption) {
        self.victims.extend(preemption.victims.keys().map(|id| (id.clone(), node.clone())));
        self.in_flight.insert(node, preemption);
        self.shown_for = None;
    }

    fn remove(&mut self, node: &NodeId) -> Option<Preemption> {
        let gone = self.in_flight.remove(node)?;
        for id in gone.victims.keys() {
            self.victims.remove(id);
        }
        self.shown_for = None;
        Some(gone)
    }

    /// The nodes where room is freed for the service, the latest last.
    fn nodes_of(&self, key: &ServiceKey) -> Vec<NodeId> {
        let own = self.in_flight.iter().filter(|(_, it)| it.by.service == *key);
        let mut own: Vec<_> = own.map(|(node, it)| (it.began, node.clone())).collect();
        own.sort_unstable();
        own.into_iter().map(|(_, node)| node).collect()
    }

    /// What this assignment of the replica makes way for.
    fn victim(&self, id: &ReplicaId, replica: &Replica) -> Option<(&NodeId, &Preemption, Victim)> {
        let (node, preemption) = self.in_flight.get_key_value(self.victims.get(id)?)?;
        let victim = *preemption.victims.get(id)?;
        let assignment = replica.assignment.as_ref()?;
        // What has ended makes no room by going, and would run once more wherever it went.
        let makes_way = assignment.generation == victim.generation && !replica.is_over(assignment);
        makes_way.then_some((node, preemption, victim))
    }

    /// What is said to the service that room is freed for.
    pub(super) fn awaited(&self, key: &ServiceKey) -> Option<UnplacedReason> {
        if self.in_flight.is_empty() {
            return None;
        }
        let own = self.in_flight.iter().filter(|(_, it)| it.by.service == *key);
        let (node, first) = own.min_by_key(|(_, it)| (it.began, it.until()))?;
        let victims = u32::try_from(first.victims.len()).unwrap_or(u32::MAX);
        Some(UnplacedReason::Preempting { node: node.clone(), victims, until: first.until() })
    }
}

/// A service that lacks room, as it seeks some.
pub(super) struct RoomSeeker<'p> {
    pub(super) key: &'p ServiceKey,
    pub(super) service: &'p Service,
    pub(super) spec: &'p ServiceSpec,
}

impl<'s> Pass<'s> {
    /// Looks at every preemption under way: one that would not be begun now is given up.
    pub(super) fn judge_preemptions(&mut self, roster: &mut Roster) {
        let in_flight: Vec<(NodeId, Preemption)> =
            self.preempting.in_flight.iter().map(|(n, p)| (n.clone(), p.clone())).collect();
        for (node, preemption) in in_flight {
            if let Some(why) = self.is_void(roster, &node, &preemption) {
                self.withdraw(&node, why);
            }
        }
        let services = self.preempting.victims.keys().map(|id| &id.service);
        let disturbed: Vec<&'s ServiceKey> = services
            .filter_map(|key| self.state.services().get_key_value(key).map(|(key, _)| key))
            .collect();
        if let Some(all) = &mut self.disturbed {
            all.extend(disturbed);
        }
    }

    fn withdraw(&mut self, node: &NodeId, why: WithdrawReason) {
        if self.preempting.remove(node).is_some() {
            let change = Change::WithdrawPreemption { node: node.clone(), why };
            self.decision.batch.push(change.free());
        }
    }

    /// Why a preemption is to be given up, if it is.
    fn is_void(
        &self,
        roster: &mut Roster,
        node: &NodeId,
        preemption: &Preemption,
    ) -> Option<WithdrawReason> {
        let key = &preemption.by.service;
        let service = self.state.service(key);
        let Some((service, spec)) = service.and_then(|it| Some((it, it.desired()?))) else {
            return Some(WithdrawReason::NotNeeded);
        };
        let ports: Vec<_> = spec.host_ports().collect();
        if (spec.priority, &ports) != (preemption.priority, &preemption.ports) {
            return Some(WithdrawReason::Changed);
        }
        if preemption.until() > self.now.plus(self.policy.preempt.longest) {
            return Some(WithdrawReason::ClockSet);
        }
        let mut gone: Vec<(Resources, ReplicaId)> = Vec::new();
        for (id, victim) in &preemption.victims {
            let Some(of) = self.state.service(&id.service) else { continue };
            let Some(replica) = of.replicas.get(&id.slot) else { continue };
            let held = replica.holds().find(|it| it.generation == victim.generation);
            let Some(held) = held else { continue };
            gone.push((set_aside(of, replica, node), id.clone()));
            let is_assigned = replica.assignment.as_ref() == Some(held);
            let is_lower = of.desired().is_none_or(|it| it.priority < preemption.priority);
            let is_over = replica.is_over(held) && !replica.has_vacated(held);
            if is_assigned && (!is_lower || has_data(of, replica) || is_over) {
                return Some(WithdrawReason::Changed);
            }
            let is_due = is_assigned && replica.successor.is_none() && self.now >= victim.until;
            let is_kept = is_due && !outranks_budget(preemption.priority, victim.priority);
            if is_kept && is_short_without(of, &id.slot, replica.is_running()) {
                return Some(WithdrawReason::Budget { service: id.service.clone() });
            }
        }
        let ask = PlacementRequest::new(spec, &service.row.failures, self.policy, self.now);
        let ask = ask.bound(self.binding(key, spec));
        if ask.whole_request() != preemption.request {
            return Some(WithdrawReason::Changed);
        }
        let closed = plimsoll_model::reason::Filter::NotReady;
        let Some(at) = roster.place_of(node) else {
            return Some(WithdrawReason::NoLongerFits { why: closed });
        };
        let headings = service.replicas.values().filter_map(|replica| replica.heading());
        let here = headings.filter(|heading| heading.node == *node).count();
        let here = u32::try_from(here).unwrap_or(u32::MAX);
        roster.hold(at, None);
        let why = roster.without(at, &gone, |roster| filter(&ask, roster, at, here));
        roster.hold(at, Some(preemption));
        why.map(|why| WithdrawReason::NoLongerFits { why })
    }

    /// Has the roster show what is held against the service, and not what it may take.
    pub(super) fn show_held(&mut self, roster: &mut Roster, key: &ServiceKey, priority: i32) {
        let preempting = &mut self.preempting;
        if preempting.in_flight.is_empty() && self.state.preemptions().in_flight().is_empty() {
            return;
        }
        let own = preempting.in_flight.values().find(|it| it.by.service == *key);
        let view = Some((priority, own.map(|it| it.by.service.clone())));
        if preempting.shown_for == view {
            return;
        }
        for node in self.state.preemptions().in_flight().keys() {
            if let Some(at) = roster.place_of(node) {
                roster.hold(at, None);
            }
        }
        for (node, held) in &preempting.in_flight {
            if let Some(at) = roster.place_of(node) {
                roster.hold(at, Some(held).filter(|it| is_held_against(it, key, priority)));
            }
        }
        preempting.shown_for = view;
    }

    /// Has as much room freed for the service as it needs and is not freed yet, and no more. `from` is where its part of the
    /// batch begins.
    pub(super) fn settle_needs(
        &mut self,
        roster: &mut Roster,
        (key, service): (&'s ServiceKey, &'s Service),
        from: usize,
    ) {
        self.note_taken(key, from);
        let unplaced = self.unplaced.last().filter(|it| it.key == key);
        let needs: Vec<ReplicaId> = unplaced.map(|it| it.needs.clone()).unwrap_or_default();
        for node in self.preempting.nodes_of(key).iter().skip(needs.len()) {
            self.withdraw(node, WithdrawReason::NotNeeded);
        }
        self.withdraw_awaiting_data(roster, key);
        let own = self.preempting.nodes_of(key);
        let (Some(spec), true) = (service.desired(), own.len() < needs.len()) else { return };
        if !self.has_lower(spec.priority) {
            return;
        }
        let in_flight = self.preempting.in_flight.values();
        let served: Vec<ReplicaId> = in_flight.map(|it| it.by.clone()).collect();
        let unserved: Vec<ReplicaId> =
            needs.iter().filter(|it| !served.contains(it)).cloned().collect();
        for by in unserved.into_iter().take(needs.len() - own.len()) {
            let seeker = RoomSeeker { key, service, spec };
            if !self.seek_room(roster, &seeker, by) {
                return;
            }
        }
    }

    /// Room that the service would not take now is not freed for it: its data has come free elsewhere, and it waits for that.
    fn withdraw_awaiting_data(&mut self, roster: &Roster, key: &ServiceKey) {
        let own = self.preempting.nodes_of(key);
        let unplaced = self.unplaced.last().filter(|it| it.key == key && !own.is_empty());
        let Some(unplaced) = unplaced else { return };
        let binding = self.binding(key, unplaced.spec);
        let Some(binding) = binding.map(|it| unplaced.wait_for_copies(it, roster)) else { return };
        for node in own {
            if let Some(why) = binding.filter(&node) {
                self.withdraw(&node, WithdrawReason::NoLongerFits { why });
            }
        }
    }

    /// Whether anything in the cell has a lower priority; most cells have one priority.
    fn has_lower(&self, priority: i32) -> bool {
        let lowest = self.preempting.lowest.get_or_init(|| {
            let services = self.state.services().values();
            services.filter_map(|it| it.desired()).map(|spec| spec.priority).min()
        });
        lowest.is_some_and(|lowest| lowest < priority)
    }

    /// Room that this pass has given to whom it was held for.
    fn note_taken(&mut self, key: &ServiceKey, from: usize) {
        if self.preempting.in_flight.is_empty() {
            return;
        }
        let mut taken = Vec::new();
        for guarded in &self.decision.batch[from..] {
            let (Change::Place { replica, node, .. } | Change::Succeed { replica, node, .. }) =
                &guarded.change
            else {
                continue;
            };
            let from = self.state.replica(replica).and_then(|it| it.assignment.as_ref());
            let is_in_place = from.is_some_and(|it| it.node == *node);
            let held = self.preempting.in_flight.get(node);
            if !is_in_place && held.is_some_and(|held| held.by.service == *key) {
                taken.push(node.clone());
            }
        }
        for node in taken {
            self.preempting.remove(&node);
        }
    }

    /// Begins to free room for one replica; false where none can be.
    fn seek_room(&mut self, roster: &mut Roster, seeker: &RoomSeeker<'_>, by: ReplicaId) -> bool {
        let preempting = &mut self.preempting;
        let is_full = preempting.in_flight.len() >= MAX_PREEMPTIONS;
        if is_full || preempting.begun >= MOST_BEGUN {
            return false;
        }
        self.show_held(roster, seeker.key, seeker.spec.priority);
        let Some(unplaced) = self.unplaced.last() else { return false };
        let failures = &seeker.service.row.failures;
        let ask = PlacementRequest::new(seeker.spec, failures, self.policy, self.now);
        // Nobody makes way on a node that it would not take: it waits for data that is elsewhere.
        let binding = self.binding(seeker.key, seeker.spec);
        let ask = ask.bound(binding.map(|it| unplaced.wait_for_copies(it, roster)));
        // What asks for no room and no port needs nobody to make way, however full a node is.
        if ask.whole_request() == Resources::NONE && ask.ports.is_empty() {
            return false;
        }
        let none = crate::place::ServiceTally::default();
        let count = roster.len();
        let (tally, places) = match &unplaced.among {
            CandidateNodes::All(tally) => {
                // Where there are more nodes than can be looked at, each look begins somewhere else.
                let hash = usize::try_from(ring::hash(&by) ^ self.now.0).unwrap_or(0);
                let start = hash % count.max(1);
                (tally, (start..count).chain(0..start).collect::<Vec<usize>>())
            }
            CandidateNodes::Places(places) => {
                let own = places.iter().copied().find(|at| is_named_after(&by, roster.id_at(*at)));
                (&none, own.into_iter().collect())
            }
        };
        let search = VictimSearch {
            state: self.state,
            in_flight: &self.preempting.in_flight,
            key: seeker.key,
            ask: &ask,
            tally,
            limits: &self.policy.preempt,
            now: self.now,
        };
        let mut effort = self.preempting.effort;
        let found = search.best(roster, places.into_iter(), &mut effort);
        let (request, ports) = (ask.whole_request(), ask.ports.clone());
        self.preempting.effort = effort;
        let Some(found) = found else { return false };
        let priority = seeker.spec.priority;
        // A preemption of lower priority on the node gives way: its victims make way for this one, or stay.
        let outranked = WithdrawReason::Outranked { by: seeker.key.clone(), priority };
        self.withdraw(&found.node, outranked);
        let (victims, began) = (found.victims, self.now);
        let preemption = Preemption { by, priority, request, ports, victims, began };
        let boxed = Box::new(preemption.clone());
        let change = Change::Preempt { node: found.node.clone(), preemption: boxed };
        // A batch may be cut, and the service asked for less before its last part is written.
        self.of_service(seeker.key, change);
        let keys = preemption.victims.keys().map(|id| &id.service);
        let keys: Vec<&'s ServiceKey> = keys
            .filter_map(|key| self.state.services().get_key_value(key).map(|(key, _)| key))
            .collect();
        if let Some(disturbed) = &mut self.disturbed {
            disturbed.extend(keys);
        }
        self.preempting.add(found.node, preemption);
        self.preempting.begun += 1;
        true
    }

    /// The condition of a replica that may make way, instead of the one it would have: nothing else is done with it.
    pub(super) fn or_preempted(
        &mut self,
        id: &ReplicaId,
        replica: &Replica,
        condition: PlacementCondition,
    ) -> PlacementCondition {
        match condition {
            PlacementCondition::Settled
            | PlacementCondition::Outdated
            | PlacementCondition::RestartDue
            | PlacementCondition::Misplaced => {}
            PlacementCondition::InGrace { .. }
            | PlacementCondition::Lost
            | PlacementCondition::Unattended
            | PlacementCondition::RuntimeLost
            | PlacementCondition::Preempted { .. } => return condition,
        }
        let Some((_, _, victim)) = self.preempting.victim(id, replica) else { return condition };
        let until = victim.until;
        if until > self.now {
            self.wake_at(until);
            // It has to leave anyway, and says why until its time is over.
            if condition == PlacementCondition::Misplaced {
                return condition;
            }
        }
        PlacementCondition::Preempted { until }
    }

    /// Until when the replica may move, where it makes way.
    pub(super) fn evict_at(&self, id: &ReplicaId, replica: &Replica) -> Option<Timestamp> {
        self.preempting.victim(id, replica).map(|(_, _, victim)| victim.until)
    }

    /// It makes way and finds no room elsewhere.
    pub(super) fn wait_preempted(&mut self, id: &ReplicaId, replica: &Replica) {
        let Some((node, preemption, victim)) = self.preempting.victim(id, replica) else { return };
        let by = PreemptedBy {
            by: preemption.by.clone(),
            node: node.clone(),
            priority: preemption.priority,
            own: victim.priority,
        };
        self.wait(id, WaitReason::Preempted { by: Box::new(by), until: victim.until });
    }

    /// It is stopped: its time to move elsewhere is over.
    pub(super) fn evict(&mut self, id: &ReplicaId, replica: &Replica) {
        let victim = self.preempting.victim(id, replica);
        let Some((node, preemption, victim)) = victim else { return };
        let by = PreemptedBy {
            by: preemption.by.clone(),
            node: node.clone(),
            priority: preemption.priority,
            own: victim.priority,
        };
        self.evicted.insert(id.service.clone(), Box::new(by));
        self.about(id, Change::Evict { replica: id.clone() });
    }

    /// Why a service lacks replicas, where it lost one to another: until it has all of them again, that is what it says.
    pub(super) fn why_unplaced(
        &self,
        key: &ServiceKey,
        service: &Service,
        why: UnplacedReason,
    ) -> UnplacedReason {
        if let Some(awaited) = self.preempting.awaited(key) {
            return awaited;
        }
        let by = self.evicted.get(key).or(service.row.preempted.as_ref());
        match (by, why) {
            (Some(by), UnplacedReason::NoEligibleNode { nodes, turned_away }) => {
                UnplacedReason::Preempted { by: by.clone(), nodes, turned_away }
            }
            (_, why) => why,
        }
    }
}

/// Whether another replica of the service is missing, or, where this one serves, moving or down.
fn is_short_without(service: &Service, slot: &Slot, serves: bool) -> bool {
    let live = service.replicas.iter().filter(|(_, it)| it.assignment.is_some());
    let mut others = live.clone().filter(|(other, _)| *other != slot);
    let wanted = service.desired().and_then(|it| it.placement.mode.replicas());
    wanted.is_some_and(|wanted| live.count() < wanted as usize)
        || serves && others.any(|(_, it)| it.successor.is_some() || !it.is_running())
}

fn is_named_after(id: &ReplicaId, node: &NodeId) -> bool {
    matches!(&id.slot, Slot::Node(own) if own == node)
}
