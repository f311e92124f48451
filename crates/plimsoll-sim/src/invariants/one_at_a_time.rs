//! Of one service, at most one replica at a time is moved by choice; only lost nodes may set several moving.

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
            if chosen > 1 {
                return Err(format!("{chosen} replicas of {key} move at once"));
            }
        }
        Ok(())
    }
}
