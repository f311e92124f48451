//! Serves shortfalls: given the fleet's state and what shards last reported, which transfers to begin and, of every shortfall that
//! is not served, why not. How a transfer goes on from there is settled in [`apply`](plimsoll_model::fleet::FleetState::apply).

use plimsoll_model::{Resources, Timestamp};

use crate::policy::FleetPolicy;
use crate::reports::Reports;
use plimsoll_model::fleet::FleetChange;
use plimsoll_model::fleet::Shortfall;
use plimsoll_model::fleet::{FleetState, TransferStep};
use plimsoll_model::fleet::{Pool, Profile, ShardId};

mod donors;
mod eligible;
mod idle;
mod preempt;
mod quota;
mod reason;

#[cfg(test)]
mod tests;

pub use reason::{Gate, Tier, TierSkip, Unserved, WaitsFor};

use donors::Donors;

/// The most transfers of one kind that one pass begins for one shortfall.
const MAX_TRANSFERS: usize = 4;

/// What to write, and why the rest is not served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetDecision {
    pub batch: Vec<FleetChange>,
    pub unserved: Vec<Unserved>,
}

/// A shortfall that may be served now.
#[derive(Debug, Clone)]
struct Need<'r> {
    shard: &'r ShardId,
    shortfall: &'r Shortfall,
    age: u64,
    /// What is missing, less what is on its way.
    deficit: Resources,
    /// Whether anything is.
    is_under_way: bool,
}

impl Need<'_> {
    /// How many machines of the pool close what is missing; none where one holds not even the least that is of use.
    fn machines(&self, capacity: Resources) -> Option<u32> {
        if !self.shortfall.min_unit.fits_in(capacity) {
            return None;
        }
        let deficit = self.deficit;
        let by = |missing: u64, each: u64| match (missing, each) {
            (0, _) => Some(0),
            (_, 0) => None,
            (missing, each) => Some(missing.div_ceil(each)),
        };
        let cpu = by(deficit.cpu.0, capacity.cpu.0)?;
        let memory = by(deficit.memory.0, capacity.memory.0)?;
        let gpus = by(u64::from(deficit.gpus), u64::from(capacity.gpus))?;
        Some(u32::try_from(cpu.max(memory).max(gpus)).unwrap_or(u32::MAX))
    }

    fn meet(&mut self, count: u32, capacity: Resources) {
        self.deficit = less(self.deficit, count, capacity);
    }

    fn is_met(&self) -> bool {
        self.deficit == Resources::NONE
    }
}

/// What is missing once so many machines are there.
fn less(deficit: Resources, count: u32, capacity: Resources) -> Resources {
    let times = |each: u64| each.saturating_mul(u64::from(count));
    let given = Resources {
        cpu: plimsoll_model::MilliCpus(times(capacity.cpu.0)),
        memory: plimsoll_model::Bytes(times(capacity.memory.0)),
        gpus: capacity.gpus.saturating_mul(count),
        all_gpus: 0,
    };
    deficit.minus(given)
}

/// One pass of the coordinator's leader.
pub fn coordinate(
    state: &FleetState,
    reports: &Reports,
    policy: &FleetPolicy,
    now: Timestamp,
) -> FleetDecision {
    let mut decision = FleetDecision::default();
    expire(state, now, &mut decision);
    let (needs, too_early) = eligible::needs(state, reports, policy, now);
    decision.unserved.extend(too_early);
    let mut donors = Donors::new(state, reports, policy, now);
    for mut need in needs {
        let idle = idle::serve(&mut need, &mut donors, &mut decision);
        let quota = quota::serve(&mut need, &mut donors, &mut decision);
        let preempt = preempt::serve(&mut need, &mut donors, &mut decision, [&idle, &quota]);
        if !need.is_met() {
            let why = Gate::Tiers([idle, quota, preempt].into_iter().flatten().collect());
            decision.unserved.push(unserved(&need, why));
        }
    }
    decision
}

/// Donors that have not answered in time are not waited for any longer.
fn expire(state: &FleetState, now: Timestamp, decision: &mut FleetDecision) {
    let is_late = |(_, it): &(_, &plimsoll_model::fleet::Transfer)| {
        it.step == TransferStep::Asked && now > it.deadline
    };
    let late = state.transfers().iter().filter(is_late);
    decision.batch.extend(late.map(|(id, _)| FleetChange::Expire { transfer: *id }));
}

fn unserved(need: &Need<'_>, why: Gate) -> Unserved {
    Unserved {
        shard: need.shard.clone(),
        profile: need.shortfall.profile.clone(),
        missing: need.deficit,
        why,
    }
}

/// The pools of which the shortfall would take a machine, with what one has and how many of them it takes.
fn wanted<'d>(
    need: &Need<'_>,
    state: &FleetState,
    pools: impl Iterator<Item = &'d Pool>,
) -> Vec<(&'d Pool, Resources, u32)> {
    let accepted = pools.filter(|pool| need.shortfall.accepts.pool(pool));
    let sized = accepted.filter_map(|pool| {
        let capacity = state.capacity(&pool.machine_type)?;
        Some((pool, capacity, need.machines(capacity)?))
    });
    sized.collect()
}

/// A key of a need, for what is on its way.
type NeedKey<'k> = (&'k ShardId, &'k Profile);
