//! Who makes way for a replica that finds no room: given the cell as a pass sees it, the fewest and cheapest replicas of
//! strictly lower priority on one node with which gone every filter passes. Where a replica may run is settled in
//! [`place`](crate::place), what becomes of those that make way in [`reconcile`](crate::reconcile).

use std::collections::BTreeMap;

use plimsoll_model::preemption::{Preemption, Victim};
use plimsoll_model::reason::{Filter, Shortage};
use plimsoll_model::{Millis, NodeId, ReplicaId, Resources, ServiceKey, State, Timestamp};

use crate::place::filter::{PlacementRequest, filter};
use crate::place::{Roster, ServiceTally};

mod candidates;
mod cover;

#[cfg(test)]
mod tests;

use candidates::Candidate;
pub(crate) use candidates::{Allowances, set_aside};
use cover::{Cover, Item};

/// A preemptor whose priority is higher by more than this outranks the disruption budget of its victims. Below it services
/// belong to one band of importance, and within a band nobody loses more than one replica at a time.
pub const BUDGET_GAP: i64 = 100_000;

/// How many replicas one pass looks at to find victims. A pass over a full cell of 10,000 nodes stays within tens of
/// milliseconds; what was not looked at is looked at by the next pass, from another place in the ring.
const MOST_LOOKED_AT: usize = 200_000;

/// How long a victim may take to move elsewhere and to finish its requests, by how far it is below the preemptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreemptLimits {
    /// Above each gap, the grace; the widest gap first.
    pub graces: [(i64, Millis); 3],
    /// Of every smaller gap.
    pub longest: Millis,
}

impl Default for PreemptLimits {
    fn default() -> Self {
        Self {
            graces: [
                (900_000, Millis::seconds(10)),
                (500_000, Millis::seconds(30)),
                (100_000, Millis::minutes(2)),
            ],
            longest: Millis::minutes(10),
        }
    }
}

impl PreemptLimits {
    pub fn grace(&self, preemptor: i32, victim: i32) -> Millis {
        let gap = gap(preemptor, victim);
        let grace = self.graces.iter().find(|(above, _)| gap > *above);
        grace.map_or(self.longest, |(_, grace)| *grace)
    }
}

fn gap(preemptor: i32, victim: i32) -> i64 {
    i64::from(preemptor) - i64::from(victim)
}

/// Whether the disruption budget of the victim's service does not protect it.
pub fn outranks_budget(preemptor: i32, victim: i32) -> bool {
    gap(preemptor, victim) > BUDGET_GAP
}

/// Whether room that is held for a replica is out of reach for the service: for its own, and for those of higher priority, it
/// is there to be taken.
pub(crate) fn is_held_against(held: &Preemption, key: &ServiceKey, priority: i32) -> bool {
    held.by.service != *key && held.priority >= priority
}

/// How dear a set of victims is: the least wins, fields compared top to bottom.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VictimCost {
    count: usize,
    highest_priority: i64,
    priorities: i64,
    penalties: u32,
}

/// Who makes way on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VictimSet {
    pub node: NodeId,
    pub victims: BTreeMap<ReplicaId, Victim>,
    pub(crate) cost: VictimCost,
}

/// Why nobody makes way on a node, with the numbers that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoVictims {
    /// No room is not what keeps the replica off the node.
    Closed(Filter),
    /// There is room.
    HasRoom,
    /// Room there is being freed for another one already, of no lower priority.
    Held { by: ReplicaId, priority: i32 },
    /// It would still not fit with all gone that may go.
    StillNoRoom { may_go: u32, kept: KeptReplicas, why: Filter },
    /// More would have to go than may at once.
    TooMany { most: u32 },
}

/// The replicas of a node that do not make way, by why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptReplicas {
    /// Of the same or a higher priority.
    pub priority: u32,
    /// With a volume or a bind mount.
    pub data: u32,
    /// Their service has no more to give within its disruption budget.
    pub budget: u32,
    /// On their way already, or about to be.
    pub moving: u32,
}

