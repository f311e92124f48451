//! Nobody is stopped but for a replica of strictly higher priority, and not before its time; no service loses a second replica
//! to one that does not outrank its budget; one need preempts once; and what is begun comes to an end. This believes none of
//! the state's counts, and knows the graces and the bands by heart.

use std::collections::BTreeMap;

use plimsoll_kernel::explain::misplaced;
use plimsoll_model::state::Service;
use plimsoll_model::{
    AuditKind, Millis, Mode, NodeId, NodeStatus, Replica, ReplicaId, ServiceKey, Slot, Timestamp,
};

use super::Invariant;
use crate::world::World;

/// The longest grace, and as long again for a leader, for containers to stop, and for a full pass.
const LONGEST: Millis = Millis::minutes(25);

/// So many may one service begin within the time.
const MOST: u32 = 60;
const WITHIN: Millis = Millis::minutes(10);

#[derive(Debug, Default)]
pub(super) struct Preemption {
    /// The first audit event that was not looked at yet.
    seen: u64,
    /// Who makes way where, and until when, by what was known a step ago.
    victims: BTreeMap<ReplicaId, (i32, Timestamp)>,
    /// Since when room has been freed on a node, and for whom.
    since: BTreeMap<NodeId, (ReplicaId, Timestamp, Timestamp)>,
    begun: BTreeMap<ServiceKey, (Timestamp, u32)>,
}

impl Invariant for Preemption {
    fn name(&self) -> &'static str {
        "preemption"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let state = &world.state;
        let fresh = state.audit().since(self.seen);
        self.seen = state.audit().next_seq();
        for event in fresh {
            match &event.what {
                AuditKind::PreemptionStarted { node, preemption } => {
                    self.check_begun(world, node, preemption)?;
                }
                AuditKind::Evicted { replica, by } => {
                    if by.priority <= by.own {
                        return Err(format!("{replica} of priority {} is stopped: {by}", by.own));
                    }
                    let Some((own, until)) = self.victims.get(replica) else {
                        return Err(format!("{replica} is stopped and made way for nobody"));
                    };
                    if event.at < *until {
                        return Err(format!("{replica} is stopped before its time: {by}"));
                    }
                    let gap = i64::from(by.priority) - i64::from(*own);
                    if gap <= 100_000 {
                        check_budget(world, replica)?;
                    }
                }
                _ => {}
            }
        }
        let in_flight = state.preemptions().in_flight();
        let victims = in_flight.values().flat_map(|it| &it.victims);
        self.victims = victims.map(|(id, it)| (id.clone(), (it.priority, it.until))).collect();
        self.check_lasting(world)
    }
}

impl Preemption {
    fn check_begun(
        &mut self,
        world: &World<'_>,
        node: &NodeId,
        begun: &plimsoll_model::preemption::Preemption,
    ) -> Result<(), String> {
        let (by, now) = (&begun.by, world.now());
        for (id, victim) in &begun.victims {
            if victim.priority >= begun.priority {
                return Err(format!("{by} preempts {id}, which has priority {}", victim.priority));
            }
            let gap = i64::from(begun.priority) - i64::from(victim.priority);
            let grace = match gap {
                900_001.. => Millis::seconds(10),
                500_001.. => Millis::seconds(30),
                100_001.. => Millis::minutes(2),
                _ => Millis::minutes(10),
            };
            if victim.until.since(begun.began) != grace {
                return Err(format!(
                    "{id} has {} for a gap of {gap}",
                    victim.until.since(begun.began)
                ));
            }
            self.victims.insert(id.clone(), (victim.priority, victim.until));
        }
        let own = world.state.preemptions().in_flight().values();
        let own = own.filter(|it| it.by.service == by.service).count();
        let needs = world.state.service(&by.service).map_or(0, |it| needs(world, it));
        if own > needs {
            return Err(format!("{own} nodes are freed for {}, which needs {needs}", by.service));
        }
        self.since.insert(node.clone(), (by.clone(), begun.began, now));
        let (since, count) = self.begun.entry(by.service.clone()).or_insert((now, 0));
        if now.since(*since) > WITHIN {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        // What runs on a schedule needs room for each of its runs.
        let spec = world.state.service(&by.service).and_then(Service::desired);
        let is_scheduled = spec.is_some_and(|spec| spec.schedule.is_some());
        if *count > MOST && !is_scheduled {
            return Err(format!("{} preempts {count} times within {WITHIN}", by.service));
        }
        Ok(())
    }

    /// Room is freed in time, or the try is given up.
    fn check_lasting(&mut self, world: &World<'_>) -> Result<(), String> {
        let in_flight = world.state.preemptions().in_flight();
        self.since.retain(|node, (by, began, _)| {
            in_flight.get(node).is_some_and(|it| it.by == *by && it.began == *began)
        });
        if !world.is_cycle || world.led_for() < LONGEST {
            return Ok(());
        }
        for (node, (by, _, since)) in &self.since {
            let held = &in_flight[node];
            let mut concerned = held.victims.keys().map(|id| &id.service).chain([&by.service]);
            let is_poisoned = concerned.any(|key| world.poisoned.contains(key));
            let lasts = world.now().since(*since);
            if lasts.0 > LONGEST.0 + world.gained.0 && !is_poisoned {
                return Err(format!("room on {node} has been freed for {by} for {lasts}"));
            }
        }
        Ok(())
    }
}

/// How many replicas of the service have no place, or not the one they should have.
fn needs(world: &World<'_>, service: &Service) -> usize {
    let Some(spec) = service.desired() else { return 0 };
    let wanted = match &spec.placement.mode {
        Mode::Global => world.state.nodes().len(),
        mode => mode.replicas().unwrap_or(0) as usize,
    };
    let is_global = spec.placement.mode == Mode::Global;
    let ours =
        service.replicas.iter().filter(|(slot, _)| matches!(slot, Slot::Node(_)) == is_global);
    let is_well = |(_, replica): &(&Slot, &Replica)| {
        let Some(here) = &replica.assignment else { return false };
        let Some(node) = world.state.node(&here.node) else { return false };
        let is_up = node.status == NodeStatus::Ready && node.outage.is_none();
        let roles = world.state.roles_for(spec);
        is_up && misplaced(spec, &here.node, node, roles).is_none() && replica.waiting.is_none()
    };
    wanted.saturating_sub(ours.filter(is_well).count())
}

/// After one was stopped for a replica of its own band, no other of its service is missing.
fn check_budget(world: &World<'_>, evicted: &ReplicaId) -> Result<(), String> {
    let key = &evicted.service;
    let Some(service) = world.state.service(key) else { return Ok(()) };
    let Some(wanted) = service.desired().and_then(|it| it.placement.mode.replicas()) else {
        return Ok(());
    };
    let live = super::reasons::live(service);
    let missing = (wanted as usize).saturating_sub(live);
    if missing > 1 {
        return Err(format!("{evicted} is stopped, and {key} lacks {missing} then"));
    }
    Ok(())
}
