//! What automatic moves have brought is told of each, once and in time, and a loop that was slowed down by it moves nothing
//! before its time. This keeps a count of its own of when each loop moved something.

use std::collections::BTreeMap;

use plimsoll_model::review::{MAX_PENDING_REVIEWS, MovingLoop};
use plimsoll_model::{Event, Millis, MoveCause, ReplicaId, Timestamp};

use super::Invariant;
use crate::world::World;

/// What one cycle sends off is written within this: its batch may be several entries of the log.
const ONE_BATCH: Millis = Millis::seconds(2);

/// A review may wait for a leader and its first cycle, and for others that are due.
const SLACK: Millis = Millis::minutes(15);

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When each loop last began to move something, and how often its interval was doubled by then.
    moved: BTreeMap<MovingLoop, Timestamp>,
    moving: BTreeMap<ReplicaId, MoveCause>,
}

impl Invariant for Pace {
    fn name(&self) -> &'static str {
        "pace"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let (now, policy) = (world.now(), &world.scenario.policy);
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let Event::Replica(id) = event else { continue };
            let cause = world.state.replica(id).and_then(|it| Some(it.successor.as_ref()?.cause));
            let Some(cause) = cause else {
                self.moving.remove(id);
                continue;
            };
            if self.moving.insert(id.clone(), cause) == Some(cause) {
                continue;
            }
            let by = match cause {
                MoveCause::Pressure => MovingLoop::Rebalancer,
                MoveCause::Reschedule => MovingLoop::Rescheduler,
                _ => continue,
            };
            let record = world.state.reviews().of(by);
            let Some(last) = self.moved.insert(by, now) else { continue };
            let (rested, interval) =
                (now.since(last), record.interval(policy.sample_interval, now));
            if record.doublings(now) > 0
                && rested > ONE_BATCH
                && rested.0 + world.gained.0 + ONE_BATCH.0 < interval.0
            {
                let by = by.word();
                return Err(format!(
                    "the {by} moves {id} {rested} after a move, and waits {interval}"
                ));
            }
        }
        let pending = world.state.reviews().pending();
        if pending.len() > MAX_PENDING_REVIEWS {
            return Err(format!("{} moves wait for a review", pending.len()));
        }
        let latest = policy.review.after.0 + policy.review.patience.0 + SLACK.0 + world.gained.0;
        match pending.iter().find(|(_, pending)| now.since(pending.began).0 > latest) {
            None => Ok(()),
            Some((id, pending)) => {
                let ago = now.since(pending.began);
                Err(format!("the move of {id} began {ago} ago and was never looked at again"))
            }
        }
    }
}