impl NoVictims {
    /// The word that programs compare.
    pub fn word(&self) -> String {
        match self {
            Self::Closed(filter) => filter.word().to_string(),
            Self::HasRoom => "has_room".to_owned(),
            Self::Held { .. } => "held".to_owned(),
            Self::StillNoRoom { .. } => "still_no_room".to_owned(),
            Self::TooMany { .. } => "too_many_victims".to_owned(),
        }
    }
}

impl std::fmt::Display for NoVictims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed(filter) => filter.fmt(f),
            Self::HasRoom => f.write_str("there is room, and nobody needs to make way"),
            Self::Held { by, priority } => {
                write!(f, "room there is being freed for {by} (priority {priority})")
            }
            Self::StillNoRoom { may_go, kept, why } => {
                write!(f, "{may_go} may make way, and then: {why}")?;
                for (count, what) in [
                    (kept.priority, "of no lower priority"),
                    (kept.data, "with data"),
                    (kept.budget, "within a disruption budget"),
                    (kept.moving, "moving already"),
                ] {
                    if count > 0 {
                        write!(f, "; {count} {what}")?;
                    }
                }
                Ok(())
            }
            Self::TooMany { most } => write!(f, "more than {most} would have to make way"),
        }
    }
}

/// How much looking is left in a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort(usize);

impl Default for Effort {
    fn default() -> Self {
        Self(MOST_LOOKED_AT)
    }
}

impl Effort {
    fn spend(&mut self, looked_at: usize) {
        self.0 = self.0.saturating_sub(looked_at);
    }

    fn is_spent(self) -> bool {
        self.0 == 0
    }
}

/// What the search for victims is given: the cell, and the preemptor's service.
pub(crate) struct VictimSearch<'a> {
    pub(crate) state: &'a State,
    /// The preemptions under way as the pass sees them.
    pub(crate) in_flight: &'a BTreeMap<NodeId, Preemption>,
    pub(crate) key: &'a ServiceKey,
    pub(crate) ask: &'a PlacementRequest<'a>,
    /// How many replicas of the service each node has.
    pub(crate) tally: &'a ServiceTally,
    pub(crate) limits: &'a PreemptLimits,
    pub(crate) now: Timestamp,
}

