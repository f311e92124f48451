//! How many replicas of a service are settled, kept true as they change, so that nobody has to look at each of them to
//! learn that there is nothing to do.

use std::collections::BTreeMap;

use crate::ids::Slot;
use crate::replica::Replica;
use crate::spec::SpecHash;

/// The replicas of a service that have an assignment, by whether they are settled. Whether their nodes may still hold
/// them is not counted here: that changes with the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quiescence {
    /// Numbered replicas that have what they should run, where they should run it.
    pub quiescent: u32,
    /// All others: outdated, moving, waiting, stopped, to be started anew, or named after nodes.
    pub unsettled: u32,
}

impl Quiescence {
    pub(crate) fn of(desired: Option<SpecHash>, replicas: &BTreeMap<Slot, Replica>) -> Self {
        let mut quiescence = Self::default();
        for (slot, replica) in replicas {
            quiescence.exchange(desired, slot, None, Some(replica));
        }
        quiescence
    }

    /// Takes a replica from what it was to what it is now.
    pub(crate) fn exchange(
        &mut self,
        desired: Option<SpecHash>,
        slot: &Slot,
        old: Option<&Replica>,
        new: Option<&Replica>,
    ) {
        if let Some(count) = old.and_then(|old| self.count_of(desired, slot, old)) {
            *count -= 1;
        }
        if let Some(count) = new.and_then(|new| self.count_of(desired, slot, new)) {
            *count += 1;
        }
    }

    fn count_of(
        &mut self,
        desired: Option<SpecHash>,
        slot: &Slot,
        replica: &Replica,
    ) -> Option<&mut u32> {
        let assignment = replica.assignment.as_ref()?;
        let is_quiescent = matches!(slot, Slot::Index(_))
            && desired == Some(assignment.spec)
            && replica.successor.is_none()
            && replica.waiting.is_none()
            && !replica.is_stale(assignment)
            && !replica.is_stopped(assignment);
        Some(if is_quiescent { &mut self.quiescent } else { &mut self.unsettled })
    }
}
