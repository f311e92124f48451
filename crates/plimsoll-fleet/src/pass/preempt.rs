//! The third tier, which is rare: a drain of machines whose work matters strictly less, by priority *and* by what an interruption
//! costs, for a shortfall that is old and for which nothing else is under way or to be had.

use super::donors::Donors;
use super::{FleetDecision, Need, Tier, TierSkip, WaitsFor};
use plimsoll_model::fleet::FleetChange;
use plimsoll_model::fleet::Preemptible;
use plimsoll_model::fleet::ShardId;
use plimsoll_model::fleet::TransferKind;

/// Has machines drained. Where a cheaper tier has done something, or could, it does nothing.
pub(super) fn serve(
    need: &mut Need<'_>,
    donors: &mut Donors<'_>,
    decision: &mut FleetDecision,
    cheaper: [&Option<TierSkip>; 2],
) -> Option<TierSkip> {
    let skip = |waits_for| Some(TierSkip { tier: Tier::Preempt, waits_for });
    if need.is_met() {
        return None;
    }
    let (age, above) = (need.age, donors.policy.preempt_age);
    if age <= above {
        return skip(WaitsFor::Age { age, above });
    }
    let is_empty = |it: &Option<TierSkip>| {
        it.as_ref()
            .is_some_and(|it| matches!(it.waits_for, WaitsFor::Donor | WaitsFor::Benefit { .. }))
    };
    let is_begun = need.deficit != need.shortfall.deficit;
    if need.is_under_way || is_begun || !cheaper.into_iter().all(is_empty) {
        return skip(WaitsFor::CheaperTier);
    }
    match victim(need, donors) {
        Err(waits_for) => skip(waits_for),
        Ok((donor, row, count)) => {
            let policy = donors.policy;
            decision.batch.push(FleetChange::AskMachines {
                kind: TransferKind::Preempt,
                donor: donor.clone(),
                recipient: need.shard.clone(),
                pool: row.pool.clone(),
                count,
                profile: need.shortfall.profile.clone(),
                priority: need.shortfall.priority,
                patience: policy.reservation(row.grace),
                ttl: plimsoll_model::Millis(policy.reservation(row.grace).0.saturating_mul(2)),
                cooldown: policy.cycles(policy.cooldown_cycles),
            });
            let capacity = donors.state.capacity(&row.pool.machine_type).unwrap_or_default();
            need.meet(count, capacity);
            donors.meet(&row.pool, donor, need.shard);
            donors.preemptible.retain(|(shard, it, _)| *shard != donor || it.pool != row.pool);
            None
        }
    }
}

/// What matters least of all that may be drained.
fn victim<'r>(
    need: &Need<'_>,
    donors: &Donors<'r>,
) -> Result<(&'r ShardId, &'r Preemptible, u32), WaitsFor> {
    let Some(ours) = need.shortfall.bucket else { return Err(WaitsFor::PenaltyUnknown) };
    let mut why = WaitsFor::Donor;
    let mut best = None;
    for (shard, row, configured) in &donors.preemptible {
        if *shard == need.shard || !need.shortfall.accepts.pool(&row.pool) {
            continue;
        }
        let capacity = donors.state.capacity(&row.pool.machine_type);
        let Some(missing) = capacity.and_then(|capacity| need.machines(capacity)) else { continue };
        let donor = || (*shard).clone();
        let Some(theirs) = row.bucket else {
            why = WaitsFor::PenaltyUnknown;
            continue;
        };
        if row.priority >= need.shortfall.priority {
            let (theirs, ours) = (row.priority, need.shortfall.priority);
            why = WaitsFor::Priority { donor: donor(), theirs, ours };
            continue;
        }
        if theirs >= ours {
            why = WaitsFor::Penalty { donor: donor(), theirs, ours };
            continue;
        }
        if let Some(left) = donors.rest(&row.pool, shard, need.shard) {
            why = WaitsFor::Cooldown { donor: donor(), pool: row.pool.clone(), left };
            continue;
        }
        let count = missing.min(row.machines).min(donors.policy.drained(*configured));
        let rank = (row.priority, theirs, std::cmp::Reverse(row.machines), *shard, &row.pool);
        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
            best = Some((rank, (*shard, *row, count)));
        }
    }
    best.map(|(_, found)| found).ok_or(why)
}