impl VictimSearch<'_> {
    /// The best of these nodes, of those that have any; equals by name.
    pub(crate) fn best(
        &self,
        roster: &mut Roster,
        places: impl Iterator<Item = usize>,
        effort: &mut Effort,
    ) -> Option<VictimSet> {
        let mut allowances = Allowances::default();
        let mut best: Option<VictimSet> = None;
        for at in places {
            if effort.is_spent() {
                break;
            }
            let found = self.on_node(roster, at, &mut allowances, effort);
            if let Ok(found) = found {
                best = Some(match best {
                    Some(best) if (&best.cost, &best.node) <= (&found.cost, &found.node) => best,
                    _ => found,
                });
            }
        }
        best
    }

    /// Who would make way on the node, or why nobody.
    pub(crate) fn on_node(
        &self,
        roster: &mut Roster,
        at: usize,
        allowances: &mut Allowances,
        effort: &mut Effort,
    ) -> Result<VictimSet, NoVictims> {
        effort.spend(1);
        let priority = self.ask.spec.priority;
        let node = roster.id_at(at).clone();
        let held = self.in_flight.get(&node);
        if let Some(held) = held.filter(|it| it.priority >= priority) {
            return Err(NoVictims::Held { by: held.by.clone(), priority: held.priority });
        }
        let here = self.tally.here(at);
        let now_says = filter(self.ask, roster, at, here);
        // Where there is room, something else keeps the replica from it, which no victim changes.
        let Some(why) = now_says else { return Err(NoVictims::HasRoom) };
        if !is_about_room(&why) {
            return Err(NoVictims::Closed(why));
        }
        let (candidates, kept) = self.candidates(&node, allowances);
        effort.spend(candidates.len() + kept.count());
        let gone = |all: &[&Candidate<'_>]| -> Vec<(Resources, ReplicaId)> {
            all.iter().map(|it| (it.request, it.id.clone())).collect()
        };
        // A budget may keep some of them, so this is what could go at most.
        let all: Vec<&Candidate<'_>> = candidates.iter().collect();
        if let Some(why) = roster.without(at, &gone(&all), |it| filter(self.ask, it, at, here)) {
            let may_go = u32::try_from(all.len()).unwrap_or(u32::MAX);
            return Err(NoVictims::StillNoRoom { may_go, kept, why });
        }
        let ports = roster.port_holders(at, &self.ask.ports);
        let items = candidates.iter().map(|it| Item {
            request: it.request,
            priority: it.priority,
            penalty: it.penalty,
            class: it.class,
            service: it.service_number,
            is_required: ports.contains(&it.id),
        });
        let cover = Cover {
            items: items.collect(),
            caps: candidates::caps(&candidates),
            asked: self.ask.whole_request(),
            reserved: roster.reserved_at(at),
            capacity: roster.capacity_at(at),
        };
        let most = plimsoll_model::preemption::MAX_VICTIMS;
        let too_many = || NoVictims::TooMany { most: u32::try_from(most).unwrap_or(u32::MAX) };
        let Some(chosen) = cover.least(most, effort) else {
            let allowed = candidates::within_caps(&candidates);
            let spared = candidates.len() - allowed.len();
            let spared = u32::try_from(spared).unwrap_or(u32::MAX);
            let why = roster.without(at, &gone(&allowed), |it| filter(self.ask, it, at, here));
            let Some(why) = why.filter(|_| spared > 0) else { return Err(too_many()) };
            let may_go = u32::try_from(allowed.len()).unwrap_or(u32::MAX);
            let kept = KeptReplicas { budget: kept.budget.saturating_add(spared), ..kept };
            return Err(NoVictims::StillNoRoom { may_go, kept, why });
        };
        let chosen: Vec<&Candidate<'_>> = chosen.into_iter().map(|i| &candidates[i]).collect();
        if let Some(why) = roster.without(at, &gone(&chosen), |it| filter(self.ask, it, at, here)) {
            let may_go = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
            return Err(NoVictims::StillNoRoom { may_go, kept, why });
        }
        Ok(VictimSet { node, cost: cost(&chosen), victims: self.victims(&chosen) })
    }

    fn victims(&self, chosen: &[&Candidate<'_>]) -> BTreeMap<ReplicaId, Victim> {
        let victim = |it: &&Candidate<'_>| {
            let grace = self.limits.grace(self.ask.spec.priority, it.priority);
            let victim = Victim {
                generation: it.generation,
                priority: it.priority,
                penalty: it.penalty,
                until: self.now.plus(grace),
            };
            (it.id.clone(), victim)
        };
        chosen.iter().map(victim).collect()
    }
}

fn cost(chosen: &[&Candidate<'_>]) -> VictimCost {
    VictimCost {
        count: chosen.len(),
        highest_priority: chosen.iter().map(|it| i64::from(it.priority)).max().unwrap_or(i64::MIN),
        priorities: chosen.iter().map(|it| i64::from(it.priority)).sum(),
        penalties: chosen.iter().map(|it| u32::from(it.penalty)).sum(),
    }
}

/// Whether room is what is lacking, which others can make.
pub(crate) fn is_about_room(why: &Filter) -> bool {
    match why {
        Filter::InsufficientCapacity(
            Shortage::Cpu { .. } | Shortage::Memory { .. } | Shortage::Gpus { .. },
        )
        | Filter::PortTaken { .. } => true,
        Filter::VolumeSharer { why, .. } => is_about_room(why),
        Filter::NotReady
        | Filter::RuntimeUnavailable
        | Filter::Cordoned
        | Filter::Draining
        | Filter::NotListed
        | Filter::Constraint { .. }
        | Filter::RuntimeLacks { .. }
        | Filter::VolumeElsewhere { .. }
        | Filter::VolumeSplit { .. }
        | Filter::VolumeCopy { .. }
        | Filter::NoGpu { .. }
        | Filter::MaxPerNode { .. }
        // Who makes way stays a tenant until it has stopped.
        | Filter::InsufficientCapacity(Shortage::Replicas { .. })
        | Filter::RecentFailures { .. } => false,
    }
}
