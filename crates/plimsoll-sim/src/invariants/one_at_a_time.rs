//! Of one service, no more replicas are moved by choice at once than it allows, which is one where it does not say; only
//! lost nodes may set more moving. What it allowed when they began goes on where it allows less by now.

use std::collections::BTreeMap;

use plimsoll_model::{Event, MoveCause, ServiceKey};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct OneAtATime {
    /// How many moved when last looked at.
    moving: BTreeMap<ServiceKey, usize>,
}

impl Invariant for OneAtATime {
    fn name(&self) -> &'static str {
        "one at a time"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let events = world.applied.iter().flat_map(|applied| &applied.events);
        let mut services: Vec<&ServiceKey> = events
            .filter_map(
                |event| if let Event::Replica(id) = event { Some(&id.service) } else { None },
            )
            .collect();
        services.dedup();
        for key in services {
            let Some(service) = world.state.service(key) else {
                self.moving.remove(key);
                continue;
            };
            let moving = service.replicas.values().filter_map(|replica| replica.successor.as_ref());
            let is_chosen = |cause| !matches!(cause, MoveCause::NodeLost | MoveCause::RuntimeLost);
            let chosen = moving.filter(|successor| is_chosen(successor.cause)).count();
            let before = self.moving.insert(key.clone(), chosen).unwrap_or(0);
            let width = service.desired().map_or(1, |spec| match spec.update.parallelism {
                0 => usize::MAX,
                some => some as usize,
            });
            if chosen > width.max(before) {
                return Err(format!("{chosen} replicas of {key} move at once"));
            }
        }
        Ok(())
    }
}
