//! Every refusal has a reason: a service that lacks replicas says why, and one that lacks none says nothing.

use std::collections::BTreeMap;

use plimsoll_model::reason::UnplacedReason;
use plimsoll_model::state::Service;
use plimsoll_model::{Millis, ServiceKey, Slot, Timestamp};

use super::Invariant;
use crate::world::World;

/// Two full cycles: one to notice, one for a pass whose batch was refused.
const PATIENCE: Millis = Millis::minutes(2);

#[derive(Debug, Default)]
pub(super) struct Reasons {
    since: BTreeMap<ServiceKey, Timestamp>,
}

impl Invariant for Reasons {
    fn name(&self) -> &'static str {
        "reasons"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        if !world.is_cycle {
            return Ok(());
        }
        let mut since = BTreeMap::new();
        for (key, service) in world.state.services() {
            let wanted = service.desired().map_or(Some(0), |spec| spec.placement.mode.replicas());
            let Some(wanted) = wanted else { continue };
            let live = live(service);
            let lacks = live < wanted as usize;
            // What waits because its decisions are refused says that instead, whatever it lacks.
            if lacks == service.row.unplaced.is_some() || is_refused(service) {
                continue;
            }
            let first = self.since.get(key).copied().unwrap_or(world.now());
            let first = if world.led_for() > PATIENCE { first } else { world.now() };
            if world.now().since(first) > PATIENCE {
                return Err(format!(
                    "{key} has {live} of {wanted} and says {:?}",
                    service.row.unplaced
                ));
            }
            since.insert(key.clone(), first);
        }
        self.since = since;
        Ok(())
    }
}

/// Whether it says that the state refuses what is decided for it.
pub(super) fn is_refused(service: &Service) -> bool {
    let said = service.row.unplaced.as_ref();
    said.is_some_and(|it| matches!(it.why, UnplacedReason::DecisionRefused { .. }))
}

/// How many replicas it has of those it asks for by number. What is left from when it was `global` is not of them.
pub(super) fn live(service: &Service) -> usize {
    let ours = service.replicas.iter().filter(|(slot, _)| matches!(slot, Slot::Index(_)));
    ours.filter(|(_, replica)| replica.assignment.is_some()).count()
}
