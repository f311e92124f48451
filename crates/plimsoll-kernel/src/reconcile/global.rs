//! `global` services: one replica on every node that may hold it.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_model::reason::{AbandonReason, FilterWord, WaitReason};
use plimsoll_model::state::Service;
use plimsoll_model::{Change, Replica, ReplicaId, ServiceKey, ServiceSpec, Slot};

use super::Pass;
use super::replicated::{cause, freed, is_at_its_job, is_stopped_by_force};
use super::unplaced::{CandidateNodes, UnplacedService};
use crate::budget::{DisruptionBudget, DisruptionCost};
use crate::condition::PlacementCondition;
use crate::moves::MoveStep;
use crate::place::filter::{PlacementRequest, filter, misfit, misplaced};
use crate::place::{Roster, take_in_place};
use crate::rollout;

impl<'s> Pass<'s> {
    pub(super) fn global(
        &mut self,
        roster: &mut Roster,
        key: &'s ServiceKey,
        service: &'s Service,
        spec: &'s Arc<ServiceSpec>,
    ) -> bool {
        let ask = PlacementRequest::new(spec, &service.row.failures, self.policy, self.now);
        let ask = ask.bound(self.binding(key, spec));
        let mut holds = vec![false; roster.len()];
        let mut kept: Vec<(&Slot, &Replica, PlacementCondition)> = Vec::new();
        let mut others: Vec<&Slot> = Vec::new();
        for (slot, replica) in &service.replicas {
            let Slot::Node(node) = slot else {
                let id = ReplicaId::new(key.clone(), slot.clone());
                if is_stopped_by_force(replica) {
                    self.retire(&id);
                    continue;
                }
                others.push(slot);
                if replica.successor.is_some() {
                    // It stays until it goes: nothing of its kind moves any more.
                    let why = AbandonReason::Needless;
                    self.about(&id, Change::Abandon { replica: id.clone(), why });
                }
                continue;
            };
            let at = roster.place_of(node);
            if let Some(at) = at {
                holds[at] = true;
            }
            let Some(assignment) = &replica.assignment else { continue };
            // Where the node is gone, drained or no longer meant, the replica ends: it is never moved. A node that is
            // merely down keeps it.
            // What completed is remembered as long as its node is of the cell, or it would be run there again later.
            let is_over = replica.is_over(assignment) && assignment.spec == spec.hash;
            let is_at_it = is_at_its_job(spec, replica, assignment);
            let is_misplaced = at.is_some_and(|at| misplaced(&ask, roster, at).is_some());
            if at.is_none() || (is_misplaced && !is_over && !is_at_it) {
                self.retire(&ReplicaId::new(key.clone(), slot.clone()));
            } else {
                let id = ReplicaId::new(key.clone(), slot.clone());
                if is_misplaced && is_at_it {
                    self.wait(&id, WaitReason::JobRunning);
                }
                let condition = self.condition(roster, &ask, &id, (replica, assignment));
                match condition {
                    // It has no other node to go to: it waits, and ends when its time is over.
                    PlacementCondition::Preempted { until } if self.now >= until => {
                        self.evict(&id, replica);
                        continue;
                    }
                    PlacementCondition::Preempted { .. } => self.wait_preempted(&id, replica),
                    _ => {}
                }
                kept.push((slot, replica, condition));
            }
        }
        let lacking = self.fill(roster, &ask, key, spec, &holds);
        if lacking.is_empty() {
            self.explain_missing(key, service, 0, None);
        } else {
            let (missing, waiting) = (lacking.len(), Vec::new());
            let among = CandidateNodes::Places(lacking.clone());
            let named =
                |at: &usize| ReplicaId::new(key.clone(), Slot::Node(roster.id_at(*at).clone()));
            // What is in the way may be its own former kind, which makes way by itself.
            let seeks_room = others.is_empty();
            let needs = lacking.iter().filter(|_| seeks_room).map(named).collect();
            let unplaced = UnplacedService { key, service, spec, missing, waiting, among, needs };
            self.unplaced.push(unplaced);
        }
        if !others.is_empty() && kept.iter().all(|(_, replica, _)| replica.is_running()) {
            let is_meant = |at: usize| {
                let class = roster.class_of(at);
                misfit(spec, roster.id_at(at), &class.facts, class.role, false).is_none()
            };
            // Where no node is meant to have one, there is none to wait for.
            let may_go = !kept.is_empty() || !(0..roster.len()).any(is_meant);
            self.drop_former_kind(roster, key, service, &others, &lacking, may_go);
        }
        self.roll_in_place(roster, &ask, key, service, &kept);
        true
    }

    /// Numbered replicas are left from before the service was `global`. Where one is in the way of what is lacking it goes
    /// first; the others go once those that are here run.
    fn drop_former_kind(
        &mut self,
        roster: &Roster,
        key: &ServiceKey,
        service: &Service,
        others: &[&Slot],
        lacking: &[usize],
        may_go: bool,
    ) {
        let assigned = |slot: &&&Slot| service.replicas[**slot].assignment.as_ref();
        let is_in_the_way = |slot: &&&Slot| {
            let at = assigned(slot).and_then(|it| roster.place_of(&it.node));
            at.is_some_and(|at| lacking.contains(&at))
        };
        if others.iter().any(|slot| is_in_the_way(&slot)) {
            self.make_way(key, service, others.iter().filter(is_in_the_way).copied());
        } else if may_go {
            for slot in others.iter().filter(|slot| assigned(slot).is_some()) {
                self.retire(&ReplicaId::new(key.clone(), (*slot).clone()));
            }
        }
    }

