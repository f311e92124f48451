//! Of one service, no more replicas are moved by choice at once than it allows, which is one where it does not say; only
//! lost nodes may set more moving.

use plimsoll_model::{Event, MoveCause, ServiceKey};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct OneAtATime;

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
            let Some(service) = world.state.service(key) else { continue };
            let moving = service.replicas.values().filter_map(|replica| replica.successor.as_ref());
            let chosen = moving.filter(|successor| successor.cause != MoveCause::NodeLost).count();
            let width = service.desired().map_or(1, |spec| spec.update.parallelism.max(1) as usize);
            if chosen > width {
                return Err(format!("{chosen} replicas of {key} move at once"));
            }
        }
        Ok(())
    }
}
