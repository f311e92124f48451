//! One ledger for all causes: the rebalancer and the rescheduler leave alone what anything moved or placed of late, give a
//! node nothing that was just given something, and never move one that is under way; the rebalancer moves one replica a
//! cycle. It holds over new leaders, so this
//! keeps a ledger of its own, from what was applied, and believes none of the state's times.

use std::collections::BTreeMap;

use plimsoll_model::{Event, Millis, MoveCause, NodeId, ReplicaId, Timestamp, Writer};

use super::Invariant;
use crate::world::World;

/// What one cycle of the rescheduler sends to a node arrives within this: its batch may be several entries of the log.
const ONE_BATCH: Millis = Millis::seconds(2);

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Where each replica is, and when it was sent there.
    placed: BTreeMap<ReplicaId, (NodeId, Timestamp)>,
    /// When each node was last given something that moved there.
    received: BTreeMap<NodeId, Timestamp>,
    /// What is under way to where, and since when.
    moving: BTreeMap<ReplicaId, (NodeId, Timestamp)>,
    /// When the rebalancer last moved something.
    relieved: Option<Timestamp>,
}

impl Invariant for Ledger {
    fn name(&self) -> &'static str {
        "ledger"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for applied in &world.applied {
            // One that leaves and joins again has no past.
            for event in &applied.events {
                if let Event::Node(node) = event
                    && world.state.node(node).is_none()
                {
                    self.received.remove(node);
                }
            }
            let replicas = applied.events.iter().filter_map(|event| match event {
                Event::Replica(id) => Some(id),
                _ => None,
            });
            for id in replicas {
                self.note(world, applied.writer, id)?;
            }
        }
        Ok(())
    }
}

impl Ledger {
    fn note(&mut self, world: &World<'_>, writer: Writer, id: &ReplicaId) -> Result<(), String> {
        let now = world.now();
        let Some(replica) = world.state.replica(id) else {
            self.placed.remove(id);
            self.moving.remove(id);
            return Ok(());
        };
        let next = replica.successor.as_ref();
        let to = next.map(|next| &next.assignment.node);
        let begins = to.filter(|to| self.moving.get(id).is_none_or(|(known, _)| known != *to));
        if let (Some(next), Some(to)) = (next, begins) {
            if next.cause.is_chosen() {
                self.admit(world, writer, id, (to, next.cause))?;
            }
            let from = replica.assignment.as_ref().map(|current| &current.node);
            if from != Some(to) {
                self.received.insert(to.clone(), now);
            }
        }
        if let Some(to) = begins {
            self.moving.insert(id.clone(), (to.clone(), now));
        }
        let arrived = if to.is_none() { self.moving.remove(id) } else { None };
        let Some(current) = &replica.assignment else { return Ok(()) };
        if self.placed.get(id).is_none_or(|(node, _)| *node != current.node) {
            let sent = arrived.filter(|(to, _)| *to == current.node);
            self.placed.insert(id.clone(), sent.unwrap_or_else(|| (current.node.clone(), now)));
        }
        Ok(())
    }

    /// A move for something better, as it begins.
    fn admit(
        &mut self,
        world: &World<'_>,
        writer: Writer,
        id: &ReplicaId,
        (to, cause): (&NodeId, MoveCause),
    ) -> Result<(), String> {
        let (now, limits) = (world.now(), &world.scenario.policy.rebalance);
        let is_relief = cause == MoveCause::Pressure;
        let by = if is_relief { Writer::Rebalancer } else { Writer::Rescheduler };
        if writer != by {
            return Err(format!("{writer:?} moves {id} for {}", cause.word()));
        }
        if let Some((other, _)) = self.moving.get(id) {
            return Err(format!("{id} is under way to {other} and is sent to {to}"));
        }
        if let Some((node, since)) = self.placed.get(id)
            && now.since(*since).0 + world.gained.0 < limits.cooldown_replica.0
        {
            return Err(format!("{id} was sent to {node} {} ago and moves on", now.since(*since)));
        }
        if let Some(at) = self.received.get(to)
            && now.since(*at).0 + world.gained.0 < limits.cooldown_node.0
            && (is_relief || now.since(*at) > ONE_BATCH)
        {
            return Err(format!(
                "{to} was given something {} ago and is given {id}",
                now.since(*at)
            ));
        }
        if is_relief && self.relieved.replace(now) == Some(now) {
            return Err(format!("{id} is the second that the rebalancer moves in one cycle"));
        }
        Ok(())
    }
}