    /// Places one on each node that may hold it and has none. Returns the nodes that should have one and cannot.
    fn fill(
        &mut self,
        roster: &mut Roster,
        ask: &PlacementRequest<'_>,
        key: &ServiceKey,
        spec: &ServiceSpec,
        holds: &[bool],
    ) -> Vec<usize> {
        let mut lacking = Vec::new();
        for at in (0..holds.len()).filter(|at| !holds[*at]) {
            match filter(ask, roster, at, 0).map(|filter| filter.word()) {
                None | Some(FilterWord::RecentFailures) => {}
                // Not meant for this node, or the node is not ready: nothing is missing there.
                Some(
                    FilterWord::NotReady
                    | FilterWord::RuntimeUnavailable
                    | FilterWord::Cordoned
                    | FilterWord::Draining
                    | FilterWord::Constraint
                    | FilterWord::NotListed
                    | FilterWord::RuntimeLacks,
                ) => continue,
                Some(_) => {
                    lacking.push(at);
                    continue;
                }
            }
            let node = roster.id_at(at).clone();
            let id = ReplicaId::new(key.clone(), Slot::Node(node.clone()));
            if self.state.is_name_taken(&id) {
                lacking.push(at);
                continue;
            }
            roster.take(at, ask.request, &ask.ports, &id);
            roster.show(at);
            let change = Change::Place { replica: id, node, spec: spec.hash };
            self.decision.batch.push(change.at_generation(None));
        }
        lacking
    }

    /// As many nodes at once as the service allows, and always in its own place: a second copy beside the first would break
    /// `global`.
    fn roll_in_place(
        &mut self,
        roster: &mut Roster,
        ask: &PlacementRequest<'_>,
        key: &ServiceKey,
        service: &Service,
        kept: &[(&Slot, &Replica, PlacementCondition)],
    ) {
        let spec = ask.spec;
        for (slot, replica, condition) in kept {
            let id = ReplicaId::new(key.clone(), (*slot).clone());
            self.stop_waiting(&id, replica, spec, *condition);
        }
        for (slot, replica, condition) in kept {
            let id = ReplicaId::new(key.clone(), (*slot).clone());
            match self.advance_one(
                &id,
                replica,
                (service, spec),
                *condition == PlacementCondition::Settled,
            ) {
                MoveStep::None | MoveStep::Wait(_) => {}
                MoveStep::Promote | MoveStep::Abandon(_) => return,
            }
        }
        // What this pass retires has no part in the rollout any more.
        let staying: BTreeSet<&Slot> = kept.iter().map(|(slot, ..)| *slot).collect();
        let is_kept = |slot: &Slot| staying.contains(slot);
        let Some(goes_on) = self.rollout(key, service, spec, is_kept) else { return };
        let rollout = service.row.rollout.as_ref();
        let may_go = |slot: &Slot, replica: &Replica| {
            let has_tried = rollout.is_some_and(|rollout| rollout.has_tried(slot));
            let is_stopped = replica.assignment.as_ref().is_some_and(|it| replica.is_stopped(it));
            let is_restart = replica.assignment.as_ref().is_some_and(|it| it.spec == spec.hash);
            is_restart || (goes_on && !has_tried) || is_stopped
        };
        // What is on a node that is down is nobody's fault here, and a failure that is allowed for is not waited for.
        let mut budget = DisruptionBudget::new(kept.iter().map(|(slot, replica, condition)| {
            let is_away = matches!(
                condition,
                PlacementCondition::InGrace { .. }
                    | PlacementCondition::Lost
                    | PlacementCondition::RuntimeLost
            );
            let is_allowed = is_away || rollout.is_some_and(|rollout| rollout.has_tried(slot));
            (replica.successor.is_some(), replica.is_running() || is_allowed)
        }));
        let outdated = kept.iter().filter(|(slot, replica, condition)| {
            condition.is_recreated() && replica.successor.is_none() && may_go(slot, replica)
        });
        let mut outdated: Vec<_> = outdated.collect();
        outdated.sort_by_key(|(slot, replica, _)| (replica.is_running(), *slot));
        for (slot, replica, _) in outdated {
            let Some(assignment) = &replica.assignment else { continue };
            let runs = replica.is_running();
            let is_served = runs && !spec.is_job();
            let cost = if is_served { DisruptionCost::OneServing } else { DisruptionCost::Nothing };
            let width = if spec.is_job() { usize::MAX } else { rollout::width(spec) };
            if !budget.allows(width, cost) {
                return;
            }
            let id = ReplicaId::new(key.clone(), (*slot).clone());
            let freed = freed(service, replica, assignment);
            if let Err(filter) = take_in_place(roster, ask, &id, &assignment.node, freed) {
                self.wait(&id, WaitReason::NoRoomInPlace(filter));
                continue;
            }
            let (node, cause) = (assignment.node.clone(), cause(assignment, spec));
            self.about(&id, Change::Succeed { replica: id.clone(), node, spec: spec.hash, cause });
            self.about(&id, Change::Promote { replica: id.clone() });
            budget.begin(runs);
        }
    }
}
