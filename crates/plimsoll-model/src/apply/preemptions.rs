//! Preemptions: they begin, their victims are stopped, and they end when the room is taken or no longer needed.

use super::Txn;
use crate::audit::AuditKind;
use crate::command::{Event, Refusal};
use crate::ids::{NodeId, ReplicaId, ServiceKey};
use crate::preemption::{
    MAX_PREEMPTIONS, MAX_VICTIMS, PreemptedBy, Preemption, PreemptionCounts, WithdrawReason,
};
use crate::state::ServiceRow;

impl Txn<'_> {
    pub(super) fn preempt(&mut self, node: &NodeId, begun: &Preemption) -> Result<(), Refusal> {
        self.node(node)?;
        self.service(&begun.by.service)?;
        let ledger = &self.state.preemptions;
        if ledger.in_flight.contains_key(node) {
            return Err(Refusal::AlreadyPreempting { node: node.clone() });
        }
        let at_most = |what: &str, found: usize, max: usize| {
            let what = what.to_owned();
            if found > max { Err(Refusal::TooMany { what, found, max }) } else { Ok(()) }
        };
        at_most("preemptions", ledger.in_flight.len() + 1, MAX_PREEMPTIONS)?;
        at_most("victims", begun.victims.len(), MAX_VICTIMS)?;
        for (id, victim) in &begun.victims {
            let assignment = self.replica(id)?.assignment.as_ref();
            let found = assignment.filter(|it| it.node == *node).map(|it| it.generation);
            if found != Some(victim.generation) {
                let (replica, decided) = (id.clone(), Some(victim.generation));
                return Err(Refusal::Generation { replica, decided, found });
            }
        }
        let counts = ledger.counts;
        let counts = PreemptionCounts { begun: counts.begun.saturating_add(1), ..counts };
        self.set_preemption(node, Some(begun.clone()), counts);
        self.audit(AuditKind::PreemptionStarted {
            node: node.clone(),
            preemption: Box::new(begun.clone()),
        });
        Ok(())
    }

    /// Its time to move elsewhere is over: it stops.
    pub(super) fn evict(&mut self, id: &ReplicaId) -> Result<(), Refusal> {
        let not_preempted = || Refusal::NotPreempted { replica: id.clone() };
        let assignment = self.replica(id)?.assignment.as_ref().ok_or_else(not_preempted)?;
        let found = self.state.preemptions.of_victim(id, assignment.generation);
        let (node, preemption, victim) = found.ok_or_else(not_preempted)?;
        let by = PreemptedBy {
            by: preemption.by.clone(),
            node: node.clone(),
            priority: preemption.priority,
            own: victim.priority,
        };
        self.retire(id)?;
        if let Some(service) = self.state.services.get(&id.service) {
            let row = ServiceRow { preempted: Some(Box::new(by.clone())), ..service.row.clone() };
            self.set_service(&id.service, Some(row));
        }
        self.count_preemption(|counts| counts.evicted = counts.evicted.saturating_add(1));
        self.audit(AuditKind::Evicted { replica: id.clone(), by: Box::new(by) });
        Ok(())
    }

    pub(super) fn withdraw_preemption(
        &mut self,
        node: &NodeId,
        why: &WithdrawReason,
    ) -> Result<(), Refusal> {
        let ledger = &self.state.preemptions;
        let Some(preemption) = ledger.in_flight.get(node) else {
            return Err(Refusal::NotPreempting { node: node.clone() });
        };
        let (by, why) = (preemption.by.clone(), why.clone());
        let counts = ledger.counts;
        let counts = PreemptionCounts { withdrawn: counts.withdrawn.saturating_add(1), ..counts };
        self.set_preemption(node, None, counts);
        self.audit(AuditKind::PreemptionWithdrawn { by, node: node.clone(), why });
        Ok(())
    }

    /// A replica of the service goes to the node: if room is held for it there, this is who it is held for.
    pub(super) fn take_held_room(&mut self, service: &ServiceKey, node: &NodeId) {
        let held = self.state.preemptions.in_flight.get(node);
        if held.is_some_and(|held| held.by.service == *service) {
            self.set_preemption(node, None, self.state.preemptions.counts);
        }
    }

    /// It has its replicas again, or is given new ones: for whom it lost one is of the past.
    pub(super) fn forget_preempted(&mut self, key: &ServiceKey) {
        let Some(service) = self.state.services.get(key) else { return };
        if service.row.preempted.is_some() && service.row.unplaced.is_none() {
            let row = ServiceRow { preempted: None, ..service.row.clone() };
            self.set_service(key, Some(row));
        }
    }

    fn count_preemption(&mut self, add: impl FnOnce(&mut PreemptionCounts)) {
        let mut counts = self.state.preemptions.counts;
        add(&mut counts);
        self.set_preemption_counts(counts);
    }

    fn set_preemption(
        &mut self,
        node: &NodeId,
        preemption: Option<Preemption>,
        counts: PreemptionCounts,
    ) {
        self.set_preemption_counts(counts);
        let is_over = preemption.is_none();
        let after = preemption.clone();
        let before = self.put_preemption(node, preemption);
        // Who gets the room and who makes way for it are looked at again, and so is what the node has left for others.
        let services: Vec<ServiceKey> = before
            .iter()
            .chain(after.iter())
            .flat_map(|it| it.victims.keys().chain([&it.by]))
            .map(|replica| replica.service.clone())
            .collect();
        for key in services {
            self.emit(Event::Service(key));
        }
        self.emit(Event::Load(node.clone()));
        if is_over {
            self.emit(Event::Freed(node.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::command::{Change, Refusal};
    use crate::ids::ReplicaId;
    use crate::preemption::{Preemption, Victim};
    use crate::testkit::{cell, cpus, node_id, replica_id, spread};
    use crate::transition::Writer;
    use crate::units::Resources;

    #[test]
    fn only_who_makes_way_is_evicted_and_who_gets_the_room_ends_it() {
        let mut cell = cell()
            .node("ash", cpus(4))
            .deploy("low", [("batch", spread(1))])
            .deploy("high", [("web", spread(1))]);
        let (victim, by, node) =
            (replica_id("low/batch/1"), replica_id("high/web/1"), node_id("ash"));
        let spec = spread(1).hash;
        let place = |replica: &ReplicaId| Change::Place {
            replica: replica.clone(),
            node: node_id("ash"),
            spec,
        };
        cell.change(Writer::Scheduler, place(&victim));
        let evict = || vec![Change::Evict { replica: victim.clone() }.free()];
        let refused = cell.apply(Writer::Scheduler, evict()).unwrap_err();
        assert_eq!(refused.reason, Refusal::NotPreempted { replica: victim.clone() });

        let generation =
            cell.state.replica(&victim).unwrap().assignment.as_ref().unwrap().generation;
        let until = cell.now;
        let preemption = Preemption {
            by: by.clone(),
            priority: 10,
            request: Resources::NONE,
            ports: Vec::new(),
            victims: [(victim.clone(), Victim { generation, priority: 0, penalty: 0, until })]
                .into(),
            began: cell.now,
        };
        let preempt =
            || Change::Preempt { node: node.clone(), preemption: Box::new(preemption.clone()) };
        cell.change(Writer::Scheduler, preempt());
        let again = cell.apply(Writer::Scheduler, vec![preempt().free()]).unwrap_err();
        assert_eq!(again.reason, Refusal::AlreadyPreempting { node: node.clone() });

        cell.apply(Writer::Scheduler, evict()).unwrap();
        let row = &cell.state.service(&victim.service).unwrap().row;
        assert_eq!(row.preempted.as_ref().unwrap().by, by);
        assert_eq!(cell.state.preemptions().in_flight().len(), 1, "its room is held");
        cell.change(Writer::Scheduler, place(&by));
        assert!(cell.state.preemptions().in_flight().is_empty(), "and taken");
        let counts = cell.state.preemptions().counts();
        assert_eq!((counts.begun, counts.evicted, counts.withdrawn), (1, 1, 0));
    }
}
