//! Changes to a fleet that this cell coordinates, and to its own place in one.

use super::Txn;
use super::undo::Undo;
use crate::audit::AuditKind;
use crate::command::{Event, Refusal};
use crate::fleet::{
    FleetChange, FleetEvent, FleetMembership, FleetState, MAX_KEY, MAX_KNOWN, MembershipChange,
};

impl Txn<'_> {
    pub(super) fn fleet(&mut self, change: &FleetChange) -> Result<(), Refusal> {
        // A copy for the whole batch: the coordinator's state is some thousand rows, and it is written a few times a minute.
        let is_kept = |undo: &Undo| matches!(undo, Undo::Fleet(_));
        if !self.undo.iter().any(is_kept) {
            self.undo.push(Undo::Fleet(self.state.fleet.clone().map(Box::new)));
        }
        if *change == FleetChange::Begin {
            if self.state.fleet.is_some() {
                return Ok(());
            }
            let deployments = self.state.deployments.len();
            if deployments > 0 {
                return Err(Refusal::CellInUse { deployments });
            }
            self.state.fleet = Some(FleetState::default());
        }
        let Some(fleet) = &mut self.state.fleet else { return Err(Refusal::NotCoordinator) };
        let before = fleet.clone();
        let mut events = Vec::new();
        let made = fleet.make(change, self.at, &mut events);
        made.map_err(|refusal| Refusal::Fleet { refusal: Box::new(refusal) })?;
        if *fleet != before || !events.is_empty() {
            self.emit(Event::Fleet);
        }
        for event in events {
            self.audit(AuditKind::Fleet { event: Box::new(event) });
        }
        Ok(())
    }

    pub(super) fn fleet_membership(&mut self, change: &MembershipChange) -> Result<(), Refusal> {
        let before = self.state.fleet_membership.clone();
        let (next, event) = match (change, &before) {
            (MembershipChange::Leave, None) => return Err(Refusal::NoFleet),
            (MembershipChange::Leave, Some(known)) => {
                let (coordinator, shard) = (known.coordinator.clone(), known.shard.clone());
                (None, Some(FleetEvent::Left { coordinator, shard }))
            }
            (MembershipChange::Set { membership }, None) => {
                if self.state.fleet.is_some() {
                    return Err(Refusal::Coordinator);
                }
                let FleetMembership { coordinator, shard, .. } = &**membership;
                let (coordinator, shard) = (coordinator.clone(), shard.clone());
                (Some(membership), Some(FleetEvent::Joined { coordinator, shard }))
            }
            (MembershipChange::Set { membership }, Some(known)) => {
                let same = |a: &FleetMembership, b: &FleetMembership| {
                    (&a.coordinator, &a.shard, &a.key) == (&b.coordinator, &b.shard, &b.key)
                };
                if !same(membership, known) {
                    return Err(Refusal::FleetJoined { coordinator: known.coordinator.clone() });
                }
                (Some(membership), None)
            }
        };
        if let Some(membership) = next {
            bounded(membership)?;
        }
        let next = next.map(|it| (**it).clone());
        if next == before {
            return Ok(());
        }
        self.undo.push(Undo::FleetMembership(before.map(Box::new)));
        self.state.fleet_membership = next;
        self.emit(Event::Fleet);
        if event.as_ref().is_some_and(|event| matches!(event, FleetEvent::Left { .. })) {
            self.forget_coordinator();
        }
        if let Some(event) = event {
            self.audit(AuditKind::Fleet { event: Box::new(event) });
        }
        Ok(())
    }
}

fn bounded(membership: &FleetMembership) -> Result<(), Refusal> {
    let FleetMembership { servers, key, certificate, authorities, .. } = membership;
    let many = |what: &str, found: usize, max: usize| {
        if found <= max {
            return Ok(());
        }
        Err(Refusal::TooMany { what: what.to_owned(), found, max })
    };
    many("servers of a coordinator", servers.len(), MAX_KNOWN)?;
    many("authorities of a coordinator", authorities.len(), MAX_KNOWN)?;
    let held = authorities.iter().chain([certificate]).map(Vec::len);
    let longest = held.chain([key.expose().len()]).max();
    many("bytes of a key or certificate", longest.unwrap_or(0), MAX_KEY)
}
