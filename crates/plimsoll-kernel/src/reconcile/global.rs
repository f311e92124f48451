//! `global` services: one replica on every node that may hold it.

use std::sync::Arc;

use plimsoll_model::reason::FilterWord;
use plimsoll_model::state::Service;
use plimsoll_model::{Change, Replica, ReplicaId, ServiceKey, ServiceSpec, Slot};

use super::Pass;
use super::counted::cause;
use super::nowhere::{Among, Nowhere};
use super::plight::Plight;
use crate::budget::{Budget, Cost};
use crate::moves::Step;
use crate::place::Roster;
use crate::place::filter::{Ask, filter, misplaced};
use crate::rollout;

impl<'s> Pass<'s> {
    pub(super) fn global(
        &mut self,
        roster: &mut Roster,
        key: &'s ServiceKey,
        service: &'s Service,
        spec: &'s Arc<ServiceSpec>,
    ) {
        let ask = Ask::new(spec, &service.row.failures, self.policy, self.now);
        let mut holds = vec![false; roster.len()];
        let mut kept: Vec<(&Slot, &Replica, Plight)> = Vec::new();
        let mut others: Vec<&Slot> = Vec::new();
        for (slot, replica) in &service.replicas {
            let Slot::Node(node) = slot else {
                others.push(slot);
                continue;
            };
            let at = roster.place_of(node);
            if let Some(at) = at {
                holds[at] = true;
            }
            let Some(assignment) = &replica.assignment else { continue };
            // Where the node is gone, drained or no longer meant, the replica ends: it is never moved. A node that is
            // merely down keeps it.
            if at.is_none_or(|at| misplaced(&ask, roster, at).is_some()) {
                self.retire(&ReplicaId::new(key.clone(), slot.clone()));
            } else {
                let plight = self.plight(roster, &ask, replica, assignment, spec.hash);
                kept.push((slot, replica, plight));
            }
        }
        let lacking = self.fill(roster, &ask, key, spec, &holds);
        if lacking.is_empty() {
            self.explain_missing(key, service, 0, None);
        } else {
            let (missing, waiting, among) = (lacking.len(), Vec::new(), Among::Places(lacking));
            self.nowhere.push(Nowhere { key, service, spec, missing, waiting, among });
        }

        if kept.iter().all(|(_, replica, _)| replica.is_running()) && !kept.is_empty() {
            for slot in others {
                if service.replicas[slot].assignment.is_some() {
                    self.retire(&ReplicaId::new(key.clone(), slot.clone()));
                }
            }
        }
        self.roll_in_place(key, service, spec, &kept);
    }

    /// Places one on each node that may hold it and has none. Returns the nodes that should have one and cannot.
    fn fill(
        &mut self,
        roster: &mut Roster,
        ask: &Ask<'_>,
        key: &ServiceKey,
        spec: &ServiceSpec,
        holds: &[bool],
    ) -> Vec<usize> {
        let mut lacking = Vec::new();
        for at in (0..holds.len()).filter(|at| !holds[*at]) {
            match filter(ask, roster, at, 0).map(|filter| filter.word()) {
                None | Some(FilterWord::RecentFailures) => {}
                // Not meant for this node, or the node is not ready: nothing is missing there.
                Some(FilterWord::NotReady | FilterWord::Cordoned | FilterWord::Draining) => {
                    continue;
                }
                Some(FilterWord::Constraint | FilterWord::NotListed) => continue,
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
        key: &ServiceKey,
        service: &Service,
        spec: &ServiceSpec,
        kept: &[(&Slot, &Replica, Plight)],
    ) {
        for (slot, replica, plight) in kept {
            let id = ReplicaId::new(key.clone(), (*slot).clone());
            match self.advance_one(&id, replica, (service, spec), *plight == Plight::Settled) {
                Step::None | Step::Wait(_) => {}
                Step::Promote | Step::Abandon(_) => return,
            }
        }
        let Some(goes_on) = self.rollout(key, service, spec) else { return };
        let rollout = service.row.rollout.as_ref();
        let may_go = |slot: &Slot, replica: &Replica| {
            let has_tried = rollout.is_some_and(|rollout| rollout.has_tried(slot));
            let is_stopped = replica.assignment.as_ref().is_some_and(|it| replica.is_stopped(it));
            let is_restart = replica.assignment.as_ref().is_some_and(|it| it.spec == spec.hash);
            ((goes_on || is_restart) && !has_tried) || is_stopped
        };
        // What is on a node that is down is nobody's fault here, and a failure that is allowed for is not waited for.
        let mut budget = Budget::new(kept.iter().map(|(slot, replica, plight)| {
            let is_away = matches!(plight, Plight::InGrace(_) | Plight::Lost);
            let is_allowed = is_away || rollout.is_some_and(|rollout| rollout.has_tried(slot));
            (replica.successor.is_some(), replica.is_running() || is_allowed)
        }));
        let outdated = kept.iter().filter(|(slot, replica, plight)| {
            *plight == Plight::Outdated && replica.successor.is_none() && may_go(slot, replica)
        });
        let mut outdated: Vec<_> = outdated.collect();
        outdated.sort_by_key(|(slot, replica, _)| (replica.is_running(), *slot));
        for (slot, replica, _) in outdated {
            let Some(assignment) = &replica.assignment else { continue };
            let runs = replica.is_running();
            let cost = if runs { Cost::OneServing } else { Cost::Nothing };
            if !budget.allows(rollout::width(spec), cost) {
                return;
            }
            let id = ReplicaId::new(key.clone(), (*slot).clone());
            let (node, cause) = (assignment.node.clone(), cause(assignment, spec));
            self.about(&id, Change::Succeed { replica: id.clone(), node, spec: spec.hash, cause });
            self.about(&id, Change::Promote { replica: id.clone() });
            budget.begin(runs);
        }
    }
}
