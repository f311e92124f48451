//! `global` services: one replica on every node that may hold it.

use std::sync::Arc;

use plimsoll_model::reason::FilterWord;
use plimsoll_model::state::Service;
use plimsoll_model::{Change, Replica, ReplicaId, ServiceKey, ServiceSpec, Slot};

use super::Pass;
use super::counted::cause;
use super::nowhere::{Among, Nowhere};
use super::plight::Plight;
use crate::moves::Step;
use crate::place::Roster;
use crate::place::filter::{Ask, filter, misplaced};

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
        self.roll_in_place(key, spec, &kept);
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

    /// One node at a time, and always in its own place: a second copy beside the first would break `global`.
    fn roll_in_place(
        &mut self,
        key: &ServiceKey,
        spec: &ServiceSpec,
        kept: &[(&Slot, &Replica, Plight)],
    ) {
        let mut is_busy = false;
        for (slot, replica, plight) in kept {
            let id = ReplicaId::new(key.clone(), (*slot).clone());
            is_busy |= replica.successor.is_some();
            match self.advance_one(&id, replica, spec, *plight == Plight::Settled) {
                Step::None | Step::Wait(_) => {}
                Step::Promote | Step::Abandon(_) => return,
            }
        }
        let all_run = kept.iter().all(|(_, replica, plight)| {
            replica.is_running() || matches!(plight, Plight::InGrace(_) | Plight::Lost)
        });
        let outdated = kept.iter().filter(|(.., plight)| *plight == Plight::Outdated);
        let next = outdated.min_by_key(|(slot, replica, _)| (replica.is_running(), *slot));
        let Some((slot, replica, _)) =
            next.filter(|(_, r, _)| !is_busy && (all_run || !r.is_running()))
        else {
            return;
        };
        let Some(assignment) = &replica.assignment else { return };
        let id = ReplicaId::new(key.clone(), (*slot).clone());
        let (node, cause) = (assignment.node.clone(), cause(assignment, spec));
        self.about(&id, Change::Succeed { replica: id.clone(), node, spec: spec.hash, cause });
        self.about(&id, Change::Promote { replica: id.clone() });
    }
}
