//! Changes to replicas: the steps of placing, moving and ending them, and what their nodes report.

use std::sync::Arc;

use super::Txn;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{NodeId, ReplicaId, Slot};
use crate::reason::{AbandonReason, WaitReason};
use crate::replica::{
    Assignment, MAX_LEAVING, MoveCause, Observation, ObservedCode, ObservedState, Replica,
    Successor,
};
use crate::spec::SpecHash;
use crate::state::{MAX_FAILURES, MAX_TENANTS, ServiceRow};
use crate::transition;
use crate::units::Generation;

impl Txn<'_> {
    pub(super) fn place(
        &mut self,
        id: &ReplicaId,
        node: &NodeId,
        spec: SpecHash,
    ) -> Result<(), Refusal> {
        let service = self.service(&id.service)?;
        if service.replicas.contains_key(&id.slot) {
            return Err(Refusal::ReplicaExists { replica: id.clone() });
        }
        match &id.slot {
            Slot::Node(own) if own != node => {
                return Err(Refusal::SlotMismatch { replica: id.clone(), node: node.clone() });
            }
            Slot::Node(_) => {}
            Slot::Index(index) => self.take_index(id, *index)?,
        }
        if self.state.is_name_taken(id) {
            return Err(Refusal::IdTaken { replica: id.clone() });
        }
        let assignment = Some(self.assign(id, node, spec)?);
        let data = self.take_data(id, node, spec, None);
        let service = self.state.services.get(&id.service);
        let schedule = service.and_then(|service| service.row.schedule.as_ref());
        let run = schedule.and_then(|schedule| schedule.runs.last()).map(|run| run.number);
        self.set_replica(id, Some(Replica { assignment, data, run, ..Replica::default() }));
        self.take_held_room(&id.service, node);
        self.forget_preempted(&id.service);
        self.audit(AuditKind::Placed { replica: id.clone(), node: node.clone() });
        Ok(())
    }

    pub(super) fn succeed(
        &mut self,
        id: &ReplicaId,
        node: &NodeId,
        spec: SpecHash,
        cause: MoveCause,
    ) -> Result<(), Refusal> {
        let service = self.service(&id.service)?;
        let replica = self.replica(id)?;
        let Some(from) = &replica.assignment else {
            return Err(Refusal::NoSuchReplica { replica: id.clone() });
        };
        if replica.successor.is_some() {
            return Err(Refusal::AlreadyMoving { replica: id.clone() });
        }
        if matches!(&id.slot, Slot::Node(own) if own != node) {
            return Err(Refusal::SlotMismatch { replica: id.clone(), node: node.clone() });
        }
        let (src, mut moving) = (from.node.clone(), replica.clone());
        let is_rerun = !matches!(cause, MoveCause::Outdated | MoveCause::Restart)
            && service.desired().is_some_and(|spec| spec.is_job())
            && replica.observation(from).is_some_and(|seen| {
                // It may have run, also where it was stopped since.
                !matches!(seen.state, ObservedState::Pending | ObservedState::Pulling)
                    && !seen.is_completed()
            });
        let assignment = self.assign(id, node, spec)?;
        moving.successor = Some(Successor { assignment, cause, has_failed: false });
        moving.data = self.take_data(id, node, spec, moving.data);
        moving.waiting = None;
        self.set_replica(id, Some(moving));
        let (replica, dst) = (id.clone(), node.clone());
        // Whatever the cause: a node that was just given something shows only later how it bears it.
        if src != dst {
            self.set_received(&dst);
            self.take_held_room(&id.service, &dst);
        }
        self.audit(AuditKind::MoveStarted { replica, src: src.clone(), dst: dst.clone(), cause });
        if is_rerun {
            self.audit(AuditKind::JobRerun { replica: id.clone(), src, dst });
        }
        Ok(())
    }

    pub(super) fn promote(&mut self, id: &ReplicaId) -> Result<(), Refusal> {
        let mut replica = self.replica(id)?.clone();
        let (Some(old), Some(new)) = (replica.assignment.take(), replica.successor.take()) else {
            return Err(Refusal::NotMoving { replica: id.clone() });
        };
        let (src, dst) = (old.node.clone(), new.assignment.node.clone());
        replica.assignment = Some(new.assignment);
        if new.cause == MoveCause::Pressure || src != dst {
            replica.is_relieved = new.cause == MoveCause::Pressure;
        }
        self.leave(&mut replica, old);
        self.put_or_drop(id, replica);
        if src != dst {
            self.note_left(&src);
        }
        self.audit(AuditKind::MoveFinished { replica: id.clone(), src, dst, cause: new.cause });
        Ok(())
    }

    pub(super) fn abandon(&mut self, id: &ReplicaId, why: &AbandonReason) -> Result<(), Refusal> {
        let mut replica = self.replica(id)?.clone();
        let (Some(old), Some(new)) = (&replica.assignment, replica.successor.take()) else {
            return Err(Refusal::NotMoving { replica: id.clone() });
        };
        let (src, dst) = (old.node.clone(), new.assignment.node.clone());
        self.leave(&mut replica, new.assignment);
        self.put_or_drop(id, replica);
        self.audit(AuditKind::MoveUndone { replica: id.clone(), src, dst, why: why.clone() });
        Ok(())
    }

    /// A second request before the first is met adds nothing.
    pub(super) fn renew(&mut self, id: &ReplicaId) -> Result<(), Refusal> {
        let mut replica = self.replica(id)?.clone();
        let Some(assignment) = &replica.assignment else {
            return Err(Refusal::NoSuchReplica { replica: id.clone() });
        };
        if replica.is_record(assignment) {
            return Ok(());
        }
        let newest = replica.successor.as_ref().map_or(assignment, |s| &s.assignment);
        let is_asked = replica.is_stale(newest);
        if is_asked && replica.waiting.is_none() {
            return Ok(());
        }
        replica.fresh_from = self.state.next_generation;
        replica.waiting = None;
        self.set_replica(id, Some(replica));
        self.audit(AuditKind::RestartAsked { replica: id.clone() });
        Ok(())
    }

    /// Gives the replica new tries of what it was given up for. What runs of it is left alone.
    pub(super) fn try_again(&mut self, id: &ReplicaId) -> Result<(), Refusal> {
        let replica = self.replica(id)?;
        let fails = |assignment: Option<&Assignment>| assignment.is_some_and(|a| replica.fails(a));
        let next = replica.successor.as_ref().map(|successor| &successor.assignment);
        let (is_assignment, is_successor) = (fails(replica.assignment.as_ref()), fails(next));
        self.set_waiting(id, None)?;
        if is_successor {
            self.abandon(id, &AbandonReason::Needless)?;
        }
        if is_assignment {
            self.renew(id)?;
        }
        Ok(())
    }

    pub(super) fn retire(&mut self, id: &ReplicaId) -> Result<(), Refusal> {
        let mut replica = self.replica(id)?.clone();
        let Some(assignment) = replica.assignment.take() else { return Ok(()) };
        self.leave(&mut replica, assignment);
        if let Some(successor) = replica.successor.take() {
            self.leave(&mut replica, successor.assignment);
        }
        replica.waiting = None;
        self.release_data(id, replica.data);
        self.put_or_drop(id, replica);
        self.audit(AuditKind::Retired { replica: id.clone() });
        Ok(())
    }

    /// Only the latest word on an assignment that still exists counts. A report of anything else is late, not wrong.
    pub(super) fn observe(
        &mut self,
        id: &ReplicaId,
        generation: Generation,
        seen: &Observation,
    ) -> Result<(), Refusal> {
        let Some(replica) = self.state.replica(id) else { return Ok(()) };
        let Some(assignment) = replica.holds().find(|a| a.generation == generation) else {
            return Ok(());
        };
        let assignment = assignment.clone();
        let before = replica.observed.get(&generation);
        if before.is_some_and(|b| b.state == seen.state && b.code == seen.code) {
            return Ok(());
        }
        // It was asked for again before its end was known. What comes after is another generation; this one is over. What has
        // completed is never said to run again, whatever is still on its way; nor is a run that is over, however it ended: the
        // next one may be under way.
        let is_record = replica.is_record(&assignment);
        let is_last = |b: &Observation| {
            b.state == ObservedState::Stopped
                || ((b.is_completed() || is_record) && seen.state != ObservedState::Stopped)
        };
        if before.is_some_and(is_last) {
            return Ok(());
        }
        if let Some(before) = before
            && before.state != seen.state
            && !transition::allows(ObservedState::EDGES, &before.state, &seen.state, self.by.writer)
        {
            let what = format!("{id} {generation}");
            return Err(self.illegal(&what, &before.state, &seen.state));
        }
        let failed_before = before.is_some_and(|b| b.state == ObservedState::Failed);
        let mut replica = replica.clone();
        replica.observed.insert(generation, Observation { at: self.at, ..seen.clone() });
        if let Some(successor) = &mut replica.successor
            && successor.assignment.generation == generation
            && seen.state == ObservedState::Failed
        {
            successor.has_failed = true;
        }
        if seen.state == ObservedState::Stopped {
            replica.leaving.retain(|leaving| leaving.generation != generation);
        }
        self.put_or_drop(id, replica);
        if seen.state == ObservedState::Failed && !failed_before {
            self.count_failure(id, &assignment.node, seen);
            self.step_failed(id, &assignment, seen);
        }
        if seen.state == ObservedState::Completed {
            let (replica, node) = (id.clone(), assignment.node);
            let attempts = match seen.code {
                Some(ObservedCode::JobCompleted { attempts }) => attempts,
                _ => 1,
            };
            self.audit(AuditKind::JobCompleted { replica, node, attempts });
        }
        Ok(())
    }

    pub(super) fn set_waiting(
        &mut self,
        id: &ReplicaId,
        waiting: Option<&WaitReason>,
    ) -> Result<(), Refusal> {
        let replica = self.replica(id)?;
        if replica.waiting.as_ref() == waiting {
            return Ok(());
        }
        let replica = Replica { waiting: waiting.cloned(), ..replica.clone() };
        self.set_replica(id, Some(replica));
        if let Some(why) = waiting {
            self.audit(AuditKind::Waiting { replica: id.clone(), why: why.clone() });
        }
        Ok(())
    }

    /// Writes the replica, forgets reports of assignments it no longer has, and drops it, and then its service, once
    /// nothing of it is left.
    pub(super) fn put_or_drop(&mut self, id: &ReplicaId, mut replica: Replica) {
        let held: Vec<Generation> = replica.holds().map(|a| a.generation).collect();
        replica.observed.retain(|generation, _| held.contains(generation));
        let gone = replica.is_empty();
        self.set_replica(id, (!gone).then_some(replica));
        let service = self.state.services.get(&id.service);
        if gone && service.is_some_and(|s| s.replicas.is_empty() && s.row.desired.is_none()) {
            self.set_service(&id.service, None);
        }
    }

    fn assign(
        &mut self,
        id: &ReplicaId,
        node: &NodeId,
        spec: SpecHash,
    ) -> Result<Assignment, Refusal> {
        self.node(node)?;
        let service = self.service(&id.service)?;
        if service.row.desired != Some(spec) {
            return Err(Refusal::StaleSpec { service: id.service.clone(), spec });
        }
        let revision = service.row.revision;
        let assigned = service.row.specs.get(&spec).map(Arc::clone);
        let load = self.state.load(node).filter(|load| !load.tenants.contains(id));
        let tenants = load.map_or(0, |load| load.tenants.len());
        if tenants >= MAX_TENANTS {
            let what = format!("replicas on node {node}");
            return Err(Refusal::TooMany { what, found: tenants + 1, max: MAX_TENANTS });
        }
        if let Some(assigned) = assigned {
            self.check_declared_free(&id.service)?;
            self.note_volumes(&id.service.deployment, node, &assigned.container)?;
        }
        let generation = self.take_generation();
        Ok(Assignment {
            node: node.clone(),
            spec,
            revision,
            generation,
            term: self.term,
            at: self.at,
        })
    }

    fn take_index(&mut self, id: &ReplicaId, index: u32) -> Result<(), Refusal> {
        let (service, next) = (&id.service, self.state.next_index(&id.service));
        if index < next || index == u32::MAX {
            return Err(Refusal::IndexReused { service: service.clone(), index, next });
        }
        self.set_next_index(&id.service, index + 1);
        Ok(())
    }

    fn count_failure(&mut self, id: &ReplicaId, node: &NodeId, seen: &Observation) {
        let Some(service) = self.state.services.get(&id.service) else { return };
        let mut failures = service.row.failures.clone();
        let times = failures.entry(node.clone()).or_default();
        times.push(self.at);
        let excess = times.len().saturating_sub(MAX_FAILURES);
        times.drain(..excess);
        let row = ServiceRow { failures, ..service.row.clone() };
        self.set_service(&id.service, Some(row));
        let (replica, node, code) = (id.clone(), node.clone(), seen.code.clone());
        self.audit(AuditKind::ReplicaFailed { replica, node, code });
    }

    pub(super) fn replica(&self, id: &ReplicaId) -> Result<&Replica, Refusal> {
        self.state.replica(id).ok_or_else(|| Refusal::NoSuchReplica { replica: id.clone() })
    }

    /// What leaves a node that is gone would never be reported as stopped, so it is gone as well; and what has stopped
    /// already is not reported a second time.
    fn leave(&self, replica: &mut Replica, assignment: Assignment) {
        let is_there = self.state.nodes.contains_key(&assignment.node);
        if is_there && !replica.is_stopped(&assignment) {
            replica.leaving.push(assignment);
        }
        if replica.leaving.len() > MAX_LEAVING {
            replica.leaving.remove(0);
        }
    }
}
