//! The second tier: the right to make machines, from whoever uses least of its slice. In the books it changes hands at once, and
//! the sum of all slices stays what it was.

use super::donors::{Donors, largest, take};
use super::{FleetDecision, MAX_TRANSFERS, Need, Tier, TierSkip, WaitsFor, wanted};
use plimsoll_model::fleet::FleetChange;
use plimsoll_model::fleet::ShardId;

pub(super) fn serve(
    need: &mut Need<'_>,
    donors: &mut Donors<'_>,
    decision: &mut FleetDecision,
) -> Option<TierSkip> {
    let mut why = WaitsFor::Donor;
    for _ in 0..MAX_TRANSFERS {
        if need.is_met() {
            return None;
        }
        let mut best: Option<(u32, _, _, _, u32)> = None;
        for (pool, capacity, missing) in wanted(need, donors.state, donors.quota.keys().copied()) {
            let resting = |shard: &ShardId| donors.rest(pool, shard, need.shard);
            let may = |shard: &ShardId| shard != need.shard && resting(shard).is_none();
            let Some((donor, slack)) = largest(&donors.quota[pool], may) else { continue };
            let count = slack.min(missing);
            if !donors.policy.is_worth(count, missing) {
                let (donor, pool) = (donor.clone(), pool.clone());
                why = WaitsFor::Benefit { donor, pool, given: count, missing };
                continue;
            }
            let is_better = best.as_ref().is_none_or(|(most, _, giver, _, fewest)| {
                (slack, *giver, *fewest) > (*most, donor, count)
            });
            if is_better {
                best = Some((slack, pool, donor, capacity, count));
            }
        }
        let Some((_, pool, donor, capacity, count)) = best else {
            why = donors.resting(&donors.quota, need).unwrap_or(why);
            break;
        };
        decision.batch.push(FleetChange::MoveQuota {
            donor: donor.clone(),
            recipient: need.shard.clone(),
            pool: pool.clone(),
            count,
            profile: need.shortfall.profile.clone(),
            cooldown: donors.policy.cycles(donors.policy.cooldown_cycles),
        });
        need.meet(count, capacity);
        take(&mut donors.quota, pool, donor, count);
        donors.meet(pool, donor, need.shard);
    }
    if need.is_met() { None } else { Some(TierSkip { tier: Tier::Quota, waits_for: why }) }
}
