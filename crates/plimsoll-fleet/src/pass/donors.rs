//! Who could give, by type and zone: an index over all shards that were heard, less what is promised already, in this pass or
//! before.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{Millis, Timestamp};

use super::{Need, WaitsFor, wanted};
use crate::policy::FleetPolicy;
use crate::reports::{Reports, ShardReport};
use plimsoll_model::fleet::MAX_PENDING;
use plimsoll_model::fleet::{Accepts, Preemptible};
use plimsoll_model::fleet::{FleetState, Transfer, TransferKind, TransferStep, pair};
use plimsoll_model::fleet::{Pool, ShardId};

/// How much each shard can give, by pool.
pub(super) type Given<'r> = BTreeMap<&'r Pool, BTreeMap<&'r ShardId, u32>>;

#[derive(Debug)]
pub(super) struct Donors<'r> {
    pub(super) state: &'r FleetState,
    pub(super) policy: &'r FleetPolicy,
    now: Timestamp,
    /// Machines that can be given, by pool and shard.
    pub(super) idle: Given<'r>,
    /// Quota that is not used.
    pub(super) quota: Given<'r>,
    /// What was promised before, by donor.
    open: BTreeMap<&'r ShardId, Vec<&'r Transfer>>,
    pub(super) preemptible: Vec<(&'r ShardId, &'r Preemptible, u32)>,
    /// Pairs that this pass has brought together.
    met: BTreeSet<(Pool, ShardId, ShardId)>,
}

impl<'r> Donors<'r> {
    pub(super) fn new(
        state: &'r FleetState,
        reports: &'r Reports,
        policy: &'r FleetPolicy,
        now: Timestamp,
    ) -> Self {
        let mut donors = Self {
            state,
            policy,
            now,
            idle: BTreeMap::new(),
            quota: BTreeMap::new(),
            open: BTreeMap::new(),
            preemptible: Vec::new(),
            met: BTreeSet::new(),
        };
        for transfer in state.transfers().values() {
            donors.open.entry(&transfer.donor).or_default().push(transfer);
        }
        for (shard, report) in reports.fresh(policy, now) {
            let is_open =
                state.shards().get(shard).is_some_and(|it| it.pending.len() < MAX_PENDING);
            if is_open && !report.is_paused {
                donors.add(shard, report);
            }
        }
        donors
    }

    fn add(&mut self, shard: &'r ShardId, report: &'r ShardReport) {
        // Who lacks machines of a kind gives none of that kind away.
        let mut accepted: Vec<&Accepts> = Vec::new();
        for it in report.shortfalls.values() {
            // Most are alike.
            if !accepted.contains(&&it.shortfall.accepts) {
                accepted.push(&it.shortfall.accepts);
            }
        }
        let lacks = |pool: &Pool| accepted.iter().any(|accepts| accepts.pool(pool));
        for (pool, supply) in &report.supply {
            let promised = self.promised(shard, report, pool);
            let left = supply.idle.saturating_sub(promised);
            let given = left.saturating_sub(self.policy.kept(supply.idle));
            if given > 0 && !lacks(pool) {
                self.idle.entry(pool).or_default().insert(shard, given);
            }
        }
        for (pool, slices) in self.state.quotas() {
            let used = report.supply.get(pool).map_or(0, |supply| supply.quota_used);
            let given = slices.get(shard).map_or(0, |slice| slice.saturating_sub(used));
            if given > 0 && !lacks(pool) {
                self.quota.entry(pool).or_default().insert(shard, given);
            }
        }
        for row in report.preemptible.iter().filter(|row| row.machines > 0) {
            let configured = report.supply.get(&row.pool).map_or(0, |supply| supply.configured);
            self.preemptible.push((shard, row, configured));
        }
    }

    /// Idle machines that the shard's report still counts and that are somebody else's by now, or are asked for.
    fn promised(&self, shard: &ShardId, report: &ShardReport, pool: &Pool) -> u32 {
        let open = self.open.get(shard).into_iter().flatten();
        let ours = open.filter(|it| it.pool == *pool && it.kind == TransferKind::Idle);
        ours.map(|it| match &it.step {
            TransferStep::Asked => it.count,
            TransferStep::Moved { machines, .. }
                if it.answered.is_none_or(|at| report.order <= at) =>
            {
                u32::try_from(machines.len()).unwrap_or(u32::MAX)
            }
            TransferStep::Moved { .. } | TransferStep::Shrinking | TransferStep::Growing => 0,
        })
        .sum()
    }

    /// A donor that could serve the need once it has rested: it is waited for before anything is drained.
    pub(super) fn resting(&self, given: &Given<'r>, need: &Need<'_>) -> Option<WaitsFor> {
        wanted(need, self.state, given.keys().copied()).into_iter().find_map(
            |(pool, _, missing)| {
                let able = given[pool].iter().filter(|(shard, count)| {
                    **shard != need.shard && self.policy.is_worth((**count).min(missing), missing)
                });
                able.into_iter().find_map(|(shard, _)| {
                    let left = self.rest(pool, shard, need.shard)?;
                    let (donor, pool) = ((*shard).clone(), pool.clone());
                    Some(WaitsFor::Cooldown { donor, pool, left })
                })
            },
        )
    }

    /// How long the two have to wait before they exchange something of the pool.
    pub(super) fn rest(&self, pool: &Pool, a: &ShardId, b: &ShardId) -> Option<Millis> {
        if self.met.contains(&pair(pool, a, b)) {
            return Some(self.policy.cycles(self.policy.cooldown_cycles));
        }
        self.state.cooldown(pool, a, b, self.now)
    }

    pub(super) fn meet(&mut self, pool: &Pool, a: &ShardId, b: &ShardId) {
        self.met.insert(pair(pool, a, b));
    }
}

/// Who has most to give, and of equals the first by name.
pub(super) fn largest<'r>(
    given: &BTreeMap<&'r ShardId, u32>,
    may: impl Fn(&ShardId) -> bool,
) -> Option<(&'r ShardId, u32)> {
    let able = given.iter().filter(|(shard, count)| **count > 0 && may(shard));
    let best = able.max_by(|(a, left), (b, right)| left.cmp(right).then_with(|| b.cmp(a)));
    best.map(|(shard, count)| (*shard, *count))
}

/// What is given is not there for the next; who has nothing left is not looked at again.
pub(super) fn take(given: &mut Given<'_>, pool: &Pool, donor: &ShardId, count: u32) {
    let Some(shards) = given.get_mut(pool) else { return };
    if let Some(left) = shards.get_mut(donor) {
        *left = left.saturating_sub(count);
        if *left == 0 {
            shards.remove(donor);
        }
    }
    if shards.is_empty() {
        given.remove(pool);
    }
}
